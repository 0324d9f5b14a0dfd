"""Who answers for agents that are dead or behind: the root's side.

``Proxies``: who sends the snapshots of dead agents and, where a job wants mirrors, of those that are behind
(``elf.job.rollup.replication``). For each snapshot that the root wants, it appoints one of the holders that
offer it, and another one only when nothing has come for a while.

``Runs``: who runs the work of an agent that is behind (``elf.job.reexecution``). One pane of an agent is
asked for at a time, of one other agent; of a third one if that cannot, or says nothing for a while, at
growing intervals. The result is taken once, from the agent that was asked last.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final

import msgspec

from elf.job.contributions import Piece, from_bytes, numbers
from elf.job.effects import Send
from elf.job.messages.rollup import NotRun, OfferReplicas, Reexecute, ReplicaVerdict, RunSlice, Whereabouts
from elf.job.openparts import is_open
from elf.job.reexecution import SourceOffsets, Where
from elf.job.rollup.root import Root

PROXY_MS: Final = 3_000
"""How long a proxy may take."""
MIRROR_OF: Final = 4
"""A mirror may take 1 / ``MIRROR_OF`` of the straggler limit, so that a second one can be asked in time."""
SILENT_MS: Final = 3_000
"""An agent that is silent for so long, three beats, is taken for dead here: a replica, or a run of its work,
does no harm. It is not asked to run anything either."""
RUN_MS: Final = 10_000
"""How long a run may take."""
RETRY_MS: Final = 500
"""The pause between two runs of a pane when the first failed; it doubles each time, up to ``DOUBLED_MAX``
times."""
DOUBLED_MAX: Final = 5
FAILED_MAX: Final = 256
"""How many failed panes are remembered."""
AT_ONCE: Final = 4
"""Agents of a flow that are run again at a time."""
LOOKED_AT: Final = 64
"""How many panes are looked at for one that another agent may run."""


class Proxies:
    """For one flow: (member, first pane, end, part) → holder, and when it was appointed. ``proxy_ms``: how
    long it may take."""

    def __init__(self, proxy_ms: int = PROXY_MS) -> None:
        self._proxy_ms = proxy_ms
        self._appointed: dict[tuple[int, int, int, int], tuple[str, int]] = {}
        self.answered: Counter[int] = Counter()
        """Snapshots that others have sent, by member."""

    def offered(self, root: Root, holder: str, offer: OfferReplicas, now_ms: int) -> list[Send]:
        """What a holder is told about the replicas that it has."""
        if root.member(offer.member) is None:
            return []
        found: list[Send] = []
        silent = root.stragglers.is_silent(offer.member, SILENT_MS, now_ms)
        main = [(start, end) for start, end, part in offer.names if not part]
        for start, end, part in offer.names:
            if is_open(part) and any(a <= start < b for a, b in main):
                continue  # it is in the main snapshot, which is here too
            if part:
                words = [(start, end, root.answers.verdict_of_part((offer.member, part), start))]
            else:
                words = root.answers.verdicts(offer.member, start, end, now_ms)
            for first, last, verdict in words:
                if verdict == "wait":
                    continue
                snapshot = (offer.member, first, last, part)
                wanted = silent or root.stragglers.wants_mirror(offer.member, first, now_ms)
                if verdict == "send" and not (wanted and self._appoint(snapshot, holder, now_ms)):
                    continue
                word = ReplicaVerdict(
                    flow=offer.flow, member=offer.member, start=first, end=last, verdict=verdict, part=part
                )
                found.append(Send(holder, word))
        return found

    def take(self, root: Root, sender: str, piece: Piece, now_ms: int) -> None:
        """A piece has come directly: count it if it is wanted and another agent than the member sent it."""
        for number in numbers(piece.members):
            member = root.member(number)
            others = member is not None and member.address != sender
            if others and root.answers.lacks(number, piece.start, piece.end, now_ms):
                self.answered[number] += 1

    def _appoint(self, snapshot: tuple[int, int, int, int], holder: str, now_ms: int) -> bool:
        """Whether this holder is to send it now."""
        self._appointed = {s: one for s, one in self._appointed.items() if now_ms - one[1] < self._proxy_ms}
        return self._appointed.setdefault(snapshot, (holder, now_ms)) == (holder, now_ms)


class _Asked(msgspec.Struct, frozen=True):
    pane: int
    offsets: SourceOffsets
    helper: int
    at_ms: int


class Runs:
    """The runs of one flow. ``by``: (agent, by whom) → panes; ``failed``: agent → how often it did not
    come about, and why the last time."""

    def __init__(self) -> None:
        self._where: dict[int, Where] = {}
        self._asked: dict[int, _Asked] = {}
        self._tried: dict[int, set[int]] = {}
        self._later: dict[tuple[int, int], tuple[int, int]] = {}
        """(Member, pane) whose run failed: how often, and when it is asked for again."""
        self.by: Counter[tuple[int, int]] = Counter()
        self.failed: dict[int, tuple[int, str]] = {}

    def hear(self, message: Whereabouts) -> None:
        """A member says where it is."""
        self._where[message.member] = message.where

    def wanted(self, root: Root, now_ms: int) -> list[Send]:
        """Whom to ask for what now."""
        found: list[Send] = []
        for member in [n for n in self._where if n not in self._asked]:
            if len(self._asked) >= AT_ONCE:
                break
            pane, offsets = self._first(root, member, now_ms)
            reading = self._where[member].reading
            helper = None if offsets is None else self._helper(root, member, now_ms)
            if offsets is None or reading is None or helper is None:
                continue
            self._asked[member] = _Asked(pane, offsets, helper, now_ms)
            word = Reexecute(flow=root.flow.uid, member=member, pane=pane, offsets=offsets, reading=reading)
            to = root.member(helper)
            found += [Send(to.address, word)] if to is not None else []
        return found

    def _first(self, root: Root, member: int, now_ms: int) -> tuple[int, SourceOffsets | None]:
        """The first pane that is wanted and may be run now, and from which source offsets."""
        for pane in _lacking(root, member, now_ms):
            offsets = self._where[member].offsets(pane)
            if offsets is not None and self._later.get((member, pane), (0, 0))[1] <= now_ms:
                return pane, offsets
        return 0, None

    def _helper(self, root: Root, member: int, now_ms: int) -> int | None:
        """Another agent that shares the stream, lives and is not busy; one that was not asked yet comes
        first."""
        busy = {asked.helper for asked in self._asked.values()}
        there = [
            n
            for n in sorted(self._where)
            if n not in (member, *busy) and not root.stragglers.is_silent(n, SILENT_MS, now_ms)
        ]
        tried = self._tried.setdefault(member, set())
        if not set(there) - tried:
            tried.clear()
        helper = next((n for n in there if n not in tried), None)
        if helper is not None:
            tried.add(helper)
        return helper

    def give_up(self, now_ms: int) -> None:
        """Stop waiting for agents that were asked too long ago."""
        for member, asked in list(self._asked.items()):
            if now_ms - asked.at_ms >= RUN_MS:
                self._fail(member, "no answer", now_ms)

    def take(self, root: Root, sender: str, message: RunSlice, now_ms: int) -> bool:
        """Whether this was asked for and is still wanted."""
        for member, asked in self._asked.items():
            ours = from_bytes(message.members) == 1 << member and message.offsets == asked.offsets.number
            span = (message.start, message.end) == (asked.pane, asked.pane + 1)
            if not ours or not span or not self._is_from(root, asked, sender):
                continue
            del self._asked[member]
            self._tried.pop(member, None)
            if not root.answers.lacks(member, asked.pane, asked.pane + 1, now_ms):
                return False  # its own has come
            self.by[member, asked.helper] += 1
            return True
        return False

    def not_run(self, root: Root, sender: str, message: NotRun, now_ms: int) -> None:
        asked = self._asked.get(message.member)
        if asked is not None and asked.pane == message.pane and self._is_from(root, asked, sender):
            self._fail(message.member, message.why, now_ms)

    @staticmethod
    def _is_from(root: Root, asked: _Asked, sender: str) -> bool:
        helper = root.member(asked.helper)
        return helper is not None and helper.address == sender

    def _fail(self, member: int, why: str, now_ms: int) -> None:
        key = (member, self._asked.pop(member).pane)
        times = self._later.pop(key, (0, 0))[0]
        self._later[key] = times + 1, now_ms + (RETRY_MS << min(times, DOUBLED_MAX))
        while len(self._later) > FAILED_MAX:
            del self._later[next(iter(self._later))]
        self.failed[member] = self.failed.get(member, (0, ""))[0] + 1, why


def _lacking(root: Root, member: int, now_ms: int) -> Iterator[int]:
    """The panes that another agent should run for a member that is behind: the member has not said that it
    sealed them, and is not in them, though they have waited."""
    told = root.stragglers.progress_of(member)
    if told is None or root.first_pane is None:
        return
    head, silent = root.covered.committed_to(), root.stragglers.is_silent(member, SILENT_MS, now_ms)
    start = max(root.kept_from(), told.live_from, told.sealed)
    for pane in range(start, min(head, start + LOOKED_AT) + 1):
        if not root.expected(pane) >> member & 1 or not root.answers.lacks(member, pane, pane + 1, now_ms):
            continue
        if pane < head or (
            root.stragglers.is_due(pane) and (silent or root.stragglers.wants_mirror(member, pane, now_ms))
        ):
            yield pane
