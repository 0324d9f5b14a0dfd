"""What reclusters have made of a stream's files, and which recluster is under way.

    TARGET/stream=clicks/_manifest/layout/00000000000000000003.json    the last one counts
    TARGET/stream=clicks/_manifest/holds/5f0c….json                    of a recluster that is under way

A *layout* names files that are no agent's, and files of agents that they stand for. It is one small file; so
all of a recluster is seen when that appears, and nothing of it before. Each has all of those before it.

Two must not take the same files: a recluster that reads them, and an agent that merges them or lets them go
(``agents.archive.shelf``). Each says what it means to do, durably, before it looks for the other:

    merge          the agent names the files in its manifest as ``busy`` and then looks for a *hold*; the
                   recluster writes its hold and then reads the manifests
    retention      the agent names them as ``going`` and then looks for a hold that is *committing*; the
                   recluster says so in its hold, then reads the manifests, and then writes its layout

So one of them sees the other. The agent then gives way, and the recluster leaves out what is busy or going.

A hold whose process has died is in nobody's way (``is_dead``): agents and reclusters delete it. Of a process
of another machine it is only known when it last said that it is at work.
"""

from __future__ import annotations

import re
import socket
from pathlib import Path
from typing import Final

import msgspec
import psutil

from agents.archive.manifest import VERSION, File, decoded, root_of
from agents.archive.partitions import Target

SILENT_MS: Final = 6 * 3_600_000
"""A recluster on another machine that has not said for so long that it is at work is dead."""
COMMITTING_MS: Final = 10 * 60_000
"""The same of one that was about to put its layout in force: retention waits for it."""
_LAYOUT: Final = re.compile(r"(\d{20})\.json")


class Layout(msgspec.Struct, frozen=True, kw_only=True):
    """``replaced``: for each file of an agent that readers are to pass over, since when (ms)."""

    version: int = VERSION
    number: int = 0
    files: tuple[File, ...] = ()
    replaced: dict[str, int] = {}


class Hold(msgspec.Struct, frozen=True, kw_only=True):
    """Who reclusters, by which column, since when (ms). ``place``: where its process id counts (``here``);
    ``seen_ms``: when it last said that it is at work; ``is_committing``: it is about to put its layout in
    force."""

    version: int = VERSION
    by: str
    host: str
    pid: int
    since_ms: int
    place: str = ""
    seen_ms: int = 0
    is_committing: bool = False


def here() -> str:
    """Where a process id means one process: in this start of this machine, and this namespace."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:  # no Linux
        return socket.gethostname()


def is_dead(hold: Hold, now_ms: int) -> bool:
    """Whether the process that has written a hold has ended."""
    if hold.place != here():
        silent_ms = COMMITTING_MS if hold.is_committing else SILENT_MS
        return now_ms - max(hold.since_ms, hold.seen_ms) > silent_ms
    try:
        return bool(psutil.Process(hold.pid).create_time() * 1000 > hold.since_ms)
    except psutil.NoSuchProcess:
        return True


def last_layout(target: Target, stream: str) -> Layout:
    """The one in force; an empty one of number 0 where there was no recluster yet."""
    folder = f"{root_of(target, stream)}/layout"
    numbers = [int(match[1]) for name in target.names(folder) if (match := _LAYOUT.fullmatch(name))]
    for number in sorted(numbers, reverse=True):
        path = f"{folder}/{number:020d}.json"
        if (data := target.read(path)) is not None:
            return decoded(path, data, Layout)
    return last_layout(target, stream) if numbers else Layout()  # there are newer ones meanwhile


def commit(target: Target, stream: str, layout: Layout) -> None:
    """Put a layout in force; those long before it are deleted."""
    folder = f"{root_of(target, stream)}/layout"
    target.place(f"{folder}/{layout.number:020d}.json", [msgspec.json.encode(layout)])
    for name in target.names(folder):
        if (match := _LAYOUT.fullmatch(name)) and int(match[1]) < layout.number - 1:
            target.remove(f"{folder}/{name}")


def holds(target: Target, stream: str) -> dict[str, Hold]:
    """The reclusters that are under way, or have ended without a word, by their ids."""
    folder = f"{root_of(target, stream)}/holds"
    found = {}
    for name in target.names(folder):
        if name.endswith(".json") and (data := target.read(f"{folder}/{name}")) is not None:
            found[name.removesuffix(".json")] = decoded(f"{folder}/{name}", data, Hold)
    return found


def live_holds(target: Target, stream: str, now_ms: int) -> dict[str, Hold]:
    """Those of them whose processes live; the others are deleted."""
    found = {}
    for uid, one in holds(target, stream).items():
        if is_dead(one, now_ms):
            let_go(target, stream, uid)
        else:
            found[uid] = one
    return found


def hold_path(target: Target, stream: str, uid: str) -> str:
    return f"{root_of(target, stream)}/holds/{uid}.json"


def hold(target: Target, stream: str, uid: str, by: Hold) -> None:
    target.place(hold_path(target, stream, uid), [msgspec.json.encode(by)])


def let_go(target: Target, stream: str, uid: str) -> None:
    target.remove(hold_path(target, stream, uid))
