"""What a start with a configuration would trip over on this machine, and what is worth a look; a line each.

Folders are tried by making something in them, addresses by listening there, log files by reading their first
lines, the fleet by asking the agents of ``cluster.bootstrap``. Nothing is left behind. So the data folder and
the ports of an agent that runs are in use, as they are for whoever would start a second one.
"""

from __future__ import annotations

import asyncio
import contextlib
import glob
import grp
import itertools
import os
import re
import shutil
import tempfile
import zoneinfo
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Final

import psutil

from agents.config import FILES, Config, StreamConfig
from agents.disk.folder import in_use, open_folders
from agents.disk.store import Store
from agents.formats import get_format
from agents.http import cannot_serve
from agents.inputs.ranges import is_compressed
from agents.inputs.records import Records
from agents.keyring import OPEN, Keyring, named_by, open_keyring
from agents.loading import listeners
from agents.lookups import Lookups
from agents.process import STORE_FILE
from agents.receiving.opening import cannot_receive
from agents.settings.tree import ConfigProblems
from agents.streams import records_of
from agents.tasks.samples import HARDLY, better_format, fitting, says_its_zone
from elf.addresses import clash, is_loopback, split_address
from elf.client.credentials import NONE
from elf.errors import ElfError
from elf.security.loopback import loopback_file
from elf.transport.zeromq import cannot_listen

FILES_MAX: Final = 1_000
"""Files of a stream that are opened."""
LOOKED_AT_MAX: Final = 50
"""Of those, so many are looked at for their format."""
LINES_MAX: Final = 200
HEAD_BYTES: Final = 64 << 10
"""The first lines of a file: so many, of so many bytes, at most."""
TOLD_MAX: Final = 3
"""Files that are told of for the same reason, of however many."""
STATE_BYTES_MAX: Final = 256 << 20
"""Of an agent's state that is looked at."""
ASK_SECS: Final = 2.0
"""For an agent that is to be joined."""
_ZONE: Final = re.compile(r":?[A-Za-z]{3,}[+-]?\d.*|<.+>.*")
"""A time zone in POSIX's form, ``CET-1CEST``."""


@dataclass
class Found:
    """Of one configuration. ``wrong``: in itself; ``machine``: a start with it would trip over that here and
    now; ``notes``: it would start, but perhaps not do what is meant."""

    wrong: list[str] = field(default_factory=list)
    machine: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def validate_all(configs: Mapping[Path, Config], running: Mapping[Path, Config] = {}) -> dict[Path, Found]:
    """All of each; agents of one process must not be in each other's way. ``running``: those of agents that
    run here, and are to go on with these."""
    beside = frozenset(config.agent.advertise for config in configs.values())
    found = {file: validate(config, beside, running.get(file)) for file, config in configs.items()}
    for (first, one), (second, other) in itertools.combinations(configs.items(), 2):
        found[second].wrong += [f"{problem} {first}" for problem in _in_the_way(one, other)]
    return found


def _in_the_way(one: Config, other: Config) -> list[str]:
    """What the other shares with the one before it and must not, up to the name of that one's file."""
    found = []
    if one.agent.name == other.agent.name:
        found.append(f"agent.name: {other.agent.name} is also the name in")
    if one.data_dir == other.data_dir:
        found.append(f"data_dir: {other.data_dir} is also the folder in")
    for (key, mine), (before, its) in itertools.product(listeners(other), listeners(one)):
        if clash(mine, its):
            found.append(f"{key}: {mine} is {before} in")
    return found


def validate(config: Config, beside: frozenset[str] = frozenset(), running: Config | None = None) -> Found:
    """All that is to be said of one configuration; ``beside``: where agents will be that start with it;
    ``running``: of the agent that is to go on with it, whose folder and ports are its own."""
    found = Found(notes=list(config.notes))
    keyring = _keyring(config, found)
    config = named_by(keyring, config)
    _folders(config, found, running)
    _ports(config, found, running)
    own = {stream.receive.listen for stream in running.streams.values()} if running is not None else set()
    for name, stream in config.streams.items():
        if stream.type == FILES:
            _files(f"streams.{name}", stream, found)
        elif not stream.receive.listen or stream.receive.listen not in own:
            found.machine += cannot_receive(f"streams.{name}", stream)
    try:
        Lookups().open(config.geoip.databases)
    except ElfError as error:
        found.machine.append(str(error))
    _fleet(config, found, beside, keyring)
    _surroundings(config, found)
    return found


def _keyring(config: Config, found: Found) -> Keyring:
    """Its keys, and what is wrong with them."""
    try:
        keyring = open_keyring(config, make=False)
    except ConfigProblems as problems:
        found.wrong += str(problems).splitlines()
        return Keyring("open")
    if keyring.mode == "open":
        found.notes.append(OPEN)
    return keyring


# -- the machine ---------------------------------------------------------------------------------------------


def _folders(config: Config, found: Found, running: Config | None) -> None:
    folders = [("data_dir", config.data_dir)]
    if config.archive.path.startswith("/"):
        folders.append(("archive.path", config.archive.path))
    if config.log.path:
        folders.append(("log.path", str(Path(config.log.path).parent)))
    found.machine += [f"{key}: {problem}" for key, path in folders if (problem := _unwritable(Path(path)))]
    if running is not None and running.data_dir == config.data_dir:
        pass  # it is that agent's
    elif holder := in_use(Path(config.data_dir)):
        found.machine.append(
            f"data_dir: {config.data_dir} is in use by {holder}; stop that one first, or choose another"
        )
    elif why := _unusable(Path(config.data_dir) / STORE_FILE):
        found.machine.append(f"data_dir: {why}")
    found.notes += open_folders(config)
    if why := _no_group(config.archive.group):
        found.machine.append(f"archive.group: {why}")


def _no_group(group: str) -> str:
    """Why files cannot be given to a group; empty: they can."""
    if not group:
        return ""
    try:
        number = grp.getgrnam(group).gr_gid
    except KeyError:
        return f"this machine has no group {group}"
    mine = os.geteuid() == 0 or number in (os.getegid(), *os.getgroups())
    return "" if mine else f"the agent's user is not in group {group}, so it cannot give files to it"


def _unusable(state: Path) -> str:
    """Why no agent can go on from a state file, if there is one: a copy of it is opened as a start would do
    it, unless it is too large for that."""
    with tempfile.TemporaryDirectory(prefix="elf-validate-") as folder:
        copy = Path(folder) / state.name
        try:
            files = [one for end in ("", "-wal") if (one := state.with_name(state.name + end)).exists()]
            if not files or sum(one.stat().st_size for one in files) > STATE_BYTES_MAX:
                return ""
            for one in files:
                shutil.copy(one, folder)
            Store(copy).close()
        except OSError as error:
            return f"{state} cannot be read {_user()}: {str(error.strerror).lower()}"
        except ElfError as error:
            return str(error).replace(str(copy), str(state))
    return ""


def _unwritable(folder: Path) -> str | None:
    """Why a folder cannot be made, or not be written to; None when all is well. It is tried: what the
    permissions say is not all (a root user, a file system that is read-only or the kernel's)."""
    try:
        existing = next(place for place in (folder, *folder.parents) if place.exists())
        if not existing.is_dir():
            return f"{existing} is not a folder"
        with tempfile.TemporaryDirectory(prefix=".elf-validate-", dir=existing):
            return None
    except OSError as error:
        return f"nothing can be written to {folder}: {str(error.strerror).lower()} ({_user()})"


def _user() -> str:
    return f"as user {os.geteuid()}"


def _ports(config: Config, found: Found, running: Config | None) -> None:
    own = {running.agent.listen, running.http.listen} if running is not None else set()
    if config.agent.listen not in own and (why := cannot_listen(config.agent.listen)):
        found.machine.append(f"agent.listen: {why}")
    http = config.http.listen
    if http and http not in own and (why := cannot_serve(http)):
        found.machine.append(f"http.listen: {why}")


def _surroundings(config: Config, found: Found) -> None:
    has = psutil.virtual_memory().total
    if config.memory_max_bytes > has:
        found.notes.append(
            f"memory_max_bytes: {config.memory_max_bytes:,} is more than the machine has ({has:,})"
        )
    zone = os.environ.get("TZ", "")
    if zone and not _ZONE.fullmatch(zone) and not _known(zone.removeprefix(":")):
        found.notes.append(f"TZ={zone} is no time zone that this machine knows; elf computes in UTC anyway")


def _known(zone: str) -> bool:
    if zone.startswith("/"):
        return Path(zone).is_file()
    try:
        zoneinfo.ZoneInfo(zone)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        return False
    return True


# -- log files -----------------------------------------------------------------------------------------------


def _files(key: str, stream: StreamConfig, found: Found) -> None:
    for pattern in stream.include:
        folder = fixed_folder(pattern)
        there, readable = _folder(folder)
        if there and not readable:
            found.machine.append(
                f"{key}.include: the folder {folder} may not be read {_user()}; give that user r and x there"
            )
        elif not _paths([pattern]):
            why = "no file is there" if there else f"there is no folder {folder}"
            found.notes.append(f"{key}.include: {pattern} matches nothing now: {why}")
    paths = sorted(path for path in _paths(stream.include) - _paths(stream.exclude) if _is_regular(path))
    heads = {path: _head(path, records_of(stream)) for path in paths[:FILES_MAX]}
    closed = [
        f"{path} cannot be read {_user()}: {why}" for path, why in heads.items() if isinstance(why, str)
    ]
    found.machine += [f"{key}.include: {line}" for line in _some(closed)]
    _formats(key, stream, {path: head for path, head in heads.items() if isinstance(head, list)}, found)


def _folder(folder: Path) -> tuple[bool, bool]:
    """Whether it is there, and whether it may be read."""
    try:
        return folder.is_dir(), os.access(folder, os.R_OK | os.X_OK, effective_ids=True)
    except OSError:  # in a folder that may not be read
        return True, False


def _is_regular(path: str) -> bool:
    """Also where it cannot be told."""
    try:
        return Path(path).is_file()
    except OSError:
        return True


def _head(path: str, records: Records | None) -> list[str] | str:
    """The first whole lines of a file, or records, none of one that is compressed; or why it cannot be
    read."""
    try:
        with Path(path).open("rb") as file:
            head = file.read(HEAD_BYTES)
    except OSError as error:
        return str(error.strerror).lower()
    if is_compressed(head):
        return []  # an agent passes it over
    whole = head[: head.rfind(b"\n") + 1].decode("utf-8", "replace")
    lines = [line for line in whole.split("\n") if line.strip()]
    return (lines if records is None else records.of(lines)[:-1] or lines)[:LINES_MAX]


def _formats(key: str, stream: StreamConfig, heads: Mapping[str, list[str]], found: Found) -> None:
    """Files of whose lines the format takes hardly any, or not even half."""
    format_ = get_format(stream.format)
    none: list[str] = []
    few: list[str] = []
    more: list[str] = []
    for path, lines in itertools.islice(
        ((path, lines) for path, lines in heads.items() if lines), LOOKED_AT_MAX
    ):
        count, beyond = fitting(format_, lines, stream.timestamp)
        if beyond:
            said = f"{beyond} of the first {len(lines)} lines of {path} have more fields than the format"
            more.append(f"{said}: extra_1 … have them")
        if 2 * count >= len(lines):
            continue
        better = better_format(format_, lines)
        like = f"; it looks like {better.name}" if better is not None else ""
        of = f" with a time in {stream.timestamp}" if stream.timestamp else ""
        said = f"{stream.format} takes {count} of the first {len(lines)} lines of {path}{of}{like}"
        (none if HARDLY * count <= len(lines) else few).append(said)
    if not stream.timezone and (zone := _zone_here()):
        some = [line for lines in itertools.islice(heads.values(), LOOKED_AT_MAX) for line in lines]
        if some and not says_its_zone(format_, some, stream.timestamp):
            found.notes.append(
                f"{key}.timezone: times of {stream.format} have no zone, and are read as UTC; clocks of this "
                f"machine show {zone}: set it, or UTC"
            )
    found.machine += [f"{key}.format: {line}" for line in _some(none)]
    found.notes += [f"{key}.format: {line}" for line in (*_some(few), *_some(more))]


def _zone_here() -> str:
    """What the clocks of this machine show, where that is not UTC."""
    now = datetime.now().astimezone()
    if not now.utcoffset():
        return ""
    _, _, name = os.path.realpath("/etc/localtime").partition("/zoneinfo/")
    return os.environ.get("TZ", "").removeprefix(":") or name or str(now.tzname())


def _some(lines: Sequence[str]) -> Iterator[str]:
    """The first ones, and how many there are besides."""
    more = len(lines) - TOLD_MAX
    for number, line in enumerate(lines[:TOLD_MAX], 1):
        yield f"{line} (and so {more} more)" if number == TOLD_MAX and more > 0 else line


def _paths(patterns: Sequence[str]) -> set[str]:
    return {path for pattern in patterns for path in glob.glob(pattern, recursive=True)}  # noqa: PTH207


def fixed_folder(pattern: str) -> Path:
    """The deepest folder of an absolute pattern that has no wildcard in its path."""
    folders = Path(pattern).parts[:-1]
    wild = next((at for at, part in enumerate(folders) if re.search(r"[*?\[]", part)), len(folders))
    return Path(*folders[:wild])


# -- the fleet -----------------------------------------------------------------------------------------------


def _fleet(config: Config, found: Found, beside: frozenset[str], keyring: Keyring) -> None:
    """Whether the agents to join through are there. One is enough; an agent that belongs to a cluster already
    goes on trying until it is."""
    mine = {config.agent.advertise, config.agent.listen}
    others = [address for address in config.cluster.bootstrap if address not in mine]
    if len(others) < len(config.cluster.bootstrap):
        bootstraps = (
            "" if others else ": with no other there it founds a cluster, as without cluster.bootstrap"
        )
        found.notes.append(f"cluster.bootstrap: {config.agent.advertise} is this agent itself{bootstraps}")
    if not others:
        return
    host, _ = split_address(config.agent.advertise)
    if is_loopback(host) and not any(is_loopback(split_address(address)[0]) for address in others):
        found.notes.append(
            f"agent.advertise: {config.agent.advertise} leads others to their own host; set agent.listen, or "
            "agent.advertise, to an address of this one"
        )
    closed = asyncio.run(
        _ask([one for one in others if one not in beside], config.cluster.name, _shown(config, keyring))
    )
    lines = [f"cluster.bootstrap: {why}" for why in closed.values()]
    waits = len(closed) < len(others) or _has_lived(Path(config.data_dir))
    (found.notes if waits else found.machine).extend(lines)


def _has_lived(folder: Path) -> bool:
    """Whether an agent has run there before."""
    with contextlib.suppress(OSError):
        return (folder / STORE_FILE).exists()
    return False


def _shown(config: Config, keyring: Keyring) -> str:
    """The keys that an agent shows to others (``elf.client.connect``)."""
    if keyring.keys is not None:
        return config.keys
    return NONE if keyring.security is None else str(loopback_file(config.loopback_key))


async def _ask(addresses: Sequence[str], cluster: str, keys: str) -> dict[str, str]:
    """Why no agent of the cluster can be talked to at these, of those where it is so."""
    from elf.client import connect

    async def ask(address: str) -> str:
        client = connect(address, cluster=cluster, timeout=ASK_SECS, keys=keys)
        try:
            await client.open()
        except ElfError as error:
            return str(error)
        finally:
            await client.close()
        return ""

    answers = await asyncio.gather(*map(ask, addresses))
    return {address: why for address, why in zip(addresses, answers, strict=True) if why}
