"""What performs a node's effects needs from outside (``agents.loop``), as protocols.

A real agent has an asyncio loop, threads, sockets and files (``agents.realtime``, ``agents.driver``); a
simulated one has virtual time (``lab.chaos.ports``). The store is no port: all have the same one, over SQLite
in a file or in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Literal, Protocol, TypeVar

from agents.codec import Message
from elf.job import effects as do
from elf.job.commands import Command
from elf.job.commits import WindowCommit
from elf.job.events import Delivered
from elf.job.program.port import ProgramEffect
from elf.job.stamps import StampStatus
from elf.security.certificates import Signed
from elf.wire.clients import Stats

T = TypeVar("T")

Told = (
    do.Noticed
    | do.Namesake
    | do.Seen
    | do.Skewed
    | do.Judged
    | do.Unusable
    | do.Faulted
    | do.Skipped
    | do.Undone
    | do.Audited
    | do.Refused
    | do.Disbelieved
)
"""Effects that are for people."""

Queue = Literal[
    "plan",
    "compute",
    "functions",
    "commit",
    "persist",
    "groups",
    "replicas",
    "programs",
    "outputs",
    "past",
    "tables",
    "aside",
]
"""Where work is done:

- ``plan``: texts of people are read and planned, one after the other; nothing else is touched.
- ``compute``: several at a time, in any order; the store is only read.
- ``functions``: a user's function is called, which may take its time.
- ``commit``: several at a time; something is durable in the store before it is told.
- ``persist``: logs of Raft groups, in order; durable before it is told.
- ``groups``: what groups have committed, in one order with ``persist``; it need not be durable.
- ``replicas``: other agents' snapshots, in order.
- ``programs``: checkpoints of jobs in Python, in order; durable before it is told.
- ``outputs``: results are brought out of the fleet, several at a time; the store is only read.
- ``tables``: rows of tables are looked up for people, one question after the other, where that takes longer
  than to hand it over; the store is only read.
- ``aside``: the store is tidied up, and nobody waits for that.
"""


class Receiver(Protocol):
    """Of what comes over the network for a stream: ``serve`` until it is cancelled. Raises ``ElfError`` where
    it cannot begin."""

    async def serve(self) -> None: ...


class WhenDone(Protocol):
    """Has ``then`` called on the loop with what the future comes to."""

    def __call__(self, future: Future[T], then: Callable[[T], None], /) -> None: ...


class Clock(Protocol):
    """The node's time. What is called later is not called once the agent has stopped."""

    def now_ms(self) -> int:
        """What the wall clock shows."""

    def soon(self, action: Callable[[], None]) -> None:
        """Call it when the loop has taken what has come so far."""

    def after(self, ms: int, action: Callable[[], None]) -> None:
        """Call it after so long."""

    def wake(self, at_ms: int, tick: Callable[[], None]) -> None:
        """Call ``tick`` once, when ``now_ms`` has come to ``at_ms``, or sooner where that was asked for
        before."""


class Work(Protocol):
    """Whatever may take a while."""

    def submit(self, queue: Queue, work: Callable[[], T], then: Callable[[T], None]) -> None:
        """Do it beside the loop; then, on the loop, ``then`` gets what it has come to."""


class Links(Protocol):
    """Messages to other agents and to clients; they may get lost."""

    def send(self, to: str, message: Message) -> None: ...

    def known(self, signed: Signed) -> None:
        """A certificate or a revocation holds: who may connect may be others now."""


class Tasks(Protocol):
    """The stream tasks of the agent's streams; what comes of these is told as events, in the order of each
    stream task."""

    def perform(self, stream: str, command: Command) -> None: ...
    def pace(self, effect: do.Paced) -> None: ...
    def consult(self, effect: do.Consult) -> None: ...
    def run(self, effect: do.Run) -> None: ...
    def help(self, effect: do.Help) -> None: ...


class Programs(Protocol):
    """The jobs in Python that run on the agent."""

    def perform(self, effect: ProgramEffect) -> None: ...


class Results(Protocol):
    """The committed windows of jobs, in the store."""

    def some_windows_after(self, job: str, seq: int, most: int, bytes_max: int) -> list[WindowCommit]: ...


class Outputs(Protocol):
    """What brings results out of the fleet."""

    def deliver(self, effect: do.Deliver, results: Results) -> Delivered:
        """On a thread: as many as go now. Whatever is wrong is in the answer."""


class Process(Protocol):
    """The process in which the node lives."""

    def goes_on(self, effect: object) -> bool:
        """Whether it is still there to perform this effect."""

    def settled(self) -> None:
        """All effects of an event are performed."""

    def end(self, effect: do.Stop) -> None:
        """The node must stop."""

    def stats(self) -> Stats:
        """How the process is."""


class Reports(Protocol):
    """What people hear; some of it comes from other threads."""

    def told(self, effect: Told) -> None: ...
    def panes_committed(self) -> None: ...
    def windows_committed(self) -> None: ...
    def delivered(self, event: Delivered) -> None: ...

    def function_failed(
        self, kind: Literal["reduce", "final", "aggregate", "stage"], reason: str, job: str = ""
    ) -> None:
        """A user's function, or a stage, of a flow, or of a job."""

    def not_made(
        self, job: str, error: Exception, *, early: bool = False, within: tuple[int, int] | None = None
    ) -> None:
        """Windows of a job could not be made: those that end ``within`` a span of event time (µs), if it is
        known; ``early``: before they are complete."""


class Observer(Protocol):
    """Of panes on their way (``agents.traces``)."""

    def __call__(self, what: object) -> None:
        """Each event before the node gets it, and each effect before it is performed."""

    def stamped(self, flows: Sequence[str], jobs: Sequence[str]) -> StampStatus:
        """The stamps of these."""


@dataclass(frozen=True)
class Ports:
    """All of them."""

    clock: Clock
    work: Work
    links: Links
    tasks: Tasks
    programs: Programs
    outputs: Outputs
    process: Process
    reports: Reports
    seen: Observer
