"""Partial aggregates by Spark: what agents' maps would have made of the same lines, in the same columns.

A fragment's map is rendered for both engines from one plan (``elf.ql.render_spark.render_partials``). Sums,
minima, maxima and cells merge in any order, so partial aggregates of Spark and of agents, over lines that
they share out in any way, merge to what either would have made of all of them (sums of doubles: to one part
in 10¹²). What follows, windows and the final fragment, is elf's own.

In the examples ``spark``, ``plan`` and ``archive`` are those of ``spark_backend.offline``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from agents.archive.manifest import File
from agents.tasks.direct import types_of
from agents.tasks.engine import Statement
from elf.aggregates import normalise, split_by_range
from elf.batch import decode
from elf.errors import UserError
from elf.paos.builtin import PACKED_END
from elf.ql.expressions import Call, Kind, Slot
from elf.ql.lookups import lookups_in
from elf.ql.own import owns_of
from elf.ql.pairs import PACKED, pair
from elf.ql.plan import CREDIT, Fragment
from elf.ql.render import render
from elf.ql.templates import name as quoted
from spark_backend import aggregates, lookups
from spark_backend.offline import VIEW, Archived, Damaged, refuse, rows_of, zoned
from spark_backend.session import failing

_KINDS: Final[Mapping[int, Kind]] = {
    pa.int64().id: "bigint",
    pa.float64().id: "double",
    pa.bool_().id: "boolean",
    pa.timestamp("us").id: "timestamp",
    pa.string().id: "text",
    pa.decimal128(38, 0).id: "hugeint",
}


def partials(
    spark: SparkSession,
    fragment: Fragment,
    archived: Sequence[Archived],
    span: tuple[int, int] | None = None,
    damaged: Damaged | None = refuse,
    files: Sequence[File] | None = None,
) -> pa.Table:
    """A fragment's partial aggregates over archived lines.

    Args:
        spark (SparkSession): of ``spark_backend.session.opened``.
        fragment (Fragment): one of ``Plan.fragments``.
        archived (Sequence[Archived]): where the lines of its stream are.
        span (tuple[int, int] | None): event times ``[from, to)`` in µs since the epoch; panes that it cuts
            have their rows within it alone. None: everything.
        damaged (Damaged): as ``spark_backend.offline.run`` takes it.
        files (Sequence[File] | None): these alone, of ``spark_backend.offline.files_of``; None: all that the
            span can need.

    Returns:
        pyarrow.Table: ``_pane`` (int64), then ``fragment.keys`` and ``fragment.states`` in the types of the
        agents' own; a row for each distinct (pane, keys), in no fixed order. ``elf.aggregates.merge_tables``
        with the keys ``("_pane", *fragment.keys)`` merges it with theirs.

    Raises:
        UserError: for a fragment that Spark has no map for: windows of rows, late rows, a map function.
        ArchiveError: when an archive cannot be listed, or a file not be read.
        SparkFailed: when Spark cannot run the map.

    Example:
        >>> found = partials(spark, plan.fragment, [Archived(archive, "clicks", "json", "ts")])
        >>> found.column_names, found["k0"].to_pylist(), found["s0_count"].to_pylist()
        (['_pane', 'k0', 's0_count'], ['Doom'], [2])
    """
    if not fragment.spark_sql or fragment.late_of:
        raise UserError(
            f"Spark has no map for this query over {fragment.stream}: windows of rows, late rows and map "
            "functions are for the live engine alone"
        )
    with failing():
        parts = [rows_of(spark, fragment, one, span, damaged, files) for one in archived]
        reduce(DataFrame.unionByName, parts).createOrReplaceTempView(VIEW)
        for table in fragment.tables:
            spark.createDataFrame(zoned(decode(table.data))).createOrReplaceTempView(table.relation)
        lookups.register(spark, lookups_in(fragment.spark_sql))
        aggregates.register(spark, owns_of([fragment]))
        found = spark.sql(fragment.spark_sql)
        structs = {f.name: f.dataType.names for f in found.schema if isinstance(f.dataType, StructType)}
        items = [F.col(name) for name in found.columns if name not in structs]
        for name, fields in structs.items():
            items += [F.col(f"{name}.{field}").alias(f"{name}.{field}") for field in fields]
        table = found.select(*items).toArrow()
    return _as_agents_do(_packed(table, structs), fragment)


def _packed(table: pa.Table, structs: Mapping[str, Sequence[str]]) -> pa.Table:
    """With the values that agents have where Spark has structs, whose fields are columns: ``elf.ql.pairs``,
    and the ends of ``elf.paos.builtin``."""
    if not structs:
        return table
    fields = {f"{name}.{field}" for name, of in structs.items() for field in of}
    items = [f"g.{quoted(name, 'duckdb')}" for name in table.column_names if name not in fields]
    for name, of in structs.items():
        t, x = (_slot(table, f"{name}.{field}") for field in ("t", "x"))
        if "n" in of:  # whether it is beside all others; those by NULL are either all last or all first
            by, n = table[f"{name}.t"], table[f"{name}.n"]
            low = pc.any(pc.and_(pc.is_null(by), pc.invert(n))).as_py() or False
            text = render(pair(x, t, low=low), "duckdb")
        else:
            packed = Call(f"pack {x.kind}", (x,), "bigint") if x.kind in PACKED else x
            text = PACKED_END.format(time=render(t, "duckdb"), x=render(packed, "duckdb"))
        items.append(f"{text} AS {quoted(name, 'duckdb')}")
    statement = Statement(f"SELECT {', '.join(items)} FROM found AS g", "found", table.schema)
    try:
        return statement.run(table)
    finally:
        statement.close()


def _slot(table: pa.Table, column: str) -> Slot:
    return Slot(quoted(column, "duckdb"), _KINDS[table[column].type.id])


def _as_agents_do(found: pa.Table, fragment: Fragment) -> pa.Table:
    """In the types that merging works with; with what an approximate flow has besides, and of its key range
    alone."""
    types = types_of(fragment)
    table = normalise(found.select(types.names).cast(types), fragment.keys, fragment.states)
    if fragment.keep is not None:  # nothing is cut
        table = table.append_column(CREDIT, pa.array([0.0] * table.num_rows, pa.float64()))
    place, count = fragment.range
    return table if count == 1 else split_by_range(table, fragment.ranged_by, count)[place]
