"""The archive: every line once, wherever in its code a crash falls; partitions that any engine reads."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from unittest.mock import patch

import duckdb
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import agents.archive.manifest
import agents.archive.upkeep
import agents.tasks.archive
from agents.archive.contents import contents
from agents.archive.partitions import HOUR_US, Target, by_hour, hour_folder
from agents.archive.retention import Limits
from agents.archive.upkeep import Upkeep
from agents.disk.durable import waits
from agents.disk.store import Store
from agents.tasks.archive import Archive, ArchiveError, sooner_ms
from elf.errors import ElfBug
from tests.support.archived import append, archive_in
from tests.support.crashing import Crash, crash_at

TRACED = {
    module.__file__ for module in (agents.tasks.archive, agents.archive.partitions, agents.archive.pieces)
}
BASE_US = 1_767_225_600_000_000  # 2026-01-01T00:00:00Z


def shipped(folder: Path) -> pa.Table:
    """As engines see it that know nothing of manifests."""
    return ds.dataset(folder / "archive", partitioning="hive").to_table()


def shown(folder: Path, stream: str = "clicks") -> pa.Table:
    """As readers are shown it."""
    target = Target(str(folder / "archive"))
    found = contents(target, stream)
    assert not found.damaged
    paths = [f"{target.stream_folder(stream)}/{file.path}" for file in found.files]
    tables = [pq.ParquetFile(path).read() for path in paths]
    for file, table in zip(found.files, tables, strict=True):
        assert file.rows == table.num_rows
        assert all(file.first <= record < file.end for record in table["record"].to_pylist())
    return (
        pa.concat_tables(tables).unify_dictionaries()
        if tables
        else pa.table({"line": pa.array([], pa.string())})
    )


# -- crashes -------------------------------------------------------------------------------------------------


class AtOnce:
    """In place of the archive's thread, so that a crash falls into what it does too."""

    def __init__(self, *_: object) -> None: ...

    def submit(self, task: Callable[..., None], *given: object) -> Future[None]:
        done: Future[None] = Future()
        try:
            task(*given)
        except OSError as error:
            done.set_exception(error)
        else:
            done.set_result(None)
        return done

    def shutdown(self) -> None: ...


@dataclass
class Machine:
    """A stream task in small: two sources, a checkpoint that is saved at once or not at all, a disk."""

    folder: Path
    rng: random.Random
    length: int = 12
    checkpoint: tuple[int, tuple[int, int]] = (0, (0, 0))
    synced: dict[Path, int] = field(default_factory=dict)
    named: set[str] = field(default_factory=set)
    """What is surely in the folder of rolls."""
    limits: Limits | None = None
    """None: nobody keeps house."""
    gone: int = 0
    """Rows that retention has deleted."""

    def sync_path(self, path: Path) -> None:
        if path.is_dir():
            self.named = {each.name for each in path.iterdir()}

    def run(self) -> None:
        archive = archive_in(self.folder)
        archive.restore(self.checkpoint[0])
        read = list(self.checkpoint[1])
        while min(read) < self.length:
            self.append(archive, read)
            if self.rng.random() < 0.4:
                self.take_checkpoint(archive, read)
            if self.rng.random() < 0.4:
                archive.roll()
            if self.rng.random() < 0.6:
                archive.ship(self.checkpoint[0])
            if self.limits is not None and self.rng.random() < 0.5:
                Upkeep([archive.shelf], self.limits, grace_ms=0).run()
        archive.roll()
        self.take_checkpoint(archive, read)
        archive.ship(self.checkpoint[0])
        archive.close()

    def append(self, archive: Archive, read: list[int]) -> None:
        source = self.rng.choice([i for i in (0, 1) if read[i] < self.length])
        start, end = read[source], min(self.length, read[source] + self.rng.randint(1, 5))
        times: list[int | None] = [
            None if n % 7 == 3 else BASE_US + n % 3 * HOUR_US for n in range(start, end)
        ]
        append(archive, [f"{source}/{n}" for n in range(start, end)], times, f"file {source}", start)
        read[source] = end

    def take_checkpoint(self, archive: Archive, read: list[int]) -> None:
        position = archive.sync()
        for path in (self.folder / "rolls").glob("open-*"):
            self.synced[path] = path.stat().st_size
        self.checkpoint = (position, (read[0], read[1]))

    def lose_power(self) -> None:
        """What was not synced is there in part, or torn, or under its name of before."""
        for path in (self.folder / "rolls").glob("open-*"):
            kept = self.rng.randint(min(self.synced.get(path, 0), path.stat().st_size), path.stat().st_size)
            data = path.read_bytes()[:kept]
            path.write_bytes(data + self.rng.randbytes(self.rng.choice([0, 3, 200])))
        for path in (self.folder / "rolls").glob("roll-*"):
            before = path.with_name(f"open-{path.name.split('-')[1]}.roll")
            if path.name not in self.named and before.name in self.named:
                path.rename(before)
                self.synced[before] = before.stat().st_size

    def check(self) -> None:
        table = shown(self.folder)
        records = sorted(table["record"].to_pylist())
        if self.limits is not None and self.limits.bytes:
            gone = contents(Target(str(self.folder / "archive")), "clicks").gone
            self.gone = sum(one.rows for each in gone.values() for one in each)
            assert len(records) == len(set(records)) == 2 * self.length - self.gone
            return
        assert records == list(range(table.num_rows))
        expected = {f"{source}/{n}" for source in (0, 1) for n in range(self.length)}
        assert Counter(table["line"].to_pylist()) == dict.fromkeys(expected, 1)
        for row in table.to_pylist():
            assert row["line"] == f"{row['source'].removeprefix('file ')}/{row['position']}"
        assert list((self.folder / "rolls").glob("*.roll")) == []


def steps_of(folder: Path, seed: int) -> int:
    with crash_at(TRACED, None) as count:
        machine = Machine(folder, random.Random(seed))
        machine.run()
    machine.check()
    return count[0]


def crash_and_go_on(machine: Machine, steps: list[int]) -> None:
    for step in steps:
        with crash_at(TRACED, step), patch("agents.tasks.archive.sync_path", machine.sync_path):
            try:
                machine.run()
            except Crash:
                pass
            else:
                return
        machine.lose_power()
    machine.run()


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_no_line_is_lost_or_doubled_wherever_a_crash_falls(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "fsync", lambda _: None)  # what the disk keeps is this test's to say
    monkeypatch.setattr(agents.tasks.archive, "BESIDE_BYTES", 64)
    monkeypatch.setattr(agents.tasks.archive, "ThreadPoolExecutor", AtOnce)
    if seed > 1:  # else all frames are of Arrow
        monkeypatch.setattr(agents.tasks.archive, "PIECE_BYTES_MIN", 100)
    steps = steps_of(tmp_path / "whole", seed)
    rng = random.Random(seed)
    for step in range(1 + seed, steps + 1, 97):
        folder = tmp_path / str(step)
        machine = Machine(folder, random.Random(seed))
        crash_and_go_on(machine, [step, *rng.sample(range(1, steps + 1), rng.choice([0, 1, 2]))])
        try:
            machine.check()
        except BaseException as failure:
            failure.add_note(f"crash before step {step} of {steps}, seed {seed}")
            raise


@pytest.mark.parametrize("limits", [Limits(), Limits(bytes=12_000)])
def test_merging_and_retention_lose_and_double_nothing_wherever_a_crash_falls(
    tmp_path: Path, limits: Limits, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "fsync", lambda _: None)
    monkeypatch.setattr(agents.tasks.archive, "ThreadPoolExecutor", AtOnce)
    monkeypatch.setattr(agents.archive.manifest, "WHOLE_EVERY", 4)
    monkeypatch.setattr(agents.archive.upkeep, "room_of", lambda _: None)
    with crash_at(TRACED, None) as count:
        machine = Machine(tmp_path / "whole", random.Random(4), limits=limits)
        machine.run()
    machine.check()
    assert (machine.gone > 0) == (limits.bytes is not None)
    rng = random.Random(4)
    for step in range(1, count[0] + 1, count[0] // 16):
        machine = Machine(tmp_path / str(step), random.Random(4), limits=limits)
        crash_and_go_on(machine, [step, *rng.sample(range(1, count[0]), rng.choice([0, 1]))])
        try:
            machine.check()
        except BaseException as failure:
            failure.add_note(f"crash before step {step} of {count[0]}")
            raise


def test_a_checkpoint_waits_for_the_disk_once_or_not_at_all(tmp_path: Path) -> None:
    archive = archive_in(tmp_path)
    archive.restore(0)
    append(archive, ["a"], [BASE_US])
    archive.sync()
    before = waits()["archive"]
    archive.sync()
    assert waits()["archive"] == before, "nothing was appended"
    append(archive, ["b"], [BASE_US])
    archive.roll()
    archive.sync()
    assert waits()["archive"] == before + 1, "the roll that is closed, whose name is there"
    archive.close()


CHILD = """
import sys
from pathlib import Path
import numpy as np, pyarrow as pa
from agents.inputs.values import Source
from agents.tasks.archive import Archive
from agents.disk.store import Store
folder = Path(sys.argv[1])
store = Store(folder / "a.db")
archive = Archive(folder / "rolls", str(folder / "archive"), stream="clicks", agent="web-1", roll_secs=1,
                  roll_bytes=20_000, facts={})
n = int(store.load_checkpoint("clicks") or b"0")
archive.restore(n)
while True:
    lines = pa.array([f"line {i}" for i in range(n, n + 250)])
    archive.append(lines, pa.array([0] * 250, pa.int64()), Source("s", "/s"), np.arange(n, n + 250))
    n += 250
    store.save_checkpoint("clicks", str(archive.sync()).encode())
    if archive.due(0):
        archive.roll()
        archive.ship(archive.sync())
    print(n, flush=True)
"""


def test_a_killed_process_goes_on_from_its_cut(tmp_path: Path) -> None:
    for lines in (5, 40):
        child = subprocess.Popen(
            [sys.executable, "-c", CHILD, str(tmp_path)], stdout=subprocess.PIPE, text=True
        )
        assert child.stdout is not None
        for _ in range(lines):
            assert child.stdout.readline()
        os.kill(child.pid, signal.SIGKILL)
        child.wait()
        child.stdout.close()
    store = Store(tmp_path / "a.db")
    checkpoint = int(store.load_checkpoint("clicks") or b"0")
    store.close()
    archive = archive_in(tmp_path)
    archive.restore(checkpoint)
    archive.ship(checkpoint)
    lines_kept = shipped(tmp_path)["line"].to_pylist()
    assert checkpoint >= 45 * 250
    assert Counter(lines_kept) == {f"line {n}": 1 for n in range(checkpoint)}


# -- what is written -----------------------------------------------------------------------------------------


def test_rows_lie_by_event_hour_and_keep_everything(tmp_path: Path) -> None:
    archive = archive_in(tmp_path)
    archive.restore(0)
    append(archive, ["a", "b"], [BASE_US - 1, None], "x", 10)
    append(archive, ["c", "d\u2028", "e"], [BASE_US, BASE_US + HOUR_US - 1, 1 << 62], "y", 20)
    archive.roll()
    paths = archive.ship(archive.sync())
    root = tmp_path / "archive" / "stream=clicks"
    folders = {str(Path(path).parent.relative_to(root)) for path in paths}
    null = "date=__HIVE_DEFAULT_PARTITION__/hour=__HIVE_DEFAULT_PARTITION__"
    expected = {"date=2025-12-31/hour=23", "date=2026-01-01/hour=00", null}
    assert folders == {f"{hour}/agent=web-1" for hour in expected}
    file = pq.ParquetFile(root / "date=2026-01-01" / "hour=00" / "agent=web-1" / Path(paths[0]).name)
    assert file.metadata.row_group(0).column(0).compression == "ZSTD"
    assert file.schema_arrow.metadata[b"elf.format"] == b"json"
    rows = file.read().to_pydict()
    assert (rows["line"], rows["source"], rows["position"]) == (["c", "d\u2028"], ["y", "y"], [20, 21])
    assert file.read()["ts"].cast(pa.int64()).to_pylist() == [BASE_US, BASE_US + HOUR_US - 1]
    assert sorted(shipped(tmp_path)["line"].to_pylist()) == ["a", "b", "c", "d\u2028", "e"]


@pytest.mark.parametrize("least", [0, 75, 1 << 20])
def test_frames_are_one_file_an_hour(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, least: int) -> None:
    """Be they pieces, rows or both, others read the same of them."""
    monkeypatch.setattr(agents.tasks.archive, "PIECE_BYTES_MIN", least)
    archive = archive_in(tmp_path)
    archive.restore(0)
    for n in range(5):
        append(archive, [f"{n} a", f"{n} b"], [BASE_US, BASE_US + n % 2 * HOUR_US], f"file {n}", 2 * n)
        archive.sync()
    archive.roll()
    paths = archive.ship(archive.sync())
    groups = [pq.ParquetFile(path).metadata.num_row_groups for path in paths]
    assert groups == {0: [5, 2], 75: [4, 1], 1 << 20: [1, 1]}[least]
    expected = [f"{n} {which}" for n in range(5) for which in "ab"]
    assert sorted(shipped(tmp_path)["line"].to_pylist()) == expected
    folder = str(tmp_path / "archive" / "stream=clicks")
    asked = "SELECT line, source, position, hour FROM read_parquet(?) ORDER BY line"
    found = duckdb.execute(asked, [f"{folder}/*/*/*/*.parquet"]).fetchall()
    hours = {line: int(line[0]) % 2 if line[2] == "b" else 0 for line in expected}
    assert found == [
        (line, f"file {line[0]}", row, f"{hours[line]:02d}") for row, line in enumerate(expected)
    ]
    assert Target(str(tmp_path / "archive")).files([folder]) == (sorted(paths), {})


def test_names_that_are_no_file_names(tmp_path: Path) -> None:
    archive = Archive(
        tmp_path / "r",
        (tmp_path / "t").as_uri(),
        stream="a/b=c",
        agent="../ü",
        roll_secs=1,
        roll_bytes=1,
        facts={},
    )
    archive.restore(0)
    append(archive, ["x"], [BASE_US])
    archive.roll()
    (path,) = archive.ship(archive.sync())
    assert "/stream=a%2Fb%3Dc/date=2026-01-01/hour=00/agent=..%2F%C3%BC/" in path
    assert ds.dataset(tmp_path / "t", partitioning="hive").to_table()["stream"].to_pylist() == ["a/b=c"]


def test_only_what_a_cut_covers_is_shipped(tmp_path: Path) -> None:
    archive = archive_in(tmp_path)
    archive.restore(0)
    append(archive, ["a", "b"], [BASE_US] * 2)
    checkpoint = archive.sync()
    append(archive, ["c"], [BASE_US])
    archive.roll()
    assert (archive.ship(checkpoint), archive.unshipped) == ([], 1)
    assert len(archive.ship(archive.sync())) == 1
    assert archive.unshipped == 0


def test_agents_that_begin_together_do_not_ship_together() -> None:
    first = [sooner_ms(60_000, "clicks", f"web-{number}") for number in range(64)]
    assert 0 <= min(first) < max(first) <= 30_000
    assert all(any(at * 3_750 <= one < (at + 1) * 3_750 for one in first) for at in range(8))
    assert sooner_ms(60_000, "clicks", "web-1") == first[1], "the same after each start"
    assert sooner_ms(5_000, "clicks", "web-1") == 0


def test_only_the_first_roll_is_shorter(tmp_path: Path) -> None:
    where = str(tmp_path / "archive")
    archive = Archive(
        tmp_path / "rolls", where, stream="s", agent="a", roll_secs=60, roll_bytes=1 << 30, facts={}
    )
    archive.restore(0)
    sooner = sooner_ms(60_000, "s", "a")
    for length in (60_000 - sooner, 60_000):
        append(archive, ["x"], [BASE_US])
        assert not archive.due(1_000)
        assert [archive.due(1_000 + length - 1), archive.due(1_000 + length)] == [False, True]
        archive.roll()
    archive.close()


def test_due_by_age_and_by_size(tmp_path: Path) -> None:
    archive = archive_in(tmp_path, roll_secs=2, roll_bytes=100)
    archive.restore(0)
    assert not archive.due(10**9)
    append(archive, ["short"], [None])
    assert [archive.due(now) for now in (5000, 6999, 7000)] == [False, False, True]
    archive.roll()
    assert not archive.due(10**9)
    append(archive, ["x" * 200], [None])
    assert archive.due(0)


def test_a_folder_that_starts_over_never_overwrites_what_was_shipped(tmp_path: Path) -> None:
    for line in ("first life", "second life"):
        archive = archive_in(tmp_path)
        archive.restore(0)
        append(archive, [line], [BASE_US])
        archive.roll()
        archive.ship(archive.sync())
    assert sorted(shipped(tmp_path)["line"].to_pylist()) == ["first life", "second life"]


def test_a_target_that_is_away_keeps_the_rolls(tmp_path: Path) -> None:
    archive = archive_in(tmp_path)
    archive.restore(0)
    (tmp_path / "archive").write_text("a file stands in the way")
    for line in ("a", "b"):
        append(archive, [line], [BASE_US])
        archive.roll()
        with pytest.raises(ArchiveError, match="archive"):
            archive.ship(archive.sync())
    (tmp_path / "archive").unlink()
    assert archive.unshipped == 2
    archive.ship(archive.sync())
    assert sorted(shipped(tmp_path)["line"].to_pylist()) == ["a", "b"]


def test_what_the_cut_names_must_be_there(tmp_path: Path) -> None:
    archive = archive_in(tmp_path)
    with pytest.raises(ElfBug, match="restored"):
        append(archive, ["a"], [None])
    archive.restore(0)
    append(archive, ["a", "b"], [None, None])
    archive.sync()
    archive.close()
    with pytest.raises(ArchiveError, match="holds 2 records, the cut says 3"):
        archive_in(tmp_path).restore(3)
    with pytest.raises(ElfBug, match="no frame ends"):
        archive_in(tmp_path).restore(1)


def test_a_failed_write_is_final_until_the_stream_starts_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = archive_in(tmp_path)
    archive.restore(0)
    append(archive, ["a"], [BASE_US])
    checkpoint = archive.sync()
    append(archive, ["b"], [BASE_US])
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: (_ for _ in ()).throw(OSError(28, "No space left on device")))
        with pytest.raises(ArchiveError, match="No space left"):
            archive.sync()
    with pytest.raises(ArchiveError, match=r"has failed: .*No space left"):
        append(archive, ["c"], [BASE_US])
    archive.restore(checkpoint)
    append(archive, ["b"], [BASE_US])
    archive.roll()
    archive.ship(archive.sync())
    assert sorted(shipped(tmp_path)["line"].to_pylist()) == ["a", "b"]


def test_what_the_disk_says_beside_the_lane_is_not_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It tells of a failure once: who asks again hears that all is well."""
    monkeypatch.setattr(agents.tasks.archive, "BESIDE_BYTES", 10)
    monkeypatch.setattr(agents.tasks.archive, "PIECE_BYTES", 100)
    archive, asked = archive_in(tmp_path), threading.Event()
    archive.restore(0)
    real = os.fsync

    def fails_once(descriptor: int) -> None:
        if asked.is_set():
            real(descriptor)
        else:
            asked.set()
            raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "fsync", fails_once)
    append(archive, ["a"], [BASE_US])
    assert not asked.is_set(), "so little waits for the cut"
    append(archive, ["more" * 50], [BASE_US])
    assert asked.wait(10)
    with pytest.raises(ArchiveError, match="Input/output error"):
        archive.sync()
    archive.restore(0)
    append(archive, ["more" * 50], [BASE_US])
    archive.roll()
    archive.ship(archive.sync())
    archive.close()
    assert shipped(tmp_path)["line"].to_pylist() == ["more" * 50]


@pytest.mark.parametrize(
    ("from_us", "to_us", "expected"),
    [
        (BASE_US, BASE_US + 1, ["2026-01-01/hour=00"]),
        (BASE_US - 1, BASE_US + HOUR_US, ["2025-12-31/hour=23", "2026-01-01/hour=00"]),
        (BASE_US, BASE_US + HOUR_US + 1, ["2026-01-01/hour=00", "2026-01-01/hour=01"]),
        (BASE_US + 2 * HOUR_US, BASE_US + 9 * HOUR_US, []),
        (-(1 << 62), 1 << 62, ["2025-12-31/hour=23", "2026-01-01/hour=00", "2026-01-01/hour=01"]),
    ],
)
def test_only_the_hours_that_a_range_needs_are_found(
    tmp_path: Path, from_us: int, to_us: int, expected: list[str]
) -> None:
    archive = archive_in(tmp_path)
    archive.restore(0)
    append(archive, list("abcd"), [BASE_US - 1, BASE_US, BASE_US + HOUR_US, None])
    archive.roll()
    archive.ship(archive.sync())
    target = Target(str(tmp_path / "archive"))
    folder = target.stream_folder("clicks")
    assert target.hours("clicks", from_us, to_us) == [f"{folder}/date={hour}" for hour in expected]
    assert target.hours("others", from_us, to_us) == []


def test_hours_are_floored_below_the_epoch_too() -> None:
    ts = pa.array([-1, 0, HOUR_US, -HOUR_US, None, -(1 << 60)], pa.timestamp("us", tz="UTC"))
    table = pa.table({"ts": ts, "row": range(6)})
    found = {hour: rows["row"].to_pylist() for hour, rows in by_hour(table)}
    assert found == {-1: [0, 3], 0: [1], 1: [2], None: [4, 5]}


@given(st.lists(st.lists(st.none() | st.integers(-2, 2).map(lambda hour: hour * HOUR_US + 7), max_size=5)))
def test_hours_hold_the_same_rows_however_they_came(batches: list[list[int | None]]) -> None:
    schema = pa.schema([("ts", pa.timestamp("us", tz="UTC")), ("row", pa.int64())])
    rows = [(ts, row) for row, ts in enumerate(ts for batch in batches for ts in batch)]
    coming = iter(rows)
    table = pa.Table.from_batches(
        [pa.record_batch(list(zip(*islice(coming, len(b)), strict=True)), schema) for b in batches if b],
        schema,
    )
    expected: dict[int | None, list[int]] = {}
    for ts, row in rows:
        expected.setdefault(None if ts is None else ts // HOUR_US, []).append(row)
    assert {hour: part["row"].to_pylist() for hour, part in by_hour(table)} == expected
    assert hour_folder(-1) == "date=1969-12-31/hour=23"
