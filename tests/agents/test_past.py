"""What an agent has archived, read again by position: each row once, in rolls and in files at the target."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from agents.tasks.archive import Archive, ArchiveError
from agents.tasks.archived import OwnArchive
from agents.tasks.partitions import HOUR_US
from agents.tasks.past import Roll
from tests.support.archived import append, archive_in

BASE_US = 1_767_225_600_000_000  # 2026-01-01T00:00:00Z
MINUTE_US = 60_000_000


def filled(folder: Path, rolls: int, rows: int = 20) -> Archive:
    """An archive whose rolls have rows of half an hour each, some of them an hour old."""
    archive = archive_in(folder)
    archive.restore(0)
    for roll in range(rolls):
        ts = [BASE_US + (30 * roll + n) * MINUTE_US - HOUR_US * (n % 5 == 4) for n in range(rows)]
        append(archive, [f"{roll}.{n}" for n in range(rows)], list(ts), at=100 * roll)
        archive.sync()
        archive.roll()
    return archive


def lines(own: OwnArchive, rolls: tuple[Roll, ...], since_us: int, rows_max: int = 3) -> Counter[str]:
    """All lines of these rolls, a few at a time."""
    found = Counter[str]()
    for roll in rolls:
        done, over = 0, False
        while not over:
            records, passed, over = own.read(roll.start, done, rows_max, since_us)
            assert 0 < passed <= rows_max or over
            done += passed
            for one in records:
                assert (one.log, len(one.lines)) == ("/s", len(one.offsets))
                found.update(one.lines.to_pylist())
    return found


@pytest.mark.parametrize("shipped", [0, 3, 6])
def test_each_row_since_a_moment_is_read_once_wherever_its_roll_lies(tmp_path: Path, shipped: int) -> None:
    archive = filled(tmp_path, 6)
    archive.ship(20 * shipped)
    own = OwnArchive(archive)
    end = own.close_roll()
    since_us = BASE_US + HOUR_US
    survey = own.survey(0, end, since_us)
    wanted = Counter(
        f"{roll}.{n}" for roll in range(6) for n in range(20) if 30 * roll + n - 60 * (n % 5 == 4) >= 60
    )
    assert lines(own, survey.rolls, since_us) == wanted
    assert survey.holes == ()
    assert (survey.covers_us or since_us) < since_us
    assert all(roll.first_us >= since_us for roll in survey.rolls)
    archive.close()


def test_rows_are_counted_alike_before_and_after_their_roll_is_shipped(tmp_path: Path) -> None:
    archive = filled(tmp_path, 2)
    own = OwnArchive(archive)
    own.survey(0, own.close_roll(), BASE_US - HOUR_US)
    before, passed, _ = own.read(20, 0, 7, BASE_US - HOUR_US)
    archive.ship(40)
    fresh = OwnArchive(archive)
    after, _, over = fresh.read(20, passed, 100, BASE_US - HOUR_US)
    assert over
    found = Counter(line for one in (*before, *after) for line in one.lines.to_pylist())
    assert found == Counter(f"1.{n}" for n in range(20))
    archive.close()


def test_what_is_gone_is_found_by_counting(tmp_path: Path) -> None:
    archive = filled(tmp_path, 6)
    archive.ship(120)
    files = sorted((tmp_path / "archive").rglob("*.parquet"), key=lambda path: path.name)
    of_second = [path for path in files if path.stem.endswith(f"{20:020d}")]
    of_second[0].unlink()  # one of its hours
    own = OwnArchive(archive)
    survey = own.survey(0, 120, BASE_US - HOUR_US)
    (hole,) = survey.holes
    assert hole[0] <= BASE_US + 49 * MINUTE_US
    assert survey.covers_us == hole[1] + 1
    for path in files:
        if path.stem.endswith((f"{0:020d}", f"{20:020d}")):
            path.unlink(missing_ok=True)
    later = OwnArchive(archive).survey(0, 120, BASE_US - HOUR_US)
    assert later.rolls[0].start == 40
    assert later.covers_us == later.holes[-1][1] + 1
    for archived, why in ((own, "cannot be read"), (OwnArchive(archive), "in the archive no more")):
        with pytest.raises(ArchiveError, match=why):
            archived.read(0, 0, 10, BASE_US - HOUR_US)
    archive.close()


def test_an_archive_of_nothing_covers_nothing(tmp_path: Path) -> None:
    archive = archive_in(tmp_path)
    archive.restore(0)
    own = OwnArchive(archive)
    assert own.survey(0, own.close_roll(), BASE_US) == ((), None, ())
    archive.close()
