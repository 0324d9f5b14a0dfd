"""The callbacks of a job in Python: what its class may override. The calls that it makes are in
``elf.job.program.api``, whose examples these are like."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import pyarrow as pa

from elf.job.program.host import JobError
from elf.job.program.values import Message


class Callbacks:
    """They do nothing unless a class of jobs says otherwise."""

    trees: ClassVar[int | Sequence[str]]

    def start(self) -> None:
        """Called on each agent before anything else, each time that the job's process begins: subscribe here,
        and nowhere else. ``state`` is what it was.

        Raises:
            What your code raises refuses the job when it is submitted. So does a ``start`` that sends.
        """

    def on_timer(self) -> None:
        """Called when ``every`` seconds have passed (paper: OnTimer).

        Raises:
            What your code raises makes the job ``failing``.
        """

    def on_pane(self, start: float, end: float) -> None:
        """Called on agents that read the job's streams, for each pane of ``every_pane`` seconds of event
        time: all rows before its ``end`` have been given, except for those that come late. A pane is told
        once, and in order.

        Args:
            start (float): where the pane starts, in seconds since the epoch.
            end (float): where it ends.

        Raises:
            What your code raises makes the job ``failing``.

        Example:
            >>> class Minutes(Job):
            ...     every_pane = 60.0
            ...
            ...     def start(self):
            ...         self.subscribe("SELECT product, SUM(clicks) AS clicks FROM clicks GROUP BY product")
            ...
            ...     def on_pane(self, start, end):
            ...         self.state["until"] = end

            >>> master, below = two_agents(Minutes)
            >>> below.on_pane(0.0, 60.0)
            >>> below.state
            {'until': 60.0}
        """

    def on_recv(self, node: str, paos: Message) -> None:
        """Called when the job on another agent has called ``send_to`` (paper: OnRecv): once for each call, in
        no certain order.

        Args:
            node (str): the address of that agent, ``"host:port"``.
            paos (Message): what was sent. For partial aggregates a ``pyarrow.Table`` with a row for each
                group, and the columns of the query's SELECT list.

        Raises:
            What your code raises makes the job ``failing``.
        """

    def on_multicast(self, app: bytes, message: Message) -> None:
        """Called on each agent when the master of an application has multicast (paper: OnMulticast).

        Args:
            app (bytes): the 16 bytes of its app id: this job's, or that of one that was subscribed to.
            message (Message): what was sent.

        Raises:
            What your code raises makes the job ``failing``.
        """

    def on_feedback(self, messages: dict[Any, Message]) -> None:
        """Called on an agent when a master has fed back something for keys that it has asked for.

        Args:
            messages (dict): by key, those of these keys alone.

        Raises:
            What your code raises makes the job ``failing``.

        Example:
            >>> class Discounts(Job):
            ...     def on_feedback(self, messages):
            ...         self.state |= messages

            >>> master, below = two_agents(Discounts, name="discounts")
            >>> below.ask_for(["Doom", "Myst"])
            >>> master.feed_back({"Doom": 0.9, "Pong": 0.8})
            >>> below.state
            {'Doom': 0.9}
        """

    def deliver(self, app: bytes, message: Message) -> Message:
        """Called at the master for a message of another application (paper: Deliver). For a query of a job
        with several trees it is called at each master; what they return goes to ``together``. A message of
        ``route`` comes to the master of the first tree.

        Args:
            app (bytes): the 16 bytes of the sender's app id; empty for a client.
            message (Message): what was sent with ``route`` or ``query``.

        Returns:
            Message: the reply, if it was a query.

        Raises:
            What your code raises makes the job ``failing``, and the query fails.
        """
        return None

    def together(self, answers: list[Message]) -> Message:
        """Called at the master of the first tree: make one reply of what ``deliver`` has returned at each
        master. The answers are of almost the same time.

        Without an override: with named trees a dict by their names. Else dicts with different keys, lists and
        tables make one, and other answers a list of them.

        Args:
            answers (list[Message]): in the order of the trees.

        Returns:
            Message: the reply.

        Raises:
            JobError: by default, if dicts have a key in common.
            What your code raises makes the job ``failing``, and the query fails.

        Example:
            >>> class Spread(Popular):
            ...     trees = 2

            >>> master, below = two_agents(Spread)
            >>> master.together([{"Doom": 3}, {"Myst": 1}])
            {'Doom': 3, 'Myst': 1}
        """
        if not isinstance(self.trees, int):
            return dict(zip(self.trees, answers, strict=True))
        first = answers[0]
        if all(isinstance(answer, dict) for answer in answers):
            return _united(answers)
        if all(isinstance(answer, list) for answer in answers):
            return [item for answer in answers for item in answer]  # type: ignore[union-attr]
        if all(isinstance(answer, pa.Table) for answer in answers):
            return pa.concat_tables(answers)
        return first if all(answer is None for answer in answers) else answers

    def on_batch(self, batch: pa.Table, subscription: str) -> None:
        """Called for rows of a stream that was subscribed to with ``stream=``.

        Args:
            batch (pyarrow.Table): rows that this agent has read, with the ``columns`` of the subscription.
            subscription (str): the subscription's name.

        Raises:
            What your code raises makes the job ``failing``.

        Example:
            >>> class Big(Job):
            ...     def start(self):
            ...         self.subscribe(stream="clicks", columns=["product", "clicks"], where="clicks > 9")
            ...         self.seen = []
            ...
            ...     def on_batch(self, batch, subscription):
            ...         self.seen += batch["product"].to_pylist()

            >>> master, below = two_agents(Big)
            >>> below.on_batch(pa.table({"product": ["Doom"], "clicks": [12]}), "clicks")
            >>> below.seen
            ['Doom']
        """

    def on_missed(self, app: bytes, count: int) -> None:
        """Called when multicasts will never come, because this agent was away or is new.

        Args:
            app (bytes): the 16 bytes of the app id that they are of.
            count (int): how many are lost.

        Raises:
            What your code raises makes the job ``failing``.

        Example:
            >>> class Counts(Job):
            ...     lost = 0
            ...
            ...     def on_missed(self, app, count):
            ...         self.lost += count

            >>> master, below = two_agents(Counts)
            >>> below.on_missed(below.app_id, 3)
            >>> below.lost
            3
        """


def _united(answers: list[Any]) -> dict[Any, Any]:
    found: dict[Any, Any] = {}
    for answer in answers:
        if common := [key for key in answer if key in found]:
            raise JobError(f"two trees answer {common[0]!r}: say in together(answers) what that is")
        found |= answer
    return found
