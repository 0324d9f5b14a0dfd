"""One job in Python on one node: how it does, what it may send, and which calls are made of what happens."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from msgspec.structs import replace

import overlay as ring
from elf.job.commands import SetTaps
from elf.job.effects import Work
from elf.job.program import calls
from elf.job.program.calls import Place
from elf.job.program.keeping import Keeping
from elf.job.program.port import CallProgram, State
from elf.job.program.seats import OWN, group_of, key_of, tree_of
from elf.job.program.spec import ProgramSpec, Tapped

SENDS_A_SEC: Final = 500
SENDS_MAX: Final = 2 * SENDS_A_SEC
BYTES_A_SEC: Final = 16 << 20
"""How much a job on one agent may send, in bytes a second; ``SENDS_MAX`` and as many bytes again at once."""
SHOWN_MS: Final = 5_000
"""So long it is shown that messages were dropped."""
PANES_MAX: Final = 1_000
"""A job that has slept for more panes is told of the last ones."""
REMEMBERED_MAX: Final = 1_000
"""Queries without a reply, and agents that have written, that are remembered of a job."""
LONG_AGO_MS: Final = -(1 << 62)


@dataclass
class Running:
    """A job in its ``seat`` here; a master of a ``term``. ``topics``: the trees that it takes part in, its
    own ones first. ``told``: the trouble last reported to the master, at ``told_ms``. ``flooded_ms``: when it
    last sent more than it may, and ``clogged_ms``: more than others have taken."""

    spec: ProgramSpec
    topics: tuple[bytes, ...]
    keeping: Keeping
    seat: int = OWN
    term: int = 0
    state: State = "starting"
    reason: str = ""
    timer_ms: int | None = None
    sends: float = SENDS_MAX
    room: float = BYTES_A_SEC
    filled_ms: int = 0
    told: tuple[str, str] = ("", "")
    told_ms: int = LONG_AGO_MS
    flooded_ms: int = LONG_AGO_MS
    clogged_ms: int = LONG_AGO_MS
    until_us: dict[str, int] = field(default_factory=dict)
    """By stream: all rows before that event time have come."""
    queries: dict[str, None] = field(default_factory=dict)
    """Tokens of queries that were given to it and have no reply yet."""
    wrote: dict[str, None] = field(default_factory=dict)
    """Addresses of agents that have sent to it."""
    multicasts: int = 0
    """That have left it in this term."""
    cpu_us: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    troubles: dict[str, tuple[str, str, int]] = field(default_factory=dict)
    """At the master: state, reason, when, by agent."""

    @property
    def key(self) -> str:
        return key_of(self.spec.uid, self.seat)

    @property
    def group(self) -> str:
        """The uid of its job group, of a master."""
        return group_of(self.spec.uid, self.seat)

    @property
    def topic(self) -> bytes:
        """The tree whose master it is; the first one, of the job of an agent."""
        return self.spec.topics[tree_of(self.seat)]

    def place(
        self, me: str, overlay: ring.Overlay, now_ms: int, tree: int = 0, roots: tuple[str, ...] = ()
    ) -> Place:
        """Where it is in the job's tree. A master is above the job of its own agent, which is above nobody.
        ``tree``: that by which something has come to the job of an agent; ``roots``: of a job with several
        trees, where their masters are."""
        if self.seat:
            own = tree_of(self.seat)
            return Place(me, now_ms, True, "", (me, *overlay.children(self.topic)), own, roots=roots)
        links = [_links(topic, me, overlay) for topic in (self.spec.topics if roots else [self.spec.app])]
        if not roots:
            return Place(me, now_ms, False, *links[0])
        parents, below = zip(*links, strict=True)
        return Place(me, now_ms, False, *links[tree], tree, parents, below, roots)

    def shown(self, now_ms: int) -> tuple[State, str]:
        """State and reason, for people: what was dropped is shown for a while."""
        if self.state == "running" and now_ms - self.flooded_ms < SHOWN_MS:
            return "failing", "it floods: messages beyond its rate are dropped"
        if self.state == "running" and now_ms - self.clogged_ms < SHOWN_MS:
            return "failing", "too much waits for agents that are away: what it sends to them is dropped"
        return self.state, self.reason

    def within_rate(self, size: int, now_ms: int) -> bool:
        """Whether it may send so many bytes now; then they count."""
        passed = max(0, now_ms - self.filled_ms) / 1000
        self.filled_ms = now_ms
        self.sends = min(SENDS_MAX, self.sends + passed * SENDS_A_SEC)
        self.room = min(BYTES_A_SEC, self.room + passed * BYTES_A_SEC)
        if self.sends < 1 or self.room < min(size, BYTES_A_SEC):
            return False
        self.sends -= 1
        self.room -= size
        return True

    @property
    def has_timer(self) -> bool:
        """Whether ``on_timer`` is called in its seat."""
        return bool(self.spec.every_ms) and bool(self.seat or not self.spec.timer_at_master)

    def taps(self, streams: Iterable[str], *, wanted: bool = True) -> list[Work]:
        """Make the stream tasks of its streams compute what it wants, or stop. A master reads no stream."""
        spec = self.spec
        if self.seat:
            return []
        return [
            Work(
                stream,
                SetTaps(
                    spec.uid,
                    tuple(t for t in spec.taps if wanted and t.fragment.stream == stream),
                    1_000 * spec.pane_ms,
                ),
            )
            for stream in sorted(self.streams(streams))
        ]

    def streams(self, streams: Iterable[str]) -> set[str]:
        """Those of these that it reads."""
        return {tap.fragment.stream for tap in self.spec.taps}.intersection(streams)

    def call(self, event: calls.Event, place: Place, payload: bytes = b"") -> list[CallProgram]:
        """A call of a callback, if the job has not failed."""
        if self.state == "failed":
            return []
        number = self.keeping.calls(place.now_ms, calls.size_of(event, payload))
        return [CallProgram(self.key, event, place, payload, number)]

    def with_beside(self, last: object, tap: Tapped) -> CallProgram | None:
        """The last call, if it gives groups of the same chunk, with these beside them: groups call nobody's
        code, so one call is as good as two. None: it does not."""
        if not isinstance(last, CallProgram) or (last.uid, last.number) != (self.key, self.keeping.number):
            return None
        event = last.event
        if not isinstance(event, calls.Rows) or not {tap.name, event.subscription} <= self.spec.grouped:
            return None
        self.keeping.grows(len(tap.payload))
        beside = (*event.beside, (tap.name, tap.payload))
        return replace(last, event=replace(event, beside=beside))

    def passed(self, stream: str, until_us: int, streams: Iterable[str]) -> Iterator[calls.Pane]:
        """The panes of which all rows have come, in all of its ``streams`` here: each is to be called."""
        keeping, pane_us = self.keeping, 1_000 * self.spec.pane_ms
        self.until_us[stream] = max(until_us, self.until_us.get(stream, until_us))
        here = self.streams(streams)
        if not pane_us or here - self.until_us.keys():
            return
        end = min(self.until_us[one] for one in here) // pane_us
        if keeping.pane is None:
            keeping.told_panes(end)
        for pane in range(max(keeping.pane or end, end - PANES_MAX), end):
            yield calls.Pane(pane * pane_us, (pane + 1) * pane_us)
            keeping.told_panes(pane + 1)


def _links(topic: bytes, me: str, overlay: ring.Overlay) -> tuple[str, tuple[str, ...]]:
    """Who is above an agent in a tree, and who is below it."""
    if overlay.is_root(topic):
        return me, ()
    return overlay.parent(topic) or "", overlay.children(topic)


def remember(known: dict[str, None], name: str) -> None:
    """The last ones."""
    known.pop(name, None)
    known[name] = None
    if len(known) > REMEMBERED_MAX:
        del known[next(iter(known))]
