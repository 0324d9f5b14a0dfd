"""One stream of a simulated agent that reads files: a real ``Tail`` and a real ``Lane``, on virtual time.

What feeds the lane is a few lines here in place of ``agents.lanes.feeding``, which has threads: the same
order, chunks ahead, positions with each chunk, and sources that have ended with the ``Idle`` after it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from agents.formats import get_format
from agents.inputs import Position, Tail
from agents.inputs.values import Gap
from agents.lanes.lane import Lane, LaneFacts, load_cut
from agents.lanes.streams import StreamEngine
from elf.chaos.engine import PyEngine
from elf.chaos.fates import Fates
from elf.chaos.files import FileLog
from elf.chaos.lane import CHUNKS_AHEAD, READ_MS, STUCK_MS, SimLane, snapshots
from elf.job.commands import Command, Feed, Idle, Outcome
from elf.job.ports import ExtractorPort, MapperPort, Wanted
from elf.ql.plan import Fragment

if TYPE_CHECKING:
    from elf.chaos.agent import SimAgent

CHUNK_BYTES: Final = 400
"""At most, but for one line: some thirty rows."""
ROTATE_WAIT_S: Final = 2.0
"""As ``rotate_wait_secs``. Sooner than by default, as all else."""
IDLE_EVERY_MS: Final = 250
FACTS: Final = LaneFacts("", get_format("json"), "_ts", "")


class FileEngine(StreamEngine):
    """A lane's engine without DuckDB: see ``elf.chaos.engine``."""

    def __init__(self) -> None:
        super().__init__(FACTS.format, FACTS.timestamp)
        self._py = PyEngine()

    def extractor(self, wanted: Wanted) -> ExtractorPort:  # type: ignore[override]
        return self._py.extractor(wanted)

    def mapper(self, fragment: Fragment) -> MapperPort:
        return self._py.mapper(fragment)


class FileLane(SimLane):
    """See the module's docstring."""

    def __init__(self, agent: SimAgent, stream: str) -> None:
        self._agent = agent
        self._stream = stream
        log = agent.logs[stream]
        assert isinstance(log, FileLog)
        facts = LaneFacts(stream, FACTS.format, FACTS.timestamp, "")
        self._lane = Lane(facts, agent.world.worker_settings, agent.store, cores=1, engine=FileEngine())
        self.worker = self._lane.worker
        stored = load_cut(agent.store, stream)
        self.cut = stored.worker if stored else None
        positions = stored.positions if stored else ()
        self._tail = Tail(log.include, rotate_wait_secs=ROTATE_WAIT_S, positions=positions)
        self._log = log
        self._with: deque[tuple[tuple[Position, ...], tuple[Gap, ...]]] = deque()
        """Of each chunk that waits: the positions of the input after it, and the gaps before it."""
        self._gaps: list[Gap] = []
        """Those before the next chunk."""
        self._taken: list[Callable[[], None]] = []
        """What is durable with the next cut."""
        self._idle_ms = 0
        self._waiting: list[Command] = []
        self._busy = False

    def _work(self) -> None:
        """The next command, and the death of the agent before or after it."""
        agent, world = self._agent, self._agent.world
        if agent.stuck:
            world.after(STUCK_MS, agent, self._work)
            return
        command = self._waiting.pop(0)
        world.crash_point(agent)
        if agent.up:
            outcome = self._perform(command)
            if outcome.cut is not None and world.ledger is not None:
                world.ledger.cut(agent.index, outcome.cut, snapshots(outcome), outcome.forgotten)
                for take in self._taken:
                    take()
                self._taken.clear()
            world.crash_point(agent)
        if agent.up:
            agent.after_disk(lambda: self._done(command, outcome))

    def _perform(self, command: Command) -> Outcome:
        if isinstance(command, Feed):
            positions, gaps = self._with.popleft()
            self._taken.append(partial(self._log.fates.took, command.chunk.lines.to_pylist(), gaps))
            return self._lane.feed(command.chunk, positions, command.now_ms)  # type: ignore[arg-type]
        return self._lane.perform(command, self._agent.now_ms)

    def read(self) -> None:
        agent, now_ms = self._agent, self._agent.now_ms
        while len(self._waiting) < CHUNKS_AHEAD and not agent.node.leaving:
            chunk = self._tail.read(CHUNK_BYTES, now_ms)
            self._gaps += self._tail.gaps()
            if chunk is None:
                if now_ms - self._idle_ms >= IDLE_EVERY_MS:
                    self._idle_ms = now_ms
                    self.give(Idle(now_ms, self._tail.finished()))
                break
            self._idle_ms = now_ms
            self._with.append((self._tail.positions(), tuple(self._gaps)))
            self._gaps.clear()
            self.give(Feed(chunk, now_ms))
        agent.world.after(READ_MS, agent, self.read)

    # -- what the judge asks ---------------------------------------------------------------------------------

    @property
    def unread(self) -> str:
        bytes_ = self._tail.unread
        return f"has {bytes_} bytes of {self._stream} to read yet" if bytes_ else ""

    def read_rows(self) -> list[tuple[int, str]]:
        return self._log.rows

    def finish(self) -> Fates:
        """The judge looks at the end of the story: what waits for the next cut, or chunk, counts as well."""
        for take in self._taken:
            take()
        self._taken.clear()
        self._log.fates.took((), self._gaps)
        return self._log.fates

    def close(self) -> None:
        self._tail.close()
        self._lane.close(cut=False)
