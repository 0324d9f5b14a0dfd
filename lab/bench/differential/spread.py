"""Rows in their windows, for the reference: each row once for each window that holds it, by DuckDB over a
whole table.
"""

from __future__ import annotations

from elf.ql.draft import Draft
from elf.ql.expressions import TRUE
from elf.ql.render import render
from elf.windows import Counted, Cumulative, Kind, Landmark, Session, Sliding, pane_us_of
from elf.windows.kinds import SECOND_US


class NoReference(Exception):
    """The text names what has none, or DuckDB fails on it."""


def keyed(draft: Draft, rows: str) -> str:
    """The rows for which WHERE is true, with their keys."""
    keys = [f"{render(key, 'duckdb')} AS k{index}" for index, key in enumerate(draft.keys)]
    where = " AND ".join(f"({render(part, 'duckdb')})" for part in draft.where if part != TRUE)
    return f"(SELECT {', '.join(['r.*', *keys])} FROM {rows} AS r {f'WHERE {where}' if where else ''})"


def spread(draft: Draft, rows: str) -> str:
    """The rows that count, with their keys, once for each window that holds them, whose bounds they get."""
    kinds = draft.windows
    if not kinds:
        return rows
    late = "_ts IS NOT NULL"
    if draft.lateness_us is not None and not draft.counts:
        # A row is late when its pane's end plus lateness is not above what its file had shown before it; it
        # may still be a revision.
        pane = pane_us_of(kinds)
        waited = pane + draft.lateness_us + (draft.revise_us or 0)
        late += f" AND (_before IS NULL OR {floor('_ts', pane)} + {waited} > _before)"
    wanted = keyed(draft, f"(SELECT * FROM {rows} WHERE {late})")
    if isinstance(kinds[0], Counted):
        bounded = _numbered(kinds[0])
    elif isinstance(kinds[0], Session):
        bounded = _sessions(kinds[0], [f"k{index}" for index in range(len(draft.keys))])
    else:
        marks = [kind.every_us for kind in kinds if isinstance(kind, Landmark)]
        ticks = [f"list(DISTINCT {floor('_ts', every)} + {every}) AS _ticks{every}" for every in marks]
        since = f"min({floor('_ts', max(marks, default=1))}) AS _since"
        spans = f"list_distinct(flatten([{', '.join(map(_spans, kinds))}]))"
        source = f"wanted, (SELECT {', '.join([since, *ticks])} FROM wanted)"
        bounded = f"SELECT *, w.a AS a, w.b AS b FROM (SELECT *, unnest({spans}) AS w FROM {source})"
    times = "make_timestamp(a) AS window_start, make_timestamp(b) AS window_end"
    return f"(WITH wanted AS MATERIALIZED (SELECT * FROM {wanted}) SELECT *, {times} FROM ({bounded}))"


def floor(time: str, step: int) -> str:
    """The multiple of ``step`` at or below it."""
    return f"({time} - (({time} % {step}) + {step}) % {step})"


def _spans(kind: Kind) -> str:
    """The windows of a kind that hold ``_ts``, as a list of (a, b)."""

    def each(values: str, a: str, b: str) -> str:
        return f"list_transform({values}, lambda _w: {{'a': {a}, 'b': {b}}})"

    match kind:
        case Sliding(size_us=size, slide_us=slide):
            return each(f"range({floor('_ts', slide)}, _ts - {size}, -{slide})", "_w", f"_w + {size}")
        case Cumulative(size_us=size, step_us=step):
            start = floor("_ts", size)
            ends = f"range({floor('_ts', step)} + {step}, {start} + {size + 1}, {step})"
            return each(ends, start, "_w")
        case Landmark(every_us=every):
            return each(f"list_filter(_ticks{every}, lambda _w: _w > _ts)", "_since", "_w")
    raise NoReference(f"windows of kind {kind}")


def _numbered(kind: Counted) -> str:
    """The rows of each file by their place in it; a window is said in the second when its last row came."""
    number = f"(row_number() OVER (PARTITION BY _source ORDER BY _place) - 1) // {kind.rows} + 1"
    rows = f"SELECT *, _source || '.json' AS window_source, {number} AS window_number FROM wanted"
    came = "max(greatest(_ts, _before)) OVER (PARTITION BY window_source, window_number)"
    a = floor("came", SECOND_US)
    return f"SELECT *, {a} AS a, {a} + {SECOND_US} AS b FROM (SELECT *, {came} AS came FROM ({rows}))"


def _sessions(kind: Session, keys: list[str]) -> str:
    """Chains of rows less than the gap apart, cut at multiples of half of the longest."""
    gap, half = kind.gap_us, kind.half_us
    by = f"PARTITION BY {', '.join(keys)}" if keys else ""
    apart = f"SELECT *, _ts - lag(_ts) OVER ({by} ORDER BY _ts) AS apart FROM wanted"
    first = f"count(*) FILTER (WHERE apart IS NULL OR apart >= {gap})"
    chained = f"SELECT *, {first} OVER ({by} ORDER BY _ts RANGE UNBOUNDED PRECEDING) AS chain FROM ({apart})"
    chain = f"PARTITION BY {', '.join([*keys, 'chain'])}"
    began = f"SELECT *, min(_ts) OVER ({chain}) AS began FROM ({chained})"
    cut = f"greatest({floor('_ts', half)} + {half}, {floor('began', half)} + {2 * half})"
    parts = f"SELECT *, {cut} AS cut FROM ({began})"
    ends = f"least(max(_ts) OVER ({chain}, cut) + {gap}, cut)"
    return f"SELECT *, min(_ts) OVER ({chain}, cut) AS a, {ends} AS b FROM ({parts})"
