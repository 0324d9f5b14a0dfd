"""Jobs written in Python: the calls of the paper's Tables 1 and 2 (section 2.4), and what makes them
pleasant.

    class Popular(Job):
        every = 5.0

        def start(self):
            self.subscribe("SELECT product, SUM(clicks) AS clicks FROM clicks GROUP BY product")

        def on_timer(self):
            if self.is_root:
                self.multicast("update")

A file with one subclass of ``Job`` is a job: ``elf submit FILE.py`` sends it to all agents, and each runs it
in a process of its own. The one whose node id is nearest to the app id is the root of the job's tree and its
master (``is_root``); when that one dies the next takes over, with whatever that agent's job knows.

What is promised: a multicast comes to each agent once and in the order of its root, or ``on_missed`` says how
many will not; ``send_to``, ``route`` and replies come at most once, and not at all when an agent dies or is
flooded; a callback is never called beside another one. What a job holds in memory is gone with its process.
For windows that are exact through crashes write ELF-QL: ``CREATE JOB`` is the same tree, with the calls of
this class made by elf itself (flush and ``send_to`` at the end of a pane, ``on_recv`` merges, ``multicast``
commits).

Never here: sockets, clocks, processes. ``Host`` is whoever runs the job.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Protocol

import pyarrow as pa

from elf.aggregates import State, merge_tables
from elf.cbt import BufferTree
from elf.job.program.calls import Place, Subscription
from elf.job.spec import app_id

QUERY_SECS = 1.0


class JobError(Exception):
    """A call of the job's that cannot be done; the text says why and what to do."""


class QueryFailed(JobError):
    """A query without a reply: nobody there, no answer in time, an error there, or a cycle of queries."""


class Host(Protocol):
    """Where a job runs."""

    def subscribe(self, subscription: Subscription) -> None: ...
    def send_to(self, node: str, message: object) -> None: ...
    def multicast(self, message: object) -> None: ...
    def route(self, app: bytes, message: object) -> None: ...
    def reply(self, message: object) -> None: ...
    def query(self, app: bytes, name: str, message: object, timeout: float) -> object: ...
    def place(self) -> Place: ...
    def tree(self, name: str) -> tuple[BufferTree, tuple[str, ...], tuple[State, ...]]: ...


class Job:
    """Subclass it, one to a file; see the module's docstring. Callbacks do nothing unless you write them."""

    every: ClassVar[float | None] = None
    """Seconds between two ``on_timer``; None: never."""

    def __init__(self, name: str, creator: str, host: Host) -> None:
        """Made by the agent. Set your own state in ``start``."""
        self.name = name
        self.creator = creator
        self._host = host

    # -- callbacks -------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Called once on each agent, before anything else: subscribe here, and nowhere else."""

    def on_timer(self) -> None:
        """``every`` seconds have passed (paper: OnTimer)."""

    def on_recv(self, node: str, paos: object) -> None:
        """The job on the agent ``node`` has sent this with ``send_to`` (paper: OnRecv)."""

    def on_multicast(self, app: bytes, message: object) -> None:
        """The master of ``app`` has multicast this: our own, or one that we subscribed to (OnMulticast)."""

    def deliver(self, app: bytes, message: object) -> object:
        """At the master: a message of another application, ``app`` (paper: Deliver). What is returned is the
        reply, if it was a query."""

    def on_batch(self, batch: pa.Table, subscription: str) -> None:
        """Rows of a stream that was subscribed to with ``stream=``."""

    def on_missed(self, app: bytes, count: int) -> None:
        """So many multicasts of ``app`` will never come (we were away, or are new)."""

    # -- calls -----------------------------------------------------------------------------------------------

    def subscribe(
        self,
        query: str = "",
        *,
        stream: str = "",
        columns: Sequence[str] = (),
        where: str = "",
        app: str = "",
        name: str = "",
    ) -> None:
        """Take part (paper: Subscribe); the job's own tree is joined anyway. One of

        - ``query``: a SELECT of ELF-QL whose items are the columns of GROUP BY, and SUM, COUNT, MIN and MAX.
          Rows
          of this agent's logs go into a compressed buffer tree: ``flush`` gives its groups;
        - ``stream``, with ``columns`` and an optional ``where``: the rows themselves, by ``on_batch``;
        - ``app``, ``"name"`` or ``"creator/name"``: the multicasts of another application.

        ``name`` is for jobs with several; by default ``main``, the stream, or the application.
        """
        if sum(map(bool, (query, stream, app))) != 1:
            raise JobError("subscribe takes a query, or stream=, or app=")
        if bool(columns) != bool(stream) or (where and not stream):
            raise JobError("subscribe(stream=…) needs columns=[…]; columns and where go with stream= only")
        id_ = self.app(app) if app else b""
        self._host.subscribe(
            Subscription(name or stream or app or "main", query, stream, tuple(columns), where, id_)
        )

    def send_to(self, node: str | None, paos: object) -> None:
        """Send partial aggregates (any message) to this job on another agent: ``self.parent``, mostly."""
        if not node:
            raise JobError("send_to nobody: the root has no parent (ask is_root first)")
        self._host.send_to(node, paos)

    def multicast(self, message: object) -> None:
        """At the master: a message to this job on every agent, this one too."""
        if not self.is_root:
            raise JobError("only the master multicasts: ask is_root first")
        self._host.multicast(message)

    def route(self, app: str | bytes, message: object) -> None:
        """A message to the master of another application, which gets it by ``deliver``, at most once."""
        self._host.route(self.app(app), message)

    def query(self, app: str | bytes, message: object = None, timeout: float = QUERY_SECS) -> object:
        """Ask the master of another application and wait for its reply; ``timeout`` in seconds.

        An SQL job answers with its last window: ``{"job", "window_start", "window_end", "rows", "status"}``.
        While this waits, ``deliver`` alone may be called. Raises ``QueryFailed``; also when the reply would
        have to wait for this very job (a cycle).
        """
        return self._host.query(self.app(app), app if isinstance(app, str) else "", message, timeout)

    def reply(self, message: object) -> None:
        """In ``deliver``: the reply, before its end. The first one counts."""
        self._host.reply(message)

    def app(self, app: str | bytes) -> bytes:
        """The app id of ``"name"`` (of the same creator) or ``"creator/name"``."""
        if isinstance(app, bytes):
            return app
        creator, slash, name = app.rpartition("/")
        return app_id(name, creator if slash else self.creator)

    # -- the local buffer tree -------------------------------------------------------------------------------

    def insert(self, paos: pa.Table, name: str = "main") -> None:
        """Put partial aggregates into the tree of a query; rows of one key are merged."""
        self._host.tree(name)[0].insert_partials(paos)

    def flush(self, name: str = "main") -> pa.Table:
        """All groups of a query so far, columns as in its SELECT; the tree keeps them."""
        tree, keys, states = self._host.tree(name)
        return readable(tree.partials(), keys, states)

    def empty(self, name: str = "main") -> None:
        """Forget them: a new batch begins."""
        self._host.tree(name)[0].empty()

    def merge(self, *paos: pa.Table | None, name: str = "main") -> pa.Table:
        """Tables of a query's groups as one, rows of one key merged; None is no rows."""
        _, keys, states = self._host.tree(name)
        found = [table for table in paos if table is not None and table.num_columns]
        if not found:
            return self.flush(name).slice(0, 0)
        return readable(merge_tables(found, keys, states), keys, states)

    # -- where and when --------------------------------------------------------------------------------------

    @property
    def app_id(self) -> bytes:
        return app_id(self.name, self.creator)

    @property
    def me(self) -> str:
        """The address of this agent."""
        return self._host.place().me

    @property
    def is_root(self) -> bool:
        """Whether this agent is the job's master."""
        return self._host.place().root

    @property
    def parent(self) -> str | None:
        """The agent above this one in the tree; None at the root, and for a moment when a parent died."""
        return self._host.place().parent or None

    @property
    def children(self) -> tuple[str, ...]:
        """The agents below this one in the job's tree."""
        return self._host.place().children

    @property
    def has_children(self) -> bool:
        return bool(self.children)

    @property
    def now(self) -> float:
        """Seconds since the epoch, when this callback was called."""
        return self._host.place().now_ms / 1000


def readable(paos: pa.Table, keys: Sequence[str], states: Sequence[State]) -> pa.Table:
    """Keys, then states; sums of integers as int64 where they fit, for whoever reads them."""
    paos = paos.select([*keys, *(state.name for state in states)])
    for index, field in enumerate(paos.schema):
        if pa.types.is_decimal(field.type):
            try:
                paos = paos.set_column(index, field.name, paos.column(index).cast(pa.int64()))
            except pa.ArrowInvalid:
                continue
    return paos
