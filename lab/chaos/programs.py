"""Python jobs on virtual time: each runs in line, in the process of the test; everything else of it is
real."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import msgspec

from agents.codec import pack
from elf.job.program.calls import LASTING, JobEffect, Keep
from elf.job.program.keeping import Lasting
from elf.job.program.messages import SubmitProgram
from elf.job.program.port import (
    CallProgram,
    ProgramActed,
    ProgramEffect,
    ProgramEvent,
    ProgramState,
    StartProgram,
    StopProgram,
)
from elf.job.program.runner import JobRunner, failure_of
from elf.job.program.seats import MASTER, key_of, uid_of
from elf.job.program.spec import ProgramSpec, Tap
from lab.chaos.engine import GONE, STREAM, plan, tapped

if TYPE_CHECKING:
    from lab.chaos.agent import SimAgent
    from lab.chaos.world import World

COUNTS: Final = """
from elf.job import Job

class Counts(Job):
    every = 0.7
    every_pane = 1.0

    def start(self):
        counts = "SELECT key, COUNT(*) AS n FROM clicks GROUP BY key"
        self.subscribe(counts)
        self.subscribe(counts + " WINDOWING 100000 SECONDS SLIDE 2 SECONDS", name="lately")
        self.state.setdefault("panes", [])

    def on_timer(self):
        paos = self.flush()
        self.empty()
        if paos.num_rows:
            self.up(paos)

    def on_recv(self, node, paos):
        self.up(paos)

    def up(self, paos):
        if self.is_root:
            self.state["total"] = self.merge(self.state.get("total"), paos)
        elif self.parent:
            self.send_to(self.parent, paos)
        else:
            self.insert(paos)

    def on_pane(self, start, end):
        self.state["panes"] = [*self.state["panes"], start][-200:]

    def deliver(self, app, message):
        return {row["key"]: row["n"] for row in self.merge(self.state.get("total")).to_pylist()}
"""
"""A job that counts the rows of all agents by key, wherever its master is, and on each agent those of a
window that none leaves."""
LIVES_PANES: Final = 50_000


def no_queries(*_: object) -> tuple[bytes, str]:
    return b"", "there are no queries on virtual time"


class InlineJobs:
    """``later`` posts an event to the agent, after a while."""

    def __init__(self, later: Callable[[ProgramEvent], None]) -> None:
        self._later = later
        self._lasting: dict[str, Lasting] = {}
        self._started: dict[str, StartProgram] = {}
        self.runners: dict[str, JobRunner] = {}
        """By key (``elf.job.program.seats``)."""

    def perform(self, effect: ProgramEffect) -> None:
        match effect:
            case StartProgram():
                self._started[effect.uid] = effect
                self._lasting[effect.uid] = Lasting(effect.state)
                self._start(effect.uid)
                self._later(ProgramState(effect.uid, "running"))
            case StopProgram(uid):
                del self.runners[uid], self._lasting[uid], self._started[uid]
            case CallProgram() if effect.uid in self.runners:
                self._make(effect)

    def end_processes(self) -> None:
        """The processes of all jobs end, and are begun again, as hosts of real agents do it
        (``elf.functions.hosts``)."""
        for uid, lasting in self._lasting.items():
            self._start(uid)
            for call in lasting.again():
                self._make(call)

    def _start(self, uid: str) -> None:
        spec = self._started[uid].spec
        runner = JobRunner(spec.text, spec.filename, spec.name, spec.creator, no_queries, spec.taps)
        runner.start(self._started[uid].place, self._lasting[uid].state)
        self.runners[uid] = runner

    def _make(self, call: CallProgram) -> None:
        runner, lasting = self.runners[call.uid], self._lasting[call.uid]
        effects: list[JobEffect] = []
        lasting.made(call)
        try:
            runner.handle(call.event, call.place, call.payload, effects)
        except Exception as error:
            self._later(ProgramState(call.uid, "failing", failure_of(error, "job.py").text))
        asks = isinstance(call.event, Keep) or any(isinstance(effect, LASTING) for effect in effects)
        state = runner.state() if asks else None
        lasting.acted(state)
        self._later(ProgramActed(call.uid, tuple(effects), number=call.number, state=state))


# -- a job that counts, and what must have come of it --------------------------------------------------------


def counting() -> ProgramSpec:
    """A job of ``COUNTS``, as its creator has sent it."""
    tap = Tap("main", plan().fragment, (("k0", "key"),), (("s0", "n"),))
    lately = msgspec.structs.replace(tap, name="lately", panes=LIVES_PANES)
    text, every_ms, pane_ms = COUNTS, 700, 1_000
    return ProgramSpec(
        "counts",
        "me",
        0,
        text,
        "counts.py",
        "Counts",
        every_ms,
        (tapped(tap), tapped(lately)),
        subscription="w",
        pane_ms=pane_ms,
    )


def submit(world: World, through: SimAgent) -> str:
    """Send it to the fleet, as an agent's client would; its uid."""
    spec = counting()
    request = SubmitProgram(id=1, origin=f"client:{spec.name}", spec=spec)
    node = through.node
    through.perform(node.settle(node.overlay.route(spec.app, pack(request), world.now), world.now))
    return f"{spec.app.hex()}.1"


def master(world: World) -> SimAgent | None:
    """The agent that the master of the job is at."""
    up = (agent for agent in world.agents if agent.up)
    return next((agent for agent in up if any(uid_of(key) != key for key in agent.jobs.runners)), None)


def is_begun(agent: SimAgent, uid: str) -> bool:
    """Whether an agent runs it, and has it in the checkpoint of its stream."""
    return uid in agent.jobs.runners and (STREAM not in agent.streams or uid in agent.tasks[STREAM].tapped)


def wrong(world: World, uid: str) -> Iterator[str]:
    """What its master has counted, and should not have, or has not; what an agent has in its window of its
    own rows; and panes that were told twice, or not in order. What agents read that are gone for good may be
    counted, or not."""
    agents = [agent for agent in world.agents if agent.up and uid in agent.jobs.runners]
    masters = [agent for agent in agents if key_of(uid, MASTER) in agent.jobs.runners]
    if len(masters) != 1:
        yield f"a job in Python has {len(masters)} masters"
        return
    job: Any = masters[0].jobs.runners[key_of(uid, MASTER)].job
    counted: dict[str, int] = job.deliver(b"", None)
    truth, may_be = Counter[str](), Counter[str]()
    for agent in world.agents:
        if STREAM in agent.streams and (agent in agents or agent.ended == GONE):
            rows = agent.logs[STREAM].rows[agent.tapped[STREAM].get(uid, 0) :]
            (may_be if agent.ended == GONE else truth).update(key for _, key in rows)
    for agent in agents:
        own: Any = agent.jobs.runners[uid].job
        if STREAM in agent.streams:
            read = Counter(key for _, key in agent.logs[STREAM].rows[agent.tapped[STREAM].get(uid, 0) :])
            lately = {row["key"]: row["n"] for row in own.flush("lately").to_pylist()}
            if lately != read:
                yield f"the window of a{agent.index} has {lately}, of {dict(read)}"
        panes = own.state["panes"]
        if any(b - a != 1.0 for a, b in pairwise(panes)):
            yield f"panes of a{agent.index} were told as {panes}"
    for key in sorted({*counted, *truth}):
        if not 0 <= counted.get(key, 0) - truth[key] <= may_be[key]:
            yield f"a job in Python has counted {key!r} {counted.get(key, 0)} times, of {truth[key]} rows"
