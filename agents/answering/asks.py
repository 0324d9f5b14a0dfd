"""How procedures ask: what they yield, and what they come to.

A procedure is a generator: it yields a list of questions and is sent the ``Answer``s; it returns a ``Reply``,
or the ``Reading`` of a job's windows. So what needs five nodes reads as one page from top to bottom, and is
still pure: no thread, no clock; silence comes back as an answer whose ``error`` says so.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, TypeVar

from elf.job import effects as do
from elf.job.effects import Effect, PastAnswer, PastQuestion, TableQuestion
from elf.job.spec import JobSpec
from elf.planning.costs import JobCosts
from elf.ql.own import OwnAggregate
from elf.wire.base import Answer, Message, Request
from elf.wire.clients import Reply

T = TypeVar("T")
ANSWER_MS = 8_000
"""How long a node may take to answer."""
OFFLOAD_MS = 5_000
"""How long texts may be read, and plans made, at a time; none takes more than a part of a second here."""
ROUTES_MS = 30_000
"""The same of a plan of routes: what it needs may have to be loaded first."""
ATTEMPT_MS = 20_000
"""The same of the laws of an aggregate."""
EVALUATE_MS = 45_000
"""The same of a SELECT over past windows; a client waits for a minute."""
SILENT = "no answer in time"
"""The error of an answer that did not come."""


@dataclass(frozen=True)
class ToAddress:
    """Ask a node, by address. ``within_ms``: how long its answer is waited for; of several that are asked
    together the longest counts."""

    to: str
    request: Request
    within_ms: int = ANSWER_MS


@dataclass(frozen=True)
class ToKey:
    """Ask the node nearest to a key."""

    key: bytes
    request: Request
    within_ms: int = ANSWER_MS


@dataclass(frozen=True)
class Until:
    """Asked alone: wait until our own copy of the catalog log has come so far. Who was told that something is
    done sees it done when they ask next, here. Comes back without answers, then or after a while."""

    seen: Callable[[], bool]


class Offload:
    """Asked alone: ``work`` is done beside the loop, since it may take a while: reading a text, or planning.
    It is a function of values, and touches nothing of the node's. Comes back without answers."""

    def __init__(self, work: Callable[[], object]) -> None:
        self.work = work
        self.value: Any = None
        self.error: Exception | None = None
        """What it came to: one of both."""

    within_ms = OFFLOAD_MS
    overdue = (
        f"the statement is not planned within {OFFLOAD_MS // 1_000} s: this agent has too much to do; "
        "try again in a moment, or with fewer expressions"
    )

    def effect(self, id_: int) -> Effect:
        """What does it."""
        return do.Offload(id_, self.work)


class Evaluate(Offload):
    """Asked alone, likewise: what a SELECT over past windows comes to."""

    within_ms = EVALUATE_MS
    overdue = (
        f"the SELECT over past windows takes more than {EVALUATE_MS // 1_000} s: choose a shorter time with "
        "SINCE and UNTIL, or elf offline export writes the windows to a file"
    )

    def __init__(self, question: PastQuestion | TableQuestion) -> None:
        super().__init__(lambda: None)
        self._question = question

    def effect(self, id_: int) -> Effect:
        return do.EvaluatePast(id_, self._question)


class Attempt(Offload):
    """Asked alone, likewise: whether the laws hold for an aggregate."""

    within_ms = ATTEMPT_MS
    overdue = (
        f"the laws are not tried within {ATTEMPT_MS // 1_000} s: this agent has too much to do; try again"
    )

    def __init__(self, own: OwnAggregate, rows: bytes) -> None:
        super().__init__(lambda: None)
        self._own, self._rows = own, rows

    def effect(self, id_: int) -> Effect:
        return do.TryAggregate(id_, self._own, self._rows)


class PlanRoutes(Offload):
    """Asked alone, likewise: a plan of routes."""

    within_ms = ROUTES_MS
    overdue = (
        f"routes are not planned within {ROUTES_MS // 1_000} s: this agent has too much to do; try again"
    )


@dataclass(frozen=True)
class Tell:
    """Asked alone: the client gets a part of the reply. Comes back at once, without answers."""

    reply: Reply


@dataclass(frozen=True)
class Say:
    """Asked alone: these are sent, each to an address (empty: to this agent itself), and nothing answers.
    Comes back at once."""

    words: tuple[tuple[str, Message], ...]


@dataclass(frozen=True)
class Save:
    """Asked alone: what was learned of a job is to be kept. Comes back at once, without answers."""

    costs: JobCosts

    def effect(self) -> Effect:
        """What keeps it."""
        return do.SaveCosts(self.costs)


@dataclass(frozen=True)
class Reading:
    """The client reads the windows of a job from now on, or all after the result of number ``after``.
    ``drops``: the job is its own one-shot SELECT. ``then``: it wants none of them, but what this procedure
    comes to after ``windows`` of them.
    """

    spec: JobSpec
    drops: bool
    then: Procedure | None = None
    windows: int | None = None
    after: int | None = None


Ask = ToAddress | ToKey | Until | Offload | Tell | Say | Save
Procedure = Generator[list[Ask], list[Answer], Reply | Reading]


def offload(work: Callable[[], T]) -> Generator[list[Ask], list[Answer], T]:
    """What the work comes to, beside the loop (``Offload``). Raises what it raises, and ``UserError`` if it
    takes too long."""
    asked = Offload(work)
    yield [asked]
    value: T = _come_to(asked)
    return value


def plan_routes(work: Callable[[], T]) -> Generator[list[Ask], list[Answer], T]:
    """The same of a plan of routes."""
    asked = PlanRoutes(work)
    yield [asked]
    value: T = _come_to(asked)
    return value


def evaluate(question: PastQuestion | TableQuestion) -> Generator[list[Ask], list[Answer], PastAnswer]:
    """What a SELECT over past windows comes to. Raises ``UserError``."""
    asked = Evaluate(question)
    yield [asked]
    value: PastAnswer = _come_to(asked)
    return value


def attempt(own: OwnAggregate, rows: bytes) -> Generator[list[Ask], list[Answer], str]:
    """The law that is broken, of drawn rows and of these; empty: none. Raises ``UserError`` where it cannot
    be run."""
    asked = Attempt(own, rows)
    yield [asked]
    return str(_come_to(asked))


def _come_to(asked: Offload) -> Any:
    if asked.error is not None:
        raise asked.error
    return asked.value
