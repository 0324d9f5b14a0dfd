"""The states of one attempt at a task (Figure 6.18: YARN's, with Suspend-Pending and Suspended).

A suspended attempt has ended: its task makes a new one, which begins with the checkpoint. An attempt that
finishes before it comes to its safe point was asked to suspend for nothing, and its work counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from elf.errors import ElfBug


class State(StrEnum):
    """Of an attempt. The last four are terminal.

    Example:
        >>> State.RUNNING in TERMINAL
        False
    """

    NEW = "new"
    UNASSIGNED = "unassigned"
    ASSIGNED = "assigned"
    RUNNING = "running"
    SUSPEND_PENDING = "suspend-pending"
    SUSPENDED = "suspended"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    KILLED = "killed"


class Event(StrEnum):
    """What happens to an attempt.

    Example:
        >>> TRANSITIONS[State.RUNNING, Event.SUSPEND]
        <State.SUSPEND_PENDING: 'suspend-pending'>
    """

    REQUEST = "request"
    GRANT = "grant"
    LAUNCH = "launch"
    SUSPEND = "suspend"
    CHECKPOINT = "checkpoint"
    FINISH = "finish"
    FAIL = "fail"
    KILL = "kill"


TERMINAL: Final = frozenset({State.SUSPENDED, State.SUCCEEDED, State.FAILED, State.KILLED})

TRANSITIONS: Final[Mapping[tuple[State, Event], State]] = {
    (State.NEW, Event.REQUEST): State.UNASSIGNED,
    (State.UNASSIGNED, Event.GRANT): State.ASSIGNED,
    (State.ASSIGNED, Event.LAUNCH): State.RUNNING,
    (State.RUNNING, Event.SUSPEND): State.SUSPEND_PENDING,  # S1
    (State.SUSPEND_PENDING, Event.CHECKPOINT): State.SUSPENDED,  # S2
    (State.RUNNING, Event.FINISH): State.SUCCEEDED,
    (State.SUSPEND_PENDING, Event.FINISH): State.SUCCEEDED,
    **{
        (state, event): ended
        for state in (State.ASSIGNED, State.RUNNING, State.SUSPEND_PENDING)
        for event, ended in ((Event.FAIL, State.FAILED), (Event.KILL, State.KILLED))
    },
}
"""All else is a bug."""


@dataclass(frozen=True)
class Checkpoint:
    """What a suspended attempt leaves to the next one.

    Attributes:
        attempts (tuple[str, ...]): the attempts that have written partial outputs, in order; the commit
            merges these outputs in this order.
        counter (int): how many of the inputs are done (the paper's key counter).
        inputs (tuple[str, ...]): all inputs of the task, in order.
        host (str): where the last attempt ran, preferred for the next.

    Example:
        >>> Checkpoint(("t1.0",), 2, ("a", "b", "c"), "web-1").left
        ('c',)
    """

    attempts: tuple[str, ...] = ()
    counter: int = 0
    inputs: tuple[str, ...] = ()
    host: str = ""

    @property
    def left(self) -> tuple[str, ...]:
        """The inputs that are still to be read."""
        return self.inputs[self.counter :]


@dataclass
class Attempt:
    """One attempt.

    Attributes:
        name (str): unique in the queue: its task's, a dot, a number.
        task (str): what it tries.
        checkpoint (Checkpoint): where it begins.
        state (State): where it is.
        container (str): which it was granted; empty before that.
        host (str): the container's.

    Example:
        >>> attempt = Attempt("t1.0", "t1", Checkpoint())
        >>> attempt.do(Event.REQUEST)
        >>> attempt.state
        <State.UNASSIGNED: 'unassigned'>
    """

    name: str
    task: str
    checkpoint: Checkpoint
    state: State = State.NEW
    container: str = ""
    host: str = ""
    past: list[Event] = field(default_factory=list)

    def do(self, event: Event) -> None:
        """Go to the next state. Raises ``ElfBug`` for an event that cannot happen now."""
        after = TRANSITIONS.get((self.state, event))
        if after is None:
            raise ElfBug(f"attempt {self.name}: {event} in {self.state}, after {', '.join(self.past)}")
        self.past.append(event)
        self.state = after
