"""The stream task of a timed agent: lines are JSON and go through DuckDB; they come when the bench writes
them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec
import numpy as np
import pyarrow as pa

from agents.tasks.feeding import IDLE_EVERY_MS, UNREAD_EVERY_MS
from elf.job import events as was
from elf.job.commands import Command, Feed, Idle, Install, Outcome
from elf.job.effects import Consult
from elf.job.messages.inquiries import StreamSeen
from elf.job.ports import Engine
from lab.bench.simulated.engine import EVENT_TIME, FORMAT, SharedEngine
from lab.chaos.engine import Chunk, Source
from lab.chaos.task import SimTask

if TYPE_CHECKING:
    from lab.bench.simulated.agent import TimedAgent

SAMPLES: Final = 100
LOG: Final = Source("log")


class TimedTask(SimTask):
    """See the module's docstring."""

    _agent: TimedAgent

    def __init__(self, agent: TimedAgent, stream: str) -> None:
        super().__init__(agent, stream)
        self.samples: list[str] = []

    def engine(self) -> Engine:
        return SharedEngine(self._agent.world.prepared)

    def feed(self, lines: Sequence[str]) -> None:
        """These have been read. They are archived as they are mapped, and synced with the checkpoint."""
        costs = self._agent.world.costs
        self._agent.tell("read", self._stream)
        self._agent.world.charge(costs.archive_ms)
        self._agent.unsynced = True
        self.samples = [*self.samples, *lines][-SAMPLES:]
        start, self.position = self.position, self.position + len(lines)
        offsets = np.arange(start, self.position, dtype=np.int64)
        chunk = Chunk(LOG, start, self.position, pa.array(lines, pa.string()), offsets)
        self.give(Feed(chunk, self._agent.now_ms))

    def read(self) -> None:
        """There is nothing to read: time for an ``Idle``."""
        agent = self._agent
        if not self._waiting:
            self.give(Idle(agent.now_ms))
        agent.world.after(IDLE_EVERY_MS if self.worker.flows() else UNREAD_EVERY_MS, agent, self.read)

    def seen(self) -> StreamSeen:
        """The columns of its last lines."""
        schema = FORMAT.schema(pa.array(self.samples, pa.string()), EVENT_TIME)
        return StreamSeen(schema, FORMAT.name, EVENT_TIME, "", self.position)

    def _keep(self, outcome: Outcome) -> bool:
        if outcome.checkpoint is not None and self._agent.unsynced:
            self._agent.unsynced = False
            self._agent.archived = True
        return super()._keep(outcome)

    def _done(self, command: Command, outcome: Outcome) -> None:
        if isinstance(command, Install):
            self._agent.tell("computed", command.flow.uid)
        super()._done(command, outcome)

    def consult(self, effect: Consult) -> None:
        """Between two commands."""
        self._agent.world.later(self._agent, partial(self._answer, effect))

    def _answer(self, effect: Consult) -> None:
        self._agent.handle(was.Consulted(effect.request, "", msgspec.msgpack.encode(self.seen())))
