"""One stream of a simulated agent that reads files: a real ``Tail`` and a real ``StreamTask``, on virtual
time.

A few lines here feed the stream task in place of ``agents.tasks.feeding``, which has threads: the same order,
chunks ahead, source offsets with each chunk, and ended sources with the ``Idle`` after it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from agents.disk.programstore import checkpoints, given
from agents.formats import get_format
from agents.inputs.tail import Tail
from agents.inputs.values import Position
from agents.tasks.checkpoints import load_checkpoint
from agents.tasks.past import Slice
from agents.tasks.streams import StreamEngine
from agents.tasks.streamtask import StreamTask, TaskStatus
from elf.fields import replace
from elf.job.commands import Command, Feed, Idle, Outcome, Turn
from elf.job.ports import ExtractorPort, MapperPort, Wanted
from elf.ql.plan import Fragment
from lab.chaos.engine import PyEngine
from lab.chaos.fates import Fates
from lab.chaos.files import FileLog
from lab.chaos.sampled import weighed
from lab.chaos.task import CHUNKS_AHEAD, READ_MS, STUCK_MS, SimTask

if TYPE_CHECKING:
    from lab.chaos.agent import SimAgent

CHUNK_BYTES: Final = 8_000
"""The most bytes, except for a single line: some thirty rows."""
ROTATE_WAIT_S: Final = 2.0
"""As ``rotate_wait_secs``; shorter than by default, like all other times."""
IDLE_EVERY_MS: Final = 250
FACTS: Final = TaskStatus("", get_format("json"), "_ts", "")


class FileEngine(StreamEngine):
    """A stream task's engine without DuckDB: see ``lab.chaos.engine``."""

    def __init__(self) -> None:
        super().__init__(FACTS.format, FACTS.timestamp)
        self._py = PyEngine()

    def extractor(self, wanted: Wanted) -> ExtractorPort:  # type: ignore[override]
        return self._py.extractor(wanted)

    def mapper(self, fragment: Fragment) -> MapperPort:
        return self._py.mapper(fragment)


class FileTask(SimTask):
    """See the module's docstring."""

    def __init__(self, agent: SimAgent, stream: str) -> None:
        self._agent = agent
        self._stream = stream
        log = agent.logs[stream]
        assert isinstance(log, FileLog)
        facts = TaskStatus(stream, FACTS.format, FACTS.timestamp, "")
        settings = replace(agent.world.worker_settings, name=f"a{agent.index}")
        programs = given(checkpoints(agent.store))
        self._task = StreamTask(
            facts,
            settings,
            agent.store,
            cores=1,
            engine=FileEngine(),
            given=programs,
            clock_us=agent.spent_us,
        )
        self.worker = self._task.worker
        self.worker.turns.when_cut = self._cut
        stored = load_checkpoint(agent.store, stream)
        self.checkpoint = stored.worker if stored else None
        positions = stored.positions if stored else ()
        self._tail = Tail(log.include, rotate_wait_secs=ROTATE_WAIT_S, positions=positions)
        self._log = log
        self._positions: deque[tuple[Position, ...]] = deque()
        """The source offsets of the input after each chunk and each ``Idle`` that waits."""
        self._taken: list[Callable[[], None]] = []
        """What is durable with the next checkpoint."""
        self._idle_ms = 0
        self._weighed = []
        self._waiting = []
        self._busy = False

    def _work(self) -> None:
        """The next command, with a chance that the agent dies before or after it."""
        agent, world = self._agent, self._agent.world
        if agent.stuck:
            world.after(STUCK_MS, agent, self._work)
            return
        command = self._waiting.pop(0)
        if isinstance(command, Turn):
            command = replace(command, now_ms=agent.now_ms)
        assert not isinstance(command, Slice)  # nothing of files is archived here
        world.crash_point(agent)
        if agent.up:
            outcome = self._perform(command)
            if outcome.checkpoint is not None and world.ledger is not None:
                world.ledger.weights.keep(agent.index, self._weighed)
                self._weighed.clear()
                world.ledger.checkpoint(agent.index, outcome.checkpoint, outcome.sealed, outcome.forgotten)
                world.ledger.traced(agent.index, outcome, agent.archives[self._stream])
                for take in self._taken:
                    take()
                self._taken.clear()
            world.crash_point(agent)
        if agent.up:
            agent.work.after_disk(lambda: self._done(command, outcome))

    def _perform(self, command: Command) -> Outcome:
        task, took = self._task, self._log.fates.took
        self._weighed += weighed(self.worker, command)
        if isinstance(command, Feed):
            chunk, missed, at_ms = command.chunk, command.missed, command.now_ms
            self._agent.archives[self._stream].take(chunk)
            self._taken.append(partial(took, chunk.lines.to_pylist(), missed))
            place, new_sources = self._positions.popleft(), command.new_sources
            return task.feed(chunk, place, at_ms, None, missed, new_sources=new_sources)  # type: ignore[arg-type]
        if isinstance(command, Idle):
            self._taken.append(partial(took, (), command.missed))
            return task.idle(command, self._positions.popleft())
        return task.perform(command, self._agent.now_ms)

    def read(self) -> None:
        agent, now_ms = self._agent, self._agent.now_ms
        while len(self._waiting) < CHUNKS_AHEAD and not agent.node.leaving:
            chunk = self._tail.read(CHUNK_BYTES, now_ms)
            if chunk is not None:
                self._idle_ms = now_ms
                self.give(Feed(chunk, now_ms, None, self._tail.gaps(), self._tail.has_new_sources))
                self._positions.append(self._tail.positions())
                continue
            if now_ms - self._idle_ms >= IDLE_EVERY_MS:
                self._idle_ms = now_ms
                self.give(Idle(now_ms, self._tail.finished(), self._tail.gaps()))
                self._positions.append(self._tail.positions())
            break
        agent.world.after(READ_MS, agent, self.read)

    # -- what the judge asks ---------------------------------------------------------------------------------

    @property
    def unread(self) -> str:
        bytes_ = self._tail.unread
        return f"has {bytes_} bytes of {self._stream} to read yet" if bytes_ else ""

    def read_rows(self) -> list[tuple[int, str]]:
        return self._log.rows

    def finish(self) -> Fates:
        """The judge looks at the end of the story: what waits for the next checkpoint, or chunk, counts as
        well."""
        for take in self._taken:
            take()
        self._taken.clear()
        self._log.fates.took((), self._tail.gaps())
        return self._log.fates

    def close(self) -> None:
        self._tail.close()
        self._task.close(checkpoint=False)
