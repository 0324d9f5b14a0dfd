"""What is said of an event loop that stands still: who does what."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable

import pytest

from agents.watchdog import TOLD_MAX, watched

SOON = 60.0
Line = tuple[str, dict[str, object]]


class Log:
    """Of a logger what is asked of it."""

    def __init__(self) -> None:
        self.lines: list[Line] = []

    def warning(self, event: str, **facts: object) -> None:
        self.lines.append((event, facts))


def stand_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SOON
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.01)


def spin_until(over: threading.Event) -> None:
    while not over.is_set():
        pass


def test_who_holds_the_loop_up_is_named_and_who_takes_the_cpu() -> None:
    log, over = Log(), threading.Event()
    spinner = threading.Thread(target=spin_until, args=(over,), name="spinner")

    async def live() -> None:
        with watched(asyncio.get_running_loop(), log, look_secs=0.2):  # type: ignore[arg-type]
            spinner.start()
            stand_until(lambda: len(log.lines) >= TOLD_MAX)
            over.set()
            stand_until(lambda: not spinner.is_alive())
            await _eventually(lambda: len(log.lines) > TOLD_MAX)

    asyncio.run(live())
    *still, again = log.lines
    assert len(still) == TOLD_MAX, "however long it stands"
    for event, facts in still:
        stacks = facts["stacks"]
        assert event.startswith("the event loop stands still")
        assert isinstance(stacks, dict)
        assert "test_watchdog.py" in stacks["MainThread"]
        assert "stand_until < " in stacks["MainThread"]
        assert "spin_until < " in stacks["spinner"]
        assert "watchdog" not in stacks
    assert any("spinner" in str(facts["cpu"]) for _, facts in still)
    assert again[0] == "the event loop goes round again"


async def _eventually(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SOON
    while not condition() and time.monotonic() < deadline:
        await asyncio.sleep(0.01)


def test_of_a_loop_that_goes_round_nothing_is_said() -> None:
    log = Log()

    async def live() -> None:
        with watched(asyncio.get_running_loop(), log, look_secs=0.5):  # type: ignore[arg-type]
            for _ in range(60):
                await asyncio.sleep(0.05)

    asyncio.run(live())
    assert all(not name.startswith("watchdog") for name in (one.name for one in threading.enumerate()))
    assert log.lines == []


LOCKED = """
import asyncio, re, structlog
from agents.watchdog import watched

async def live():
    with watched(asyncio.get_running_loop(), structlog.get_logger(), look_secs=0.1, locked_secs=2.0):
        await asyncio.sleep(0.5)
        print("begins", flush=True)
        {}

asyncio.run(live())
"""


@pytest.mark.parametrize("asks", [False, True])
def test_who_never_lets_go_of_pythons_lock_is_named_too(asks: bool) -> None:
    holds = "re.match('(a+)+$', 50 * 'a' + 'b')" if not asks else "await asyncio.sleep(600)"
    code = LOCKED.format(holds)
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stderr is not None
            assert process.stdout.readline() == "begins\n"
            if asks:
                process.send_signal(signal.SIGUSR1)
            said = ""
            while ("in run_forever" if asks else "in live") not in said:
                said += (line := process.stderr.readline())
                assert line, said
            assert "most recent call first" in said
            assert process.poll() is None, "nothing is ended by it"
        finally:
            process.kill()
