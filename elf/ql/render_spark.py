"""The whole query for Spark, over a view ``rows`` (the columns, and ``_ts`` BIGINT, event time in µs).

It groups by window and keys into the same columns as the master's ``groups``, and ends in the same final
fragment. Window bounds are integer arithmetic (``pmod``, so that times before 1970 are right); rows are
multiplied, one for each window that contains them. Sessions are found by the gaps between the wanted rows.
The session's time zone must be UTC.
"""

from __future__ import annotations

import re
from typing import Final

from elf.fields import replace
from elf.ql.draft import Draft
from elf.ql.expressions import Expr
from elf.ql.lags import windows_beside
from elf.ql.render import render
from elf.ql.render_final import indented, render_final
from elf.ql.render_map import partial_rows, where_clause
from elf.ql.states import States
from elf.ql.unions import base_rows
from elf.windows import Cumulative, Kind, Landmark, Session, Sliding

_MARK: Final = re.compile(r"/\*landmark\*/.*?/\*since\*/", re.DOTALL)


def render_spark(draft: Draft, states: States, below: str = "", *, ordered: bool = True) -> str:
    """The same columns and rows as the live answer, in the same order if ``ordered``. ``below``: the query
    whose rows these are, each at the start of its window, if they are not ``rows``."""
    rows = f"FROM {base_rows(draft.branches, draft.joins, 'spark')}"
    if below:
        rows = f"FROM (SELECT *, unix_micros(window_start) AS _ts FROM (\n{indented(below)}\n)) AS r"
    groups = windows_beside(draft, states, _groups(draft, states, rows))
    return render_final(draft, states, "spark", f"(\n{indented(groups)}\n  )", ordered=ordered)


def render_partials(draft: Draft, states: States, pane_us: int) -> str:
    """Partial aggregates, of one stream's rows, with the same columns and rows as ``render_map`` makes: so
    those of Spark and of agents merge."""
    pane = f"((r._ts - pmod(r._ts, {pane_us}L)) DIV {pane_us}L)" if pane_us else "CAST(0 AS BIGINT)"
    branches = tuple(replace(branch, view="rows") for branch in draft.branches)
    rows = f"FROM {base_rows(branches, draft.joins, 'spark')}"

    def scan(conditions: tuple[Expr, ...]) -> list[str]:
        return [rows, *_where(pane_us > 0, conditions)]

    grouping = ", ".join([pane, *(render(key, "spark") for key in draft.keys)])
    return partial_rows(draft, states, "spark", [f"{pane} AS _pane"], scan, grouping, "state")


def since(spark_sql: str, landmark_us: int) -> str:
    """The same query with a landmark of its own, in place of that of the first row."""
    return _MARK.sub(f"{landmark_us}L", spark_sql)


def _groups(draft: Draft, states: States, rows: str) -> str:
    start, end, source = _windows(draft, rows)
    bounds = []
    if draft.windows:
        bounds = [f"timestamp_micros({start}) AS window_start", f"timestamp_micros({end}) AS window_end"]
    keys = [render(key, "spark") for key in draft.keys]
    single = len(draft.windows) == 1 and isinstance(draft.windows[0], Sliding)
    grouping = ", ".join([*([start] if single else [start, end] if draft.windows else []), *keys])

    def scan(conditions: tuple[Expr, ...]) -> list[str]:
        return [*source, *_where(bool(draft.windows), conditions)]

    return partial_rows(draft, states, "spark", bounds, scan, grouping)


def _windows(draft: Draft, rows: str) -> tuple[str, str, list[str]]:
    """(a window's start, its end, the lines of FROM). ``rows``: FROM, and what is counted."""
    kinds = draft.windows
    match kinds:
        case ():
            return "", "", [rows]
        case (Sliding() as only,) if only.slide_us >= only.size_us:
            start = f"(r._ts - pmod(r._ts, {only.size_us}L))"
            return start, f"{start} + {only.size_us}L", [rows]
        case (Sliding() as only,):
            view = f"LATERAL VIEW explode({_starts(only)}) w AS start"
            return "w.start", f"w.start + {only.size_us}L", [rows, view]
        case (Session() as only,):
            return "r._start", "r._end", [f"FROM ({_sessions(draft, only, rows)}) AS r"]
    spans = [_spans(kind) for kind in kinds]
    every = spans[0] if len(spans) == 1 else f"array_distinct(concat({', '.join(spans)}))"
    marks = [
        f"CROSS JOIN ({_marks(draft, kind, rows)}) AS {_name(kind)}"
        for kind in kinds
        if isinstance(kind, Landmark)
    ]
    return "w.span.a", "w.span.b", [rows, *marks, f"LATERAL VIEW explode({every}) w AS span"]


def _where(windowed: bool, wanted: tuple[Expr, ...]) -> list[str]:
    conditions = where_clause(wanted, "spark")
    if not windowed:
        return conditions
    timed = "WHERE r._ts IS NOT NULL"
    if not conditions:
        return [timed]
    body = conditions[0].removeprefix("WHERE ")
    return [f"{timed} AND ({body})"]


def _starts(window: Sliding) -> str:
    """Starts of the windows that hold ``_ts``: multiples of the slide in ``(_ts - size, _ts]``."""
    size, slide = window.size_us, window.slide_us
    first = f"r._ts - {size}L - pmod(r._ts - {size}L, {slide}L) + {slide}L"
    last = f"r._ts - pmod(r._ts, {slide}L)"
    return f"sequence({first}, {last}, {slide}L)"


def _spans(kind: Kind) -> str:
    """The windows of a kind that hold ``_ts``, as an array of (a, b)."""

    def each(array: str, a: str, b: str) -> str:
        return f"transform({array}, x -> named_struct('a', {a}, 'b', {b}))"

    match kind:
        case Sliding():
            return each(_starts(kind), "x", f"x + {kind.size_us}L")
        case Cumulative():
            start = f"r._ts - pmod(r._ts, {kind.size_us}L)"
            first = f"r._ts - pmod(r._ts, {kind.step_us}L) + {kind.step_us}L"
            ends = f"sequence({first}, {start} + {kind.size_us}L, {kind.step_us}L)"
            return each(ends, start, "x")
        case Landmark():
            ticks = f"filter({_name(kind)}.ticks, x -> x > r._ts)"
            return each(ticks, f"{_name(kind)}.since", "x")
    raise TypeError(kind)


def _name(kind: Landmark) -> str:
    return f"l{kind.every_us}"


def _marks(draft: Draft, kind: Landmark, rows: str) -> str:
    """One row: the landmark, and the ends of the stretches that have a row."""
    longest = max(other.every_us for other in draft.windows if isinstance(other, Landmark))
    tick = f"r._ts - pmod(r._ts, {kind.every_us}L) + {kind.every_us}L"
    where = " ".join(_where(True, draft.where))
    start = f"/*landmark*/ MIN(r._ts - pmod(r._ts, {longest}L)) /*since*/"
    return f"SELECT {start} AS since, collect_set({tick}) AS ticks {rows} {where}"


def _sessions(draft: Draft, kind: Session, rows: str) -> str:
    """The wanted rows with ``_start`` and ``_end`` of their session: chains by gaps, cut at multiples of half
    of the longest (``elf.windows.kinds``).
    """
    keys = [f"{render(key, 'spark')} AS _g{i}" for i, key in enumerate(draft.keys)] or ["0 AS _g0"]
    by = ", ".join(f"_g{i}" for i in range(len(keys)))
    half, gap = f"{kind.half_us}L", f"{kind.gap_us}L"
    floor = "({0} - pmod({0}, " + half + "))"
    where = " ".join(_where(True, draft.where))
    keyed = f"SELECT r.*, {', '.join(keys)} {rows} {where}"
    apart = f"SELECT *, _ts - LAG(_ts) OVER (PARTITION BY {by} ORDER BY _ts) AS _apart FROM ({keyed})"
    chain = (
        f"SELECT *, SUM(CASE WHEN _apart < {gap} THEN 0 ELSE 1 END) OVER (PARTITION BY {by} ORDER BY _ts "
        f"RANGE UNBOUNDED PRECEDING) AS _chain FROM ({apart})"
    )
    began = f"SELECT *, MIN(_ts) OVER (PARTITION BY {by}, _chain) AS _began FROM ({chain})"
    cut = f"greatest({floor.format('_ts')} + {half}, {floor.format('_began')} + {half} + {half})"
    parts = f"SELECT *, {cut} AS _cut FROM ({began})"
    over = f"OVER (PARTITION BY {by}, _chain, _cut)"
    return f"SELECT *, MIN(_ts) {over} AS _start, least(MAX(_ts) {over} + {gap}, _cut) AS _end FROM ({parts})"
