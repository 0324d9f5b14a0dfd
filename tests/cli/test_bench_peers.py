"""``elf bench peers``: engines in environments of their own, one job, one answer."""

from __future__ import annotations

import json
import os
import sys
import zipfile
from pathlib import Path

import pytest

from elf.errors import ElfError, UserError
from lab.bench.ingest import Ingest
from lab.bench.peers.bench import QUERIES, BenchQuery, Peers, Reply, Round, differ, figures
from lab.bench.peers.engines import ORACLE, PEERS, Engine, chosen, install, missing
from lab.bench.peers.serve import ranked
from lab.bench.plots import draw_bars

ROW_BY_ROW = """
import json, os
from datetime import datetime

def hit(line):
    day = line.split("[")[1].split("]")[0]
    at = datetime.strptime(day, "%d/%b/%Y:%H:%M:%S %z").timestamp()
    page = line.split(" ")[6].split("?")[0]
    return {"created_at": int(at) * 1000, "product": page, "clicks_count": 1, "store": None}

def NAME(job, scratch):
    def lay(path):
        def run():
            os.write(1, b"noise\\n")
            sums = {}
            for line in open(path):
                row = json.loads(line) if job.format == "json" else hit(line)
                if job.store in (None, row["store"]):
                    last = row["created_at"] // job.slide_ms * job.slide_ms
                    for start in range(last, last - job.size_ms, -job.slide_ms):
                        key = start, row["product"]
                        sums[key] = sums.get(key, 0) + row["clicks_count"]
            return lambda: [(start, product, clicks + EXTRA) for (start, product), clicks in sums.items()]

        return run

    return lay
"""


def engine(folder: Path, name: str, text: str) -> Engine:
    """An engine whose environment is there, with this script."""
    script = folder / f"{name}.py"
    script.write_text(text.replace("NAME", name))
    python = folder / name / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.symlink_to(sys.executable)
    return Engine(name, name.title(), script, ("nothing==1",))


@pytest.mark.parametrize("query", BenchQuery)
def test_elf_and_duckdb_answer_like_an_engine_that_goes_row_by_row(
    query: BenchQuery, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    peers = (engine(tmp_path, "slow", ROW_BY_ROW.replace("EXTRA", "0")), *PEERS)
    rows = 4000 if query == BenchQuery.INGEST else 1000  # files of two lengths, or of one
    assert Peers(query, rows, 1, envs=tmp_path, peers=peers).perform(as_json=True) == 0
    *lines, last = capsys.readouterr().out.splitlines()
    said = json.loads(last)
    assert [side["engine"] for side in said["sides"]] == ["elf", "elf_archive", "duckdb", "slow"]
    assert all(side["same_answer"] for side in said["sides"])
    assert (said["window_s"], said["slide_s"]) == ((300, 5) if query == BenchQuery.SLIDING else (30, 30))
    assert said["missing"] == ["polars", "flink", "spark", "pathway", "bytewax"]
    (left_out,) = (line for line in lines if line.startswith("not installed"))
    assert "Flink SQL" in left_out
    assert left_out.endswith(f"elf bench peers --envs {tmp_path} --install {' '.join(said['missing'])}")


def test_wrong_answers_and_failures_are_named_after_the_figures(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    peers = (
        engine(tmp_path, "liar", ROW_BY_ROW.replace("EXTRA", "(start % 60_000 == 0)")),
        engine(tmp_path, "broken", "def NAME(job, scratch):\n    raise OSError('no heap')"),
    )
    cores = os.sched_getaffinity(0)
    with pytest.raises(ElfError) as caught:
        Peers(BenchQuery.INGEST, 1000, 1, envs=tmp_path, peers=peers).perform(as_json=False)
    failed, wrong = str(caught.value).splitlines()
    assert failed == "Broken failed: OSError: no heap"
    assert "Liar: the answer is wrong in" in wrong
    assert "it has no 2026-01-01 00:00:00 product-1 " in wrong or "it has 2026-01-01 00:00:00" in wrong
    printed = capsys.readouterr().out
    (same,) = (line.split() for line in printed.splitlines() if "same answer" in line)
    assert [word for word in same if word in ("true", "false")] == ["true", "true", "true", "false"]
    assert os.sched_getaffinity(0) == cores


def test_what_cannot_be_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def ask(engines: list[str] | None, rows: int | None = None, plot: Path | None = None) -> None:
        Peers(BenchQuery.INGEST, rows, 1, engines, tmp_path, plot)

    with pytest.raises(UserError, match="no engine storm: there are polars, flink"):
        ask(["storm"])
    with pytest.raises(
        UserError, match=r"not installed: Pathway; install with: elf bench peers .* --install pathway"
    ):
        ask(["pathway"])
    with pytest.raises(UserError, match="too few"):
        ask([], rows=10)
    with pytest.raises(UserError, match=r"\.png or \.svg"):
        ask([], plot=tmp_path / "figure.pdf")
    engine(tmp_path, "flink", "")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(UserError, match="no java for Flink SQL"):
        ask(["flink"])


def test_windows_of_another_size(tmp_path: Path) -> None:
    sliding, tumbling = (QUERIES[name].sized(60) for name in ("sliding", "ingest"))
    assert (sliding.job.size_ms, sliding.job.slide_ms) == (60_000, 5_000)
    assert (tumbling.job.size_ms, tumbling.job.slide_ms) == (60_000, 60_000)
    assert sliding.title == "clicks by product, windows of 60 s every 5 s"
    assert tumbling.title == "clicks of one store by product, windows of 60 s"
    with pytest.raises(UserError, match="--window 7: windows that slide every 5 s are multiples of that"):
        Peers(BenchQuery.SLIDING, engines=["duckdb"], envs=tmp_path, window=7)


def test_an_environment_is_made_and_what_is_half_done_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel = tmp_path / "tiny-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as file:
        file.writestr("tiny.py", "")
        file.writestr("tiny-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n")
        file.writestr(
            "tiny-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        file.writestr("tiny-1.0.dist-info/RECORD", "")
    tiny = Engine("tiny", "Tiny", tmp_path / "tiny.py", (str(wheel),))
    assert missing([tiny], tmp_path) == [tiny]
    assert install(["tiny"], tmp_path, (tiny,)) == 0
    assert missing([tiny], tmp_path) == []
    assert list((tmp_path / "tiny").glob("lib/*/site-packages/tiny.py"))
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(UserError, match="cannot install Tiny: status 1"):
        install(["tiny"], tmp_path, (tiny,))
    assert missing([tiny], tmp_path) == [tiny]


def test_every_peer_is_pinned_and_has_a_script() -> None:
    assert all("==" in requirement for peer in PEERS for requirement in peer.requirements)
    assert all(peer.script.is_file() for peer in (*PEERS, ORACLE))
    assert chosen(["spark", "spark"]) == [PEERS[2]]
    assert chosen(["duckdb", "elf"]) == []


def test_ranked_takes_the_best_of_each_window_ties_by_name() -> None:
    rows = [(5, "b", 1), (0, "c", 7), (0, "b", 9), (0, "a", 7), (5, "a", 1)]
    assert ranked(rows, 2) == [(0, "b", 9), (0, "a", 7), (5, "a", 1), (5, "b", 1)]


def test_differences_are_told() -> None:
    rows = [(0, "a", 1), (30_000, "b", 2)]
    assert differ(rows, list(rows)) is None
    assert differ(rows[:1], rows) == (
        "the answer is wrong in 1 rows; it has no 1970-01-01 00:00:30 b 2, DuckDB has"
    )
    assert "twice" in str(differ([*rows, rows[0]], rows))


def test_the_rate_is_that_of_the_second_half() -> None:
    def said(*seconds: tuple[float, float]) -> list[Round]:
        return [Round("1", Reply(a, a / 2, 1, []), Reply(b, b / 2, 9, []), 1000) for a, b in seconds]

    found = figures(said((1.0, 3.0), (1.0, 2.0), (9.0, 14.0)))
    assert (found.events_per_s, found.events_per_core_s, found.peak_rss_bytes) == (500.0, 1000.0, 9)
    assert found.spread == (400.0, 2000.0)
    for still in (2.0, 2.0 + 1e-9, 1.0):
        assert figures(said((2.0, still))).events_per_s is None


@pytest.mark.parametrize("suffix", [".png", ".svg"])
def test_a_picture_of_rates(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"figure{suffix}"
    draw_bars({"elf": 2e6, "DuckDB": 3e6}, "events/s", "a title", path)
    assert path.read_bytes()[:5] in (b"\x89PNG\r", b"<?xml")


def test_ingest_draws_too(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    log.write_text("".join(f'{{"product": "p{n % 3}", "n": {n}}}\n' for n in range(50)))
    query = "SELECT product, SUM(n) FROM x GROUP BY product"
    assert Ingest(log, query, repeat=1, plot=tmp_path / "figure.svg").perform(as_json=False) == 0
    assert "DuckDB" in (tmp_path / "figure.svg").read_text()
    with pytest.raises(UserError, match=r"\.png or \.svg"):
        Ingest(log, query, plot=tmp_path / "figure.txt")
