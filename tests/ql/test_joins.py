"""Streams joined with tables: the live answer against DuckDB over all rows, and what travels with a query."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator

import duckdb
import pyarrow as pa
import pytest

from elf.batch import decode, encode
from elf.errors import QueryError, UserError
from elf.job.spec import flow_uid
from elf.ql.changes import AlterJob
from elf.ql.files import files_of, tables_asked, tables_of, with_file
from elf.ql.plan import Fragment, Function, Plan
from elf.ql.planner import plan, plan_streams
from elf.ql.statements import Query, Select, joined_files, parse
from elf.ql.tables import SENT_BYTES_MAX
from elf.ql.user_functions import with_function
from elf.schema import Column, Schema
from tests.support.ql_cases import prepare
from tests.support.ql_pipeline import difference, run_by_hand, run_live
from tests.support.ql_table import BANDS, CONTENTS, SCHEMA, STORES, rows

TABLE = rows()
JOIN = "JOIN 'd/stores.csv' AS s ON x.store = s.store"
BAND = "LEFT JOIN 'bands.parquet' ON clicks BETWEEN low AND high"
CASES = [
    (
        f"SELECT city, COUNT(*) AS n, SUM(rating) AS r FROM x {JOIN} GROUP BY city",
        "SELECT city, COUNT(*) AS n, SUM(rating) AS r FROM t JOIN s USING (store) GROUP BY 1 ORDER BY 1",
    ),
    (
        f"SELECT x.store, s.city, COUNT(*) AS n, COUNT(rating) AS m FROM x LEFT {JOIN} "
        "AND rating > -1 AND clicks > 2 GROUP BY 1, 2",
        "SELECT t.store, s.city, COUNT(*) AS n, COUNT(rating) AS m FROM t LEFT JOIN s ON t.store = s.store "
        "AND rating > -1 AND clicks > 2 GROUP BY 1, 2 ORDER BY 1 NULLS LAST, 2 NULLS LAST",
    ),
    (
        "SELECT store, MIN(opened) AS first, COUNT(DISTINCT city) AS c FROM x "
        "LEFT JOIN 'd/stores.csv' USING (store) WHERE city IS NULL OR clicks > 0 GROUP BY store",
        "SELECT store, MIN(opened) AS first, COUNT(DISTINCT city) AS c FROM t LEFT JOIN s USING (store) "
        "WHERE city IS NULL OR clicks > 0 GROUP BY store ORDER BY store NULLS LAST",
    ),
    (
        f"SELECT band, bands.ok, COUNT(DISTINCT city) AS c, SUM(clicks) AS k FROM x {BAND} {JOIN} "
        "WHERE product <> 'doom' GROUP BY band, bands.ok HAVING COUNT(*) > 3 WINDOWING 30 SECONDS",
        "SELECT window_start, window_end, band, b.ok, COUNT(DISTINCT city) AS c, SUM(clicks) AS k "
        "FROM by_30s AS t LEFT JOIN b ON clicks BETWEEN low AND high JOIN s ON t.store = s.store "
        "WHERE product <> 'doom' GROUP BY ALL HAVING COUNT(*) > 3 "
        "ORDER BY 1, 2, 3 NULLS LAST, 4 NULLS LAST",
    ),
    (
        f"SELECT upper(city) AS place, COUNT(*) AS n FROM (SELECT city, clicks AS k FROM x {JOIN} "
        "WHERE clicks > 1) AS q JOIN 'bands.parquet' AS b ON q.k = b.high OR q.k = b.low GROUP BY place",
        "SELECT upper(city) AS place, COUNT(*) AS n FROM t JOIN s USING (store) "
        "JOIN b ON clicks = high OR clicks = low WHERE clicks > 1 GROUP BY 1 ORDER BY 1",
    ),
    (
        "SELECT COUNT(*) AS n FROM (SELECT * FROM x JOIN 'd/stores.csv' USING (store)) WHERE rating > 1",
        "SELECT COUNT(*) AS n FROM t JOIN s USING (store) WHERE rating > 1",
    ),
    (
        f"SELECT s.city, COUNT(*) AS n FROM x LEFT {JOIN} WHERE x.store IN (SELECT store FROM 'd/stores.csv' "
        "AS a) OR clicks NOT IN (SELECT high FROM 'bands.parquet') GROUP BY s.city",
        "SELECT s.city, COUNT(*) AS n FROM t LEFT JOIN s ON t.store = s.store WHERE t.store IN "
        "(SELECT store FROM s) OR clicks NOT IN (SELECT high FROM b) GROUP BY s.city ORDER BY 1 NULLS LAST",
    ),
    (
        "SELECT COUNT(*) AS n FROM (SELECT product AS p FROM x WHERE clicks IN (SELECT low FROM "
        "'bands.parquet') UNION ALL SELECT store FROM x) "
        "WHERE p NOT IN (SELECT DISTINCT s.store FROM 'd/stores.csv' AS s)",
        "SELECT COUNT(*) AS n FROM (SELECT product AS p FROM t WHERE clicks IN (SELECT low FROM b) "
        "UNION ALL SELECT store FROM t) WHERE p NOT IN (SELECT store FROM s)",
    ),
]


def query(text: str) -> Query:
    (statement,) = parse(text)
    assert isinstance(statement, Select)
    return statement.query


def planned(text: str) -> Plan:
    asked = query(text)
    return plan(asked, SCHEMA, stream="x", tables=tables_of(asked, CONTENTS))


@pytest.fixture(scope="module")
def con() -> Iterator[duckdb.DuckDBPyConnection]:
    connection = duckdb.connect()
    connection.execute("SET threads = 1")
    prepare(connection, TABLE)
    connection.register("s", STORES)
    connection.register("b", BANDS)
    yield connection
    connection.close()


@pytest.mark.parametrize(("asked", "by_hand"), CASES)
def test_as_duckdb_over_all_rows(con: duckdb.DuckDBPyConnection, asked: str, by_hand: str) -> None:
    made = planned(asked)
    for table in made.fragment.tables:
        con.register(table.relation, decode(table.data))
    wanted = run_by_hand(con, by_hand)
    assert wanted[1]
    for parts in (1, 5):
        assert difference(run_live(con, made, TABLE, parts=parts, seed=parts), wanted) is None


@pytest.mark.parametrize(
    ("values", "asked"),
    [
        ([0.0, -0.0, None, math.nan, -math.nan], 0.0),
        ([0, 7], -0.0),
        ([2**53, 2**53 + 1], 2.0**53),
        ([0.0, -0.0, math.nan, -math.nan], math.nan),
    ],
)
def test_a_row_meets_at_most_one_of_the_values_that_are_equal_to_it(
    con: duckdb.DuckDBPyConnection, values: list[float | None], asked: float
) -> None:
    schema = Schema((Column("ts", "timestamp"), Column("d", "double")), "ts")
    text = query("SELECT COUNT(*) AS n FROM x WHERE d IN (SELECT v FROM 'f.csv')")
    made = plan(text, schema, stream="x", tables=tables_of(text, {"f.csv": encode(pa.table({"v": values}))}))
    for table in made.fragment.tables:
        con.register(table.relation, decode(table.data))
    one = pa.table({"_pane": pa.array([0], pa.int64()), "d": pa.array([asked], pa.float64())})
    con.register("rows", one)
    assert con.sql(made.fragment.map_sql).fetchall() == [(0, 1)]


def test_a_fragment_takes_what_it_needs_and_is_shared_by_contents() -> None:
    where = "WHERE clicks > 2 AND rating > 1 GROUP BY city"
    one = planned(f"SELECT city, COUNT(*) AS n FROM x {JOIN} {where}").fragment
    (table,) = one.tables
    assert [column.name for column in table.columns] == ["store", "city", "rating"]
    assert [column.name for column in one.columns] == ["store", "clicks"]
    assert one.where_sql == 'r."clicks" > 2'
    assert decode(table.data).equals(STORES.select(["store", "city", "rating"]))

    def again(contents: pa.Table) -> Fragment:
        asked = query(f"SELECT q.city FROM x AS y JOIN 'other.csv' AS q ON y.store = q.store {where}")
        tables = tables_of(asked, {"other.csv": encode(contents)})
        return plan(asked, SCHEMA, stream="x", tables=tables).fragment

    same, other = again(STORES), again(STORES.slice(1))
    assert (same, flow_uid(same, "")) == (one, flow_uid(one, ""))
    assert other != one
    assert flow_uid(other, "") != flow_uid(one, "")


def test_several_streams_are_joined_with_one_table() -> None:
    asked = query("SELECT city, SUM(clicks) AS n FROM a, b JOIN 'd/stores.csv' AS s USING (store) GROUP BY 1")
    narrow = Schema((Column("ts", "timestamp"), Column("store", "text")), "ts")
    made = plan_streams(asked, {"a": SCHEMA, "b": narrow}, tables_of(asked, CONTENTS))
    first, second = made.fragments
    assert first.tables == second.tables
    assert "CAST(NULL AS BIGINT)" in second.map_sql
    assert "CAST(NULL AS BIGINT)" not in first.map_sql


def test_a_table_of_a_job_is_named_like_a_file_and_is_none() -> None:
    asked = query(
        "SELECT c.n, COUNT(*) FROM x JOIN TABLE client AS c USING (store) "
        "WHERE store NOT IN (SELECT store FROM TABLE gone) GROUP BY c.n"
    )
    assert files_of(asked) == {"c": "TABLE client", "gone": "TABLE gone"}
    assert tables_asked(asked) == {"c": "client", "gone": "gone"}
    assert joined_files(asked.sql) == ()
    changed = with_file(with_file(asked, "C", "c.csv"), "gone", "TABLE left")
    assert files_of(changed) == {"c": "c.csv", "gone": "TABLE left"}
    assert files_of(with_file(changed, "gone", "TABLE left")) == files_of(changed)
    with pytest.raises(
        UserError, match="JOIN TABLE client is for the streams of a fleet, which keeps the table"
    ):
        tables_of(asked, {})
    (statement,) = parse("ALTER JOB j SET TABLE c FROM TABLE client RESET")
    assert isinstance(statement, AlterJob)
    assert (statement.table, statement.reset) == (("c", "TABLE client"), True)
    with pytest.raises(QueryError, match=r"expected '\./TABLE client' for a file of this name"):
        parse("ALTER JOB j SET TABLE c FROM 'TABLE client'")


def test_the_files_of_a_text_are_found_in_its_tokens() -> None:
    text = (
        "CREATE JOB a AS SELECT 'JOIN ''no.csv''' FROM x JOIN 'yes.csv' AS y USING (a) -- JOIN 'no.csv'\n"
        "LEFT JOIN 'it''s.db:t' AS z USING (a); ALTER JOB b SET TABLE p FROM 'new.csv'; "
        "ALTER JOB b SET t = 'no'"
    )
    assert joined_files(text) == ("yes.csv", "it's.db:t", "new.csv")
    assert joined_files("SELECT 'never closed") == ()


def test_a_table_of_a_query_gets_another_file() -> None:
    asked = query(f"SELECT COUNT(*) FROM x JOIN 'd/stores.csv' USING (store) {BAND}")
    changed = with_file(with_file(asked, "stores", "it's new.csv"), "BANDS", "b.json")
    assert files_of(changed) == {"stores": "it's new.csv", "bands": "b.json"}
    assert "FROM x JOIN 'it''s new.csv' AS stores USING (store) LEFT JOIN 'b.json' AS bands ON" in changed.sql


def test_what_cannot_go_with_a_job() -> None:
    with pytest.raises(UserError, match=r"'gone\.csv' did not come"):
        planned("SELECT COUNT(*) FROM x JOIN 'gone.csv' AS s USING (store)")
    with pytest.raises(UserError, match="no table"):
        tables_of(query(f"SELECT COUNT(*) FROM x {JOIN}"), {"d/stores.csv": b"what is this"})
    with pytest.raises(UserError, match="map function over rows that are joined"):
        with_function(planned(f"SELECT COUNT(*) FROM x {JOIN}"), Function("map", "", "map.py"))


def test_a_table_that_is_too_large_is_refused_at_its_place() -> None:
    chosen = random.Random(1)
    many = [chosen.randbytes(12).hex() for _ in range(SENT_BYTES_MAX // 24)]
    contents = {"m.csv": encode(pa.table({"store": many, "wide": many[::-1]}))}
    text = "SELECT {} FROM x JOIN 'm.csv' AS m ON x.store = m.store GROUP BY x.store TREES {}"
    narrow = query(text.format("x.store", 1))
    assert plan(narrow, SCHEMA, stream="x", tables=tables_of(narrow, contents)).fragment.tables
    for asked in (query(text.format("MAX(wide)", 1)), query(text.format("x.store", 4))):
        with pytest.raises(QueryError, match=r"comes to \d+ KiB.* at most 256 KiB .*column \d+"):
            plan(asked, SCHEMA, stream="x", tables=tables_of(asked, contents))
