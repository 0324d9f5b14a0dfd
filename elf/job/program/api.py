"""Jobs written in Python: the calls of the paper's Tables 1 and 2 (section 2.4), in a convenient form.

    class Popular(Job):
        every = 5.0

        def start(self):
            self.subscribe("SELECT product, SUM(clicks) AS clicks FROM clicks GROUP BY product")

        def on_timer(self):
            if self.is_root:
                self.multicast("update")

A file with one subclass of ``Job`` is a job: ``elf submit FILE.py`` sends it to all agents, and each runs it
in a process of its own. One agent also runs the job's *master* (``is_root``), the root of its tree: one more
object of the class, which reads no rows. Up to five agents keep what it has; when its agent is gone another
one runs it, with all of that.

Guarantees: what a job has in ``state`` and in the buffer trees of its queries survives crashes: each row that
its agent reads, and each message of ``send_to``, is in it once. What the master has survives its machine. A
multicast comes to each agent once and in the order of its root, or ``on_missed`` says how many will not come;
``route`` and replies come at most once. Callbacks never run concurrently. Other attributes are gone with the
job's process. For exact windows write ELF-QL: ``CREATE JOB`` uses the same tree, and elf itself makes the
calls of this class (flush and ``send_to`` at the end of a pane, ``on_recv`` merges, ``multicast`` commits).

Never here: sockets, clocks, processes. ``Host`` is whoever runs the job.

The examples below run without a fleet. In them ``two_agents`` gives the job on the master and the job on one
agent below it (``tests/support/two_agents.py``), and ``Popular`` is the class of the example of ``Job``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

import pyarrow as pa

from elf.aggregates import State, merge_tables, split_by_range
from elf.cbt import FEW_ROWS, WindowedTree
from elf.job.program.callbacks import Callbacks
from elf.job.program.calls import Subscription
from elf.job.program.host import Host, JobError
from elf.job.program.placed import Placed
from elf.job.program.values import Message
from elf.job.spec import app_id

QUERY_SECS = 1.0


class Job(Callbacks, Placed):
    """A job in Python. Write a subclass, one to a file; callbacks do nothing unless you write them.

    Each agent makes one object of the class, in a process of its own; where the master is, another object is
    that. What a callback raises makes the job ``failing`` on that agent, with the line of your file; it does
    not end the job.

    Attributes:
        every (float | None): seconds between two ``on_timer``, at least 0.01. None: never.
        timer_at_master (bool): whether ``on_timer`` is called at the master alone (of each tree). Agents are
            not woken up for it.
        every_pane (float | None): seconds of event time between two ``on_pane``. None: never.
        trees (int | Sequence[str]): how many trees the job has, or their names; at most 32. Each has a master
            of its own, on another agent where there is one, and all agents are in all of them. With a number,
            groups are spread over the trees by the hash of their keys (``send_up``, ``split``); a tree with a
            name takes the groups of the queries that are subscribed with ``tree=``.
        state (dict[str, Message]): what the job keeps on this agent, at most 16 MiB with its buffer trees.
            It may hold what a message may hold. It is there again after a crash; tuples and sets come back as
            lists. The master has its own, which goes with it.
        name (str): the job's name, as it was submitted.
        creator (str): the user who submitted it.

    Example:
        The clicks on each product. The master says when; groups go up the tree; other jobs may ask.
        ``two_agents`` gives the job on its master and on an agent below it, without a fleet:

        >>> class Popular(Job):
        ...     every = 5.0
        ...
        ...     def start(self):
        ...         self.subscribe("SELECT product, SUM(clicks) AS clicks FROM clicks GROUP BY product")
        ...
        ...     def on_timer(self):
        ...         if self.is_root:
        ...             self.multicast("update")
        ...
        ...     def on_multicast(self, app, message):
        ...         self.roll_up(self.flush())
        ...         self.empty()
        ...
        ...     def on_recv(self, node, paos):
        ...         self.roll_up(paos)
        ...
        ...     def roll_up(self, paos):
        ...         if self.is_root:
        ...             self.state["total"] = self.merge(self.state.get("total"), paos)
        ...         else:
        ...             self.send_up(paos)
        ...
        ...     def deliver(self, app, message):
        ...         return self.merge(self.state.get("total")).to_pylist()

        >>> master, below = two_agents(Popular)
        >>> master.insert(pa.table({"product": ["Doom"], "clicks": [1]}))
        >>> below.insert(pa.table({"product": ["Doom"], "clicks": [2]}))
        >>> master.on_timer()
        >>> master.deliver(b"", None)
        [{'product': 'Doom', 'clicks': 3}]
    """

    every: ClassVar[float | None] = None
    """Seconds between two ``on_timer``; None: never."""
    timer_at_master: ClassVar[bool] = False
    """Whether ``on_timer`` is called at the master alone."""
    every_pane: ClassVar[float | None] = None
    """Seconds of event time between two ``on_pane``; None: never."""
    trees: ClassVar[int | Sequence[str]] = 1
    """How many trees it has, or their names."""

    def __init__(self, name: str, creator: str, host: Host) -> None:
        """Made by the agent. Subscribe, and set attributes of your own, in ``start``.

        Args:
            name (str): the job's name.
            creator (str): the user who submitted it.
            host (Host): what runs the job.
        """
        self.name = name
        self.creator = creator
        self._host = host
        self.state: dict[str, Any] = {}
        """What the job keeps on this agent (see the class)."""

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
        tree: str = "",
    ) -> None:
        """Ask for rows, groups or multicasts (paper: Subscribe). The job's own trees are joined anyway.

        Give one of ``query``, ``stream`` and ``app``.

        Args:
            query (str): a SELECT of ELF-QL over one stream. Its items are the columns of GROUP BY, and SUM,
                COUNT, MIN and MAX. Rows of this agent's logs go into a buffer tree: ``flush`` gives its
                groups. With ``WINDOWING n SLIDE m`` the tree forgets what is older than its window.
            stream (str): the stream whose rows are wanted; they come by ``on_batch``.
            columns (Sequence[str]): the columns of these rows; with ``stream``, at least one.
            where (str): a condition in ELF-QL for these rows; empty: all rows.
            app (str): ``"name"`` or ``"creator/name"`` of an application whose multicasts are wanted: those
                of its first tree.
            name (str): the subscription's name, for jobs with several; by default ``main``, the stream, or
                the application.
            tree (str): with ``query``, where ``trees`` has names: which tree its groups go up.

        Raises:
            JobError: if not exactly one of the three is given, if ``columns`` or ``where`` do not go with
                it, after ``start``, or if two subscriptions have one name.

        Example:
            >>> class Two(Job):
            ...     def start(self):
            ...         self.subscribe("SELECT product, COUNT(*) AS n FROM clicks GROUP BY product")
            ...         self.subscribe(app="ada/popular", name="updates")

            >>> master, below = two_agents(Two)
            >>> master.flush().column_names
            ['product', 'n']
            >>> master.subscribe()
            Traceback (most recent call last):
            elf.job.program.host.JobError: subscribe takes a query, or stream=, or app=
        """
        if sum(map(bool, (query, stream, app))) != 1:
            raise JobError("subscribe takes a query, or stream=, or app=")
        if bool(columns) != bool(stream) or (where and not stream):
            raise JobError("subscribe(stream=…) needs columns=[…]; columns and where go with stream= only")
        if tree and not query:
            raise JobError("subscribe(tree=…) goes with a query, whose groups go up that tree")
        id_ = self.app(app) if app else b""
        self._host.subscribe(
            Subscription(name or stream or app or "main", query, stream, tuple(columns), where, id_, tree)
        )

    def send_to(
        self,
        node: str | None,
        paos: Message,
        *,
        tree: int | str | None = None,
        at_once: bool = False,
    ) -> None:
        """Send partial aggregates, or any message, to this job on another agent, which gets it by
        ``on_recv``. Its ``state`` has it exactly once, whoever crashes: it is kept here until it is durable
        there. Where that agent has left the fleet, the parent gets it.

        Args:
            node (str | None): that agent's address, mostly ``self.parent``.
            paos (Message): what is sent, at most 4 MiB when it is packed.
            tree (int | str | None): the tree up which it goes, of a job with several: what is sent to the
                agent with that tree's master the master gets; where the agent has left, it goes to the parent
                in that tree. None: ``self.tree``.
            at_once (bool): it leaves now, and not when the state behind it is durable. It may be lost, and a
                crash may take back what it is of and say it again: for a look at what the job has, which
                takes nothing away.

        Raises:
            JobError: if ``node`` is None or empty, if ``paos`` cannot be sent, if there is no such tree, or
                if this callback has sent more than 32 MiB or 10,000 messages. What is sent beyond 8 MiB that
                others have not taken is dropped and counted, and the job is ``failing``.

        Example:
            >>> master, below = two_agents(Popular)
            >>> below.send_to(below.parent, pa.table({"product": ["Doom"], "clicks": [2]}))
            >>> master.state["total"].to_pylist()
            [{'product': 'Doom', 'clicks': 2}]
            >>> master.send_to(master.parent, None)
            Traceback (most recent call last):
            elf.job.program.host.JobError: send_to nobody: the root has no parent (ask is_root first)
        """
        if not node:
            raise JobError("send_to nobody: the root has no parent (ask is_root first)")
        place = self._place_of(self.tree if tree is None else tree)
        self._host.send_to(node, paos, place, at_once=at_once)

    def send_up(self, paos: pa.Table, name: str = "main", *, by: Sequence[str] = ()) -> None:
        """On an agent: send partial aggregates to the parents in the trees that they go up, as ``split``
        says. Where there is no parent just now, after it has died, they go to the master. As with ``send_to``
        they are in the ``state`` of who gets them exactly once.

        Args:
            paos (pyarrow.Table): a row for each group, with the columns of the query's SELECT list.
            name (str): the subscription of the query.
            by (Sequence[str]): as in ``split``.

        Raises:
            JobError: at a master, and as ``split`` and ``send_to``.

        Example:
            >>> master, below = two_agents(Popular)
            >>> below.send_up(pa.table({"product": ["Doom"], "clicks": [2]}))
            >>> master.state["total"].to_pylist()
            [{'product': 'Doom', 'clicks': 2}]
        """
        if self.is_root:
            raise JobError("send_up at a master: nobody is above it (ask is_root first)")
        for tree, part in self.split(paos, name, by=by).items():
            self._host.send_to("", part, self._place_of(tree))

    def split(
        self, paos: pa.Table, name: str = "main", *, by: Sequence[str] = ()
    ) -> dict[int | str, pa.Table]:
        """Which of these groups go up which tree. Where ``trees`` is a number that is decided by the hash of
        their keys alone, so that it is the same on each agent: all of a key come to one master. Where it has
        names, all groups of a query go up its tree.

        Args:
            paos (pyarrow.Table): a row for each group, with the columns of the query's SELECT list.
            name (str): the subscription of the query.
            by (Sequence[str]): some of the key columns, to have all groups at one master that are equal in
                these; empty: all key columns.

        Returns:
            dict[int | str, pyarrow.Table]: the groups by tree, in the trees' order; none without rows.

        Raises:
            JobError: if no query was subscribed to under that name, if ``by`` names no key column of it, or
                if ``trees`` has names and the query no tree.

        Example:
            >>> class Spread(Popular):
            ...     trees = 2

            >>> master, below = two_agents(Spread)
            >>> paos = pa.table({"product": ["Doom", "Snake", "Pong"], "clicks": [1, 2, 3]})
            >>> {tree: part["product"].to_pylist() for tree, part in below.split(paos).items()}
            {0: ['Snake'], 1: ['Doom', 'Pong']}
        """
        _, keys, _ = self._host.tree(name)
        if unknown := [key for key in by if key not in keys]:
            raise JobError(f"by names {unknown[0]}, which is no key column of {name}: {', '.join(keys)}")
        if not isinstance(self.trees, int):
            if not (tree := self._host.tree_of(name)):
                raise JobError(f"the groups of {name} go up no tree: subscribe to it with tree=")
            return {tree: paos} if paos.num_rows else {}
        parts = split_by_range(paos, tuple(by) or keys, self.trees) if self.trees > 1 else (paos,)
        return {tree: part for tree, part in enumerate(parts) if part.num_rows}

    def multicast(self, message: Message, *, at_once: bool = False) -> None:
        """At the master: send a message to this job on every agent, this one too.

        Each gets it by ``on_multicast``, once and in order, or ``on_missed`` says how many are lost. Of a job
        with several trees each master has its tree, and its order; the other masters get it, too.

        Args:
            message (Message): what is sent, at most 16 MiB when it is packed. More than 1 MiB travels in
                pieces, and what is multicast after it comes after it.
            at_once (bool): it leaves now, before what was multicast and waits, and not when the state behind
                it is durable. The next master does not know of it, so it may say something else in its place.

        Raises:
            JobError: on an agent that is not the master, and as ``send_to``.

        Example:
            >>> class Greeted(Job):
            ...     heard = ""
            ...
            ...     def on_multicast(self, app, message):
            ...         self.heard = message

            >>> master, below = two_agents(Greeted)
            >>> master.multicast("good morning")
            >>> master.heard, below.heard
            ('good morning', 'good morning')
        """
        if not self.is_root:
            raise JobError("only the master multicasts: ask is_root first")
        self._host.multicast(message, at_once=at_once)

    def feed_back(self, messages: Mapping[Any, Message]) -> None:
        """At the master: send messages by key, such as results, to this job on the agents that have asked for
        these keys. Each gets its own ones by ``on_feedback``; as a multicast, once and in order with the
        other multicasts of its master, or ``on_missed`` says how many are lost.

        Args:
            messages (Mapping): by key, at most 64 KiB each; 16 MiB together when they are packed. Of more
                than 1 MiB an agent is sent only what is near its keys.

        Raises:
            JobError: on an agent that is not the master, and as ``send_to``.

        Example:
            >>> class Sales(Job):
            ...     def on_feedback(self, messages):
            ...         print(messages)

            >>> master, below = two_agents(Sales, name="sales")
            >>> below.ask_for([("Doom", 7)])
            >>> master.feed_back({("Doom", 7): "sold out", ("Myst", 1): "two left"})
            {('Doom', 7): 'sold out'}
        """
        if not self.is_root:
            raise JobError("only the master feeds back: ask is_root first")
        self._host.feed_back(messages)

    def ask_for(self, keys: Iterable[Any]) -> None:
        """On an agent: say of which keys feedback is wanted from now on, in the place of those before. It
        stays so through crashes.

        Args:
            keys (Iterable[Message]): at most 50,000; a key is what a message may be and Python can hash.
                Equal keys have one type: 1 is not 1.0.

        Raises:
            JobError: at a master, for more keys, or if one cannot be sent.

        Example:
            >>> master, below = two_agents(Popular)
            >>> below.ask_for(["Doom"])
            >>> master.ask_for(["Doom"])
            Traceback (most recent call last):
            elf.job.program.host.JobError: a master asks for no keys: agents do
        """
        if self.is_root:
            raise JobError("a master asks for no keys: agents do")
        self._host.ask_for(keys)

    def route(self, app: str | bytes, message: Message) -> None:
        """Send a message to the master of another application, which gets it by ``deliver``, at most once.

        Args:
            app (str | bytes): ``"name"`` (of the same creator), ``"creator/name"``, or an app id.
            message (Message): what is sent, at most 4 MiB when it is packed.

        Raises:
            JobError: as ``send_to``.

        Example:
            >>> class Logged(Job):
            ...     last = None
            ...
            ...     def deliver(self, app, message):
            ...         self.last = message

            >>> log, _ = two_agents(Logged, name="log")
            >>> master, below = two_agents(Popular, others=(log,))
            >>> below.route("log", {"sold out": "Doom"})
            >>> log.last
            {'sold out': 'Doom'}
        """
        self._host.route(self.app(app), message)

    def query(self, app: str | bytes, message: Message = None, timeout: float = QUERY_SECS) -> Message:
        """Ask the master of another application and wait for its reply.

        While this waits, ``deliver`` alone may be called.

        Args:
            app (str | bytes): ``"name"`` (of the same creator), ``"creator/name"``, or an app id.
            message (Message): the question, at most 4 MiB when it is packed.
            timeout (float): seconds, above 0 and at most 60.

        Returns:
            Message: what the other's ``deliver`` returns or replies. An SQL job answers with its last
            window: a dict with ``job``, ``window_start`` and ``window_end`` (ISO 8601 texts in UTC), ``rows``
            (a list of dicts) and ``status``.

        Raises:
            QueryFailed: without a reply in time; also when the reply would have to wait for this very job (a
                cycle).
            JobError: if ``message`` cannot be sent, or ``timeout`` is out of its bounds.

        Example:
            >>> popular, _ = two_agents(Popular)
            >>> popular.on_recv("web-2:7071", pa.table({"product": ["Doom"], "clicks": [2]}))
            >>> asking, _ = two_agents(Job, name="asking", others=(popular,))
            >>> asking.query("popular", timeout=2.0)
            [{'product': 'Doom', 'clicks': 2}]
        """
        return self._host.query(self.app(app), app if isinstance(app, str) else "", message, timeout)

    def reply(self, message: Message) -> None:
        """In ``deliver``: give the reply before its end. The first one counts.

        Args:
            message (Message): the reply, at most 4 MiB when it is packed.

        Raises:
            JobError: if there is no query to reply to, and as ``send_to``.

        Example:
            >>> class Early(Job):
            ...     def deliver(self, app, message):
            ...         self.reply("yes")
            ...         return "too late"

            >>> early, _ = two_agents(Early, name="early")
            >>> asking, _ = two_agents(Job, name="asking", others=(early,))
            >>> asking.query("early")
            'yes'
        """
        self._host.reply(message)

    def app(self, app: str | bytes) -> bytes:
        """The app id of an application: the key of its tree.

        Args:
            app (str | bytes): ``"name"`` (of the same creator) or ``"creator/name"``. An app id is given
                back as it is.

        Returns:
            bytes: 16 bytes.

        Raises:
            Nothing.

        Example:
            >>> master, below = two_agents(Popular)
            >>> master.app("popular") == master.app("ada/popular") == below.app_id
            True
        """
        if isinstance(app, bytes):
            return app
        creator, slash, name = app.rpartition("/")
        return app_id(name, creator if slash else self.creator)

    # -- the local buffer tree -------------------------------------------------------------------------------

    def insert(self, paos: pa.Table, name: str = "main", *, at: float | None = None) -> None:
        """Put partial aggregates into the buffer tree of a query. Rows of one key are merged.

        Args:
            paos (pyarrow.Table): a row for each group, with the columns of the query's SELECT list.
            name (str): the subscription of the query.
            at (float | None): for a query with a window: their event time, in seconds since the epoch. None:
                now.

        Raises:
            JobError: if no query was subscribed to under that name, or ``at`` is given for a query without
                WINDOWING.

        Example:
            >>> master, _ = two_agents(Popular)
            >>> master.insert(pa.table({"product": ["Doom", "Doom"], "clicks": [1, 2]}))
            >>> master.flush().to_pylist()
            [{'product': 'Doom', 'clicks': 3}]
        """
        tree = self._host.tree(name, changes=True)[0]
        if isinstance(tree, WindowedTree):
            tree.insert_at(paos, int(1e6 * (self.now if at is None else at)))
        elif at is not None:
            raise JobError(f"query {name} has no WINDOWING, so nothing in it has a time: insert without at=")
        else:
            tree.insert_partials(paos)

    def flush(self, name: str = "main", *, since: float | None = None, merged: bool = True) -> pa.Table:
        """All groups of a query since the last ``empty``, or of its window. The tree keeps them.

        With ``WINDOWING 300 SECONDS SLIDE 5 SECONDS`` in the query the tree has the groups of the last 300
        seconds of event time that this agent has read, and forgets them in steps of 5 seconds. So a job looks
        at a window that moves, as often as it likes, and never empties its tree.

        Args:
            name (str): the subscription of the query.
            since (float | None): for a query with a window: leave out the steps that have ended by then, in
                seconds since the epoch; so that all agents look at the same time.
            merged (bool): False: give what is there as it is, a group perhaps in several rows. It takes a
                tenth of the time, for whoever only asks which groups there are, or merges them with others.

        Returns:
            pyarrow.Table: a row for each group, in no fixed order, with the columns of the query's SELECT
            list. Sums of integers are int64 where they fit, else decimal128(38, 0).

        Raises:
            JobError: if no query was subscribed to under that name, or ``since`` is given for a query without
                WINDOWING.

        Example:
            >>> master, _ = two_agents(Popular)
            >>> master.flush().num_rows
            0
            >>> master.flush("likes")
            Traceback (most recent call last):
            elf.job.program.host.JobError: there is no query likes here

            A window of a minute in steps of ten seconds:

            >>> class Lately(Job):
            ...     def start(self):
            ...         self.subscribe(
            ...             "SELECT product, SUM(clicks) AS clicks FROM clicks GROUP BY product "
            ...             "WINDOWING 60 SECONDS SLIDE 10 SECONDS"
            ...         )

            >>> master, _ = two_agents(Lately, name="lately")
            >>> for secs, clicks in ((70, 1), (50, 2), (0, 4)):
            ...     master.insert(pa.table({"product": ["Doom"], "clicks": [clicks]}), at=master.now - secs)
            >>> master.flush().to_pylist()
            [{'product': 'Doom', 'clicks': 6}]
            >>> master.flush(since=master.now - 30).to_pylist()
            [{'product': 'Doom', 'clicks': 4}]
            >>> master.flush(merged=False)["product"].to_pylist()
            ['Doom', 'Doom']
        """
        tree, keys, states = self._host.tree(name)
        if isinstance(tree, WindowedTree):
            since_us = None if since is None else int(1e6 * since)
            return readable(tree.partials(since_us) if merged else tree.pieces(since_us), keys, states)
        if since is not None:
            raise JobError(f"query {name} has no WINDOWING: flush() gives all of it since the last empty()")
        return readable(tree.partials(few_rows=0 if merged else FEW_ROWS), keys, states)

    def empty(self, name: str = "main") -> None:
        """Forget the groups of a query: a new batch begins.

        Args:
            name (str): the subscription of the query.

        Raises:
            JobError: if no query was subscribed to under that name.

        Example:
            >>> master, _ = two_agents(Popular)
            >>> master.insert(pa.table({"product": ["Doom"], "clicks": [1]}))
            >>> master.empty()
            >>> master.flush().num_rows
            0
        """
        self._host.tree(name, changes=True)[0].empty()

    def merge(self, *paos: pa.Table | None, name: str = "main") -> pa.Table:
        """Merge tables of a query's groups into one, with one row for each key. The tree stays as it is.

        Args:
            paos (pyarrow.Table | None): tables with the columns of the query's SELECT list. None is no rows.
            name (str): the subscription of the query.

        Returns:
            pyarrow.Table: as ``flush``.

        Raises:
            JobError: if no query was subscribed to under that name.

        Example:
            >>> master, _ = two_agents(Popular)
            >>> one = pa.table({"product": ["Doom"], "clicks": [1]})
            >>> master.merge(one, None, one).to_pylist()
            [{'product': 'Doom', 'clicks': 2}]
        """
        _, keys, states = self._host.tree(name)
        found = [table for table in paos if table is not None and table.num_columns]
        if not found:
            return self.flush(name).slice(0, 0)
        return readable(merge_tables(found, keys, states), keys, states)

    # -- what classes above this one keep --------------------------------------------------------------------

    def kept_beside(self) -> Message:
        """What a class such as ``Rounds`` keeps beside ``state``.

        Returns:
            Message: whatever ``restore_beside`` is to get.

        Raises:
            Nothing.

        Example:
            >>> two_agents(Job)[0].kept_beside() is None
            True
        """
        return None

    def restore_beside(self, kept: Any) -> None:
        """Called before ``start`` with what ``kept_beside`` gave, if there was a crash since.

        Args:
            kept (Message): what it gave.

        Raises:
            Nothing.

        Example:
            >>> two_agents(Job)[0].restore_beside(None)
        """


def readable(paos: pa.Table, keys: Sequence[str], states: Sequence[State]) -> pa.Table:
    """Keys, then states; sums of integers as int64 where they fit, for the reader's convenience. Keys stay as
    they are: their hash says which tree they go up."""
    paos = paos.select([*keys, *(state.name for state in states)])
    for index, field in enumerate(paos.schema):
        if index >= len(keys) and pa.types.is_decimal(field.type):
            try:
                paos = paos.set_column(index, field.name, paos.column(index).cast(pa.int64()))
            except pa.ArrowInvalid:
                continue
    return paos
