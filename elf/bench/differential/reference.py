"""The answer of DuckDB over all rows at once: one GROUP BY of DuckDB's own aggregates, none of elf's states,
cells, panes, trees or merges. Scalars are those of the bound query in DuckDB's spelling (Spark's spelling,
and the agents' parsing, check those).

An aggregate that is not in ``_NATIVE`` has no reference: add its line there.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import duckdb
import pyarrow as pa
from sqlglot import exp

from elf.bench.differential.differences import COUNTED, EXACTLY, RANKED, Answer, Tolerance, plain
from elf.bench.differential.logs import SCHEMA
from elf.ql import statements
from elf.ql.draft import Draft, Order
from elf.ql.expressions import TRUE, Aggregate, Expr, Slot, rewrite, walk
from elf.ql.render import direction, name, render
from elf.ql.rules import apply_rules
from elf.ql.source import Source
from elf.windows import Cumulative, Kind, Landmark, Session, Sliding, pane_us_of


class NoReference(Exception):
    """The text names what has none."""


@dataclass(frozen=True)
class Native:
    """DuckDB's own spelling of an aggregate: ``{x}`` its argument, ``{t}`` the event time, ``{0}``, ``{1}``
    its params. ``scale``: what an error is relative to.
    """

    sql: str
    scale: str = ""
    tolerance: Tolerance = EXACTLY


_SUM_SCALE: Final = "SUM(ABS(CAST({x} AS DOUBLE)))"
_SQUARES: Final = "AVG(CAST({x} AS DOUBLE) * CAST({x} AS DOUBLE))"
_VARIANCE: Final = Tolerance(1e-10)
_DEVIATION: Final = Tolerance(1e-10, squared=True)
_LIST: Final = "list(CAST({x} AS DOUBLE)) FILTER (WHERE {x} IS NOT NULL)"
_MEAN: Final = f"list_avg({_LIST})"
_APART: Final = f"list_sum(list_transform({_LIST}, lambda v: (v - {_MEAN}) * (v - {_MEAN})))"


def _variance(by: str, root: bool) -> Native:
    value = f"({_APART}) / NULLIF(COUNT({{x}}){by}, 0)"
    return Native(f"sqrt({value})" if root else value, _SQUARES, _DEVIATION if root else _VARIANCE)


_END: Final = "({x} ORDER BY {t}, {x}) FILTER (WHERE {x} IS NOT NULL AND {t} IS NOT NULL)"
_ENTRIES: Final = (
    "list_transform(map_entries(histogram({x})), lambda e: {{'n': -CAST(e.value AS BIGINT), 'v': e.key}})"
)
_TOP: Final = (
    f"CASE WHEN COUNT({{x}}) > 0 THEN '{{{{' || array_to_string(list_transform("
    f"list_sort({_ENTRIES})[:{{0}}], "
    "lambda s: CAST(to_json(CAST(s.v AS VARCHAR)) AS VARCHAR) || ': ' || (-s.n)), ', ') || '}}' END"
)
_RANKED: Final = (
    "list_sort(list(CAST({x} AS DOUBLE)) FILTER (WHERE {x} IS NOT NULL))"
    "[greatest(1, (COUNT({x}) * {0} + {1} - 1) // {1})]"
)

_NATIVE: Final = {
    "count_star": Native("COUNT(*)"),
    "count": Native("COUNT({x})"),
    "sum": Native("SUM({x})", _SUM_SCALE),
    "avg": Native("CAST(SUM({x}) AS DOUBLE) / NULLIF(COUNT({x}), 0)", _SUM_SCALE),
    "min": Native("MIN({x})"),
    "max": Native("MAX({x})"),
    "first": Native(f"FIRST{_END}"),
    "last": Native(f"LAST{_END}"),
    "first of texts": Native(f"FIRST{_END}"),
    "last of texts": Native(f"LAST{_END}"),
    "count distinct": Native("COUNT(DISTINCT {x})"),
    "sum distinct": Native("SUM(DISTINCT {x})", _SUM_SCALE),
    "sum distinct of doubles": Native("SUM(DISTINCT {x})", _SUM_SCALE),
    "avg distinct": Native("CAST(SUM(DISTINCT {x}) AS DOUBLE) / NULLIF(COUNT(DISTINCT {x}), 0)", _SUM_SCALE),
    "avg distinct of doubles": Native("SUM(DISTINCT {x}) / NULLIF(COUNT(DISTINCT {x}), 0)", _SUM_SCALE),
    "approx_count_distinct": Native("COUNT(DISTINCT {x})", "", COUNTED),
    "percentile": Native("quantile_cont(CAST({x} AS DOUBLE), {0}e0 / {1})", "MAX(ABS(CAST({x} AS DOUBLE)))"),
    "approx_percentile": Native(_RANKED, "", RANKED),
    "approx_top_k": Native(_TOP),
    **{
        f"{kind}{of}": _variance(by, kind.startswith("stddev"))
        for kind, by in (("var_pop", ""), ("var_samp", " - 1"), ("stddev_pop", ""), ("stddev_samp", " - 1"))
        for of in ("", " of doubles")
    },
}


def aggregate_names() -> frozenset[str]:
    """The bound aggregates that there is a reference for."""
    return frozenset(_NATIVE)


class Reference:
    """All rows of a log in a DuckDB of its own."""

    def __init__(self, rows: pa.Table) -> None:
        self._con = duckdb.connect(config={"threads": 1})
        self._con.execute("SET TimeZone = 'UTC'")
        self._con.execute("SET order_by_non_integer_literal = true")
        # DuckDB 2.0.0 copies a plan for it and fails on least(a, a) below a COUNT(DISTINCT …).
        self._con.execute("SET disabled_optimizers = 'distinct_aggregate_rewrite'")
        self._con.register("all_rows", rows)
        self._con.execute("CREATE TABLE rows AS SELECT * FROM all_rows")

    def answer(self, sql: str) -> Answer:
        """Raises ``NoReference``, ``QueryError``, ``duckdb.Error``."""
        question = _Question(sql)
        found = self._con.sql(question.sql()).to_arrow_table()
        table = list(zip(*(column.to_pylist() for column in found.columns), strict=True))
        wide = found.num_columns - len(question.scaled)
        rows = [tuple(plain(cell) for cell in row[:wide]) for row in table]
        scales = [
            tuple(
                row[wide + question.scaled.index(index)] if index in question.scaled else None
                for index in range(wide)
            )
            for row in table
        ]
        return Answer(tuple(found.column_names[:wide]), rows, question.tolerances(wide), scales)

    def close(self) -> None:
        self._con.close()


class _Question:
    """A bound query and its SQL, level by level: a subquery with groups is asked before what is over it."""

    def __init__(self, sql: str) -> None:
        parsed = statements.parse(sql)[0]
        assert isinstance(parsed, statements.Select)
        query = parsed.query
        assert isinstance(query.tree, exp.Select)
        drafts = [apply_rules(Draft(Source(query.source), query.tree, SCHEMA))]
        while drafts[0].below is not None:
            drafts.insert(0, drafts[0].below)
        self._levels = [_Level(draft) for draft in drafts]
        self._top = self._levels[-1]
        self.scaled = self._top.scaled

    def tolerances(self, wide: int) -> tuple[Tolerance, ...]:
        values = [self._top.of_output.get(index) for index in range(wide)]
        return tuple(_NATIVE[v.name].tolerance if isinstance(v, Aggregate) else EXACTLY for v in values)

    def sql(self) -> str:
        sql = ""
        for level in self._levels:
            rows = f"({sql})" if sql else spread(level.draft, "rows")
            sql = level.sql(rows, scales=level is self._top)
        return sql


class _Level:
    """A SELECT with groups over rows that have the bounds of a window each."""

    def __init__(self, draft: Draft) -> None:
        self.draft = draft
        conditions = [one for one in (draft.having, draft.qualify) if one is not None]
        after = [
            *(output.value for output in draft.outputs),
            *(order.value for order in draft.order),
            *conditions,
        ]
        found = dict.fromkeys(part for expr in after for part in walk(expr) if isinstance(part, Aggregate))
        self.aggregates = {aggregate: f"agg{index}" for index, aggregate in enumerate(found)}
        for aggregate in self.aggregates:
            if aggregate.name not in _NATIVE:
                raise NoReference(f"aggregate {aggregate.name}")
        self.of_output = {
            len(draft.bounds) + index: output.value
            for index, output in enumerate(draft.outputs)
            if isinstance(output.value, Aggregate)
        }
        self.scaled = [
            i for i, value in self.of_output.items() if _NATIVE[value.name].scale and not draft.distinct
        ]

    def sql(self, rows: str, *, scales: bool) -> str:
        draft = self.draft
        scaled = self.scaled if scales else []
        outer = [*draft.bounds]
        outer += [f"c{index} AS {name(output.name, 'duckdb')}" for index, output in enumerate(draft.outputs)]
        outer += [f"scale{index}" for index in scaled]
        orders = self._orders()
        inner = [f"g.{bound}" for bound in draft.bounds]
        inner += [f"{self._after(output.value)} AS c{index}" for index, output in enumerate(draft.outputs)]
        inner += [f"{self._after(order.value)} AS o{index}" for index, order in enumerate(orders)]
        inner += [f"g.scale{index}" for index in scaled]
        kept = "*" if draft.qualify is None else "* EXCLUDE (q)"
        if draft.qualify is not None:
            inner.append(f"{self._after(draft.qualify)} AS q")
        sql = f"SELECT {', '.join(inner)} FROM ({self._grouped(rows, scaled)}) AS g"
        sql += f" WHERE {self._after(draft.having)}" if draft.having is not None else ""
        sql = f"SELECT {kept} FROM ({sql}) {'WHERE q' if draft.qualify is not None else ''}"
        if draft.distinct:
            sql = f"SELECT DISTINCT * FROM ({sql})"
        by = ", ".join(
            f"o{index} {direction(order.descending, order.nulls_first)}" for index, order in enumerate(orders)
        )
        if draft.limit is not None or draft.offset:
            window = [f"PARTITION BY {', '.join(draft.bounds)}"] if draft.bounds else []
            rank = f"ROW_NUMBER() OVER ({' '.join([*window, *([f'ORDER BY {by}'] if by else [])])})"
            most = "" if draft.limit is None else f" AND {rank} <= {draft.offset + draft.limit}"
            sql = f"SELECT * FROM ({sql}) QUALIFY {rank} > {draft.offset}{most}"
        places = ", ".join([*draft.bounds, *([by] if by else [])])
        return f"SELECT {', '.join(outer)} FROM ({sql})" + (f" ORDER BY {places}" if places else "")

    def _grouped(self, rows: str, scaled: list[int]) -> str:
        draft = self.draft
        keys = [f"k{index}" for index in range(len(draft.keys))]
        items = [*draft.bounds, *keys]
        if draft.sets:
            items += [f"GROUPING({key}) AS z{key[1:]}" for key in keys]
        items += [f"{_native(a, _NATIVE[a.name].sql)} AS {slot}" for a, slot in self.aggregates.items()]
        for index in scaled:
            aggregate = self.of_output[index]
            assert isinstance(aggregate, Aggregate)
            items.append(f"{_native(aggregate, _NATIVE[aggregate.name].scale)} AS scale{index}")
        sql = f"SELECT {', '.join(items or ['COUNT(*) AS one'])} FROM {_keyed(draft, rows)} AS r"
        if not draft.bounds and not keys:
            return sql
        sets = [[keys[index] for index in sorted(one)] for one in draft.sets] or [keys]
        lists = ", ".join(f"({', '.join([*draft.bounds, *one])})" for one in sets)
        return f"{sql} GROUP BY GROUPING SETS ({lists}) HAVING COUNT(*) > 0"

    def _after(self, expr: Expr) -> str:
        def change(part: Expr) -> Expr | None:
            return Slot(self.aggregates[part], part.kind) if isinstance(part, Aggregate) else None

        return render(rewrite(expr, change), "duckdb")

    def _orders(self) -> list[Order]:
        """What the query says, then the keys as it lists them (with DISTINCT: the SELECT list), ascending,
        NULLs last.
        """
        draft = self.draft
        ties: list[Expr] = [Slot(f"k{index}", key.kind) for index, key in enumerate(draft.keys)]
        if draft.sets:
            ties += [Slot(f"z{index}", "bigint") for index in range(len(draft.keys))]
        if draft.distinct:
            ties = [output.value for output in draft.outputs]
        return [*draft.order, *(Order(value, False, False) for value in ties)]


def _native(aggregate: Aggregate, template: str) -> str:
    texts = dict(zip("xt", (f"({render(arg, 'duckdb')})" for arg in aggregate.args), strict=False))
    return template.format(*aggregate.params, **texts)


def _keyed(draft: Draft, rows: str) -> str:
    """The rows for which WHERE is true, with their keys. Of windows it has been asked already."""
    if draft.bounds and draft.below is None:
        return rows
    keys = [f"{render(key, 'duckdb')} AS k{index}" for index, key in enumerate(draft.keys)]
    where = " AND ".join(f"({render(part, 'duckdb')})" for part in draft.where if part != TRUE)
    return f"(SELECT {', '.join(['r.*', *keys])} FROM {rows} AS r {f'WHERE {where}' if where else ''})"


def spread(draft: Draft, rows: str) -> str:
    """The rows that count, with their keys, once for each window that holds them, whose bounds they get."""
    kinds = draft.windows
    if not kinds:
        return rows
    late = "_ts IS NOT NULL"
    if draft.lateness_us is not None:
        # A row is late when its pane's end plus lateness is not above what its file had shown before it; it
        # may still be a revision.
        pane = pane_us_of(kinds)
        waited = pane + draft.lateness_us + (draft.revise_us or 0)
        late += f" AND (_before IS NULL OR {floor('_ts', pane)} + {waited} > _before)"
    wanted = _keyed(replace(draft, windows=()), f"(SELECT * FROM {rows} WHERE {late})")
    if isinstance(kinds[0], Session):
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


def _sessions(kind: Session, keys: list[str]) -> str:
    """Chains of rows less than the gap apart, cut at multiples of half of the longest."""
    gap, half = kind.gap_us, kind.half_us
    by = f"PARTITION BY {', '.join(keys)}" if keys else ""
    apart = f"SELECT *, _ts - lag(_ts) OVER ({by} ORDER BY _ts) AS apart FROM wanted"
    first = f"count(*) FILTER (WHERE apart IS NULL OR apart >= {gap})"
    chained = f"SELECT *, {first} OVER ({by} ORDER BY _ts ROWS UNBOUNDED PRECEDING) AS chain FROM ({apart})"
    chain = f"PARTITION BY {', '.join([*keys, 'chain'])}"
    began = f"SELECT *, min(_ts) OVER ({chain}) AS began FROM ({chained})"
    cut = f"greatest({floor('_ts', half)} + {half}, {floor('began', half)} + {2 * half})"
    parts = f"SELECT *, {cut} AS cut FROM ({began})"
    ends = f"least(max(_ts) OVER ({chain}, cut) + {gap}, cut)"
    return f"SELECT *, min(_ts) OVER ({chain}, cut) AS a, {ends} AS b FROM ({parts})"
