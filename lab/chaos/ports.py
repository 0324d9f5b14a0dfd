"""The ports of a simulated agent (``agents.ports``): virtual time, and a chance to die wherever a real
process may."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa

from agents.archive.partitions import ArchiveError
from agents.committing.making import Made, Making, Wanted
from agents.committing.panecommits import Merge
from agents.disk.store import Store
from agents.ports import Queue
from agents.tasks.aggregating import merging
from agents.tasks.helping import mapped_for
from agents.tasks.streams import Call
from elf.errors import ElfBug
from elf.fields import replace
from elf.job import effects as do
from elf.job.commands import Command, Suspend
from elf.job.events import Combined, Helped, PanesCommitted, WindowsCommitted
from elf.job.group.port import Drafted
from elf.job.messages.helping import RowsNotMapped
from elf.job.ports import FinisherPort
from elf.ql.plan import Fragment, Function, Plan
from lab.chaos.engine import PyEngine, PyFinisher, here, py_stage, py_types

if TYPE_CHECKING:
    from lab.chaos.agent import SimAgent

T = TypeVar("T")


class SimClock:
    """Virtual time, as the agent's own clock shows it."""

    def __init__(self, agent: SimAgent) -> None:
        self._agent = agent
        self._tick_ms: int | None = None
        """When the next tick is due, in the world's time."""

    def now_ms(self) -> int:
        return self._agent.now_ms

    def soon(self, action: Callable[[], None]) -> None:
        """At once, if the agent still runs."""
        if self._agent.up:
            action()

    def after(self, ms: int, action: Callable[[], None]) -> None:
        self._agent.world.after(ms, self._agent, action)

    def wake(self, at_ms: int, tick: Callable[[], None]) -> None:
        at_ms -= self._agent.clock_ms
        if self._tick_ms is None or at_ms < self._tick_ms:
            self._tick_ms = at_ms
            world = self._agent.world
            world.after(at_ms - world.now, self._agent, partial(self._woken, at_ms, tick))

    def _woken(self, at_ms: int, tick: Callable[[], None]) -> None:
        if at_ms == self._tick_ms:  # else an earlier one was planned meanwhile
            self._tick_ms = None
            tick()


class SimWork:
    """The work of threads: it takes a while, and the agent may die before and after it, and before it is
    reported."""

    def __init__(self, agent: SimAgent) -> None:
        self._agent = agent
        self.disk_ms: float = agent.world.now
        """When the disk's thread has done all its work."""

    def submit(self, queue: Queue, work: Callable[[], T], then: Callable[[T], None]) -> None:
        match queue:
            case "plan" | "compute" | "functions" | "past" | "tables":
                self._agent.world.later(self._agent, lambda: then(work()))
            case "commit" | "outputs":
                self._agent.world.later(self._agent, partial(self._commit, work, then))
            case "persist":
                self._agent.world.later(self._agent, partial(self._persist, work, then))
            case "groups" | "replicas" | "programs":
                self.in_order(partial(self._write, work, then))
            case "aside":
                self.aside(work)

    def _commit(self, work: Callable[[], T], then: Callable[[T], None]) -> None:
        done = work()
        self._agent.world.crash_point(self._agent)
        if self._agent.up:
            self.after_disk(partial(then, done))

    def _persist(self, work: Callable[[], T], then: Callable[[T], None]) -> None:
        agent = self._agent
        agent.world.crash_point(agent)
        done = [work()] if agent.up else []
        agent.world.crash_point(agent)
        if agent.up:
            self.after_disk(partial(then, *done))

    def _write(self, work: Callable[[], T], then: Callable[[T], None]) -> None:
        done = work()
        self._agent.world.crash_point(self._agent)
        if self._agent.up:
            then(done)

    def after_disk(self, action: Callable[[], None]) -> None:
        """At once, or when a slow disk is ready."""
        agent = self._agent
        if agent.slow_disk_ms:
            agent.world.after(agent.world.lag(agent.slow_disk_ms), agent, action)
        else:
            action()

    def in_order(self, action: Callable[[], None]) -> None:
        """The work of the disk's thread, one after the other."""
        agent, world = self._agent, self._agent.world
        takes_ms = world.rng.randrange(1, 5) + world.lag(agent.slow_disk_ms)
        self.disk_ms = max(self.disk_ms, world.now) + takes_ms
        world.after(self.disk_ms - world.now, agent, action)

    def aside(self, work: Callable[[], object]) -> None:
        """At once."""
        work()


class SimMaking(Making):
    """Takes no CPU time: else no two histories of a seed said the same loads."""

    def task(self, effect: Wanted) -> tuple[Queue, Callable[[], Made]]:
        queue, work = super().task(effect)
        return queue, lambda: _timeless(work())


def _timeless(made: Made) -> Made:
    match made:
        case Combined() | PanesCommitted() | WindowsCommitted():
            return replace(made, cpu_us=0)
        case Drafted(done=PanesCommitted() | WindowsCommitted() as done):
            windows = tuple(replace(one, cpu_us=0) for one in made.windows)
            return replace(made, done=replace(done, cpu_us=0), windows=windows)
        case _:
            return made


class SimTasks:
    """The agent's stream tasks, by stream."""

    def __init__(self, agent: SimAgent) -> None:
        self._agent = agent

    def perform(self, stream: str, command: Command) -> None:
        agent, world = self._agent, self._agent.world
        if world.ledger is not None and isinstance(command, Suspend):
            world.ledger.suspends(agent.index, command.uid, agent.held(command.uid), world.retained_bytes_max)
        agent.tasks[stream].give(command)

    def pace(self, effect: do.Paced) -> None:
        self._agent.paced[effect.stream] = effect.poll_ms

    def consult(self, effect: do.Consult) -> None:
        self._agent.tasks[effect.stream].consult(effect)

    def help(self, effect: do.Help) -> None:
        """As ``agents.tasks.helping``: it reads what the other agent has archived."""
        agent, world = self._agent, self._agent.world
        owner = world.by_address[effect.to]
        wanted = effect.asked.wanted
        try:
            archive = owner.archive_for_others(effect.asked.stream)
            if agent.blind:
                raise ArchiveError("the archive cannot be reached")
            answer = mapped_for(effect.asked, effect.flow, archive, PyEngine(), agent.past_rows)
            helped = Helped(effect.to, answer)
        except ArchiveError as error:
            word = RowsNotMapped(flow=wanted.flow, number=wanted.number, why=str(error), again=True)
            helped = Helped(effect.to, word)
        world.later(agent, lambda: agent.handle(helped))

    def run(self, effect: do.Run) -> None:
        raise TypeError(f"simulated agents share no files: {effect!r}")


def _never(why: str) -> None:
    raise ElfBug(f"states are not merged: {why}")


class PyFunctions:
    """What makes panes and windows, in place of DuckDB and of sandboxes: a few lines of Python."""

    where = ""

    def types(self, fragment: Fragment) -> pa.Schema:
        return py_types(fragment)

    def finisher(self, plan: Plan) -> FinisherPort:
        return PyFinisher(plan)

    def stages(self, fragment: Fragment, groups: pa.Table) -> pa.Table:
        return py_stage(fragment, groups)

    def merging(self, fragment: Fragment) -> AbstractContextManager[Merge | None]:
        return merging(fragment, self, _never, set())

    def broken_law(self, effect: do.TryAggregate) -> str:
        return ""

    def running(self, function: Function, version: int = 1) -> AbstractContextManager[Call]:
        return nullcontext(here(function))

    def why_not(self, effect: do.TryFunctions, store: Store) -> str:
        """Everything is available."""
        return ""
