"""``elf offline run`` from its command line, and ``elf run --archive``, which must say the same."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from agents.archived import archived_streams, targets_of
from agents.replay import Pace, Replayed, agents_of
from elf.cli.errors import fail
from elf.cli.main import app
from elf.client import ArchiveStatus, Client, CompareFacts
from elf.errors import ElfError, UserError
from elf.job.messages.groups import JobStatus
from elf.ql.plan import Function
from elf.ql.planner import plan, plan_text
from elf.ql.statements import Select, parse
from elf.ql.user_functions import with_function
from lab.chaos.engine import spec_of
from spark_backend import session
from spark_backend.queries import check
from tests.support.offline import BASE_US, CLICKS, SECOND, Click, clicks, counted, store, store_clicks

HOUR_US = 3_600 * SECOND
FACTS = {"format": "json", "timestamp": "ts", "labels": '{"role": "shop"}'}
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def elf(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], quick_spark: SparkSession) -> Run:
    """A command line; the process has one Spark."""
    monkeypatch.setattr(session, "opened", lambda *_, **__: nullcontext(quick_spark))
    import logging

    monkeypatch.setattr(logging, "disable", lambda _: None)

    def run(*args: str) -> tuple[int, str, str]:
        capfd.readouterr()
        try:
            status = app(list(args), prog_name="elf", standalone_mode=False)
        except ElfError as error:
            status = fail(error)
        out, err = capfd.readouterr()
        return status, out, err

    return run


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three hours of two agents: a minute in the first, one over the edge of the next two."""
    path = tmp_path_factory.mktemp("archived") / "t"
    for agent, seed in (("a", 1), ("b", 2)):
        rows = sorted(
            [*clicks(120, seed), *clicks(80, seed + 5, from_us=BASE_US + 2 * HOUR_US - 30 * SECOND)],
            key=lambda row: row.ts_us or 0,
        )
        facts = FACTS | {"agent_name": f"web-{agent}"}
        lines, times = [row.line() for row in rows], [row.ts_us for row in rows]
        store(path, lines, times, agent=agent, facts=facts, log=f"/log/{agent}")
    return path


def rows_of(text: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in text.splitlines()]


QUERIES = (
    "SELECT product, COUNT(*) AS n, SUM(clicks) AS s, MEDIAN(price) AS m FROM clicks GROUP BY product "
    "WINDOWING 10 SECONDS",
    "SELECT product, COUNT(*) AS n FROM * GROUP BY product ORDER BY n DESC LIMIT 2 WINDOWING 1 HOUR",
    "SELECT _agent, _labels.role AS r, COUNT(*) AS n, MAX(ts) AS t FROM clicks GROUP BY _agent, _labels.role",
    "SELECT user.location AS place, COUNT(*) AS n FROM clicks GROUP BY place WINDOWING SESSION 1 SECONDS",
    "CREATE JOB few AS SELECT product, COUNT(*) AS n FROM clicks GROUP BY product WINDOWING 10 SECONDS; "
    "SELECT MAX(n) AS most FROM JOB few WINDOWING 1 MINUTE",
)


@pytest.mark.parametrize("number", range(len(QUERIES)))
def test_spark_and_a_replay_say_the_same(elf: Run, archive: Path, number: int) -> None:
    where = ["-q", QUERIES[number], "--archive", str(archive), "--output", "json"]
    status, offline, _ = elf("offline", "run", *where)
    assert status == 0
    again = elf("run", *where)
    assert again[0] == 0
    assert sorted(offline.splitlines()) == sorted(again[1].splitlines())
    assert len(offline.splitlines()) > 1


@pytest.mark.parametrize("number", [0, 3])
def test_a_span_has_the_windows_that_lie_in_it(elf: Run, archive: Path, number: int) -> None:
    """As the whole archive has them: also sessions, that may have begun before it."""
    where = ["-q", QUERIES[number], "--archive", str(archive), "--json"]
    _, everything, _ = elf("offline", "run", *where)
    begin, end = "2026-01-01T01:59:45Z", "2026-01-01T02:00:20Z"
    status, within, _ = elf("offline", "run", *where, "--from", begin, "--to", end)
    assert status == 0
    wanted = [
        row
        for row in rows_of(everything)
        if str(row["window_start"]) >= begin.replace("Z", ".000Z")
        and str(row["window_end"]) <= end.replace("Z", ".000Z")
    ]
    assert rows_of(within) == wanted != []


def test_rows_without_windows_are_those_of_the_span(elf: Run, archive: Path) -> None:
    rows = [*clicks(120, 1), *clicks(120, 2)]
    sql = "SELECT product, COUNT(*) AS n, SUM(clicks) AS s FROM clicks GROUP BY product"
    span = ["--from", "2026-01-01 00:00:10", "--to", "2026-01-01 00:00:40"]
    wanted = counted(rows, BASE_US + 10 * SECOND, BASE_US + 40 * SECOND)
    for command in (["offline", "run"], ["run"]):
        status, out, _ = elf(*command, "-q", sql, "--archive", str(archive), "--output", "json", *span)
        assert status == 0
        assert {row["product"]: (row["n"], row["s"]) for row in rows_of(out)} == wanted


def test_results_as_files_and_as_text(elf: Run, archive: Path, tmp_path: Path) -> None:
    sql = "SELECT product, COUNT(*) AS n FROM clicks GROUP BY product ORDER BY product WINDOWING 1 HOUR"
    where = ["offline", "run", "-q", sql, "--archive", str(archive)]
    _, lines, _ = elf(*where, "--json")
    found = rows_of(lines)
    for suffix in ("parquet", "csv", "json"):
        out = tmp_path / f"rows.{suffix}"
        out.write_text("what was there before")
        status, said, told = elf(*where, "--out", str(out))
        assert (status, said) == (0, "")
        assert f"{len(found)} rows are in {out}" in told
    assert (tmp_path / "rows.json").read_text() == lines
    assert (tmp_path / "rows.csv").read_text() == elf(*where, "--csv")[1]
    table = pq.read_table(tmp_path / "rows.parquet")
    assert table["n"].to_pylist() == [row["n"] for row in found]
    assert table.column_names == ["window_start", "window_end", "product", "n"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["rows.csv", "rows.json", "rows.parquet"]
    text = elf(*where)[1]
    assert "2026-01-01T00:00:00.000Z … 2026-01-01T01:00:00.000Z" in text


def test_a_plan_tells_which_hours_files_and_columns_are_read(elf: Run, archive: Path) -> None:
    sql = "SELECT product, COUNT(*) AS n FROM clicks GROUP BY product WINDOWING 1 MINUTE"
    where = ["offline", "run", "--archive", str(archive), "--from", "2026-01-01", "--to", "2026-01-01 00:30"]
    for asked in ([*where, "-q", sql, "--explain"], [*where, "-q", f"EXPLAIN OFFLINE {sql}"]):
        status, out, _ = elf(*asked)
        assert status == 0
        stream, columns, filters, *rest = out.splitlines()
        assert "clicks: 1 of 4 hours, 2 of 8 files" in stream  # of rows without a time, too
        assert columns == "columns  line, ts"
        assert "GreaterThanOrEqual(ts,2026-01-01" in filters
        assert "FileScan parquet" in "\n".join(rest) or "Scan parquet" in "\n".join(rest)


def test_a_small_span_is_read_by_a_java_that_compiles_little(
    elf: Run, archive: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of the archive, or an hour, by the bytes of the files."""
    size = sum(path.stat().st_size for path in archive.glob("**/*.parquet"))
    in_the_process: Callable[..., AbstractContextManager[SparkSession]] = session.opened
    asked: list[bool] = []

    def opened(_master: str, *, brief: bool, conf: object) -> AbstractContextManager[SparkSession]:
        asked.append(brief)
        return in_the_process()

    monkeypatch.setattr(session, "opened", opened)
    monkeypatch.setattr(session, "BRIEF_BYTES_MAX", size - 1)
    where = ["offline", "run", "-q", "SELECT COUNT(*) AS n FROM clicks", "--archive", str(archive)]
    for more in ([], ["--from", "2026-01-01", "--to", "2026-01-01 00:30"]):
        assert elf(*where, *more)[0] == 0
    assert asked == [False, True]


BAD = (
    (["--from", "soon"], "--from soon: that is no moment; say '-6 hours', "),
    (["--from", "2026-01-02", "--to", "2026-01-01"], "--from 2026-01-02 is not before --to 2026-01-01"),
    (["--from", "2026-02-01"], "no rows of stream clicks from 2026-02-01T00:00:00Z"),
    (["--out", "rows.xls"], "its name says the form of the rows: .parquet, .csv, .json"),
    (["--out", "/nowhere/rows.csv"], "cannot write /nowhere/rows.csv: /nowhere is no folder"),
    (["--conf", "memory=1g"], "--conf wants spark.NAME=VALUE"),
    (["--column", "clicks"], "--column wants NAME=TYPE"),
    (["--column", "clicks=int"], "there is no type 'int'"),
    (["--json", "--csv"], "give --json or --csv, not both"),
    (["--job", "busy"], "leave out -q, -f and --column, or --job"),
    (["-f", "q.sql"], "give exactly one of"),
)


@pytest.mark.parametrize(("more", "says"), BAD)
def test_a_wrong_command_line_is_one_line(elf: Run, archive: Path, more: list[str], says: str) -> None:
    sql = "SELECT COUNT(*) AS n FROM clicks"
    status, out, told = elf("offline", "run", "-q", sql, "--archive", str(archive), *more)
    assert status
    assert says in told
    assert (out, told.count("\n")) == ("", 1)


@pytest.mark.parametrize(
    ("sql", "says"),
    [
        (
            "SELECT COUNT(*) AS n FROM click",
            "no stream click in the archive .*; did you mean clicks",
        ),
        ("SELECT COUNT(*) AS n FROM clicks WINDOWING 4 ROWS", "only the live engine answers windows of rows"),
        ("SELECT COUNT(*) AS n FROM LATE busy WINDOWING 4 SECONDS", "FROM LATE"),
        ("SELECT MAX(n) AS n FROM JOB few WINDOWING 4 SECONDS", "there is no job few here"),
        ("SHOW JOBS", "answers one SELECT"),
        ("SELECT SUM(nothing) AS n FROM clicks", "declare it: --column 'nothing="),
    ],
)
def test_a_query_that_cannot_be_answered_says_why(elf: Run, archive: Path, sql: str, says: str) -> None:
    import re

    status, out, told = elf("offline", "run", "-q", sql, "--archive", str(archive))
    assert (status, out) == (1, "")
    assert re.search(says, told)
    assert "Traceback" not in told


def test_a_function_of_its_own_is_for_the_live_engine() -> None:
    made = plan_text("SELECT COUNT(*) AS n FROM clicks WINDOWING 4 SECONDS", CLICKS, stream="clicks")
    own = with_function(made, Function("map", "def map(batch):\n    return batch\n", "own.py"))
    with pytest.raises(UserError, match=r"only the live engine answers .*map of own\.py"):
        check(own)


def test_no_archive_and_no_stream_are_said(elf: Run, tmp_path: Path) -> None:
    for command in (["offline", "run"], ["run"]):
        status, _, told = elf(*command, "-q", "SELECT COUNT(*) AS n FROM x", "--archive", str(tmp_path))
        assert status == 1
        assert f"there is no archive at {tmp_path}: it has no folder stream=" in told
    status, _, told = elf("offline", "run", "-q", "SELECT COUNT(*) AS n FROM x")
    assert (status, "--archive PATH" in told) == (1, True)


@pytest.mark.parametrize("harm", ["cut off", "a byte"])
def test_a_damaged_file_ends_it_or_is_left_out_by_name(elf: Run, tmp_path: Path, harm: str) -> None:
    """Also where its size is right, and Spark finds out by a checksum."""
    for agent in ("a", "b:1"):
        rows = [Click(BASE_US + n, "doom", None, 1, 0.5) for n in range(20)]
        store(tmp_path / "t", [r.line() for r in rows], [r.ts_us for r in rows], agent=agent, facts=FACTS)
    (bad,) = (tmp_path / "t").glob("**/agent=b*/*.parquet")
    data = bytearray(bad.read_bytes())
    data[60] ^= 4
    bad.write_bytes(bytes(data) if harm == "a byte" else bytes(data[:-30]))
    where = [
        "-q",
        "SELECT SUM(clicks) AS n FROM clicks",
        "--archive",
        str(tmp_path / "t"),
        "--output",
        "json",
    ]
    status, out, told = elf("offline", "run", *where)
    assert (status, out) == (1, "")
    assert f"{bad} is damaged" in told
    assert "put a copy of it back" in told
    status, out, told = elf("offline", "run", *where, "--skip-damaged")
    assert (status, rows_of(out)) == (0, [{"n": 20}])
    assert f"{bad} is damaged and left out" in told
    status, out, told = elf("run", *where)
    assert (status, rows_of(out)) == (1, [{"n": 20}])
    assert f"not read to the end: {bad}" in told


def test_another_format_on_another_day_is_refused_and_each_alone_answered(elf: Run, tmp_path: Path) -> None:
    rows = [Click(BASE_US + n * SECOND, "doom", None, n, 0.5) for n in range(10)]
    store(tmp_path / "t", [r.line() for r in rows], [r.ts_us for r in rows], facts=FACTS)
    lines = [f"ts=2026-01-02T00:00:0{n}Z product=doom clicks={n}" for n in range(10)]
    times: list[int | None] = [BASE_US + 24 * HOUR_US + n * SECOND for n in range(10)]
    store(tmp_path / "t", lines, times, agent="b", facts=FACTS | {"format": "logfmt"})
    where = [
        "offline",
        "run",
        "-q",
        "SELECT SUM(clicks) AS n FROM clicks",
        "--archive",
        str(tmp_path / "t"),
        "--json",
    ]
    status, _, told = elf(*where)
    assert status == 1
    assert "json with the time in ts from 2026-01-01 00:00 to 2026-01-01 01:00" in told
    assert "logfmt with the time in ts from 2026-01-02 00:00 to 2026-01-02 01:00" in told
    assert rows_of(elf(*where, "--to", "2026-01-02")[1]) == [{"n": 45}]
    assert rows_of(elf(*where, "--from", "2026-01-02")[1]) == [{"n": 45}]


def test_a_column_that_changes_its_type_is_text_until_it_is_declared(elf: Run, tmp_path: Path) -> None:
    store_clicks(tmp_path / "t", [Click(BASE_US + n, "doom", None, 2, 0.5) for n in range(5)])
    later = [json.dumps({"ts": "2026-01-02T00:00:00Z", "clicks": f"{n} of 5"}) for n in range(5)]
    store(tmp_path / "t", later, [BASE_US + 24 * HOUR_US] * 5, agent="b")
    where = [
        "offline",
        "run",
        "-q",
        "SELECT SUM(clicks) AS n FROM clicks",
        "--archive",
        str(tmp_path / "t"),
        "--json",
    ]
    status, _, told = elf(*where)
    assert status == 1
    assert "SUM needs numbers, this is text; CAST it to a number" in told
    assert rows_of(elf(*where, "--column", "clicks=bigint")[1]) == [{"n": 10}]


def test_a_full_disk_leaves_what_was_there(
    elf: Run, archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import resource

    out = tmp_path / "rows.csv"
    out.write_text("before")
    sql = "SELECT ts, product, COUNT(*) AS n FROM clicks GROUP BY ts, product"
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000, before[1]))
    try:
        status, _, told = elf("offline", "run", "-q", sql, "--archive", str(archive), "--out", str(out))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert status == 1
    assert f"cannot write {out}: file too large; nothing of the result is there" in told
    assert out.read_text() == "before"
    assert [path.name for path in tmp_path.iterdir()] == ["rows.csv"]


def test_a_jobs_query_over_its_agents_archives(
    elf: Run, archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a fleet says of a job; those of its archives that are not here are named."""
    (statement,) = parse("SELECT product, COUNT(*) AS n FROM clicks GROUP BY product WINDOWING 1 HOUR")
    assert isinstance(statement, Select)
    spec = spec_of("busy", "ada", 0, plan(statement.query, CLICKS, stream="clicks"), ())
    away, archives = str(tmp_path / "away"), [str(archive)]

    async def facts(*_: object) -> CompareFacts:
        source = ArchiveStatus("clicks", "json", "ts", tuple(archives), ("web-c",))
        return CompareFacts((source,), JobStatus(spec, "active", "h:1", None, None, ()))

    monkeypatch.setattr(Client, "__aenter__", lambda self: _itself(self))
    monkeypatch.setattr(Client, "__aexit__", lambda *_: _itself(None))
    monkeypatch.setattr(Client, "compare_facts", facts)
    archives.append(away)
    status, out, told = elf("offline", "run", "--job", "busy", "--json", "--from", "2026-01-01 02:00")
    assert status == 0
    assert {row["window_start"] for row in rows_of(out)} == {"2026-01-01T02:00:00.000Z"}
    assert "no archive from web-c: not reached" in told
    assert f"nothing is archived at {away} as seen from this machine" in told
    status, out, told = elf("offline", "run", "--job", "busy", "--archive", away)
    assert (status, out) == (1, "")
    assert "run it where the archives are, or name copies with --archive" in told


async def _itself(value: object) -> object:
    return value


# -- replay --------------------------------------------------------------------------------------------------


def test_lateness_is_judged_again_as_it_was(elf: Run, tmp_path: Path) -> None:
    """A log's lines come in its order: one that was late by its log is late again."""
    begin = BASE_US + HOUR_US - 10 * SECOND  # the first windows lie on either side of an hour
    times: list[int | None] = [begin + at * SECOND for at in (0, 5, 20, 3, 21, 40)]
    lines = [json.dumps({"ts": at / 1e6, "n": 1}) for at in times if at is not None]
    store(tmp_path / "t", lines, times, facts=FACTS)
    sql = "SELECT COUNT(*) AS n FROM clicks WINDOWING 10 SECONDS LATENESS 2 SECONDS"
    status, out, told = elf("run", "-q", sql, "--archive", str(tmp_path / "t"), "--output", "json")
    assert status == 0
    assert [row["n"] for row in rows_of(out)] == [2, 2, 1]
    assert "1 of 6 lines are in no window: they came later than LATENESS allows" in told


def test_rows_at_a_pace_come_as_far_apart_as_their_times_say(tmp_path: Path) -> None:
    times: list[int | None] = [BASE_US + at * SECOND for at in (0, 1, 10, 10, 30)]
    store(tmp_path / "t", [json.dumps({"ts": at}) for at in times], times, facts=FACTS)
    targets = targets_of([str(tmp_path / "t")])
    (agent,) = agents_of(archived_streams(targets, ["clicks"], None, {}))
    now = [100.0]
    source = Replayed(agent.files["clicks"], None, Pace(10, BASE_US, lambda: now[0]))
    came = []
    for at in (0.0, 0.2, 1.1, 2.9, 3.0):
        now[0] = 100 + at
        while (chunk := source.read(1 << 20, 0)) is not None:
            came.append((at, len(chunk.lines)))
    assert came == [(0.0, 1), (0.2, 1), (1.1, 2), (3.0, 1)]
    assert source.exhausted
    source.close()


def test_a_replay_at_a_speed_takes_its_time(elf: Run, tmp_path: Path) -> None:
    times: list[int | None] = [BASE_US + at * SECOND for at in range(0, 40, 2)]
    store(tmp_path / "t", [json.dumps({"ts": at / 1e6}) for at in times if at], times, facts=FACTS)
    sql = "SELECT COUNT(*) AS n FROM clicks WINDOWING 10 SECONDS"
    began = time.monotonic()
    status, out, _ = elf(
        "run", "-q", sql, "--archive", str(tmp_path / "t"), "--speed", "40", "--output", "json"
    )
    assert status == 0
    assert [row["n"] for row in rows_of(out)] == [5, 5, 5, 5]
    assert time.monotonic() - began > 0.95


@pytest.mark.parametrize(
    ("more", "says"),
    [
        (["--input", "x.log"], "--input does not go with --archive"),
        (["--agents", "2"], "--agents does not go with --archive"),
        (["--format", "json"], "--format does not go with --archive"),
        (["--stream", "a=b"], "--stream wants the NAME of a stream"),
        (["--stream", "nothing"], "there is no stream nothing in the archive"),
    ],
)
def test_what_does_not_go_with_a_replay(elf: Run, archive: Path, more: list[str], says: str) -> None:
    status, _, told = elf("run", "-q", "SELECT COUNT(*) AS n FROM *", "--archive", str(archive), *more)
    assert status == 1
    assert says in told


def test_speed_is_of_an_archive(elf: Run) -> None:
    status, _, told = elf("run", "-q", "SELECT COUNT(*) AS n FROM x", "--input", "x", "--speed", "2")
    assert (status, told) == (1, "elf: --from, --to and --speed are of an archive: give --archive PATH\n")


def test_first_rows_of_an_archive(elf: Run, archive: Path) -> None:
    sql = "SELECT _agent, product FROM clicks LIMIT 200"
    status, out, told = elf("run", "-q", sql, "--archive", str(archive), "--output", "json")
    assert status == 0
    assert {row["_agent"] for row in rows_of(out)} == {"web-a"}
    assert len(rows_of(out)) == 200
    assert "the first 200 rows" in told


def test_an_archive_that_was_sorted_says_the_same_and_reads_less(elf: Run, tmp_path: Path) -> None:
    for agent, seed in (("a", 1), ("b", 2)):
        rows = [*clicks(200, seed), *clicks(200, seed + 9, from_us=BASE_US + 2 * HOUR_US)]
        store(tmp_path / "t", [r.line() for r in rows], [r.ts_us for r in rows], agent=agent, facts=FACTS)
    queries = [
        "SELECT COUNT(*) AS n, SUM(clicks) AS k FROM clicks WHERE product = 'zelda' AND clicks > 2",
        "SELECT product, COUNT(*) AS n FROM clicks WHERE product IN ('doom', 'quake') OR clicks = 3 "
        "GROUP BY product ORDER BY product",
        "SELECT COUNT(*) AS n FROM clicks WHERE product IS NULL OR product < 'e'",
    ]

    def answers() -> list[str]:
        where = ["--archive", str(tmp_path / "t"), "--output", "json"]
        return [elf("offline", "run", "-q", query, *where)[1] for query in queries]

    before = answers()
    status, _, told = elf("offline", "recluster", "clicks", "BY", "product", "--archive", str(tmp_path / "t"))
    assert (status, "800 rows of clicks in" in told, "sorted by product" in told) == (0, True, True)
    assert answers() == before
    where = ["--archive", str(tmp_path / "t"), "--explain"]
    _, plan, _ = elf("offline", "run", "-q", queries[0], *where)
    assert "EqualTo(by_product,zelda)" in plan
    status, _, told = elf("offline", "recluster", "clicks", "ON", "product", "--archive", str(tmp_path / "t"))
    assert (status, "say elf offline recluster clicks BY product" in told) == (1, True)
