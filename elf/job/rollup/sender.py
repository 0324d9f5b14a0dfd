"""A worker's side of its flows: what is sealed goes up, and is retained until a commit includes it (protocol
4.6).

Each node has one ``Sender``, with a line for each flow: the combiner through which our own slices and our
children's go up, and the names of the snapshots that we owe. A snapshot is forgotten when the root says that
a commit includes it, or that it is too late (then it is counted as left out). The stream task counts what was
dropped (``elf.job.stragglers``). A snapshot that is not confirmed for a while is offered to the root again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import msgspec

from elf.job.commands import Resume, SetThreshold, Suspend
from elf.job.contributions import Piece, Pieces, from_bytes
from elf.job.effects import Combine, Effect, Fetch, Forget, Send, Unusable, Work
from elf.job.events import Combined
from elf.job.messages.rollup import (
    Behind,
    Committed,
    EarlyState,
    FlowProgress,
    LeaveOut,
    Offer,
    Progress,
    Resend,
    Slice,
    Verdict,
    Whereabouts,
)
from elf.job.openparts import is_open
from elf.job.reexecution import Where
from elf.job.replicas import ReplicaName
from elf.job.rollup.border import HELD_BYTES_MAX, Border
from elf.job.rollup.combiner import SELF, Combiner, wait_ms
from elf.job.rollup.decisions import follows
from elf.job.rollup.retained import Retained
from elf.job.rollup.slices import reissued, slice_of
from elf.job.snapshots import Early, Name, Sealed, Threshold
from elf.job.spec import END_OF_TIME, START_OF_TIME, Flow
from elf.job.stamps import is_stamped
from elf.job.units import held_panes
from elf.planning.rests import Rest
from overlay.turns import AT_ONCE, Turns

SNAPSHOT_OVERHEAD = 256
"""Bytes that a snapshot takes besides its contents."""
OFFERED_MAX = 200
"""Snapshots that are offered to a root at a time."""
SENT_MAX = 8
SENT_BYTES_MAX = 1 << 20
"""Of a flow, what has gone up and is kept until it is in a commit: so many pieces, and bytes."""
SENT_ALL_BYTES_MAX = 16 << 20
"""The same of all flows together."""


@dataclass
class _Line:
    """One flow."""

    flow: Flow
    combiner: Combiner
    retained: Retained = field(default_factory=Retained)
    progress: FlowProgress | None = None
    counts: Counter[str] = field(default_factory=Counter)
    task: Mapping[str, int] = field(default_factory=dict)
    suspended: bool = False
    border: Border = field(default_factory=Border)
    rest: Rest = field(default_factory=Rest)
    sent: list[tuple[str, Piece]] = field(default_factory=list)
    """What has gone to a parent that is not the root, and is in no commit yet; with that parent."""


class Sender:
    """See the module's docstring. ``parent_of``, ``children_of`` and ``depth_of`` look into the overlay's
    trees."""

    def __init__(
        self,
        parent_of: Callable[[bytes], str | None],
        children_of: Callable[[bytes], tuple[str, ...]],
        number_of: Callable[[str], int | None],
        *,
        incarnation: int,
        beat_ms: int = 1_000,
        groups_at_once: int = AT_ONCE,
        offer_ms: int = 3_000,
        retained_bytes_max: int = 256 << 20,
        eager: bool = False,
        combine_ms: int | None = None,
        depth_of: Callable[[bytes], int] = lambda _: 1,
        ranges_of: Callable[[Flow], Iterable[Flow]] = lambda _: (),
        crosses: Callable[[str], bool] = lambda _: False,
        crossed: Callable[[str, int], None] = lambda to, size: None,
        unit_of: Callable[[Flow], int] = lambda _: 1,
        hold_us: Callable[[Flow], int | None] = lambda _: None,
    ) -> None:
        """``eager``: neighbours get each snapshot at once. ``combine_ms``: how long combiners below the root
        wait (``elf.job.rollup.combiner.wait_ms``). ``crosses``: whether an address is in another region;
        ``crossed`` is told of bytes that are sent to one.
        ``unit_of``: how many panes of a flow may be one; ``hold_us``: how long a head holds them at the
        border, at most (None: as long as that takes; ``elf.job.units``)."""
        self._crosses, self._crossed = crosses, crossed
        self._unit_of = unit_of
        self._hold_us = hold_us
        self._holding: dict[str, _Line] = {}
        """Lines that hold something at the border."""
        self._combine_ms = combine_ms
        self._depth_of = depth_of
        self._ranges_of = ranges_of
        self._eager = eager
        self._parent_of = parent_of
        self._children_of = children_of
        self._number_of = number_of
        self._incarnation = incarnation
        self._beat_ms = beat_ms
        self._offer_ms = offer_ms
        self._retained_bytes_max = retained_bytes_max
        self._lines: dict[str, _Line] = {}
        self._sent_bytes = 0
        self._gathering: dict[str, _Line] = {}
        """Lines whose combiner holds something: they are few, and are looked at with every event."""
        self._job_groups: Turns[str] = Turns(groups_at_once)
        self._next_beat_ms = 0
        self._next_offer_ms = 0
        self._earlies = 0
        self.left_out = self.rested = 0
        """Snapshots that came too late; how often it was measured what comes after a map."""
        self.unusable = 0
        """Pieces of children (or our own) that could not be opened, since the start."""
        self.within = self.across = 0
        """Bytes of slices that were sent since the start, to nodes of our region and to others."""

    # -- flows -----------------------------------------------------------------------------------------------

    def add(
        self,
        flow: Flow,
        retained: Mapping[Name, int] | None = None,
        *,
        suspended: bool = False,
        sealed: int = END_OF_TIME,
    ) -> None:
        """A flow of this node; ``retained``: snapshots from before a restart, and their sizes in bytes;
        ``sealed``: panes from there on are open."""
        line = self._lines.setdefault(flow.uid, _Line(flow, Combiner()))
        line.suspended |= suspended
        owed = retained or {}
        if owed:
            line.retained.sealed_to(sealed)
        main = [name[:2] for name in owed if not name[2]]
        for name, size in owed.items():
            waits = name[0] >= sealed or any(start <= name[0] < end for start, end in main)
            if is_open(name[2]) and waits and not suspended:
                line.retained.reserve(name, size)
            else:
                line.retained.add(name, size, 0)

    def restored(self) -> list[Effect]:
        """After a restart: do again what the last answers led to. The snapshots may be forgotten while the
        stream task's last checkpoint still says that their flow is suspended, or the other way round."""
        return [effect for line in self._lines.values() for effect in self._quota(line)]

    def new_leader(self, flow: Flow) -> None:
        """The root of a flow is elsewhere now: it hears at once how far we are, and what we owe."""
        line = self._lines.get(flow.uid)
        if line is not None:
            line.flow = flow
            line.retained.offer_again()
            self._job_groups.forget(flow.leader)
            self._next_beat_ms = self._next_offer_ms = 0

    def remove(self, uid: str) -> list[Effect]:
        self._gathering.pop(uid, None)
        self._holding.pop(uid, None)
        line = self._lines.pop(uid, None)
        if line is None:
            return []
        self._keep_sent(line, [])
        return [Forget(uid, whole_flow=True)]

    def flows(self) -> tuple[Flow, ...]:
        return tuple(line.flow for line in self._lines.values())

    def owing(self) -> bool:
        """Whether a snapshot of any flow is owed, or in reserve."""
        return any(line.retained.is_kept() for line in self._lines.values())

    def retained(self) -> int:
        """Snapshots (names) that are still owed."""
        return sum(len(line.retained) for line in self._lines.values())

    def owed_since(self, before_ms: int) -> Iterator[tuple[ReplicaName, int]]:
        """The snapshots that were sealed by then and are still owed, and all owed ones of flows that are
        copied at once, with the open parts of panes; with sizes in bytes."""
        for uid, line in self._lines.items():
            number = self._number_of(line.flow.fragment.stream)
            if number is None:
                continue
            for name, size in line.retained.since(None if self.is_copied_at_once(uid) else before_ms):
                yield ReplicaName(uid, number, *name), size
            for name, size in line.retained.reserved() if self._eager else ():
                yield ReplicaName(uid, number, *name), size

    def is_copied_at_once(self, uid: str) -> bool:
        """Whether neighbours get the snapshots of a flow as soon as they are made: copies are eager, or the
        job says so (``STRAGGLERS MIRROR``)."""
        line = self._lines.get(uid)
        return line is not None and (self._eager or line.flow.fragment.mirror)

    def leader_of(self, uid: str) -> str:
        """Where the root of a flow is."""
        line = self._lines.get(uid)
        return line.flow.leader if line is not None else ""

    def owes(self, uid: str) -> bool:
        line = self._lines.get(uid)
        return line is not None and line.retained.is_left()

    # -- up --------------------------------------------------------------------------------------------------

    def sealed(self, sealed: Sealed, now_ms: int) -> list[Effect]:
        """Our own stream task has sealed panes, and their checkpoint is durable. Parts go directly to the
        root."""
        line = self._lines.get(sealed.flow)
        number = self._number_of(line.flow.fragment.stream) if line else None
        if line is None or number is None:
            return []
        size = len(sealed.counters) + len(sealed.payload) + SNAPSHOT_OVERHEAD
        if is_open(sealed.part):
            name = (sealed.start, sealed.end, sealed.part)
            if line.suspended:  # its pane is dropped: no main snapshot will come
                line.retained.add(name, size, now_ms)
            else:
                line.retained.reserve(name, size)
            return []
        waits_ms = 0 if sealed.part else self._unit_ends_ms(line.flow, sealed.end)
        line.retained.add((sealed.start, sealed.end, sealed.part), size, now_ms + waits_ms)
        if sealed.part:
            return [*self._direct(line.flow, reissued(line.flow, number, [sealed])), *self._quota(line)]
        spent = tuple(line.retained.sealed_to(sealed.end))
        counters, payload = sealed.excerpt or (sealed.counters, sealed.payload)
        piece = Piece(sealed.start, sealed.end, 1 << number, counters, payload, sealed.excerpt is not None)
        line.combiner.add(SELF, piece, now_ms)
        forget = [Forget(line.flow.uid, spent)] if spent else []
        return [*forget, *self.flush(line.flow, now_ms), *self._quota(line)]

    def mapped(self, sealed: Sealed, at_ms: int, late_ms: int) -> None:
        """The rows of panes that our stream task has sealed were all mapped then, so long after their
        deadline."""
        line, pane = self._lines.get(sealed.flow), sealed.end - 1
        if line is not None and not sealed.part and is_stamped(pane, line.flow.fragment.pane_us):
            line.rest.mapped(pane, at_ms, late_ms)

    def _unit_ends_ms(self, flow: Flow, end: int) -> int:
        """How long after the last of these panes its unit ends: nothing becomes of them before."""
        unit = self._unit_of(flow)
        return -end % unit * flow.fragment.pane_us // 1_000 if unit > 1 and abs(end) < END_OF_TIME else 0

    def early(self, early: Early) -> list[Effect]:
        """Send open panes of our own directly to the root; the next message makes up for a lost one."""
        line = self._lines.get(early.flow)
        number = self._number_of(line.flow.fragment.stream) if line else None
        if line is None or number is None:
            return []
        self._earlies += 1
        state = EarlyState(
            flow=early.flow,
            member=number,
            incarnation=self._incarnation,
            number=self._earlies,
            start=early.start,
            end=early.end,
            counters=early.counters,
            payload=early.payload,
        )
        return [Send(line.flow.leader, state)]

    def _quota(self, line: _Line) -> list[Effect]:
        """Quotas are per flow (protocol 4.8): a dead root must not stop the other flows of this agent."""
        held = line.retained.bytes
        stream = line.flow.fragment.stream
        if not line.suspended and held > self._retained_bytes_max:
            line.suspended = True  # open panes are dropped: what is not in their open parts
            line.retained.release(START_OF_TIME, END_OF_TIME)
            return [Work(stream, Suspend(line.flow.uid))]
        if line.suspended and held < self._retained_bytes_max // 2:
            line.suspended = False
            return [Work(stream, Resume(line.flow.uid))]
        return []

    def carry(self, child: str, flow: Flow, piece: Piece, now_ms: int) -> list[Effect]:
        """Carry a child's slice; this node may be no worker of the flow, only in its tree."""
        line = self._lines.setdefault(flow.uid, _Line(flow, Combiner()))
        if piece.unit > 1:  # only a border may merge it further, with units that others have sent
            line.combiner.heard(child, piece.end)
            return [*self._onward(line, piece, now_ms), *self.flush(flow, now_ms)]
        line.combiner.add(child, piece, now_ms)
        return self.flush(flow, now_ms)

    def reshaped(self, topic: bytes, now_ms: int) -> list[Effect]:
        """We are in a tree in another way: who was waited for may be elsewhere now."""
        waiting = {**self._gathering, **self._holding}
        gathering = [line.flow for line in waiting.values() if line.flow.topic == topic]
        return [effect for flow in gathering for effect in self.flush(flow, now_ms)]

    def flush(self, flow: Flow, now_ms: int) -> list[Effect]:
        line = self._lines[flow.uid]
        found: list[Effect] = []
        root = self._parent_of(flow.topic) is None
        depth = self._depth_of(flow.topic)
        line.combiner.wait_ms = wait_ms(flow.fragment.pane_us, depth, self._combine_ms)
        for pieces in line.combiner.ready(self._children_of(flow.topic), now_ms, root=root):
            found.extend(self._up(line, pieces, now_ms))
        found.extend(self._leave(line, now_ms))
        if flow.fragment.leap or flow.fragment.mirror:
            slow = () if root else line.combiner.stragglers()
            found += [Send(flow.leader, Behind(flow=flow.uid, children=slow))] if slow else []
        if line.combiner:
            self._gathering[flow.uid] = line
        else:
            self._gathering.pop(flow.uid, None)
        return found

    def _up(self, line: _Line, pieces: Pieces, now_ms: int) -> list[Effect]:
        return [Combine(line.flow, pieces)] if len(pieces) > 1 else self._onward(line, pieces[0], now_ms)

    def _onward(self, line: _Line, piece: Piece, now_ms: int) -> list[Effect]:
        """A piece of ours and our children's goes up, or waits at the border."""
        if not line.border:
            line.border.change(*self._held_panes(line.flow))
        held = sum(one.border.bytes for one in self._holding.values())
        if held + piece.bytes > HELD_BYTES_MAX or not line.border.takes(piece):
            return self.send_up(line.flow, piece)
        line.border.add(piece, now_ms)
        self._holding[line.flow.uid] = line
        return self._leave(line, now_ms)

    def _held_panes(self, flow: Flow) -> tuple[int, int]:
        """How many panes we hold at a border, and how many may be one; 1: none, as we are no head or readers
        want each by itself."""
        parent = self._parent_of(flow.topic)
        unit = self._unit_of(flow) if parent is not None and self._crosses(parent) else 1
        return held_panes(unit, flow.fragment.pane_us, self._hold_us(flow)), unit

    def _come(self, line: _Line) -> int:
        """Up to which pane the heads of other regions that send over us have sent theirs: of those that we
        have heard of at all."""
        others = [child for child in self._children_of(line.flow.topic) if self._crosses(child)]
        return min(line.combiner.reported(others), default=END_OF_TIME)

    def _leave(self, line: _Line, now_ms: int) -> list[Effect]:
        """What need not wait at the border any more."""
        if not line.border:
            return []
        flow, found = line.flow, list[Effect]()
        leaving = line.border.change(*self._held_panes(flow))
        times = (flow.fragment.pane_us // 1_000, line.combiner.wait_ms, now_ms)
        leaving += line.border.ready(*times, self._come(line))
        for pieces, unit in leaving:
            if unit > 1 and (len(pieces) > 1 or pieces[0].unit != unit):
                found.append(Combine(flow, pieces, unit))
            else:
                found += [effect for piece in pieces for effect in self.send_up(flow, piece)]
        if not line.border:
            self._holding.pop(flow.uid, None)
        return found

    def send_up(self, flow: Flow, piece: Piece) -> list[Effect]:
        """To the parent, or to the job group when there is no parent now. The root takes its own in
        ``Node``."""
        line, parent = self._lines.get(flow.uid), self._parent_of(flow.topic)
        if line is not None:
            line.counts.update(messages=1, sent_bytes=piece.bytes)
            room = self._sent_bytes + piece.bytes <= SENT_ALL_BYTES_MAX
            if parent is not None and parent != flow.leader and room:
                self._keep_sent(line, [*line.sent, (parent, piece)])
        return [self._slice(flow, parent or flow.leader, slice_of(flow, piece))]

    def _direct(self, flow: Flow, slices: Iterable[Slice]) -> list[Effect]:
        """Straight to the root."""
        return [self._slice(flow, flow.leader, one) for one in slices]

    def _slice(self, flow: Flow, to: str, one: Slice) -> Send:
        """Count what crosses borders."""
        size = len(one.counters) + len(one.payload)
        if self._crosses(to):
            self.across += size
            self._crossed(to, size)
            if (line := self._lines.get(flow.uid)) is not None:
                line.counts.update(crossed_bytes=size)
        else:
            self.within += size
        return Send(to, one)

    def _keep_sent(self, line: _Line, sent: list[tuple[str, Piece]]) -> None:
        """What is kept of what a flow has sent: the last of these."""
        while len(sent) > SENT_MAX or _bytes(sent) > SENT_BYTES_MAX:
            del sent[0]
        self._sent_bytes += _bytes(sent) - _bytes(line.sent)
        line.sent = sent

    def peer_down(self, address: str) -> list[Effect]:
        """A parent is taken for dead, perhaps with what it had from us: that goes to the roots, which refuse
        what they have (protocol 4.9)."""
        found: list[Effect] = []
        for line in self._lines.values():
            flow = line.flow
            lost = [slice_of(flow, piece) for to, piece in line.sent if to == address]
            self._keep_sent(line, [one for one in line.sent if one[0] != address])
            found += self._direct(flow, lost)
        return found

    def combined(self, done: Combined, now_ms: int) -> list[Effect]:
        """What children and our own stream task sent is one piece now. Members whose part could not be opened
        are not in it; the root asks them itself."""
        line = self._lines.get(done.flow.uid)
        if line is not None:
            line.counts.update(merges=1, merge_us=done.cpu_us)
        self.unusable += len(done.unusable)
        told = [Unusable(done.flow, one.members, one.start, one.end, why) for one, why in done.unusable]
        if done.piece is None:
            return [*told]
        if line is None or done.piece.unit > 1:
            return [*told, *self.send_up(done.flow, done.piece)]
        return [*told, *self._onward(line, done.piece, now_ms)]

    def worked(self, work: Mapping[str, Mapping[str, int]]) -> None:
        """What a stream task has done so far, by flow."""
        for uid, counts in work.items():
            if uid in self._lines:
                self._lines[uid].task = counts

    def spent(self) -> dict[str, int]:
        """CPU time of the stream tasks so far, in µs, by flow."""
        times = ("map_us", "tree_us", "seal_us")
        return {
            uid: sum(line.task.get(name, 0) for name in times)
            for uid, line in self._lines.items()
            if line.task
        }

    def taken(self) -> dict[str, tuple[int, int]]:
        """The same, and the rows that the flow was given (of key ranges the first one's), by flow."""
        rows = {uid: line.task.get("rows", 0) for uid, line in self._lines.items() if line.task}
        return {uid: (us, rows.get(uid, 0)) for uid, us in self.spent().items()}

    def held(self) -> dict[str, tuple[int, int, int, int]]:
        """Bytes of each flow: that stream tasks hold in memory, that can only be there, that they have put on
        disk; and of the last checkpoint and of what is sealed and in no commit."""
        names = ("memory_bytes", "pinned_bytes", "spilled_bytes")
        found = {}
        for uid, line in self._lines.items():
            memory, pinned, spilled = (line.task.get(name, 0) for name in names)
            disk = line.task.get("image_bytes", 0) + line.retained.bytes
            found[uid] = memory, pinned, spilled, disk
        return found

    def sent_bytes(self) -> dict[str, int]:
        """What has gone up so far, by flow."""
        return {uid: line.counts.get("sent_bytes", 0) for uid, line in self._lines.items()}

    def counts(self, uid: str) -> tuple[Mapping[str, int] | None, Mapping[str, int] | None]:
        """The work for a flow: of the stream task, and on the way up (``elf.job.work``)."""
        line = self._lines.get(uid)
        return (None, None) if line is None else (line.task, line.counts)

    # -- what the root says ----------------------------------------------------------------------------------

    def rest(self, uid: str) -> Rest:
        """What comes after the map of a flow."""
        line = self._lines.get(uid)
        return Rest() if line is None else line.rest

    def committed(self, word: Committed, now_ms: int) -> list[Effect]:
        line = self._lines.get(word.flow)
        if line is not None:
            self.rested += line.rest.committed(word.end - 1, now_ms)
        number = self._number_of(line.flow.fragment.stream) if line else None
        if line is not None:
            self._keep_sent(line, [one for one in line.sent if one[1].end > word.end])
        if line is None or number is None:
            return []
        found = [
            effect
            for member, part in word.parts
            if member == number
            for effect in self._settle(line, word.start, word.end, part)
        ]
        if any(member == number and is_open(part) for member, part in word.parts):
            found.extend(self._cover(line, word.start, word.end))
        offsets = [offsets for member, offsets in word.reexecution if member == number]
        if offsets:
            found.extend(self._settle(line, word.start, word.end, offsets=offsets[0]))
        elif from_bytes(word.members) >> number & 1:
            found.extend(self._settle(line, word.start, word.end))
        elif line.flow.fragment.leap and not follows(line.flow.fragment):
            found.extend(self._leap(line, word.start, word.end))
        return found

    def _leap(self, line: _Line, start: int, end: int) -> list[Effect]:
        """These panes are committed without us, in all key ranges (``elf.job.rollup.decisions``)."""
        found: list[Effect] = []
        others = self._ranges_of(line.flow) if line.flow.fragment.range[1] > 1 else ()
        for one in (line, *(self._lines[other.uid] for other in others if other.uid in self._lines)):
            at = one.progress
            behind = at is not None and at.sealed < end and not one.suspended
            found.extend(self._settle(one, start, end, drop_to=end if behind else START_OF_TIME))
        return found

    def leave_out(self, word: LeaveOut) -> list[Effect]:
        """The root says what groups of a flow it needs."""
        line = self._lines.get(word.flow)
        if line is None or line.flow.fragment.first is None:
            return []
        threshold = Threshold(word.least, word.watched) if word.least else None
        return [Work(line.flow.fragment.stream, SetThreshold(word.flow, threshold))]

    def unheard(self, topic: bytes, now_ms: int) -> list[Effect]:
        """Messages of a flow's root are lost for good: offer at once what it may have committed already."""
        return self._offers(now_ms, topic)

    def verdict(self, word: Verdict, now_ms: int) -> list[Effect]:
        line = self._lines.get(word.flow)
        if line is None:
            return []
        if word.verdict == "send":
            return [Fetch(line.flow, word.start, word.end, word.part)]
        if word.verdict == "wait":
            return []
        if word.verdict == "covered":
            return self._cover(line, word.start, word.end)
        if word.verdict == "final":
            self.left_out += line.retained.within(word.start, word.end, word.part)
        drop_to = START_OF_TIME if word.verdict == "leapt" else None
        offsets = word.offsets if word.verdict == "answered" else 0
        return self._settle(line, word.start, word.end, word.part, drop_to, offsets)

    def _settle(
        self,
        line: _Line,
        start: int,
        end: int,
        part: int = 0,
        drop_to: int | None = None,
        offsets: int = 0,
    ) -> list[Effect]:
        """Panes ``[start, end)`` are answered. Unless ``drop_to`` is None they are dropped, and so are open
        ones below it; unless ``offsets`` is 0 another agent has answered for us."""
        flow, retained = line.flow, line.retained
        counted = drop_to is not None or bool(offsets)
        done = retained.answered(start, end, part, counted=counted, offsets=offsets)
        count = retained.count(flow, done, START_OF_TIME if drop_to is None else drop_to)
        gone = tuple(name for name in done if not retained.is_counted(name))
        found: list[Effect] = [] if count is None else [Work(flow.fragment.stream, count)]
        found += [Forget(flow.uid, gone)] if gone else []
        return [*found, *(self._quota(line) if done else ())]

    def _cover(self, line: _Line, start: int, end: int) -> list[Effect]:
        """Open parts of these panes are in a commit in place of our main snapshots: what else we have of the
        panes is offered as parts, too."""
        gone = tuple(line.retained.covered(start, end))
        self._next_offer_ms = 0
        return [Forget(line.flow.uid, gone), *self._quota(line)] if gone else []

    def counted(self, forgotten: Iterable[tuple[str, Name]]) -> None:
        """The stream task has counted the rows of these snapshots, and deleted them."""
        for uid, name in forgotten:
            if uid in self._lines:
                self._lines[uid].retained.forget_counted(name)

    def where(self, where: Iterable[Where]) -> list[Effect]:
        """A checkpoint is durable from which others may run our work: tell their roots."""
        found: list[Effect] = []
        for one in where:
            line = self._lines.get(one.flow)
            number = self._number_of(line.flow.fragment.stream) if line else None
            if line is not None and number is not None:
                found.append(Send(line.flow.leader, Whereabouts(member=number, where=one)))
        return found

    def send_again(self, word: Resend) -> list[Effect]:
        line = self._lines.get(word.flow)
        return [Fetch(line.flow, word.start, word.end)] if line else []

    def fetched(self, flow: Flow, snapshots: Iterable[Sealed]) -> list[Effect]:
        """Send retained snapshots, as read from the store, directly to the root."""
        number = self._number_of(flow.fragment.stream)
        return [] if number is None else self._direct(flow, reissued(flow, number, snapshots))

    # -- time ------------------------------------------------------------------------------------------------

    def progress(self, reports: Iterable[FlowProgress]) -> list[FlowProgress]:
        """What a stream task says of its flows. Returns the part about new flows, which their job groups want
        at once."""
        news = []
        for report in reports:
            line = self._lines.get(report.flow)
            if line is not None:
                news += [report] if line.progress is None else []
                line.progress = report
        return news

    def deadline(self) -> int | None:
        if not self._lines:
            return None
        waits = [line.combiner.deadline() for line in self._gathering.values()]
        waits += [
            line.border.deadline(line.flow.fragment.pane_us // 1_000, line.combiner.wait_ms)
            for line in self._holding.values()
        ]
        return min([self._next_beat_ms, *(at for at in waits if at is not None)])

    def tick(self, now_ms: int) -> list[Effect]:
        found: list[Effect] = []
        for line in list({**self._gathering, **self._holding}.values()):
            found.extend(self.flush(line.flow, now_ms))
        if now_ms >= self._next_beat_ms:
            found.extend(self.beat(now_ms))
        if now_ms >= self._next_offer_ms:
            self._next_offer_ms = now_ms + self._offer_ms
            found.extend(self._offers(now_ms))
        return found

    def beat(self, now_ms: int) -> list[Effect]:
        """Send our watermarks to the job groups of our flows whose turn it is: one message for each job group
        and stream."""
        self._next_beat_ms = now_ms + self._beat_ms
        begun: dict[str, dict[int, list[tuple[Flow, FlowProgress]]]] = {}
        for line in self._lines.values():
            number = self._number_of(line.flow.fragment.stream)
            if line.progress is not None and number is not None:
                of_leader = begun.setdefault(line.flow.leader, {})
                of_leader.setdefault(number, []).append((line.flow, line.progress))
        found: list[Effect] = []
        for leader in self._job_groups.take(begun):
            for number, reports in begun[leader].items():
                flows = tuple(self._report(flow, report) for flow, report in reports)
                word = Progress(member=number, incarnation=self._incarnation, flows=flows, now_ms=now_ms)
                found.append(Send(leader, word))
        return found

    def _report(self, flow: Flow, report: FlowProgress) -> FlowProgress:
        parent = self._parent_of(flow.topic) or ""
        later_ms = (self._job_groups.every - 1) * self._beat_ms
        return msgspec.structs.replace(report, parent=parent, later_ms=later_ms)

    def _offers(self, now_ms: int, topic: bytes | None = None) -> list[Effect]:
        """Offer old snapshots to the job groups of their flows: of one topic, or of all."""
        found: list[Effect] = []
        for line in self._lines.values():
            if topic is not None and line.flow.topic != topic:
                continue
            number = self._number_of(line.flow.fragment.stream)
            panes, parts = line.retained.to_offer(now_ms - self._offer_ms)
            if (panes or parts) and number is not None:
                offer = Offer(
                    flow=line.flow.uid,
                    member=number,
                    panes=tuple(panes[:OFFERED_MAX]),
                    parts=tuple(parts[:OFFERED_MAX]),
                )
                found.append(Send(line.flow.leader, offer))
        return found


def _bytes(sent: Iterable[tuple[str, Piece]]) -> int:
    return sum(piece.bytes for _, piece in sent)
