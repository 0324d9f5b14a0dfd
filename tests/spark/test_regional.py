"""Archives in several regions are reduced where they lie, and merged elsewhere: the rows are the same."""

from __future__ import annotations

import json
from contextlib import nullcontext
from pathlib import Path

import msgspec
import pytest
from pyspark.sql import SparkSession

from agents.recluster import recluster
from elf import batch
from elf.cli.main import main
from elf.errors import UserError
from spark_backend import offline, regional, session
from spark_backend.queries import question
from spark_backend.regional import States
from tests.support.offline import BASE_US, SECOND, clicks, store, store_clicks

SQL = (
    "SELECT product, COUNT(*) AS n, SUM(clicks) AS s, MAX(price) AS m FROM clicks GROUP BY product "
    "WINDOWING 10 SECONDS"
)
REGIONS = ("eu", "ap", "us")
ROWS = 2_000


def run(args: list[str]) -> int:
    """The exit status of a command."""
    with pytest.raises(SystemExit) as end:
        main(args)
    return int(end.value.code or 0)


@pytest.fixture(scope="module")
def archives(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """By region, with many rows of few products."""
    found = {}
    for number, region in enumerate(REGIONS):
        folder = tmp_path_factory.mktemp(region)
        store_clicks(folder, clicks(ROWS, number), agent=region)
        found[region] = str(folder)
    return found


@pytest.fixture(scope="module")
def states(local_spark: SparkSession, archives: dict[str, str]) -> dict[str, States]:
    return {
        region: regional.reduced(local_spark, question(SQL, [path]), SQL, None)
        for region, path in archives.items()
    }


def test_whichever_way_they_come_rows_are_those_of_all_archives_and_fewer_bytes_cross(
    spark: SparkSession, archives: dict[str, str], states: dict[str, States]
) -> None:
    asked = question(SQL, [*archives.values()])
    whole = offline.collected(offline.answer(spark, asked.plan, asked.archived))
    order = [(name, "ascending") for name in ("window_start", "product")]
    first = regional.merged([(region, states[region]) for region in ("eu", "ap")])
    read = regional.read(msgspec.msgpack.encode(first), "both.states")
    last = regional.merged([("both.states", read), ("us", states["us"])])
    flat = regional.merged([(region, states[region]) for region in REGIONS])
    assert whole.num_rows > 3
    for found in (last, flat):
        rows = regional.rows_of(found).select(whole.column_names).sort_by(order)
        assert rows.to_pylist() == whole.sort_by(order).to_pylist()
    assert set(last.sources) == set(flat.sources)
    direct = sum(len(msgspec.msgpack.encode(states[region])) for region in ("eu", "ap"))
    over = len(msgspec.msgpack.encode(read))
    assert over < direct, "groups of both cross the last border once"
    assert direct < 0.5 * sum(states[region].source_bytes for region in ("eu", "ap"))


def test_each_region_reduces_and_another_merges_from_the_shell(
    spark: SparkSession,
    archives: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(session, "opened", lambda *_, **__: nullcontext(spark))
    files = {region: tmp_path / f"{region}.states" for region in ("eu", "ap")}
    for region, path in files.items():
        out = path.as_uri() if region == "eu" else str(path)
        args = ["offline", "reduce", "--archive", archives[region], "-q", SQL, "--out", out]
        assert run(args) == 0
    both, rows = tmp_path / "both.states", tmp_path / "rows.json"
    assert run(["offline", "merge", files["eu"].as_uri(), str(files["ap"]), "--out", str(both)]) == 0
    assert run(["offline", "merge", str(both), "--out", str(rows)]) == 0
    said = capsys.readouterr().err
    assert f"groups of panes are in {both}: {both.stat().st_size:,} bytes in place of" in said
    found = [json.loads(line) for line in rows.read_text().splitlines()]
    written = (row for number in (0, 1) for row in clicks(ROWS, number))
    assert sum(row["n"] for row in found) == sum(row.ts_us is not None for row in written)
    assert run(["offline", "merge", str(both), str(files["eu"])]) != 0
    assert "they would count twice" in capsys.readouterr().err
    assert run(["offline", "reduce", "--archive", archives["eu"], "-q", SQL, "--out", "eu.parquet"]) != 0
    assert "end with .states" in capsys.readouterr().err
    nowhere = tmp_path / "nowhere" / "x.states"
    for name, why in (
        (str(nowhere), "there is no folder"),
        (nowhere.as_uri(), "there is no folder"),
        ("nfs://x/y.states", "'nfs://x' is no place that can be reached"),
        ("file:///tmp/rows.parquet", "end with .states"),
    ):
        assert run(["offline", "merge", str(both), "--out", name]) != 0
        assert why in capsys.readouterr().err
    assert run(["offline", "merge", str(both), nowhere.as_uri()]) != 0
    assert "there is no such file" in capsys.readouterr().err


def test_what_must_not_be_merged_is_not(
    spark: SparkSession, archives: dict[str, str], states: dict[str, States]
) -> None:
    eu, ap = states["eu"], states["ap"]
    both = regional.merged([("eu.states", eu), ("ap.states", ap)])
    with pytest.raises(UserError, match=r"both.states and eu.states both have rows of clicks/"):
        regional.merged([("eu.states", eu), ("both.states", both)])
    other = SQL.replace("10 SECONDS", "20 SECONDS")
    minutes = regional.reduced(spark, question(other, [archives["ap"]]), other, None)
    with pytest.raises(UserError, match="another query"):
        regional.merged([("eu.states", eu), ("ap.states", minutes)])
    span = (BASE_US, BASE_US + 10 * SECOND)
    with pytest.raises(UserError, match="another span"):
        regional.merged([("eu.states", eu), ("ap.states", msgspec.structs.replace(ap, span=span))])
    typed = question(SQL, [archives["ap"]], columns={"clicks": "double"})
    with pytest.raises(UserError, match=r"other columns than eu.states: clicks; declare them alike"):
        regional.merged([("eu.states", eu), ("ap.states", regional.reduced(spark, typed, SQL, None))])
    with pytest.raises(UserError, match="no partial states"):
        regional.read(b"nothing", "x.states")
    later = msgspec.msgpack.encode(msgspec.structs.replace(eu, form="elf partial states 9"))
    with pytest.raises(UserError, match="use one release"):
        regional.read(later, "x.states")
    joined = "SELECT a.product, COUNT(*) AS n FROM clicks GROUP BY product TREES 2 WINDOWING 10 SECONDS"
    with pytest.raises(UserError):
        regional.reduced(spark, question(joined, [archives["eu"]]), joined, None)


@pytest.mark.parametrize("harm", ["cut off", "a byte"])
def test_a_damaged_file_ends_it_or_is_left_out_by_name(
    harm: str,
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(session, "opened", lambda *_, **__: nullcontext(spark))
    for number, agent in enumerate(("a", "b")):
        store_clicks(tmp_path / "t", clicks(200, number), agent=agent)
    (bad,) = (tmp_path / "t").glob("**/date=2026*/**/agent=b/*.parquet")
    data = bytearray(bad.read_bytes())
    data[60] ^= 4
    bad.write_bytes(bytes(data) if harm == "a byte" else bytes(data[:-30]))
    out = tmp_path / "eu.states"
    args = ["offline", "reduce", "--archive", str(tmp_path / "t"), "-q", SQL, "--out", str(out)]
    assert run(args) == 1
    assert f"{bad} is damaged" in capsys.readouterr().err
    assert run([*args, "--skip-damaged"]) == 0
    assert f"{bad} is damaged and left out" in capsys.readouterr().err
    states = regional.read(out.read_bytes(), "eu.states")
    assert states.sources
    assert not [one for one in states.sources if str(bad).endswith(one.path.removeprefix("clicks"))]


def test_an_archive_that_is_named_twice_counts_once_or_not_at_all(
    spark: SparkSession, archives: dict[str, str]
) -> None:
    asked = question(SQL, [archives["eu"], archives["eu"]])
    with pytest.raises(UserError, match="count twice"):
        regional.reduced(spark, asked, SQL, None)


def test_an_archive_that_is_sorted_in_between_counts_once_or_not_at_all(
    spark: SparkSession, tmp_path: Path
) -> None:
    folder, rows = str(tmp_path / "eu"), clicks(200, 1)
    facts = {"format": "json", "timestamp": "ts"}
    store(tmp_path / "eu", [row.line() for row in rows], [row.ts_us for row in rows], facts=facts)
    before = regional.reduced(spark, question(SQL, [folder]), SQL, None)
    assert recluster(folder, "clicks", "product").files
    after = regional.reduced(spark, question(SQL, [folder]), SQL, None)
    assert not {one.path for one in before.sources} & {one.path for one in after.sources}
    assert regional.rows_of(after).num_rows == regional.rows_of(before).num_rows
    with pytest.raises(UserError, match=r"after\.states and before\.states both have rows of clicks/"):
        regional.merged([("before.states", before), ("after.states", after)])


def test_a_table_that_is_cut_off_is_refused_and_a_large_one_is_not(
    states: dict[str, States], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch, "BYTES_MAX", 100)
    for data in (states["eu"].data[:-30], b""):
        harmed = msgspec.msgpack.encode(msgspec.structs.replace(states["eu"], data=data))
        with pytest.raises(UserError, match=r"eu\.states has no partial states"):
            regional.read(harmed, "eu.states")
    assert regional.read(msgspec.msgpack.encode(states["eu"]), "eu.states").table.num_rows
