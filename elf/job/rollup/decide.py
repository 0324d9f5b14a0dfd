"""Which panes the root of a flow commits, and when (protocol 4.4, 5.8, 5.9).

The root *expects* the roster of the catalog log, and *awaits* the members of it whose ``live_from`` is at or
below the pane (``Stragglers``). Panes are committed in order: when all awaited members are in, or when the
straggler limit is up. The limit runs from when half of the watermarks have passed the pane. What comes later
from a member that is not in a committed pane becomes a revision: the committed pane plus disjoint
contributions, never a change of what was in it (``Deciding``). So do parts of late rows.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from elf.fields import replace
from elf.job.contributions import PartName, Pieces, bitmap, members_of, numbers
from elf.job.effects import CommitPanes
from elf.job.messages.rollup import FlowProgress
from elf.job.rollup.collect import Covered
from elf.job.rollup.combiner import INTERVALS
from elf.job.rollup.decisions import ALL, Decisions
from elf.job.rollup.panes import Panes, Segment
from elf.job.rollup.presence import Presence
from elf.job.snapshots import Span, Threshold
from elf.job.spec import END_OF_TIME, START_OF_TIME
from elf.ql.plan import Fragment
from overlay.turns import AT_ONCE

MIRROR_OF: Final = 2
"""Mirrors are wanted when 1 / ``MIRROR_OF`` of the straggler limit is up: by then the member itself has been
asked (after ``quiet_ms``), and there is time to ask a second holder if the first is silent."""


UNIT_SLACK_MS: Final = 5_000
"""So long after its unit should have ended a pane is due by itself: members may seal no more before it is
committed, as they have reached the bound of what they retain (protocol 4.8)."""
UNIT_QUIET: Final = 3
"""So many times longer than for panes nobody is asked for those of a unit, which a head holds and merges."""


class RootSettings(msgspec.Struct, frozen=True):
    """Straggler limit: two panes, clamped to ``limit_ms_min`` .. ``limit_ms_max``. ``quiet_ms``: before
    members are asked. ``grace_ms``: an agent that is silent for longer is expected but no longer awaited.
    ``revise_ms``: how long corrections are taken. ``prepare_ms``: how long a new flow waits for members that
    have not said from which pane on they have it; ``try_ms``: the same with a user's function, which they try
    first. ``reader_ms``: how long panes are kept for a silent reader on another node. ``groups_at_once``: how
    many job groups of flows an agent speaks to in a second, in turn (``overlay.turns``). ``patient``: all
    members are awaited, whatever a job says (a finite input)."""

    limit_ms_min: int = 3_000
    limit_ms_max: int = 30_000
    quiet_ms: int = 800
    ask_every_ms: int = 1_000
    grace_ms: int = 300_000
    revise_ms: int = 600_000
    prepare_ms: int = 3_000
    try_ms: int = 5_000
    reader_ms: int = 900_000
    groups_at_once: int = AT_ONCE
    patient: bool = False

    def limit_ms(self, fragment: Fragment) -> int:
        """The straggler limit of a flow without a WAIT of its own."""
        return max(self.limit_ms_min, min(2 * fragment.pane_us // 1000, self.limit_ms_max))


class Whole(msgspec.Struct, frozen=True):
    """Panes ``[start, end)`` of these members are collected again since then, with all groups
    (``elf.job.thresholds``)."""

    start: int
    end: int
    members: int
    at_ms: int


class Stragglers:
    """Which members the panes of a flow wait for, and for how long (``elf.job.stragglers``)."""

    def __init__(
        self, panes: Panes, covered: Covered, settings: RootSettings, decisions: Decisions | None = None
    ) -> None:
        self._panes = panes
        self._covered = covered
        self._settings = settings
        self.decisions = decisions
        """Where another root decides who is in the panes (``elf.job.rollup.decisions``)."""
        self._whole: Whole | None = None
        self._passed: deque[tuple[int, int]] = deque()
        self._above = 0
        """Members whose watermark was seen above the last of these; there is nothing to find while they are
        fewer than half."""
        self._began_ms: int | None = None
        self._behind: dict[int, int] = {}
        """Members that have fallen two intervals behind, and the pane below which they have."""
        self.unit = 1
        """So many panes may be one: the first ones of a unit wait for its last (``elf.job.units``)."""
        self.presence = Presence(settings.grace_ms)

    def began(self, now_ms: int) -> None:
        """The flow begins, or its root does."""
        self._began_ms = now_ms

    # -- watermarks ------------------------------------------------------------------------------------------

    def hear(self, member: int, progress: FlowProgress, now_ms: int) -> bool:
        """Take a member's watermark; return whether it may change what is to be done now. Most do not, and
        each member sends one every second."""
        news = self.presence.hear(member, progress, now_ms)
        last = self.passed_to()
        if progress.sealed + INTERVALS <= last:
            news |= self.fall_behind(member, last - INTERVALS + 1)
        if progress.sealed <= last:
            return news
        self._above |= 1 << member
        there = self._panes.roster.expected(self._unpassed_from()) & self._may_be_there(now_ms)
        above = (self._above | self._gone(now_ms)) & there
        if 2 * above.bit_count() < there.bit_count():
            return news
        half = self.half_passed(now_ms)
        if half is None or half <= last:
            return news
        self._passed.append((now_ms, half))
        self._above = bitmap(n for n in self.presence if self.presence[n].progress.sealed > half)
        return True

    def fall_behind(self, member: int, below: int) -> bool:
        """A member is two intervals behind half of the others in panes below this one, as it says itself, or
        its parent does. A job that leaps over stragglers does not wait for it there; a job with mirrors wants
        one at once. Returns whether that is new."""
        if below <= self._behind.get(member, START_OF_TIME):
            return False
        self._behind[member] = below
        return True

    def is_behind(self, member: int, pane: int) -> bool:
        """Whether it has fallen two intervals behind in this pane."""
        return pane < self._behind.get(member, START_OF_TIME)

    def passed_to(self) -> int:
        """Half of the watermarks were seen to have passed the panes below this one."""
        return self._passed[-1][1] if self._passed else START_OF_TIME

    def _unpassed_from(self) -> int:
        """The first pane for which it is to be found out when half have passed it. What lies below is
        committed, has been passed, or is never asked about."""
        begun = self._panes.first_pane is not None
        return max(self.passed_to(), self._covered.committed_to() if begun else self.presence.latest)

    def half_passed(self, now_ms: int) -> int | None:
        """Half of the expected members have passed every pane below this one; where the dead are awaited,
        half of those that may be there. (All that ever were would be wrong: where more have left than stay,
        half would never pass, so nobody would be asked, and the limit would never be up.)"""
        start, there = self._unpassed_from(), self._may_be_there(now_ms)
        passed: int | None = None
        for end in (*self._panes.roster.edges(start, END_OF_TIME), END_OF_TIME):
            wanted = self._panes.roster.expected(start) & there
            half = self._half_of(wanted, now_ms) if wanted else end
            if half is None or not (wanted or end < END_OF_TIME):
                return passed
            if half < end or end == END_OF_TIME:
                return half if passed is None else max(passed, half)
            start = passed = end
        return passed

    def _half_of(self, members: int, now_ms: int) -> int | None:
        """Half of these say that they have sealed the panes below this one, or are gone."""
        gone = members & self._gone(now_ms)
        told = numbers(members & self.presence.heard & ~gone)
        sealed = sorted((self.presence[n].progress.sealed for n in told), reverse=True)
        sealed = [END_OF_TIME] * gone.bit_count() + sealed
        need = (members.bit_count() + 1) // 2
        return sealed[need - 1] if need <= len(sealed) else None

    def _gone(self, now_ms: int) -> int:
        """Members that have left and are silent: they pass no pane any more. One of a flow that begins in the
        past may have left before it had sealed what it was there for."""
        roster = self._panes.roster
        return roster.all & ~roster.staying & ~self.presence.there(now_ms)

    def _may_be_there(self, now_ms: int) -> int:
        """Members that are heard (or, soon after a beginning, may yet be heard); all members where the dead
        are not awaited."""
        if self._wait_ms is None:
            return self._panes.roster.all
        there = self.presence.there(now_ms)
        if self._is_new(now_ms):
            there |= ~(self.presence.heard | self.presence.dead)
        return self._panes.roster.all & there

    def progress_of(self, member: int) -> FlowProgress | None:
        """How far a member has said that it is; None: it has said nothing."""
        told = self.presence.get(member)
        return None if told is None else told.progress

    def committed(self) -> None:
        """More panes are committed: when they were passed no longer matters."""
        while len(self._passed) > 1 and self._passed[1][1] <= self._covered.committed_to():
            self._passed.popleft()
        head = self._covered.committed_to()
        self._behind = {member: below for member, below in self._behind.items() if below > head}

    # -- for whom --------------------------------------------------------------------------------------------

    def awaited(self, pane: int, now_ms: int) -> int:
        """Members that a commit of this pane waits for, as a contribution set."""
        there = self.presence.begun(pane) & self.presence.there(now_ms)
        return self._panes.expected(pane) & there & ~self._covered.refused.at(pane)

    def wanted(self, pane: int, now_ms: int) -> int:
        """As ``awaited``, with the dead where these are awaited, and without those that are leapt over since
        they are two intervals behind; of panes that are collected again, the members that were in them."""
        decided = None if self.decisions is None else self.decisions.members(pane)
        if decided is not None and decided != ALL:
            return decided & ~self._covered.refused.at(pane)
        wanted = self.awaited(pane, now_ms)
        if self._panes.flow.fragment.leap:
            wanted &= ~bitmap(member for member in self._behind if self.is_behind(member, pane))
        if self._wait_ms is not None:
            wanted |= self._begun(pane)
        if self._whole is not None and pane < self._whole.end:
            wanted &= self._whole.members
        return wanted

    def _begun(self, pane: int) -> int:
        """All members that are expected in a pane, except those that say that they began later."""
        begun = self.presence.begun(pane) | ~self.presence.heard
        return self._panes.expected(pane) & begun & ~self._covered.refused.at(pane)

    def lacks_words(self, pane: int, now_ms: int) -> bool:
        """Whether this root has just (re)started, and a member of the roster has not yet said how far it
        is."""
        unheard = self._panes.expected(pane) & ~(self.presence.heard | self.presence.dead)
        return bool(unheard) and self._is_new(now_ms)

    def _is_new(self, now_ms: int) -> bool:
        """Whether the root is so new that a member which has said nothing to it may still be there."""
        return self._began_ms is None or now_ms - self._began_ms <= self.limit_ms() + self.presence.later_ms

    def is_silent(self, number: int, silent_ms: int, now_ms: int) -> bool:
        """Whether a member is taken for dead, or was due to report for this long and did not."""
        return self.presence.is_silent(number, silent_ms, self._began_ms, now_ms)

    def are_silent(self, members: int, now_ms: int) -> bool:
        """Whether each of them is silent, for the straggler limit."""
        return all(self.is_silent(number, self.limit_ms(), now_ms) for number in numbers(members))

    def is_deserted(self, pane: int, now_ms: int) -> bool:
        """Whether all that are expected in a pane are silent, so that nobody's watermark will pass it; where
        the job waits for the dead, for as long as it does."""
        expected, limit_ms = self._panes.expected(pane), self.limit_ms()
        silent = self.presence.is_unheard if self.waits_for_all else self.presence.is_silent
        return bool(expected) and all(
            silent(number, limit_ms, self._began_ms, now_ms) for number in numbers(expected)
        )

    # -- for how long ----------------------------------------------------------------------------------------

    @property
    def _wait_ms(self) -> int | None:
        """How long the job waits for all members (``STRAGGLERS WAIT``)."""
        wait_us = None if self._settings.patient else self._panes.flow.fragment.wait_us
        return None if wait_us is None else wait_us // 1000

    @property
    def waits_for_all(self) -> bool:
        """Whether the job waits for all members, dead or alive."""
        return self._wait_ms is not None

    def limit_ms(self) -> int:
        """The straggler limit: two panes, clamped, or what the job says."""
        if self._wait_ms is not None:
            return self._wait_ms
        return self._settings.limit_ms(self._panes.flow.fragment)

    def is_due(self, pane: int) -> bool:
        """Whether half of the roster's watermarks have passed this pane, or it was begun again."""
        return self._due_ms(pane) is not None

    def waits_for_unit(self, pane: int, now_ms: int) -> bool:
        """Whether a pane that is not committed will come as part of a unit, so that it is not asked for."""
        quiet_ms = UNIT_QUIET * self._settings.quiet_ms
        coming = self.unit > 1 and pane >= self._covered.committed_to()
        return coming and not self.has_waited(pane, quiet_ms, now_ms)

    def has_waited(self, pane: int, for_ms: int, now_ms: int) -> bool:
        """Whether it has been due for this long."""
        due_ms = self._due_ms(pane)
        return due_ms is not None and now_ms - due_ms >= for_ms

    def is_expired(self, pane: int, now_ms: int) -> bool:
        """Whether the straggler limit is up. It is not while members read their archives for this pane: each
        reads as fast as its host lets it (protocol 13.4)."""
        decided = None if self.decisions is None else self.decisions.at(pane)
        if decided is not None and now_ms - decided.at_ms < self.limit_ms():
            return False
        if not self.has_waited(pane, self.limit_ms(), now_ms):
            return False
        since = self._panes.flow.fragment.since_us is not None
        return not (since and self.presence.in_their_past(pane, now_ms) & self.awaited(pane, now_ms))

    def _due_ms(self, pane: int) -> int | None:
        """When half of the roster's watermarks had passed this pane, or it was begun again."""
        if self._whole is not None and pane < self._whole.end:
            return self._whole.at_ms
        passed = next((at_ms for at_ms, half in self._passed if half > pane), None)
        if self.unit == 1 or passed is None:
            return passed
        last = pane // self.unit * self.unit + self.unit - 1
        whole = next((at_ms for at_ms, half in self._passed if half > last), None)
        rest_ms = (last - pane) * self._panes.flow.fragment.pane_us // 1_000 + UNIT_SLACK_MS
        return passed + rest_ms if whole is None else min(whole, passed + rest_ms)

    def wants_mirror(self, member: int, pane: int, now_ms: int) -> bool:
        """Whether a member that is missing in this pane is so far behind that neighbours are to answer for
        it, dead or alive (``STRAGGLERS MIRROR``)."""
        mirror, waits_ms = self._panes.flow.fragment.mirror, self.limit_ms() // MIRROR_OF
        return mirror and (self.is_behind(member, pane) or self.has_waited(pane, waits_ms, now_ms))

    def collect_again(self, start: int, end: int, members: int, now_ms: int) -> None:
        """Panes are begun again, with all groups of these members."""
        self._whole = Whole(start, end, members, now_ms)

    def whole_to(self) -> int:
        """Below this pane no piece is taken in which groups are left out."""
        return START_OF_TIME if self._whole is None else self._whole.end

    def edges(self, start: int, end: int) -> list[int]:
        """The panes inside ``(start, end)`` at which the awaited members, or the time since when, change."""
        edges = self.presence.beginnings(start, end) | set(self._panes.roster.edges(start, end))
        edges |= self.decisions.edges() if self.decisions is not None else set()
        edges |= set(self._behind.values()) if self._panes.flow.fragment.leap else set()
        edges |= {half for _, half in self._passed} | set(self._covered.refused.edges()) | {self.whole_to()}
        return sorted(edge for edge in edges if start < edge < end)


class Deciding:
    """Which panes are to be committed now. ``told``: the last thresholds of the flow's agents
    (``elf.job.thresholds``)."""

    def __init__(self, panes: Panes, covered: Covered, stragglers: Stragglers) -> None:
        self._panes = panes
        self._covered = covered
        self._stragglers = stragglers
        self.told: tuple[Threshold, ...] = ()

    def commits(self, now_ms: int) -> list[CommitPanes]:
        """New panes in order, or, if there are none, revisions of committed ones."""
        if found := self._next_panes(now_ms) or list(self._late_units()):
            return found
        return list(self._revisions()) or list(self._part_revisions())

    def _next_panes(self, now_ms: int) -> list[CommitPanes]:
        head, parts_to = self._covered.committed_to(), self._covered.open_to()
        found: list[CommitPanes] = []
        blocks = self._covered.blocks(head)
        for start, end, covered in self._spans(head, max(self._covered.held_to(head), parts_to), blocks):
            block = next((one for one in blocks if one[0] <= start < one[1]), None)
            if not self._is_ready(start, covered, parts_to, now_ms):
                if block is not None and self._is_overdue(block[0], start, now_ms):
                    self._covered.refuse_units(*block)
                break
            if block is not None:
                found += [self._together(*block)] if end == block[1] else []
            elif covered:
                found.extend(self._commit(pieces) for pieces in self._covered.take(start, end))
            else:
                found.append(self._of(start, end, ()))
        return found

    def _is_ready(self, pane: int, covered: int, parts_to: int, now_ms: int) -> bool:
        """Whether panes from this one on, of which these members are held, are to be committed: as they are,
        or as empty ones where there is nobody."""
        stragglers = self._stragglers
        if (decided := self._decided(pane)) is None:
            return False
        if not (covered or decided) or (
            not covered and pane < parts_to and stragglers.is_deserted(pane, now_ms)
        ):
            return True
        expired = stragglers.is_expired(pane, now_ms)
        missing = stragglers.wanted(pane, now_ms) & ~covered
        if not expired and (not covered or missing or stragglers.lacks_words(pane, now_ms)):
            return False
        return bool(covered) or stragglers.are_silent(stragglers.awaited(pane, now_ms) & decided, now_ms)

    def _is_overdue(self, first: int, pane: int, now_ms: int) -> bool:
        """Whether panes from this first one on, which are to be committed with a later one, have waited for
        it for as long as their unit may take, and half have not passed that yet: they may be members that
        seal no more before these are committed, as they have reached the bound of what they retain."""
        return self._stragglers.has_waited(first, 0, now_ms) and not self._stragglers.is_due(pane)

    def _together(self, start: int, end: int) -> CommitPanes:
        """A commit of panes in which there are units (protocol 4.11)."""
        pieces, members = self._covered.take_block(start, end)
        return replace(self._of(start, end, ()), pieces=pieces, members=members, whole=True)

    def _decided(self, pane: int) -> int | None:
        """Who is in a pane; ``ALL`` where that is decided here, None where it is not decided yet."""
        decisions = self._stragglers.decisions
        return ALL if decisions is None else decisions.members(pane)

    def _spans(self, start: int, end: int, blocks: Sequence[Span]) -> Iterator[tuple[int, int, int]]:
        """What is held, split also where the set of awaited members changes, where the limit runs out, and
        where ``blocks`` begin and end. It is lazy, as the first span may have to wait."""
        if start >= end:
            return
        bounds = {edge for block in blocks for edge in block if start < edge < end}
        inner = sorted({*self._stragglers.edges(start, end), *bounds})
        for left, right in zip([start, *inner], [*inner, end], strict=True):
            yield from self._covered.spans(left, right)

    def _revisions(self) -> Iterator[CommitPanes]:
        for below, pieces in self._covered.take_late():
            yield self._commit(pieces, below)

    def _late_units(self) -> Iterator[CommitPanes]:
        for below, unit in self._covered.take_late_units():
            yield self._commit((unit,), below)

    def _part_revisions(self) -> Iterator[CommitPanes]:
        """A revision of each committed pane for which parts are held."""
        for below, pane, parts in self._covered.take_parts():
            yield self._of(pane, pane + 1, tuple(parts.values()), below, tuple(parts))

    def _commit(self, pieces: Pieces, below: Segment | None = None) -> CommitPanes:
        return self._of(pieces[0].start, pieces[0].end, pieces, below)

    def _of(
        self,
        start: int,
        end: int,
        pieces: Pieces,
        below: Segment | None = None,
        new: tuple[PartName, ...] = (),
    ) -> CommitPanes:
        """A commit of these pieces, on top of what is ``below`` them."""
        members, parts = members_of(pieces), run_again(pieces) | frozenset(new)
        return CommitPanes(
            self._panes.flow,
            start,
            end,
            pieces,
            0 if below is None else below.revision + 1,
            members if below is None else below.members | members,
            max(self._panes.roster.version, self._panes.log_at),
            parts if below is None else below.parts | parts,
            new,
            told=self.told,
        )


def run_again(pieces: Pieces) -> frozenset[PartName]:
    """The members among pieces whose work another agent has run, and from which source offsets, as kept with
    the commit: under names that no part has (``elf.job.reexecution``). Each such piece is of one pane."""
    runs = (piece for piece in pieces if piece.offsets)
    return frozenset((number, -piece.offsets) for piece in runs for number in numbers(piece.members))
