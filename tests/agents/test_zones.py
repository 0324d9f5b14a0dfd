"""Times of clocks: what a line says that names no zone, against Python's own reading of it."""

from __future__ import annotations

import datetime as dt
import json
import random
import zoneinfo
from pathlib import Path

import pyarrow as pa
import pytest

from agents.formats import get_format
from agents.formats.zones import offsets
from agents.loading import load
from agents.settings.tree import ConfigProblems
from agents.tasks.extracting import Extractor
from agents.tasks.samples import says_its_zone
from agents.validation import validate
from elf.errors import ConfigError
from elf.job.ports import Wanted
from elf.schema import Column
from tests.support.files import written
from tests.support.run_command import elf_run

ZONES = ("Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Pacific/Apia", "UTC")


def read(format_: str, lines: list[str], event_time: str = "time") -> list[int | None]:
    extractor = Extractor(get_format(format_), event_time, Wanted())
    found: list[int | None] = extractor.extract(pa.array(lines)).table["_ts"].to_pylist()
    extractor.close()
    return found


def micros(moment: dt.datetime) -> int:
    return (moment - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) // dt.timedelta(microseconds=1)


@pytest.mark.parametrize("name", ZONES)
def test_clocks_show_what_python_says(name: str) -> None:
    """Anywhere in 130 years, and around each change of the clocks."""
    zone, rng = zoneinfo.ZoneInfo(name), random.Random(name)
    first = dt.datetime(1970, 1, 3)
    shown = [first + dt.timedelta(seconds=rng.randrange(129 * 365 * 86_400)) for _ in range(2_000)]
    for change, _ in rng.sample(offsets(name)[1:], min(40, len(offsets(name)) - 1)):
        at = dt.datetime(1970, 1, 1) + dt.timedelta(microseconds=change)
        shown += [at + dt.timedelta(minutes=minutes) for minutes in range(-180, 200, 15)]
    found = read(f"zone:{name} csv:time,path", [f"{one:%Y-%m-%d %H:%M:%S},/" for one in shown])
    for one, us in zip(shown, found, strict=True):
        assert us == micros(one.replace(tzinfo=zone).astimezone(dt.UTC)), one


def test_what_says_its_zone_means_that() -> None:
    said = ["2026-07-01T12:00:00Z", "2026-07-01 12:00:00 +0200", "1782907200", "01/Jul/2026:12:00:00 +0000"]
    said += ["2026-07-01 12:00 UTC", "2026-07-01t12:00:00.5z", "never", "2026-02-31 12:00:00"]
    lines = [f"{one},/" for one in said]
    assert read("zone:Asia/Tokyo csv:time,path", lines) == read("csv:time,path", lines)
    clocks = ["2026-07-01", "2026-07-01T12:00", "2026-07-01 12:00:00,25"]
    there, here = (
        read(f"{zone}csv:time,path", [f'"{one}",/' for one in clocks]) for zone in ("zone:Asia/Tokyo ", "")
    )
    hours = [(one - other) / 3_600e6 for one, other in zip(here, there, strict=True) if one and other]
    assert hours == [9, 9, 9]


def test_columns_are_times_of_the_same_clocks() -> None:
    extractor = Extractor(
        get_format("zone:America/New_York csv:time,until"), "time", Wanted((Column("until", "timestamp"),))
    )
    found = extractor.extract(pa.array(["2026-11-01 01:30:00,2026-03-08 02:30:00"])).table
    extractor.close()
    assert found["_ts"].to_pylist() == [micros(dt.datetime(2026, 11, 1, 5, 30, tzinfo=dt.UTC))]
    assert found["until"].to_pylist() == [dt.datetime(2026, 3, 8, 7, 30)]


@pytest.mark.parametrize(
    ("format_", "line"),
    [
        ("nginx_error", "2026/07/01 12:00:00 [error] 1#1: x"),
        ("apache_error", "[Wed Jul 01 12:00:00.5 2026] [core:error] [pid 1:tid 2] x"),
        ("syslog", "2026-07-01T12:00:00 web-1 app: x"),
        ("w3c:date time cs-method", "2026-07-01 12:00:00 GET"),
        ("logfmt", "ts=2026-07-01T12:00:00 a=1"),
        ("json", '{"ts": "2026-07-01 12:00:00"}'),
        ("traefik", '{"StartUTC": "2026-07-01 12:00:00"}'),
        ("regex:(?<ts>.*)", "2026-07-01 12:00:00"),
    ],
)
def test_every_format_reads_clocks(format_: str, line: str) -> None:
    for zone, hour in (("zone:Europe/Berlin ", 10), ("", 12)):
        (us,) = read(zone + format_, [line], "ts")
        assert us is not None
        assert dt.datetime.fromtimestamp(us // 1_000_000, dt.UTC).hour == hour
    assert not says_its_zone(get_format(format_), [line], "ts")


def test_access_logs_say_their_zone() -> None:
    line = '192.0.2.1 - - [10/Oct/2026:13:55:36 +0200] "GET / HTTP/1.1" 200 1 "-" "-"'
    assert read("zone:Asia/Tokyo combined", [line], "ts") == read("combined", [line], "ts")
    assert says_its_zone(get_format("combined"), [line])


@pytest.mark.parametrize("name", ["Europe/Berlim", "", "../etc/passwd", "Europe/", "CET-1CEST", "+02:00"])
def test_other_names_are_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="time zone"):
        get_format(f"zone:{name} json")
    if name:
        with pytest.raises(ConfigProblems, match=r"streams\.web\.timezone is wrong: .*time zone"):
            load(
                written(tmp_path, f"streams: {{web: {{format: json, include: /x, timezone: '{name}'}}}}"), {}
            )


def test_a_format_in_the_settings_has_no_zone_in_front(tmp_path: Path) -> None:
    text = "streams: {web: {format: 'zone:UTC json', include: /x}}"
    with pytest.raises(ConfigProblems, match="set timezone beside it"):
        load(written(tmp_path, text), {})
    text = "streams: {web: {format: json, include: /x, timezone: Asia/Tokyo}}"
    assert load(written(tmp_path, text), {}).streams["web"].zoned_format == "zone:Asia/Tokyo json"


def test_validate_asks_for_the_zone_where_clocks_are_not_in_utc(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "error.log"
    log.write_text("[Wed Jul 01 12:00:00.5 2026] [core:error] [pid 1:tid 2] x\n" * 3)
    stream = f"format: apache_error, include: {log}"

    def notes(more: str = "") -> list[str]:
        text = f"data_dir: {tmp_path}/data\nstreams: {{web: {{{stream}{more}}}}}"
        config = load(written(tmp_path, text), {})
        return [note for note in validate(config).notes if "timezone" in note]

    assert not notes()
    monkeypatch.setattr("agents.validation._zone_here", lambda: "Europe/Berlin")
    (note,) = notes()
    assert note == (
        "streams.web.timezone: times of apache_error have no zone, and are read as UTC; clocks of this "
        "machine show Europe/Berlin: set it, or UTC"
    )
    assert not notes(", timezone: Europe/Berlin")


def test_elf_run_takes_a_zone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "log.csv"
    log.write_text("time,path\n2026-03-29 01:30:00,/\n2026-03-29 03:30:00,/\n")
    sql = "SELECT COUNT(*) AS n FROM log WINDOWING 1 HOUR"
    status, out, _ = elf_run(
        capsys, "--input", str(log), "--timezone", "Europe/Berlin", "--output", "json", "-q", sql
    )
    rows = [json.loads(line) for line in out.splitlines()]
    assert [(row["window_start"], row["n"]) for row in rows] == [
        ("2026-03-29T00:00:00.000Z", 1),
        ("2026-03-29T01:00:00.000Z", 1),
    ]
    assert status == 0
    status, _, err = elf_run(capsys, "--input", str(log), "--timezone", "Europe/Berlim", "-q", sql)
    assert status == 78
    assert "there is no time zone Europe/Berlim here" in err
