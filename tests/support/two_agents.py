"""A job in Python on two agents of this process, for the examples of ``elf.job``: a master, and one below it.

Messages are packed and unpacked as between real agents, and arrive at once. Queries are planned as in a
fleet; nothing is read from logs, so an example inserts its groups.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

import pyarrow as pa

from elf.aggregates import State
from elf.cbt import BufferTree, WindowedTree
from elf.job import Job, JobError, Message, QueryFailed, Rounds
from elf.job.program.calls import Place, Subscription
from elf.job.program.seats import masters_name, seat_of
from elf.job.program.spec import Tap
from elf.job.program.values import pack_value, unpack_value
from elf.ql.groups import plan_groups
from elf.ql.statements import Select, parse
from elf.schema import Column, Schema

J = TypeVar("J", bound=Job)

TEXTS = ("product", "store", "text", "user.id", "user.name", "user.location")
NUMBERS = ("id", "clicks", "clicks_count", "likes", "buys_count")
COLUMNS = Schema(
    (
        Column("created_at", "timestamp"),
        *(Column(name, "text") for name in TEXTS),
        *(Column(name, "bigint") for name in NUMBERS),
    ),
    event_time="created_at",
)
"""Of the streams ``clicks`` and ``posts``, as far as one knows."""
MASTER = Place("web-1:7071", 1_767_225_600_000, True, "", ("web-2:7071",))
BELOW = Place("web-2:7071", 1_767_225_600_000, False, "web-1:7071", ())


class _Host:
    """One of both agents."""

    def __init__(self, place: Place, jobs: dict[str, Job], others: tuple[Job, ...]) -> None:
        self._place = place
        self._jobs = jobs
        self._others = {job.app_id: job for job in others}
        self._taps: dict[str, Tap] = {}
        self._trees: dict[str, BufferTree | WindowedTree] = {}
        self._tree_of: dict[str, str] = {}
        self._asks: frozenset[Any] = frozenset()
        self._replies: list[Message] | None = None
        self.app = b""

    def place(self) -> Place:
        return self._place

    def subscribe(self, subscription: Subscription) -> None:
        if not subscription.query:
            return
        (select,) = parse(subscription.query)
        assert isinstance(select, Select)
        stream = "posts" if "FROM posts" in subscription.query else "clicks"
        groups = plan_groups(select.query, COLUMNS, stream=stream)
        tap = Tap(subscription.name, groups.fragment, groups.keys, groups.states, groups.panes)
        self._taps[tap.name] = tap
        self._tree_of[tap.name] = subscription.tree
        self._trees[tap.name] = tap.tree()

    def tree_of(self, name: str) -> str:
        return self._tree_of[name]

    def send_to(self, node: str, message: Message, tree: int, *, at_once: bool = False) -> None:
        node = MASTER.me if node == masters_name(seat_of(tree)) else node
        self._jobs[node or self._place.parent].on_recv(self._place.me, arrived(message))

    def multicast(self, message: Message, *, at_once: bool = False) -> None:
        for job in self._jobs.values():
            job.on_multicast(self.app, arrived(message))

    def feed_back(self, messages: Mapping[Any, Message]) -> None:
        for job in self._jobs.values():
            host = job._host
            assert isinstance(host, _Host)
            if wanted := {key: messages[key] for key in messages if key in host._asks}:
                job.on_feedback(wanted)

    def ask_for(self, keys: Iterable[Any]) -> None:
        self._asks = frozenset(keys)

    def route(self, app: bytes, message: Message) -> None:
        if app in self._others:
            self._others[app].deliver(self.app, arrived(message))

    def query(self, app: bytes, name: str, message: Message, timeout: float) -> Message:
        if app not in self._others:
            raise QueryFailed(f"there is no job {name}")
        other = self._others[app]
        host = other._host
        assert isinstance(host, _Host)
        host._replies = []
        returned = other.deliver(self.app, arrived(message))
        first, *_ = [*host._replies, returned]
        host._replies = None
        return arrived(first)

    def reply(self, message: Message) -> None:
        if self._replies is None:
            raise JobError("there is nothing to reply to: reply belongs into deliver, once")
        self._replies.append(message)

    def tree(
        self, name: str, *, changes: bool = False
    ) -> tuple[BufferTree | WindowedTree, tuple[str, ...], tuple[State, ...]]:
        if name not in self._trees:
            raise JobError(f"there is no query {name} here")
        tap = self._taps[name]
        return self._trees[name], tap.key_names(), tap.named_states()


def arrived(message: Message) -> Message:
    """A message as the other side gets it."""
    return unpack_value(pack_value(message))


def two_agents(kind: type[J], name: str = "popular", others: tuple[Job, ...] = ()) -> tuple[J, J]:
    """The job of the master and that of the agent below it, both started. ``others``: masters of other jobs,
    which it may query.
    """
    jobs: dict[str, Job] = {}
    made = []
    for place in (MASTER, BELOW):
        host = _Host(place, jobs, others)
        job = kind(name, "ada", host)
        host.app = job.app_id
        jobs[place.me] = job
        made.append(job)
    for job in made:
        job.start()
    return made[0], made[1]


class Popular(Job):
    """As in the example of ``Job``."""

    every = 5.0

    def start(self) -> None:
        self.subscribe("SELECT product, SUM(clicks) AS clicks FROM clicks GROUP BY product")

    def on_timer(self) -> None:
        if self.is_root:
            self.multicast("update")

    def on_multicast(self, app: bytes, message: Message) -> None:
        self.roll_up(self.flush())
        self.empty()

    def on_recv(self, node: str, paos: Message) -> None:
        self.roll_up(paos)

    def roll_up(self, paos: pa.Table) -> None:
        if self.is_root:
            self.state["total"] = self.merge(self.state.get("total"), paos)
        else:
            self.send_up(paos)

    def deliver(self, app: bytes, message: Message) -> Message:
        rows: list[dict[str, object]] = self.merge(self.state.get("total")).to_pylist()
        return rows


class Adds(Rounds):
    """As in the example of ``Rounds``."""

    def contribute(self, message: Any) -> Any:
        return message["times"] * 2

    def combine(self, one: Any, other: Any) -> Any:
        return one + other

    def finish(self, message: Any, total: Any, agents: int) -> None:
        print(f"round {self.round}: {total} of {agents} agents")
