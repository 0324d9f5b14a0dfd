"""Functions that look something up: what they give, where they may stand, and what is said without tables."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from agents.loading import load
from agents.lookups import LOOKUPS, Lookups
from agents.lookups import geoip as geoip_module
from agents.lookups import useragents as useragents_module
from agents.process import _look_at_databases
from agents.tasks.direct import types_of
from agents.tasks.engine import Mapper
from agents.validation import validate
from elf.cli import compare
from elf.errors import QueryError, UserError
from elf.job.ports import MapFailed, Wanted
from elf.ql.catalogue import catalogue
from elf.ql.lookups import LOOKUPS as KNOWN
from elf.ql.lookups import lookups_in
from elf.ql.planner import plan_streams, plan_text
from elf.ql.statements import parse_query
from elf.schema import Column, Schema
from spark_backend import lookups as spark_lookups
from spark_backend import offline
from tests.support.archived import append, archive_in
from tests.support.files import written
from tests.support.mmdb import FLAT, NETWORKS, PLACES, database
from tests.support.offline import BASE_US, archived, store
from tests.support.run_command import elf_run
from tests.support.waiting import eventually

pytest.importorskip("maxminddb")
pytest.importorskip("ua_parser")
pytest.importorskip("mmdb_writer")

LOG = Schema(
    (Column("ts", "timestamp"), Column("ip", "text"), Column("agent", "text"), Column("n", "bigint")), "ts"
)
ROWS = pa.table(
    {
        "ip": [
            "81.2.69.142",
            "81.2.69.142",
            "2001:db8::7",
            "192.0.2.1",
            "no address",
            None,
            "::ffff:81.2.69.9",
        ],
        "agent": ["curl/8.0", "Googlebot/2.1 (+http://www.google.com/bot.html)", "", "?", None, "?", "?"],
        "n": pa.array([1, 2, 3, 4, 5, 6, 7], pa.int64()),
        "_pane": pa.array([0] * 7, pa.int64()),
    }
)


@pytest.fixture
def tables(tmp_path: Path) -> Iterator[tuple[str, ...]]:
    """Of this process, while the test runs."""
    files = (
        database(tmp_path / "city.mmdb", "GeoLite2-City", PLACES),
        database(tmp_path / "asn.mmdb", "GeoLite2-ASN", NETWORKS, built=1_764_201_600),
    )
    LOOKUPS.open(files)
    yield files
    LOOKUPS.open(())


def grouped(sql: str) -> dict[object, int | None]:
    """Of ``SELECT key, SUM(n)``, by key."""
    made = plan_text(sql, LOG)
    mapper = Mapper.of(made.fragment)
    found = mapper.run(ROWS.select(mapper.schema.names))
    mapper.close()
    return {row["k0"]: row["s0_sum"] and int(row["s0_sum"]) for row in found.to_pylist()}


def test_what_the_reference_says(tables: tuple[str, ...]) -> None:
    entries = [entry for entry in catalogue() if entry.name in KNOWN]
    assert len(entries) == len(KNOWN)
    for entry in entries:
        agrees = f"({entry.example}) IS NOT DISTINCT FROM ({entry.gives})"
        found = grouped(f"SELECT n AS k, SUM(n) FROM log WHERE {agrees} GROUP BY k")
        assert len(found) == len(ROWS), entry.name


def test_they_stand_in_keys_conditions_and_aggregates(tables: tuple[str, ...]) -> None:
    assert grouped("SELECT geo_country(ip) AS c, SUM(n) FROM log GROUP BY c") == {
        "GB": 10,
        "DE": 3,
        None: 15,
    }
    assert grouped("SELECT geo_asn(ip) AS a, SUM(n) FROM log WHERE geo_city(ip) = 'London' GROUP BY a") == {
        20712: 10
    }
    north = "SUM(CASE WHEN geo_latitude(ip) > 50 THEN n END)"
    assert grouped(f"SELECT ua_is_bot(agent) AS b, {north} FROM log GROUP BY b")[True] == 2
    assert grouped("SELECT ua_browser(agent) AS b, SUM(n) FROM log GROUP BY b") == {
        "curl": 1,
        "Googlebot": 2,
        "Other": 20,
        None: 5,
    }


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT ip, geo_country(ip), COUNT(*) FROM log GROUP BY ip",
        "SELECT geo_country(MAX(ip)) FROM log",
        "SELECT ip, COUNT(*) AS c FROM log GROUP BY ip HAVING geo_country(ip) = 'GB'",
        "SELECT ip, COUNT(*) AS c FROM log GROUP BY ip ORDER BY geo_city(ip)",
        "SELECT MAX(geo_country(ip)) FROM (SELECT ip, COUNT(*) AS c FROM log GROUP BY ip) AS hosts",
        "SELECT COUNT(*) FROM (SELECT ip, COUNT(*) AS c FROM log GROUP BY ip) AS hosts "
        "WHERE geo_country(ip) = 'GB'",
    ],
)
def test_a_master_looks_nothing_up(sql: str) -> None:
    with pytest.raises(QueryError, match="is looked up where the rows are"):
        plan_text(sql, LOG)


def test_not_in_a_join_of_streams() -> None:
    for where in ("", "WHERE geo_country(a.ip) = 'GB' "):
        key = "a.n" if where else "geo_country(a.ip)"
        query = parse_query(
            f"SELECT {key} AS k, COUNT(*) FROM a JOIN b ON a.n = b.n AND b.ts BETWEEN a.ts AND a.ts + "
            f"INTERVAL 1 SECOND {where}GROUP BY k WINDOWING 1 MINUTE"
        )
        assert query is not None
        with pytest.raises(QueryError, match="not in a join of streams"):
            plan_streams(query, {"a": LOG, "b": LOG})


def test_rows_are_not_chosen_before_the_map_by_what_is_looked_up() -> None:
    fragments = [
        plan_text(f"SELECT COUNT(*) FROM log WHERE {one}", LOG).fragment
        for one in ("geo_country(ip) = 'GB'", "n > 1")
    ]
    assert Wanted.of(fragments[1:]).where_sqls
    assert not Wanted.of(fragments).where_sqls


def test_without_a_table_a_map_fails_and_says_why() -> None:
    """Its types are known all the same: whoever merges what others have mapped needs no table."""
    fragment = plan_text("SELECT geo_country(ip) AS c, COUNT(*) AS n FROM log GROUP BY c", LOG).fragment
    assert types_of(fragment).field("k0").type == pa.string()
    mapper = Mapper.of(fragment)
    for call in (mapper.prepare, lambda: mapper.run(ROWS.select(mapper.schema.names))):
        with pytest.raises(
            MapFailed, match=r"GEO_COUNTRY: this host has no database .* set geoip\.databases"
        ):
            call()
    mapper.close()
    assert Lookups().values("geo_city", pa.array(["81.2.69.142", None])).null_count == 2


def test_what_others_call_it_is_found(tmp_path: Path) -> None:
    """IPinfo's databases are flat; nonsense in a record is NULL."""
    found = Lookups()
    found.open([database(tmp_path / "flat.mmdb", "ipinfo standard_location.mmdb", FLAT)])
    assert [found.value(name, "203.0.113.9") for name in KNOWN if name.startswith("geo_")] == [
        *("NL", "Netherlands", "Europe", "Utrecht", "Utrecht", "Example", 52.09, 5.12, 64500)
    ]
    assert {found.value(name, "203.0.113.99") for name in KNOWN if name.startswith("geo_")} == {None}
    assert set(found.able()) >= {name for name in KNOWN if name.startswith("geo_")}
    for text in ("", "203.0.113.9:80", "fe80::1%eth0", "1.2.3", "x" * 10_000, "0.0.0.0", "é"):
        assert found.value("geo_country", text) is None


def test_who_is_nowhere_is_where_it_is_registered(tables: tuple[str, ...]) -> None:
    assert LOOKUPS.value("geo_country", "198.51.100.1") == "FR"


def test_what_no_database_can_have_is_known(tmp_path: Path) -> None:
    found = Lookups()
    found.open([database(tmp_path / "c.mmdb", "GeoLite2-Country", PLACES)])
    able = [name for name in found.able() if name.startswith("geo_")]
    assert able == ["geo_country", "geo_country_name", "geo_continent"]
    assert found.lacking(["geo_country"]) == ""
    assert found.lacking(["geo_country", "geo_asn"]).startswith("GEO_ASN: this host has no database")
    assert found.told()["geoip"] == ("GeoLite2-Country 2025-11-20",)


def test_what_was_found_is_remembered_within_bounds(
    tables: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(geoip_module, "ADDRESSES_KEPT", 8)
    monkeypatch.setattr(useragents_module, "AGENTS_KEPT", 8)
    fresh = Lookups()
    fresh.open(tables)
    addresses = [f"81.2.69.{n}" for n in range(100)]
    assert set(fresh.values("geo_city", pa.array(addresses * 2)).to_pylist()) == {"London"}
    assert fresh.values("ua_device", pa.array([f"agent {n}" for n in range(100)])).null_count == 0
    for table in (fresh._geoip, fresh._agents):
        assert table is not None
        assert table._found.cache_info().currsize == 8
    assert fresh.value("ua_browser", "x" * 100_000) == "Other"


@pytest.mark.parametrize(
    ("write", "said"),
    [
        (None, "cannot be read: no such file or directory"),
        (b"", "is no database in MaxMind's format"),
        (b"\x00" * 4_096, "is no database in MaxMind's format"),
        (b"\xab\xcd\xefMaxMind.com" + b"\xe1", "is no database in MaxMind's format"),
    ],
)
def test_a_file_that_is_no_database_is_said(tmp_path: Path, write: bytes | None, said: str) -> None:
    path = tmp_path / "broken.mmdb"
    if write is not None:
        path.write_bytes(write)
    with pytest.raises(UserError, match=said):
        Lookups().open([str(path)])
    text = f"data_dir: {tmp_path}/data\ngeoip: {{databases: {path}}}"
    assert any(said in line for line in validate(load(written(tmp_path, text), {})).machine)


def test_a_file_may_be_written_over_while_it_is_used(tables: tuple[str, ...]) -> None:
    Path(tables[0]).write_bytes(b"")
    assert LOOKUPS.value("geo_city", "81.2.69.77") == "London"


def test_a_new_database_is_taken_at_the_second_look(tmp_path: Path) -> None:
    path = Path(database(tmp_path / "city.mmdb", "GeoLite2-City", PLACES))
    found, address = Lookups(), "81.2.69.77"
    found.open([str(path)])
    assert not found.renewed()
    other = database(tmp_path / "new", "GeoLite2-City", FLAT, built=1_764_201_600)
    Path(other).rename(path)
    assert [found.renewed(), found.value("geo_city", address), found.renewed()] == [False, "London", True]
    assert [found.value("geo_city", one) for one in (address, "203.0.113.9")] == [None, "Utrecht"]
    assert found.told()["geoip"] == ("GeoLite2-City 2025-11-27",)
    path.write_bytes(b"half a")
    assert not found.renewed()
    with pytest.raises(UserError, match="is no database in MaxMind's format"):
        found.renewed()
    path.unlink()
    assert not any(found.renewed() for _ in range(3)), "it is said once"
    assert found.value("geo_city", "203.0.113.9") == "Utrecht"


async def test_an_agent_looks_at_its_databases(
    tables: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []

    class Log:
        def info(self, text: str, **_: str) -> None:
            said.append(text)

        warning = info

    monkeypatch.setattr("agents.process.get_logger", Log)
    monkeypatch.setattr("agents.process.LOOK_SECS", 0.01)
    looking = asyncio.create_task(_look_at_databases())
    await asyncio.sleep(0)
    Path(tables[0]).write_bytes(b"none")
    await eventually(lambda: any("in the databases from before" in text for text in said))
    database(Path(tables[0]), "GeoLite2-City", FLAT)
    await eventually(lambda: LOOKUPS.value("geo_city", "203.0.113.9") == "Utrecht")
    looking.cancel()


def test_a_file_of_the_archive_is_of_one_edition(tmp_path: Path) -> None:
    edition = {"lookups": "old"}
    archive = archive_in(tmp_path, roll_secs=3_600, changing=edition.copy)
    archive.restore(0)
    for name in ("old", "new"):
        edition["lookups"] = name
        assert archive.due(0) == (name == "new")
        archive.roll()
        append(archive, ["{}"], [1])
        assert not archive.due(0)
    archive.roll()
    archive.ship(2)
    files = sorted((tmp_path / "archive").rglob("*.parquet"))
    assert sorted(pq.read_schema(file).metadata[b"elf.lookups"] for file in files) == [b"new", b"old"]


def test_elf_run_looks_up(
    tables: tuple[str, ...],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = tmp_path / "log.json"
    log.write_text("".join(json.dumps({"ip": ip, "agent": "curl/8"}) + "\n" for ip in ROWS["ip"].to_pylist()))
    sql = "SELECT geo_country(ip) AS c, ua_browser(agent) AS b, COUNT(*) AS n FROM log GROUP BY c, b"
    ask = ("--input", str(log), "--output", "json", "-q", sql, "--agents", "2")
    status, out, _ = elf_run(capsys, "--geoip", tables[0], *ask)
    assert status == 0
    rows = {(row["c"], row["b"]): row["n"] for row in map(json.loads, out.splitlines())}
    assert rows == {("GB", "curl"): 3, ("DE", "curl"): 1, (None, "curl"): 3}
    monkeypatch.setenv("ELF_GEOIP_DATABASES", f"{tables[0]},{tables[1]}")
    look = ("--input", str(log), "--output", "json", "-q", "SELECT geo_asn(ip) AS a FROM log LIMIT 1")
    assert json.loads(elf_run(capsys, *look)[1]) == {"a": 20712}
    monkeypatch.delenv("ELF_GEOIP_DATABASES")
    for words in (ask, look):
        status, _, err = elf_run(capsys, *words)
        assert status == 1
        assert "has no database that knows it: set geoip.databases there (elf run: --geoip FILE)" in err


def test_spark_looks_up_the_same(quick_spark: SparkSession, tables: tuple[str, ...], tmp_path: Path) -> None:
    lines = [
        json.dumps({"ip": row["ip"], "agent": row["agent"], "n": row["n"], "ts": "2026-01-01T00:00:01Z"})
        for row in ROWS.to_pylist()
    ]
    told = json.dumps(LOOKUPS.told())
    old = json.dumps({"geoip": ["GeoLite2-City 2025-01-01"], "useragents": ["x"]})
    store(tmp_path / "t", lines[:3], [BASE_US] * 3, agent="a", facts={"lookups": told})
    store(tmp_path / "t", lines[3:], [BASE_US] * 4, agent="b", facts={"lookups": old})
    sql = (
        "SELECT geo_country(ip) AS c, geo_latitude(ip) AS l, ua_is_bot(agent) AS b, SUM(n) AS n, "
        "MAX(geo_asn(ip)) AS a FROM clicks WHERE geo_city(ip) = 'London' OR n > 2 GROUP BY c, l, b"
    )
    made = plan_text(sql, LOG, stream="clicks")
    found = offline.run(quick_spark, made, [archived(tmp_path / "t")], [])
    rows = {(row["c"], row["l"], row["b"]): (int(row["n"]), row["a"]) for row in found.to_pylist()}
    assert rows == {
        ("GB", 51.5142, False): (8, 20712),
        ("GB", 51.5142, True): (2, 20712),
        ("DE", None, False): (3, None),
        (None, None, False): (10, None),
        (None, None, None): (5, None),
    }
    where = [(str(tmp_path / "t"), "clicks")]
    assert spark_lookups.editions(made, where, None) == {
        *("GeoLite2-City 2025-11-20", "GeoLite2-ASN 2025-11-27", "GeoLite2-City 2025-01-01", "x"),
        *LOOKUPS.told()["useragents"],
    }
    assert not spark_lookups.editions(plan_text("SELECT COUNT(*) FROM log", LOG), where, None)


def test_compare_names_the_tables(
    tables: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old = json.dumps({"geoip": ["GeoLite2-City 2025-01-01"]})
    store(tmp_path / "t", ["{}"], [BASE_US], facts={"lookups": old})
    made = plan_text("SELECT COUNT(*) FROM log WHERE geo_city(ip) = 'London'", LOG)
    compare._name_tables(made, [(str(tmp_path / "t"), "clicks")], [(0, 1)])
    err = capsys.readouterr().err
    assert "values were looked up in GeoLite2-City 2025-01-01" in err
    assert "elf: not here: GeoLite2-City 2025-01-01; here is GeoLite2-ASN 2025-11-27, GeoLite2-City" in err
    LOOKUPS.open(())
    with pytest.raises(UserError, match="GEO_CITY: this host has no database"):
        compare._name_tables(made, [], [(0, 1)])


def test_only_calls_are_calls() -> None:
    assert lookups_in("SELECT elf_geo_country(r.ip), elf_geo_nothing(x), geo_city(y)") == ("geo_country",)
