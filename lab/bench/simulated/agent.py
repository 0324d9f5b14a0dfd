"""An agent whose steps take the time that they take: what it waits for, and what it says of itself."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from agents.committing.staging import RangeStages
from agents.loop import FORGET_MS, TICK_MS_MIN
from agents.node.beginning import NodeSettings
from agents.tasks.direct import types_of
from agents.tasks.engine import OverGroups
from elf.job import effects as do
from elf.job.group import port as groups
from elf.job.ports import FinisherPort
from elf.job.program.port import ProgramEvent
from elf.ql.plan import Fragment, Plan
from lab.bench.simulated.engine import Prepared
from lab.bench.simulated.store import TimedStore
from lab.chaos.agent import SimAgent
from lab.chaos.ports import PyFunctions, SimClock, SimWork

if TYPE_CHECKING:
    from lab.bench.simulated.task import TimedTask
    from lab.bench.simulated.world import TimedWorld


class TimedClock(SimClock):
    """Virtual time of an agent whose loop has turns."""

    _agent: TimedAgent

    def soon(self, action: Callable[[], None]) -> None:
        self._agent.world.after(0, self._agent, action)


class TimedWork(SimWork):
    """On threads that have the core when it is their turn, and a disk that takes its time."""

    _agent: TimedAgent

    def after_disk(self, action: Callable[[], None]) -> None:
        """When what was written is synced: the disk does one thing after the other."""
        agent, world = self._agent, self._agent.world
        wait = agent.store.waited() * world.costs.sync_ms + agent.archived * world.costs.archive_sync_ms
        agent.archived = False
        if not world.charging or not wait:
            action()
            return
        self.disk_ms = max(self.disk_ms, world.exact) + wait
        world.after(self.disk_ms - world.exact, agent, action)

    def in_order(self, action: Callable[[], None]) -> None:
        world = self._agent.world
        world.charge(world.costs.hop_ms)
        world.after(max(0.0, self.disk_ms - world.exact), self._agent, action)

    def aside(self, work: Callable[[], object]) -> None:
        self._agent.world.later(self._agent, partial(self._unwaited, work))

    def _unwaited(self, work: Callable[[], object]) -> None:
        work()
        self._agent.store.waited()  # on a thread that nothing waits for


class TimedFunctions(PyFunctions):
    """With DuckDB's statements. ``later_ms``: CPU time of what comes after the groups of a pane, at the roots
    of ranges and at masters."""

    def __init__(self, prepared: Prepared) -> None:
        self._prepared = prepared
        self._stages = RangeStages(OverGroups)
        self.later_ms = 0.0

    def types(self, fragment: Fragment) -> pa.Schema:
        return types_of(fragment)

    def finisher(self, plan: Plan) -> FinisherPort:
        return TimedFinisher(self._prepared.finisher(plan), self)

    def stages(self, fragment: Fragment, groups: pa.Table) -> pa.Table:
        with self.spending():
            return self._stages(fragment, groups)

    @contextmanager
    def spending(self) -> Iterator[None]:
        began = time.thread_time_ns()
        yield
        self.later_ms += (time.thread_time_ns() - began) / 1e6


class TimedFinisher(FinisherPort):
    """One whose final fragment and stages are timed."""

    def __init__(self, port: FinisherPort, functions: TimedFunctions) -> None:
        self._port, self._functions = port, functions

    def run(self, groups: pa.Table, *beside: pa.Table) -> pa.Table:
        with self._functions.spending():
            found = self._port.run(groups, *beside)
        self.failure, self.failed = self._port.failure, self._port.failed
        return found

    def join(self, groups: pa.Table) -> pa.Table:
        return self._port.join(groups)

    def stage(self, place: int, groups: pa.Table) -> pa.Table:
        with self._functions.spending():
            return self._port.stage(place, groups)

    def side(self, number: int) -> FinisherPort:
        return self._port.side(number)

    def close(self) -> None:
        self._port.close()


class TimedAgent(SimAgent):
    """See the module's docstring."""

    world: TimedWorld
    tasks: dict[str, TimedTask]  # type: ignore[assignment]
    store: TimedStore
    functions: TimedFunctions
    copy_after_ms = NodeSettings.copy_after_ms
    tick_ms_min = TICK_MS_MIN
    forget_ms = FORGET_MS
    clock_type = TimedClock
    work_type = TimedWork
    toys = False

    def __init__(self, world: TimedWorld, index: int) -> None:
        super().__init__(world, index)
        self.functions = TimedFunctions(world.prepared)
        self.unsynced = False
        """Lines were archived since the last checkpoint."""
        self.archived = False
        """The checkpoint that is being made waits for them too."""
        self._said: list[tuple[str, str]] = []

    def new_store(self) -> TimedStore:
        return TimedStore(None, self.index)

    def process_us(self) -> int:
        """CPU time of its core so far."""
        return round(1_000 * self.world.cores[self.index].cpu_ms)

    def tell(self, what: str, about: str) -> None:
        """Say something of itself, in the step that is under way."""
        self._said.append((what, about))

    def said(self) -> list[tuple[str, str]]:
        """In the step that has just ended."""
        said, self._said = self._said, []
        said += [("noticed", text) for _, text in self.broadcasts]
        self.broadcasts.clear()
        return said

    def goes_on(self, effect: object) -> bool:
        match effect:
            case groups.Draft(work=do.CommitPanes() as work):
                self.tell("commits", work.flow.uid)
            case do.Forget():
                self.tell("forgets", effect.flow)
        return super().goes_on(effect)

    def beside(self, call: Callable[[], None]) -> None:
        """It has the core when the step is over that calls it: what that sends is on its way by then."""
        self.world.later(self, call)

    def from_program(self, event: ProgramEvent) -> None:
        self.world.charge(self.world.costs.sandbox_ms + self.world.costs.hop_ms)
        self.world.after(0, self, partial(self.handle, event))
