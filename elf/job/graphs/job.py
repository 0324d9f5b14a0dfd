"""``GraphJob``: a graph computation as a job in Python. What its calls are is in ``elf.job.program.api``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa

from elf.job.graphs.algorithm import Algorithm
from elf.job.graphs.barrier import PARTS_MAX, Barrier
from elf.job.graphs.worker import Sends, Word, Worker
from elf.job.program.api import Job
from elf.job.program.host import Host, JobError
from elf.job.program.seats import MASTER, masters_name

EDGES: Final = "edges"
"""The subscription that has the edges."""


class GraphJob(Algorithm, Job):
    """A computation over the vertices of a graph, which lie on several agents. A subclass says what edges
    are; take ``PageRank``, ``Components``, ``ShortestPaths``, ``MultiSourcePaths`` or ``KMeans``, or write an
    algorithm of your own.

    Every vertex has a value. In each iteration a vertex tells its value along the edges out of it, hears the
    sum or the least of what comes along the edges into it, and makes a new value of that. All agents do this
    for their vertices at once, over columns, and the master waits for all of them. How many agents have a
    part of the vertices may be changed while it goes on: ``ALTER JOB name SCALE OUT 2``, or ``SCALE IN 1``.

    A query of the job is None (how it goes, and the rows of the last result), ``{"top": n}`` (the first rows
    of it), or ``{"begin": True}`` (a computation begins, and ends the one before).

    What is to be said of values, and of the rows of a result, is in ``Algorithm``.

    Attributes:
        every (float): seconds between two looks of the master.
        edges (str): a query of ELF-QL, as for ``subscribe``: a row for each edge. With WINDOWING the edges of
            a computation are those of the window when it begins, on each agent.
        ends (tuple[str, ...]): its columns with the ends of an edge: from the first to the second. Where
            ``columns`` has names it is one column, with the vertex.
        parts (int): how many agents have a part of the vertices, of those there are; at most 32.
        pause (float): seconds between a computation and the next one. 0: only when it is asked to begin.
        patience (float): seconds after which a computation begins again without agents that say nothing.
        ring (bool): whether a change of ``parts`` lets agents that come split the parts of others, and those
            that leave give theirs to a neighbour (ring-based repartitioning). Else parts are equal after it
            (contiguous repartitioning).

    Example:
        How many edges lead to each vertex:

        >>> class Degrees(GraphJob):
        ...     edges = "SELECT user.name, product, COUNT(*) AS n FROM clicks GROUP BY user.name, product"
        ...     ends = ("user.name", "product")
        ...
        ...     def first(self, vertices, count):
        ...         return vertices.out * 0
        ...
        ...     def tell(self, values, vertices):
        ...         return values * 0 + 1
        ...
        ...     def update(self, values, heard, vertices, count, total):
        ...         return heard
        ...
        ...     def goes_on(self, number, total):
        ...         return number < 1

        >>> master, below = two_agents(Degrees)
        >>> edges = {"user.name": ["ada", "bob"], "product": ["Doom", "Doom"], "n": [1, 3]}
        >>> below.insert(pa.table(edges), "edges")
        >>> below.on_timer()
        >>> master.deliver(b"", {"begin": True})
        'run 1 begins, over 1 agent'
        >>> master.deliver(b"", {"top": 1})
        [{'vertex': 'Doom', 'value': 2.0}]
    """

    every = 1.0
    edges = ""
    ends: Sequence[str] = ()
    parts = 3
    pause = 60.0
    patience = 60.0
    ring = False

    def __init__(self, name: str, creator: str, host: Host) -> None:
        """Made by the agent, as ``Job``.

        Args:
            name (str): the job's name.
            creator (str): the user who submitted it.
            host (Host): what runs the job.
        """
        super().__init__(name, creator, host)
        self._check()
        self._kept: Any = None
        self._hello, self._is_back = False, False
        self._worker: Worker | None = None
        self._barrier: Barrier | None = None

    def _check(self) -> None:
        """Raise ``JobError`` where a setting cannot be."""
        if self.trees != 1:
            raise JobError(f"trees = {self.trees!r}: the master of a graph is that of one tree; set parts=")
        if type(self.parts) is not int or not 1 <= self.parts <= PARTS_MAX:
            raise JobError(f"parts = {self.parts!r}: agents with a part of the graph, 1 to {PARTS_MAX}")
        if type(self.rows) is not int or self.rows < 0:
            raise JobError(f"rows = {self.rows!r}: that are kept of a result, 0 or more")
        if not _is_secs(self.pause) or not _is_secs(self.patience) or not self.patience:
            raise JobError(f"pause = {self.pause!r}, patience = {self.patience!r}: seconds, patience above 0")
        if not self.every:
            raise JobError(f"every = {self.every!r}: seconds between two looks of the master, not none")
        if type(self.ring) is not bool:
            raise JobError(f"ring = {self.ring!r}: True or False")
        if self.combine not in ("sum", "min"):
            raise JobError(f"combine = {self.combine!r}: sum or min")
        if type(self.width) is not int or self.width < 0:
            raise JobError(f"width = {self.width!r}: how many numbers a value has, 0 for one by itself")
        if self.weight and self.columns:
            raise JobError(f"weight = {self.weight!r}: points have no edges; say columns alone")

    # -- to override -----------------------------------------------------------------------------------------

    def own_edges(self) -> pa.Table:
        """The edges of this agent's rows. Without an override the groups of ``edges``.

        Returns:
            pyarrow.Table: with the columns that ``ends``, ``weight`` and ``columns`` name.

        Raises:
            JobError: if ``weight``, or one of ``columns``, is no COUNT or SUM. What your code raises makes
                the job ``failing``.

        Example:
            >>> master, below = two_agents(Degrees)
            >>> below.own_edges().num_rows
            0
        """
        _, keys, states = self._host.tree(EDGES)
        others = {*keys, *(state.name for state in states if state.merge != "sum")}
        if wrong := [name for name in self._numbers() if name in others]:
            why = "what agents have of an edge or point is added up"
            raise JobError(f"{wrong[0]} is no COUNT and no SUM: {why}")
        return self.flush(EDGES)

    # -- how it is done --------------------------------------------------------------------------------------

    def start(self) -> None:
        """Subscribe to the edges.

        Raises:
            JobError: if ``edges`` or ``ends`` says nothing.

        Example:
            >>> class Nothing(Degrees):
            ...     edges = ""

            >>> two_agents(Nothing)
            Traceback (most recent call last):
            elf.job.program.host.JobError: say edges = a query, and ends = its two columns that an edge joins
            >>> two_agents(Degrees)[1].start() is None
            True
        """
        wants_points = bool(self.columns)
        if not self.edges or not are_texts(self.ends) or len(self.ends) != 2 - wants_points:
            if wants_points:
                raise JobError("say edges = a query, and ends = its one column that names a point, in ( ,)")
            raise JobError("say edges = a query, and ends = its two columns that an edge joins")
        self.subscribe(self.edges, name=EDGES)

    def kept_beside(self) -> Any:
        """What this agent has of the graph, or what the master knows of it.

        Returns:
            Message: as ``restore_beside`` takes it.

        Raises:
            Nothing.

        Example:
            >>> master, below = two_agents(Degrees)
            >>> below.restore_beside(below.kept_beside())
            >>> below.kept_beside()["run"]
            0
        """
        return self._master().state if self.is_root else {**self._agent().kept(), "hello": self._hello}

    def restore_beside(self, kept: Any) -> None:
        """The same again.

        Args:
            kept (dict): what ``kept_beside`` gave.

        Raises:
            Nothing.

        Example:
            >>> master, below = two_agents(Degrees)
            >>> master.restore_beside({**master.kept_beside(), "run": 7})
            >>> master.deliver(b"", None)["run"]
            7
        """
        self._kept, self._worker, self._barrier = kept, None, None
        self._hello = self._is_back = kept.get("hello", False)

    def _master(self) -> Barrier:
        if self._barrier is None:
            self._barrier = Barrier(self, self.parts, self.patience, ring=self.ring, kept=self._kept)
        self._barrier.me = self.me
        return self._barrier

    def _agent(self) -> Worker:
        if self._worker is None:
            self._worker = Worker(self.me, self, self._edges, self._kept)
        return self._worker

    def _edges(self) -> pa.Table:
        """Those of this agent: their ends, and their weights if they have some; or points."""
        table, names = self.own_edges(), [*self.ends, *self._numbers()]
        if missing := [name for name in names if name not in table.column_names]:
            known, who = ", ".join(table.column_names), "columns" if self.columns else "weight"
            raise JobError(f"edges has no column {missing[0]}, which ends or {who} names; it has {known}")
        return table.select(names)

    def _numbers(self) -> Sequence[str]:
        """Columns that are neither an end nor a name."""
        return self.columns or ((self.weight,) if self.weight else ())

    def on_timer(self) -> None:
        """An agent says once that it is there, and after that when it is back. The master begins what is due,
        and looks who is silent.

        Raises:
            Nothing.

        Example:
            >>> master, below = two_agents(Degrees)
            >>> below.on_timer()
            >>> master.deliver(b"", None)["agents"]
            ['web-2:7071']
        """
        if not self.is_root:
            word = "back" if self._hello else "hello"
            if self._is_back or not self._hello:
                self._hello, self._is_back = True, False
                self._send([("", {"graph": word, "agent": self.me})])
            return
        master = self._master()
        state = master.state
        if state["phase"] == "idle" and self.pause > 0 and state["agents"]:
            if state["ended"] == 0.0:
                state["ended"] = self.now  # the first one, after a pause too: others may still come
            if self.now >= state["ended"] + self.pause:
                self._send(master.begin(self.now))
        self._send(master.tick(self.now))

    def on_recv(self, node: str, paos: Any) -> None:
        """A message of the computation, which says for whom it is: where that is another agent, the master
        moved, or that agent has left for good.

        Args:
            node (str): the sender's address.
            paos (dict): the message.

        Raises:
            KeyError: for a message that is none: override this for messages of your own.

        Example:
            >>> master, below = two_agents(Degrees)
            >>> master.on_recv(below.me, {"graph": "hello", "agent": below.me, "to": ""})
            >>> master.deliver(b"", None)["agents"]
            ['web-2:7071']
        """
        to = paos["to"]
        if not self.is_root:
            gone = [("", {"graph": "gone", "agent": to})]
            try:
                self._send(self._agent().recv(paos) if to == self.me else gone)
            except JobError as error:  # a message is too large
                self._send(self._agent().refused(paos.get("layout", -1), error))
        elif not to:
            self._send(self._master().recv(paos, self.now))
        elif paos.get("via"):
            self._send(self._master().recv({"graph": "gone", "agent": to}, self.now))
        else:  # for the agent where the master is, or was
            self._send([(to, paos)])

    def _send(self, sends: Sends) -> None:
        for to, word in sends:
            if to:
                self.send_to(to, {**word, "to": to, "via": self.is_root})
            else:
                self._host.send_to(masters_name(MASTER), {**word, "to": ""}, 0)

    def deliver(self, app: bytes, message: Any) -> Any:
        """Other jobs and clients may ask how it goes, and for the rows of the last result.

        Args:
            app (bytes): the sender's app id.
            message (dict | None): see the class.

        Returns:
            Message: the reply.

        Raises:
            JobError: for another question, or if it cannot be done.

        Example:
            >>> master, below = two_agents(Degrees)
            >>> below.on_timer()
            >>> master.deliver(b"", None)["phase"]
            'idle'
        """
        master = self._master()
        match message:
            case None:
                return told(master.state)
            case {"begin": True}:
                sends = master.begin(self.now)
                run, many = master.state["run"], len(master.state["of"])
                self._send(sends)
                return f"run {run} begins, over {many} agent{'s' * (many > 1)}"
            case {"top": int(count)}:
                found = master.state["result"]
                if found is None:
                    return []
                rows = found["rows"]
                return rows.slice(0, min(max(count, 0), len(rows))).to_pylist()
            case {"scale": int(by)} if not app:  # ALTER JOB: a person's query is no such message
                return {"scaled": master.scale(by)}
        raise JobError(f'{self.name} is asked null, {{"top": 10}} or {{"begin": true}}, not {message!r}')


def are_texts(value: object) -> bool:
    """Names of columns or vertices, as a person has set them: not one of them alone."""
    return isinstance(value, list | tuple) and all(isinstance(one, str) for one in value)


def _is_secs(value: object) -> bool:
    return isinstance(value, int | float) and 0 <= value < float("inf")


def told(state: Word) -> Word:
    """What the master knows, for people."""
    result = state["result"]
    plan = state["plan"]
    return {
        "run": state["run"],
        "phase": state["phase"],
        "iteration": state["number"],
        "vertices": state["count"],
        "edges": state["edges"],
        "agents": state["agents"],
        "missing": state["missing"],
        "parts": {who: high - low for who, (low, high) in state["of"].items()},
        "moves to": None if plan is None else {who: high - low for who, (low, high) in plan["of"].items()},
        "waits for": sorted(state["of"].keys() - state["got"].keys()) if state["phase"] != "idle" else [],
        "times": state["times"],
        "note": state["note"],
        "error": state["error"],
        "result": None if result is None else {**result, "rows": result["rows"].to_pylist()},
    }
