"""The root of a flow: decides, once, what a pane is (protocol 5.8, protocol 5.9).

It *expects* the roster of the stream log and *awaits* those of them whose ``live_from`` is at or below the
pane. Panes are committed in order: when everybody awaited is in, or when the straggler limit is up (it runs
from when half of the watermarks have passed the pane: protocol 4.4). Members that are missing after a moment
of quiet are asked directly. What comes for a committed pane from a member that is not in it becomes a
revision: the committed one plus disjoint contributions, never a change of what was in. So do parts of late
rows (``elf.job.parts``). A member whose snapshot cannot be opened is missing (``elf.job.rollup.refused``).

Covered is what is committed, being committed (proposed), or held; a piece that overlaps any of these is
refused, and only such a piece (protocol 4.3).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from elf.errors import ElfBug
from elf.job.contributions import Batch, PartName, Piece, Pile, UnusablePieces, bitmap, numbers
from elf.job.effects import CommitPanes
from elf.job.log.streamlog import Member
from elf.job.messages import FlowProgress
from elf.job.parts import HeldParts
from elf.job.rollup.history import Segment
from elf.job.rollup.panes import Panes
from elf.job.rollup.presence import Presence
from elf.job.rollup.refused import Refused
from elf.job.rollup.waiting import why
from elf.job.snapshots import Threshold
from elf.job.spec import END_OF_TIME, START_OF_TIME, Flow
from elf.ql.plan import Fragment
from overlay.turns import AT_ONCE

MIRROR_OF: Final = 2
"""Mirrors are wanted when this part of the straggler limit is up: by then a member has been asked itself
(after ``quiet_ms``), and a second holder can be asked where the first one is silent."""
LOOK_MS: Final = 200
"""Between two looks at what is due, while something waits."""


@dataclass(frozen=True)
class RootSettings:
    """Straggler limit: two panes, clamped to ``limit_ms_min`` .. ``limit_ms_max``. ``quiet_ms`` before
    members are asked; ``grace_ms``: an agent silent for longer is expected but no longer awaited;
    ``revise_ms``: how long corrections are taken. ``prepare_ms``: how long a new flow waits for members that
    have not said from which pane on they have it, and ``try_ms`` one with a user's function, which they try
    first. ``reader_ms``: how long panes are kept for a reader on another node that says nothing.
    ``homes_at_once``: an agent speaks to so many homes of flows a second, in turn (``overlay.turns``).
    ``patient``: everybody is waited for, whatever a job says (a finite input).
    """

    limit_ms_min: int = 3_000
    limit_ms_max: int = 30_000
    quiet_ms: int = 800
    ask_every_ms: int = 1_000
    grace_ms: int = 300_000
    revise_ms: int = 600_000
    prepare_ms: int = 3_000
    try_ms: int = 5_000
    reader_ms: int = 900_000
    homes_at_once: int = AT_ONCE
    patient: bool = False

    def limit_ms(self, fragment: Fragment) -> int:
        """The straggler limit of a flow without a WAIT of its own."""
        return max(self.limit_ms_min, min(2 * fragment.pane_us // 1000, self.limit_ms_max))


@dataclass(frozen=True)
class Whole:
    """Panes ``[start, end)`` of these members are collected again since then, with all groups
    (``elf.job.thresholds``)."""

    start: int
    end: int
    members: int
    at_ms: int


class Root(Panes):
    """See the module's docstring. ``segments`` are those that an earlier life committed."""

    def __init__(self, flow: Flow, settings: RootSettings, segments: Sequence[Segment] = ()) -> None:
        super().__init__(flow, segments)
        self._settings = settings
        self._presence = Presence(settings.grace_ms)
        self._held = Pile()
        self._late = Pile()
        self._parts = HeldParts()
        self._refused = Refused()
        self._proposed: list[CommitPanes] = []
        self._in_flight = False
        self._whole: Whole | None = None
        self.told: tuple[Threshold, ...] = ()
        """The last thresholds of its agents (``elf.job.thresholds``)."""
        self._passed: deque[tuple[int, int]] = deque()
        self._above = 0
        """Members whose watermark was seen above the last of these: fewer than half of them are not half."""
        self._asked_ms: dict[int, int] = {}
        self._began_ms: int | None = None
        self.refused = 0
        self.failure = ""
        """How the flow's reduce function has failed here: it is not tried again."""

    # -- what it is told -------------------------------------------------------------------------------------

    def prepare(self, now_ms: int, since_ms: int) -> int | None:
        """Of a new flow, known to the members since ``since_ms``: the first pane, after every ``live_from``,
        when all members have said theirs, or some have and the limit is up. It is durable before ``begin``.
        """
        presence = self._presence
        if self._first is not None or not presence.heard:
            return None
        tries = self.flow.fragment.function is not None
        waited = now_ms - since_ms >= (self._settings.try_ms if tries else self._settings.prepare_ms)
        if self._roster.staying & ~presence.heard and not waited:
            return None
        return max(presence[member].progress.live_from for member in presence)

    def begin(self, first_pane: int, now_ms: int) -> None:
        """Commit from this pane on (protocol 6.1); what lies below is dropped."""
        if self._first is None:
            self._first = first_pane
            self._began_ms = now_ms

    def hear(self, member: int, progress: FlowProgress, now_ms: int) -> bool:
        """A member's watermark. Whether it may change what is to be done now: most words don't, and there is
        one of each member each second."""
        news = self._presence.hear(member, progress, now_ms)
        last = self._passed[-1][1] if self._passed else START_OF_TIME
        if progress.sealed <= last:
            return news
        self._above |= 1 << member
        there = self._roster.expected(self._passed_to()) & self._may_be_there(now_ms)
        if 2 * (self._above & there).bit_count() < there.bit_count():
            return news
        half = self._half_passed(now_ms)
        if half is None or half <= last:
            return news
        self._passed.append((now_ms, half))
        self._above = bitmap(n for n in self._presence if self._presence[n].progress.sealed > half)
        return True

    def _passed_to(self) -> int:
        """From this pane on it is to be found out when half have passed it: what lies below is committed, has
        been passed, or is never asked about."""
        last = self._passed[-1][1] if self._passed else START_OF_TIME
        return max(last, self._presence.latest if self._first is None else self.committed_to())

    def _half_passed(self, now_ms: int) -> int | None:
        """Of those who are expected in it half have passed every pane below this one; where the dead are
        waited for, half of the others. (Not of all that ever were: where more have left than stay that would
        never be half, and nobody would be asked for anything, nor the limit be up.)"""
        start, there = self._passed_to(), self._may_be_there(now_ms)
        passed: int | None = None
        for end in (*self._roster.edges(start, END_OF_TIME), END_OF_TIME):
            wanted = self._roster.expected(start) & there
            half = self._half_of(wanted) if wanted else end
            if half is None or not (wanted or end < END_OF_TIME):
                return passed
            if half < end or end == END_OF_TIME:
                return half if passed is None else max(passed, half)
            start = passed = end
        return passed

    def _half_of(self, members: int) -> int | None:
        """Half of these say that they have sealed what is below."""
        told = numbers(members & self._presence.heard)
        sealed = sorted((self._presence[n].progress.sealed for n in told), reverse=True)
        need = (members.bit_count() + 1) // 2
        return sealed[need - 1] if need <= len(sealed) else None

    def _may_be_there(self, now_ms: int) -> int:
        """Members of whom something is (or, soon after a beginning, may yet be) heard; all where the dead are
        not waited for."""
        if self._wait_ms is None:
            return self._roster.all
        there = self._presence.there(now_ms)
        if self._is_new(now_ms):
            there |= ~(self._presence.heard | self._presence.dead)
        return self._roster.all & there

    def take(self, piece: Piece) -> None:
        """A partial result, from the tree or straight from a member. Parts that overlap what is covered are
        refused.
        """
        for usable in self._refused.rest(piece):
            self._take(usable)

    def _take(self, piece: Piece) -> None:
        head = self.committed_to()
        if self._first is not None:
            floor = head if self.flow.fragment.leap else self._first
            piece = piece.clip(floor, piece.end)
        if piece.excerpt and self._whole is not None:
            piece = piece.clip(self._whole.end, piece.end)
        if piece.start >= piece.end or not piece.members:
            return
        if piece.start < head:
            done = [(s.start, s.end, s.members) for s in self._history]
            done += [(p.batch.start, p.batch.end, 0) for p in self._proposed if p.revision == 0]
            for start, end, members in done:
                part = piece.clip(start, end)
                if part.start >= part.end:
                    continue
                if part.members & members:
                    self.refused += (part.members & ~members) != 0
                else:
                    self._hold(self._late, part)
        if piece.end > head:
            self._hold(self._held, piece.clip(head, piece.end))

    def take_part(self, name: PartName, piece: Piece) -> None:
        """A part of late rows, straight from a member; refused if it is here or committed already."""
        if piece.end != piece.start + 1 or self.verdict_of_part(name, piece.start) != "send":
            self.refused += 1
        else:
            self._parts.add(name, piece)

    def down(self, address: str) -> bool:
        """The overlay says that a member is dead: until it is heard of again nobody waits for it. True if it
        is one of ours. What it has then comes as a revision, also if it was never dead."""
        found = [m.number for m in self._roster.members if m.address == address]
        self._presence.lose(found)
        return bool(found)

    def _hold(self, pile: Pile, piece: Piece) -> None:
        for proposed in self._proposed:
            batch = proposed.batch
            if batch.members & piece.members and batch.start < piece.end and piece.start < batch.end:
                for part in (piece.clip(piece.start, batch.start), piece.clip(batch.end, piece.end)):
                    if part.start < part.end:
                        self._hold(pile, part)
                return
        pile.add(piece)

    # -- what it decides -------------------------------------------------------------------------------------

    def committed_to(self) -> int:
        """Panes below this one are committed, or are being committed."""
        if self._first is None:
            return START_OF_TIME
        ends = [p.batch.end for p in self._proposed if p.revision == 0]
        return max([self._first, *ends, *([self._history.end] if self._history else [])])

    def propose(self, now_ms: int) -> list[CommitPanes]:
        """The commit to be made now, if there is one: new panes in order, then revisions of committed ones.

        Only one is in flight at a time, so that panes are committed in the order in which they were proposed.
        """
        if self._first is None or self._in_flight:
            return []
        if not self._proposed:
            self._proposed.extend(self._next_panes(now_ms) or self._revisions() or self._part_revisions())
        if self._proposed and self.failure:
            self._proposed[0] = replace(self._proposed[0], plain=True)
        self._in_flight = bool(self._proposed)
        return self._proposed[:1]

    def _next_panes(self, now_ms: int) -> list[CommitPanes]:
        head = self.committed_to()
        found: list[CommitPanes] = []
        top = max([head, *(piece.end for piece in self._held), *self._refused.edges()])
        for start, end, covered in self._spans(head, top):
            awaited = self.awaited(start, now_ms)
            wanted = awaited if self._wait_ms is None else awaited | self._begun(start)
            if self._whole is not None and start < self._whole.end:
                wanted &= self._whole.members
            due = self._due_ms(start)
            expired = due is not None and now_ms - due >= self.limit_ms()
            if not expired and (not covered or wanted & ~covered or self._unheard(start, now_ms)):
                break
            if covered:
                found.extend(self._commit(self._held, start, end, 0))
            elif all(self.is_silent(number, self.limit_ms(), now_ms) for number in numbers(awaited)):
                nobody = Batch(start, end, 0, ())
                found.append(CommitPanes(self.flow, nobody, 0, 0, self._roster.version, self.flow.epoch))
            else:
                break
        return found

    def _unheard(self, pane: int, now_ms: int) -> bool:
        """Just (re)started, and somebody of the roster has not yet said how far it is."""
        unheard = self._roster.expected(pane) & ~(self._presence.heard | self._presence.dead)
        return bool(unheard) and self._is_new(now_ms)

    def _is_new(self, now_ms: int) -> bool:
        """So new a root that whoever has said nothing to it yet may be there all the same."""
        return self._began_ms is None or now_ms - self._began_ms <= self.limit_ms() + self._presence.later_ms

    def _spans(self, start: int, end: int) -> Iterator[tuple[int, int, int]]:
        """Like ``Pile.spans``, cut also where the set of awaited members changes and where the limit runs
        out; one after the other, since the first may have to wait.
        """
        if start >= end:
            return
        edges = self._presence.beginnings(start, end) | set(self._roster.edges(start, end))
        edges |= {half for _, half in self._passed} | set(self._refused.edges())
        edges |= {self._whole.end} if self._whole is not None else set()
        inner = sorted(edge for edge in edges if start < edge < end)
        for left, right in zip([start, *inner], [*inner, end], strict=True):
            yield from self._held.spans(left, right)

    def _commit(self, pile: Pile, start: int, end: int, revision: int) -> list[CommitPanes]:
        base, parts = 0, frozenset[PartName]()
        if revision:
            below = self._history.within(start, start + 1)[0]
            base, parts = below.members, below.parts
        version, epoch = self._roster.version, self.flow.epoch
        return [
            CommitPanes(
                self.flow,
                batch,
                revision,
                base | batch.members,
                version,
                epoch,
                parts=parts | _run_again(batch),
                told=self.told,
            )
            for batch in pile.take(start, end)
        ]

    def _revisions(self) -> list[CommitPanes]:
        found: list[CommitPanes] = []
        for segment in list(self._history):
            if not self._late:
                break
            found.extend(self._commit(self._late, segment.start, segment.end, segment.revision + 1))
        return found

    def _part_revisions(self) -> list[CommitPanes]:
        """A revision of each committed pane for which parts are held."""
        return [
            CommitPanes(
                self.flow,
                Batch(pane, pane + 1, 0, tuple(pieces.values())),
                below.revision + 1,
                below.members,
                self._roster.version,
                self.flow.epoch,
                parts=below.parts | pieces.keys(),
                new=tuple(pieces),
            )
            for pane, pieces in self._parts.take(self.committed_to())
            for below in self._history.within(pane, pane + 1)
        ]

    def committed(self, done: CommitPanes, now_ms: int) -> Segment:
        """A proposed commit is durable."""
        self._land(done)
        batch = done.batch
        segment = Segment(batch.start, batch.end, done.revision, done.members, now_ms, parts=done.parts)
        self._history.add(segment)
        while len(self._passed) > 1 and self._passed[1][1] <= self.committed_to():
            self._passed.popleft()
        self._history.compact(self.expected, now_ms - self.revise_ms(self._settings.revise_ms))
        return segment

    def give_up(self, work: CommitPanes) -> None:
        """A proposed commit cannot be made: what it would have brought comes again, or is too late."""
        self._land(work)

    def _land(self, work: CommitPanes) -> None:
        """The commit that was in flight is so no more."""
        if not self._in_flight or self._proposed.pop(0) != work:
            raise ElfBug("a commit that is not the one in flight")
        self._in_flight = False

    def unsure(self, work: CommitPanes, now_ms: int) -> list[tuple[int, int, int]]:
        """What was left out of these panes may matter: they are begun again, with all groups. Returns who is
        to be asked, as (member, first pane, end).
        """
        self._land(work)
        start, end, members = work.batch.start, work.batch.end, work.batch.members
        pieces = [piece for other in (work, *self._proposed) for piece in other.batch.pieces]
        pieces += [piece for batch in self._held.take(start, end) for piece in batch.pieces]
        self._proposed.clear()
        self._whole = Whole(start, end, members, now_ms)
        for piece in pieces:
            self.take(piece)
        there = self._held.spans(start, end)
        asked = [n for n in numbers(members) if not all(covered >> n & 1 for _, _, covered in there)]
        self._asked_ms |= dict.fromkeys(asked, now_ms)
        return [(number, start, end) for number in asked]

    def unusable(self, work: CommitPanes, unusable: UnusablePieces) -> list[tuple[int, str]]:
        """Pieces of these panes cannot be opened: they are proposed again without them. Returns whose they
        are, as contribution sets, and why."""
        self._land(work)
        proposed, self._proposed = [work, *self._proposed], []
        whose = []
        for piece, reason in unusable:
            named = zip(work.new, work.batch.pieces, strict=bool(work.new))
            names = [name for name, part in named if part == piece]
            for name in names:
                self._refused.add_part(name, piece.start)
            if not piece.mark:  # the member's own is another
                self._refused.add(piece)
            whose.append((piece.members or bitmap(number for number, _ in names), reason))
            self._refused.tell(*whose[-1])
        bad = [piece for piece, _ in unusable]
        for other in proposed:
            for place, piece in enumerate(other.batch.pieces):
                if other is work and piece in bad:
                    continue
                if other.new:
                    self._parts.add(other.new[place], piece)
                else:
                    self.take(piece)
        return whose

    def told_unusable(self) -> dict[str, tuple[int, str]]:
        """Of agents, how many pieces could not be opened, and why the last one."""
        told = ((self.member(number), said) for number, said in self._refused.told.items())
        return {member.name: said for member, said in told if member is not None}

    def forget(self, below: int) -> None:
        super().forget(below)
        self._refused.forget(self.kept_from())

    # -- who is missing --------------------------------------------------------------------------------------

    def awaited(self, pane: int, now_ms: int) -> int:
        """Members that a commit of this pane waits for, as a contribution set."""
        there = self._presence.begun(pane) & self._presence.there(now_ms)
        return self._roster.expected(pane) & there & ~self._refused.at(pane)

    def run_by_mark(self, member: int, pane: int) -> int:
        """From which mark another has run the member's work in a committed pane; 0: from none."""
        return max((segment.mark_of(member) for segment in self._history.within(pane, pane + 1)), default=0)

    def is_silent(self, number: int, silent_ms: int, now_ms: int) -> bool:
        """Whether a member is taken for dead, or owed us a word for so long and none came."""
        return self._presence.is_silent(number, silent_ms, self._began_ms, now_ms)

    def wants_mirrors(self, pane: int, now_ms: int) -> bool:
        """Whether whoever is not in this pane yet is so far behind that neighbours are to answer for it, dead
        or alive (``STRAGGLERS MIRROR``)."""
        due = self._due_ms(pane) if self.flow.fragment.mirror else None
        return due is not None and now_ms - due >= self.limit_ms() // MIRROR_OF

    def _begun(self, pane: int) -> int:
        """All that are expected in a pane, but those that say that they began later."""
        begun = self._presence.begun(pane) | ~self._presence.heard
        return self._roster.expected(pane) & begun & ~self._refused.at(pane)

    @property
    def _wait_ms(self) -> int | None:
        """How long the job waits for everybody (``STRAGGLERS WAIT``)."""
        wait_us = None if self._settings.patient else self.flow.fragment.wait_us
        return None if wait_us is None else wait_us // 1000

    def limit_ms(self) -> int:
        """The straggler limit: two panes long, clamped, or what the job says."""
        if self._wait_ms is not None:
            return self._wait_ms
        return self._settings.limit_ms(self.flow.fragment)

    def is_due(self, pane: int) -> bool:
        """Whether half of the roster's watermarks have passed this pane, or it was begun again."""
        return self._due_ms(pane) is not None

    def _due_ms(self, pane: int) -> int | None:
        """When half of the roster's watermarks had passed this pane, or it was begun again."""
        if self._whole is not None and pane < self._whole.end:
            return self._whole.at_ms
        return next((at_ms for at_ms, half in self._passed if half > pane), None)

    def missing(self, now_ms: int) -> list[tuple[int, int, int]]:
        """(member, first pane, end) to be asked for now: sealed there, quiet for a moment, and not here."""
        if self._first is None:
            return []
        wanted = []
        head = self.committed_to()
        told = {
            member: (start, progress.sealed)
            for member in self._presence
            if (start := max(head, (progress := self._presence[member].progress).live_from)) < progress.sealed
            and not self._presence.dead >> member & 1
            and now_ms - self._asked_ms.get(member, now_ms - 10**9) >= self._settings.ask_every_ms
        }
        spans = self._held.spans(head, max(end for _, end in told.values())) if told else []
        for member, (start, sealed) in told.items():
            for begin, end, covered in spans:
                left, right = max(begin, start), min(end, sealed)
                if left >= right or covered >> member & 1 or self._refused.at(left) >> member & 1:
                    continue
                due = self._due_ms(left)
                if due is not None and now_ms - due >= self._settings.quiet_ms:
                    self._asked_ms[member] = now_ms
                    wanted.append((member, left, right))
                    break
        return wanted

    def verdicts(self, member: int, start: int, end: int, now_ms: int) -> list[tuple[int, int, str]]:
        """Of a retained snapshot: (first pane, end, verdict). Where agents are leapt over each committed pane
        has its own, ``included`` or ``leapt``; elsewhere all of them have one."""
        if not self.flow.fragment.leap or self._first is None:
            return self._verdicts_beside_runs(member, start, end, now_ms)
        begin = max(start, self._first)
        known = self._history.within(begin, end)
        found = [(start, min(end, self._first), "final")]
        found += [(begin, min(end, self._history.start), "leapt")] if self._history else []
        for one in known:
            word = "included" if one.members >> member & 1 else "leapt"
            found.append((max(begin, one.start), min(end, one.end), word))
        rest = max(begin, self.durable_to())
        found += [(rest, end, self.verdict(member, rest, end, now_ms))] if rest < end else []
        return [(a, b, word) for a, b, word in found if a < b]

    def _verdicts_beside_runs(
        self, member: int, start: int, end: int, now_ms: int
    ) -> list[tuple[int, int, str]]:
        """What another has run has its own verdict, ``answered``, a segment each."""
        found, begin = list[tuple[int, int, str]](), start
        for segment in self._history.within(start, end):
            if segment.mark_of(member):
                first, last = max(segment.start, start), min(segment.end, end)
                if begin < first:
                    found.append((begin, first, self.verdict(member, begin, first, now_ms)))
                found.append((first, last, "answered"))
                begin = last
        if begin < end:
            found.append((begin, end, self.verdict(member, begin, end, now_ms)))
        return found

    def verdict(self, member: int, start: int, end: int, now_ms: int) -> str:
        """Of a retained snapshot: ``included``, ``final`` (too late), ``send``, or ``wait`` (it is held or
        not its turn).
        """
        if self._first is None:
            return "wait"
        floor = self._history.start if self._history else self._first
        if end <= max(floor, self._first):
            return "final"
        inside = self._history.within(start, end)
        if inside and all(s.members >> member & 1 for s in inside) and inside[-1].end >= end:
            return "included"
        if (
            inside
            and all(now_ms - s.at_ms > self.revise_ms(self._settings.revise_ms) for s in inside)
            and inside[-1].end >= end
        ):
            return "final"
        spans = self._held.spans(start, end) + self._late.spans(start, end)
        held = any(covered >> member & 1 for _, _, covered in spans)
        return "wait" if held or self._refused.overlaps(member, start, end) else "send"

    def lacks(self, member: int, start: int, end: int, now_ms: int) -> bool:
        """Whether a snapshot of these panes would add to what is committed, proposed or held."""
        proposed = [p.batch for p in self._proposed if p.batch.members >> member & 1]
        coming = any(batch.start < end and start < batch.end for batch in proposed)
        return not coming and self.verdict(member, start, end, now_ms) == "send"

    def verdict_of_part(self, name: PartName, pane: int) -> str:
        """Of a retained part, as ``verdict``."""
        if self._first is None:
            return "wait"
        if pane < (self._history.start if self._history else self._first):
            return "final"
        if any(name in segment.parts for segment in self._history.within(pane, pane + 1)):
            return "included"
        coming = any(name in p.new and p.batch.start == pane for p in self._proposed)
        waits = coming or self._parts.has(pane, name) or self._refused.has_part(name, pane)
        return "wait" if waits else "send"

    # -- what it shows ---------------------------------------------------------------------------------------

    def why(self, time_of: Callable[[int], int | None], now_ms: int) -> str:
        """Why nothing is committed for a while (``elf.job.rollup.waiting``)."""
        staying = self._roster.staying
        if self._first is None:
            silent = ", ".join(m.name for m in self._members(staying & ~self._presence.heard))
            return f"the flow begins when its agents have answered; missing: {silent or 'none'}"
        pane = self.durable_to()
        awaited = self.awaited(pane, now_ms)
        told = {m.name: self._presence[m.number] for m in self._members(staying & awaited)}
        late = [m.name for m in self._members(staying & ~awaited & self._roster.expected(pane))]
        found = why(told, late, pane, time_of, now_ms)
        more = (
            f"; the job waits up to {self.limit_ms() / 1000:g} s for them" if late and self._wait_ms else ""
        )
        spoilt = sorted(f"{name} ({said})" for name, (_, said) in self.told_unusable().items())
        return found + more + (f"; what comes of {', '.join(spoilt)} cannot be opened" if spoilt else "")

    def reached(self) -> tuple[str, ...]:
        """Ids of the agents that run the flow and have not left."""
        return tuple(m.agent_id for m in self._members(self._roster.staying & self._presence.heard))

    def _members(self, found: int) -> list[Member]:
        return [m for m in self._roster.members if found >> m.number & 1]

    def has_heard(self, member: int) -> bool:
        """Whether a member has said how far it is."""
        return self._presence.get(member) is not None

    def progress_of(self, member: int) -> FlowProgress | None:
        """How far a member has said that it is."""
        told = self._presence.get(member)
        return None if told is None else told.progress

    def sealed_of(self, member: int) -> int | None:
        told = self.progress_of(member)
        return None if told is None else told.sealed

    def deadline(self, now_ms: int) -> int | None:
        """When a tick may change something: a limit or a question comes due, of a flow that is to begin or of
        a pane that waits."""
        waits = self._held or (self._passed and self._passed[-1][1] > self.committed_to())
        return now_ms + LOOK_MS if waits or (self._first is None and self._presence.heard) else None

    def check(self) -> None:
        """Raise ``ElfBug`` when an invariant is broken."""
        super().check()
        self._held.check()
        self._late.check()
        for segment in self._history:
            for piece in self._late:
                if (
                    piece.start < segment.end
                    and segment.start < piece.end
                    and piece.members & segment.members
                ):
                    raise ElfBug(
                        f"held again: members {numbers(piece.members & segment.members)} at {piece.start}"
                    )


def _run_again(batch: Batch) -> frozenset[PartName]:
    """Who is in a batch by another's run of its work, and from which mark, as they are kept with the commit:
    names that no part has (``elf.job.again``). Each such piece is of one pane and so is its batch."""
    runs = (piece for piece in batch.pieces if piece.mark)
    return frozenset((number, -piece.mark) for piece in runs for number in numbers(piece.members))
