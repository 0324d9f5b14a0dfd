"""A timed fleet with people: what they ask of it, and when it has done what."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from typing import Final

from elf.batch import decode
from elf.errors import ElfError
from elf.job.spec import stream_topic
from elf.wire.clients import Call, Execute, Failed, KeepAlive, Published, Reply
from lab.bench.control_fleet import FIRST_US, SECOND_US, STREAM, line_of
from lab.bench.simulated.costs import Costs
from lab.bench.simulated.world import Said, TimedWorld

PERSON: Final = "client:person"
REST_MS: Final = 5_000
"""From the last agent that is ready: the ring has measured, and compared its tables."""
WARM_MS: Final = 1_000
"""With charges, before anything is measured."""
KEEP_MS: Final = 2_000
WAIT_MS: Final = 60_000


class SimFleet:
    """``nodes`` agents that have come together and read a line each. ``began`` tells how it goes."""

    def __init__(self, nodes: int, seed: int, costs: Costs, link_ms: float) -> None:
        self.world = TimedWorld(seed, nodes, costs, link_ms)
        self.nodes = nodes
        self.next_us = FIRST_US + SECOND_US
        """The next window that nobody has read a line of."""
        self._requests = count(1)
        self._found: dict[tuple[str, str], dict[int, Said]] = {}
        self._ready_ms = 0.0

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """The fleet comes together, and is charged from then on."""
        world = self.world
        world.start_all()
        world.run(REST_MS)
        for agent in world.agents:
            self.write(agent.index, FIRST_US, 1, 0)
        self._ready_ms = world.exact
        with world.charged(), contextlib.redirect_stdout(_Printed(world)):
            world.run(WARM_MS)
            yield

    def write(self, number: int, first_us: int, lines: int, in_ms: float) -> None:
        """An agent reads so many lines after a while."""
        agent = self.world.agents[number]
        rows = [line_of(first_us + 1_000 * row, number + row).decode().strip() for row in range(lines)]
        self.world.after(in_ms, agent, partial(agent.tasks[STREAM].feed, rows))

    @property
    def charged_ms(self) -> float:
        """Virtual time since the fleet was ready."""
        return self.world.exact - self._ready_ms

    def busy(self) -> float:
        """The share of it in which a core had something to do, over all."""
        return sum(core.cpu_ms for core in self.world.cores) / self.nodes / self.charged_ms

    def depths(self) -> list[int]:
        """Of each agent in the stream's tree."""
        overlays = {agent.address: agent.node.overlay for agent in self.world.agents}
        topic = stream_topic(STREAM)
        found = []
        for address in overlays:
            depth, at = 0, overlays[address].parent(topic)
            while at is not None and depth < self.nodes:
                depth, at = depth + 1, overlays[at].parent(topic)
            found.append(depth)
        return found

    # -- people ----------------------------------------------------------------------------------------------

    def sql(self, text: str, through: int = -1) -> float:
        """What a statement takes from its sending to the answer, in ms."""
        return self._asked(partial(Execute, sql=text, creator="me"), through)[0]

    def call(self, verb: str, argument: str, through: int = -1) -> float:
        """The same of a call."""
        return self._asked(partial(Call, verb=verb, argument=argument, creator="me"), through)[0]

    def _asked(self, make: Callable[..., Execute | Call], through: int) -> tuple[float, Reply]:
        world, number, began = self.world, next(self._requests), self.world.exact
        world.from_client(world.agents[through], PERSON, make(request=number))
        while True:
            world.run(1)
            for at, client, said in world.heard:
                if client == PERSON and getattr(said, "request", 0) == number:
                    if isinstance(said, Failed):
                        raise ElfError(said.text)
                    if isinstance(said, Reply) and said.done:
                        return at - began, said
            if world.exact - began > WAIT_MS:
                raise ElfError(f"no answer after {WAIT_MS / 1000:g} s of virtual time")

    def subscribe(self, job: str, through: int = -1) -> str:
        """A reader of a job's windows: the client's name."""
        client, number, agent = f"client:{job}", next(self._requests), self.world.agents[through]
        world = self.world
        world.from_client(agent, client, Execute(request=number, sql=f"SUBSCRIBE {job}", creator="me"))

        def keep() -> None:
            world.from_client(agent, client, KeepAlive(request=number))
            world.at(world.exact + KEEP_MS, keep)

        world.at(world.exact + KEEP_MS, keep)
        return client

    def flows(self, job: str) -> list[str]:
        """Those that a job reads."""
        spec = self.world.agents[-1].node.log.find_job(job, "me")
        return [flow.uid for flow in spec.flows] if spec is not None else []

    def results(self, client: str) -> dict[int, float]:
        """When each window of a reader's came, by the last window's end in µs."""
        found: dict[int, float] = {}
        for at, who, said in self.world.heard:
            if who == client and isinstance(said, Published):
                found.setdefault(said.result.last_us, at)
        return found

    def rows(self, client: str, end_us: int) -> list[dict[str, object]]:
        """The rows of the windows that end there."""
        found = (said for _, who, said in self.world.heard if who == client)
        results = (said.result for said in found if isinstance(said, Published))
        return next(decode(one.payload).to_pylist() for one in results if one.last_us == end_us)

    # -- agents ----------------------------------------------------------------------------------------------

    def said(self, what: str, about: str = "") -> dict[int, Said]:
        """By agent: the first time since ``forget`` that it has done this (about anything, without more)."""
        for one in self.world.said:
            for key in ((one.what, one.about), (one.what, "")):
                self._found.setdefault(key, {}).setdefault(one.agent, one)
        self.world.said.clear()
        return self._found.get((what, about), {})

    def all_said(self, what: str, about: str = "", but: int = 0) -> list[Said]:
        """Wait until all agents but so many have."""
        wanted = self.nodes - but
        self.world.run_until(lambda: len(self.said(what, about)) >= wanted, WAIT_MS)
        return list(self.said(what, about).values())

    def forget(self) -> None:
        """What was done so far is not wanted any more."""
        self.world.said.clear()
        self.world.heard.clear()
        self._found.clear()

    def pause(self) -> None:
        """A while that is no period of anything."""
        self.world.run(100 + 200 * self.world.rng.random())


class _Printed(io.TextIOBase):
    """What jobs in Python print is said by their agents."""

    def __init__(self, world: TimedWorld) -> None:
        self._world = world
        self._line = ""

    def write(self, text: str) -> int:
        *lines, self._line = (self._line + text).split("\n")
        if self._world.stepping is not None:
            for line in lines:
                self._world.stepping.tell("printed", line)
        return len(text)
