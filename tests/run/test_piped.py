"""``elf run --input -`` while somebody writes: windows as they close, at the end what a file gives."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from queue import Queue

import pytest

from tests.support.waiting import wait_until

ELF = [sys.executable, "-m", "elf.cli.main", "run", "--input"]
SUMS = "SELECT k, COUNT(*) AS n FROM log GROUP BY k WINDOWING 10 SECONDS"
PATIENCE_S = 60


def lines(first: int, last: int) -> str:
    return "".join(f'{{"ts":{1_700_000_000 + at},"k":"{"ab"[at % 2]}"}}\n' for at in range(first, last))


class Running:
    """A command whose output is read as it comes."""

    def __init__(self, *args: str) -> None:
        self.process = subprocess.Popen(
            [*ELF, *args], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self.said: Queue[str] = Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.said.put(line)

    def write(self, text: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(text)
        self.process.stdin.flush()

    def next(self) -> str:
        return self.said.get(timeout=PATIENCE_S)

    def end(self) -> tuple[int, str, str]:
        """(status, what of the output was not read yet, stderr)."""
        assert self.process.stdin is not None
        assert self.process.stderr is not None
        self.process.stdin.close()
        status = self.process.wait(PATIENCE_S)
        self._reader.join(PATIENCE_S)
        rest = "".join(self.said.get_nowait() for _ in range(self.said.qsize()))
        return status, rest, self.process.stderr.read()


@pytest.fixture
def asked() -> Iterator[list[Running]]:
    found: list[Running] = []
    yield found
    for one in found:
        one.process.kill()
        one.process.wait()


def of_a_file(path: Path, text: str, sql: str) -> str:
    path.write_text(text)
    return subprocess.run(
        [*ELF, str(path), "--output", "json", "-q", sql], capture_output=True, text=True, check=True
    ).stdout


def test_windows_come_as_they_close_and_are_those_of_a_file(tmp_path: Path, asked: list[Running]) -> None:
    """Also with several agents, of which one has the pipe. A line is written in two pieces."""
    asked.append(run := Running("-", "--agents", "2", "--output", "json", "-q", SUMS))
    text = lines(0, 95)
    run.write(text[:1000] + text[1000:1010])
    run.write(text[1010:])
    first = [run.next() for _ in range(16)]  # before the end of the input
    run.write(lines(95, 130))
    second = [run.next() for _ in range(8)]
    status, rest, err = run.end()
    assert (status, err) == (0, "")
    assert "".join([*first, *second, rest]) == of_a_file(tmp_path / "a.json", text + lines(95, 130), SUMS)
    assert rest


def test_late_rows_are_those_of_a_file_with_that_lateness_and_named(
    tmp_path: Path, asked: list[Running]
) -> None:
    asked.append(run := Running("-", "--output", "json", "-q", SUMS))
    text = lines(0, 50) + lines(3, 5) + lines(50, 60)
    run.write(text)
    first = run.next()
    status, rest, err = run.end()
    assert status == 0
    assert "2 of 62 lines are in no window: they came later than LATENESS allows" in err
    assert first + rest == of_a_file(tmp_path / "a.json", text, f"{SUMS} LATENESS 2 SECONDS")


def test_what_comes_at_once_is_a_file(tmp_path: Path) -> None:
    """And so is a regular file at standard input, and a query with one result."""
    text = lines(0, 50) + lines(3, 5) + lines(50, 60)
    wanted = of_a_file(tmp_path / "a.json", text, SUMS)
    command = [*ELF, "-", "--output", "json", "-q"]
    for sql, answer in ((SUMS, wanted), ("SELECT COUNT(*) AS n FROM log", '{"n":62}\n')):
        found = subprocess.run([*command, sql], input=text, capture_output=True, text=True, check=True)
        assert (found.stdout, found.stderr) == (answer, "")
    with (tmp_path / "a.json").open() as file:
        found = subprocess.run([*command, SUMS], stdin=file, capture_output=True, text=True, check=True)
    assert (found.stdout, found.stderr) == (wanted, "")


def test_interrupted_it_says_what_there_is(asked: list[Running]) -> None:
    for sql, first in ((SUMS, 2), ("SELECT COUNT(*) AS n FROM log", 0)):
        asked.append(run := Running("-", "--output", "json", "-q", sql))
        run.write(lines(0, 15))
        before = [run.next() for _ in range(first)]
        if not before:
            _wait_until_read(run)
        os.kill(run.process.pid, signal.SIGINT)
        run.process.wait(PATIENCE_S)
        status, rest, err = run.end()
        counts = [json.loads(line)["n"] for line in [*before, *rest.splitlines()]]
        assert (status, sum(counts)) == (130, 15)
        assert err == "elf: interrupted: standard input was read up to here\n"


def _wait_until_read(run: Running) -> None:
    """Nothing is left in the pipe."""
    import array
    import fcntl
    import termios
    import time

    assert run.process.stdin is not None
    left = array.array("i", [1])

    def empty() -> bool:
        assert run.process.stdin is not None
        fcntl.ioctl(run.process.stdin.fileno(), termios.FIONREAD, left)
        return left[0] == 0

    wait_until(empty, "all is read", PATIENCE_S)
    time.sleep(0.2)  # what was read is worked on: nobody outside sees the end of that
