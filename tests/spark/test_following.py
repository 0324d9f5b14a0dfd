"""``elf compare --follow``: each window is judged once, what is unexplained is an alert, and is counted."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import msgspec
import pytest
from pyspark.sql import SparkSession

from elf.cli import follow
from elf.cli.compare import Asked, Chosen, Fleet, compare_job
from elf.cli.follow import Follower, Metrics, Notices, seconds
from elf.client import CompareFacts
from elf.errors import ElfError, UserError
from elf.fields import replace
from elf.ql.planner import plan_text
from spark_backend import session
from spark_backend.compare import Difference, Reason, Verdict
from spark_backend.pending import LATER_MIN, Pending
from tests.support.compared import job_over
from tests.support.offline import BASE_US, CLICKS, SECOND, Click, store_clicks, windows

SIX = windows(10, 10, 6)


def verdict(at: int, reason: str = "") -> Verdict:
    differences = (Difference(None, (1,)),) if reason else ()
    reasons = (Reason(reason, reason, 1),) if reason else ()
    return Verdict(at, at + 1, 0, {}, 1, 1, differences, ("n",), reasons)


def test_each_window_is_judged_once_when_later_ones_are_there() -> None:
    pending, known = Pending(), [(at, at + 1) for at in range(4)]
    assert pending.due(known[:LATER_MIN]) == []
    assert pending.due(known) == known[:2]
    assert pending.settle([verdict(0), verdict(1, "late")]) == [verdict(0), verdict(1, "late")]
    assert pending.due(known) == []
    assert pending.lag_us(known) == 2
    known += [(4, 5)]
    assert pending.due(known) == [(2, 3)]


def test_what_is_unexplained_is_judged_a_second_time_and_no_third() -> None:
    pending, known = Pending(), [(at, at + 1) for at in range(4)]
    assert pending.settle([verdict(0, "unexplained"), verdict(1, "unexplained")]) == []
    assert pending.due(known) == known[:2]
    found = pending.settle([verdict(0, "late"), verdict(1, "unexplained")])
    assert [one.reasons[0].name for one in found] == ["late", "unexplained"]
    assert pending.due(known) == []


def test_a_window_that_was_never_committed_is_told_at_once_and_once() -> None:
    never = replace(verdict(1, "unexplained"), revision=None)
    pending = Pending()
    assert pending.settle([never]) == [never]
    pending.due([(0, 1), (2, 3), (3, 4), (4, 5)])
    assert pending.settle([never]) == []


def test_windows_that_the_fleet_has_forgotten_are_forgotten() -> None:
    pending = Pending()
    pending.settle([verdict(at) for at in range(100)])
    pending.due([(at, at + 1) for at in range(90, 110)])
    assert pending.due([(at, at + 1) for at in range(95, 110)]) == [(at, at + 1) for at in range(100, 108)]


@pytest.mark.parametrize(
    ("text", "secs"), [("30s", 30), ("5m", 300), ("1.5h", 5400), ("2", 2), ("1500ms", 1.5)]
)
def test_how_often(text: str, secs: float) -> None:
    assert seconds(text) == secs


@pytest.mark.parametrize("text", ["", "soon", "0", "-5s", "10 days", "1ms"])
def test_how_often_not(text: str) -> None:
    with pytest.raises(UserError, match="give a time such as 30s or 5m"):
        seconds(text)


class Hook(BaseHTTPRequestHandler):
    """Takes what comes, or not."""

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        assert isinstance(self.server, Server)
        if not self.server.refuses:
            self.server.got.append((str(self.headers["Idempotency-Key"]), msgspec.json.decode(body)))
        self.send_response(503 if self.server.refuses else 204)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


class Server(HTTPServer):
    refuses = False

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Hook)
        self.got: list[tuple[str, dict[str, object]]] = []


@contextmanager
def hook() -> Iterator[Server]:
    with Server() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


class Grows(Fleet):
    """A fleet whose job has more windows at each look; or that cannot be asked."""

    def facts(self, from_us: int | None = None) -> CompareFacts:
        found = GROWN.pop(0)
        if isinstance(found, ElfError):
            raise found
        return found


GROWN: list[CompareFacts | ElfError] = []


def test_looks_judge_what_is_new_and_tell_of_what_is_unexplained(
    quick_spark: SparkSession,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A row is taken from the archive of the third window."""
    rows = [Click(BASE_US + n * SECOND, "doom", None, 1, 0.5) for n in range(60)]
    store_clicks(tmp_path / "whole", rows)
    store_clicks(tmp_path / "less", [row for n, row in enumerate(rows) if n != 25])
    query = "SELECT product, COUNT(*) AS n FROM clicks GROUP BY product WINDOWING 10 SECONDS"
    plan = plan_text(query, CLICKS, stream="clicks")
    facts = job_over(quick_spark, plan, tmp_path / "whole", SIX, {one: {"rows_in": 10} for one in SIX})
    source = msgspec.structs.replace(facts.archives[0], archives=(str(tmp_path / "less"),))
    for count in (3, 5, 6):
        job = msgspec.structs.replace(facts.job, windows=facts.job.windows[:count])
        GROWN.append(replace(facts, archives=(source,), job=job))
    with hook() as server:
        asked = Asked(
            Grows("h:1", "elf", "busy"),
            windows=3,
            report=tmp_path / "page.html",
            metrics=str(tmp_path / "elf.prom"),
            notify=f"http://127.0.0.1:{server.server_port}/elf",
        )
        metrics = Metrics("busy", asked.metrics)
        follower = Follower(asked, Chosen(windows=3), metrics, Notices(asked.notify, metrics), Pending())
        follower.look(quick_spark)
        assert capsys.readouterr().out.splitlines() == ["2026-01-01T00:00:00.000Z + 10 s: equal"]
        follower.look(quick_spark)
        assert capsys.readouterr().out.splitlines() == ["2026-01-01T00:00:10.000Z + 10 s: equal"]
        server.refuses = True
        follower.look(quick_spark)
        said = capsys.readouterr()
        assert (
            "2026-01-01T00:00:20.000Z + 10 s: unexplained in 1 row: it has 1 row that no archive" in said.out
        )
        assert "2026-01-01T00:00:30.000Z + 10 s: equal" in said.out
        assert "elf: unexplained: job busy, 2026-01-01T00:00:20.000Z" in said.err
        assert "1 notices wait" in said.err
        server.refuses = False
        follower.notices.send()
        ((key, notice),) = server.got
    assert key == f"compare/busy/{SIX[2][0]}/{SIX[2][1]}"
    assert (notice["kind"], notice["job"], notice["outcome"]) == ("compare", "busy", "unexplained")
    shown = (tmp_path / "elf.prom").read_text()
    assert 'elf_compare_windows_total{job="busy",outcome="equal"} 3.0' in shown
    assert 'elf_compare_windows_total{job="busy",outcome="unexplained"} 1.0' in shown
    assert 'elf_compare_lag_seconds{job="busy"} 20.0' in shown
    assert "live = offline in 3 of 4 windows" in (tmp_path / "page.html").read_text()

    monkeypatch.setattr(logging, "disable", lambda _: None)
    monkeypatch.setattr(session, "opened", lambda *_, **__: nullcontext(quick_spark))
    known = replace(
        facts, archives=(source,), job=msgspec.structs.replace(facts.job, windows=facts.job.windows)
    )
    gone = ElfError("nobody answers")
    GROWN.extend([known, known, gone, gone, known])
    asked = replace(asked, follow=True, windows=4, every="1s", rounds=4, notify=None, as_json=True)
    assert compare_job(asked) == 2
    said = capsys.readouterr()
    windows_told = [msgspec.json.decode(line) for line in said.out.splitlines()]
    assert [one["outcome"] for one in windows_told] == ["equal", "unexplained"]
    assert said.err.count("elf: nobody answers; the next look is in 1 s") == 1
    assert 'elf_compare_looks_failed_total{job="busy"} 2.0' in (tmp_path / "elf.prom").read_text()
    GROWN.extend([known, gone])
    assert compare_job(replace(asked, rounds=1)) == 69
    assert "no window of job busy was judged in 1 looks: nobody answers" in capsys.readouterr().err


def test_notices_that_nobody_takes_are_bounded_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow, "NOTICES_MAX", 2)
    metrics = Metrics("busy", None)
    notices = Notices("http://127.0.0.1:9/elf", metrics)
    for n in range(5):
        notices.add(str(n), {"n": n})
    lost = metrics.registry.get_sample_value("elf_compare_notices_lost_total", {"job": "busy"})
    assert lost == 3


def test_metrics_go_to_an_address_or_a_file(tmp_path: Path) -> None:
    for wrong in ("9090", "h:99999", "x.txt"):
        with pytest.raises(UserError, match=r"give HOST:PORT, or a file that ends in \.prom"):
            Metrics("busy", wrong).serve()
    with pytest.raises(UserError, match="no such file"):
        Metrics("busy", str(tmp_path / "no" / "elf.prom")).serve()
    Metrics("busy", str(tmp_path / "elf.prom")).serve()
    assert "elf_compare_looks_failed_total" in (tmp_path / "elf.prom").read_text()
