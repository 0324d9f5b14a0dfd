"""Whose homes the flows of the catalog log are in, and who is to found those of key ranges.

A flow is in the home of the job that brought it or, of a key range after that job's first, in the range's own
(``elf.job.spec.home_uid``), where an agent was at its address when its entry came. Where a job's home is says
the job's spec; where that of a key range is, what is kept here. Who bootstraps it if the first that was to
does not: ``elf.job.catalog.bootstrap``.

All of it follows from the entries of the log, in their order; nothing of it is stored or sent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from elf.job.catalog.bootstrap import Bootstrap
from elf.job.messages.entries import HomeMoved
from elf.job.spec import Flow, JobSpec, home_uid


@dataclass(frozen=True)
class RangeHome:
    """The home of a key range after a job's first. ``founder``: who bootstraps it, the agent (by its id) that
    was at ``address`` when the log came to its first flow; another agent there later never does.
    ``replaced``: who was to found it before (``elf.job.catalog.bootstrap``); ``begun``: it has been
    bootstrapped."""

    founder: str
    address: str
    replaced: tuple[str, ...] = ()
    begun: bool = False


class FlowHomes:
    """Those of one log. A home is named by its uid: that of its job, or of the key range."""

    def __init__(self) -> None:
        self._homes: dict[str, str] = {}
        """By flow."""
        self._flows: dict[str, dict[str, None]] = {}
        """By home, its flows that have not ended."""
        self._ranges: dict[str, RangeHome] = {}
        self._unbegun: dict[str, None] = {}
        self._terms: dict[str, int] = {}
        """Of the last move of each home."""

    # -- what the log tells ----------------------------------------------------------------------------------

    def add(self, flow: Flow, spec: JobSpec, agents_at: Callable[[str], Sequence[str]]) -> None:
        """A job names a flow: if that is new it is in the job's home, or in that of its key range, if that is
        elsewhere. ``agents_at``: who is at an address, by their ids."""
        if flow.uid in self._homes:
            return
        home = home_uid(spec.uid, flow.fragment.range[0])
        there = agents_at(flow.home)
        apart = home != spec.uid and flow.home != spec.home and spec.replicated
        if home not in self._ranges and apart and there:
            self._ranges[home] = RangeHome(there[-1], flow.home)
            self._unbegun[home] = None
        of = self._homes[flow.uid] = home if home in self._ranges else spec.uid
        self._flows.setdefault(of, {})[flow.uid] = None

    def ended(self, flow: str) -> None:
        """A flow has."""
        home = self._homes[flow]
        del self._flows[home][flow]
        if not self._flows[home]:
            del self._flows[home]

    def move(self, entry: HomeMoved) -> None:
        """A home is elsewhere; that of a key range has begun."""
        self._terms[entry.uid] = entry.term
        if entry.uid in self._ranges:
            self._begin(entry.uid)
            self._ranges[entry.uid] = replace(self._ranges[entry.uid], address=entry.home)

    def decide(self, said: Bootstrap) -> None:
        """The home of a key range has begun, or somebody else is to found it."""
        home = self._ranges.get(said.home)
        if home is None or home.begun or said.founder != home.founder:
            return
        if not said.instead:
            self._begin(said.home)
        elif said.instead not in (home.founder, *home.replaced):
            replaced = (*home.replaced, home.founder)
            self._ranges[said.home] = replace(home, founder=said.instead, replaced=replaced)

    def _begin(self, uid: str) -> None:
        self._ranges[uid] = replace(self._ranges[uid], begun=True)
        self._unbegun.pop(uid, None)

    def forget(self, homes: Iterable[str]) -> None:
        """Those of key ranges of a job that is over."""
        for home in homes:
            self._ranges.pop(home, None)
            self._unbegun.pop(home, None)

    # -- what is asked ---------------------------------------------------------------------------------------

    def of(self, flow: str) -> str | None:
        """The home of a flow: that of the job that bootstrapped it, or of its key range of that job. Of one
        that has ended it may be forgotten."""
        return self._homes.get(flow)

    def flows(self, home: str) -> tuple[str, ...]:
        """The flows of a home that have not ended."""
        return tuple(self._flows.get(home, ()))

    def address(self, uid: str) -> str | None:
        """Where the home of a key range is, or is to be; None: that range has no home of its own."""
        return self._ranges[uid].address if uid in self._ranges else None

    def term(self, uid: str) -> int:
        """Of the last move of a home; 0: it never has."""
        return self._terms.get(uid, 0)

    def named(self, agent_id: str) -> tuple[str, ...]:
        """Homes of key ranges that an agent is to found, and that have never moved."""
        named = (uid for uid, home in self._ranges.items() if home.founder == agent_id)
        return tuple(uid for uid in named if uid not in self._terms)

    def unbegun(self) -> tuple[tuple[str, RangeHome], ...]:
        """The homes of key ranges that nobody has bootstrapped yet, as far as the log says."""
        return tuple((uid, self._ranges[uid]) for uid in self._unbegun)

    def has_begun(self, uid: str, founder: str) -> bool | None:
        """Whether the home of a key range is the group that this agent has bootstrapped; None: the log has
        not decided it."""
        home = self._ranges.get(uid)
        if home is None or founder not in (home.founder, *home.replaced):
            return None  # it has not come to that
        if founder != home.founder:
            return False
        return True if home.begun else None

    def founders(self, uid: str) -> tuple[str, ...]:
        """Who was to found the home of a key range, the last one last."""
        home = self._ranges.get(uid)
        return () if home is None else (*home.replaced, home.founder)

    def group(self, uid: str) -> str:
        """The name of a home's group: that of a key range that another agent bootstrapped has another one."""
        home = self._ranges.get(uid)
        return uid if home is None or not home.replaced else f"{uid}!{home.founder}"
