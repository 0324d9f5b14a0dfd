"""What reclusters have made of a stream's files, and which recluster is under way.

    TARGET/stream=clicks/_manifest/layout/00000000000000000003.json    the last one counts
    TARGET/stream=clicks/_manifest/holds/5f0c….json                    of a recluster that is under way

A *layout* names files that are no agent's, and files of agents that they stand for. It is one small file; so
all of a recluster is seen when that appears, and nothing of it before. Each has all of those before it.

Two must not take the same files: a recluster that reads them, and an agent that merges them
(``agents.archive.shelf``). Each says what it means to do, durably, before it looks for the other: the agent
names the files in its manifest as ``busy`` and then looks for a *hold*; the recluster writes its hold and
then reads the manifests. So one of them sees the other. The agent then gives way, and the recluster leaves
out what is busy.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

from agents.archive.manifest import VERSION, File, decoded, root_of
from agents.archive.partitions import Target

_LAYOUT: Final = re.compile(r"(\d{20})\.json")


class Layout(msgspec.Struct, frozen=True, kw_only=True):
    """``replaced``: for each file of an agent that readers are to pass over, since when (ms)."""

    version: int = VERSION
    number: int = 0
    files: tuple[File, ...] = ()
    replaced: dict[str, int] = {}


class Hold(msgspec.Struct, frozen=True, kw_only=True):
    """Who reclusters, by which column, since when (ms)."""

    version: int = VERSION
    by: str
    host: str
    pid: int
    since_ms: int


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


def hold(target: Target, stream: str, uid: str, by: Hold) -> None:
    target.place(f"{root_of(target, stream)}/holds/{uid}.json", [msgspec.json.encode(by)])


def let_go(target: Target, stream: str, uid: str) -> None:
    target.remove(f"{root_of(target, stream)}/holds/{uid}.json")
