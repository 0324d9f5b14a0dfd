"""The line that says how far long work is."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from elf.cli.progress import WIPE, Progress
from lab.generator.clicks import Clicks
from lab.generator.feed import write_finite


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr("elf.cli.progress.time.monotonic", lambda: now[0])
    return now


def test_it_is_there_after_two_seconds_and_gone_at_the_end(clock: list[float]) -> None:
    out = Screen()
    with Progress("reading", 400, str, out) as line:
        clock[0] += 1.9
        line.tell(100)
        assert out.getvalue() == ""
        clock[0] += 0.1
        line.tell(100)
        line.tell(101)  # at once: not worth a line
        assert out.getvalue() == f"{WIPE}reading  ██████░░░░░░░░░░░░░░░░░░  25%  100 of 400, 6 s left"
        clock[0] += 2
        line.tell(400)
        assert out.getvalue().endswith("████ 100%  400 of 400, 0 s left")
        line.wipe()
        line.wipe()
        line.tell(400)
    assert out.getvalue().count(WIPE) == 5
    assert out.getvalue().endswith(WIPE)


def test_where_nobody_looks_or_nobody_knows(clock: list[float]) -> None:
    piped, screen = io.StringIO(), Screen()
    for out in (piped, screen):
        with Progress("reading", None, str, out) as line:
            clock[0] += 3
            line.tell(7)
    assert (piped.getvalue(), screen.getvalue()) == ("", f"{WIPE}reading  7, 3 s{WIPE}")


def test_a_generator_tells_how_much_is_written(tmp_path: Path) -> None:
    told: list[int] = []
    with (tmp_path / "log").open("wb") as out:
        write_finite(
            Clicks(1), out, rows=70_000, start_us=0, per_second=1e3, disorder_us=0, seed=1, told=told.append
        )
    assert told[-1] == 70_000 == len((tmp_path / "log").read_bytes().splitlines())
    assert told == sorted(told)
