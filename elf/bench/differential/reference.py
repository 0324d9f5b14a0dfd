"""The answer of DuckDB over all rows at once: one GROUP BY of DuckDB's own aggregates, none of elf's states,
cells, panes, trees or merges. Scalars are those of the bound query in DuckDB's spelling (Spark's spelling,
and the agents' parsing, check those).

An aggregate that is not in ``_NATIVE`` has no reference: add its line there.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import duckdb
import pyarrow as pa
from sqlglot import exp

from elf.bench.differential.differences import COUNTED, EXACTLY, RANKED, Answer, Tolerance, plain
from elf.bench.differential.logs import SCHEMA
from elf.ql import statements
from elf.ql.expressions import TRUE, Aggregate, Expr, Slot, rewrite, walk
from elf.ql.render import name, render
from elf.ql.rules import Draft, Order, apply_rules
from elf.ql.source import Source


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
    """A bound query, and its SQL."""

    def __init__(self, sql: str) -> None:
        parsed = statements.parse(sql)[0]
        assert isinstance(parsed, statements.Select)
        query = parsed.query
        assert isinstance(query.tree, exp.Select)
        self.draft = apply_rules(Draft(Source(query.source), query.tree, SCHEMA))
        draft = self.draft
        orders = [order.value for order in draft.order]
        after = [
            *(output.value for output in draft.outputs),
            *orders,
            *([draft.having] if draft.having else []),
        ]
        found = dict.fromkeys(part for expr in after for part in walk(expr) if isinstance(part, Aggregate))
        self.aggregates = {aggregate: f"agg{index}" for index, aggregate in enumerate(found)}
        for aggregate in self.aggregates:
            if aggregate.name not in _NATIVE:
                raise NoReference(f"aggregate {aggregate.name}")
        first = 2 if draft.window else 0
        self.of_output = {
            first + index: output.value
            for index, output in enumerate(draft.outputs)
            if isinstance(output.value, Aggregate)
        }
        self.scaled = [i for i, value in self.of_output.items() if _NATIVE[value.name].scale]

    def tolerances(self, wide: int) -> tuple[Tolerance, ...]:
        values = [self.of_output.get(index) for index in range(wide)]
        return tuple(_NATIVE[v.name].tolerance if isinstance(v, Aggregate) else EXACTLY for v in values)

    def _native(self, aggregate: Aggregate, template: str) -> str:
        texts = dict(zip("xt", (f"({render(arg, 'duckdb')})" for arg in aggregate.args), strict=False))
        return template.format(*aggregate.params, **texts)

    def _after(self, expr: Expr) -> str:
        def change(part: Expr) -> Expr | None:
            return Slot(self.aggregates[part], part.kind) if isinstance(part, Aggregate) else None

        return render(rewrite(expr, change), "duckdb")

    def sql(self) -> str:
        draft, window = self.draft, self.draft.window
        columns = ["r.start AS start"] if window else []
        columns += [f"{render(key, 'duckdb')} AS k{index}" for index, key in enumerate(draft.keys)]
        columns += [
            f"{self._native(a, _NATIVE[a.name].sql)} AS {slot}" for a, slot in self.aggregates.items()
        ]
        for index in self.scaled:
            aggregate = self.of_output[index]
            assert isinstance(aggregate, Aggregate)
            columns.append(f"{self._native(aggregate, _NATIVE[aggregate.name].scale)} AS scale{index}")
        conditions = [render(part, "duckdb") for part in draft.where if part != TRUE]
        grouped = f"SELECT {', '.join(columns or ['1 AS one'])} FROM {self._rows()} AS r"
        grouped += f" WHERE {' AND '.join(f'({c})' for c in conditions)}" if conditions else ""
        grouped += " GROUP BY ALL" if window or draft.keys else ""
        if window or draft.keys:
            grouped = grouped.replace("SELECT ", "SELECT COUNT(*) AS rows_of_group, ", 1)
        outer = []
        if window:
            outer = [
                "make_timestamp(g.start) AS window_start",
                f"make_timestamp(g.start + {window.size_us}) AS window_end",
            ]
        outer += [f"{self._after(output.value)} AS {name(output.name, 'duckdb')}" for output in draft.outputs]
        outer += [f"g.scale{index}" for index in self.scaled]
        order = ", ".join(self._order())
        sql = f"SELECT {', '.join(outer)} FROM ({grouped}) AS g"
        sql += f" WHERE {self._after(draft.having)}" if draft.having is not None else ""
        if draft.limit is not None:
            partition = "PARTITION BY g.start " if window else ""
            by = f"ORDER BY {order}" if order else ""
            sql += f" QUALIFY ROW_NUMBER() OVER ({partition}{by}) <= {draft.limit}"
        places = ", ".join(filter(None, ["g.start" if window else "", order]))
        return f"{sql} ORDER BY {places}" if places else sql

    def _order(self) -> list[str]:
        """What the query says, then the keys as it lists them, ascending, NULLs last."""
        keys = [Slot(f"k{index}", key.kind) for index, key in enumerate(self.draft.keys)]
        orders = [*self.draft.order, *(Order(key, False, False) for key in keys)]
        return [
            f"{self._after(order.value)} {'DESC' if order.descending else 'ASC'} "
            f"NULLS {'FIRST' if order.nulls_first else 'LAST'}"
            for order in orders
        ]

    def _rows(self) -> str:
        """The rows that count, once for each window that holds them."""
        window = self.draft.window
        if window is None:
            return "rows"
        size, slide = window.size_us, window.slide_us
        last = f"(_ts - ((_ts % {slide}) + {slide}) % {slide})"
        late = ""
        if self.draft.lateness_us is not None:
            # A row is late when its pane's end plus lateness is not above what its file had shown before it.
            pane = math.gcd(size, slide)
            end = f"(_ts - ((_ts % {pane}) + {pane}) % {pane} + {pane})"
            late = f" AND (_before IS NULL OR {end} + {self.draft.lateness_us} > _before)"
        starts = f"unnest(range({last}, _ts - {size}, -{slide}))"
        return f"(SELECT *, {starts} AS start FROM rows WHERE _ts IS NOT NULL{late})"
