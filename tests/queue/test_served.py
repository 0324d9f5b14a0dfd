"""The queue with Spark: whatever happens on the way, the rows are those of an undisturbed run."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import suppress
from itertools import cycle
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from elf.client.files import files_of
from elf.errors import UserError
from elf.examples import correlation
from spark_backend import offline
from spark_backend.queries import question
from spark_backend.queue.store import RUNS_MAX, Spec, Store
from spark_backend.queue.work import Work
from tests.support.confined import needs_confinement
from tests.support.offline import BASE_US, SECOND, clicks, store_clicks
from tests.support.queued import Queue

COUNT = (
    "SELECT product, COUNT(*) AS n, SUM(price) AS total, COUNT(DISTINCT clicks) AS kinds FROM clicks "
    "GROUP BY product ORDER BY total DESC, product"
)
WINDOWS = "SELECT product, COUNT(*) AS n, AVG(clicks) AS a FROM clicks GROUP BY product WINDOWING 1 HOUR"
FILES = 6


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six files: of two agents, in three hours."""
    path = tmp_path_factory.mktemp("archive") / "archive"
    for number in range(2):
        rows = clicks(60, number, length_us=3 * 3_600 * SECOND)
        timed = [row for row in rows if row.ts_us is not None]
        store_clicks(path, timed, agent=f"{number:032x}")
    return path


@pytest.fixture
def queue(tmp_path: Path, quick_spark: SparkSession) -> Iterator[Queue]:
    made = Queue(tmp_path / "queue", quick_spark)
    yield made
    made.daemon.close()


def undisturbed(
    spark: SparkSession, text: str, archive: Path, span: tuple[int, int] | None = None
) -> pa.Table:
    """By merging all files in one go."""
    asked = question(text, [str(archive)])
    spec = Spec(text, (str(archive),), span, {one.stream: one.schema for one in asked.streams})
    work = Work(spark, spec)
    inputs = work.inputs()
    assert len(inputs) == FILES if span is None else len(inputs) < FILES
    return work.result(map(work.partial, inputs))


@pytest.mark.parametrize("text", [COUNT, WINDOWS], ids=["groups", "windows"])
def test_partial_states_of_files_make_the_answer(quick_spark: SparkSession, archive: Path, text: str) -> None:
    span = None if text == COUNT else (BASE_US + 3_000 * SECOND, BASE_US + 7_200 * SECOND)
    asked = question(text, [str(archive)], span)
    wanted = offline.collected(offline.answer(quick_spark, asked.plan, asked.archived, span))
    got = undisturbed(quick_spark, text, archive, span)
    assert got.num_rows
    assert got.column_names == wanted.column_names
    rows = [[sorted(map(str, table.to_pylist())) for table in (got, wanted)]]
    if text == COUNT:
        rows = [[list(map(str, table.drop_columns("total").to_pylist())) for table in (got, wanted)]]
        assert got["total"].to_pylist() == pytest.approx(wanted["total"].to_pylist(), rel=1e-12)
    assert rows[0][0] == rows[0][1]


def test_suspended_resumed_and_begun_again_at_random(queue: Queue, archive: Path) -> None:
    wanted = undisturbed(queue.spark, COUNT, archive)
    rng = random.Random(1)
    out = queue.submit("one", COUNT, archive)
    for disturbance in cycle(["suspend", "again"]):
        before = len(queue.store.outputs(1))  # what is next is disturbed in the middle of the one behind it
        queue.until(lambda: queue.run("one").over or len(queue.store.outputs(1)) > before)  # noqa: B023
        for _ in range(rng.randrange(3)):
            queue.tick()
        if queue.run("one").over:
            break
        done = queue.store.outputs(1)
        if disturbance == "again":
            queue.again()
        else:
            with suppress(UserError):  # it is done in the meantime
                queue.store.ask("one", "suspend")
                queue.tick()
                queue.store.ask("one", "resume")
        kept = queue.store.outputs(1)
        if not queue.run("one").over:  # then they are dropped
            assert set(done) <= set(kept)  # each once, by the attempt that did it
    assert queue.run("one").state == "done"
    assert pq.read_table(out).equals(wanted)
    queue.until(lambda: not (queue.folder / "run-1").exists())  # the commit does so last


@pytest.mark.parametrize("patience", ["given", "killed"])
def test_research_gives_way_to_production_and_goes_on_behind_what_it_has_done(
    tmp_path: Path, quick_spark: SparkSession, archive: Path, patience: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock of the queue is much ahead of Spark: after its 12 s no file is done."""
    if patience == "given":
        monkeypatch.setattr("spark_backend.queue.manager.KILL_MS", 10**9)
    queue = Queue(tmp_path / "queue", quick_spark, slots=1)
    research = queue.submit("research", COUNT, archive)
    queue.until(lambda: queue.run("research").containers == queue.slots)
    production = queue.submit("production", WINDOWS, archive, production=True)
    queue.until(lambda: queue.run("production").over)
    assert not queue.run("research").over
    queue.until(lambda: queue.run("research").over)
    suspended = queue.run("research").suspends
    assert suspended > 0 if patience == "given" else suspended == 0
    assert queue.run("production").suspends == 0
    assert pq.read_table(research).equals(undisturbed(queue.spark, COUNT, archive))
    assert pq.read_table(production).equals(undisturbed(queue.spark, WINDOWS, archive))
    queue.daemon.close()


def test_a_run_is_suspended_resumed_and_cancelled(queue: Queue, archive: Path) -> None:
    out = queue.submit("one", COUNT, archive)
    queue.until(lambda: queue.run("one").containers > 0)
    queue.store.ask("one", "suspend")
    queue.until(lambda: queue.daemon.idle)
    done = queue.store.outputs(1)
    assert queue.run("one").state == "suspended"
    queue.again()
    assert queue.daemon.idle
    queue.store.ask("one", "resume")
    queue.until(lambda: len(queue.store.outputs(1)) > len(done))
    assert set(done) <= set(queue.store.outputs(1))
    assert queue.run("one").state == "running"
    queue.store.ask("one", "cancel")
    queue.until(lambda: queue.run("one").over)
    assert queue.run("one").state == "cancelled"
    assert queue.store.outputs(1) == []
    assert not out.exists()
    with pytest.raises(UserError, match="cancelled: there is nothing to suspend"):
        queue.store.ask("one", "suspend")


def test_a_run_that_is_suspended_is_in_nobodys_way(
    queue: Queue, archive: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spark_backend.queue.serve.LIVE_MAX", 1)
    one, other = (queue.submit(name, COUNT, archive) for name in ("one", "other"))
    queue.until(lambda: queue.run("one").containers > 0)
    queue.store.ask("one", "suspend")
    queue.until(lambda: queue.run("other").over)
    assert queue.run("one").state == "suspended"
    queue.store.ask("one", "resume")
    queue.until(lambda: queue.run("one").over)
    assert pq.read_table(one).equals(pq.read_table(other))


@needs_confinement
def test_aggregates_of_ones_own_come_with_the_run(queue: Queue, archive: Path) -> None:
    text = (
        f"CREATE AGGREGATE together FROM '{correlation.__file__}'; "
        "SELECT product, together(clicks, price) AS r FROM clicks GROUP BY product ORDER BY product"
    )
    out = queue.submit("one", text, archive)
    asked = question(text, [str(archive)], texts=files_of(text))
    queue.until(lambda: queue.run("one").over)
    assert queue.run("one").state == "done", queue.run("one").why
    wanted = offline.collected(offline.answer(queue.spark, asked.plan, asked.archived, None))
    got = pq.read_table(out)
    assert got["product"].equals(wanted["product"])
    assert got["r"].to_pylist() == pytest.approx(wanted["r"].to_pylist(), rel=1e-9)


def test_a_file_that_is_damaged_fails_the_run_which_goes_on_when_it_is_back(
    queue: Queue, tmp_path: Path
) -> None:
    path = tmp_path / "archive"
    store_clicks(path, clicks(20, 1, from_us=BASE_US, length_us=SECOND)[:20])
    queue.submit("one", "SELECT COUNT(*) AS n FROM clicks", path)
    [file] = [one for one in path.rglob("*.parquet") if "hour=00" in str(one)]
    whole = file.read_bytes()
    file.write_bytes(b"\0" * len(whole))
    queue.until(lambda: queue.run("one").over)
    assert queue.run("one").state == "failed"
    assert f"{file} is damaged, or was replaced" in queue.run("one").why
    file.write_bytes(whole)
    queue.store.ask("one", "resume")
    queue.until(lambda: queue.run("one").over)
    assert queue.run("one").state == "done"


def test_a_queue_is_bounded_and_names_are_taken_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match="no queue in"):
        Store(tmp_path / "none")
    store = Store(tmp_path / "queue", create=True)
    assert (tmp_path / "queue").stat().st_mode & 0o777 == 0o700
    spec, out = Spec("SELECT 1", ("/a",)), Path("/b")

    def submit(name: str) -> None:
        store.submit(name, spec, out, owner="me", production=False, deadline_ms=None, now_ms=0)

    submit("a")
    with pytest.raises(UserError, match="there is a run a already"):
        submit("a")
    monkeypatch.setattr("spark_backend.queue.store.RUNS_MAX", 1)
    with pytest.raises(UserError, match="1 runs are in the queue"):
        submit("b")
    assert RUNS_MAX == 1_000
