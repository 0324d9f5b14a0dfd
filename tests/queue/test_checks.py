"""Windows of a job that are checked by runs of the queue."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec
import pyarrow.json as pj
import pytest
from pyspark.sql import SparkSession

from elf.client import CompareFacts
from elf.errors import ElfError
from elf.ql.planner import plan_text
from spark_backend.queue.schedules import Asked, Schedule, Schedules
from spark_backend.queue.store import Check, Spec
from tests.support.compared import job_over
from tests.support.offline import BASE_US, CLICKS, SECOND, Click, store_clicks, windows
from tests.support.queued import Queue

QUERY = "SELECT product, COUNT(*) AS n, SUM(clicks) AS s FROM clicks GROUP BY product WINDOWING 10 SECONDS"
SIX = windows(10, 10, 6)


@dataclass
class Fleet:
    """A fleet whose job has committed some of six windows, of ten rows each."""

    path: Path
    spark: SparkSession
    committed: int = 0
    asked: list[Check] = field(default_factory=list)
    wrong: str = ""

    def __post_init__(self) -> None:
        self.store()
        plan = plan_text(QUERY, CLICKS, stream="clicks")
        self._facts = job_over(self.spark, plan, self.path, SIX, {one: {"rows_in": 10} for one in SIX})

    def store(self) -> None:
        rows = [Click(BASE_US + n * SECOND, ("doom", "myst")[n % 2], None, 1, 0.5) for n in range(60)]
        store_clicks(self.path, rows)

    def ask(self, check: Check) -> CompareFacts:
        self.asked.append(check)
        if self.wrong:
            raise ElfError(self.wrong)
        job = self._facts.job
        return replace(self._facts, job=msgspec.structs.replace(job, windows=job.windows[: self.committed]))


@pytest.fixture
def fleet(tmp_path: Path, quick_spark: SparkSession) -> Fleet:
    return Fleet(tmp_path / "archive", quick_spark)


@pytest.fixture
def queue(tmp_path: Path, fleet: Fleet) -> Iterator[Queue]:
    made = Queue(tmp_path / "queue", fleet.spark, ask_fleet=fleet.ask)
    yield made
    made.daemon.close()


def submit(queue: Queue, name: str, check: Check, schedule: str = "") -> Path:
    out = queue.folder / f"{name}.json"
    queue.store.submit(
        name, Spec("", (), check=check), out, owner="me", production=True, deadline_ms=None, now_ms=0,
        schedule=schedule,
    )  # fmt: skip
    queue.until(lambda: queue.run(name).over)
    return out


def starts(out: Path) -> list[int]:
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert {row["outcome"] for row in rows} <= {"equal"}
    return [row["window_start"] for row in rows]


def test_windows_that_are_due_are_judged_and_each_once_by_those_that_follow(
    fleet: Fleet, queue: Queue
) -> None:
    """The last two windows wait for those that count what was late for them."""
    pytest.importorskip("croniter", reason="it comes with elf-stream[spark]")
    check = Check("busy", "127.0.0.1:7071", "elf")
    fleet.committed = 3
    out = submit(queue, "all", check)
    assert (queue.run("all").state, len(starts(out))) == ("done", 1)
    asked = Asked(job="busy", follow=True)
    Schedules(queue.store).add(Schedule("f", "me", "@daily", "UTC", asked, "/o.json", True, None, 1), 0)
    follow = Check("busy", "127.0.0.1:7071", "elf", follow=True)
    judged = []
    for number, committed in enumerate((3, 5, 5, 6)):
        fleet.committed = committed
        queue.again()
        out = submit(queue, f"f-{number}", follow, "f")
        assert queue.run(f"f-{number}").state == "done", queue.run(f"f-{number}").why
        judged.append(len(starts(out)) if out.exists() else 0)
    assert judged == [0, 2, 0, 1]  # from now on; nothing is said twice, and no file is written of nothing


def test_a_window_that_is_unexplained_fails_the_run_which_is_judged_anew_when_it_is_resumed(
    fleet: Fleet, queue: Queue
) -> None:
    fleet.committed = 6
    extra = [Click(BASE_US + 11 * SECOND, "doom", None, 1, 0.5)]
    store_clicks(fleet.path, extra, agent="b")
    out = submit(queue, "check", Check("busy", "127.0.0.1:7071", "elf", span=(SIX[0][0], SIX[3][1])))
    run = queue.run("check")
    assert run.state == "failed"
    assert "1 of 4 windows are unexplained, the first of 2026-01-01T00:00:10Z" in run.why
    rows = pj.read_json(out)
    assert rows["outcome"].to_pylist().count("unexplained") == 1
    for folder in (fleet.path, *fleet.path.parent.glob("rolls*")):
        shutil.rmtree(folder)
    fleet.store()
    queue.store.ask("check", "resume")
    queue.until(lambda: queue.run("check").over)
    assert queue.run("check").state == "done", queue.run("check").why
    assert starts(out)


def test_a_check_that_follows_says_again_what_was_unexplained(fleet: Fleet, queue: Queue) -> None:
    pytest.importorskip("croniter", reason="it comes with elf-stream[spark]")
    asked = Asked(job="busy", follow=True)
    Schedules(queue.store).add(Schedule("f", "me", "@daily", "UTC", asked, "/o.json", True, None, 1), 0)
    follow = Check("busy", "127.0.0.1:7071", "elf", follow=True)
    store_clicks(fleet.path, [Click(BASE_US + 11 * SECOND, "doom", None, 1, 0.5)], agent="b")
    for number, committed in enumerate((3, 4, 4)):  # from now on; it is suspect; it is said
        fleet.committed = committed
        out = submit(queue, f"f-{number}", follow, "f")
    why = queue.run("f-2").why
    assert "1 of 1 windows are unexplained" in why
    out.unlink()
    queue.store.ask("f-2", "resume")
    queue.until(lambda: queue.run("f-2").over)
    assert (queue.run("f-2").state, queue.run("f-2").why) == ("failed", why)
    assert pj.read_json(out)["outcome"].to_pylist() == ["unexplained"]
    queue.store.update(3, state="committing", why="")  # killed before it was said
    queue.again()
    queue.until(lambda: queue.run("f-2").over)
    assert (queue.run("f-2").state, queue.run("f-2").why) == ("failed", why)
    submit(queue, "f-3", follow, "f")
    assert queue.run("f-3").state == "done"


def test_a_fleet_that_is_not_there_fails_the_run(fleet: Fleet, queue: Queue) -> None:
    fleet.wrong = "no agent answers at 127.0.0.1:7071"
    submit(queue, "check", Check("busy", "127.0.0.1:7071", "elf"))
    assert (queue.run("check").state, queue.run("check").why) == ("failed", fleet.wrong)
    fleet.wrong = ""
    submit(queue, "none", Check("busy", "127.0.0.1:7071", "elf"))
    assert queue.run("none").why == "job busy has not committed any window yet"
    fleet.committed = 2
    submit(queue, "early", Check("busy", "127.0.0.1:7071", "elf"))
    assert "is due to be judged" in queue.run("early").why
