"""Runs that are submitted at times: on a clock that the tests move."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

pytest.importorskip("croniter", reason="it comes with elf-stream[spark]")

from elf.cli import offline_queue
from elf.cli.main import app
from elf.errors import UserError
from spark_backend.queue import schedules as module
from spark_backend.queue.cron import MOMENTS_MAX, Cron
from spark_backend.queue.schedules import Asked, Schedule, Scheduler, Schedules
from spark_backend.queue.store import Spec, Store
from tests.support.offline import BASE_US, clicks, store_clicks

HOUR = 3_600_000
MIDNIGHT = int(datetime(2026, 3, 28, tzinfo=UTC).timestamp() * 1_000)
THREE = MIDNIGHT + 3 * HOUR
NIGHTLY = Schedule(
    "nightly", "ada", "0 3 * * *", "UTC", Asked("SELECT 1", ("/a",), "yesterday"), "/out/%d.csv", True,
    600_000, HOUR,
)  # fmt: skip


class Clock:
    """A queue with a scheduler; ``specified`` has what it asked for, and when."""

    def __init__(self, folder: Path) -> None:
        self.store = Store(folder, create=True)
        self.schedules = Schedules(self.store)
        self.said: list[str] = []
        self.specified: list[tuple[Asked, int]] = []
        self.wrong = ""
        self.scheduler = Scheduler(self.store, self._specify, self.said.append)

    def _specify(self, asked: Asked, at_ms: int) -> Spec:
        self.specified.append((asked, at_ms))
        if self.wrong:
            raise UserError(self.wrong)
        return Spec(asked.text, asked.archives)

    def names(self) -> list[str]:
        return [run.name for run in self.store.runs()]

    def missed(self) -> list[int]:
        return [one.at_ms for one in self.schedules.missed("nightly")]


@pytest.fixture
def clock(tmp_path: Path) -> Clock:
    made = Clock(tmp_path / "queue")
    made.schedules.add(NIGHTLY, MIDNIGHT)
    return made


def test_a_moment_is_served_once_as_a_run_of_its_own(clock: Clock) -> None:
    clock.scheduler.tick(THREE - 1)
    assert clock.names() == []
    for later in (0, 1, 60_000):
        clock.scheduler.tick(THREE + later)
    [run] = clock.store.runs()
    assert (run.name, run.owner, run.production) == ("nightly-20260328T0300", "ada", True)
    assert (run.out, run.schedule) == ("/out/28.csv", "nightly")
    assert (run.submitted_ms, run.deadline_ms) == (THREE, THREE + 600_000)
    assert clock.specified == [(NIGHTLY.asked, THREE)]  # what "yesterday" is told from
    assert clock.schedules.named("nightly").next_ms == THREE + 24 * HOUR
    assert not clock.said


def test_what_passed_while_nobody_served_is_named_and_the_last_is_served_if_it_is_not_too_late(
    clock: Clock,
) -> None:
    days = [THREE + day * 24 * HOUR for day in range(4)]
    clock.scheduler.tick(days[3] + HOUR)
    assert clock.names() == ["nightly-20260331T0300"]
    assert clock.missed() == days[:3]
    assert clock.said == ["nightly has missed 2026-03-30T03:00Z and 2 before: nobody served the queue then"]
    clock.store.update(1, state="done")
    clock.scheduler.tick(days[3] + 25 * HOUR + 1)
    assert clock.names() == ["nightly-20260331T0300"]
    assert clock.missed() == [*days[:3], days[3] + 24 * HOUR]
    assert clock.schedules.named("nightly").missed == 4
    assert "for 3600 s" in clock.said[-1]


def test_a_moment_at_which_the_run_before_is_not_over_is_missed(clock: Clock) -> None:
    clock.scheduler.tick(THREE)
    clock.scheduler.tick(THREE + 24 * HOUR)
    assert clock.missed() == [THREE + 24 * HOUR]
    assert "nightly-20260328T0300 was not over" in clock.said[0]
    clock.store.update(1, state="failed")
    clock.scheduler.tick(THREE + 48 * HOUR)
    assert clock.names() == ["nightly-20260328T0300", "nightly-20260330T0300"]


def test_a_query_that_cannot_be_planned_any_more_is_a_run_that_has_failed(clock: Clock) -> None:
    clock.wrong = "nothing is archived at /a"
    clock.scheduler.tick(THREE)
    [run] = clock.store.runs()
    assert (run.state, run.why, run.over) == ("failed", clock.wrong, True)
    assert clock.said == [f"{run.name} has failed: {clock.wrong}"]


def test_killed_between_two_moments_of_the_work_a_moment_is_served_once(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Schedules, "pass_on", gone)
        with pytest.raises(KeyboardInterrupt):
            clock.scheduler.tick(THREE)
    assert clock.names() == []  # the run goes with the moment, or not at all
    clock.scheduler.tick(THREE + 1)
    assert clock.names() == ["nightly-20260328T0300"]


def test_a_full_queue_is_a_reason(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spark_backend.queue.store.RUNS_MAX", 0)
    clock.scheduler.tick(THREE)
    assert clock.missed() == [THREE]
    assert "0 runs are in the queue" in clock.said[0]


def test_runs_that_are_over_and_moments_that_were_missed_are_forgotten_in_their_order(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "KEPT_MAX", 2)
    monkeypatch.setattr(module, "MISSED_MAX", 3)
    for day in range(5):
        clock.scheduler.tick(THREE + day * 24 * HOUR)
        [*_, last] = clock.store.runs()
        clock.store.update(last.number, state="done")
    assert clock.names() == [f"nightly-2026{day}T0300" for day in ("0330", "0331", "0401")]
    clock.scheduler.tick(THREE + 20 * 24 * HOUR)
    assert len(clock.missed()) == 3
    assert clock.schedules.named("nightly").missed == 15


def test_clocks_that_change() -> None:
    """On 2026-03-29 in Berlin the clocks go from 2:00 to 3:00."""
    berlin = Cron("0 4 * * *", "Europe/Berlin")
    before = berlin.next_after(MIDNIGHT - 24 * HOUR)
    after = berlin.next_after(before + 24 * HOUR)
    assert before == MIDNIGHT - 21 * HOUR  # 3:00 in UTC, on the 27th
    assert berlin.between(before, after) == [before + 24 * HOUR, before + 47 * HOUR]
    assert len(Cron("* * * * *", "UTC").between(0, 100 * 24 * HOUR)) == MOMENTS_MAX
    assert Cron("@daily", "UTC").next_after(MIDNIGHT) == MIDNIGHT + 24 * HOUR


@pytest.mark.parametrize(
    ("cron", "zone", "why"),
    [
        ("61 * * * *", "UTC", "'61 \\* \\* \\* \\*' is no cron expression"),
        ("* * * *", "UTC", "minute, hour, day of the month"),
        ("* * * * * *", "UTC", "minute, hour, day of the month"),
        ("@never", "UTC", "is no cron expression"),
        ("", "UTC", "is no cron expression"),
        ("0 0 30 2 *", "UTC", "never comes"),
        ("0 0 * * *", "Mars/Olympus", "--zone Mars/Olympus: there is no such time zone"),
        ("0 0 * * *", "../etc/passwd", "there is no such time zone"),
    ],
)
def test_what_is_no_time(clock: Clock, cron: str, zone: str, why: str) -> None:
    with pytest.raises(UserError, match=why):
        clock.schedules.add(replace(NIGHTLY, name="x", cron=cron, zone=zone), MIDNIGHT)


def test_a_name_is_taken_once_and_replaced_by_its_owner(clock: Clock) -> None:
    with pytest.raises(UserError, match="--replace takes its place"):
        clock.schedules.add(NIGHTLY, MIDNIGHT)
    with pytest.raises(UserError, match="is the schedule of ada"):
        clock.schedules.add(replace(NIGHTLY, owner="bob"), MIDNIGHT, instead=True)
    clock.schedules.pass_on(NIGHTLY, THREE, [module.Missed(THREE, "nobody served the queue then")])
    clock.schedules.add(replace(NIGHTLY, cron="0 5 * * *"), MIDNIGHT, instead=True)
    assert clock.schedules.named("nightly").next_ms == MIDNIGHT + 5 * HOUR
    assert clock.missed() == []


def test_a_schedule_whose_zone_is_not_here_waits_and_is_named_once(clock: Clock) -> None:
    clock.schedules.add(replace(NIGHTLY, name="early", cron="0 1 * * *"), MIDNIGHT)
    with clock.store.writing() as con:
        con.execute("UPDATE schedules SET zone = 'Mars/Olympus' WHERE name = 'early'")
    for later in range(2):
        clock.scheduler.tick(THREE + later)
    assert clock.names() == ["nightly-20260328T0300"]
    [line] = clock.said
    assert line.startswith("schedule early waits: --zone Mars/Olympus")
    with clock.store.writing() as con:
        con.execute("UPDATE schedules SET zone = 'UTC' WHERE name = 'early'")
    clock.scheduler.tick(THREE + 2)
    assert "early has missed" in clock.said[-1]


def test_the_last_run_of_a_schedule_alone_is_remembered(clock: Clock) -> None:
    clock.scheduler.tick(THREE)
    clock.store.update(1, state="failed")
    clock.scheduler.tick(THREE + 24 * HOUR)
    for number, judged in ((2, b"later"), (1, b"before")):
        clock.schedules.remember("nightly", number, judged)
    assert clock.schedules.judged("nightly") == b"later"


def call(*args: str) -> int:
    return int(app(["offline", *args], standalone_mode=False) or 0)


def test_by_hand(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store_clicks(tmp_path / "archive", clicks(40, 1))
    queue = ("--queue", str(tmp_path / "queue"))
    text = ("-q", "SELECT COUNT(*) AS n FROM clicks", "--archive", str(tmp_path / "archive"))
    out = ("--out", str(tmp_path / "n-%Y.csv"))
    with pytest.raises(UserError, match="no cron expression"):
        call("schedule", "nightly", "soon", *text, *out, *queue)
    with pytest.raises(UserError, match='unknown column "nothing"'):
        call(
            "schedule",
            "nightly",
            "@daily",
            "-q",
            "SELECT SUM(nothing) AS n FROM clicks",
            *text[2:],
            *out,
            *queue,
        )
    with pytest.raises(UserError, match="--windows and --follow go with --compare"):
        call("schedule", "nightly", "@daily", *text, *out, *queue, "--follow")
    with pytest.raises(UserError, match="leave out -q"):
        call("schedule", "nightly", "@daily", "--compare", "busy", *text, *out, *queue)
    assert not (tmp_path / "queue").exists()
    assert call("schedule", "nightly", "@daily", *text, *out, *queue, "--from", "yesterday") == 0
    check = ("--compare", "busy", "--follow", *out, *queue, "--creator", "bob")
    assert call("schedule", "check", "*/5 * * * *", *check) == 0
    assert "nightly begins at" in capsys.readouterr().err
    store = Store(tmp_path / "queue")
    schedules = Schedules(store)
    schedules.pass_on(
        schedules.named("nightly"), 10**13, [module.Missed(THREE, "nobody served the queue then")]
    )
    assert call("schedules", *queue) == 0
    shown = capsys.readouterr().out
    assert "nightly has missed 2026-03-28T03:00Z: nobody served the queue then" in shown
    assert "compare busy" in " ".join(shown.split())
    assert call("schedules", *queue, "--json") == 0
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [one["schedule"] for one in found] == ["check", "nightly"]
    assert found[1]["missed_moments"] == [{"at": THREE / 1e3, "why": "nobody served the queue then"}]
    then = BASE_US // 1_000 + 27 * HOUR  # on the next day
    spec = offline_queue.specified(schedules.named("nightly").asked, then)
    assert spec.span is not None
    assert spec.span[0] == BASE_US - BASE_US % (24 * HOUR * 1_000)
    assert call("unschedule", "nightly", *queue) == 0
    with pytest.raises(UserError, match="there is no schedule nightly"):
        call("unschedule", "nightly", *queue)


def test_a_queue_of_before_schedules_is_taken_over(tmp_path: Path) -> None:
    store = Store(tmp_path, create=True)
    with store.writing() as con:
        for column in ("schedule", "said", "asked_said"):
            con.execute(f"ALTER TABLE runs DROP COLUMN {column}")
        for table in ("schedules", "missed", "settings"):
            con.execute(f"DROP TABLE {table}")
        con.execute(
            "INSERT INTO runs (name, owner, spec, out, production, submitted_ms) VALUES "
            "('old', 'ada', x'', '/n.csv', 1, 5)"
        )
        con.execute("PRAGMA user_version=1")
    store.close()
    again = Store(tmp_path)
    assert again.run("old").schedule == ""
    assert Schedules(again).all() == []
