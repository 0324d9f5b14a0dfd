"""A fleet that works while strangers talk to it: real nodes, stores and codec on virtual time.

One job over three agents, each with rows of its own. ``facts`` is what must not change by what strangers say:
who is a member, which jobs there are, where; beside that windows must go on to be right.
"""

from __future__ import annotations

import random
from collections import Counter
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from agents import codec
from agents.codec import Message
from agents.loop import arrived
from agents.node.node import NodeEvent
from agents.ports import Told
from elf.errors import PeerError
from elf.job import effects as do
from elf.job.catalog.log import CatalogLog
from elf.job.events import Consulted, Ran
from elf.job.messages.rollup import NotRun
from elf.job.ports import Engine, MapperPort
from elf.job.program.port import ProgramEffect
from elf.job.spec import JobSpec
from elf.ql.plan import Fragment
from elf.wire.clients import Stats
from elf.wire.frames import Decoded, FrameRefused
from lab.bench.fuzz.frames import Frames, Kind
from lab.bench.fuzz.values import Known
from lab.chaos.agent import SimAgent
from lab.chaos.engine import PyEngine, plan
from lab.chaos.ports import PyFunctions, SimTasks
from lab.chaos.programs import InlineJobs
from lab.chaos.task import SimTask
from lab.chaos.world import World

CLUSTER: Final = "sim"
AGENTS: Final = 3
BEFORE_MS: Final = 15_000
WINDOW_US: Final = 1_000_000
BYTES_MAX: Final = 64 << 20
Facts = tuple[tuple[str, ...], ...]


class NoJobs(InlineJobs):
    """Runs no line of a stranger's code: here it would run in this process."""

    def perform(self, effect: ProgramEffect) -> None:
        pass


class StrictEngine(PyEngine):
    """Says at once of a stranger's flow what it cannot compute, as DuckDB does; runs nobody's functions."""

    def mapper(self, fragment: Fragment) -> MapperPort:
        if fragment.has_code:
            raise ValueError("no functions run here")
        made, types = super().mapper(fragment), {"_ts": pa.int64(), "key": pa.string()}
        names = [one.name for one in fragment.columns]
        made.run(pa.schema([*((name, types[name]) for name in names), ("_pane", pa.int64())]).empty_table())
        return made


class AskedTask(SimTask):
    """Has no lines to show."""

    def engine(self) -> Engine:
        return StrictEngine()

    def consult(self, effect: do.Consult) -> None:
        asked = Consulted(effect.request, "nothing is shown here", b"")
        self._agent.world.after(1, self._agent, lambda: self._agent.handle(asked))


class AskedTasks(SimTasks):
    """Shares no files."""

    def run(self, effect: do.Run) -> None:
        asked = effect.asked
        answer = NotRun(flow=asked.flow, member=asked.member, pane=asked.pane, why="no files are shared here")
        self._agent.world.after(1, self._agent, lambda: self._agent.handle(Ran(effect.to, answer)))


class NoMerging(PyFunctions):
    """Runs nobody's aggregates."""

    def merging(self, fragment: Fragment) -> AbstractContextManager[None]:
        return nullcontext()


class Attacked(SimAgent):
    """An agent that says what it would have said to people, and that counts what would end it."""

    jobs_type, tasks_type = NoJobs, AskedTasks
    functions = NoMerging()

    def __init__(self, world: World, index: int) -> None:
        super().__init__(world, index)
        self.faults: list[do.Faulted] = []
        self.skipped: list[do.Skipped] = []
        self.stops_wanted: list[str] = []

    def told(self, effect: Told) -> None:
        match effect:
            case do.Faulted():
                self.faults.append(effect)
            case do.Skipped():
                self.skipped.append(effect)
            case _:
                super().told(effect)

    def end(self, effect: do.Stop) -> None:
        self.stops_wanted.append(effect.text)

    def stats(self) -> Stats:
        return Stats(1, 0, "live", (), 0, 0, 0, 0, 0, 0)


class AttackedWorld(World):
    """Keeps the frames that its agents send to each other."""

    agent_type = Attacked
    frames: Frames | None = None

    def send(self, agent: SimAgent, to: str, message: Message) -> None:
        if self.frames is not None:
            self.frames.real.append(codec.encode(message, cluster=CLUSTER, sender=agent.address))
        super().send(agent, to, message)


@dataclass(frozen=True)
class Sent:
    """What became of a frame: ``refused`` why, or what its message was."""

    refused: str = ""
    message: str = ""


class Target:
    """See the module's docstring."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.world = AttackedWorld(seed, AGENTS, checking=False)
        self.world.task = AskedTask
        self.world.start_all()
        for agent in self.world.agents:
            self.world.write(agent, 1 << 40)
        self.job = self.world.create(0, plan())
        self.world.run(BEFORE_MS)
        self.frames = Frames(self.rng, CLUSTER, self._stranger, self._known())
        self.world.frames = self.frames
        self.world.run(3_000)
        self.before = self.facts()

    def _stranger(self) -> str:
        return f"10.{self.rng.randrange(100, 200)}.0.{self.rng.randrange(64)}:7100"

    def _known(self) -> Known:
        """What a stranger may have found out."""
        log = self.world.agents[0].node.log
        flows, members = log.flows(), log.members("clicks")
        texts = [*(flow.uid for flow in flows), self.job.uid, self.job.name, "clicks", self.job.leader]
        texts += [text for one in members for text in (one.agent_id, one.name, one.address)]
        return Known(texts, [flow.topic for flow in flows])

    # -- what is done to it ----------------------------------------------------------------------------------

    def send(self, kind: Kind, share: float = 0.0) -> Sent:
        """One frame of this kind to one of the agents; ``share`` of the names in it are real ones."""
        self.frames.maker.share = share
        return self.deliver(self.frames.made(kind))

    def deliver(self, frames: list[bytes]) -> Sent:
        """To any of the agents."""
        return self.deliver_to(self.rng.choice(self.world.agents), frames)

    def deliver_to(self, agent: SimAgent, frames: list[bytes]) -> Sent:
        """As an agent's driver takes frames."""
        try:
            decoded: Decoded[Message] = codec.decode(frames, cluster=CLUSTER, max_bytes=BYTES_MAX)
        except PeerError as refused:
            return Sent(refused=refused.reason if isinstance(refused, FrameRefused) else "other")
        event: NodeEvent = arrived(decoded.sender, decoded.message)
        agent.guard(lambda: agent.handle(event))
        return Sent(message=type(decoded.message).__name__)

    def go_on(self, ms: int) -> None:
        """Let the fleet work for a while."""
        self.world.run(ms)

    # -- what it is like -------------------------------------------------------------------------------------

    def facts(self) -> Facts:
        """Members and jobs as each agent knows them. Strangers may add some: those count that were there."""
        return tuple(_facts(agent.node.log, self.job) for agent in self.world.agents)

    def attacked(self) -> list[Attacked]:
        return [agent for agent in self.world.agents if isinstance(agent, Attacked)]

    def faults(self) -> Counter[str]:
        """Messages that could not be handled, by type and error."""
        told = (fault for agent in self.attacked() for fault in agent.faults)
        return Counter(f"{one.about}: {one.error!r}"[:300] for one in told)

    def skipped(self) -> Counter[str]:
        """What was committed and could not be used, by what it is and why."""
        told = (one for agent in self.attacked() for one in agent.skipped)
        return Counter(f"{one.what}: {one.why}"[:300] for one in told)

    def changed(self) -> list[str]:
        """What is other than it was, as any agent knows it."""
        pairs = zip(self.before, self.facts(), strict=True)
        return [f"{was} is {now}"[:600] for was, now in pairs if was != now]

    def stops(self) -> list[str]:
        """Why agents would have stopped."""
        return [why for agent in self.attacked() for why in agent.stops_wanted]

    def windows_right(self) -> int:
        """How many windows of the job are committed since the beginning; raises ``AssertionError`` for one
        that is wrong though all agents are in it."""
        right, wrong = self.windows()
        assert not wrong, wrong
        return right

    def windows(self) -> tuple[int, list[str]]:
        """(how many windows of the job are committed, those of them that are wrong though all agents are in
        them)"""
        found, wrong = self.world.committed(self.job), []
        for start, (_, counts, status) in found.items():
            if status["reported"] == AGENTS and not status["missing"]:
                truth = self.world.truth(self.job, start)
                if counts != truth:
                    wrong.append(f"the window at {start} is {counts}, not {truth}")
        return len(found), wrong


def _facts(log: CatalogLog, job: JobSpec) -> tuple[str, ...]:
    members = sorted(
        f"{m.number} {m.agent_id} {m.name} {m.address} {m.until_us}" for m in log.members("clicks")
    )
    known = log.job(job.uid)
    if known is None:
        return (*members[:AGENTS], "no job")
    return (*members[:AGENTS], f"{known.uid} at {known.leader}", *(flow.uid for flow in known.flows))
