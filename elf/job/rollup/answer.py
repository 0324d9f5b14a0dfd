"""What the root of a flow answers: whether a snapshot is in a commit, why nothing is committed for a while,
and whom it asks for what is missing (protocol 4.5, 4.6).

The root asks missing members directly after a moment of quiet. It tells members and holders that offer a
snapshot what becomes of it. It tells people in a sentence why a flow gives nothing: each member reports every
second how far it has sealed and how many rows it has counted, with late rows and rows from the future apart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from itertools import pairwise
from typing import Final

from elf.job.catalog.members import Member
from elf.job.contributions import PartName
from elf.job.openparts import is_open
from elf.job.rollup.collect import Covered
from elf.job.rollup.decide import RootSettings, Stragglers
from elf.job.rollup.decisions import ALL, Decisions
from elf.job.rollup.panes import Panes
from elf.job.rollup.presence import Told

RECENT_MS: Final = 6_000
"""A little more than the time after which people are told."""
NAMED_MAX: Final = 3


class Answers:
    """See the module's docstring."""

    def __init__(
        self,
        panes: Panes,
        covered: Covered,
        stragglers: Stragglers,
        settings: RootSettings,
        decisions: Decisions | None = None,
    ) -> None:
        self._decisions = decisions
        self._panes = panes
        self._covered = covered
        self._stragglers = stragglers
        self._settings = settings
        self._asked_ms: dict[int, int] = {}

    # -- asking again ----------------------------------------------------------------------------------------

    def missing(self, now_ms: int) -> list[tuple[int, int, int]]:
        """Members to ask now, as (member, first pane, end): sealed there, quiet for a moment, and not
        here."""
        if self._panes.first_pane is None:
            return []
        wanted = []
        head, presence = self._covered.committed_to(), self._stragglers.presence
        told = {
            member: (start, progress.sealed)
            for member in presence
            if (start := max(head, (progress := presence[member].progress).live_from)) < progress.sealed
            and not presence.dead >> member & 1
            and now_ms - self._asked_ms.get(member, now_ms - 10**9) >= self._settings.ask_every_ms
        }
        spans = self._covered.spans(head, max(end for _, end in told.values())) if told else []
        for member, (start, sealed) in told.items():
            for begin, end, covered in spans:
                left, right = max(begin, start), min(end, sealed)
                if left >= right or (covered | self._covered.refused.at(left)) >> member & 1:
                    continue
                waits = self._stragglers.waits_for_unit(left, now_ms)
                if not waits and self._stragglers.has_waited(left, self._settings.quiet_ms, now_ms):
                    self._asked_ms[member] = now_ms
                    wanted.append((member, left, right))
                    break
        return wanted

    def asked(self, members: Iterable[int], now_ms: int) -> None:
        """Note that these members have been asked: they are not asked again for a while."""
        self._asked_ms |= dict.fromkeys(members, now_ms)

    # -- verdicts --------------------------------------------------------------------------------------------

    def verdicts(self, member: int, start: int, end: int, now_ms: int) -> list[tuple[int, int, str]]:
        """The verdicts on a retained snapshot, as (first pane, end, verdict). Where stragglers are dropped
        each committed pane has its own, ``included`` or ``leapt``; elsewhere one verdict holds for all panes.
        """
        first, history = self._panes.first_pane, self._panes.history
        if self._decisions is not None:
            return list(self._verdicts_of_decisions(self._decisions, member, start, end, now_ms))
        if not self._panes.flow.fragment.leap or first is None:
            return self._verdicts_beside_runs(member, start, end, now_ms)
        begin = max(start, first)
        found = [(start, min(end, first), "final")]
        found += [(begin, min(end, history.start), "leapt")] if history else []
        for one in history.within(begin, end):
            word = "included" if one.members >> member & 1 else "leapt"
            found.append((max(begin, one.start), min(end, one.end), word))
        rest = max(begin, self._panes.durable_to())
        found += [(rest, end, self.verdict(member, rest, end, now_ms))] if rest < end else []
        return [(a, b, word) for a, b, word in found if a < b]

    def _verdicts_of_decisions(
        self, decisions: Decisions, member: int, start: int, end: int, now_ms: int
    ) -> Iterator[tuple[int, int, str]]:
        """Each pane has its own, where another root decides who is in it. Of one that is committed nothing is
        to be sent before the decision is known here, too."""
        durable_to = self._panes.durable_to()
        inner = sorted(edge for edge in {*decisions.edges(), durable_to} if start < edge < end)
        for first, last in pairwise((start, *inner, end)):
            decided = decisions.members(first)
            if decided is not None and decided != ALL and not decided >> member & 1:
                yield first, last, "leapt"
                continue
            word = self.verdict(member, first, last, now_ms)
            waits = word == "send" and decided is None and first < durable_to
            yield first, last, "wait" if waits else word

    def _verdicts_beside_runs(
        self, member: int, start: int, end: int, now_ms: int
    ) -> list[tuple[int, int, str]]:
        """Panes that another agent has run have their own verdict, ``answered``, and those that have open
        parts of the member ``covered``, one for each segment."""
        found, begin = list[tuple[int, int, str]](), start
        for segment in self._panes.history.within(start, end):
            own = segment.in_part >> member & 1
            if own or segment.mark_of(member):
                first, last = max(segment.start, start), min(segment.end, end)
                if begin < first:
                    found.append((begin, first, self.verdict(member, begin, first, now_ms)))
                found.append((first, last, "covered" if own else "answered"))
                begin = last
        if begin < end:
            found.append((begin, end, self.verdict(member, begin, end, now_ms)))
        return found

    def verdict(self, member: int, start: int, end: int, now_ms: int) -> str:
        """The verdict on a retained snapshot: ``included``, ``final`` (too late), ``send``, or ``wait`` (it
        is held, not taken, or not its turn)."""
        first = self._panes.first_pane
        if first is None:
            return "wait"
        if end <= max(self._panes.kept_from(), first):
            return "final"
        inside = self._panes.history.within(start, end)
        if any(segment.in_part >> member & 1 for segment in inside):
            return "covered"
        if inside and inside[-1].end >= end:
            if all(segment.members >> member & 1 for segment in inside):
                return "included"
            revise_ms = self._panes.revise_ms(self._settings.revise_ms)
            if all(now_ms - segment.at_ms > revise_ms for segment in inside):
                return "final"
        held = self._covered.has_in_hand(member, start, end)
        waits = held or self._covered.refused.overlaps(member, start, end)
        waits = waits or self._stragglers.waits_for_unit(end - 1, now_ms)
        return "wait" if waits else "send"

    def lacks(self, member: int, start: int, end: int, now_ms: int) -> bool:
        """Whether a snapshot of these panes would add to what is covered."""
        has = self._covered.has(member, start, end)
        return not has and self.verdict(member, start, end, now_ms) == "send"

    def verdict_of_part(self, name: PartName, pane: int) -> str:
        """The verdict on a retained part, as ``verdict``: an open one is in a commit with its member's main
        snapshot, too."""
        if self._panes.first_pane is None:
            return "wait"
        if pane < self._panes.kept_from():
            return "final"
        inside, (member, part) = self._panes.history.within(pane, pane + 1), name
        if any(name in segment.parts for segment in inside):
            return "included"
        if is_open(part) and any(segment.members >> member & 1 for segment in inside):
            return "included"
        if is_open(part) and self._covered.has(member, pane, pane + 1):
            return "wait"
        waits = self._covered.has_part(name, pane) or self._covered.refused.has_part(name, pane)
        return "wait" if waits else "send"

    def reexecuted_from(self, member: int, pane: int) -> int:
        """The source offsets from which another agent has run the member's work in a committed pane; 0:
        nobody has."""
        within = self._panes.history.within(pane, pane + 1)
        return max((segment.mark_of(member) for segment in within), default=0)

    # -- for people ------------------------------------------------------------------------------------------

    def why(self, time_of: Callable[[int], int | None], now_ms: int) -> str:
        """Why nothing is committed for a while."""
        stragglers, staying = self._stragglers, self._panes.roster.staying
        presence = stragglers.presence
        if self._panes.first_pane is None:
            silent = ", ".join(m.name for m in self._members(staying & ~presence.heard))
            return f"the flow begins when its agents have answered; missing: {silent or 'none'}"
        pane = self._panes.durable_to()
        awaited = stragglers.awaited(pane, now_ms)
        told = {m.name: presence[m.number] for m in self._members(staying & awaited)}
        late = [m.name for m in self._members(staying & ~awaited & self._panes.expected(pane))]
        found = why(told, late, pane, time_of, now_ms)
        if late and stragglers.waits_for_all:
            found += f"; the job waits up to {stragglers.limit_ms() / 1000:g} s for them"
        spoilt = sorted(f"{name} ({said})" for name, (_, said) in self.unusable().items())
        return found + (f"; what comes of {', '.join(spoilt)} cannot be opened" if spoilt else "")

    def unusable(self) -> dict[str, tuple[int, str]]:
        """For each agent, how many pieces could not be opened, and why the last one could not."""
        told = ((self._panes.member(number), said) for number, said in self._covered.refused.told.items())
        return {member.name: said for member, said in told if member is not None}

    def reached(self) -> tuple[str, ...]:
        """Ids of the agents that run the flow and have not left."""
        there = self._panes.roster.staying & self._stragglers.presence.heard
        return tuple(m.agent_id for m in self._members(there))

    def _members(self, found: int) -> list[Member]:
        return [m for m in self._panes.roster.members if found >> m.number & 1]


def why(
    told: dict[str, Told],
    silent: list[str],
    next_pane: int,
    time_of: Callable[[int], int | None],
    now_ms: int,
) -> str:
    """``told``: what the awaited members say, by name; ``silent``: members that are not awaited or have said
    nothing; ``next_pane``: the first pane that is not committed; ``time_of``: when a pane begins (µs)."""

    def recently(at_ms: int | None) -> bool:
        return at_ms is not None and now_ms - at_ms <= RECENT_MS

    found = []
    rows = [name for name, one in told.items() if recently(one.rows_ms)]
    late = [name for name, one in told.items() if recently(one.late_ms)]
    future = [name for name, one in told.items() if recently(one.future_ms)]
    behind = [name for name, one in told.items() if one.progress.sealed <= next_pane]
    past = [name for name, one in told.items() if one.progress.past]
    if not told:
        found.append("no agent that has the stream answers")
    elif not rows and late:
        found.append(f"all rows that come are late (on {_names(late)})")
    elif not rows and future:
        found.append(
            f"all rows that come are from the future (on {_names(future)}): see SHOW MEMBERS for clocks"
        )
    elif not rows:
        found.append(f"no row has come for {RECENT_MS // 1000} s on any of {len(told)} agents")
    elif len(behind) < len(told):
        found.append(f"waiting for {_names(behind)}" if behind else "the panes are on their way")
    else:
        found.append("the window is not over yet")
    if past:
        found.append(f"{_names(past)} still read{'s' if len(past) == 1 else ''} what is archived (SINCE)")
    if silent:
        found.append(f"nothing is heard of {_names(silent)}")
    slowest = min((one.progress.sealed for one in told.values()), default=None)
    at = None if slowest is None else time_of(slowest)
    if at is not None:
        found.append(f"event time is past {_clock(at)} everywhere")
    committed = time_of(next_pane)
    if committed is not None:
        found.append(f"committed to {_clock(committed)}")
    return "; ".join(found)


def _names(names: list[str]) -> str:
    more = f" and {len(names) - NAMED_MAX} more" if len(names) > NAMED_MAX else ""
    return ", ".join(sorted(names)[:NAMED_MAX]) + more


def _clock(us: int) -> str:
    return datetime.fromtimestamp(us / 1e6, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
