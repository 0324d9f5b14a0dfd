"""Flows that begin in the past read what was archived, a slice at a time (``elf.job.past``).

    stream task ── ask ──▶ another thread: rolls are looked up, rows of them read ── take ──▶ stream task

``ask`` and ``take`` are short, and are the stream task's own. What lies between them opens files, here or at
the archive's target. A round ends where the archive did when it began. When no more than a slice was archived
meanwhile, ``take`` reads that too, between two chunks, and the flow has caught up.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from elf.fields import replace
from elf.grouping import grouped
from elf.job.commands import Install, Replay
from elf.job.offload import ANY_TIME_US, Archive
from elf.job.past import Past, Records, sealed_below
from elf.job.spec import START_OF_TIME, Flow
from elf.job.worker.flowstate import FlowState
from elf.job.worker.stream import StreamWorker

SLICE_ROWS: Final = 16_384
"""Rows that are given to the stream task at a time: some 20 ms, for which live lines wait."""
EVERYTHING: Final = 1 << 62


COLUMNS: Final = ["line", "ts", "source", "log", "position", "record"]
"""What is read of archived rows; ``position`` is that of the line in its file."""


class Roll(NamedTuple):
    """Positions ``[start, end)`` in which there are wanted rows: the earliest event time (µs) of these, and
    what loads all of them, with others, as tables of ``COLUMNS``."""

    start: int
    end: int
    first_us: int
    parts: tuple[Callable[[], pa.Table], ...]


class Survey(NamedTuple):
    """What an archive has of a range of positions. ``covers_us``: from this event time on nothing is lacking
    (None: it has nothing); ``gone``: how many rows of wanted hours retention has deleted so far, of times
    before ``gone_to_us``; ``closed_to_us``: rows in the range, of times before it, are not to be read
    (None: all are): they were archived in another format, or with other masks."""

    rolls: tuple[Roll, ...]
    covers_us: int | None
    gone: int = 0
    gone_to_us: int | None = None
    closed_to_us: int | None = None


class Archived(Protocol):
    """What one agent has archived of one stream. ``close_roll`` and ``position`` are for the stream task,
    ``survey`` and what rolls load for any one thread; these raise ``ArchiveError`` where the archive cannot
    be reached, and for files that have gone."""

    @property
    def position(self) -> int:
        """How many records were archived."""
        ...

    @property
    def shipped(self) -> int:
        """The records below this position are at the archive's target, where others read them too."""
        ...

    @property
    def about(self) -> Archive | None:
        """Which archive it is, for others; None: there is none."""
        ...

    def close_roll(self) -> int:
        """All that was archived is in closed rolls, below the position that is returned."""
        ...

    def survey(self, start: int, end: int, since_us: int) -> Survey:
        """Rows of ``since_us`` or later at these positions."""
        ...


class NothingArchived:
    """Where there is no archive."""

    position = shipped = 0
    about = None

    def close_roll(self) -> int:
        return 0

    def survey(self, start: int, end: int, since_us: int) -> Survey:
        return Survey((), None)


@dataclass(frozen=True)
class Slice:
    """What ``take`` takes: the next records of a flow, how far it is before and with them, and what is left
    of the round."""

    uid: str
    before: Past
    records: tuple[Records, ...]
    past: Past
    rolls: tuple[Roll, ...]
    holes: tuple[tuple[int, int], ...] = ()


class Pasts:
    """The flows of one stream task that read their past, in turn. ``rows_max``: of a slice."""

    def __init__(self, worker: StreamWorker, archive: Archived, rows_max: int = SLICE_ROWS) -> None:
        self._worker = worker
        self._archive = archive
        self._rows_max = rows_max
        self._rounds: dict[str, tuple[Roll, ...]] = {}
        self._last = ""
        self._loaded: tuple[tuple[int, int, int], pa.Table] | None = None
        """The rows of the roll that was read last, by its ends and since when they are wanted."""
        self.reads = False
        """Whether some flow read its past when the last slice was asked for."""
        self.elsewhere: Callable[[FlowState], bool] = lambda state: False
        """Flows whose rows others read and map (``agents.tasks.offloading``)."""

    # -- the beginning ---------------------------------------------------------------------------------------

    def begin(self, install: Install) -> Callable[[], tuple[Install, tuple[Roll, ...]]] | None:
        """For a new flow: the work that finds out where it begins, for ``installing``. None: it has begun in
        an earlier life."""
        if install.flow.uid in self._worker.states():
            return None
        until, ceiling = self._archive.close_roll(), self._worker.sealable(install.flow)
        return partial(self._found, install, until, ceiling)

    def _found(self, install: Install, until: int, ceiling: int) -> tuple[Install, tuple[Roll, ...]]:
        since_us = _since(install.flow)
        found = self._archive.survey(0, until, since_us)
        position = found.rolls[0].start if found.rolls else until
        past = Past(position, until, ceiling, START_OF_TIME, found.gone)
        return replace(install, covers_us=found.covers_us, past=past), found.rolls

    def installing(self, found: tuple[Install, tuple[Roll, ...]]) -> Install:
        """The command, with what was found."""
        install, self._rounds[install.flow.uid] = found
        return install

    # -- slice by slice --------------------------------------------------------------------------------------

    def _reading(self) -> tuple[str, ...]:
        """The flows that still read their past."""
        return tuple(uid for uid, state in self._worker.states().items() if state.past is not None)

    def ask(self, waits: Callable[[str], bool] = lambda uid: False) -> Callable[[], Slice] | None:
        """The work for the next slice; None: there is none now. ``waits``: flows that are far enough ahead of
        their commits."""
        reading, states = self._reading(), self._worker.states()
        self.reads = bool(reading)
        uids = [uid for uid in reading if not waits(uid) and not self.elsewhere(states[uid])]
        if not uids:
            return None
        self._last = uid = next((one for one in uids if one > self._last), uids[0])
        state = self._worker.states()[uid]
        past, rolls = state.past, self._rounds.get(uid)
        assert past is not None
        if rolls and rolls[0].end > past.position:
            return partial(self._read, state.flow, past, rolls)
        later = self._later(state.flow, past)
        return lambda: replace(self._begun(state.flow, past, later), before=past)

    def slice_of(self, flow: Flow, past: Past) -> Slice:
        """The first records of a round, on any one thread."""
        return self._begun(flow, past, past)

    def _later(self, flow: Flow, past: Past) -> Past:
        """The same in a new round."""
        until, ceiling = self._archive.close_roll(), max(past.ceiling, self._worker.sealable(flow))
        return replace(past, until=until, ceiling=ceiling)

    def _begun(self, flow: Flow, before: Past, past: Past, rows_max: int | None = None) -> Slice:
        """The first slice of a round."""
        found = self._archive.survey(past.position, past.until, _since(flow))
        read_us = max(before.sealable * flow.fragment.pane_us, _since(flow))
        # Of what a helper is to read retention deletes nothing.
        eaten = found.gone > past.gone and flow.fragment.since_us is not None
        ends = [found.closed_to_us, found.gone_to_us if eaten else None]
        holes = tuple((read_us, us - 1) for us in ends if us is not None and us > read_us)
        return replace(self._read(flow, replace(past, gone=found.gone), found.rolls, rows_max), holes=holes)

    def _read(self, flow: Flow, past: Past, rolls: tuple[Roll, ...], rows_max: int | None = None) -> Slice:
        left = self._rows_max if rows_max is None else rows_max
        since_us, position = _since(flow), past.position
        records: list[Records] = []
        while rolls and left > 0:
            whole = self._rows(rolls[0], since_us)
            numbers = whole["record"].to_numpy()
            begin = int(np.searchsorted(numbers, position))
            rows = whole.slice(begin, left)
            records += _by_source(rows)
            left -= rows.num_rows
            if begin + rows.num_rows < len(numbers):
                position = int(numbers[begin + rows.num_rows - 1]) + 1
            else:
                rolls = rolls[1:]
                position = max(position, rolls[0].start) if rolls else past.until
        if not rolls:
            position = past.until
        first_us = min((roll.first_us for roll in rolls), default=None)
        floor = sealed_below(first_us, flow.fragment.pane_us)
        after = replace(past, position=position, floor=floor)
        return Slice(flow.uid, past, tuple(records), after, rolls)

    def _rows(self, roll: Roll, since_us: int) -> pa.Table:
        """The wanted rows of a roll, in the order of their positions."""
        key = (roll.start, roll.end, since_us)
        if self._loaded is None or self._loaded[0] != key:
            self._loaded = None  # not two at a time
            rows = pa.concat_tables(_wanted(load(), roll, since_us) for load in roll.parts)
            self._loaded = key, rows.sort_by("record")
        return self._loaded[1]

    def take(self, found: Slice, now_ms: int) -> Replay | None:
        """The command that gives a slice to the worker, before any other one; None if its flow has gone
        meanwhile, or is not where it was."""
        uid = found.uid
        state = self._worker.states().get(uid)
        if state is None or state.past != found.before:
            self._rounds.pop(uid, None)
            return None
        records, past, holes = found.records, found.past, found.holes
        if past.until < found.before.until:  # another archive, from its beginning, or none any more
            read_us = max(found.before.sealable * state.flow.fragment.pane_us, _since(state.flow))
            holes = ((min(read_us, 1_000 * now_ms), 1_000 * now_ms),)
        self._rounds[uid] = found.rolls
        caught_up = not found.rolls and self._archive.position == past.until
        if not found.rolls and 0 < self._archive.position - past.until <= self._rows_max:
            rest = self._begun(state.flow, past, self._later(state.flow, past), EVERYTHING)
            records, holes, caught_up = (*records, *rest.records), (*holes, *rest.holes), True
        if caught_up:
            self._rounds.pop(uid, None)
        return Replay(uid, records, None if caught_up else past, now_ms, holes)

    def again(self, uid: str | None = None) -> None:
        """What was read got lost, or rolls are not where they were: the next slice looks for them anew."""
        for one in [uid] if uid is not None else list(self._rounds):
            self._rounds.pop(one, None)


def _since(flow: Flow) -> int:
    since_us = flow.fragment.since_us
    return ANY_TIME_US if since_us is None else since_us


def _wanted(rows: pa.Table, roll: Roll, since_us: int) -> pa.Table:
    inside = pc.and_(pc.greater_equal(rows["record"], roll.start), pc.less(rows["record"], roll.end))
    late = pc.greater_equal(rows["ts"].cast(pa.int64()), since_us)
    rows = rows.filter(pc.and_(inside, late))
    for name in ("source", "log"):
        rows = rows.set_column(rows.schema.get_field_index(name), name, rows[name].cast(pa.string()))
    return rows


def _by_source(rows: pa.Table) -> list[Records]:
    """Each source and log by itself; of a source in the order of its offsets, as its lines were archived."""
    found = []
    names = grouped(rows.select(["source", "log"]), ["source", "log"])
    for name in names.to_pylist():
        chosen = rows.filter(pc.and_(*(pc.equal(rows[key], name[key]) for key in ("source", "log"))))
        lines = chosen["line"].combine_chunks()
        lines = lines if isinstance(lines, pa.Array) else pa.concat_arrays(lines.chunks)
        offsets = np.asarray(chosen["position"].to_numpy(), dtype=np.int64)
        found.append(Records(name["source"], name["log"], lines, offsets))
    return found
