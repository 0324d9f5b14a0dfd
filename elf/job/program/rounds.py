"""Jobs that work in rounds: a combining tree barrier (paper, section 3.2) made of the calls of ``Job``.

    begin ──multicast──▶ contribute, on every agent ──send_to, combine──▶ … ──▶ finish, at the master

The master begins a round with a message. Each agent makes its contribution, waits for those of its children,
combines them, and sends one up. The master, which is no agent and contributes nothing, gets the whole. A
batch is a round; a cycle is a series of rounds in which each begins with the result of the last one.

Rules: the next round ends the one before, complete or not. A contribution that came too late for its round
(its sender, or somebody on its way, was away) goes to ``late`` on the agent where it got to; with
``keep_late`` it is part of that agent's next one, so that nothing is lost that must not be. Children that
leave the tree are not waited for.

Where rounds go ``at_once`` (protocol 14.20), messages and contributions may be lost, and an agent whose
process ends may contribute twice: of each agent below it an agent takes the first. Two masters never give two
rounds one number: numbers are reserved, many at a time, by a message that leaves with the master's state, and
the next master begins above them. Until the master hears that message its rounds do not go at once.

The examples run without a fleet; ``two_agents`` is as in ``elf.job.program.api``, and ``Adds`` is the class
of the example of ``Rounds``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, Final

import pyarrow as pa
import pyarrow.compute as pc

from elf.job.program.api import Job
from elf.job.program.host import Host, JobError

RESERVED: Final = 1_000
"""Numbers of rounds that a master gives to rounds at once before it reserves more."""
Lines = dict[str, tuple[int, int, int]]
"""The lines of each agent's log that a result is of: agent → id of the first, id of the last, how many."""


class Rounds(Job, ABC):
    """A job that works in rounds. Override ``contribute``, ``combine`` (required) and ``finish``; and
    ``gathered``, where it saves work.

    A subclass that overrides ``on_multicast`` for messages of its own hands those with a ``"round"`` on to
    this class.

    Attributes:
        keep_late (bool): whether what comes too late for a round is part of the next one, as in batches that
            are emptied. False: it is dropped.
        at_once (bool): whether messages and contributions leave at once, and not when the state behind them
            is durable. A round costs less and ends sooner; but where an agent dies in it, it may never end.
            It is for rounds that look at what agents have and take nothing away, at a master that begins the
            next one after a while. Not with ``keep_late``.
        round (int): the last round that this agent heard of; the first is 1.

    Example:
        >>> class Adds(Rounds):
        ...     def contribute(self, message):
        ...         return message["times"] * 2
        ...
        ...     def combine(self, one, other):
        ...         return one + other
        ...
        ...     def finish(self, message, total, agents):
        ...         print(f"round {self.round}: {total} of {agents} agents")

        >>> master, below = two_agents(Adds)
        >>> master.begin({"times": 10})
        round 1: 20 of 1 agents
    """

    keep_late: ClassVar[bool] = False
    """Whether what comes too late for a round is part of the next one, as for batches that are emptied."""
    at_once: ClassVar[bool] = False
    """Whether rounds go at once, and at most once: for looks, which take nothing away."""

    def __init__(self, name: str, creator: str, host: Host) -> None:
        """Made by the agent, as ``Job``.

        Args:
            name (str): the job's name.
            creator (str): the user who submitted it.
            host (Host): what runs the job.
        """
        super().__init__(name, creator, host)
        if self.trees != 1:
            raise JobError(f"trees = {self.trees!r}: rounds are of one tree")
        if self.at_once and self.keep_late:
            raise JobError("at_once and keep_late: what leaves at once may be lost, so none can be kept")
        self.round = 0
        """The last round that this agent heard of; the first is 1."""
        self._begun = 0
        """The last number that was given to a round here."""
        self._reserved = 0
        """The last number that the state says may have been given to one."""
        self._reserving = 0
        """The round whose message leaves with that state; when it comes, the state is durable."""
        self._open = False
        self._message: Any = None
        self._value: Any = None
        self._has_value = False
        self._agents = 0
        self._waiting: set[str] = set()
        self._heard: set[str] = set()
        """Whose contribution to this round has come."""
        self._owed: list[Any] = []
        self._early: list[tuple[str, dict[str, Any]]] = []

    def kept_beside(self) -> Any:
        """The round that is under way, and what is owed to the next one.

        Returns:
            Message: as ``restore_beside`` takes it.

        Raises:
            Nothing.

        Example:
            >>> master, below = two_agents(Adds)
            >>> below.restore_beside(master.kept_beside())
            >>> below.round
            0
        """
        open_ = {"open": self._open, "message": self._message, "value": self._value, "agents": self._agents}
        numbers = {"round": self.round, "begun": max(self._begun, self._reserved)}
        others = {"waiting": self._waiting, "heard": self._heard, "owed": self._owed, "early": self._early}
        return {**open_, **numbers, **others, "has": self._has_value}

    def restore_beside(self, kept: Any) -> None:
        """The same round again.

        Args:
            kept (dict): what ``kept_beside`` gave.

        Raises:
            Nothing.

        Example:
            >>> master, below = two_agents(Adds)
            >>> master.restore_beside({**below.kept_beside(), "round": 7})
            >>> master.round
            7
        """
        self.round, self._begun, self._waiting = kept["round"], kept["begun"], set(kept["waiting"])
        self._open, self._message = kept["open"], kept["message"]
        self._value, self._agents, self._owed = kept["value"], kept["agents"], kept["owed"]
        self._has_value, self._heard = kept["has"], set(kept.get("heard", ()))
        self._early = [(node, contribution) for node, contribution in kept["early"]]

    # -- to override -----------------------------------------------------------------------------------------

    def contribute(self, message: Any) -> Any:
        """On every agent, and not at the master: give the agent's part of a round.

        Args:
            message (Message): what the master has called ``begin`` with.

        Returns:
            Message: this agent's contribution. It is sent up, so it is at most 4 MiB when it is packed.

        Raises:
            What your code raises makes the job ``failing``.
        """

    @abstractmethod
    def combine(self, one: Any, other: Any) -> Any:
        """Make one contribution of two.

        Args:
            one (Message): a contribution, or what ``combine`` has made of several.
            other (Message): another one. The order of both says nothing.

        Returns:
            Message: both together, in the form of a contribution.

        Raises:
            What your code raises makes the job ``failing``.
        """

    def gathered(self, value: Any) -> Any:
        """On every agent: called once a round, with its own contribution and those of all below it, before
        they go on. What is done here is done once, and not each time that ``combine`` is called.

        Args:
            value (Message): what ``combine`` has made of them; its own, where it is the only one.

        Returns:
            Message: the same in the form of a contribution.

        Raises:
            What your code raises makes the job ``failing``.

        Example:
            >>> class Least(Rounds):
            ...     def contribute(self, message):
            ...         return [3, 1]
            ...
            ...     def combine(self, one, other):
            ...         return one + other
            ...
            ...     def gathered(self, value):
            ...         return [min(value)]
            ...
            ...     def finish(self, message, total, agents):
            ...         print(total)

            >>> master, below = two_agents(Least)
            >>> master.begin()
            [1]
        """
        return value

    def finish(self, message: Any, total: Any, agents: int) -> None:
        """At the master: called at the end of a round.

        Args:
            message (Message): what ``begin`` was called with.
            total (Message): all contributions, combined.
            agents (int): how many agents contributed.

        Raises:
            What your code raises makes the job ``failing``.
        """

    def late(self, value: Any) -> None:
        """On any agent: called with a contribution that will not be in its round.

        Without an override it is kept for this agent's next round if ``keep_late``, else dropped.

        Args:
            value (Message): the contribution, or several that were combined.

        Raises:
            What your code raises makes the job ``failing``.

        Example:
            >>> class Loud(Rounds):
            ...     def combine(self, one, other):
            ...         return one
            ...
            ...     def late(self, value):
            ...         print(f"too late: {value}")

            >>> master, below = two_agents(Loud)
            >>> master.on_recv(below.me, {"round": 0, "agents": 1, "value": "mine"})
            too late: mine
        """
        if self.keep_late:
            self._owed.append(value)

    # -- to call ---------------------------------------------------------------------------------------------

    def begin(self, message: Any = None) -> None:
        """At the master: begin the next round. It ends the one before, complete or not.

        Args:
            message (Message): what each agent's ``contribute`` gets.

        Raises:
            JobError: on an agent that is not the master, or if ``message`` cannot be sent.
        """
        self._begun = max(self._begun, self.round) + 1
        at_once = self.at_once and self.round >= self._reserving and self._begun <= self._reserved
        if self.at_once and not at_once:
            self._reserving, self._reserved = self._begun, self._begun + RESERVED
        self.multicast({"round": self._begun, "message": message}, at_once=at_once)

    # -- how it is done --------------------------------------------------------------------------------------

    def on_multicast(self, app: bytes, message: Any) -> None:
        """A round begins: contribute, if this is an agent, and add what came early.

        Args:
            app (bytes): the 16 bytes of this job's app id.
            message (dict): ``round`` (int), and ``message``, what ``begin`` was called with.

        Raises:
            KeyError: for a message without a ``round``: override this for messages of your own.

        Example:
            >>> master, below = two_agents(Adds)
            >>> below.on_multicast(below.app_id, {"round": 1, "message": {"times": 1}})
            >>> below.round, master.round
            (1, 0)
        """
        if self.at_once and message["round"] <= self.round:
            return  # a master's that another one has followed
        if self._open:
            self._open = False
            if self._has_value:
                self.late(self._value)
        self.round, self._message = message["round"], message["message"]
        self._waiting, self._heard = set(self.children), set()
        self._value, self._has_value, self._agents = None, False, 0
        if not self.is_root:
            self._add(self.contribute(self._message), 1)
        self._open = True
        owed, self._owed = self._owed, []
        for value in owed:
            self._add(value)
        early, self._early = self._early, []
        for node, contribution in early:
            self.on_recv(node, contribution)
        self._up()

    def on_recv(self, node: str, paos: Any) -> None:
        """A contribution of a child: combine it, and send on what is complete.

        Args:
            node (str): the child's address.
            paos (dict): ``round`` (int), ``agents`` (int, how many contributed) and ``value``.

        Raises:
            KeyError: for a message that is no contribution.

        Example:
            >>> master, below = two_agents(Adds)
            >>> master.on_multicast(master.app_id, {"round": 1, "message": {"times": 1}})
            >>> master.on_recv(below.me, {"round": 1, "agents": 1, "value": 5})
            round 1: 5 of 1 agents
        """
        if paos["round"] > self.round:  # its multicast took another way than ours
            self._early.append((node, paos))
        elif paos["round"] < self.round or not self._open or (self.at_once and node in self._heard):
            self.late(paos["value"])
        else:
            self._add(paos["value"], paos["agents"])
            self._waiting.discard(node)
            self._heard.add(node)
            self._up()

    def _add(self, value: Any, agents: int = 0) -> None:
        """A contribution for this round; what was too late for another one is of no agent of this one."""
        self._value = self.combine(self._value, value) if self._has_value else value
        self._has_value = True
        self._agents += agents

    def _up(self) -> None:
        """When all children have sent theirs, send the combination on."""
        if not self._open or self._waiting.intersection(self.children) or not self._has_value:
            return
        self._open = False
        value, self._value, self._has_value = self.gathered(self._value), None, False
        if self.is_root:
            self.finish(self._message, value, self._agents)
        elif self.parent:
            part = {"round": self.round, "agents": self._agents, "value": value}
            self.send_to(self.parent, part, at_once=self.at_once)
        else:
            self.late(value)


def lines_of(agent: str, paos: pa.Table, count: str) -> Lines:
    """Which lines of an agent's log groups are made of, by the ids of the lines.

    Args:
        agent (str): the agent's address.
        paos (pyarrow.Table): groups with the integer columns ``first`` and ``last`` (MIN and MAX of a line's
            id), and the one that ``count`` names.
        count (str): the column with COUNT(*) of each group.

    Returns:
        Lines: the agent's entry: id of the first line, id of the last one, number of lines. Empty without
        groups.

    Raises:
        KeyError: if a column is missing.

    Example:
        >>> groups = pa.table({"product": ["Doom", "Myst"], "n": [2, 3], "first": [4, 1], "last": [5, 9]})
        >>> lines_of("web-1:7071", groups, "n")
        {'web-1:7071': (1, 9, 5)}
    """
    if not paos.num_rows:
        return {}
    first, last, lines = pc.min(paos["first"]), pc.max(paos["last"]), pc.sum(paos[count])
    return {agent: (first.as_py(), last.as_py(), int(lines.as_py()))}


def all_lines(one: Lines, other: Lines) -> Lines:
    """The lines of two results together.

    Args:
        one (Lines): the lines of the first.
        other (Lines): those of the second.

    Returns:
        Lines: for each agent of either, the least first id, the greatest last id, and the sum of lines.

    Raises:
        Nothing.

    Example:
        >>> all_lines({"web-1:7071": (1, 9, 5)}, {"web-1:7071": (10, 12, 3), "web-2:7071": (1, 4, 4)})
        {'web-1:7071': (1, 12, 8), 'web-2:7071': (1, 4, 4)}
    """
    found = dict(one)
    for agent, (first, last, lines) in other.items():
        a, b, c = found.get(agent, (first, last, 0))
        found[agent] = (min(a, first), max(b, last), c + lines)
    return found
