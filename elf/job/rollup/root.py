"""The root of a flow: it decides, once, what a pane is (protocol 5.8, protocol 5.9).

It *collects* pieces (``elf.job.rollup.collect``), *decides* which panes are committed when
(``elf.job.rollup.decide``), and *answers* what has become of a snapshot (``elf.job.rollup.answer``). This
module connects the three: a flow begins, hears watermarks and pieces, proposes one commit at a time, and
hears that the commit is durable, or why it cannot be.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from elf.job.contributions import PartName, Piece, UnusablePieces, bitmap, numbers
from elf.job.effects import CommitPanes
from elf.job.messages.rollup import Decided, FlowProgress
from elf.job.rollup.answer import Answers
from elf.job.rollup.collect import Covered
from elf.job.rollup.decide import Deciding, RootSettings, Stragglers
from elf.job.rollup.decisions import Decisions, follows, heard
from elf.job.rollup.panes import Panes, Segment
from elf.job.snapshots import Threshold
from elf.job.spec import Flow

LOOK_MS: Final = 200
"""The pause between two looks at what is due, while something waits."""


class Root(Panes):
    """See the module's docstring. ``segments`` are those that an earlier life committed."""

    def __init__(self, flow: Flow, settings: RootSettings, segments: Sequence[Segment] = ()) -> None:
        super().__init__(flow, segments)
        self._settings = settings
        self.decisions = Decisions() if follows(flow.fragment) else None
        """Who is in its panes, where another root decides that."""
        self.covered = Covered(self)
        self.stragglers = Stragglers(self, self.covered, settings, self.decisions)
        self.answers = Answers(self, self.covered, self.stragglers, settings, self.decisions)
        self._deciding = Deciding(self, self.covered, self.stragglers)
        self.failure = ""
        """How the flow's reduce function has failed here: it is not tried again."""

    # -- how it begins ---------------------------------------------------------------------------------------

    def prepare(self, now_ms: int, since_ms: int) -> int | None:
        """The first pane of a new flow, known to the members since ``since_ms``: after every ``live_from``,
        when all members have said theirs, or some have and the limit is up. A flow that begins in the past
        begins with the first member that answers: who does not yet is named as missing there. It is durable
        before ``begin``."""
        presence = self.stragglers.presence
        if self._first is not None or not presence.heard:
            return None
        tries = self.flow.fragment.function is not None
        waited = now_ms - since_ms >= (self._settings.try_ms if tries else self._settings.prepare_ms)
        if self.roster.staying & ~presence.heard and not waited:
            return None
        begins = max if self.flow.fragment.since_us is None else min
        return begins(presence[member].progress.live_from for member in presence)

    def begin(self, first_pane: int, now_ms: int) -> None:
        """Commit from this pane on (protocol 6.1); earlier pieces are dropped."""
        if self._first is None:
            self._first = first_pane
            self.stragglers.began(now_ms)

    def set_units(self, panes: int, version: int) -> None:
        """All readers that the log knows by this entry let so many panes be one (``elf.job.units``); 1: they
        do not. A log that is behind what is committed says nothing yet."""
        self.log_at = version
        self.stragglers.unit = panes if version >= self.known_at else 1
        self.covered.allow(self.stragglers.unit)

    # -- what it hears ---------------------------------------------------------------------------------------

    def hear(self, member: int, progress: FlowProgress, now_ms: int) -> bool:
        """Take a member's watermark; return whether it may change what is to be done now."""
        return self.stragglers.hear(member, progress, now_ms)

    def down(self, address: str) -> bool:
        """The overlay says that an agent is dead: nobody waits for it until it is heard again. True if it is
        a member here. Its later pieces make revisions, also if it was never dead."""
        found = [m.number for m in self.roster.members if m.address == address]
        self.stragglers.presence.lose(found)
        return bool(found)

    def take(self, piece: Piece) -> None:
        """Take a partial aggregate, from the tree or directly from a member; refuse what is covered."""
        if piece.unit > 1:
            if self._first is not None and piece.start >= self._first:
                self.covered.add(piece)
            return
        if self._first is not None:
            last_word = self.flow.fragment.leap and self.decisions is None
            piece = piece.clip(self.covered.committed_to() if last_word else self._first, piece.end)
        if piece.excerpt:
            piece = piece.clip(self.stragglers.whole_to(), piece.end)
        if self.decisions is None:
            self.covered.add(piece)
        elif piece.start < piece.end:
            for usable in self.decisions.usable(piece, self.durable_to()):
                self.covered.add(usable)

    def decided(self, said: Decided, now_ms: int) -> None:
        """Another root has decided who is in panes: what is held of them with others goes."""
        if self.decisions is not None:
            heard(self.decisions, said, self.kept_from(), now_ms)
            for start, end, _ in said.spans:
                for together in self.covered.take(start, end):
                    for piece in together:
                        self.take(piece)

    def undecided_from(self) -> int | None:
        """The first pane whose decision is to be asked for; None: there is none for now."""
        if self.decisions is None or self._first is None:
            return None
        known, head = self.decisions.end, self.covered.committed_to()
        if known is None:
            return self.kept_from()
        waits = self.covered.holds() or self.stragglers.passed_to() > head or known < head
        return known if waits and known <= max(head, self.stragglers.passed_to()) else None

    def take_part(self, name: PartName, piece: Piece) -> None:
        """Take a part of late rows, directly from a member; refuse it if it is covered."""
        if piece.end == piece.start + 1 and self.answers.verdict_of_part(name, piece.start) == "send":
            self.covered.add_part(name, piece)

    def told(self, thresholds: tuple[Threshold, ...]) -> None:
        """Set the last thresholds of its agents (``elf.job.thresholds``)."""
        self._deciding.told = thresholds

    # -- commits ---------------------------------------------------------------------------------------------

    def propose(self, now_ms: int) -> list[CommitPanes]:
        """The commit to be made now, if there is one: new panes in order, then revisions of committed ones.

        Only one is in flight at a time, so that panes are committed in the order in which they were proposed.
        """
        if self._first is None or self.covered.in_flight:
            return []
        if not self.covered.proposes():
            self.covered.propose(self._deciding.commits(now_ms))
        return self.covered.launch(plain=bool(self.failure))

    def committed(self, done: CommitPanes, now_ms: int) -> Segment:
        """A proposed commit is durable."""
        self.covered.land(done)
        segment = Segment(done.start, done.end, done.revision, done.members, now_ms, parts=done.parts)
        self.history.add(segment)
        self.covered.kept_whole(done)
        if not done.revision:
            self.note_known(done.roster_version, done.end)
        self.stragglers.committed()
        self.history.compact(self.expected, now_ms - self.revise_ms(self._settings.revise_ms))
        return segment

    def give_up(self, work: CommitPanes) -> None:
        """A proposed commit cannot be made: its contents come again, or are too late."""
        self.covered.give_up(work)

    def unsure(self, work: CommitPanes, now_ms: int) -> list[tuple[int, int, int]]:
        """What was left out of these panes may matter: they are begun again, with all groups. Returns whom to
        ask, as (member, first pane, end)."""
        start, end = work.start, work.end
        pieces = [piece for other in self.covered.withdraw(work) for piece in other.pieces]
        pieces += [piece for together in self.covered.take(start, end) for piece in together]
        self.stragglers.collect_again(start, end, work.added, now_ms)
        for piece in pieces:
            self.take(piece)
        there = self.covered.spans(start, end)
        asked = [n for n in numbers(work.added) if not all(members >> n & 1 for _, _, members in there)]
        self.answers.asked(asked, now_ms)
        return [(number, start, end) for number in asked]

    def unusable(self, work: CommitPanes, unusable: UnusablePieces) -> list[tuple[int, str]]:
        """Pieces of these panes cannot be opened: the panes are proposed again without them. Returns the
        members of the pieces, as contribution sets, and why."""
        proposed, refused = self.covered.withdraw(work), self.covered.refused
        whose = []
        for piece, reason in unusable:
            named = zip(work.new, work.pieces, strict=bool(work.new))
            names = [name for name, part in named if part == piece]
            for name in names:
                refused.add_part(name, piece.start)
            if not piece.offsets and piece.unit == 1:  # the member's own is another
                refused.add(piece)
            whose.append((piece.members or bitmap(number for number, _ in names), reason))
            refused.tell(*whose[-1])
        bad = [piece for piece, _ in unusable]
        for other in proposed:
            for place, piece in enumerate(other.pieces):
                if other is work and piece in bad:
                    continue
                if other.new:
                    self.covered.add_part(other.new[place], piece)
                else:
                    self.take(piece)
        return whose

    # -- time ------------------------------------------------------------------------------------------------

    def deadline(self, now_ms: int) -> int | None:
        """When a tick may change something: a limit or a question comes due, for a flow that is to begin or a
        pane that waits."""
        waits = self.covered.holds() or self.stragglers.passed_to() > self.covered.committed_to()
        waits |= self.undecided_from() is not None
        begins = self._first is None and self.stragglers.presence.heard
        return now_ms + LOOK_MS if waits or begins else None

    def forget(self, below: int) -> None:
        super().forget(below)
        self.covered.refused.forget(self.kept_from())
        if self.decisions is not None:
            self.decisions.forget(self.kept_from())

    def check(self) -> None:
        """Raise ``ElfBug`` when an invariant is broken."""
        super().check()
        self.covered.check()
