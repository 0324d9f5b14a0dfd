"""Who is in a Raft group: its leader sees to it that there are enough members, that they live, and that
this agent may go. One for all groups of an agent; who should be in one is
``elf.job.catalog.voters.wanted``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

import overlay as ring
from agents.node.groups import GroupDesk, GroupStep
from elf.job.catalog.membership import EARLY_MS
from elf.job.catalog.voters import wanted
from overlay.ids import closeness, node_id

STAFF_MS: Final = 2_000
"""Between two looks at a group."""
QUICK_MS: Final = 250
"""Between two looks while somebody is coming: members enter one at a time."""
SHORT_MS: Final = 5_000
"""An agent that was invited is expected for so long."""
HAND_MS: Final = 8_000
"""An agent that is to lead a group has so long to enter it."""
LAST_MS: Final = 2_000
"""So long before that is up it leads as it is, ready or not, once it has entered."""
COMING_MS: Final = 5_000
"""An agent that was invited for so long and did not come is not asked first any more: it may be leaving, too,
and who leaves a group of ours waits for no longer than some seconds."""


@dataclass
class _Watch:
    """One group: since when members are silent, and others invited. ``short``: we lead it, and there could be
    more of us; ``astray_ms``: since when it has us, who lead it, at an address where nobody is; ``heir``: to
    whom we hand it, until then."""

    next_ms: int = 0
    early_ms: int = 0
    short: bool = False
    astray_ms: int | None = None
    silent: dict[str, int] = field(default_factory=dict)
    invited: dict[str, int] = field(default_factory=dict)
    heir: str = ""
    heir_until_ms: int = 0


class Staffing:
    """See the module's docstring. ``going``: this agent is to leave all groups."""

    def __init__(
        self,
        address: str,
        overlay: ring.Overlay,
        desk: GroupDesk,
        *,
        grace_ms: int,
        enrolled: Callable[[str, int], bool] = lambda address, now_ms: True,
    ) -> None:
        """``enrolled``: whether the agent at an address has a key that holds: only such are in groups."""
        self.going = False
        self._enrolled = enrolled
        self._address = address
        self._overlay = overlay
        self._desk = desk
        self._grace_ms = grace_ms
        self._watches: dict[bytes, _Watch] = {}

    def due(self, key: bytes) -> int:
        """When a look at a group is due."""
        watch = self._watches.get(key)
        return 0 if watch is None else watch.next_ms

    def is_due(self, key: bytes, now_ms: int) -> bool:
        """Whether it may be taken now."""
        watch = self._watches.get(key)
        return watch is None or now_ms >= watch.next_ms - watch.early_ms

    def hand_to(self, key: bytes, address: str, now_ms: int) -> None:
        """Hand a group that we lead to another agent: it enters if it is no member, as one more for so
        long, and leads when it has all that we have. Nothing is changed where that takes longer than
        ``HAND_MS``, or somebody else leads by then."""
        watch = self._watches.setdefault(key, _Watch())
        watch.heir, watch.heir_until_ms, watch.next_ms = address, now_ms + HAND_MS, now_ms

    def hurry(self) -> None:
        """Look at all of them now."""
        self._watches.clear()

    def peer_up(self, now_ms: int) -> None:
        """An agent has come: groups that are short look again soon."""
        for watch in self._watches.values():
            if watch.short:
                watch.next_ms, watch.early_ms = min(watch.next_ms, now_ms + QUICK_MS), 0

    def stranded(self, key: bytes, spare: int = 0) -> tuple[str, ...] | None:
        """The members of a group that are dead, if it would have no majority without us, and without so many
        more of those that we take for alive: there are too few live ones, and too few others who could be
        members. None: we can go.

        A group is led on and changed by a majority of those it has; who enters comes before somebody goes.
        """
        standing = self._desk.standing(key)
        voters = [voter.address for voter in standing.membership.voters] if standing is not None else []
        if self._address not in voters:
            return None
        known = {peer.address for peer in self._overlay.peers()}
        others = [address for address in voters if address != self._address]
        live = [address for address in others if address in known]
        coming = [peer for peer in self._overlay.leaf_set() if peer.address not in voters]
        enough = len(live) + len(coming) - spare > (len(voters) - 1) // 2
        # in a large fleet we need not know everybody who is in a group of ours
        works = len(live) - spare >= len(voters) // 2 or len(coming) >= len(voters)
        return None if enough and works else tuple(sorted(set(others) - set(live)))

    def look(
        self,
        key: bytes,
        most: int,
        now_ms: int,
        spared: str = "",
        ready: Callable[[str], bool] = lambda heir: True,
    ) -> list[GroupStep]:
        """Look at one, if it is time to: change who is in it (``most`` at most), one at a time. ``spared``:
        who goes first if there are too many; ``ready``: whether a member may lead it next."""
        if not self.is_due(key, now_ms):
            return []
        standing = self._desk.standing(key) if self.going or self._desk.groups.leads(key) else None
        if standing is None:
            self._watches.pop(key, None)
            if self._desk.holds(key):  # those whom we follow see to it
                self._watches[key] = _Watch(now_ms + STAFF_MS, EARLY_MS)
            return []
        watch = self._watches.setdefault(key, _Watch())
        watch.next_ms, watch.early_ms = now_ms + STAFF_MS, EARLY_MS
        me, voters = self._address, standing.membership.voters
        placed = self._desk.groups.placed(key)
        if standing.leads and placed not in ("", me):
            return self._move(key, watch, placed, now_ms)
        others = [voter.address for voter in voters if voter.address != me]
        watch.short = standing.leads and len(voters) < most
        heirs = [a for a in others if self._desk.groups.alive(a) and a not in standing.going]
        if self.going and (heirs or not standing.leads):
            return self._desk.leave(now_ms)  # a leader without heirs has others in first
        if not standing.leads:
            watch.silent.clear()
            watch.heir = ""
            return []
        heir = watch.heir if now_ms < watch.heir_until_ms else ""
        if heir in others and self._desk.groups.alive(heir):
            may = watch.heir_until_ms - now_ms <= LAST_MS or ready(heir)
            watch.next_ms, watch.early_ms = now_ms + (QUICK_MS if may else 0), 0
            return self._desk.transfer(key, heir, now_ms) if may else []
        members = {member.address for member in standing.membership.members}
        want = wanted(
            [heir, me, *(a for a in others if a != heir)]
            if heir
            else [me, *sorted(others, key=spared.__eq__)],
            self._gone(watch, others, now_ms) | standing.going,
            self._candidates(watch, {me, *others}, members, now_ms),
            self._overlay.place_of,
            most,
        )
        found: list[GroupStep] = []
        for address in (address for address in want if address not in members):
            watch.invited.setdefault(address, now_ms)
            found.extend(self._desk.invite(key, address, now_ms))
        if any(
            now_ms - watch.invited.get(address, -SHORT_MS) < SHORT_MS for address in {*want} - {me, *others}
        ):
            watch.next_ms, watch.early_ms = now_ms + QUICK_MS, 0
        surplus = sorted((a for a in others if a not in want), key=lambda a: a not in watch.silent)
        if surplus and not heir and all(address in (me, *others) for address in want):
            found.extend(self._desk.remove(key, surplus[0], now_ms))
        return found

    def _move(self, key: bytes, watch: _Watch, old: str, now_ms: int) -> list[GroupStep]:
        """This agent was started at another address. It says so when it has been on the ring for a while
        without somebody at the old one: that would be whose data folder it has a copy of."""
        if not self._overlay.ready or any(peer.address == old for peer in self._overlay.peers()):
            watch.astray_ms = None
            return []
        watch.astray_ms = now_ms if watch.astray_ms is None else watch.astray_ms
        return self._desk.move(key, now_ms) if now_ms - watch.astray_ms >= SHORT_MS else []

    def _gone(self, watch: _Watch, others: Sequence[str], now_ms: int) -> set[str]:
        """Members that have been silent for too long, or whose key does not hold; and we, when we go."""
        silent = [address for address in others if not self._desk.groups.alive(address)]
        watch.silent = {address: watch.silent.get(address, now_ms) for address in silent}
        gone = {address for address, since in watch.silent.items() if now_ms - since >= self._grace_ms}
        gone |= {address for address in others if not self._enrolled(address, now_ms)}
        return gone | ({self._address} if self.going else set())

    def _candidates(self, watch: _Watch, voters: set[str], members: set[str], now_ms: int) -> list[str]:
        """Live others of the leaf set, the nearest first; last those that were asked and did not come."""
        mine = node_id(self._address)
        near = [peer.address for peer in self._overlay.leaf_set() if peer.address not in voters]
        near = [address for address in near if self._enrolled(address, now_ms)]
        watch.invited = {a: since for a, since in watch.invited.items() if a in near}
        tried = {a for a, at in watch.invited.items() if now_ms - at >= COMING_MS and a not in members}
        return sorted(near, key=lambda address: (address in tried, closeness(mine, node_id(address))))
