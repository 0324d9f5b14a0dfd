"""What an agent has archived, read again by position: each row once, in rolls and in files at the target."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from agents.archive.partitions import HOUR_US, ArchiveError
from agents.tasks.archive import Archive
from agents.tasks.ownarchive import OwnArchive
from agents.tasks.past import NothingArchived, Pasts, Survey
from elf.job.commands import Feed, Install
from elf.job.past import Past
from elf.job.spec import Flow
from elf.job.worker.stream import StreamWorker, WorkerSettings
from lab.chaos.engine import Chunk, PyEngine, Source, plan
from lab.chaos.jobs import since
from lab.chaos.past import PastArchive
from lab.chaos.task import Log
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


def lines(survey: Survey, since_us: int) -> Counter[str]:
    """The wanted lines of all rolls of a survey."""
    found = Counter[str]()
    for roll in survey.rolls:
        for load in roll.parts:
            for row in load().to_pylist():
                if roll.start <= row["record"] < roll.end and row["ts"].timestamp() * 1e6 >= since_us:
                    found[row["line"]] += 1
    return found


@pytest.mark.parametrize("shipped", [0, 3, 6])
def test_each_row_since_a_moment_is_found_once_wherever_its_roll_lies(tmp_path: Path, shipped: int) -> None:
    archive = filled(tmp_path, 6)
    archive.ship(20 * shipped)
    own = OwnArchive(archive)
    since_us = BASE_US + HOUR_US
    survey = own.survey(0, own.close_roll(), since_us)
    wanted = Counter(
        f"{roll}.{n}" for roll in range(6) for n in range(20) if 30 * roll + n - 60 * (n % 5 == 4) >= 60
    )
    assert lines(survey, since_us) == wanted
    assert survey.gone == 0
    assert (survey.covers_us or since_us) < since_us
    assert all(roll.first_us >= since_us for roll in survey.rolls)
    archive.close()


def test_a_place_in_the_archive_stays_when_rolls_are_shipped_and_files_merged(tmp_path: Path) -> None:
    """What is found from a position on is the same rows in the same order, whatever became of the files."""
    archive = filled(tmp_path, 6)
    own, since_us = OwnArchive(archive), BASE_US - HOUR_US
    end = own.close_roll()

    def rest(start: int) -> list[int]:
        rolls = own.survey(start, end, since_us).rolls
        rows = (row for roll in rolls for load in roll.parts for row in load()["record"].to_pylist())
        return sorted({row for row in rows if row >= start})

    before = {start: rest(start) for start in (0, 7, 20, 33, 119)}
    assert before[0] == list(range(120))
    archive.ship(60)
    assert {start: rest(start) for start in before} == before
    archive.ship(120)
    files = [file for file in archive.shelf.files() if file.hour == BASE_US // HOUR_US]
    assert archive.shelf.merge(sorted(files, key=lambda file: file.first)) is not None
    archive.shelf.sweep(1 << 60)
    assert {start: rest(start) for start in before} == before
    archive.close()


def test_what_retention_has_deleted_is_not_covered(tmp_path: Path) -> None:
    archive = filled(tmp_path, 6)
    archive.ship(120)
    own, since_us = OwnArchive(archive), BASE_US - HOUR_US
    rolls = own.survey(0, 120, since_us).rolls
    hour = BASE_US // HOUR_US
    old = [file for file in archive.shelf.files() if file.hour is not None and file.hour <= hour]
    archive.shelf.let_go(old, at_once=True)
    archive.shelf.sweep(1 << 60)
    later = own.survey(0, 120, since_us)
    assert later.gone == sum(file.rows for file in old)
    assert later.covers_us == later.gone_to_us == BASE_US + HOUR_US
    with pytest.raises(ArchiveError, match="cannot"):
        rolls[0].parts[0]()
    assert own.survey(0, 120, BASE_US + HOUR_US).gone == 0
    archive.close()


def test_rolls_of_an_earlier_format_are_not_read_and_a_flow_under_way_has_a_gap(tmp_path: Path) -> None:
    """An earlier life of the agent has left them, shipped or not; what it read of them is its own."""
    first = filled(tmp_path, 3)
    first.ship(20)
    first.close()
    archive = archive_in(tmp_path, fmt="csv:n")
    archive.restore(60)
    append(archive, ["new"], [BASE_US + 3 * HOUR_US], at=900)
    archive.sync()
    own, since_us = OwnArchive(archive), BASE_US - HOUR_US
    survey = own.survey(0, own.close_roll(), since_us)
    assert lines(survey, since_us) == Counter(["new"])
    last_us = BASE_US + (30 * 2 + 18) * MINUTE_US
    assert survey.closed_to_us == survey.covers_us == last_us + 1
    assert own.survey(60, 61, since_us).closed_to_us is None
    worker = StreamWorker("clicks", WorkerSettings(future_us=None, name="web-1"), PyEngine())
    chunk = Chunk(Source("log"), 0, 1, pa.array([f"{last_us},a"]), np.arange(1))
    worker.handle(Feed(chunk, BASE_US // 1_000))
    flow = Flow("1" * 24, since(plan(2), since_us).fragment, b"t" * 16, "here")
    under_way = Past(7, 20, 1 << 40, since_us // (2 * 1_000_000))
    begun = Install(flow, covers_us=since_us, past=under_way)
    worker.handle(begun)
    pasts = Pasts(worker, own)
    ask = pasts.ask()
    assert ask is not None
    found = ask()
    assert found.holes == ((since_us, last_us),)
    assert sum(len(one.lines) for one in found.records) == 1
    archive.close()


def test_an_archive_of_nothing_covers_nothing(tmp_path: Path) -> None:
    archive = archive_in(tmp_path)
    archive.restore(0)
    own = OwnArchive(archive)
    assert own.survey(0, own.close_roll(), BASE_US) == ((), None, 0, None, None)
    archive.close()


def test_an_archive_that_begins_anew_is_a_gap_and_new_lines_go_on() -> None:
    """The data folder has lost its rolls, or archiving is off now: what a flow has not read is gone."""
    log = Log([(BASE_US + n * 1_000_000, "a") for n in range(40)])
    worker = StreamWorker("clicks", WorkerSettings(future_us=None, name="web-1"), PyEngine())
    chunk = Chunk(Source("log"), 0, 40, pa.array([f"{ts},a" for ts, _ in log.rows]), np.arange(40))
    worker.handle(Feed(chunk, BASE_US // 1_000))
    flow = Flow("1" * 24, since(plan(2), BASE_US).fragment, b"t" * 16, "here")
    pasts = Pasts(worker, PastArchive(log, lambda: 40), rows_max=10)
    begun = pasts.begin(Install(flow))
    assert begun is not None
    worker.handle(pasts.installing(begun()))
    for _ in range(2):
        ask = pasts.ask()
        assert ask is not None
        replay = pasts.take(ask(), BASE_US // 1_000)
        assert replay is not None
        worker.handle(replay)
    past = worker.states()[flow.uid].past
    assert past is not None
    assert past.position == 20
    anew = Pasts(worker, NothingArchived())
    ask = anew.ask()
    assert ask is not None
    replay = anew.take(ask(), BASE_US // 1_000 + 60_000)
    assert replay is not None
    assert (replay.past, replay.records) == (None, ())
    ((from_us, to_us),) = replay.holes
    assert BASE_US <= from_us <= BASE_US + 20_000_000 < to_us
    worker.handle(replay)
    state = worker.states()[flow.uid]
    assert (state.past, state.applied) == (None, {"log": 40})
    assert [gap.source for _, _, gap in state.counters._gaps] == ["archive"]
