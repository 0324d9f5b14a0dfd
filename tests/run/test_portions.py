"""``elf run`` with very many windows: a portion at a time, as one whole; ended at once; results of any
size."""

from __future__ import annotations

import base64
import os
import random
import signal
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from agents.committing import spans
from agents.committing.spans import PORTION_ROWS
from agents.run import run
from agents.runinputs import Asked, RunRequest
from elf.batch import decode
from elf.client.windows import Window, split
from elf.wire.clients import WindowResult

SECONDS = 1_500
GAP = 500_000
OVERLAP = 600
QUERY = "SELECT k, COUNT(*) AS n FROM log GROUP BY k WINDOWING 10 MINUTES SLIDE 1 SECOND"
TWO = QUERY + ", 1 SECOND"


def _log(path: Path) -> list[int]:
    """A key of its own each second, but for a hole in the middle; the seconds."""
    seconds = [n + (GAP if n > SECONDS // 2 else 0) for n in range(SECONDS)]
    path.write_text("".join(f'{{"ts":{1_700_000_000 + s},"k":{s}}}\n' for s in seconds))
    return seconds


def _second(moment: datetime | None) -> int:
    assert moment is not None
    return int(moment.timestamp()) - 1_700_000_000


@pytest.mark.parametrize("agents", [1, 3])
@pytest.mark.parametrize("query", [QUERY, TWO])
def test_portions_are_together_what_there_is(agents: int, query: str, tmp_path: Path) -> None:
    """Every window once, in the order of their ends, with its rows, in results of a bounded size."""
    seconds = _log(tmp_path / "log.json")
    lengths = (OVERLAP, 1) if query == TWO else (OVERLAP,)
    expected = {
        (end - length, end): [s for s in seconds if end - length <= s < end]
        for length in lengths
        for end in sorted({s + d for s in seconds for d in range(1, length + 1)})
    }
    sizes: list[int] = []
    ends: list[int] = []
    found: dict[tuple[int, int], list[int]] = {}

    def take(result: WindowResult) -> None:
        sizes.append(decode(result.payload).num_rows)
        for window in split(result):
            found[_span(window)] = sorted(window.table["k"].to_pylist())
            assert window.table["n"].to_pylist() == [1] * window.table.num_rows
            assert window.status["reported"] == agents
        ends.append(
            _second(datetime.fromtimestamp(result.last_us / 1e6, UTC)) if not result.final else 1 << 40
        )

    summary = run(RunRequest(Asked(query), {"log": (str(tmp_path / "log.json"),)}, agents=agents), take)
    assert found == expected
    assert summary.windows == len(expected)
    assert len(sizes) > 4
    assert max(sizes) < 2 * PORTION_ROWS
    assert ends == sorted(set(ends))


def _span(window: Window) -> tuple[int, int]:
    return _second(window.start), _second(window.end)


def test_a_result_of_more_bytes_than_a_message_has_on_a_wire(tmp_path: Path) -> None:
    """It was dropped without a word, and the answer was empty."""
    texts, rng = tmp_path / "log.json", random.Random(1)
    with texts.open("w") as out:
        for _ in range(4_500):
            text = base64.b64encode(rng.randbytes(16_000)).decode()
            out.write(f'{{"k":"{text}"}}\n')
    rows: list[int] = []
    request = RunRequest(Asked("SELECT k, COUNT(*) AS n FROM log GROUP BY k"), {"log": (str(texts),)})
    run(request, lambda result: rows.append(decode(result.payload).num_rows))
    assert sum(rows) == 4_500


@pytest.mark.parametrize("which", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_in_the_middle_of_many_windows(which: signal.Signals, tmp_path: Path) -> None:
    """One line, and nothing is left behind."""
    _log(tmp_path / "log.json")
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    command = [
        sys.executable,
        "-m",
        "elf.cli.main",
        "run",
        "--input",
        str(tmp_path / "log.json"),
        "-q",
        QUERY,
    ]
    env = {**os.environ, "TMPDIR": str(temporary)}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env
    ) as running:
        assert running.stdout is not None
        assert running.stdout.readline()  # windows come before all of them are made
        running.send_signal(which)
        _, said = running.communicate(timeout=60)
    assert running.returncode == 130
    assert said == "elf: interrupted: this is not the whole answer\n"
    assert list(temporary.glob("elf-run-*")) == []


ANY = {
    "landmark": "SELECT k, COUNT(*) AS n FROM log GROUP BY k WINDOWING LANDMARK EVERY 5 SECONDS",
    "cumulative": "SELECT k, COUNT(*) AS n FROM log GROUP BY k WINDOWING CUMULATE 60 SECONDS STEP 5 SECONDS",
    "several": "SELECT COUNT(DISTINCT k) AS n FROM log WINDOWING LANDMARK EVERY 20 SECONDS, 1 MINUTE SLIDE 10 SECONDS",
    "session": "SELECT k, COUNT(*) AS n FROM log GROUP BY k WINDOWING SESSION 7 SECONDS MAX 1 MINUTE",
    "larger": "CREATE JOB small AS SELECT k, COUNT(*) AS n FROM log GROUP BY k WINDOWING 2 SECONDS; "
    "SELECT k, MAX(n) AS m FROM JOB small GROUP BY k WINDOWING 10 SECONDS",
    "jobs": "CREATE JOB one AS SELECT k, COUNT(*) AS n FROM log GROUP BY k WINDOWING 10 SECONDS SLIDE 5 SECONDS; "
    "CREATE JOB two AS SELECT k, COUNT(*) AS n FROM log WHERE k > 3 GROUP BY k WINDOWING 10 SECONDS SLIDE 5 SECONDS; "
    "SELECT one.k, one.n, two.n AS m FROM JOB one LEFT JOIN JOB two ON one.k = two.k",
    "joined": "SELECT a.k, COUNT(*) AS n FROM log AS a JOIN more AS b ON a.k = b.k AND b.ts BETWEEN a.ts AND "
    "a.ts + INTERVAL 10 SECONDS GROUP BY a.k WINDOWING 20 SECONDS SLIDE 5 SECONDS",
}


@pytest.mark.parametrize("query", ANY.values(), ids=list(ANY))
def test_windows_of_any_kind_come_in_portions(
    query: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Together they are what one result has, bit by bit."""
    rng = random.Random(1)
    seconds = sorted(rng.randrange(400) for _ in range(600))
    for name in ("log", "more"):
        lines = (f'{{"ts":{1_700_000_000 + s},"k":{rng.randrange(9)}}}\n' for s in seconds)
        (tmp_path / name).write_text("".join(lines))

    def answered() -> tuple[int, list[tuple[object, ...]]]:
        results: list[WindowResult] = []
        inputs = {name: (str(tmp_path / name),) for name in ("log", "more")}
        run(RunRequest(Asked(query), inputs if " more " in query else {"log": inputs["log"]}), results.append)
        windows = [window for result in results for window in split(result)]
        assert [result.last_us for result in results] == sorted({result.last_us for result in results})
        return len(results), sorted(
            (one.start, one.end, repr(one.status), *map(repr, one.table.to_pylist())) for one in windows
        )

    (whole, expected) = answered()
    monkeypatch.setattr(spans, "PORTION_ROWS", 60)
    (portions, found) = answered()
    assert (whole, found) == (1, expected)
    assert portions > 3
