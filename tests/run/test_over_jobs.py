"""FROM JOB in a whole fleet in one process, of 1, 3 and 16 agents: exactly DuckDB's rows."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import duckdb
import pytest

from agents.formats import get_format
from agents.inputs.ranges import split_inputs
from agents.run import Fleet
from agents.runinputs import FleetStream
from agents.tasks.samples import sample_lines
from agents.tasks.streamtask import TaskStatus
from elf.cli.main import main
from elf.client.windows import split
from elf.wire.clients import WindowResult
from tests.support.ql_pipeline import Row, plain, same
from tests.support.run_oracle import SAMPLE, connect
from tests.support.run_over_jobs import CASES, HOSTS, Case
from tests.support.run_queries import by_hand


@pytest.fixture(scope="module")
def log() -> Iterator[duckdb.DuckDBPyConnection]:
    connection = connect()
    yield connection
    connection.close()


def alone(case: Case, number: int) -> str:
    """With names that no other case has."""
    text = "; ".join((*case.jobs, case.asked))
    for name in (job.split()[2] for job in case.jobs):
        text = text.replace(f"JOB {name}", f"JOB {name}{number}")
    return text


async def answered(agents: int, texts: Sequence[str]) -> tuple[list[list[WindowResult]], dict[int, str]]:
    """All of them asked of one fleet: results, and what was refused."""
    stream = TaskStatus("log", get_format("combined"), None, "")
    shares = split_inputs([str(SAMPLE)], agents, whole_files=False)
    fleet = Fleet([FleetStream(stream, shares, sample_lines([str(SAMPLE)]))])
    found: list[list[WindowResult]] = [[] for _ in texts]
    try:
        await fleet.start()
        return found, await fleet.answer(texts, lambda number, result: found[number].append(result))
    finally:
        await fleet.stop()


@pytest.mark.parametrize("agents", [1, 3, 16])
def test_as_duckdb(agents: int, log: duckdb.DuckDBPyConnection) -> None:
    texts = [alone(case, number) for number, case in enumerate(CASES.values())]
    results, failed = asyncio.run(answered(agents, texts))
    assert not failed
    for (name, case), result in zip(CASES.items(), results, strict=True):
        cursor = log.execute(by_hand(case.by_hand))
        names, wanted = [column[0] for column in cursor.description], plain(cursor.fetchall())
        windows = sorted((w for one in result for w in split(one)), key=lambda w: (str(w.start), str(w.end)))
        tables = [w for w in windows if w.table.num_rows]
        got: list[Row] = [
            row
            for w in tables
            for row in zip(*(column.to_pylist() for column in w.table.columns), strict=True)
        ]
        assert names == tables[0].table.column_names, name
        assert len(wanted) > 1, name
        assert len(got) == len(wanted), name
        for mine, other in zip(plain(got), wanted, strict=True):
            assert all(map(same, mine, other)), (name, mine, other)


def test_jobs_before_the_select_of_elf_run(capsys: pytest.CaptureFixture[str]) -> None:
    text = f"{HOSTS}; SELECT MAX(hits) AS most FROM JOB hosts WINDOWING 1 HOUR"
    with pytest.raises(SystemExit) as end:
        main(["run", "-q", text, "--input", str(SAMPLE), "--output", "csv"])
    out, _ = capsys.readouterr()
    assert end.value.code in (0, None)
    assert out.splitlines()[0].endswith("most")
    assert out.count("\n") > 1
    with pytest.raises(SystemExit) as end:
        main(["run", "-q", f"SELECT COUNT(*) FROM log; {HOSTS}", "--input", str(SAMPLE)])
    assert "elf run answers one SELECT (after CREATE JOB" in capsys.readouterr().err
    assert end.value.code


def test_larger_windows_over_windows_of_rows(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """A window of rows is said in the second when its last row came: that is where it is in larger ones."""
    start = 1_767_225_600
    lines = [json.dumps({"ts": start + n, "kind": "ab"[n // 6 % 2], "n": n}) for n in range(22)]
    (tmp_path / "log").write_text("\n".join(lines))
    text = (
        "CREATE JOB four AS SELECT kind, SUM(n) AS n FROM log GROUP BY kind WINDOWING 4 ROWS; "
        "SELECT kind, SUM(n) AS n, COUNT(*) AS windows FROM JOB four GROUP BY kind WINDOWING 10 SECONDS"
    )
    with pytest.raises(SystemExit):
        main(["run", "-q", text, "--input", str(tmp_path / "log"), "--agents", "2", "--output", "csv"])
    wanted: dict[tuple[int, str], tuple[int, set[int]]] = {}
    for n in range(22):
        last = min(n // 4 * 4 + 3, 21)  # the input ends
        total, windows = wanted.setdefault((last // 10, "ab"[n // 6 % 2]), (0, set()))
        wanted[last // 10, "ab"[n // 6 % 2]] = total + n, windows | {last}
    told = [line.split(",")[2:] for line in capsys.readouterr().out.splitlines()[1:]]
    assert told == [[kind, str(n), str(len(of))] for (_, kind), (n, of) in sorted(wanted.items())]


def test_a_job_that_joins_streams(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Its panes are shorter than its windows: larger ones are over the windows; with another job's they are
    not joined."""
    start, kinds = 1_767_225_600, "abc"
    rows = {
        "clicks": [(start + n // 2, kinds[n * 7 % 3], n * 5 % 4) for n in range(240)],
        "buys": [(start + n * 3, kinds[n % 3], n * 11 % 4) for n in range(40)],
    }
    streams = []
    for name, of in rows.items():
        lines = [json.dumps({"ts": ts, "kind": kind, "user": user}) for ts, kind, user in of]
        (tmp_path / name).write_text("\n".join(lines))
        streams += ["--stream", f"{name}={tmp_path / name}"]
    bought = (
        "CREATE JOB bought AS SELECT c.kind, COUNT(*) AS n FROM clicks AS c JOIN buys AS b ON c.user = b.user AND "
        "b.ts BETWEEN c.ts AND c.ts + INTERVAL 5 SECONDS GROUP BY c.kind WINDOWING 15 SECONDS"
    )

    def run(text: str) -> tuple[str, str]:
        with pytest.raises(SystemExit):
            main(["run", "-q", text, *streams, "--agents", "2", "--output", "csv"])
        out, err = capsys.readouterr()
        return out, err

    out, _ = run(f"{bought}; SELECT MAX(n) AS most, COUNT(*) AS kinds FROM JOB bought WINDOWING 30 SECONDS")
    wanted = []
    for window in range(4):
        counts = Counter(
            ((ts - start) // 15, kind)
            for ts, kind, user in rows["clicks"]
            for at, _, buyer in rows["buys"]
            if user == buyer and ts <= at <= ts + 5 and (ts - start) // 30 == window
        )
        wanted.append(f"{max(counts.values())},{len(counts)}")
    assert [line.split(",", 2)[2] for line in out.splitlines()[1:]] == wanted
    seen = "CREATE JOB seen AS SELECT kind, COUNT(*) AS v FROM clicks GROUP BY kind WINDOWING 15 SECONDS"
    _, err = run(f"{bought}; {seen}; SELECT kind, v FROM JOB seen JOIN JOB bought USING (kind)")
    assert "made of panes of one length, and these are of 5 s and of 15 s" in err
