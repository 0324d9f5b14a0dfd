"""Why windows differ from what Spark finds, as far as their own counters account for it.

A window says how many rows of the stream came into it (``rows_in``); the archive says how many there are of
its time, from which agent (``Census``). What the archive has more must be among the rows that were counted as
left out, and each of these explains one row of one window:

- rows of agents that the window names as missing stand at the window itself: *not covered*;
- rows that were late, shed, leapt or outside the roster stand at the pane that was open when they were met
  (``elf.job.counters``): at the window itself or at a later one, never at an earlier one;
- rows that were ahead of the clock stand at the window itself or at an earlier one.

So what is left out is drawn, window by window, from what later windows counted, the nearest first: that one
serves the fewest of the windows that come. It accounts for every row if any way of drawing does, and where it
does not the earlier windows are explained. What nobody counted is *unexplained*, and so is a window that
differs though no row is left out.

Rows that were left out over a budget are among ``rows_in``, and others stand for them: such a window is
explained where its counts are as near as its weight says (``elf.client.coverage.margin``).

What the archive lacks (``Hole``) explains a window of that time. An approximate row is explained by the bound
that it states. Rows that the counters account for cannot take more from a count than there are of them, and
never add to one: where the query's counts can be told, that is checked too.

It reads no archive and asks no agent.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from elf.client.coverage import margin, weight_of
from elf.client.values import for_terminal
from elf.fields import replace
from elf.ql.plan import Plan
from elf.windows import Sliding
from spark_backend.compare import (
    EVERYTHING,
    UNEXPLAINED,
    Bounds,
    Cell,
    Difference,
    Reason,
    Verdict,
    same,
)

NAMED_MAX: Final = 5
"""Agents and holes that a reason names."""
LATER: Final = {
    "late": "late",
    "leapt": "leapt",
    "shed": "shed",
    "unrostered": "outside the roster",
}
"""Counts of rows of the same window or an earlier one, and what the reason is called."""
EARLIER: Final = {"future": "ahead of the clock"}
"""The same of rows of the same window or a later one."""
_REARRANGED: Final = re.compile(
    r"\b(SELECT\b.*\bSELECT|HAVING|QUALIFY|LIMIT|DISTINCT|ROLLUP|CUBE|GROUPING|UNION|UNNEST|OVER|LAG|LEAD)\b",
    re.IGNORECASE | re.DOTALL,
)
"""What may make a row of a window appear, go or count twice when another row of the stream is left out."""
_BOUND: Final = "error_bound"
_SESSION_ROWS: Final = 3
"""Sessions that one row of the stream changes at most: it may join two into one."""


@dataclass(frozen=True)
class Hole:
    """What an archive lacks, as far as that is known.

    Attributes:
        text (str): for people: whose, and why.
        start_us (int | None): rows from this event time on (µs since the epoch); None: any.
        end_us (int | None): rows before this event time; None: any.

    Example:
        >>> Hole("web-2 was not reached").touches((0, 60_000_000))
        True
        >>> Hole("hour=00 is damaged", 0, 3_600_000_000).touches((3_600_000_000, 3_660_000_000))
        False
    """

    text: str
    start_us: int | None = None
    end_us: int | None = None

    def touches(self, bounds: Bounds) -> bool:
        """Whether a window may lack rows because of it.

        Args:
            bounds (Bounds): the window's start and end, in µs since the epoch.

        Returns:
            bool: always true of the one result of a job without windows.

        Raises:
            Nothing.
        """
        if bounds == EVERYTHING:
            return True
        after = self.end_us is None or bounds[0] < self.end_us
        return after and (self.start_us is None or self.start_us < bounds[1])


@dataclass(frozen=True)
class Census:
    """How many archived rows each window should have.

    Attributes:
        rows (Mapping[Bounds, Mapping[str, int]]): by window, by the name of the agent that archived them.

    Example:
        >>> Census({(0, 60_000_000): {"web-1": 7, "web-2": 3}}).total((0, 60_000_000))
        10
    """

    rows: Mapping[Bounds, Mapping[str, int]]

    def total(self, bounds: Bounds) -> int:
        """All rows of a window.

        Args:
            bounds (Bounds): the window's start and end, in µs since the epoch.

        Returns:
            int: 0 for a window that nobody archived anything of.

        Raises:
            Nothing.
        """
        return sum(self.rows.get(bounds, {}).values())


@dataclass(frozen=True)
class Shape:
    """What reasons need to know of a job's query.

    Attributes:
        keys (tuple[str, ...] | None): the columns that tell the rows of a window from each other; None where
            the SELECT list does not name them all.
        counts (tuple[str, ...]): the columns that count rows; none where a row that is left out may do
            something else than lower a count.
        bounded (str): of an APPROXIMATE query the column whose values have a bound; else empty.
        countable (bool): whether a window's ``rows_in`` are the rows of its own time.
        sessions (bool): whether its windows are sessions.
        sizes (frozenset[int]): the lengths of its sliding and tumbling windows, in µs.

    Example:
        >>> Shape(keys=("page",), counts=("n",)).countable
        True
    """

    keys: tuple[str, ...] | None = None
    counts: tuple[str, ...] = ()
    bounded: str = ""
    countable: bool = True
    sessions: bool = False
    sizes: frozenset[int] = frozenset()


def shape_of(plan: Plan) -> Shape:
    """What reasons need to know of a query.

    Args:
        plan (Plan): the job's plan.

    Returns:
        Shape: what can be told for certain.

    Raises:
        Nothing.

    Example:
        >>> shape_of(plan).keys, shape_of(plan).counts
        (('product',), ('n',))
    """
    made = plan.fragment
    told = dict(plan.named) if plan.made is made else {}
    keys = [name for column in made.group_keys if (name := told.get(column)) in plan.outputs]
    adding = {state.name for state in made.states if state.merge == "sum" and state.identity_zero}
    counts = tuple(name for column, name in told.items() if column in adding and name in plan.outputs)
    plain = not (plan.join or plan.stages or plan.beside or made.tables or _REARRANGED.search(plan.sql))
    bounded = ""
    if made.keep is not None:
        bounded = told.get(made.keep.state, "")
    sessions = plan.session_states is not None
    return Shape(
        keys=tuple(keys) if len(keys) == len(made.group_keys) else None,
        counts=counts if plain else (),
        bounded=bounded,
        countable=not (sessions or plan.join or plan.beside),
        sessions=sessions,
        sizes=frozenset(kind.size_us for kind in plan.windows if isinstance(kind, Sliding)),
    )


@dataclass
class _Account:
    """Of one window: how many archived rows are not in it yet for a known reason (``over``; below 0: rows
    that it has and the archive has not), and what was drawn so far."""

    bounds: Bounds
    over: int
    drawn: Counter[str] = field(default_factory=Counter)

    def draw(self, name: str, pool: Counter[str]) -> None:
        taken = min(self.over, pool[name])
        if taken > 0:
            self.over -= taken
            pool[name] -= taken
            self.drawn[name] += taken


def explain(
    verdicts: Sequence[Verdict],
    statuses: Mapping[Bounds, Mapping[str, object]],
    census: Census,
    shape: Shape,
    holes: Sequence[Hole] = (),
) -> list[Verdict]:
    """The same verdicts, each that differs with its reasons.

    Args:
        verdicts (Sequence[Verdict]): of ``spark_backend.compare.compare``.
        statuses (Mapping[Bounds, Mapping[str, object]]): of every window that is known, whether it is judged
            or not: rows of one may be counted in another.
        census (Census): the archived rows of the windows.
        shape (Shape): of the query.
        holes (Sequence[Hole]): what the archive lacks.

    Returns:
        list[Verdict]: in the order of ``verdicts``. Where a window is the same on both sides but for bounds
        of approximate values, it is equal.

    Raises:
        Nothing.

    Example:
        >>> gone = Difference(live=None, offline=("/cart", 2))
        >>> window = Verdict(0, 1_000_000, 0, {"rows_in": 8}, 4, 5, (gone,), ("page", "n"))
        >>> later = {(0, 1_000_000): {"rows_in": 8}, (1_000_000, 2_000_000): {"rows_in": 0, "late": 2}}
        >>> census = Census({(0, 1_000_000): {"web-1": 10}})
        >>> explain([window], later, census, Shape(sizes=frozenset({1_000_000})))[0].reasons
        (Reason(name='late', text='2 rows late', rows=2),)
        >>> explain([window], {}, census, Shape())[0].outcome.name
        'UNEXPLAINED'
    """
    own = {(one.start_us, one.end_us): one.status for one in verdicts if one.revision is not None}
    statuses = {**statuses, **own}
    accounts = _accounts(verdicts, statuses, census, shape)
    found = []
    for verdict in verdicts:
        if shape.bounded:
            verdict = _unbound(verdict)
        if verdict.compared and not verdict.equal:
            account = accounts[verdict.start_us, verdict.end_us]
            verdict = replace(
                verdict, reasons=tuple(_reasons(verdict, account, statuses, census, shape, holes))
            )
        found.append(verdict)
    return found


def _accounts(
    verdicts: Sequence[Verdict],
    statuses: Mapping[Bounds, Mapping[str, object]],
    census: Census,
    shape: Shape,
) -> dict[Bounds, _Account]:
    """By window. Windows draw from those with which they share rows: of the same length, or of the same
    start."""
    judged = {(verdict.start_us, verdict.end_us) for verdict in verdicts}
    alike: dict[tuple[str, int], list[Bounds]] = defaultdict(list)
    for bounds in sorted({*judged, *statuses, *census.rows}, key=lambda one: (one[1], one[0])):
        length = bounds[1] - bounds[0]
        alike[("length", length) if length in shape.sizes else ("start", bounds[0])].append(bounds)
    found: dict[Bounds, _Account] = {}
    for windows in alike.values():
        own = [_account(one, statuses.get(one, {}), census) for one in windows]
        _draw_later(own, statuses)
        _draw_earlier(own, statuses)
        found |= {account.bounds: account for account in own}
    return found


def _account(bounds: Bounds, status: Mapping[str, object], census: Census) -> _Account:
    """Windows of which nobody has counted the archived rows want nothing from others."""
    over = census.total(bounds) - _count(status, "rows_in") if bounds in census.rows else 0
    account = _Account(bounds, over)
    by_agent = census.rows.get(bounds, {})
    away = Counter({"missing": sum(by_agent.get(name, 0) for name in _missing(status))})
    account.draw("missing", away)
    return account


def _draw_later(accounts: Sequence[_Account], statuses: Mapping[Bounds, Mapping[str, object]]) -> None:
    """From what was counted at the window itself or later."""
    counted = [
        (place, name, Counter({name: rows}))
        for place, account in enumerate(accounts)
        for name in LATER
        if (rows := _count(statuses.get(account.bounds, {}), name))
    ]
    first = 0
    for place, account in enumerate(accounts):
        while first < len(counted) and (counted[first][0] < place or account.over > 0):
            there, name, pool = counted[first]
            if there >= place:
                account.draw(name, pool)
                if pool[name]:
                    break
            first += 1


def _draw_earlier(accounts: Sequence[_Account], statuses: Mapping[Bounds, Mapping[str, object]]) -> None:
    """From what was counted at the window itself or earlier."""
    pool: Counter[str] = Counter()
    for account in accounts:
        for name in EARLIER:
            pool[name] += _count(statuses.get(account.bounds, {}), name)
            account.draw(name, pool)


def _reasons(
    verdict: Verdict,
    account: _Account,
    statuses: Mapping[Bounds, Mapping[str, object]],
    census: Census,
    shape: Shape,
    holes: Sequence[Hole],
) -> list[Reason]:
    bounds = (verdict.start_us, verdict.end_us)
    lacking = [hole.text for hole in holes if hole.touches(bounds)]
    if not shape.countable:
        return _uncounted(verdict, statuses, census, shape, lacking)
    found = [_drawn(name, rows, verdict.status) for name, rows in account.drawn.items()]
    sampled = weight_of(verdict.status) > 1
    if lacking and account.over < 0:
        return [
            Reason("archive", f"the archive lacks {_rows(-account.over)}: {_listed(lacking)}", account.over)
        ]
    if account.over:
        return [*found, Reason(UNEXPLAINED, _surplus(account, census), account.over)]
    left_out = sum(account.drawn.values())
    if sampled:
        why = _beyond_margin(verdict, shape.counts, left_out)
        return [*found, Reason(UNEXPLAINED, why) if why else _sampled(verdict.status)]
    if left_out:
        why = _beyond(verdict, shape.counts, left_out)
        return [*found, Reason(UNEXPLAINED, why)] if why else found
    if shape.bounded:
        return [_approximate(verdict, shape.bounded)]
    uncast = _count(verdict.status, "uncast")
    if uncast and len(verdict.differences) <= 2 * uncast:
        return [Reason("uncast", f"{uncast:,} values did not fit their column's type", None)]
    return [Reason(UNEXPLAINED, f"both sides have the same {_rows(census.total(bounds))} of the stream")]


def _drawn(name: str, rows: int, status: Mapping[str, object]) -> Reason:
    if name == "missing":
        return Reason("not covered", f"{_rows(rows)} of {_listed(_missing(status))}, missing here", rows)
    called = {**LATER, **EARLIER}[name]
    return Reason(called, f"{_rows(rows)} {called}", rows)


def _surplus(account: _Account, census: Census) -> str:
    by_agent = census.rows.get(account.bounds, {})
    whose = ", ".join(f"{for_terminal(name)} {rows:,}" for name, rows in sorted(by_agent.items())[:NAMED_MAX])
    if account.over > 0:
        return f"{_rows(account.over)} of the archive are not in it, and no window counts them ({whose})"
    return f"it has {_rows(-account.over)} that no archive has ({whose or 'none is archived'})"


def _beyond(verdict: Verdict, counts: Sequence[str], left_out: int) -> str:
    """What so many rows that are left out cannot have done to the counts; empty: nothing."""
    for name in counts:
        place, total = verdict.columns.index(name), 0.0
        for one in verdict.differences:
            lower = _number(one.offline, place) - _number(one.live, place)
            total += lower
            if lower < 0:
                return f"{name} is {-lower:,g} too high in a row"
        if total > left_out:
            return f"{name} is {total:,g} too low, with {_rows(left_out)} left out"
    return ""


def _sampled(status: Mapping[str, object]) -> Reason:
    rows = _count(status, "sampled")
    return Reason("sampled", f"{_rows(rows)} of {_count(status, 'rows_in'):,} left out over a budget", rows)


def _beyond_margin(verdict: Verdict, counts: Sequence[str], left_out: int) -> str:
    """Which count is further off than an estimate can be: twice the margin of 99 in 100, which nothing honest
    is beyond; empty: none."""
    for name in counts:
        place = verdict.columns.index(name)
        for one in verdict.differences:
            live, offline = _number(one.live, place), _number(one.offline, place)
            may_be = 2 * margin(verdict.status, max(live, offline)) + left_out
            if abs(live - offline) > may_be:
                return f"{name} is {live:,g}, not within {may_be:,.0f} of {offline:,g}"
    return ""


def _uncounted(
    verdict: Verdict,
    statuses: Mapping[Bounds, Mapping[str, object]],
    census: Census,
    shape: Shape,
    lacking: Sequence[str],
) -> list[Reason]:
    """Where rows of a window are not those of its time: what was left out there and later, without a bill."""
    bounds = (verdict.start_us, verdict.end_us)
    if lacking:
        return [Reason("archive", f"the archive lacks rows: {_listed(lacking)}")]
    since_us = bounds[0] - (bounds[1] - bounds[0])
    for at, status in [(bounds, verdict.status), *statuses.items()]:
        if weight_of(status) > 1 and at[0] <= bounds[1] and since_us <= at[1]:
            return [_sampled(status)]
    away = _missing(verdict.status)
    if away:
        return [Reason("not covered", f"{_listed(away)} missing here")]
    for counts, later in ((LATER, True), (EARLIER, False)):
        for name, called in counts.items():
            near = (
                one for at, one in statuses.items() if (at[1] >= bounds[1] if later else at[0] <= bounds[0])
            )
            rows = sum(_count(status, name) for status in near)
            if rows and (not shape.sessions or len(verdict.differences) <= _SESSION_ROWS * rows):
                return [Reason(called, f"{_rows(rows)} {called} around it, which are not counted out", rows)]
    return [Reason(UNEXPLAINED, "no row is counted as left out")]


def _unbound(verdict: Verdict) -> Verdict:
    """Without the differences that are in the stated bounds alone: Spark has none to state."""
    places = [place for place, name in enumerate(verdict.columns) if name != _BOUND]

    def bound_alone(one: Difference) -> bool:
        if one.live is None or one.offline is None:
            return False
        return all(same(one.live[place], one.offline[place]) for place in places)

    left = tuple(one for one in verdict.differences if not bound_alone(one))
    return replace(verdict, differences=left)


def _approximate(verdict: Verdict, bounded: str) -> Reason:
    """A true value is between the stated one and that plus its bound; a row that Spark has not among its
    first ones has no greater value than these."""
    value, bound = verdict.columns.index(bounded), verdict.columns.index(_BOUND)
    least = min((_number(one.offline, value) for one in verdict.differences if one.offline), default=0.0)
    for one in verdict.differences:
        if one.live is None:
            continue
        stated = _number(one.live, value)
        true = least if one.offline is None else _number(one.offline, value)
        highest = stated + _number(one.live, bound)
        beyond = true > highest and one.offline is not None
        if (stated > true or beyond) and not (same(stated, true) or same(highest, true)):
            return Reason(UNEXPLAINED, f"{bounded} is {stated:,g}, outside its bound: {true:,g} offline")
    return Reason("approximate", f"APPROXIMATE: {bounded} is within its error_bound")


def waits(verdict: Verdict) -> bool:
    """Whether rows may be counted in windows that are not committed yet.

    Args:
        verdict (Verdict): of ``explain``.

    Returns:
        bool: true where the archive has rows that no window has counted so far.

    Raises:
        Nothing.

    Example:
        >>> over = Reason("unexplained", "2 rows of the archive are not in it", rows=2)
        >>> waits(Verdict(0, 1, 0, {}, 0, 1, (Difference(None, (1,)),), ("n",), (over,)))
        True
    """
    return any(one.name == UNEXPLAINED and (one.rows or 0) > 0 for one in verdict.reasons)


def _number(row: Sequence[Cell] | None, place: int) -> float:
    cell = None if row is None else row[place]
    return cell if isinstance(cell, int | float) else 0


def _missing(status: Mapping[str, object]) -> list[str]:
    names = status.get("missing")
    return [str(name) for name in names] if isinstance(names, list | tuple) else []


def _count(status: Mapping[str, object], name: str) -> int:
    value = status.get(name)
    return value if isinstance(value, int) else 0


def _rows(count: int) -> str:
    return f"{count:,} {'row' if count == 1 else 'rows'}"


def _listed(texts: Sequence[str]) -> str:
    shown = ", ".join(map(for_terminal, texts[:NAMED_MAX]))
    return f"{shown} and {len(texts) - NAMED_MAX:,} more" if len(texts) > NAMED_MAX else shown
