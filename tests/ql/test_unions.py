"""UNION ALL of streams in one query: as DuckDB over all rows."""

from __future__ import annotations

import random

import duckdb
import pyarrow as pa
import pytest

from elf.aggregates import merge_tables
from elf.batch import encode
from elf.errors import QueryError
from elf.ql.files import tables_of
from elf.ql.plan import Plan
from elf.ql.planner import plan_streams
from elf.ql.statements import Select, parse
from elf.schema import Column, Schema

A = Schema((Column("ts", "timestamp"), Column("page", "text"), Column("ms", "bigint")), "ts")
B = Schema(
    (Column("at", "timestamp"), Column("path", "text"), Column("ms", "text"), Column("s", "double")), "at"
)
SITES = pa.table({"path": ["/", "/a", "/a"], "site": ["root", "one", "two"]})
UNION = (
    "(SELECT page AS p, ms FROM a WHERE ms > 3 UNION ALL SELECT upper(path), s * 1000 FROM b "
    "UNION ALL SELECT 'again', NULL FROM a WHERE page = '/')"
)
BY_HAND = (
    "(SELECT _pane, page AS p, ms::DOUBLE AS ms, ts AS t FROM a WHERE ms > 3 UNION ALL "
    "SELECT _pane, upper(path), s * 1000, b.at FROM b UNION ALL SELECT _pane, 'again', NULL, ts FROM a "
    "WHERE page = '/')"
)


def planned(text: str) -> Plan:
    (statement,) = parse(text)
    assert isinstance(statement, Select)
    tables = tables_of(statement.query, {"s.csv": encode(SITES)})
    return plan_streams(statement.query, {"a": A, "b": B}, tables)


def rows() -> dict[str, pa.Table]:
    chosen = random.Random(3)
    times = [[1_700_000_000_000_000 + chosen.randrange(60_000_000) for _ in range(200)] for _ in "ab"]
    paths = [[chosen.choice(["/", "/a", "/B", None]) for _ in range(200)] for _ in "ab"]
    numbers = [chosen.choice([None, *range(9)]) for _ in range(200)]
    panes = [pa.array([time // 30_000_000 for time in some], pa.int64()) for some in times]
    moments = [pa.array(some, pa.timestamp("us")) for some in times]
    doubles = [None if n is None else n / 8 for n in numbers]
    a = {"ts": moments[0], "page": paths[0], "ms": pa.array(numbers, pa.int64()), "_pane": panes[0]}
    b = {"at": moments[1], "path": paths[1], "ms": ["no"] * 200, "s": doubles, "_pane": panes[1]}
    return {"a": pa.table(a), "b": pa.table(b)}


@pytest.mark.parametrize(
    ("asked", "by_hand"),
    [
        (
            f"SELECT p, COUNT(*) AS n, SUM(ms) AS k FROM {UNION} GROUP BY p",
            f"SELECT p, COUNT(*) AS n, SUM(ms) AS k FROM {BY_HAND} GROUP BY ALL ORDER BY p NULLS LAST",
        ),
        (
            f"WITH u AS {UNION} SELECT COUNT(*) AS n, LAST(p) AS l FROM u WHERE ms < 500 OR ms IS NULL",
            f"SELECT COUNT(*) AS n, arg_max(p, (t, p)) FILTER (WHERE p IS NOT NULL) AS l FROM {BY_HAND} "
            "WHERE ms < 500 OR ms IS NULL",
        ),
        (
            "SELECT site, SUM(x) AS x FROM (SELECT path AS p, 1 AS x FROM b UNION ALL SELECT page, ms FROM a"
            " JOIN 's.csv' AS q ON page = q.path WHERE q.site <> 'two') AS u "
            "LEFT JOIN 's.csv' ON u.p = s.path GROUP BY site",
            "SELECT site, SUM(x) AS x FROM (SELECT path AS p, 1 AS x FROM b UNION ALL SELECT page, ms FROM a"
            " JOIN s AS q ON page = q.path WHERE q.site <> 'two') AS u LEFT JOIN s ON u.p = s.path "
            "GROUP BY ALL ORDER BY site NULLS LAST",
        ),
    ],
)
def test_as_duckdb_over_all_rows(asked: str, by_hand: str) -> None:
    made, given, con = planned(asked), rows(), duckdb.connect()
    partials = []
    for fragment in made.fragments:
        read = given[fragment.stream].select([column.name for column in fragment.columns] + ["_pane"])
        cursor = con.cursor()
        cursor.register("rows", read)
        for table in fragment.tables:
            cursor.register(table.relation, SITES.select([column.name for column in table.columns]))
        partials.append(cursor.sql(fragment.map_sql).to_arrow_table().drop_columns("_pane"))
    first = made.fragment
    con.register("groups", merge_tables(partials, list(first.keys), list(first.states)))
    con.register("s", SITES)
    for name, table in given.items():
        con.register(name, table)
    wanted = con.sql(by_hand).fetchall()
    assert len(wanted) > (0 if "LAST" in asked else 2)
    assert [tuple(map(_plain, row)) for row in con.sql(made.final_sql).fetchall()] == [
        tuple(map(_plain, row)) for row in wanted
    ]
    con.close()


def _plain(value: object) -> object:
    return value if value is None or isinstance(value, str) else float(str(value))


def test_fragments_read_what_their_branches_need() -> None:
    first, second = planned(f"SELECT p, COUNT(*) AS n FROM {UNION} GROUP BY p WINDOWING 30 SECONDS").fragments
    assert [column.name for column in first.columns] == ["page", "ms"]
    assert [column.name for column in second.columns] == ["path"]
    assert (first.keys, first.states) == (second.keys, second.states)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("SELECT COUNT(*) FROM a UNION ALL SELECT COUNT(*) FROM b", "UNION ALL stands in FROM"),
        ("SELECT COUNT(*) FROM (SELECT ms FROM a UNION SELECT ms FROM b)", "UNION without ALL would have to"),
        (
            "SELECT COUNT(*) FROM (SELECT ms FROM a UNION ALL SELECT ms FROM b)",
            'column "ms" .* bigint and text',
        ),
        (
            "SELECT COUNT(*) FROM (SELECT ms FROM a UNION ALL SELECT s, at FROM b)",
            "has 2 columns, the first .* 1",
        ),
        ("SELECT COUNT(*) FROM (SELECT ms FROM a UNION ALL SELECT page FROM b)", 'unknown column "page"'),
        (
            "SELECT COUNT(*) FROM (SELECT ms FROM a UNION ALL SELECT COUNT(*) FROM b)",
            "stand around it|cannot be",
        ),
        ("SELECT COUNT(*) FROM (SELECT ms FROM a UNION ALL SELECT s FROM b GROUP BY s)", "stand around it"),
        (
            "SELECT COUNT(*) FROM (SELECT ms FROM a UNION ALL SELECT s FROM b LIMIT 3)",
            "belongs to the query around",
        ),
        ("SELECT COUNT(*) FROM (SELECT ms FROM a, b UNION ALL SELECT s FROM b)", "reads one stream"),
        ("SELECT COUNT(*) FROM (SELECT s FROM b EXCEPT SELECT ms FROM a)", "write UNION ALL"),
        ("SELECT ms FROM (SELECT ms FROM a UNION ALL SELECT s FROM b)", "gives raw rows"),
    ],
)
def test_what_is_refused(text: str, said: str) -> None:
    with pytest.raises(QueryError, match=said):
        planned(text)
