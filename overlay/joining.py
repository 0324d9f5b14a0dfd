"""From start to ready: a table of states, and the join itself.

A joiner asks a contact, whose request is routed to the node closest to the joiner; that node answers with its
leaf set. The joiner then asks every leaf for its own leaf set, and any nearer nodes that those name, until
nothing new comes: then all its leaves have acknowledged it, and it is ready. Each step reacts to the one
before, so a join lasts about log16 N + 4 message delays; timers only repair losses.

A contact that is not ready itself holds the request until it is. So one node has to be started without
contacts: two nodes that know only each other give up in the end.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Final

from overlay.context import Context
from overlay.effects import JoinFailed, Ready
from overlay.errors import OverlayError
from overlay.messages import JoinReply, JoinRequest
from overlay.pastry import Pastry

_BACKOFF_MAX_MS: Final = 8_000


class State(Enum):
    """Where in its life a node is."""

    IDLE = "not started"
    JOINING = "looking for its place"
    READY = "answers for its keys"
    FAILED = "found no ring"
    LEFT = "has gone on purpose"


class Step(Enum):
    """What moves a node from one state to the next."""

    FOUND = "start without contacts"
    SEEK = "start with contacts"
    ACKNOWLEDGE = "all leaves have answered"
    GIVE_UP = "join_timeout_ms is over"
    LEAVE = "leave"


TRANSITIONS: Final[dict[tuple[State, Step], State]] = {
    (State.IDLE, Step.FOUND): State.READY,
    (State.IDLE, Step.SEEK): State.JOINING,
    (State.JOINING, Step.ACKNOWLEDGE): State.READY,
    (State.JOINING, Step.GIVE_UP): State.FAILED,
    (State.FAILED, Step.FOUND): State.READY,
    (State.FAILED, Step.SEEK): State.JOINING,
    (State.IDLE, Step.LEAVE): State.LEFT,
    (State.JOINING, Step.LEAVE): State.LEFT,
    (State.FAILED, Step.LEAVE): State.LEFT,
    (State.READY, Step.LEAVE): State.LEFT,
}


class Joining:
    """The life of one node, and its timers ``join`` and ``give-up``."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self.state = State.IDLE
        self.contacts: tuple[str, ...] = ()
        self._asked = 0
        self._first = 0
        self._answered = False

    def step(self, step: Step) -> None:
        """Move on. Raises OverlayError for a step that this state does not allow."""
        following = TRANSITIONS.get((self.state, step))
        if following is None:
            raise OverlayError(f"{self._context.me.address} is {self.state.name}, it cannot {step.value}")
        self.state = following

    def start(self, contacts: Sequence[str]) -> None:
        """Join through the first contact that answers, beginning after those that did not the last time; our
        own address does not count. Without a contact form a ring alone."""
        others = tuple(dict.fromkeys(c for c in contacts if c != self._context.me.address))
        self._answered = False
        self._first, self._asked = self._first + self._asked, 0
        self.contacts = others or self.contacts  # a node alone goes on calling contacts that did not answer
        if not others:
            self.step(Step.FOUND)
            self._context.emit(Ready())
            return
        self.step(Step.SEEK)
        self._context.timers.set(("give-up", 0), self._context.now + self._context.config.join_timeout_ms)
        self._ask()

    def reply(self, message: JoinReply, pastry: Pastry) -> None:
        """Our place is found: ask the nodes around it."""
        self._answered = True
        pastry.learn(message.leaves)
        pastry.learn(message.peers, rows_only=True)

    def settle(self, pastry: Pastry) -> bool:
        """Become ready if all nodes that were asked have answered; True at that moment."""
        if self.state is not State.JOINING or not self._answered:
            return False
        if not len(pastry.leaves) or not pastry.liveness.settled:
            return False
        self.step(Step.ACKNOWLEDGE)
        self._context.timers.cancel(("join", 0))
        self._context.timers.cancel(("give-up", 0))
        self._context.emit(Ready())
        return True

    def retry_due(self, pastry: Pastry) -> None:
        """No answer from the contact: ask the next one, unless leaves are being asked already."""
        if self._answered and not pastry.liveness.settled:
            self._again()
            return
        self._ask()

    def give_up_due(self) -> None:
        """The join takes too long."""
        self.step(Step.GIVE_UP)
        reason = "its ring does not let us settle" if self._answered else "no contact answers"
        self._context.timers.clear()
        self._context.emit(JoinFailed(self.contacts, reason))

    def _ask(self) -> None:
        me = self._context.me
        contact = self.contacts[(self._first + self._asked) % len(self.contacts)]
        self._asked += 1
        self._context.send_to(contact, JoinRequest(me, 0, me, 0, ()))
        self._again()

    def _again(self) -> None:
        wait_ms = min(self._context.config.join_retry_ms << (self._asked - 1), _BACKOFF_MAX_MS)
        self._context.timers.set(("join", 0), self._context.every(wait_ms))
