"""The snapshots of one flow that an agent owes its root: each is retained until all of its panes are answered
(protocol 4.6). Their names are here; their contents are in the store."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from elf.job.commands import Answered, DropStragglers
from elf.job.openparts import is_open
from elf.job.snapshots import Name, Span
from elf.job.spec import START_OF_TIME, Flow
from elf.job.stragglers import Drops, outside


class Retained:
    """See the module's docstring."""

    def __init__(self) -> None:
        self._owed: dict[Name, list[Span]] = {}
        """The spans of each that are not answered."""
        self._since: dict[Name, int] = {}
        self._sizes: dict[Name, int] = {}
        self._reserve: dict[Name, int] = {}
        """Open parts, and their sizes: they wait for what becomes of their panes' main snapshots."""
        self._spent = set[Name]()
        """Open parts that are answered, of panes that are still open: a start makes these panes of them
        (protocol 9.9)."""
        self._open_from = START_OF_TIME
        self._leaps = Drops()

    def add(self, name: Name, size: int, now_ms: int) -> None:
        """Add a snapshot that was sealed then and has so many bytes."""
        self._owed[name], self._since[name], self._sizes[name] = [name[:2]], now_ms, size

    def reserve(self, name: Name, size: int) -> None:
        """Add an open part: it is owed only if its pane's main snapshot cannot be taken."""
        self._reserve[name] = size

    def sealed_to(self, end: int) -> list[Name]:
        """Panes below ``end`` are sealed. Their open parts that are answered are forgotten and returned."""
        self._open_from = max(self._open_from, end)
        gone = [name for name in self._spent if name[0] < end]
        self._spent.difference_update(gone)
        return gone

    def __len__(self) -> int:
        return len(self._owed)

    @property
    def bytes(self) -> int:
        """The bytes of all of them, but for open parts, which are bounded by themselves
        (``elf.job.worker.openparts``)."""
        return sum(size for name, size in self._sizes.items() if not is_open(name[2]))

    def reserved(self) -> Iterator[tuple[Name, int]]:
        """The open parts in reserve, with sizes in bytes."""
        yield from self._reserve.items()

    def is_kept(self) -> bool:
        """Whether any is owed, or in reserve."""
        return bool(self._owed or self._reserve)

    def is_left(self) -> bool:
        """Whether any is owed, or still to be counted."""
        return bool(self._owed or self._leaps.counting)

    def since(self, before_ms: int | None) -> Iterator[tuple[Name, int]]:
        """What was sealed by then (None: at any time), with sizes in bytes."""
        for name in self._owed:
            if before_ms is None or self._since[name] <= before_ms:
                yield name, self._sizes[name]

    def offer_again(self) -> None:
        """Offer all of them to another root at once."""
        self._since = dict.fromkeys(self._since, 0)

    def to_offer(self, before_ms: int) -> tuple[list[Span], list[Name]]:
        """What has waited for its answer since then: panes, and parts of late rows."""
        old = [name for name, _ in self.since(before_ms)]
        panes = [span for name in old if not name[2] for span in self._owed[name]]
        return panes, [name for name in old if name[2]]

    def within(self, start: int, end: int, part: int) -> int:
        """How many lie wholly within these panes, of that part."""
        return sum(start <= a and b <= end and part == other for a, b, other in self._owed)

    def answered(
        self, start: int, end: int, part: int, *, counted: bool = False, offsets: int = 0
    ) -> list[Name]:
        """Panes ``[start, end)`` are answered; snapshots with no unanswered pane left are forgotten and
        returned, and so are the open parts of these panes, unless they are still open (``sealed_to``).
        ``counted``: those panes are dropped or, unless ``offsets`` is 0, another agent has answered for us.
        """
        done, gone = list[Name](), list[Name]()
        for name, spans in self._owed.items():
            if name[2] != part:
                continue
            for span in spans if counted else ():
                self._leaps.over(name, span, start, end, offsets)
            self._owed[name] = [rest for span in spans for rest in outside(span, start, end)]
            if not self._owed[name]:
                done.append(name)
        if not part:
            done += [name for name in self._owed if _is_open_within(name, start, end)]
            for name in [name for name in self._reserve if _is_open_within(name, start, end)]:
                del self._reserve[name]
                gone.append(name)
        for name in done:
            del self._owed[name], self._since[name], self._sizes[name]
        spent = {name for name in (*done, *gone) if is_open(name[2]) and name[0] >= self._open_from}
        self._spent |= spent
        return [name for name in (*done, *gone) if name not in spent]

    def covered(self, start: int, end: int) -> list[Name]:
        """Open parts of these panes are in a commit: what else there is of them is owed in place of the main
        snapshots. Of these, those with no unanswered pane left are forgotten and returned."""
        self.release(start, end)
        done = []
        for name, spans in self._owed.items():
            if not name[2]:
                self._owed[name] = [rest for span in spans for rest in outside(span, start, end)]
                done += [] if self._owed[name] else [name]
        for name in done:
            del self._owed[name], self._since[name], self._sizes[name]
        return done

    def release(self, start: int, end: int) -> None:
        """The open parts of these panes are owed: their main snapshots are not taken, or will not be made."""
        for name in [name for name in self._reserve if _is_open_within(name, start, end)]:
            self.add(name, self._reserve.pop(name), 0)

    def count(self, flow: Flow, done: Iterable[Name], drop_to: int) -> DropStragglers | Answered | None:
        """What the stream task is to do about answered snapshots: count what is dropped or answered by
        another agent, and drop open panes below ``drop_to``."""
        taken = self._leaps.take(done)
        if flow.fragment.leap:
            leapt = tuple((name, tuple(span[:2] for span in spans)) for name, spans in taken)
            return DropStragglers(flow.uid, drop_to, leapt) if leapt or drop_to > START_OF_TIME else None
        return Answered(flow.uid, taken) if taken else None

    def is_counted(self, name: Name) -> bool:
        """Whether the stream task is to count and delete it."""
        return name in self._leaps.counting

    def forget_counted(self, name: Name) -> None:
        """The stream task has counted and deleted them."""
        self._leaps.counting.discard(name)


def _is_open_within(name: Name, start: int, end: int) -> bool:
    return is_open(name[2]) and start <= name[0] and name[1] <= end
