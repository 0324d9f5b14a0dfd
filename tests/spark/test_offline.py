"""A query over a real archive, written by ``agents.tasks.archive``, against rows counted by hand."""

from __future__ import annotations

import datetime as dt
import json
from dataclasses import replace
from itertools import product
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from agents.archive.partitions import HOUR_US, ArchiveError
from elf.batch import encode
from elf.ql.files import tables_of
from elf.ql.planner import plan, plan_streams, plan_text
from elf.ql.statements import Select, parse
from elf.schema import Column, Schema
from spark_backend import offline
from spark_backend.compare import LiveWindow, compare
from tests.support.offline import (
    BASE_US,
    CLICKS,
    SECOND,
    Click,
    archived,
    by_window,
    clicks,
    counted,
    store,
    store_clicks,
    windows,
)


@pytest.mark.parametrize(("size_s", "slide_s"), [(10, 10), (20, 5)])
def test_windows_have_the_rows_that_a_loop_counts(
    spark: SparkSession, tmp_path: Path, size_s: int, slide_s: int
) -> None:
    rows = [*clicks(150, 1), *clicks(40, 2, from_us=BASE_US - 30 * SECOND)]
    store_clicks(tmp_path / "t", rows[:100], agent="a")
    store_clicks(tmp_path / "t", rows[100:], agent="b")
    plan = plan_text(
        "SELECT product, COUNT(*) AS n, SUM(clicks) AS s FROM clicks GROUP BY product "
        f"WINDOWING {size_s} SECONDS" + (f" SLIDE {slide_s} SECONDS" if slide_s < size_s else ""),
        CLICKS,
        stream="clicks",
    )
    asked = windows(size_s, slide_s, 4)
    found = by_window(offline.run(spark, plan, [archived(tmp_path / "t")], asked))
    for start, end in asked:
        rows_found = {str(product): (n, int(str(s))) for product, n, s in found[start]}
        assert rows_found == counted(rows, start, end)
    assert set(found) == {start for start, _ in asked}


def test_everything_without_a_window_clause_counts_rows_without_time_too(
    spark: SparkSession, tmp_path: Path
) -> None:
    rows = clicks(60, 3)
    store_clicks(tmp_path / "one", rows[:20])
    store_clicks(tmp_path / "two", rows[20:])
    plan = plan_text(
        "SELECT user.location AS place, COUNT(*) AS n, AVG(price) AS p FROM clicks GROUP BY user.location "
        "ORDER BY n DESC",
        CLICKS,
        stream="clicks",
    )
    table = offline.run(spark, plan, [archived(tmp_path / "one"), archived(tmp_path / "two")], [])
    assert table.column_names == ["place", "n", "p"]
    expected = {place: [row for row in rows if row.location == place] for place in ("Ohio", "ohio", None)}
    assert {row["place"]: row["n"] for row in table.to_pylist()} == {k: len(v) for k, v in expected.items()}
    for row in table.to_pylist():
        prices = [one.price for one in expected[row["place"]]]
        assert row["p"] == pytest.approx(sum(prices) / len(prices), rel=1e-12)


def test_rows_say_where_they_come_from(spark: SparkSession, tmp_path: Path) -> None:
    lines = [row.line() for row in clicks(3, 5)]
    for agent, log, facts in (
        ("a", "/log/1", {"agent_name": "web-1", "labels": '{"role": "shop"}'}),
        ("a", "/log/2", {"agent_name": "web-1", "labels": "{}"}),
        ("b", "/log/1", {"agent_name": "web-2", "labels": '{"role": "blog", "x": "y"}'}),
        ("c", "/log/1", {}),
    ):
        store(tmp_path / "t", lines, [BASE_US] * 3, agent=agent, log=log, facts=facts)
    schema = replace(CLICKS, labels=("role", "x"))
    where = "_source, _agent, _labels.role AS role"
    made = plan_text(
        f"SELECT {where}, COUNT(*) AS n FROM clicks "
        "WHERE _line LIKE '{%' AND _agent <> 'x' OR _agent IS NULL "
        "GROUP BY _source, _agent, _labels.role",
        schema,
        stream="clicks",
    )
    found = offline.run(spark, made, [archived(tmp_path / "t")], [])
    assert sorted(map(str, zip(*(column.to_pylist() for column in found.columns), strict=True))) == [
        "('/log/1', 'web-1', 'shop', 3)",
        "('/log/1', 'web-2', 'blog', 3)",
        "('/log/1', None, None, 3)",
        "('/log/2', 'web-1', None, 3)",
    ]


def test_a_stream_joined_with_tables(spark: SparkSession, tmp_path: Path) -> None:
    rows = clicks(120, 6)
    store_clicks(tmp_path / "t", rows)
    opened = pa.array([None, dt.datetime(2020, 2, 29), None, dt.datetime(1969, 1, 1)], pa.timestamp("us"))
    names, kinds = ["doom", "doom", "日本語", "myst"], ["a", "b", "b", "c"]
    games = pa.table({"name": names, "kind": kinds, "opened": opened})
    bands = pa.table({"low": [-9, 1], "high": [0, 4], "band": ["few", "some"], "t0.name": [True, False]})
    (asked,) = parse(
        "SELECT kind, band, SUM(clicks) AS n, MAX(opened) AS last FROM clicks JOIN 'g.csv' AS g "
        "ON product = g.name LEFT JOIN 'b.csv' AS b ON clicks BETWEEN low AND high "
        "WHERE clicks <> 2 AND (band IS NULL OR kind <> 'c') GROUP BY kind, band WINDOWING 20 SECONDS"
    )
    assert isinstance(asked, Select)
    tables = tables_of(asked.query, {"g.csv": encode(games), "b.csv": encode(bands)})
    made = plan(asked.query, CLICKS, stream="clicks", tables=tables)
    asked_for = windows(20, 20, 3)
    found = by_window(offline.run(spark, made, [archived(tmp_path / "t")], asked_for))
    for start, end in asked_for:
        wanted: dict[tuple[object, ...], tuple[int, object]] = {}
        inside = [row for row in rows if row.ts_us is not None and start <= row.ts_us < end]
        for row, game in product([row for row in inside if row.clicks != 2], games.to_pylist()):
            if row.product == game["name"]:
                band = next(
                    (b["band"] for b in bands.to_pylist() if b["low"] <= row.clicks <= b["high"]), None
                )
                total, last = wanted.get((game["kind"], band), (0, None))
                wanted[game["kind"], band] = (total + row.clicks, game["opened"] or last)
        got = {
            (kind, band): (int(str(n)), last if last is None else last.replace(tzinfo=None))
            for kind, band, n, last in found[start]
        }
        assert got == wanted
        assert len(got) > 3


def test_several_streams_with_different_columns(spark: SparkSession, tmp_path: Path) -> None:
    rows = clicks(40, 7)
    store_clicks(tmp_path / "t", rows)
    at = [BASE_US + n * SECOND for n in range(20)]
    lines = [json.dumps({"product": "doom", "clicks": n + 0.5}) for n in range(20)]
    store(tmp_path / "t", lines, list(at), stream="views", agent="b")
    (asked,) = parse(
        "SELECT product, COUNT(*) AS n, SUM(clicks) AS k, COUNT(price) AS p FROM clicks, views "
        "GROUP BY product WINDOWING 60 SECONDS"
    )
    assert isinstance(asked, Select)
    views = Schema((Column("ts", "timestamp"), Column("product", "text"), Column("clicks", "double")), "ts")
    made = plan_streams(asked.query, {"clicks": CLICKS, "views": views})
    sources = [archived(tmp_path / "t"), archived(tmp_path / "t", "views")]
    found = by_window(offline.run(spark, made, sources, windows(60, 60, 1)))[BASE_US]
    wanted = {p: (n, float(k), n) for p, (n, k) in counted(rows, BASE_US, BASE_US + 60 * SECOND).items()}
    n, k, p = wanted["doom"]
    wanted["doom"] = (n + 20, k + 200.0, p)
    assert {row[0]: row[1:] for row in found} == wanted
    (asked,) = parse(
        "SELECT kind, COUNT(*) AS n, SUM(v) AS v FROM (SELECT product AS kind, clicks AS v FROM clicks "
        "WHERE clicks > 1 UNION ALL SELECT 'view', clicks * 2 FROM views) GROUP BY kind WINDOWING 60 SECONDS"
    )
    assert isinstance(asked, Select)
    texts = Schema((Column("ts", "timestamp"), Column("product", "bigint"), Column("clicks", "double")), "ts")
    made = plan_streams(asked.query, {"clicks": CLICKS, "views": texts})
    found = by_window(offline.run(spark, made, sources, windows(60, 60, 1)))[BASE_US]
    some = counted([row for row in rows if row.clicks > 1], BASE_US, BASE_US + 60 * SECOND)
    assert {row[0]: row[1:] for row in found} == {**some, "view": (20, 400.0)}


def test_only_the_hours_of_the_windows_are_read(spark: SparkSession, tmp_path: Path) -> None:
    near, far = clicks(30, 4), clicks(30, 5, from_us=BASE_US + 3 * HOUR_US)
    store_clicks(tmp_path / "t", near + far)
    for file in (tmp_path / "t").rglob("hour=03/**/*.parquet"):
        file.write_bytes(b"nobody may read this")
    plan = plan_text("SELECT COUNT(*) AS n FROM clicks WINDOWING 60 SECONDS", CLICKS, stream="clicks")
    table = offline.run(spark, plan, [archived(tmp_path / "t")], windows(60, 60, 1))
    assert table["n"].to_pylist() == [sum(row.ts_us is not None for row in near)]
    with pytest.raises(ArchiveError, match=r"hour=03.*is damaged"):
        offline.run(spark, plan, [archived(tmp_path / "t")], windows(60, 60, 1, BASE_US + 3 * HOUR_US))


def test_an_access_log(spark: SparkSession, tmp_path: Path) -> None:
    lines = [
        f"10.0.0.{n % 3} - - [01/Jan/2026:00:00:{n:02d} +0000] "
        f'"GET /p{n % 2}?a=1 HTTP/1.1" {200 + n % 2} {n * 100} "-" "ua"'
        for n in range(30)
    ]
    store(tmp_path / "t", lines, [BASE_US + n * SECOND for n in range(30)], stream="web")
    schema = Schema(
        (
            Column("ts", "timestamp"),
            Column("cs_uri_stem", "text"),
            Column("sc_status", "bigint"),
            Column("sc_bytes", "bigint"),
            Column("cs_referer", "text"),
        ),
        event_time="ts",
    )
    plan = plan_text(
        "SELECT cs_uri_stem AS uri, sc_status AS status, SUM(sc_bytes) AS bytes, COUNT(cs_referer) AS refs "
        "FROM web GROUP BY cs_uri_stem, sc_status WINDOWING 10 SECONDS",
        schema,
        stream="web",
    )
    found = by_window(
        offline.run(spark, plan, [archived(tmp_path / "t", "web", "combined")], windows(10, 10, 3))
    )
    for k in range(3):
        sums = [sum(n * 100 for n in range(k * 10, k * 10 + 10) if n % 2 == odd) for odd in (0, 1)]
        rows = {
            (uri, status, int(str(total)), refs)
            for uri, status, total, refs in found[BASE_US + k * 10 * SECOND]
        }
        assert rows == {("/p0", 200, sums[0], 0), ("/p1", 201, sums[1], 0)}


def test_a_lost_row_and_an_unknown_window_are_found(spark: SparkSession, tmp_path: Path) -> None:
    rows = [Click(BASE_US + n * SECOND, "doom", None, 1, 0.5) for n in range(30)]
    store_clicks(tmp_path / "t", rows)
    plan = plan_text(
        "SELECT product, COUNT(*) AS n FROM c GROUP BY product WINDOWING 10 SECONDS", CLICKS, stream="c"
    )
    table = offline.run(spark, plan, [archived(tmp_path / "t")], windows(10, 10, 3))

    def live(start_s: int, count: int) -> LiveWindow:
        start = BASE_US + start_s * SECOND
        return LiveWindow(start, start + 10 * SECOND, 0, {}, pa.table({"product": ["doom"], "n": [count]}))

    assert compare([live(0, 10), live(10, 10), live(20, 10)], table).equal
    assert not compare([live(0, 10), live(10, 9), live(20, 10)], table).equal
    missing = compare([live(0, 10), live(20, 10)], table)
    assert [window.revision for window in missing.windows] == [0, None, 0]


def test_an_archive_without_a_file_has_no_rows(spark: SparkSession, tmp_path: Path) -> None:
    plan = plan_text("SELECT COUNT(*) AS n FROM c WINDOWING 10 SECONDS", CLICKS, stream="c")
    table = offline.run(spark, plan, [archived(tmp_path / "t")], windows(10, 10, 3))
    assert (table.num_rows, table.column_names) == (0, ["window_start", "window_end", "n"])
    whole = plan_text("SELECT COUNT(*) AS n FROM c", CLICKS, stream="c")
    assert offline.run(spark, whole, [archived(tmp_path / "t")], [])["n"].to_pylist() == [0]


def test_the_session_says_no_wrong_number_and_knows_no_other_time_zone(spark: SparkSession) -> None:
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert spark.conf.get("spark.sql.ansi.enabled") == "true"
    assert spark.sql("SELECT TRY_CAST('x' AS BIGINT) AS n").toArrow()["n"].to_pylist() == [None]
    with pytest.raises(Exception, match="ARITHMETIC_OVERFLOW"):
        spark.sql("SELECT 9223372036854775807L + 1L AS n").toArrow()


@pytest.mark.parametrize("harm", ["cut off", "a byte", "empty"])
def test_a_damaged_file_is_named_and_left_out(harm: str, spark: SparkSession, tmp_path: Path) -> None:
    """Also where its footer is whole and only the checksum of a page says so."""
    for agent, first in (("a", 0), ("b", 20)):
        lines = [json.dumps({"product": "doom", "clicks": n}) for n in range(first, first + 20)]
        store(tmp_path / "t", lines, [BASE_US] * 20, agent=agent)
    (bad,) = (tmp_path / "t").glob("**/agent=b/*.parquet")
    data = bytearray(bad.read_bytes())
    data[60] ^= 4
    bad.write_bytes({"cut off": bytes(data[:-20]), "a byte": bytes(data), "empty": b""}[harm])
    plan = plan_text("SELECT SUM(clicks) AS n FROM x WINDOWING 60 SECONDS", CLICKS)
    told: list[tuple[str, str]] = []
    sources = [archived(tmp_path / "t")]
    table = offline.run(spark, plan, sources, windows(60, 60, 1), lambda *one: told.append(one))
    assert table["n"].to_pylist() == [sum(range(20))]
    ((path, why),) = told
    assert Path(path) == bad
    assert why
    with pytest.raises(ArchiveError, match="is damaged"):
        offline.run(spark, plan, sources, windows(60, 60, 1))
