"""One stream of a simulated agent: its log, which survives crashes, and its stream task, which does not."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import msgspec
import numpy as np
import pyarrow as pa

from agents.archive.partitions import ArchiveError
from agents.disk.programstore import checkpoints, given
from agents.tasks.checkpoints import counted, forgotten, with_parts
from agents.tasks.offloading import Offloading, Times, positions_needed
from agents.tasks.past import Archived, Pasts, Slice
from elf.fields import replace
from elf.job import events as was
from elf.job.checkpoint import StreamCheckpoint
from elf.job.commands import (
    Answered,
    Command,
    DropStragglers,
    Feed,
    GoOver,
    Idle,
    Install,
    Outcome,
    SealOpen,
    SetBounds,
    SetOffloaded,
    SetWeights,
    TakeCheckpoint,
    TakeMapped,
    Turn,
)
from elf.job.effects import Consult
from elf.job.ports import ChunkLike, Engine
from elf.job.provenance import PaneRows
from elf.job.worker.postponed import Part
from elf.job.worker.stream import StreamWorker
from elf.planning.budgets import WEIGHT_MAX
from lab.chaos.archives import FileArchive, Stretched
from lab.chaos.engine import Chunk, PyEngine, Source
from lab.chaos.past import PastArchive
from lab.chaos.sampled import Weighed, cut, weighed

if TYPE_CHECKING:
    from lab.chaos.agent import SimAgent


HELP_TIMES = Times(patience_ms=4_000, again_ms=700, rest_ms=2_000)
STUCK_MS = 100
"""The pause between two looks whether a stream task goes on."""
READ_MS = 100
"""The pause between two looks whether there is something to read."""
LOOK_MS = 1_000
"""The pause between two looks at what others have done to the archive: half an hour of it, where an agent
looks each ten seconds (``agents.tasks.housekeeping``). What is replaced stays for an hour."""
TURNS = (1, 3, 10)
"""So many tasks are a turn."""
CHUNKS_AHEAD = 4
"""Chunks that may wait."""
SAMPLES = 100
"""The number of its last lines on which an agent tries a map function."""


@dataclass
class Log:
    """A growing log: (event time, key) a row; the offset of a row is its index."""

    rows: list[tuple[int, str]] = field(default_factory=list)
    lost: set[int] = field(default_factory=set)
    """Rows that retention has deleted."""

    def add(self, ts: int, key: str) -> None:
        self.rows.append((ts, key))

    kept: int = 0
    """Rows below it are in a durable checkpoint of its agent. Others are not shipped, so not deleted."""
    spared: int | None = None
    """Rows from here on are not deleted: helpers have not read them."""

    def lose(self, rows: int) -> None:
        """Retention deletes so many of the shipped rows, the oldest by their times."""
        oldest = sorted(range(self.kept), key=lambda row: self.rows[row][0])[:rows]
        self.lost.update(row for row in oldest if self.spared is None or row < self.spared)


class SimArchive:
    """The rows of a stream that its agent has read, by source and offset: what is read again is the same."""

    def __init__(self) -> None:
        self._rows: dict[str, tuple[list[int], list[tuple[int, str]]]] = {}

    def take(self, chunk: ChunkLike) -> None:
        offsets, rows = self._rows.setdefault(chunk.source.id, ([], []))
        for offset, line in zip(chunk.offsets.tolist(), chunk.lines.to_pylist(), strict=True):
            ts, key, *_ = line.split(",")
            place = bisect_left(offsets, offset)
            known = place < len(offsets) and offsets[place] == offset
            offsets[place : place + known] = [offset]
            rows[place : place + known] = [(int(ts), key)]

    def counted(self, pane: PaneRows, pane_us: int) -> Iterator[tuple[str, int, str]]:
        """The rows of a pane that lie where the pane has counted rows: source, offset, key."""
        for source, ranges in pane.sources:
            offsets, rows = self._rows.get(source, ([], []))
            for start, end in ranges:
                for place in range(bisect_left(offsets, start), bisect_left(offsets, end)):
                    ts, key = rows[place]
                    if ts // pane_us == pane.pane:
                        yield source, offsets[place], key


class SimTask:
    """Reads the log, performs commands in order, and writes the checkpoint, with a chance to die between any
    two."""

    def __init__(self, agent: SimAgent, stream: str) -> None:
        self._agent = agent
        self._stream = stream
        stored = agent.store.load_checkpoint(stream)
        checkpoint = msgspec.msgpack.decode(stored, type=StreamCheckpoint) if stored else None
        self.checkpoint = with_parts(checkpoint, agent.store) if checkpoint else None
        programs = given(checkpoints(agent.store))
        settings = agent.world.worker_settings
        clock = agent.spent_us
        self.worker = StreamWorker(
            stream, settings, self.engine(), self.checkpoint, cpu_us=clock, given=programs, clock_us=clock
        )
        self.worker.turns.when_cut = self._cut
        live = [f for f in self.checkpoint.flows if f.past is None] if self.checkpoint else []
        applied = [dict(f.applied).get("log", 0) for f in live]
        ends = [s.end for s in self.checkpoint.sources] if self.checkpoint else []
        self.position = min(applied or ends or [0])
        self.tapped: dict[str, int] = agent.tapped[stream]
        """From which row on jobs in Python are given rows, by uid."""
        self._waiting: list[Command | Slice] = []
        self._busy = False
        self._fed = ends[0] if ends else 0
        self._reads_past = False
        self._files: FileArchive | None = None
        agent.logs[stream].kept = self._fed
        self._looked_ms = agent.world.now
        self._archive = self._archived()
        self._pasts = Pasts(self.worker, self._archive, agent.past_rows)
        self._offloading = Offloading(self.worker, self._archive, self._pasts, HELP_TIMES)
        self._spare(self.checkpoint)
        self._sealing: SealOpen | None = None
        self._weighed: list[Weighed] = []
        """Rows that were sampled, and are in no checkpoint yet."""

    def _archived(self) -> Archived:
        agent, archives = self._agent, self._agent.world.archives
        if archives is None:
            return PastArchive(agent.logs[self._stream], lambda: self._fed)
        self._files = archives.of(agent, self._stream, lambda: self._fed)
        return Stretched(self._files)

    def engine(self) -> Engine:
        return PyEngine()

    def _cut(self, uid: str, part: Part) -> None:
        """Rows that waited for their turn are cut short."""
        self._weighed += cut(uid, part)

    def _turn(self) -> None:
        """Flows have a turn after what waits now."""
        waits = self.worker.has_turn(self._agent.now_ms)
        if waits and not any(isinstance(one, Turn) for one in self._waiting):
            self._waiting.append(Turn(0, self._agent.world.rng.choice(TURNS)))

    def give(self, command: Command | Slice) -> None:
        agent, ledger = self._agent, self._agent.world.ledger
        if isinstance(command, SetWeights) and ledger is not None:
            for uid, weight, whose in command.weights:
                ledger.weighs(agent.index, weight, whose, agent.node.log.readers(uid))
        elif isinstance(command, SetBounds) and ledger is not None:
            for uid, bound in command.flows:
                weight = WEIGHT_MAX if bound.rank else 1
                ledger.weighs(agent.index, weight, bound.whose, agent.node.log.readers(uid))
        self._waiting.append(command)
        if not self._busy:
            self._busy = True
            self._agent.world.later(self._agent, self._work)

    def consult(self, effect: Consult) -> None:
        raise TypeError(f"nobody can ask this stream task: {effect!r}")

    def _work(self) -> None:
        agent = self._agent
        if agent.stuck:
            agent.world.after(STUCK_MS, agent, self._work)
            return
        command = self._waiting.pop(0)
        if isinstance(command, Turn):
            command = replace(command, now_ms=agent.now_ms)
        elif isinstance(command, Install) and command.flow.fragment.function is not None:
            command = replace(
                command, samples=tuple(self._lines(max(0, self.position - SAMPLES), self.position))
            )
        elif isinstance(command, DropStragglers | Answered):
            command = counted(command, agent.store)
        if isinstance(command, Feed) and agent.world.worker_settings.traces:
            agent.archives[self._stream].take(command.chunk)
        elif isinstance(command, SetOffloaded):
            self._offloading.set(command.flows)
        elif isinstance(command, GoOver):
            command = replace(command, position=self._archive.close_roll())
        elif isinstance(command, TakeMapped):
            command = self._offloading.take(command.answer, agent.now_ms) or command
        elif isinstance(command, SealOpen) and self._offloading.is_behind:
            self._sealing, command = command, TakeCheckpoint()
        elif isinstance(command, Slice):
            replay = self._pasts.take(command, agent.now_ms)
            self._reads_past, command = False, replay or TakeCheckpoint()
        elif isinstance(command, Install) and command.flow.fragment.since_us is not None:
            try:
                work = self._pasts.begin(command)
                command = command if work is None else self._pasts.installing(work())
            except ArchiveError:  # retention was quicker: it looks again
                self._waiting.insert(0, command)
                agent.world.after(READ_MS, agent, self._work)
                return
        self._weighed += weighed(self.worker, command)
        outcome = self.worker.handle(command)
        if isinstance(command, Feed):
            self._fed = command.chunk.end
            self._offloading.mark(agent.now_ms)
        if self._keep(outcome):
            agent.work.after_disk(partial(self._done, command, outcome))

    def _keep(self, outcome: Outcome) -> bool:
        """Write the checkpoint. False if the agent died meanwhile."""
        agent, ledger = self._agent, self._agent.world.ledger
        agent.world.crash_point(agent)
        if agent.up and outcome.checkpoint is not None:
            leapt = forgotten(outcome)
            checkpoint = msgspec.msgpack.encode(outcome.checkpoint)
            agent.store.save_checkpoint(
                self._stream, checkpoint, outcome.sealed, forget=leapt, traced=outcome.traced
            )
            for one in outcome.checkpoint.taps:
                self.tapped.setdefault(one.uid, self._fed)
            if ledger is not None:
                ledger.weights.keep(agent.index, self._weighed)
                self._weighed.clear()
                ledger.checkpoint(agent.index, outcome.checkpoint, outcome.sealed, outcome.forgotten)
                ledger.traced(agent.index, outcome, agent.archives[self._stream])
            agent.logs[self._stream].kept = self._fed
            self._spare(outcome.checkpoint)
            if self._files is not None:
                self._files.ship(self._fed)
        if agent.up:
            agent.world.crash_point(agent)
        return agent.up

    def _read_past(self) -> None:
        """A slice of the archive, for flows that begin in the past; it comes when others have come before."""
        agent = self._agent
        most = agent.world.retained_bytes_max // 4
        work = None if self._reads_past else self._pasts.ask(lambda uid: agent.held(uid) > most)
        if work is None:
            return
        try:
            found = work()
        except ArchiveError:  # retention was quicker
            self._pasts.again()
            return
        self._reads_past = True
        agent.world.later(agent, partial(self.give, found))

    def _spare(self, checkpoint: StreamCheckpoint | None) -> None:
        """Retention leaves what helpers have not read."""
        needed = None if checkpoint is None else positions_needed(checkpoint)
        self._agent.logs[self._stream].spared = needed
        if self._files is not None:
            self._files.shelf.spare(self._files.life, needed)

    def _look(self) -> None:
        """See where the rows of files are that somebody has sorted."""
        agent = self._agent
        if self._files is not None and not agent.stuck and agent.world.now - self._looked_ms >= LOOK_MS:
            self._looked_ms = agent.world.now
            self._files.shelf.look()

    def _offload(self) -> None:
        """What becomes of flows whose rows helpers map."""
        agent = self._agent
        most = agent.world.retained_bytes_max // 4
        commands, wanted = self._offloading.turn(agent.now_ms, lambda uid: agent.held(uid) > most)
        for command in commands:
            self.give(command)
        if wanted:
            agent.handle(was.Worked(self._stream, "Offload", Outcome(wanted=wanted)))
        if self._sealing is not None and not self._offloading.is_behind:
            command, self._sealing = self._sealing, None
            self.give(command)

    def _told(self, command: Command, outcome: Outcome) -> None:
        self._agent.handle(was.Worked(self._stream, type(command).__name__, outcome))

    def _done(self, command: Command, outcome: Outcome) -> None:
        agent = self._agent
        self._told(command, outcome)
        self._turn()
        self._busy = bool(self._waiting)
        if self._waiting:
            agent.world.later(agent, self._work)

    def _lines(self, start: int, end: int) -> list[str]:
        return [f"{ts},{key}" for ts, key in self._agent.logs[self._stream].rows[start:end]]

    def read(self) -> None:
        agent = self._agent
        self._look()
        if not (self._waiting or self._busy or agent.stuck):
            self._offload()
        rows = agent.logs[self._stream].rows[self.position : self.position + 50]
        if len(self._waiting) >= CHUNKS_AHEAD or agent.node.leaving:
            pass
        elif rows:
            start, self.position = self.position, self.position + len(rows)
            lines = pa.array(self._lines(start, self.position), pa.string())
            offsets = np.arange(start, self.position, dtype=np.int64)
            most = agent.world.rng.choice((0, *TURNS)) if len(self.worker.turns.turns) else 0
            chunk = Chunk(Source("log"), start, self.position, lines, offsets)
            self.give(Feed(chunk, agent.now_ms, turns=most))
        elif not self._waiting:
            self.give(Idle(agent.now_ms))
        self._read_past()
        agent.world.after(READ_MS, agent, self.read)

    # -- what the judge asks ---------------------------------------------------------------------------------

    @property
    def unread(self) -> str:
        """What is still to be read, in words."""
        rows = len(self._agent.logs[self._stream].rows)
        return f"has read {self.position} rows of {self._stream}, not all" if self.position < rows else ""

    def read_rows(self) -> list[tuple[int, str]]:
        """The rows that it has read, or ought to have."""
        return self._agent.logs[self._stream].rows[: self.position]

    def close(self) -> None:
        """The agent's process has ended."""
