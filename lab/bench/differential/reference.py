"""The answer of DuckDB over all rows at once: one GROUP BY of DuckDB's own aggregates, none of elf's states,
cells, panes, trees or merges. Scalars are those of the bound query in DuckDB's spelling (Spark's spelling,
and the agents' parsing, check those).

An aggregate that is not in ``_NATIVE`` has no reference: add its line there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import duckdb
import pyarrow as pa
from sqlglot import exp

from elf.batch import decode
from elf.ql.draft import Draft, Order
from elf.ql.expressions import Aggregate, Expr, Slot, rewrite, walk
from elf.ql.job_queries import has_larger
from elf.ql.plan import Table
from elf.ql.render import direction, render
from elf.ql.rules import apply_rules
from elf.ql.rules_after import BOUND
from elf.ql.tables import Joined, source_rows
from elf.ql.templates import name
from elf.ql.unions import Branch
from elf.schema import Schema
from elf.windows import Sliding
from lab.bench.differential.asked import asked
from lab.bench.differential.differences import COUNTED, EXACTLY, RANKED, Answer, Tolerance, plain
from lab.bench.differential.logs import SCHEMA, SCHEMAS, Log
from lab.bench.differential.spread import NoReference, keyed, spread


@dataclass(frozen=True)
class Native:
    """DuckDB's own spelling of an aggregate: ``{x}`` its argument, ``{t}`` what it goes by, ``{0}``, ``{1}``
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

_COUNTS: Final = f"list_sort(list_transform({_ENTRIES}, lambda e: {{{{'v': e.v, 'n': -e.n}}}}))"
_HISTOGRAM: Final = (
    "CASE WHEN COUNT({x}) > 0 THEN '{{' || array_to_string(list_transform("
    f"{_COUNTS}[:{{0}}], lambda s: CAST(to_json(CAST(s.v AS VARCHAR)) AS VARCHAR) || ': ' || s.n), ', ') || "
    f"COALESCE(', \"…\": ' || list_sum(list_transform({_COUNTS}[{{0}} + 1:], lambda s: s.n)), '') "
    "|| '}}' END"
)


def _array(distinct: str, way: str) -> str:
    """Its second param says whether what is ordered by NULL is low."""
    nulls = "" if distinct else f"CASE WHEN {{t}} IS NULL THEN 1 - 2 * {{1}} ELSE 0 END{way}, {{t}}{way}, "
    values = f"list({distinct} {{x}} ORDER BY {nulls}{{x}}{way}) FILTER (WHERE {{x}} IS NOT NULL)[:{{0}}]"
    texts = f"list_transform({values}, lambda v: CAST(to_json(v) AS VARCHAR))"
    return f"CASE WHEN COUNT({{x}}) > 0 THEN '[' || array_to_string({texts}, ', ') || ']' END"


_NATIVE: Final = {
    "count_star": Native("COUNT(*)"),
    "count": Native("COUNT({x})"),
    "sum": Native("SUM({x})", _SUM_SCALE),
    "avg": Native("CAST(SUM({x}) AS DOUBLE) / NULLIF(COUNT({x}), 0)", _SUM_SCALE),
    "min": Native("MIN({x})"),
    "max": Native("MAX({x})"),
    "first": Native(f"FIRST{_END}"),
    "last": Native(f"LAST{_END}"),
    "min_by": Native(f"FIRST{_END}"),
    "max_by": Native(f"LAST{_END}"),
    "count distinct": Native("COUNT(DISTINCT {x})"),
    "sum distinct": Native("SUM(DISTINCT {x})", _SUM_SCALE),
    "sum distinct of doubles": Native("SUM(DISTINCT {x})", _SUM_SCALE),
    "avg distinct": Native("CAST(SUM(DISTINCT {x}) AS DOUBLE) / NULLIF(COUNT(DISTINCT {x}), 0)", _SUM_SCALE),
    "avg distinct of doubles": Native("SUM(DISTINCT {x}) / NULLIF(COUNT(DISTINCT {x}), 0)", _SUM_SCALE),
    "approx_count_distinct": Native("COUNT(DISTINCT {x})", "", COUNTED),
    "percentile": Native("quantile_cont(CAST({x} AS DOUBLE), {0}e0 / {1})", "MAX(ABS(CAST({x} AS DOUBLE)))"),
    "approx_percentile": Native(_RANKED, "", RANKED),
    "approx_top_k": Native(_TOP),
    "histogram": Native(_HISTOGRAM),
    **{
        f"array_agg{distinct}{way}": Native(_array(distinct.upper(), way.upper()))
        for distinct in ("", " distinct")
        for way in ("", " desc")
    },
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
    """All rows of a log in a DuckDB of its own: a table a stream, and those that are joined."""

    def __init__(self, log: Log) -> None:
        self._known: set[str] = set()
        self._con = duckdb.connect(config={"threads": 1})
        self._con.execute("SET TimeZone = 'UTC'")
        self._con.execute("SET order_by_non_integer_literal = true")
        # DuckDB 2.0.0 copies a plan for it and fails on least(a, a) below a COUNT(DISTINCT …).
        self._con.execute("SET disabled_optimizers = 'distinct_aggregate_rewrite'")
        for stream in SCHEMAS:
            self._add(f"rows_{stream}", log.rows(stream))
        every = " UNION ALL BY NAME ".join(f"FROM rows_{stream}" for stream in SCHEMAS)
        self._con.execute(f"CREATE TABLE rows_of_all AS {every}")

    def _add(self, name: str, table: pa.Table) -> None:
        self._known.add(name)
        self._con.register("given", table)
        self._con.execute(f"CREATE TABLE {name} AS SELECT * FROM given")
        self._con.unregister("given")

    def answer(self, sql: str) -> Answer:
        """Raises ``NoReference``, ``QueryError``, ``duckdb.Error``."""
        question = _Question(sql)
        for joined in question.tables():
            if joined.relation not in self._known:
                self._add(joined.relation, decode(joined.data))
        found = self._run(question.sql())
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
        names, tolerances = tuple(found.column_names[:wide]), question.tolerances(wide)
        if question.approximate:  # exactly: nothing was left out
            rows, scales = [(*row, 0.0) for row in rows], [(*scale, None) for scale in scales]
            names, tolerances = (*names, BOUND), (*tolerances, EXACTLY)
        return Answer(names, rows, tolerances, scales)

    def _run(self, sql: str) -> pa.Table:
        try:
            return self._con.sql(sql).to_arrow_table()
        except (duckdb.InternalException, duckdb.SerializationException) as error:
            # DuckDB 2.0.0 fails on some of its own plans (those of least(a, a) over a union, say).
            raise NoReference(f"DuckDB fails inside: {str(error).splitlines()[0]}") from error

    def close(self) -> None:
        self._con.close()


class _Question:
    """A bound query and its SQL, level by level: a subquery with groups is asked before what is over it."""

    def __init__(self, sql: str) -> None:
        found = asked(sql)
        assert isinstance(found.query.tree, exp.Select)
        apart = len(found.schemas) > 1 and found.query.tree.find(exp.SetOperation) is not None
        schema = Schema((), "ts") if apart else SCHEMA
        draft = Draft(
            found.query.source, found.query.tree, schema, tables=found.tables, schemas=found.schemas
        )
        self._top = _Level(apply_rules(draft))
        self.scaled = self._top.scaled
        self.approximate = self._top.draft.approximate

    def tolerances(self, wide: int) -> tuple[Tolerance, ...]:
        values = [self._top.of_output.get(index) for index in range(wide)]
        return tuple(_NATIVE[v.name].tolerance if isinstance(v, Aggregate) else EXACTLY for v in values)

    def sql(self) -> str:
        return self._top.sql(scales=True)

    def tables(self) -> Iterator[Table]:
        """Those that are joined anywhere."""
        yield from _tables(self._top.draft)


def _tables(draft: Draft) -> Iterator[Table]:
    joins = [*draft.joins, *(joined for branch in draft.branches for joined in branch.joins)]
    yield from (joined.table for joined in joins if not joined.windowed)
    for one in (draft.below, *draft.beside):
        if one is not None:
            yield from _tables(one)


def _over(draft: Draft) -> str:
    """What is in FROM, each row once for each window that holds it."""
    if draft.below is None:
        return spread(draft, _rows(draft))
    rows = f"({_Level(draft.below).sql()})"
    if has_larger(draft):  # the event time of a row is the start of its window
        whole = f"SELECT * EXCLUDE (window_start, window_end), epoch_us(window_start) AS _ts FROM {rows}"
        return spread(replace(draft, lateness_us=None), f"({whole})")
    sides = [replace(j, rows=(_Level(d).sql(), "")) for j, d in zip(draft.joins, draft.beside, strict=True)]
    return _beside(sides, rows)


def _rows(draft: Draft) -> str:
    """Rows of streams, or of a UNION ALL, beside those of tables."""
    streams = tuple(draft.schemas)
    rows = f"rows_{streams[0]}" if len(streams) == 1 else "rows_of_all"
    if draft.branches:
        rows = f"({' UNION ALL '.join(map(_branch, draft.branches))})"
    return _beside(draft.joins, rows)


def _branch(branch: Branch) -> str:
    items = [f"{render(value, 'duckdb')} AS {name(column, 'duckdb')}" for column, value in branch.columns]
    where = " AND ".join(f"({render(part, 'duckdb')})" for part in branch.where) or "TRUE"
    rows = _beside(branch.joins, f"rows_{branch.stream}")
    return f"SELECT {', '.join([*items, 'r._ts', 'r._before'])} FROM {rows} AS r WHERE {where}"


def _beside(joins: Sequence[Joined], rows: str) -> str:
    return source_rows(joins, "duckdb", f"{rows} AS r").removesuffix(" AS r")


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
        own = {replace(aggregate, offset=0): None for aggregate in found}
        self.aggregates = {aggregate: f"agg{index}" for index, aggregate in enumerate(own | found)}
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

    def sql(self, *, scales: bool = False) -> str:
        """``scales``: with what the errors of sums are relative to."""
        draft, rows = self.draft, _over(self.draft)
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
        groups = self._beside(f"({self._grouped(rows, scaled)})")
        sql = f"SELECT {', '.join(inner)} FROM {groups} AS g"
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
        own = {one: slot for one, slot in self.aggregates.items() if not one.offset}
        items += [f"{_native(one, _NATIVE[one.name].sql)} AS {slot}" for one, slot in own.items()]
        for index in scaled:
            aggregate = self.of_output[index]
            assert isinstance(aggregate, Aggregate)
            items.append(f"{_native(aggregate, _NATIVE[aggregate.name].scale)} AS scale{index}")
        spread_already = draft.bounds and (draft.below is None or has_larger(draft))
        rows = rows if spread_already else keyed(draft, rows)
        sql = f"SELECT {', '.join(items or ['COUNT(*) AS one'])} FROM {rows} AS r"
        if draft.plain or not (draft.bounds or keys):
            return sql
        sets = [[keys[index] for index in sorted(one)] for one in draft.sets] or [keys]
        lists = ", ".join(f"({', '.join([*draft.bounds, *one])})" for one in sets)
        return f"{sql} GROUP BY GROUPING SETS ({lists})"

    def _beside(self, groups: str) -> str:
        """The groups, each beside the same group of other windows (LAG)."""
        draft, items, joins = self.draft, ["g.*"], []
        for place, step in enumerate(dict.fromkeys(one.offset for one in self.aggregates if one.offset)):
            (window,) = draft.windows
            assert isinstance(window, Sliding)
            at = f"other{place}"
            same = [f"{at}.window_start = g.window_start - to_microseconds({step * window.slide_us})"]
            names = [f"k{index}" for index in range(len(draft.keys))]
            names += [f"z{index}" for index in range(len(draft.keys) if draft.sets else 0)]
            same += [f"{at}.{name} IS NOT DISTINCT FROM g.{name}" for name in names]
            # A set that occurs twice has its rows twice, each of which is beside one.
            once = f"(SELECT DISTINCT ON ({', '.join(['window_start', *names])}) * FROM {groups})"
            joins.append(f"LEFT JOIN {once} AS {at} ON {' AND '.join(same)}")
            for one, slot in self.aggregates.items():
                if one.offset == step:
                    items.append(f"{at}.{self.aggregates[replace(one, offset=0)]} AS {slot}")
        return f"(SELECT {', '.join(items)} FROM {groups} AS g {' '.join(joins)})" if joins else groups

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
    x, t, *_ = [*(f"({render(arg, 'duckdb')})" for arg in aggregate.args), None, None]
    return template.format(*aggregate.params, x=x, t=t or x)
