"""An agent whose steps take the time that they take: what it waits for, and what it says of itself."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec

from agents.driver import FORGET_S, TICK_MS_MIN
from agents.lanes.engine import types_of
from agents.node.beginning import NodeSettings
from agents.node.node import NodeEffect
from elf.bench.simulated.store import TimedStore
from elf.chaos.agent import SimAgent
from elf.errors import ElfBug
from elf.job import effects as do
from elf.job import events as was
from elf.job.home import port as home
from elf.job.ports import FinisherPort
from elf.job.program.port import ProgramEvent
from elf.job.snapshots import SnapshotName
from elf.ql.plan import Plan

if TYPE_CHECKING:
    from elf.bench.simulated.lane import TimedLane
    from elf.bench.simulated.world import TimedWorld

FORGET_MS: Final = 1e3 * FORGET_S


class TimedAgent(SimAgent):
    """See the module's docstring."""

    world: TimedWorld
    lanes: dict[str, TimedLane]  # type: ignore[assignment]
    store: TimedStore
    copy_after_ms = NodeSettings.copy_after_ms
    tick_ms_min = TICK_MS_MIN
    types = staticmethod(types_of)

    def __init__(self, world: TimedWorld, index: int) -> None:
        super().__init__(world, index)
        self.unsynced = False
        """Lines were archived since the last cut."""
        self.archived = False
        """The cut that is being made waits for them too."""
        self._looks = 0
        """The life in which it is about to look when its next tick is due."""
        self._told: list[tuple[str, str]] = []
        self._forgotten: list[SnapshotName] = []

    def new_store(self) -> TimedStore:
        return TimedStore(None, self.index)

    # -- what it says of itself ------------------------------------------------------------------------------

    def tell(self, what: str, about: str) -> None:
        self._told.append((what, about))

    def told(self) -> list[tuple[str, str]]:
        """In the step that has just ended."""
        told, self._told = self._told, []
        told += [("noticed", text) for _, text in self.notices]
        self.notices.clear()
        return told

    def _plan_tick(self) -> None:
        """Once for all that a turn of the loop has brought, as the driver does."""
        if self._looks != self.life:
            self._looks = self.life
            self.world.after(0, self, self._look)

    def _look(self) -> None:
        self._looks = 0
        super()._plan_tick()

    # -- what it waits for -----------------------------------------------------------------------------------

    def after_disk(self, action: Callable[[], None]) -> None:
        """When what was written is synced: the disk does one thing after the other."""
        costs, world = self.world.costs, self.world
        wait = self.store.waited() * costs.sync_ms + self.archived * costs.archive_sync_ms
        self.archived = False
        if not world.charging or not wait:
            action()
            return
        self.disk_ms = max(self.disk_ms, world.exact) + wait  # type: ignore[assignment]
        world.after(self.disk_ms - world.exact, self, action)

    def _in_order(self, action: Callable[[], None]) -> None:
        self.world.charge(self.world.costs.hop_ms)
        self.world.after(max(0.0, self.disk_ms - self.world.exact), self, action)

    def from_program(self, event: ProgramEvent) -> None:
        self.world.charge(self.world.costs.sandbox_ms + self.world.costs.hop_ms)
        self.world.after(0, self, partial(self.handle, event))

    # -- effects ---------------------------------------------------------------------------------------------

    def finisher(self, plan: Plan) -> FinisherPort:
        return self.world.prepared.finisher(plan)

    def _long(self, effect: NodeEffect) -> None:
        match effect:
            case do.Consult():
                self.lanes[effect.stream].consult(partial(self._consult, effect))
            case do.Faulted():
                raise ElfBug(f"a request has failed: {effect.error!r}") from effect.error
            case home.Draft(work=do.CommitPanes() as work):
                self.tell("commits", work.flow.uid)
                super()._long(effect)
            case _:
                super()._long(effect)

    def _consult(self, effect: do.Consult) -> None:
        body = msgspec.msgpack.encode(self.lanes[effect.stream].seen())
        self.handle(was.Consulted(effect.request, "", body))

    def _forget(self, effect: do.Forget) -> None:
        """Whole flows at once, else together with what is forgotten in the same second."""
        self.tell("forgets", effect.flow)
        if effect.whole_flow:
            self.world.later(self, partial(super()._forget, effect))
            return
        if not self._forgotten:
            self.world.after(FORGET_MS, self, self._forget_all)
        self._forgotten += [SnapshotName(effect.flow, *name) for name in effect.names]

    def _forget_all(self) -> None:
        names, self._forgotten = self._forgotten, []
        self.store.delete_snapshots(names)
        self.store.waited()  # on a thread that nothing waits for
