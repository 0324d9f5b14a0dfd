"""Windows in a table of Delta Lake: each once, in its newest revision, whoever brings it how often."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from agents.disk.store import Store
from agents.outputs.delivering import Deliveries
from agents.outputs.delta import Delta
from agents.outputs.parcels import parcels
from elf.fields import replace
from elf.job.output import OutputSpec
from tests.support.delivered import JOB, commit, deliver, output

deltalake = pytest.importorskip("deltalake")


class Lake:
    """A table, and who brings windows to it."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "a lake" / "pages"
        self.allow = (f"delta:{folder}",)
        self.out = self.output()
        self.store = Store(":memory:")

    def output(self, generation: int = 1) -> OutputSpec:
        return output(f"delta:{str(self.path).replace(' ', '%20')}", generation)

    def bring(self, spec: OutputSpec | None = None, after: int = 0) -> str:
        """By an agent of its own; what is against it."""
        return deliver(Deliveries("a:1", self.allow), spec or self.out, self.store, after).error

    def table(self) -> Any:
        return deltalake.DeltaTable(self.path)

    def rows(self, *columns: str) -> list[tuple[Any, ...]]:
        found = pa.table(self.table().to_pyarrow_table()).to_pylist()
        rows = [(row["window_start"].timestamp(), *(row[name] for name in columns)) for row in found]
        return sorted(rows, key=str)


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path)


def test_a_window_is_there_once_in_its_newest_revision(lake: Lake) -> None:
    commit(lake.store, 0, [{"page": "/", "n": 2}, {"page": "é", "n": None}])
    commit(lake.store, 10, [{"page": "/", "n": 5}])
    commit(lake.store, 20, [])
    assert lake.bring() == ""
    assert lake.rows("page", "n") == [(0, "/", 2), (0, "é", None), (10, "/", 5)]
    commit(lake.store, 0, [{"page": "/", "n": 3}], revision=1)
    commit(lake.store, 10, [], revision=1)
    assert lake.bring(after=3) == ""
    version = lake.table().version()
    assert [lake.bring(), lake.bring(after=1), lake.bring(after=4)] == [""] * 3
    assert lake.table().version() == version, "what is there already is no commit"
    assert lake.rows("page", "n") == [(0, "/", 3)]
    (last, *_) = lake.table().history(1)
    (window,) = json.loads(last["elf"])
    assert (window["window_start"], window["revision"]) == ("1970-01-01T00:00:10.000Z", 1)
    assert window["status"]["missing"] == ["web-2"]


def test_who_is_late_with_an_old_revision_changes_nothing(lake: Lake) -> None:
    """Agents at once, each with all revisions from another one on, and a table that is not there yet."""
    for revision in range(6):
        commit(lake.store, 0, [{"page": "/", "n": revision}] * (revision + 1), revision)
    with ThreadPoolExecutor(4) as threads:
        errors = list(threads.map(lambda after: lake.bring(after=after), (0, 0, 2, 4)))
    assert set(errors) == {""}
    assert lake.rows("n") == [(0, 5)] * 6


def test_others_may_compact_it_and_add_rows(lake: Lake) -> None:
    for start in range(0, 30, 10):
        commit(lake.store, start, [{"n": start}])
    assert lake.bring() == ""
    added = lake.table().to_pyarrow_table().slice(0, 1)
    later = added.set_column(0, "window_start", pa.array([90_000_000], pa.timestamp("us", tz="UTC")))
    deltalake.write_deltalake(lake.path, later, mode="append")
    lake.table().optimize.compact()
    commit(lake.store, 10, [{"n": 11}], revision=1)
    commit(lake.store, 30, [{"n": 30}])
    assert lake.bring(after=3) == ""
    assert [start for start, _ in lake.rows("n")] == [0, 10, 20, 30, 90]
    assert (10, 11) in lake.rows("n")


def test_a_changed_job_brings_its_columns_but_no_other_types(lake: Lake) -> None:
    commit(lake.store, 0, [{"COUNT(*)": 2}])
    more = {"COUNT(*)": 3, "sum": Decimal(3), "all": [1, None], "pair": {"a": "b"}, "ok": True, "none": None}
    commit(lake.store, 10, [more], version=2)
    commit(lake.store, 20, [{"COUNT(*)": 2.5}], version=3)
    assert "column COUNT_*_ is double now, and long in the table" in lake.bring()
    assert lake.rows("COUNT_*_", "sum", "all", "pair", "ok", "none") == [
        (0, 2, None, None, None, None, None),
        (10, 3, Decimal(3), [1, None], {"a": "b"}, True, None),
    ]


def test_a_table_is_of_one_output_and_of_its_last_generation(lake: Lake) -> None:
    commit(lake.store, 0, [{"n": 2}])
    commit(lake.store, 10, [{"n": 3}])
    assert lake.bring() == ""
    assert lake.bring(lake.output(2), after=1) == ""  # DROP and CREATE under one name
    commit(lake.store, 0, [{"n": 4}], revision=1)
    assert lake.bring() == ""  # the one before, by one who is behind
    assert lake.rows("n") == [(0, 2), (10, 3)]
    assert lake.bring(lake.output(2), after=2) == ""
    assert lake.rows("n") == [(0, 4), (10, 3)]
    assert "is not of this output" in lake.bring(replace(lake.out, name="other"))


def test_all_windows_of_a_result_are_one_commit(lake: Lake) -> None:
    commit(lake.store, 0, [{"n": 0}])
    assert lake.bring() == ""
    row = lake.store.windows_after(JOB.uid, 0)[0]
    (like,) = parcels(lake.out, JOB.name, row, "a:1")
    spans = [datetime.fromtimestamp(10 * number, UTC) for number in range(301)]
    many = [
        replace(like, number=2, window=replace(like.window, start=start, end=end))
        for start, end in pairwise(spans)
    ]
    before = lake.table().version()
    Delta(lake.out, "").put(many)
    assert lake.table().version() == before + 1
    assert len(lake.rows()) == 300


def test_what_is_against_it_is_the_reason_without_what_is_secret(lake: Lake, tmp_path: Path) -> None:
    commit(lake.store, 0, [{"n": 2}])
    (tmp_path / "s3").write_text(
        'for: delta+s3://bucket/pages\n{"AWS_ENDPOINT_URL": "http://127.0.0.1:1", "AWS_ALLOW_HTTP": "true", '
        '"AWS_REGION": "x", "AWS_ACCESS_KEY_ID": "me", "AWS_SECRET_ACCESS_KEY": "a word", "max_retries": "0"}'
    )
    (tmp_path / "no").write_text("for: delta+s3://bucket/pages\nword")
    to = Deliveries("a:1", ("delta+s3:",), tmp_path)
    done = deliver(to, output("delta+s3://bucket/pages", secret="s3"), lake.store)
    assert done.kept.number == 0
    assert "Connection refused" in done.error
    assert "no JSON object" in deliver(to, output("delta+s3://bucket/pages", secret="no"), lake.store).error
    lake.path.parent.mkdir(parents=True)
    lake.path.write_text("a file")
    assert "File exists" in lake.bring()
