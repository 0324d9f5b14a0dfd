"""Virtual time for agents that are servers of one core each; see the package's docstring."""

from __future__ import annotations

import gc
import heapq
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from agents import codec
from agents.codec import Message
from agents.driver import MESSAGE_BYTES_MAX
from agents.loop import arrived
from elf.errors import ElfError
from elf.job.worker.stream import WorkerSettings
from elf.wire import base
from lab.bench.simulated.agent import TimedAgent
from lab.bench.simulated.costs import Costs
from lab.bench.simulated.engine import Prepared
from lab.bench.simulated.task import TimedTask
from lab.chaos.agent import SimAgent
from lab.chaos.world import World

CLUSTER: Final = "sim"
HOUR_MS: Final = 3_600_000
MIB: Final = 1 << 20


@dataclass(frozen=True)
class Said:
    """Something that an agent has done: which, in a step from when to when (ms), what and about what."""

    agent: int
    began: float
    ended: float
    what: str
    about: str


@dataclass
class Core:
    """What waits for an agent's one core, of its loop and of its other threads, and what it has done. Where
    both have something to do they take turns, as an operating system lets threads do."""

    loop: deque[Callable[[], None]] = field(default_factory=deque)
    threads: deque[Callable[[], None]] = field(default_factory=deque)
    busy: bool = False
    loops_turn: bool = False
    steps: int = 0
    cpu_ms: float = 0.0

    def take(self) -> Callable[[], None] | None:
        """The next step."""
        if self.loop and self.threads:
            self.loops_turn = not self.loops_turn
        queue = self.loop if self.loop and (self.loops_turn or not self.threads) else self.threads
        return queue.popleft() if queue else None


class TimedWorld(World):
    """``now`` is in whole milliseconds, as agents' clocks are; ``exact`` is the time itself. While it is not
    ``charging``, steps take no time and messages are handed over as they are.
    """

    agent_type = TimedAgent
    agents: list[TimedAgent]  # type: ignore[assignment]

    def __init__(self, seed: int, agents: int, costs: Costs, link_ms: float) -> None:
        self.costs = costs
        self.link_ms = link_ms
        self.charging = False
        self.exact = 0.0
        self.prepared = Prepared(self.charge)
        self.cores = [Core() for _ in range(agents)]
        self.said: list[Said] = []
        """What agents have done since it was last emptied, in the order of the beginnings."""
        self.heard: list[tuple[float, str, base.Message]] = []
        """What clients have got: when, which, what; likewise."""
        self.messages = 0
        """What agents have sent each other while it is charging; ``sent_bytes`` of it, all frames."""
        self.sent_bytes = 0
        self.stepping: TimedAgent | None = None
        self._held: list[tuple[float, Callable[[], None]]] = []
        self._extra_ms = 0.0
        self._same: object = None
        self._frames: list[bytes] = []
        super().__init__(seed, agents, checking=False)
        self.exact = float(self.now)
        self.task = TimedTask
        self.worker_settings = WorkerSettings(idle_ms=HOUR_MS, future_us=None)

    # -- time ------------------------------------------------------------------------------------------------

    def at(self, when: float, action: Callable[[], None]) -> None:
        """What a step wants to happen happens so much later as it takes."""
        if self.stepping is None:
            super().at(when, action)
        else:
            self._held.append((when, action))

    def after(self, delay: float, agent: SimAgent, action: Callable[[], None]) -> None:
        life = agent.life
        self.at(self.exact + delay, lambda: self._offer(agent, life, action))

    def later(self, agent: SimAgent, action: Callable[[], None]) -> None:
        """On another thread of the agent, which is on the same core."""
        self.charge(self.costs.hop_ms)
        life = agent.life
        self.at(self.exact, lambda: self._offer(agent, life, action, thread=True))

    def run(self, ms: float) -> None:
        end = self.exact + ms
        while self._heap and self._heap[0][0] <= end:
            self.exact, _, action = heapq.heappop(self._heap)
            self.now = int(self.exact)
            action()
        self.exact, self.now = end, int(end)

    def run_until(self, condition: Callable[[], bool], limit_ms: int = 60_000) -> None:
        end = self.exact + limit_ms
        while not condition():
            if self.exact >= end:
                raise ElfError(f"the fleet has not done what was asked of it within {limit_ms / 1000:g} s")
            self.run(1)

    # -- the cores -------------------------------------------------------------------------------------------

    def _offer(self, agent: SimAgent, life: int, action: Callable[[], None], *, thread: bool = False) -> None:
        """A step of an agent, of its loop or another ``thread``, when it has its turn on the core."""
        core = self.cores[agent.index]
        queue = core.threads if thread else core.loop
        queue.append(lambda: self._step(agent, action) if agent.up and agent.life == life else None)
        if not core.busy:
            core.busy = True
            self._go_on(core)

    def _go_on(self, core: Core) -> None:
        before = core.cpu_ms
        while (step := core.take()) is not None:
            step()
            if core.cpu_ms > before:
                self.at(self.exact + core.cpu_ms - before, partial(self._go_on, core))
                return
        core.busy = False

    def _step(self, agent: SimAgent, action: Callable[[], None]) -> None:
        if not isinstance(agent, TimedAgent):
            raise TypeError(agent)
        self.stepping, self._held, self._extra_ms = agent, [], 0.0
        began = time.thread_time_ns()
        agent.guard(action)
        took = (time.thread_time_ns() - began) / 1e6 + self._extra_ms
        self.stepping = self._same = None
        took += agent.store.waited() * self.costs.sync_ms  # what the loop itself has waited for
        if not self.charging:
            took = 0.0
        core = self.cores[agent.index]
        core.steps += 1
        core.cpu_ms += took
        for what, about in agent.said():
            self.said.append(Said(agent.index, self.exact, self.exact + took, what, about))
        for when, then in self._held:
            self.at(when + took, then)

    def charge(self, ms: float) -> None:
        """The step that is under way takes so much more."""
        self._extra_ms += ms

    @contextmanager
    def charged(self) -> Iterator[None]:
        """From now on everything takes its time. Python's collector would be charged to whoever wakes it."""
        gc.collect()
        gc.freeze()
        gc.disable()
        self.charging = True
        try:
            yield
        finally:
            self.charging = False
            gc.enable()
            gc.unfreeze()

    # -- messages --------------------------------------------------------------------------------------------

    def send(self, agent: SimAgent, to: str, message: Message) -> None:
        when = self.exact + self.link_ms
        if to.startswith("client"):
            self.charge(self.costs.send_ms)
            self.at(when, lambda: self.heard.append((self.exact, to, message)))  # type: ignore[arg-type]
        elif not self.charging:
            self.at(when, partial(self._give, to, agent.address, message))
        else:
            if message is not self._same:  # a multicast goes to many children: encoded once
                self._same = message
                self._frames = codec.encode(message, cluster=CLUSTER, sender=agent.address)
            self.messages += 1
            self.sent_bytes += sum(map(len, self._frames))
            self.charge(self.costs.send_ms + self._bytes_ms(self._frames))
            self.at(when, partial(self._come, to, self._frames))

    def _bytes_ms(self, frames: Sequence[bytes]) -> float:
        return self.costs.mib_ms * sum(map(len, frames)) / MIB

    def _give(self, to: str, sender: str, message: Message) -> None:
        agent = self.by_address.get(to)
        if agent is not None and agent.up:
            self._offer(agent, agent.life, lambda: agent.handle(arrived(sender, message)))

    def _come(self, to: str, frames: list[bytes]) -> None:
        agent = self.by_address.get(to)
        if agent is not None and agent.up:
            self._offer(agent, agent.life, lambda: self._take(agent, frames))

    def _take(self, agent: SimAgent, frames: list[bytes]) -> None:
        self.charge(self.costs.receive_ms + self._bytes_ms(frames))
        decoded = codec.decode(frames, cluster=CLUSTER, max_bytes=MESSAGE_BYTES_MAX)
        agent.handle(arrived(decoded.sender, decoded.message))

    def from_client(self, agent: SimAgent, client: str, message: base.Message) -> None:
        """A client's message, which it sends now."""
        frames = codec.encode(message, cluster=CLUSTER, sender=client)
        self.at(self.exact + self.link_ms, partial(self._come, agent.address, frames))

    def check_log(self, agent: SimAgent) -> None:
        """Nothing: it would be charged."""
