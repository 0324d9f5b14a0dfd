"""How the faults of a schedule befall a fleet, and how they end. Requests are people's."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from agents.disk import replicastore
from elf.job import events as was
from elf.job.commands import SetWeights, Waited
from elf.wire.clients import Call
from lab.chaos import programs
from lab.chaos.agent import SimAgent
from lab.chaos.engine import GONE, STREAM
from lab.chaos.files import FileLog
from lab.chaos.ledger import Ledger
from lab.chaos.overload import overload, relieve
from lab.chaos.people import PEOPLE, People
from lab.chaos.reference import BANG, BOOM
from lab.chaos.schedule import Fault, Schedule
from lab.chaos.world import Armed, World

ASK_RETRY_MS = 1_500
"""A reduce function that a job has not got, and a table that is not there, are asked for again then."""


class Faults:
    """See the module's docstring."""

    def __init__(self, world: World, ledger: Ledger, schedule: Schedule, people: People) -> None:
        self._world, self._ledger, self._schedule, self._people = world, ledger, schedule, people
        self._end_ms = self._written_ms = 0

    def storm(self, written_ms: int) -> None:
        """All of them, each in its time. ``written_ms``: until when logs are written to."""
        world, schedule = self._world, self._schedule
        begin_ms, self._end_ms, self._written_ms = world.now, world.now + schedule.storm_ms, written_ms
        for fault in schedule.faults:
            world.at(begin_ms + fault.at_ms, partial(self._befall, fault))
        world.run(schedule.storm_ms)

    def _befall(self, fault: Fault) -> None:
        world, agents = self._world, [self._world.agents[index] for index in fault.who]
        if self._end_ms <= world.now:
            return
        over: Callable[[], None] = _nothing
        match fault.kind:
            case "crash" | "clock":
                world.kill(agents[0], fault.for_ms)
                agents[0].clock_ms = fault.amount if fault.kind == "clock" else agents[0].clock_ms
            case "point" | "power":
                world.arm(agents[0], Armed(fault.amount, fault.for_ms, power=fault.kind == "power"))
            case "gone":
                world.unheard.add(agents[0].address)
                over = partial(self._goes, agents[0])
            case "heir":
                self._heir()
            case "way up":
                world.unheard.add(agents[0].address)
                over = partial(world.unheard.discard, agents[0].address)
            case "leader":
                world.kill(world.leader(self._people.specs[fault.amount]), fault.for_ms)
            case "cut off":
                world.network.sides = {world.leader(self._people.specs[fault.amount]).address: 1}
                over = world.network.sides.clear
            case "blackout":
                for agent in world.agents:
                    world.kill(agent, fault.for_ms + world.rng.randrange(1_000))
            case "loss":
                world.loss, over = fault.amount / 100, lambda: setattr(world, "loss", 0.0)
            case "deaths":
                world.crash_share, over = fault.amount / 1000, lambda: setattr(world, "crash_share", 0.0)
            case "doubles":
                world.doubles, over = fault.amount / 100, lambda: setattr(world, "doubles", 0.0)
            case "overtaking":
                world.network.slow = fault.amount / 100
                over = lambda: setattr(world.network, "slow", None)  # noqa: E731
            case "partition":
                world.network.sides = {agent.address: 1 for agent in agents}
                over = world.network.sides.clear
            case "border":
                here = f"region{fault.amount}"
                world.network.sides = {a.address: 1 for a in world.agents if a.place == here}
                over = world.network.sides.clear
            case "slow border":
                world.network.border_ms = fault.amount
                over = lambda: setattr(world.network, "border_ms", 0)  # noqa: E731
            case "head":
                for agent in world.heads(f"region{fault.amount}"):
                    world.kill(agent, fault.for_ms)
            case "unheard":
                world.network.mute.add(world.leader(self._people.specs[fault.amount]).address)
                over = world.network.mute.clear
            case "mute":
                world.network.mute |= {agent.address for agent in agents}
                over = world.network.mute.clear
            case "slow":
                agents[0].slow_ms, over = fault.amount, lambda: setattr(agents[0], "slow_ms", 0)
            case "stuck":
                agents[0].stuck, over = True, lambda: setattr(agents[0], "stuck", False)
            case "slow disk":
                agents[0].slow_disk_ms = fault.amount
                over = lambda: setattr(agents[0], "slow_disk_ms", 0)  # noqa: E731
            case "full disk":
                agents[0].store.fill(True)
                over = lambda: agents[0].store.fill(False)  # noqa: E731
            case "stop":
                agents[0].stop()
                over = agents[0].go_on
            case "rotate" | "remove":
                for log in agents[0].logs.values():
                    if isinstance(log, FileLog):
                        site = log.sites[fault.amount]
                        site.rotate() if fault.kind == "rotate" else site.remove()
            case "join":
                world.restart(agents[0])
                world.write(agents[0], self._written_ms, rate_ms=self._schedule.rate_ms)
            case "output":
                self._people.output(agents[0], fault)
            case "table" | "ring":
                self._people.table(agents[0], fault)
            case "rekey":
                self._people.rekey(agents[0])
            case "hold" | "unhold":
                self._people.hold(self._up(agents[0]), paused=fault.kind == "hold")
            case "join table":
                if not self._people.join_table(self._up(agents[0]), fault):
                    world.at(world.now + ASK_RETRY_MS, lambda: self._befall(fault))
            case "rejoin":
                self._people.rejoin(fault)
            case "untable":
                self._people.drop_tables(agents[0])
            case "budget":
                for task in agents[0].tasks.values() if agents[0].up else ():
                    one = (fault.amount, "the agent's cpu")
                    task.give(SetWeights(tuple((uid, *one) for uid in task.worker.flows())))
            case "overload":
                overload(agents[0], fault.amount)
                over = partial(relieve, agents[0])
            case "waited":
                for task in agents[0].tasks.values() if agents[0].up else ():
                    task.give(Waited("the agent's cpu", agents[0].now_ms))
            case "outside":
                world.outside.is_down, over = True, lambda: setattr(world.outside, "is_down", False)
            case "boom" | "bang":
                key = BOOM if fault.kind == "boom" else BANG
                for agent in agents:
                    agent.log.add(agent.now_ms * 1000, key)
            case "leave":
                if agents[0].up and not world.only_with(agents[0]):
                    agents[0].guard(lambda: agents[0].perform(agents[0].node.leave(agents[0].now_ms)))
            case "offload" | "rows back":
                self._people.offload(self._up(agents[0]), fault)
            case "blind":
                agents[0].blind, over = True, lambda: setattr(agents[0], "blind", False)
            case "retention" if world.archives is not None:
                world.archives.retain(agents[0], fault.amount)
            case "upkeep" if world.archives is not None:
                world.archives.upkeep(agents[0])
            case "recluster" if world.archives is not None:
                world.archives.sort(STREAM, fault.amount)
            case "upkeep" | "recluster":
                pass  # nothing of files is archived here
            case "master":
                if masters := programs.masters(world):
                    self._goes(masters[fault.amount % len(masters)])
            case "process":
                if agents[0].up:
                    agents[0].guard(agents[0].jobs.end_processes)
            case "retention":
                for log in agents[0].logs.values():
                    log.lose(log.kept * fault.amount // 100)
            case "reduce":
                self._people.ask(fault)
                spec = self._people.spec(fault.amount)
                if spec is None or spec.plan.fragment.reduce is None:
                    world.at(world.now + ASK_RETRY_MS, lambda: self._befall(fault))
            case _:
                self._people.ask(fault)
        if fault.for_ms:
            world.at(world.now + fault.for_ms, over)

    def _up(self, agent: SimAgent) -> SimAgent:
        """Who is asked where people find an agent down: the next one that is up."""
        agents = self._world.agents
        there = (one for one in (*agents[agent.index :], *agents) if one.up)
        return next(there, agent)

    def _goes(self, agent: SimAgent) -> None:
        """An agent goes for good, with its disk. Where the fleet cannot do without it, it comes back after
        all."""
        world, ledger = self._world, self._ledger
        world.unheard.discard(agent.address)
        if not (world.now < self._end_ms and agent.up and world.spares(agent)):
            world.kill(agent, 300)
            return
        agent.crash()
        agent.ended = GONE
        ledger.replicas.goes(agent.index, {one.index for one in world.agents if not one.ended})

    def _heir(self) -> None:
        """All holders of replicas of the agent that is gone for good are asked to leave; those that are
        needed stay."""
        gone = {name for names in self._ledger.replicas.gone.values() for name in names}
        for agent in self._world.agents:
            holds = agent.up and gone & replicastore.held(agent.store).keys()
            if holds and not self._world.only_with(agent):
                leave = Call(request=1, verb="leave")
                agent.guard(lambda a=agent, m=leave: a.handle(was.Arrived(PEOPLE, m)))  # type: ignore[misc]


def _nothing() -> None:
    """It ends by itself."""
