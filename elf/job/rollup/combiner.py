"""What the inner nodes of a flow's tree gather on the way up.

``Combiner`` is a combining barrier for the slices of the children and of the node's own worker (paper, 3.2).
It sends panes up when everybody that it waits for has reported them, or when the oldest piece has waited for
the limit; later pieces go up at once, as a supplement. It does not wait for who has fallen two intervals
behind half of the others (paper, 3.4), and where a job leaps over stragglers, or has mirrors for them, it
tells the root of those (``Behind``). It waits for children in its table that have reported before. The root
knows the roster and asks for missing members, so a combiner need not know it. Before anything has gone up,
the combiner waits for all of its children, but not for long, as some may have nothing of the flow; otherwise
the first panes of all members would reach the root one by one.

``Beginning`` gathers the members that begin a new flow. All members of a stream begin it within a few ms, and
its job group waits for them. Direct messages from 1,280 agents would keep the job group busy for 100 ms, and
delay urgent work: so a node holds such messages for ``GATHER_MS``, and sends them to its parent together with
its own. Messages about a flow that is not in this node's catalog log yet wait for it. Nothing depends on
this: each member repeats it directly to the job group with its next beat (``sender``), also where its parent
is dead or runs an elf that does not know these messages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from elf.job.contributions import Piece, Pieces, Pile
from elf.job.effects import Send
from elf.job.messages.rollup import Began, Begun, FlowBegun
from elf.job.spec import START_OF_TIME, Flow

FIRST_MS: Final = 50
"""How long the first panes wait for children that have not reported anything yet."""
SELF = ""
"""The source name of the node's own worker."""
INTERVALS: Final = 2
"""Whoever is so many panes behind half of its siblings is a straggler."""
WAIT_MS: Final = 1_000
WAIT_MS_MIN: Final = 50
"""The most that a combiner below the root waits by default, and the least that one anywhere waits."""
GATHER_MS: Final = 5
FORGET_MS: Final = 1_000
"""How long messages wait for a flow that is not here; by then they have been repeated."""


def wait_ms(pane_us: int, depth: int, first_ms: int | None = None) -> int:
    """How long the combiners at this depth of a flow's tree (from 1) wait: those below the root ``first_ms``,
    by default a pane, at most a second; those at each level half as long as those above. So a combiner still
    waits when what waited below it comes, and all together wait less than twice as long as the first."""
    first = min(pane_us // 1_000 or WAIT_MS, WAIT_MS) if first_ms is None else first_ms
    return max(first >> max(0, depth - 1), WAIT_MS_MIN)


def behind(ends: Mapping[str, int]) -> dict[str, int]:
    """Of sources that have reported panes up to these: those that are two intervals behind half of all, each
    with the pane below which it is."""
    ordered = sorted(ends.values(), reverse=True)
    half = ordered[(len(ordered) - 1) // 2] if ordered else START_OF_TIME
    return {source: half - INTERVALS + 1 for source, end in ends.items() if end + INTERVALS <= half}


class Combiner:
    """Pieces of one flow on their way up. ``wait_ms`` bounds how long a missing child holds up the others."""

    def __init__(self, wait_ms: int = WAIT_MS) -> None:
        self.wait_ms = wait_ms
        self._told: dict[str, int] = {}
        self._pile = Pile()
        self._reported: dict[str, int] = {}
        self._oldest_ms: int | None = None
        self._sent = START_OF_TIME

    def add(self, source: str, piece: Piece, now_ms: int) -> None:
        """A piece from a child (its address) or from our own worker (``SELF``)."""
        self.heard(source, piece.end)
        self._pile.add(piece)
        if self._pile and self._oldest_ms is None:
            self._oldest_ms = now_ms

    def heard(self, source: str, end: int) -> None:
        """A child has sent panes up to this one, which wait for nobody here."""
        self._reported[source] = max(self._reported.get(source, START_OF_TIME), end)

    def reported(self, sources: Iterable[str]) -> list[int]:
        """Up to which panes these have sent theirs, of those that have sent any."""
        return [self._reported[source] for source in sources if source in self._reported]

    def __bool__(self) -> bool:
        """Whether something waits here to go up."""
        return bool(self._pile)

    def stragglers(self) -> tuple[tuple[str, int], ...]:
        """Who has fallen two intervals behind since this was last asked, with the pane below which it is."""
        found = behind(self._reported).items()
        new = [(source, below) for source, below in found if below > self._told.get(source, START_OF_TIME)]
        self._told = {source: below for source, below in self._told.items() if source in self._reported}
        self._told.update(new)
        return tuple(new)

    def deadline(self) -> int | None:
        """When ``ready`` has something although a child is missing."""
        if self._oldest_ms is None:
            return None
        return self._oldest_ms + (FIRST_MS if self._sent == START_OF_TIME else self.wait_ms)

    def ready(self, children: tuple[str, ...], now_ms: int, *, root: bool = False) -> list[Pieces]:
        """Take what goes up now. ``root``: there is no parent, so all of it goes to the root at once. Slices
        of children do not come here any more, and who was a relay before must not wait for them."""
        if not self._pile:
            return []
        present = {SELF, *children}
        self._reported = {source: end for source, end in self._reported.items() if source in present}
        deadline = self.deadline()
        expired = root or (deadline is not None and now_ms >= deadline)
        if self._sent == START_OF_TIME and not expired and not present <= self._reported.keys():
            return []
        top = max(piece.end for piece in self._pile)
        slow = behind(self._reported)
        ends = (end for source, end in self._reported.items() if source not in slow)
        below = top if expired else min(ends, default=top)
        below = max(below, self._sent)
        found = self._pile.take(min(piece.start for piece in self._pile), below)
        self._sent = below
        self._oldest_ms = now_ms if self._pile else None
        return found


@dataclass
class _Words:
    """The gathered messages of one flow: when they go on, and until when they matter."""

    due_ms: int
    until_ms: int
    members: dict[int, Began] = field(default_factory=dict)


class Beginning:
    """``flow_of``: a flow of this node's log, or None; ``parent_of`` looks into the overlay's trees."""

    def __init__(
        self, flow_of: Callable[[str], Flow | None], parent_of: Callable[[bytes], str | None]
    ) -> None:
        self._flow_of = flow_of
        self._parent_of = parent_of
        self._words: dict[str, _Words] = {}

    def add(self, begun: FlowBegun, now_ms: int) -> None:
        """Add our own message, or what a child has gathered."""
        words = self._words.setdefault(begun.flow, _Words(now_ms + GATHER_MS, now_ms + FORGET_MS))
        words.members.update((one.member, one) for one in begun.members)

    def deadline(self) -> int | None:
        """Messages about a flow that is not here are due when the flow comes, or when they are repeated."""
        waits = (
            words.due_ms if self._flow_of(uid) is not None else words.until_ms
            for uid, words in self._words.items()
        )
        return min(waits, default=None)

    def tick(self, now_ms: int) -> list[Send]:
        """Send what has waited long enough to our parents in the trees, or to job groups where there is no
        parent."""
        found: dict[str, list[FlowBegun]] = {}
        for uid, words in [one for one in self._words.items() if now_ms >= one[1].due_ms]:
            flow = self._flow_of(uid)
            if flow is None and now_ms < words.until_ms:
                continue
            del self._words[uid]
            if flow is not None:
                begun = FlowBegun(uid, tuple(words.members.values()))
                found.setdefault(self._parent_of(flow.topic) or flow.leader, []).append(begun)
        return [Send(to, Begun(flows=tuple(flows))) for to, flows in found.items()]
