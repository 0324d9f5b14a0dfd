"""The durable replicas of snapshots in a simulated fleet: who holds them, and what others had of an agent
that is gone for good."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Set
from typing import TYPE_CHECKING

from agents.disk.store import ReplicaRow
from elf.job.openparts import in_part, is_open
from elf.job.replicas import ReplicaName
from lab.chaos.books import LOST, WRONG, counts_of, short

if TYPE_CHECKING:
    from lab.chaos.ledger import Ledger


class Replicas:
    """See the module's docstring; those of a ``ledger``."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._holders: dict[ReplicaName, set[int]] = defaultdict(set)
        self.gone: dict[int, tuple[ReplicaName, ...]] = {}
        """Agents that are gone for good: the replicas that others had of them then."""

    def kept(self, holder: int, row: ReplicaRow) -> None:
        """A holder has made a replica durable."""
        name = ReplicaName(row.flow, row.member, row.start, row.end, row.part)
        if row.flow not in self._ledger.flows:  # its owner has it from a checkpoint that nobody wrote
            self._ledger.found(WRONG, f"{self._of_copy(holder, name)}: nobody has begun that flow")
            return
        book = self._ledger.books.get((row.flow, self._owner(name)))
        rows = counts_of(row.payload, row.start, row.end)
        if book is None:
            known = False
        elif row.part:
            known = book.parts.get((row.start, row.part)) == rows.get(row.start, Counter())
        else:
            known = (row.start, row.end, row.payload) in book.ranges
        if not known:
            self._ledger.found(WRONG, f"{self._of_copy(holder, name)}: it has made no such snapshot durable")
        self._holders[name].add(holder)

    def deleted(self, holder: int, name: ReplicaName) -> None:
        """A holder has deleted a replica: that is allowed when the snapshot is answered."""
        if holder in self._holders[name]:
            self._holders[name].discard(holder)
            if name.flow not in self._ledger.over and not self._ledger.flows[name.flow].fragment.leap:
                lacking = [pane for pane in self._panes_of_replica(name) if not self.has(name, pane)]
                if lacking:
                    self._ledger.found(
                        LOST, f"{self._of_copy(holder, name)} is deleted; no commit of {lacking[0]} has it"
                    )

    def goes(self, agent: int, others: Set[int]) -> None:
        """An agent is gone for good: what others have of it must be in the last commits."""
        self.gone[agent] = tuple(
            name
            for name, holders in self._holders.items()
            if name.flow in self._ledger.flows and self._owner(name) == agent and holders & others
        )

    def _owner(self, name: ReplicaName) -> int:
        return self._ledger.numbers(self._ledger.flows[name.flow].fragment.stream)[name.member]

    def _of_copy(self, holder: int, name: ReplicaName) -> str:
        panes = f"panes [{name.start}, {name.end}) of {short(name.flow)}, part {name.part}"
        return f"a{holder}'s copy of member {name.member}'s snapshot of {panes}"

    def _panes_of_replica(self, name: ReplicaName) -> range:
        """The panes that have a commit; what is below the flow's first pane is dropped."""
        first = min((start for start, _, _ in self._ledger.panes[name.flow]), default=name.end)
        return self._ledger.panes_of(name.flow, max(name.start, first), name.end)

    def has(self, name: ReplicaName, pane: int) -> bool:
        """Whether the last commit of a pane has the snapshot."""
        word = self._ledger.latest(name.flow, pane)
        if word is None:
            return False
        if not name.part:  # or open parts, of which one says so for all
            return bool((word.members | in_part(word.parts)) >> name.member & 1)
        whole = is_open(name.part) and word.members >> name.member & 1
        return bool(whole) or (name.member, name.part) in word.parts

    def rescued(self, agent: int, pane: int, flow: str, part: int = 0) -> bool:
        """Whether others had a durable replica of an agent's snapshot when the agent was gone for good."""
        names = (name for name in self.gone[agent] if name.flow == flow and name.part == part)
        return any(name.start <= pane < name.end for name in names)
