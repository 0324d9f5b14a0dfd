"""The log of an agent in a file."""

from __future__ import annotations

import json
import logging
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog

from agents import logs
from agents.disk import modes
from elf.errors import UserError


@pytest.fixture(autouse=True)
def quiet_after() -> Iterator[None]:
    """Logging is the process's: put it back."""
    root = logging.getLogger()
    handlers, level = root.handlers, root.level
    yield
    for handler in root.handlers:
        handler.close()
    root.handlers, root.level = handlers, level
    structlog.reset_defaults()


def logged(path: Path, bytes_max: int = 0, files_max: int = 2) -> logs.Logger:
    logs.configure("info", "json", file=logs.LogFile(str(path), bytes_max, files_max), agent="web-1")
    log: logs.Logger = logs.get_logger("agents.driver")
    return log


def events(path: Path) -> list[str]:
    return [json.loads(line)["event"] for line in path.read_text().splitlines()]


def test_it_is_closed_at_its_size_and_the_oldest_go(tmp_path: Path) -> None:
    path = tmp_path / "agent.log"
    log = logged(path, bytes_max=400, files_max=3)
    for number in range(30):
        log.info(f"event {number}")
    files = sorted(tmp_path.iterdir())
    assert [one.name for one in files] == ["agent.log", "agent.log.1", "agent.log.2"]
    assert all(one.stat().st_size <= 400 for one in files)
    kept = [event for one in (*files[:0:-1], path) for event in events(one)]
    assert kept == [f"event {number}" for number in range(30 - len(kept), 30)]


def test_what_logrotate_renames_is_let_go(tmp_path: Path) -> None:
    path = tmp_path / "agent.log"
    log = logged(path)
    log.info("one")
    path.rename(tmp_path / "old")
    log.info("two")
    (tmp_path / "old").unlink()
    path.unlink()
    log.info("three")
    assert events(path) == ["three"]


def test_another_configuration_closes_the_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = logged(tmp_path / "one")
    (before,) = logging.getLogger().handlers
    logged(tmp_path / "two")
    assert isinstance(before, logs.LogFile)
    assert before.stream is None
    log.info("here")
    assert events(tmp_path / "two") == ["here"]
    assert json.loads((tmp_path / "two").read_text())["agent"] == "web-1"
    assert capsys.readouterr().err == ""


def test_what_it_does_not_take_goes_to_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    log = logged(Path("/dev/full"))
    log.info("no room")
    assert json.loads(capsys.readouterr().err)["event"] == "no room"
    logging.getLogger().handlers[0].stream = None  # type: ignore[attr-defined]  # what is buffered has no place


def test_a_file_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"log\.path: .*/none/agent\.log cannot be written: no such file"):
        logs.LogFile(f"{tmp_path}/none/agent.log", 0, 2)
    before = os.umask(0o022)
    try:
        modes.close()  # as an agent does before
        logged(tmp_path / "own").info("x")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "own").stat().st_mode) == 0o600
