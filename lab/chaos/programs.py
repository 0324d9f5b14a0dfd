"""Python jobs on virtual time: each runs in line, in the process of the test; everything else of it is
real."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import msgspec
import pyarrow as pa

from agents.codec import pack
from agents.disk.programstore import checkpoints
from elf.aggregates import split_by_range
from elf.fields import replace
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
from elf.job.program.seats import key_of, seat_of, uid_of
from elf.job.program.spec import ProgramSpec, Tap, with_settings
from elf.job.program.values import unpack_value
from lab.chaos.engine import GONE, STREAM, plan, tapped

if TYPE_CHECKING:
    from lab.chaos.agent import SimAgent
    from lab.chaos.world import World

COUNTS: Final = """
from elf.job import Job

class Counts(Job):
    every = 0.7
    every_pane = 1.0
    first = ""

    def start(self):
        counts = "SELECT key, COUNT(*) AS n FROM clicks GROUP BY key"
        self.subscribe(counts, tree=self.first)
        self.subscribe(counts + " WINDOWING 100000 SECONDS SLIDE 2 SECONDS", name="lately")
        self.state.setdefault("panes", [])

    def on_timer(self):
        self.feedback()
        paos = self.flush()
        self.empty()
        if paos.num_rows:
            self.up(paos)

    def feedback(self):
        if self.is_root:
            self.feed_back(self.deliver(b"", None))
        elif "heard" not in self.state:
            self.state["heard"] = {}
            self.ask_for("abc")

    def on_feedback(self, messages):
        self.state["heard"] |= messages

    def on_recv(self, node, paos):
        self.up(paos)

    def up(self, paos):
        if self.is_root:
            self.state["total"] = self.merge(self.state.get("total"), paos)
        else:
            self.send_up(paos)

    def on_pane(self, start, end):
        self.state["panes"] = [*self.state["panes"], start][-200:]

    def deliver(self, app, message):
        return {row["key"]: row["n"] for row in self.merge(self.state.get("total")).to_pylist()}
"""
"""A job that counts the rows of all agents by key, wherever its masters are, and on each agent those of a
window that none leaves. Agents ask for some keys, and masters feed back what they have counted."""
ASKED: Final = "abc"
NAMED: Final = (
    COUNTS
    + """
class Twice(Counts):
    trees = ("one", "two")
    first = "one"

    def start(self):
        super().start()
        self.subscribe("SELECT key, COUNT(*) AS n FROM clicks GROUP BY key", name="two", tree="two")

    def on_timer(self):
        self.feedback()
        for name in () if self.is_root else ("main", "two"):
            self.send_up(self.flush(name), name)
            self.empty(name)

    def up(self, paos):
        if self.is_root:
            super().up(paos)
        else:
            self.send_up(paos, "main" if self.tree == "one" else "two")
"""
)
"""The same, twice: up two trees that have names."""
TWO: Final = ("one", "two")
LIVES_PANES: Final = 50_000


def no_queries(*_: object) -> tuple[bytes, str]:
    return b"", "there are no queries on virtual time"


class InlineJobs:
    """``later`` posts an event to the agent, after a while; ``beside`` makes a call."""

    def __init__(
        self, later: Callable[[ProgramEvent], None], beside: Callable[[Callable[[], None]], None]
    ) -> None:
        self._later = later
        self._beside = beside
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
            case CallProgram():
                self._beside(partial(self._call, effect))

    def _call(self, call: CallProgram) -> None:
        if call.uid in self.runners:
            self._make(call)

    def end_processes(self) -> None:
        """The processes of all jobs end, and are begun again, as hosts of real agents do it
        (``elf.functions.hosts``)."""
        for uid, lasting in self._lasting.items():
            self._start(uid)
            for call in lasting.again():
                self._make(call)

    def _start(self, uid: str) -> None:
        spec = self._started[uid].spec
        trees = len(spec.trees)
        runner = JobRunner(spec.text, spec.filename, spec.name, spec.creator, no_queries, spec.taps, trees)
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


def counting(trees: int = 1) -> ProgramSpec:
    """A job of ``COUNTS``, as its creator has sent it. ``trees``: 0 for two with names."""
    tap = Tap("main", plan().fragment, (("k0", "key"),), (("s0", "n"),))
    lately = msgspec.structs.replace(tap, name="lately", panes=LIVES_PANES)
    two = () if trees else (tapped(msgspec.structs.replace(tap, name="two")),)
    text, every_ms, pane_ms = with_settings(COUNTS, {"trees": trees}) if trees else NAMED, 700, 1_000
    return ProgramSpec(
        "counts",
        "me",
        0,
        text,
        "counts.py",
        "Counts",
        every_ms,
        (tapped(tap), tapped(lately), *two),
        subscription="w",
        pane_ms=pane_ms,
        trees=tuple(map(str, range(trees))) or TWO,
    )


def submit(world: World, through: SimAgent, trees: int = 1) -> str:
    """Send it to the fleet, as an agent's client would; its uid."""
    spec = counting(trees)
    spec = replace(spec, roots=world.nearest(spec.topics[1:]))
    request = SubmitProgram(id=1, origin=f"client:{spec.name}", spec=spec)
    node = through.node
    through.perform(node.settle(node.overlay.route(spec.app, pack(request), world.now), world.now))
    return f"{spec.app.hex()}.1"


def masters(world: World) -> list[SimAgent]:
    """The agents that masters of the job are at."""
    up = (agent for agent in world.agents if agent.up)
    return [agent for agent in up if any(uid_of(key) != key for key in agent.jobs.runners)]


def is_begun(agent: SimAgent, uid: str) -> bool:
    """Whether an agent runs it, and has it in the checkpoint of its stream."""
    return uid in agent.jobs.runners and (STREAM not in agent.streams or uid in agent.tasks[STREAM].tapped)


def wrong(world: World, spec: ProgramSpec) -> Iterator[str]:
    """What its masters have counted, and should not have, or have not; what an agent has in its window of its
    own rows; and panes that were told twice, or not in order. What agents read that are gone for good may be
    counted, or not; so may what others had sent to them and they had not sent on."""
    uid = spec.uid
    agents = [agent for agent in world.agents if agent.up and uid in agent.jobs.runners]
    truth, may_be, taken = Counter[str](), Counter[str](), Counter[str]()
    gone = {agent.address for agent in world.agents if agent.ended == GONE}
    for agent in world.agents:
        if STREAM in agent.streams and (agent in agents or agent.ended == GONE):
            rows = agent.logs[STREAM].rows[agent.tapped[STREAM].get(uid, 0) :]
            (may_be if agent.ended == GONE else truth).update(key for _, key in rows)
        taken += taken_along(agent, uid, gone)
    counts = [counted(agents, uid, tree) for tree in range(len(spec.trees))]
    lacking = [found for found in counts if isinstance(found, str)]
    yield from lacking
    there = [found for found in counts if not isinstance(found, str)]
    merged = [] if lacking else list(together(there, len(spec.trees) if spec.trees != TWO else 0))
    yield from (one for one in merged if isinstance(one, str))
    totals = [one for one in merged if not isinstance(one, str)]
    for one in totals:
        for key in sorted({*one, *truth}):
            if not -taken[key] <= one.get(key, 0) - truth[key] <= may_be[key]:
                yield f"a job in Python has counted {key!r} {one.get(key, 0)} times, of {truth[key]} rows"
    for agent in agents:
        yield from unheard(agent, uid, totals)
        yield from wrong_here(agent, uid)


def taken_along(agent: SimAgent, uid: str, gone: set[str]) -> Counter[str]:
    """The rows in slices that an agent had on its disk and nobody else is known to have, if it is gone for
    good; else in those that wait for one that is: they go elsewhere when somebody takes it off."""
    found = Counter[str]()
    kept = checkpoints(agent.store).get(uid)
    for slice_ in () if kept is None else kept.waiting:
        if agent.address not in gone and slice_.to not in gone:
            continue
        groups: Any = unpack_value(slice_.value)
        found.update({row["key"]: row["n"] for row in groups.to_pylist()})
    return found


def counted(agents: list[SimAgent], uid: str, tree: int) -> dict[str, int] | str:
    """What the master of a tree has counted; or that it is not there once."""
    key = key_of(uid, seat_of(tree))
    found = [agent.jobs.runners[key] for agent in agents if key in agent.jobs.runners]
    if len(found) != 1:
        return f"tree {tree} of a job in Python has {len(found)} masters"
    counts: Any = found[0].job.deliver(b"", None)
    return dict(counts)


def together(counts: list[dict[str, int]], keyed: int) -> Iterator[dict[str, int] | str]:
    """Those of named trees, of which each has all keys; or all of keyed ones, of which each has its own."""
    if not keyed:
        yield from counts
        return
    found: dict[str, int] = {}
    for tree, one in enumerate(counts):
        places = (
            [len(part) for part in split_by_range(pa.table({"key": list(one)}), ["key"], keyed)]
            if one
            else []
        )
        if any(rows and place != tree for place, rows in enumerate(places)):
            yield f"tree {tree} of a job in Python has keys of other trees: {places}"
        found |= one
    yield found


def unheard(agent: SimAgent, uid: str, totals: list[dict[str, int]]) -> Iterator[str]:
    """What masters have fed back last for a key that an agent has asked for is what they have; and nothing
    was fed back to it for others."""
    own: Any = agent.jobs.runners[uid].job
    heard: dict[str, int] | None = own.state.get("heard")
    if heard is None:
        yield f"a{agent.index} has not asked for its keys yet"
        return
    if others := sorted(set(heard) - set(ASKED)):
        yield f"a{agent.index} has heard of {others}, which it has not asked for"
    for key in ASKED if totals else "":
        if heard.get(key) not in (counts := [one.get(key) for one in totals]):
            yield f"a{agent.index} has heard {heard.get(key)} for {key!r}, of {counts}"


def wrong_here(agent: SimAgent, uid: str) -> Iterator[str]:
    """The same of one agent's own part."""
    own: Any = agent.jobs.runners[uid].job
    if STREAM in agent.streams:
        read = Counter(key for _, key in agent.logs[STREAM].rows[agent.tapped[STREAM].get(uid, 0) :])
        lately = {row["key"]: row["n"] for row in own.flush("lately").to_pylist()}
        if lately != read:
            yield f"the window of a{agent.index} has {lately}, of {dict(read)}"
    panes = own.state["panes"]
    if any(b - a != 1.0 for a, b in pairwise(panes)):
        yield f"panes of a{agent.index} were told as {panes}"
