"""Jobs that work in rounds: a combining tree barrier (paper, section 3.2) out of the calls of ``Job``.

    begin ──multicast──▶ contribute, on every agent ──send_to, combine──▶ … ──▶ finish, at the master

The master begins a round with a message; each agent gives its contribution and waits for those of its
children, combines them, and sends one up. The master gets the whole. A batch is a round; a cycle is rounds of
which each begins with what the last one came to.

Rules: the next round ends the one before, complete or not. A contribution that came too late for its round
(its sender, or somebody on its way, was away) goes to ``late`` on the agent where it got to; with
``keep_late`` it is part of that agent's next one, so that nothing is lost that must not be. Children that
leave the tree are not waited for.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from elf.job.program.api import Host, Job

Lines = dict[str, tuple[int, int, int]]
"""Which lines of each agent's log a result is of: agent → id of the first, id of the last, how many."""


class Rounds(Job, ABC):
    """Override ``contribute``, ``combine``, and ``finish``. Who overrides ``on_multicast`` for messages of
    their own hands those with a ``"round"`` on to this class.
    """

    keep_late: ClassVar[bool] = False
    """Whether what comes too late for a round is part of the next one, as in batches that are emptied."""

    def __init__(self, name: str, creator: str, host: Host) -> None:
        super().__init__(name, creator, host)
        self.round = 0
        """The last round that this agent heard of; the first is 1."""
        self._begun = 0
        self._open = False
        self._message: Any = None
        self._value: Any = None
        self._agents = 0
        self._waiting: set[str] = set()
        self._owed: list[Any] = []
        self._early: list[tuple[str, dict[str, Any]]] = []

    # -- to override -----------------------------------------------------------------------------------------

    def contribute(self, message: Any) -> Any:
        """On every agent: its part of a round; any message."""

    @abstractmethod
    def combine(self, one: Any, other: Any) -> Any:
        """Two contributions as one. Their order says nothing."""

    def finish(self, message: Any, total: Any, agents: int) -> None:
        """At the master: the contributions of so many agents, combined."""

    def late(self, value: Any) -> None:
        """On any agent: a contribution that will not be in its round."""
        if self.keep_late:
            self._owed.append(value)

    # -- to call ---------------------------------------------------------------------------------------------

    def begin(self, message: Any = None) -> None:
        """At the master: the next round."""
        self._begun = max(self._begun, self.round) + 1
        self.multicast({"round": self._begun, "message": message})

    # -- how it is done --------------------------------------------------------------------------------------

    def on_multicast(self, app: bytes, message: Any) -> None:
        if self._open:
            self._open = False
            self.late(self._value)
        self.round, self._message = message["round"], message["message"]
        self._waiting = set(self.children)
        self._value, self._agents, self._open = self.contribute(self._message), 1, True
        owed, self._owed = self._owed, []
        for value in owed:
            self._value = self.combine(self._value, value)
        early, self._early = self._early, []
        for node, contribution in early:
            self.on_recv(node, contribution)
        self._up()

    def on_recv(self, node: str, paos: Any) -> None:
        if paos["round"] > self.round:  # its multicast took another way than ours
            self._early.append((node, paos))
        elif paos["round"] < self.round or not self._open:
            self.late(paos["value"])
        else:
            self._value = self.combine(self._value, paos["value"])
            self._agents += paos["agents"]
            self._waiting.discard(node)
            self._up()

    def _up(self) -> None:
        """When all below have sent theirs, send on what came together."""
        if not self._open or self._waiting.intersection(self.children):
            return
        self._open = False
        if self.is_root:
            self.finish(self._message, self._value, self._agents)
        elif self.parent:
            part = {"round": self.round, "agents": self._agents, "value": self._value}
            self.send_to(self.parent, part)
        else:
            self.late(self._value)


def lines_of(agent: str, paos: pa.Table, count: str) -> Lines:
    """Of groups with the columns ``first``, ``last`` (MIN and MAX of a line's id) and ``count``
    (COUNT(*))."""
    if not paos.num_rows:
        return {}
    first, last, lines = pc.min(paos["first"]), pc.max(paos["last"]), pc.sum(paos[count])
    return {agent: (first.as_py(), last.as_py(), int(lines.as_py()))}


def all_lines(one: Lines, other: Lines) -> Lines:
    """The lines of both."""
    found = dict(one)
    for agent, (first, last, lines) in other.items():
        a, b, c = found.get(agent, (first, last, 0))
        found[agent] = (min(a, first), max(b, last), c + lines)
    return found
