"""What happens to a job written in Python, and what it wants done: the values between an agent and the
process in which the job runs.

Messages of jobs are opaque bytes here (``elf.job.program.values``). An application is named by its app id, 16
bytes; for people, and in the path of a query, as ``creator/name``.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated

import msgspec

from elf.fields import Label, Millis, Name, Statement
from elf.job.program.keyed import HASH_BYTES, KEYS_MAX, PIECES_MAX
from elf.job.program.seats import TREES_MAX, Tree

VALUE_BYTES_MAX = 4 << 20
"""The largest message of a job, encoded."""
MULTICAST_BYTES_MAX = 16 << 20
"""The largest message to all agents, encoded."""
CALLBACK_BYTES_MAX = 32 << 20
CALLBACK_SENDS_MAX = 10_000
"""How many messages one callback may send."""
STATE_BYTES_MAX = 16 << 20
"""The largest state of a job on one agent: ``Job.state`` and its buffer trees, encoded."""
APP_BYTES = 16

App = Annotated[bytes, msgspec.Meta(min_length=APP_BYTES, max_length=APP_BYTES)]
Value = Annotated[bytes, msgspec.Meta(max_length=VALUE_BYTES_MAX)]
Word = Annotated[str, msgspec.Meta(max_length=1_000)]
"""What comes out of a sandbox is bounded where it is decoded (``elf.functions.wire``)."""
TreeNames = Annotated[tuple[Name, ...], msgspec.Meta(min_length=1, max_length=TREES_MAX)]
"""What people call the trees of a job, in their order."""


class Place(msgspec.Struct, frozen=True):
    """Where this agent stands in the job's tree, and when: addresses, and milliseconds since the epoch.
    ``tree``: in which one, of a job that has several: a master's own, or the one by which something came.
    Of such a job also, for each of its trees, the agents above and below, and the one with its master."""

    me: str
    now_ms: int
    root: bool = False
    parent: str = ""
    children: tuple[str, ...] = ()
    tree: int = 0
    parents: tuple[str, ...] = ()
    below: tuple[tuple[str, ...], ...] = ()
    roots: tuple[str, ...] = ()


# -- events --------------------------------------------------------------------------------------------------


class Timer(msgspec.Struct, frozen=True, tag=True):
    """``every`` seconds have passed."""


class Pane(msgspec.Struct, frozen=True, tag=True):
    """No row of this pane is outstanding any more: event times, in µs."""

    start_us: int
    end_us: int


class Keep(msgspec.Struct, frozen=True, tag=True):
    """Say what you have: no callback is called."""


class Rows(msgspec.Struct, frozen=True, tag=True):
    """A chunk's rows or groups for a subscription; the table is the payload. ``beside``: the chunk's groups
    for other ones, and their tables."""

    subscription: str
    beside: tuple[tuple[str, bytes], ...] = ()


class Sent(msgspec.Struct, frozen=True, tag=True):
    """Another agent of the same job has called ``send_to`` with our address."""

    sender: str
    value: bytes


class Cast(msgspec.Struct, frozen=True, tag=True):
    """The master of an application has multicast this."""

    app: bytes
    value: bytes


class Missing(msgspec.Struct, frozen=True, tag=True):
    """So many multicasts of an application are lost."""

    app: bytes
    count: int


class Fed(msgspec.Struct, frozen=True, tag=True):
    """A master of ours has fed this back: packed pairs of keys that were asked for and their messages."""

    values: tuple[bytes, ...]


class Delivered(msgspec.Struct, frozen=True, tag=True):
    """A message of another application to this one's master. ``query``: it wants a reply. ``parts``: what the
    masters of the job's other trees have answered."""

    app: bytes
    value: bytes
    path: tuple[str, ...] = ()
    query: str = ""
    parts: tuple[bytes, ...] = ()


Event = Timer | Pane | Keep | Rows | Sent | Cast | Missing | Fed | Delivered


# -- effects -------------------------------------------------------------------------------------------------


class SendTo(msgspec.Struct, frozen=True, tag=True):
    """To the same job on another agent, or to the master of that tree where ``to`` is its agent. Empty: to
    the parent in that tree, or to the master where there is none just now."""

    to: Word
    value: Value
    tree: Tree = 0


class RemarkTo(msgspec.Struct, frozen=True, tag=True):
    """The same at once, without a state behind it: it may be lost, or said again (protocol 14.20)."""

    to: Word
    value: Value
    tree: Tree = 0


class MulticastOut(msgspec.Struct, frozen=True, tag=True):
    """To the job on every agent."""

    value: Annotated[bytes, msgspec.Meta(max_length=MULTICAST_BYTES_MAX)]


class RemarkOut(msgspec.Struct, frozen=True, tag=True):
    """The same at once, without a state behind it (protocol 14.20)."""

    value: Annotated[bytes, msgspec.Meta(max_length=MULTICAST_BYTES_MAX)]


class FeedOut(msgspec.Struct, frozen=True, tag=True):
    """To the job on each agent, of these entries (``elf.job.program.keyed``) those that it has asked for.
    ``ends``: where each piece of them ends."""

    value: Annotated[bytes, msgspec.Meta(max_length=MULTICAST_BYTES_MAX)]
    ends: Annotated[tuple[int, ...], msgspec.Meta(min_length=1, max_length=PIECES_MAX)]

    def pieces(self) -> list[bytes]:
        """The pieces."""
        return [self.value[start:end] for start, end in pairwise((0, *self.ends))]


class AskFor(msgspec.Struct, frozen=True, tag=True):
    """The keys of which feedback is wanted from now on: their hashes, one after the other."""

    value: Annotated[bytes, msgspec.Meta(max_length=HASH_BYTES * KEYS_MAX)]


class RouteOut(msgspec.Struct, frozen=True, tag=True):
    """To another application's master."""

    app: App
    value: Value


class ReplyOut(msgspec.Struct, frozen=True, tag=True):
    """The reply to a query."""

    query: Word
    value: Value
    error: Word = ""


JobEffect = SendTo | RemarkTo | MulticastOut | RemarkOut | FeedOut | AskFor | RouteOut | ReplyOut
LASTING = SendTo | MulticastOut | FeedOut | AskFor | RouteOut
"""What leaves the agent when the state behind it is durable."""


def size_of(event: Event, payload: bytes) -> int:
    """How many bytes a call has."""
    match event:
        case Delivered(parts=parts) | Fed(values=parts):
            pass
        case Rows(beside=beside):
            parts = tuple(table for _, table in beside)
        case _:
            parts = ()
    return len(payload) + len(getattr(event, "value", b"")) + sum(map(len, parts))


def is_again(event: Event) -> bool:
    """Whether a callback is to be called again when the process has ended since: with all that it was given.
    What it was asked, and its time, have passed."""
    return not (isinstance(event, Timer | Keep) or (isinstance(event, Delivered) and bool(event.query)))


# -- what it has asked for -----------------------------------------------------------------------------------


class Subscription(msgspec.Struct, frozen=True):
    """The arguments of ``subscribe``: a query, rows of a stream, or another application's multicasts.
    ``tree``: of a query whose groups go up a tree that has a name."""

    name: Name
    query: Statement = ""
    stream: Name = ""
    columns: tuple[Label, ...] = ()
    where: Statement = ""
    app: Annotated[bytes, msgspec.Meta(max_length=16)] = b""
    tree: Name = ""


class Loaded(msgspec.Struct, frozen=True):
    """A job that was loaded: its class, milliseconds between two timers and in a pane (0: none), its
    subscriptions, the names of its trees (keyed ones have numbers), and whether only masters have timers."""

    title: Name
    every_ms: Millis
    subscriptions: tuple[Subscription, ...]
    pane_ms: Millis = 0
    trees: TreeNames = ("0",)
    timer_at_master: bool = False
