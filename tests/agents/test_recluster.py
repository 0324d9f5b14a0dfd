"""A recluster: the old layout or the new one, whole, wherever it ends; what is shipped meanwhile counts."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import agents.archive
import agents.recluster
from agents.archive import layout as layouts
from agents.archive.contents import contents
from agents.archive.manifest import File
from agents.archive.partitions import HOUR_US, ArchiveError, Target
from agents.archive.retention import Limits
from agents.archive.shelf import wall_clock_ms
from agents.archive.summaries import blooms_of, may_hold
from agents.archive.upkeep import Upkeep
from agents.inputs.values import Source
from agents.recluster import GRACE_MS, recluster
from agents.tasks.archive import Archive
from agents.tasks.ownarchive import OwnArchive
from elf.errors import UserError
from elf.ql.plan import Condition
from tests.support.crashing import Crash, crash_at

TRACED = {agents.recluster.__file__, *map(str, Path(agents.archive.__file__).parent.glob("*.py"))}
BASE_US = 1_767_225_600_000_000  # 2026-01-01T00:00:00Z


def line(n: int) -> str:
    address = f"10.0.{n % 7}.{n % 50}"
    return f'{address} - - [01/Jan/2026:00:00:00 +0000] "GET /{n} HTTP/1.1" 200 5 "-" "-"'


def started(folder: Path, agent: str = "web-1") -> Archive:
    archive = Archive(
        folder / f"rolls {agent}",
        str(folder / "archive"),
        stream="access",
        agent=agent,
        roll_secs=9,
        roll_bytes=1 << 20,
        facts={"format": "combined", "agent_name": agent},
    )
    archive.restore(0)
    return archive


def ship(archive: Archive, numbers: range, hour: int = 0) -> None:
    lines = [line(n) for n in numbers]
    times = pa.array([BASE_US + hour * HOUR_US + n for n in numbers], pa.int64())
    archive.append(pa.array(lines), times, Source("s", "/s"), np.array(numbers, np.int64))
    archive.roll()
    archive.ship(archive.sync())


def shown(folder: Path) -> tuple[list[str], tuple[File, ...]]:
    """The lines that readers are shown, and the files."""
    target = Target(str(folder / "archive"))
    found = contents(target, "access")
    assert not found.damaged
    root = target.stream_folder("access")
    tables = [pq.ParquetFile(f"{root}/{file.path}").read(["line"]) for file in found.files]
    return [text for table in tables for text in table["line"].to_pylist()], found.files


def lines_of(archive: Archive, file: File) -> list[str]:
    lines: list[str] = pq.ParquetFile(archive.shelf.full(file.path)).read(["line"])["line"].to_pylist()
    return lines


def sort(folder: Path, by: str = "c_ip") -> agents.recluster.Report:
    return recluster(str(folder / "archive"), "access", by)


def test_rows_are_sorted_and_files_that_cannot_have_one_are_passed_over(tmp_path: Path) -> None:
    archive, other = started(tmp_path), started(tmp_path, "web-2")
    for n in range(3):
        ship(archive, range(100 * n, 100 * n + 100), hour=n % 2)
    ship(other, range(1_000, 1_020))
    before, _ = shown(tmp_path)
    report = sort(tmp_path)
    assert (report.number, report.files, report.replaced, report.rows, report.left) == (1, 3, 4, 320, 0)
    lines, files = shown(tmp_path)
    assert sorted(lines) == sorted(before)
    target = archive.shelf.target
    for file in files:
        table = pq.ParquetFile(archive.shelf.full(file.path)).read()
        addresses = [text.split()[0] for text in table["line"].to_pylist()]
        assert table["by_c_ip"].to_pylist() == addresses == sorted(addresses)
        assert (file.by, file.columns["c_ip"].least) == ("c_ip", addresses[0])
        assert table.schema.metadata[b"elf.format"] == b"combined"

    def wanted(address: str) -> int:
        parts = (Condition("column", name="c_ip"), Condition("constant", value=address, kind="text"))
        where = [Condition("=", parts)]
        return sum(
            may_hold(one, where, {"c_ip": "text"}, lambda: blooms_of(target, archive.shelf.full(one.path)))  # noqa: B023
            for one in files
        )

    had = [{text.split()[0] for text in lines_of(archive, file)} for file in files]
    for address in ("10.0.0.0", "10.0.1.1", "10.0.3.24", "10.0.3.77", "10.0.3.7x", "9.9.9.9"):
        assert wanted(address) == sum(address in one for one in had), address
    assert sort(tmp_path).files == 0, "nothing is done twice"
    ship(archive, range(400, 420), hour=1)
    assert (sort(tmp_path).files, shown(tmp_path)[1][-1].rows) == (1, 120)
    again = sort(tmp_path, "cs_uri_stem")
    assert (again.number, again.files) == (3, 3)
    assert sorted(shown(tmp_path)[0]) == sorted([*before, *(line(n) for n in range(400, 420))])


def test_what_is_shipped_and_merged_and_deleted_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At each phase an agent does what it does; each row is shown once, or gone."""
    archive = started(tmp_path)
    for n in range(6):
        ship(archive, range(20 * n, 20 * n + 20), hour=n % 2)
    keeping = Upkeep([archive.shelf], Limits(free_bytes=0), grace_ms=3_600_000)
    said: list[str] = []

    def meanwhile(text: str) -> None:
        said.append(text)
        if len(said) == 1:
            ship(archive, range(500, 520))
            keeping.run()  # merges nothing: there is a hold
            first = next(file for file in archive.shelf.files() if file.hour == BASE_US // HOUR_US)
            archive.shelf.let_go([first], at_once=False)

    report = recluster(str(tmp_path / "archive"), "access", "c_ip", tell=meanwhile)
    assert len(said) == report.rounds == 2
    assert (report.files, report.left) == (2, 3), "an hour of which a source is gone is as it was"
    lines, files = shown(tmp_path)
    expected = [line(n) for n in [*range(20, 120), *range(500, 520)]]
    assert sorted(lines) == sorted(expected)
    assert archive.shelf.held().gone_rows == 20
    keeping.run()
    keeping.run()
    assert sorted(shown(tmp_path)[0]) == sorted(expected), "the agent goes by the layout"
    assert not {file.path for file in archive.shelf.files()} - {file.path for file in shown(tmp_path)[1]}
    size = sum(file.bytes for file in files) // 2
    Upkeep([archive.shelf], Limits(bytes=size, free_bytes=0), grace_ms=-10).run()
    held = archive.shelf.held()
    assert (held.rows, held.gone_rows) == (len(shown(tmp_path)[0]), 140 - held.rows)


def test_two_at_a_time_and_what_is_not_there_are_refused(tmp_path: Path) -> None:
    archive = started(tmp_path)
    ship(archive, range(10))
    with pytest.raises(UserError, match="no stream clicks in the archive"):
        recluster(str(tmp_path / "archive"), "clicks", "c_ip")
    with pytest.raises(UserError, match=r"has no column ip; it has ts, c_ip, "):
        sort(tmp_path, "ip")
    target = archive.shelf.target
    assert layouts.holds(target, "access") == {}
    elsewhere = layouts.Hold(by="c_ip", host="another", pid=1, since_ms=wall_clock_ms())
    layouts.hold(target, "access", "x", elsewhere)
    with pytest.raises(UserError, match=r"by process 1 of another: wait for it; if it is gone .*x\.json"):
        sort(tmp_path)
    assert list(layouts.holds(target, "access")) == ["x"]
    assert shown(tmp_path)[0] == [line(n) for n in range(10)]


def test_a_crash_leaves_the_old_layout_or_the_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "fsync", lambda _: None)
    monkeypatch.setattr(layouts, "let_go", let_go := LetGo())
    monkeypatch.setattr(layouts, "is_dead", lambda hold, now_ms: True)

    def archive_in(folder: Path) -> Path:
        archive = started(folder)
        for n in range(4):
            ship(archive, range(20 * n, 20 * n + 20), hour=n % 2)
        archive.close()
        return folder

    with crash_at(TRACED, None) as count:
        sort(archive_in(tmp_path / "whole"))
    expected = sorted(line(n) for n in range(80))
    layouts_seen = set()
    for step in range(1, count[0] + 1, max(1, count[0] // 40)):
        folder = archive_in(tmp_path / str(step))
        with crash_at(TRACED, step):
            let_go.works = False  # it is dead
            try:
                sort(folder)
            except Crash:
                pass
            finally:
                let_go.works = True
        lines, files = shown(folder)
        assert sorted(lines) == expected, step
        layouts_seen.add(tuple(file.by for file in files))
        sort(folder)
        lines, files = shown(folder)
        assert sorted(lines) == expected, step
        assert [file.by for file in files] == ["c_ip"] * 2
        there = list((folder / "archive").rglob("*-by-*.parquet"))
        assert len(there) == 2, "what lay about is deleted"
    assert layouts_seen == {("", "", "", ""), ("c_ip", "c_ip")}


def test_a_file_of_several_runs_each_sorted_by_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Memory is bounded, however large a file is: its row groups are sorted some at a time."""
    archive = started(tmp_path)
    for n in range(3):
        ship(archive, range(100 * n, 100 * n + 100))
    files = sorted(archive.shelf.files(), key=lambda one: one.first)
    assert archive.shelf.merge(files) is not None
    monkeypatch.setattr(agents.recluster, "RUN_BYTES", 1)
    assert sort(tmp_path).files == 1
    lines, (file,) = shown(tmp_path)
    assert sorted(lines) == sorted(line(n) for n in range(300))
    read = pq.ParquetFile(archive.shelf.full(file.path), page_checksum_verification=True)
    runs = [read.read_row_group(n)["by_c_ip"].to_pylist() for n in range(read.num_row_groups)]
    assert [len(run) for run in runs] == [100] * 3
    assert all(run == sorted(run) for run in runs)
    assert (file.rows, file.columns["c_ip"].least) == (300, "10.0.0.0")


def test_files_without_the_column_have_parts_of_their_own(tmp_path: Path) -> None:
    archive = started(tmp_path)
    ship(archive, range(50))
    other = Archive(
        tmp_path / "rolls web-3",
        str(tmp_path / "archive"),
        stream="access",
        agent="web-3",
        roll_secs=9,
        roll_bytes=1 << 20,
        facts={"format": "json", "agent_name": "web-3"},
    )
    other.restore(0)
    times = pa.array([BASE_US, BASE_US + 1], pa.int64())
    other.append(pa.array(['{"a": 2}', '{"a": 1}']), times, Source("s", "/s"), np.arange(2, dtype=np.int64))
    other.roll()
    (path,) = other.ship(other.sync())
    report = sort(tmp_path)
    assert (report.files, report.rows, report.without) == (2, 52, [path])
    lines, files = shown(tmp_path)
    assert sorted(lines) == sorted([*(line(n) for n in range(50)), '{"a": 2}', '{"a": 1}'])
    plain = next(file for file in files if file.agent == "web-3")
    assert lines_of(other, plain) == ['{"a": 2}', '{"a": 1}']
    assert (plain.by, plain.columns) == ("c_ip", {})
    assert sort(tmp_path).files == 0
    other.close()


def test_a_recluster_that_died_stops_no_merging_for_good(tmp_path: Path) -> None:
    archive = started(tmp_path)
    for n in range(3):
        ship(archive, range(10 * n, 10 * n + 10))
    target, keeping = archive.shelf.target, Upkeep([archive.shelf], Limits(free_bytes=0), grace_ms=0)
    now_ms, nobody = wall_clock_ms(), (1 << 22) + 1
    away = layouts.Hold(by="c_ip", host="another", pid=1, since_ms=0, seen_ms=now_ms)
    layouts.hold(target, "access", "away", away)
    keeping.run()
    assert len(archive.shelf.files()) == 3, "it may be at work, on another machine"
    silent = msgspec.structs.replace(away, seen_ms=now_ms - layouts.SILENT_MS - 60_000)
    layouts.hold(target, "access", "away", silent)
    here = layouts.Hold(by="c_ip", host="", pid=nobody, since_ms=now_ms, place=layouts.here())
    layouts.hold(target, "access", "here", here)
    keeping.run()
    assert len(archive.shelf.files()) == 1
    assert layouts.holds(target, "access") == {}


def test_what_retention_lets_go_while_a_layout_comes_is_counted_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At each moment of a commit retention tries. What it counts is what is not shown any more."""
    commit, hold = layouts.commit, layouts.hold

    def with_retention(folder: Path, when: str) -> Archive:
        archive = started(folder)
        for n in range(2):
            ship(archive, range(20 * n, 20 * n + 20))

        def let_go() -> None:
            first = min(archive.shelf.files(), key=lambda one: one.first)
            said.append(archive.shelf.let_go([first], at_once=False))

        def committed(*args: object) -> None:
            if when == "before the layout":
                let_go()
            commit(*args)  # type: ignore[arg-type]
            if when == "after the layout":
                let_go()

        def held(target: Target, stream: str, uid: str, by: layouts.Hold) -> None:
            if when == "before the hold says so" and by.is_committing:
                let_go()
            hold(target, stream, uid, by)

        monkeypatch.setattr(layouts, "commit", committed)
        monkeypatch.setattr(layouts, "hold", held)
        sort(folder)
        return archive

    for when, works in (
        ("before the hold says so", True),
        ("before the layout", False),
        ("after the layout", False),
    ):
        said: list[bool] = []
        archive = with_retention(tmp_path / when, when)
        assert said == [works], when
        archive.shelf.look()
        held = archive.shelf.held()
        assert (held.rows, held.gone_rows) == ((20, 20) if works else (40, 0)), when
        assert len(shown(tmp_path / when)[0]) == held.rows
        assert archive.shelf.let_go(archive.shelf.files(), at_once=False)
        assert archive.shelf.held().gone_rows == 40


def test_who_may_read_the_archive_may_read_what_is_sorted(tmp_path: Path) -> None:
    ship(started(tmp_path), range(10))
    root = tmp_path / "archive" / "stream=access"
    root.chmod(0o750)
    sort(tmp_path)
    written = [path for path in root.rglob("*") if "-by-" in path.name or "layout" in str(path)]
    modes = {path.name: path.stat().st_mode & 0o777 for path in written}
    assert set(modes.values()) == {0o640, 0o750}, modes


def test_an_agent_that_was_away_sees_each_row_once(tmp_path: Path) -> None:
    """Its manifest still names what the layout stands for, until it looks at that."""
    archive = started(tmp_path)
    ship(archive, range(20))
    archive.close()
    sort(tmp_path)
    back = started(tmp_path)
    assert [(file.by, file.rows) for file in back.shelf.files()] == [("c_ip", 20)]
    back.close()


def test_who_has_not_looked_for_an_hour_waits_and_reads_all_after_the_next_look(tmp_path: Path) -> None:
    """The second recluster deletes what the first has replaced. An agent looks each ten seconds."""
    archive, now_ms = started(tmp_path), wall_clock_ms()
    ship(archive, range(20))
    own, path = OwnArchive(archive), str(tmp_path / "archive")
    own.survey(0, 20, 0)
    recluster(path, "access", "c_ip")
    assert own.survey(0, 20, 0).rolls, "they stay for who has begun to read them"
    ship(archive, range(20, 40))
    recluster(path, "access", "c_ip", now_ms=lambda: now_ms + 2 * GRACE_MS)
    with pytest.raises(ArchiveError, match="cannot read"):
        own.survey(0, 40, 0)
    Upkeep([archive.shelf], Limits(free_bytes=0), grace_ms=GRACE_MS).run()
    found = own.survey(0, 40, 0)
    rows = [row for roll in found.rolls for load in roll.parts for row in load()["record"].to_pylist()]
    assert (sorted(rows), found.gone) == (list(range(40)), 0)
    archive.close()


class LetGo:
    """A process that is dead does not clean up."""

    works = True

    def __call__(self, target: Target, stream: str, uid: str) -> None:
        if self.works:
            target.remove(layouts.hold_path(target, stream, uid))


CHILD = """
import sys, time
from agents.recluster import recluster
def tell(text):
    print(text, flush=True)
    time.sleep(60)
recluster(sys.argv[1], "access", "c_ip", tell=tell)
"""


def test_one_that_was_killed_is_in_nobodys_way(tmp_path: Path) -> None:
    ship(started(tmp_path), range(30))
    where = str(tmp_path / "archive")
    child = subprocess.Popen([sys.executable, "-c", CHILD, where], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    assert child.stdout.readline() == "round 1: 1 files, 30 rows\n"
    with pytest.raises(UserError, match=rf"is being sorted by c_ip since .* by process {child.pid} "):
        sort(tmp_path)
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    child.stdout.close()
    assert sort(tmp_path).number == 1
