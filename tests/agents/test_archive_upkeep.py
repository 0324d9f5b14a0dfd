"""What is in an archive, as readers are shown it: manifests, merged files, retention, summaries."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.archive import layout
from agents.archive.contents import Contents, contents, held_by
from agents.archive.manifest import File, Manifest
from agents.archive.partitions import HOUR_US, ArchiveError, Target, unit_folder
from agents.archive.retention import DAY_US, Limits, Room, excess
from agents.archive.shelf import Shelf, wall_clock_ms
from agents.archive.summaries import bloom, blooms_of, blooms_path, may_hold
from agents.archive.upkeep import Upkeep, runs
from agents.archived import archived_streams
from agents.formats import get_format
from agents.inputs.values import Source
from agents.masks import WITHHELD
from agents.tasks.archive import Archive
from agents.tasks.indexing import LineIndex
from agents.tasks.sinks import Sinks
from elf.errors import UserError
from elf.keys import hash_keys
from elf.ql.plan import Condition

BASE_US = 1_767_225_600_000_000  # 2026-01-01T00:00:00Z
HOUR = BASE_US // HOUR_US
LIFE = "0" * 32


def archive_in(folder: Path, agent: str = "web-1", fmt: str = "json") -> Archive:
    facts = {"format": fmt, "agent_name": f"the {agent}"}
    place = str(folder / "archive")
    rolls = folder / f"rolls {agent}"
    return Archive(rolls, place, stream="clicks", agent=agent, roll_secs=9, roll_bytes=1 << 20, facts=facts)


def ship(archive: Archive, lines: list[str], ts: list[int | None]) -> list[str]:
    offsets = np.arange(len(lines), dtype=np.int64)
    archive.append(pa.array(lines, pa.string()), pa.array(ts, pa.int64()), Source("s", "/s"), offsets)
    archive.roll()
    return archive.ship(archive.sync())


def started(folder: Path, agent: str = "web-1", fmt: str = "json") -> Archive:
    archive = archive_in(folder, agent, fmt)
    archive.restore(0)
    return archive


def seen(folder: Path) -> Contents:
    return contents(Target(str(folder / "archive")), "clicks")


def lines_of(folder: Path, found: Contents) -> list[str]:
    root = folder / "archive" / "stream=clicks"
    return [line for file in found.files for line in pq.read_table(root / file.path)["line"].to_pylist()]


def upkeep(*archives: Archive, limits: Limits = Limits(free_bytes=0), grace_ms: int = 0) -> Upkeep:  # noqa: B008
    return Upkeep([one.shelf for one in archives], limits, grace_ms=grace_ms)


# -- manifests -----------------------------------------------------------------------------------------------


def test_a_manifest_says_what_is_in_each_file(tmp_path: Path) -> None:
    archive = started(tmp_path)
    ship(archive, list("abc"), [BASE_US, BASE_US + HOUR_US + 7, None])
    ship(archive, list("de"), [BASE_US + 5, BASE_US + 3])
    found = {(file.hour, file.first): file for file in seen(tmp_path).files}
    assert sorted(found, key=str) == [(HOUR, 0), (HOUR, 3), (HOUR + 1, 0), (None, 0)]
    file = found[HOUR, 3]
    assert (file.end, file.rows, file.least_us, file.greatest_us) == (5, 2, BASE_US + 3, BASE_US + 5)
    assert (file.agent, found[None, 0].least_us) == ("web-1", None)
    place = Path(archive.shelf.full(file.path))
    assert place.stat().st_size == file.bytes
    target = Target(str(tmp_path / "archive"))
    within = contents(target, "clicks", BASE_US + 4, BASE_US + HOUR_US)
    assert [(one.hour, one.first) for one in within.files] == [(HOUR, 3)]
    assert [one.first for one in held_by(target, "clicks", "web-1", from_record=3)] == [3]
    assert held_by(target, "clicks", "web-1", life="another") == []


def test_who_reads_sees_no_file_that_no_manifest_names(tmp_path: Path) -> None:
    archive = started(tmp_path)
    (path,) = ship(archive, ["a"], [BASE_US])
    beside = Path(path).with_name(f"{LIFE}-{7:020d}.parquet")
    beside.write_bytes(Path(path).read_bytes())
    assert lines_of(tmp_path, seen(tmp_path)) == ["a"]
    Path(path).write_bytes(b"half")
    assert list(seen(tmp_path).damaged.values()) == [f"it has 4 bytes and not {seen_bytes(tmp_path)}"]
    Path(path).unlink()
    assert list(seen(tmp_path).damaged.values()) == ["the manifest names it, and it is not there"]


def seen_bytes(folder: Path) -> int:
    state, _ = agents_manifest(folder)
    return next(iter(state.values())).bytes


def agents_manifest(folder: Path) -> tuple[dict[str, File], Manifest]:
    manifest = Manifest(Target(str(folder / "archive")), "clicks", "web-1")
    return manifest.state.files, manifest


def test_files_from_before_there_were_manifests_are_read_and_adopted(tmp_path: Path) -> None:
    archive = started(tmp_path)
    ship(archive, list("abc"), [BASE_US, BASE_US + HOUR_US, None])
    ship(archive, ["d"], [BASE_US])
    before = agents_manifest(tmp_path)[0]
    for path in (tmp_path / "archive" / "stream=clicks" / "_manifest").rglob("*.json"):
        path.unlink()
    (tmp_path / "archive" / "stream=clicks" / "_manifest" / "agent=web-1").rmdir()
    assert sorted(lines_of(tmp_path, seen(tmp_path))) == list("abcd")
    again = archive_in(tmp_path)
    again.restore(4)
    again.shelf.look()
    after = agents_manifest(tmp_path)[0]

    def told(files: dict[str, File]) -> dict[str, tuple[int, int, int, int | None]]:
        return {path: (one.first, one.end, one.rows, one.least_us) for path, one in files.items()}

    assert told(after) == told(before)
    ship(again, ["e"], [BASE_US])
    assert sorted(lines_of(tmp_path, seen(tmp_path))) == list("abcde")


def test_many_segments_are_few_files_and_mean_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agents.archive.manifest.WHOLE_EVERY", 5)
    archive = started(tmp_path)
    for n in range(23):
        ship(archive, [f"{n}"], [BASE_US])
    assert sorted(map(int, lines_of(tmp_path, seen(tmp_path)))) == list(range(23))
    folder = tmp_path / "archive" / "stream=clicks" / "_manifest" / "agent=web-1"
    names = sorted(path.name for path in folder.iterdir())
    assert len(names) <= 2 + 5 + 5
    segment = folder / names[-1]
    kept = segment.read_bytes()
    segment.write_bytes(json.dumps({**json.loads(kept), "version": 9}).encode())
    with pytest.raises(ArchiveError, match=r"is of version 9, from a newer release .*: update elf here"):
        seen(tmp_path)
    segment.write_bytes(kept[:-3])
    with pytest.raises(ArchiveError, match="is damaged"):
        seen(tmp_path)
    segment.write_bytes(kept)
    (folder / names[-2]).unlink()
    with pytest.raises(ArchiveError, match="segment 22 is missing"):
        seen(tmp_path)


def test_two_that_write_one_manifest_are_told(tmp_path: Path) -> None:
    one, other = started(tmp_path), started(tmp_path)
    ship(one, ["a"], [BASE_US])
    other.shelf.look()
    ship(one, ["b"], [BASE_US])
    with pytest.raises(ArchiveError, match="another agent writes under the name of web-1"):
        ship(other, ["c"], [BASE_US])
    assert sorted(lines_of(tmp_path, seen(tmp_path))) == ["a", "b"]


def test_an_archive_that_somebody_has_deleted_begins_anew(tmp_path: Path) -> None:
    archive = started(tmp_path)
    ship(archive, ["a"], [BASE_US])
    shutil.rmtree(tmp_path / "archive")
    ship(archive, ["b"], [BASE_US])
    assert lines_of(tmp_path, seen(tmp_path)) == ["b"]


def test_an_archive_that_is_off_loses_nothing_of_what_waits(tmp_path: Path) -> None:
    archive = started(tmp_path)
    archive.append(pa.array(["a"]), pa.array([BASE_US]), Source("s", "/s"), np.zeros(1, np.int64))
    position = archive.sync()
    archive.close()
    off = Sinks()
    off.restore(position, 0)
    assert (off.sync(), off.unshipped, off.shelf) == ((position, 0), 0, None)
    again = archive_in(tmp_path)
    again.restore(position)
    ship(again, ["b"], [BASE_US])
    assert sorted(lines_of(tmp_path, seen(tmp_path))) == ["a", "b"]


# -- merging -------------------------------------------------------------------------------------------------


def test_small_files_become_one_with_the_same_rows(tmp_path: Path) -> None:
    archive, other = started(tmp_path), started(tmp_path, "web-2")
    for n in range(6):
        ship(archive, [f"{n} {k}" for k in range(40)], [BASE_US + n % 2 * HOUR_US + k for k in range(40)])
        ship(other, [f"other {n}"], [BASE_US])
    before = seen(tmp_path)
    upkeep(archive, other, grace_ms=60_000).run()
    after = seen(tmp_path)
    assert (len(before.files), len(after.files)) == (12, 3)
    assert sorted(lines_of(tmp_path, after)) == sorted(lines_of(tmp_path, before)), "which are still there"
    merged = after.files[0]
    assert (merged.first, merged.end, merged.rows) == (0, 200, 120)
    assert (merged.least_us, merged.greatest_us) == (BASE_US, BASE_US + 39)
    records = pq.read_table(archive.shelf.full(merged.path))["record"].to_pylist()
    assert records == [*range(40), *range(80, 120), *range(160, 200)]
    upkeep(archive, other, grace_ms=-10).run()
    assert lines_of(tmp_path, seen(tmp_path)) == lines_of(tmp_path, after)
    assert len(list((tmp_path / "archive").rglob("*.parquet"))) == 3
    upkeep(archive, other).run()
    assert seen(tmp_path).files == after.files, "nothing is done twice"


def test_what_is_masked_stays_so(tmp_path: Path) -> None:
    archive = started(tmp_path)
    for _ in range(3):
        ship(archive, [WITHHELD], [BASE_US])
    upkeep(archive, grace_ms=-10).run()
    (file,) = seen(tmp_path).files
    assert set(pq.read_table(archive.shelf.full(file.path))["line"].to_pylist()) == {WITHHELD}


def test_files_that_say_different_things_stay_apart(tmp_path: Path) -> None:
    ship(started(tmp_path), ["a"], [BASE_US])
    archive = archive_in(tmp_path, fmt="combined")
    archive.restore(1)
    ship(archive, ["b"], [BASE_US])
    upkeep(archive).run()
    assert len(seen(tmp_path).files) == 2


def test_an_hour_that_goes_on_and_a_file_that_is_large_are_left(tmp_path: Path) -> None:
    hour = wall_clock_ms() * 1000 // HOUR_US
    archive = started(tmp_path)
    for _ in range(3):
        ship(archive, ["a"], [hour * HOUR_US])
    upkeep(archive).run()
    assert len(seen(tmp_path).files) == 3

    def file(first: int, size: int) -> File:
        path = f"{unit_folder(HOUR, 'a')}/{LIFE}-{first:020d}.parquet"
        return File(path=path, life=LIFE, first=first, end=first + 1, rows=1, bytes=size)

    now_us = BASE_US + 2 * HOUR_US
    large = [file(0, 200 << 20), file(1, 10), file(2, 10), file(3, 300 << 20), file(4, 5)]
    assert [[one.first for one in run] for run in runs(large, now_us, indexed=False)] == [[1, 2]]
    late = [file(0, 100 << 20), *(file(n, 10) for n in range(1, 15))]
    assert list(runs(late, now_us, indexed=False)) == []
    assert len(next(runs([*late, file(15, 10)], now_us, indexed=False))) == 16


def test_a_merge_gives_way_to_a_recluster(tmp_path: Path) -> None:
    archive = started(tmp_path)
    for _ in range(4):
        ship(archive, ["a"], [BASE_US])
    target = archive.shelf.target
    layout.hold(target, "clicks", "x", layout.Hold(by="c_ip", host="h", pid=1, since_ms=wall_clock_ms()))
    upkeep(archive).run()
    assert len(seen(tmp_path).files) == 4
    layout.let_go(target, "clicks", "x")
    # It has ended between a look at its layout and one at its hold: its layout counts.
    files = seen(tmp_path).files
    replaced = {file.path: wall_clock_ms() for file in files[:2]}
    layout.commit(target, "clicks", layout.Layout(number=1, replaced=replaced))
    assert archive.shelf.merge(files) is None
    assert len(seen(tmp_path).files) == 2
    archive.shelf.look()
    assert len(archive.shelf.files()) == 2


# -- retention -----------------------------------------------------------------------------------------------


def test_the_oldest_go_and_are_counted_and_named(tmp_path: Path) -> None:
    archive, other = started(tmp_path), started(tmp_path, "web-2")
    for n in range(5):
        ship(archive, ["a", "b"], [BASE_US + n * HOUR_US] * 2)
    ship(other, ["c"], [BASE_US + 3 * HOUR_US])
    now_ms = BASE_US // 1000 + 24 * 3_600_000 + 2 * 3_600_000 + 1
    shelves = [archive.shelf, other.shelf]
    keeping = Upkeep(shelves, Limits(days=1, free_bytes=0), grace_ms=3_600_000, now_ms=lambda: now_ms)
    (told,) = keeping.run()
    assert (told.stream, told.why, told.files, told.rows) == ("clicks", "days", 2, 4)
    assert (told.from_hour, told.to_hour) == (HOUR, HOUR + 1)
    after = seen(tmp_path)
    assert after.lacking() == ["the web-1 has deleted 4 rows of 2026-01-01 00:00 to 02:00"]
    assert len(list((tmp_path / "archive").rglob("*.parquet"))) == 6, "who has begun to read them can go on"
    assert (
        contents(archive.shelf.target, "clicks", BASE_US + 2 * HOUR_US, BASE_US + 9 * HOUR_US).lacking() == []
    )
    said = "; retention: the web-1 has deleted 2 rows of 2026-01-01 00:00 to 01:00; it has 2026"
    with pytest.raises(UserError, match=said):
        archived_streams([archive.shelf.target], ["clicks"], (BASE_US, BASE_US + HOUR_US), {})
    held = archive.shelf.held()
    assert (held.files, held.rows, held.gone_rows, held.gone_hour) == (3, 6, 4, HOUR + 1)
    size = sum(file.bytes for file in after.files)
    (told,) = Upkeep(shelves, Limits(bytes=size // 2, free_bytes=0), grace_ms=-10).run()
    assert (told.why, told.from_hour) == ("bytes", HOUR + 2)
    left = seen(tmp_path).files
    assert sum(file.bytes for file in left) <= size // 2
    assert min(file.hour or 0 for file in left) >= HOUR + 3


def test_room_for_others_comes_first(tmp_path: Path) -> None:
    archive = started(tmp_path)
    paths = [path for n in range(4) for path in ship(archive, ["a"], [BASE_US + n * HOUR_US])]
    size = Path(paths[0]).stat().st_size

    def room(_: Shelf) -> Room:
        left = sum(Path(path).exists() for path in paths)
        return Room(free=1_000 + (4 - left) * size, disk=1 << 40)

    keeping = Upkeep([archive.shelf], Limits(free_bytes=1_000 + 2 * size - 1), grace_ms=3_600_000, room=room)
    (told,) = keeping.run()
    assert (told.why, told.files) == ("room", 2)
    assert [Path(path).exists() for path in paths] == [False, False, True, True], "at once"
    assert keeping.run() == []
    assert Limits().floor(10 << 30) == 1 << 30
    assert Limits().floor(100 << 30) == 5 << 30


def test_what_was_shipped_is_not_shipped_again_though_it_is_gone(tmp_path: Path) -> None:
    """A crash between the entry and the end of the roll, after which the file went."""
    archive = started(tmp_path)
    archive.append(pa.array(["a"]), pa.array([BASE_US]), Source("s", "/s"), np.zeros(1, np.int64))
    archive.roll()
    (roll,) = (tmp_path / "rolls web-1").glob("roll-*")
    kept = roll.read_bytes()
    archive.ship(archive.sync())
    roll.write_bytes(kept)
    Upkeep([archive.shelf], Limits(bytes=1), grace_ms=-10).run()
    again = archive_in(tmp_path)
    again.restore(1)
    assert (again.unshipped, again.ship(1)) == (1, [])
    found = seen(tmp_path)
    assert (found.files, sum(one.rows for one in found.gone["web-1"])) == ((), 1)


@given(
    st.lists(st.tuples(st.integers(0, 50), st.integers(1, 100)), max_size=12),
    st.none() | st.integers(1, 600),
    st.none() | st.floats(0.1, 2),
    st.integers(0, 300),
)
def test_no_file_goes_before_an_older_one_or_needlessly(
    drawn: list[tuple[int, int]], most: int | None, days: float | None, free: int
) -> None:
    files = [
        File(path=f"{unit_folder(HOUR + h, 'a')}/{n}", life=LIFE, first=n, end=n + 1, rows=1, bytes=size)
        for n, (h, size) in enumerate(drawn)
    ]
    now_us, limits = BASE_US + 50 * HOUR_US, Limits(days=days, bytes=most, free_bytes=200)
    going = [file for _, file, _ in excess([("", f) for f in files], limits, now_us, Room(free, 1 << 40))]
    left = [file for file in files if file not in going]
    for file in left:
        assert all((gone.hour or 0) <= (file.hour or 0) for gone in going)
        assert days is None or (file.hour or 0) + 1 >= (now_us - days * DAY_US) / HOUR_US
    size = sum(file.bytes for file in left)
    assert most is None or size <= most
    assert free + sum(file.bytes for file in going) >= 200 or not left
    if going:
        last = going[-1]
        needed = (most is not None and size + last.bytes > most) or (
            free + sum(file.bytes for file in going) - last.bytes < 200
        )
        assert needed or (last.hour or 0) + 1 < (now_us - (days or 1e9) * DAY_US) / HOUR_US


def combined_line(ip: str, status: int) -> str:
    return f'{ip} - - [01/Jan/2026:00:00:00 +0000] "GET /a HTTP/1.1" {status} 5 "-" "-"'


# -- columns -------------------------------------------------------------------------------------------------


def where(op: str, name: str, *values: object, kind: str = "text") -> Condition:
    constants = tuple(Condition("constant", value=value, kind=kind) for value in values)  # type: ignore[arg-type]
    return Condition(op, (Condition("column", name=name), *constants))


def test_files_that_cannot_hold_a_row_are_passed_over(tmp_path: Path) -> None:
    archive = started(tmp_path, fmt="combined")
    for hour in range(3):
        for part in range(2):
            lines = [combined_line(ip=f"10.{hour}.{part}.{n}", status=200 + hour) for n in range(50)]
            ship(archive, lines, [BASE_US + hour * HOUR_US] * 50)
    ship(archive, [combined_line(ip="10.9.9.9", status=404)], [wall_clock_ms() * 1000])
    names = ("c_ip", "sc_status", "no_such")
    index = LineIndex(get_format("combined"), None, names, {})
    Upkeep([archive.shelf], Limits(free_bytes=0), grace_ms=-10, indexing={"clicks": index}).run()
    types = {"c_ip": "text", "sc_status": "bigint"}
    target = archive.shelf.target

    def hours(*conditions: Condition) -> list[int]:
        return [
            (file.hour or 0) - HOUR
            for file in seen(tmp_path).files
            if may_hold(file, conditions, types, lambda: blooms_of(target, archive.shelf.full(file.path)))  # type: ignore[arg-type]  # noqa: B023
        ][:-1]

    assert hours() == [0, 1, 2], "the last one has no summary yet, and is always read"
    assert hours(where("=", "c_ip", "10.1.1.7")) == [1]
    assert hours(where("=", "c_ip", "10.1.1.77")) == [], "it is within the bounds: the filter tells"
    assert hours(where("in", "c_ip", "10.0.0.1", "10.2.0.1")) == [0, 2]
    assert hours(where(">=", "sc_status", 201, kind="bigint")) == [1, 2]
    assert hours(where("<", "sc_status", 201, kind="bigint")) == [0]
    assert hours(where("=", "sc_status", 201, kind="double")) == [0, 1, 2], "of another type"
    either = Condition("or", (where("=", "c_ip", "10.1.1.7"), where(">", "sc_status", 201, kind="bigint")))
    assert hours(either) == [1, 2]
    assert hours(Condition("not", (where("=", "c_ip", "10.1.1.7"),))) == [0, 1, 2]
    merged = seen(tmp_path).files[0]
    Path(blooms_path(archive.shelf.full(merged.path))).unlink()
    assert hours(where("=", "c_ip", "10.0.0.77")) == [0], "without its filter it may hold it"


@settings(max_examples=20)
@given(st.sets(st.integers(-(1 << 60), 1 << 60), max_size=300))
def test_a_bloom_filter_has_all_of_its_values_and_few_others(values: set[int]) -> None:
    made = bloom("bigint", hash_keys([pa.array(sorted(values), pa.int64())]))
    assert all(made.may_hold(value) for value in values)
    others = [value for value in range(400) if value not in values]
    assert sum(made.may_hold(value) for value in others) < 40
