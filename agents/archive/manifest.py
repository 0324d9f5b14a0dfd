"""The manifest of an agent's files of a stream: which there are, what is in them, and what is gone.

    TARGET/stream=clicks/_manifest/agent=web-3/00000000000000000017.json         a segment
    TARGET/stream=clicks/_manifest/agent=web-3/00000000000000000017.whole.json   all up to that one

A manifest is a log of numbered *segments*. Each is one small file in JSON, which appears whole or not at all;
it is the atom in which the archive changes. After every 64th all of the state is written as one segment, so
that readers have few to read; those before the last such one are deleted.

Rules: one agent writes a manifest, from one thread. A segment is written once and never changes. Who opens an
archive that has no manifest of this agent yet *adopts* the files that are there with its first segment: from
then on a file that the manifest does not name is not there for readers.

It must never go on after a write that failed: whether the segment is there is not known, and the state is
read again.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, TypeVar
from urllib.parse import quote, unquote

import msgspec

from agents.archive.partitions import ArchiveError, Target, agent_of, hour_of
from elf.schema import ColumnType

VERSION: Final = 1
"""Of what is written here; a reader refuses a later one."""
WHOLE_EVERY: Final = 64
"""Segments between two of the whole state."""
FOLDER: Final = "_manifest"
"""Engines take no notice of what begins with an underscore."""
TRIES_MAX: Final = 5
"""Of a reader whose segments are deleted before it comes to them."""
_SEGMENT: Final = re.compile(r"(\d{20})(\.whole)?\.json")

T = TypeVar("T")

Value = int | float | str | bool
"""Of a column: a timestamp is an int, µs since the epoch."""


class Bounds(msgspec.Struct, frozen=True):
    """The least and the greatest value of a column, of this type; None: all are NULL."""

    kind: ColumnType
    least: Value | None
    greatest: Value | None


class File(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A file, and what is known of its rows."""

    path: str
    """Below the stream's folder."""
    life: str
    """Records of a stream are numbered through within a *life* (``agents.tasks.archive``)."""
    first: int
    end: int
    """Its rows are of the records ``[first, end)``, and all of these that are of its hour are in it."""
    rows: int
    bytes: int
    least_us: int | None = None
    greatest_us: int | None = None
    """Event times of its rows; None: none of them has one."""
    columns: dict[str, Bounds] = {}
    """Of the chosen columns (``archive.index``); each has a Bloom filter too
    (``agents.archive.summaries``)."""
    by: str = ""
    """The column that its rows are sorted by; empty: they are as they came."""
    is_indexed: bool = False
    """The chosen columns have been looked at."""
    made_ms: int = 0
    """When it was made, ms since the epoch."""

    @property
    def agent(self) -> str:
        return agent_of(self.path)

    @property
    def hour(self) -> int | None:
        """Since the epoch; None: its rows have no event time."""
        return hour_of(self.path)

    @property
    def unit(self) -> str:
        """The folder that it is in: of an hour and an agent."""
        return self.path.rpartition("/")[0]


class Gone(msgspec.Struct, frozen=True):
    """What retention has deleted of an hour."""

    hour: int | None
    rows: int
    bytes: int


class Segment(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What changes at once."""

    version: int
    added: tuple[File, ...] = ()
    """A file that was there already is described anew."""
    dropped: dict[str, int] = {}
    """Files that no reader begins with from now on, and when they were dropped, ms since the epoch."""
    deleted: tuple[str, ...] = ()
    """Of those that were dropped: they are not there any more."""
    gone: tuple[Gone, ...] = ()
    busy: tuple[str, ...] | None = None
    """The files that are being merged; None: as before."""
    going: tuple[str, ...] | None = None
    """The files that retention means to let go of; None: as before."""
    shipped: dict[str, int] = {}
    """Up to which record all of a life is shipped."""
    name: str = ""
    """Of the agent, for people; empty: as before."""


class _Versioned(msgspec.Struct, frozen=True):
    version: int


class State:
    """What the segments of a manifest come to."""

    def __init__(self) -> None:
        self.files: dict[str, File] = {}
        """Those that readers are shown, by path."""
        self.dropped: dict[str, int] = {}
        """Files that may still be there for who has begun to read them, and since when."""
        self.gone: dict[int | None, Gone] = {}
        """What retention has deleted, by hour."""
        self.busy: tuple[str, ...] = ()
        """Files that are being merged."""
        self.going: tuple[str, ...] = ()
        """Files that retention means to let go of."""
        self.shipped: dict[str, int] = {}
        """Up to which record all of a life is shipped."""
        self.name = ""
        """Of the agent, for people."""

    def apply(self, segment: Segment) -> None:
        for path in segment.deleted:
            self.dropped.pop(path, None)
        for path, when_ms in segment.dropped.items():
            self.files.pop(path, None)
            self.dropped[path] = when_ms
        self.files |= {file.path: file for file in segment.added}
        for gone in segment.gone:
            before = self.gone.get(gone.hour, Gone(gone.hour, 0, 0))
            self.gone[gone.hour] = Gone(gone.hour, before.rows + gone.rows, before.bytes + gone.bytes)
        if segment.busy is not None:
            self.busy = segment.busy
        if segment.going is not None:
            self.going = segment.going
        self.shipped |= segment.shipped
        self.name = segment.name or self.name

    def whole(self) -> Segment:
        """One segment that comes to the same."""
        return Segment(
            version=VERSION,
            added=tuple(self.files.values()),
            dropped=self.dropped,
            gone=tuple(self.gone.values()),
            busy=self.busy,
            going=self.going,
            shipped=self.shipped,
            name=self.name,
        )


def root_of(target: Target, stream: str) -> str:
    """The folder of all manifests of a stream."""
    return f"{target.stream_folder(stream)}/{FOLDER}"


def agents_of(target: Target, stream: str) -> list[str]:
    """The agents that have a manifest of a stream."""
    names = target.names(root_of(target, stream))
    return [unquote(name.removeprefix("agent=")) for name in names if name.startswith("agent=")]


def read(target: Target, stream: str, agent: str) -> tuple[State, int]:
    """The state of a manifest, and the number of its last segment; -1: there is none.

    Raises ``ArchiveError`` for a manifest of a newer version, and for one that is damaged.
    """
    folder = _folder(target, stream, agent)
    for _ in range(TRIES_MAX):
        if (found := _read(target, folder)) is not None:
            return found
    raise ArchiveError(f"the manifest {folder} changes faster than it can be read: try again")


def _read(target: Target, folder: str) -> tuple[State, int] | None:
    """None: a segment was deleted before it could be read."""
    found = [match for name in target.names(folder) if (match := _SEGMENT.fullmatch(name))]
    wholes = [int(match[1]) for match in found if match[2]]
    start = max(wholes, default=-1)
    numbers = sorted(int(match[1]) for match in found if not match[2] and int(match[1]) > start)
    state, last = State(), start
    names = [f"{start:020d}.whole.json"] if wholes else []
    for name in (*names, *(f"{number:020d}.json" for number in numbers)):
        path = f"{folder}/{name}"
        if (data := target.read(path)) is None:
            return None
        state.apply(decoded(path, data, Segment))
    if numbers:
        if numbers != list(range(start + 1, start + 1 + len(numbers))):
            missing = next(n for n in range(start + 1, numbers[-1]) if n not in numbers)
            raise ArchiveError(
                f"the manifest {folder} is damaged: segment {missing} is missing; put a copy of it back"
            )
        last = numbers[-1]
    return state, last


def decoded(path: str, data: bytes, kind: type[T]) -> T:
    """A file of the archive's own, of this release or an earlier one. Raises ``ArchiveError``."""
    try:
        version = msgspec.json.decode(data, type=_Versioned).version
        if version > VERSION:
            raise ArchiveError(
                f"{path} is of version {version}, from a newer release of elf; this one reads up to "
                f"{VERSION}: update elf here"
            )
        return msgspec.json.decode(data, type=kind)
    except msgspec.DecodeError as error:
        raise ArchiveError(f"{path} is damaged ({error}): put a copy of it back") from error


def _folder(target: Target, stream: str, agent: str) -> str:
    return f"{root_of(target, stream)}/agent={quote(agent, safe='')}"


class Manifest:
    """Of the agent that writes it."""

    def __init__(self, target: Target, stream: str, agent: str, name: str = "") -> None:
        """``name``: the agent's, for people."""
        self._name = name
        self._target = target
        self._stream = stream
        self._agent = agent
        self._folder = _folder(target, stream, agent)
        self._state: State | None = None
        self._last = -1

    def is_new(self) -> bool:
        """Nothing was ever appended, or somebody has deleted the archive."""
        if self._state is not None and not self._target.exists(f"{self._folder}/{self._last:020d}.json"):
            self._state = None
        return self.state is not None and self._last < 0

    @property
    def state(self) -> State:
        """Read when it is not known. Raises ``ArchiveError``."""
        if self._state is None:
            self._state, self._last = read(self._target, self._stream, self._agent)
        return self._state

    def append(
        self,
        *,
        added: Iterable[File] = (),
        dropped: dict[str, int] | None = None,
        deleted: Iterable[str] = (),
        gone: Iterable[Gone] = (),
        busy: tuple[str, ...] | None = None,
        going: tuple[str, ...] | None = None,
        shipped: dict[str, int] | None = None,
    ) -> None:
        """A segment, durable. Raises ``ArchiveError``."""
        state, number = self.state, self._last + 1
        segment = Segment(
            version=VERSION,
            added=tuple(added),
            dropped=dropped or {},
            deleted=tuple(deleted),
            gone=tuple(gone),
            busy=busy,
            going=going,
            shipped=shipped or {},
            name="" if self._name == state.name else self._name,
        )
        self._state = None  # until it is known that the segment is there
        path = f"{self._folder}/{number:020d}.json"
        if self._target.exists(path):
            raise ArchiveError(
                f"{path} is there already: another agent writes under the name of {self._agent}; stop one"
            )
        self._target.place(path, [msgspec.json.encode(segment)])
        state.apply(segment)
        self._state, self._last = state, number
        if (number + 1) % WHOLE_EVERY == 0:
            self._write_whole(state, number)

    def _write_whole(self, state: State, number: int) -> None:
        """And delete what came before the last time."""
        before = [match for name in self._target.names(self._folder) if (match := _SEGMENT.fullmatch(name))]
        self._target.place(f"{self._folder}/{number:020d}.whole.json", [msgspec.json.encode(state.whole())])
        last = max((int(match[1]) for match in before if match[2]), default=-1)
        for match in before:
            if int(match[1]) < last or (int(match[1]) == last and not match[2]):
                self._target.remove(f"{self._folder}/{match[0]}")
