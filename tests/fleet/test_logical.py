"""Logical agents: several in one process, which share nothing that can be seen from outside."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from pathlib import Path

from tests.support.confined import needs_confinement
from tests.support.fleet import Agent, Fleet
from tests.support.waiting import eventually
from tests.support.watching import SECOND_US, connected, create, leave, watched

MAP = """
def map(batch):
    return batch
"""


def command(agents: list[Agent], *more: str) -> list[str]:
    files = [f"--config={agent.write_config()}" for agent in agents]
    return [sys.executable, "-m", "agents.main", *more, *files]


def run(*args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(args, capture_output=True, text=True, timeout=60)


@needs_confinement
async def test_they_answer_as_any_fleet_and_one_that_leaves_ends_no_other(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path, 4)
    args = command(fleet.agents)
    for agent in fleet.agents:
        agent.log.touch()
    process = subprocess.Popen(args, stderr=(tmp_path / "said").open("wb"))
    try:
        client = await connected(fleet, 1)
        fleet.begin_writing()
        await create(client)
        (tmp_path / "map.py").write_text(MAP)
        await client.sql(f"ALTER JOB popular SET FUNCTION map FROM '{tmp_path / 'map.py'}'")
        gone = fleet.agents[3]
        async with watched(client, "popular") as windows:
            await eventually(
                lambda: any(w.status["version"] == 2 for w in windows.values()), "the function's"
            )
            asked_us = time.time_ns() // 1000
            left = await asyncio.to_thread(leave, gone)
            assert (left.returncode, left.stderr) == (0, "")
            await eventually(
                lambda: any(w.status["expected"] == 3 for w in windows.values()),
                "a window of those that stay",
            )
            until_us = fleet.end_writing()
            done = until_us - 4 * SECOND_US
            await eventually(lambda: max(windows) >= done, "all windows")
        for start, window in sorted(windows.items()):
            end = start + 2 * SECOND_US
            if end <= asked_us or (window.status["expected"] == 3 and end <= done):
                assert window.status["reported"] == window.status["expected"]
                found = {str(row["product"]): row["clicks"] for row in window.table.to_pylist()}
                assert found == fleet.truth(start, end, () if end <= asked_us else (gone.name,))
        await client.close()
        process.terminate()
        assert process.wait(20) == 0
    finally:
        fleet.stop()
        process.kill()
        process.wait()
    assert (tmp_path / "said").read_text().count('"agent stopped"') == 4


def test_what_cannot_start_ends_all_of_them_with_one_line(tmp_path: Path) -> None:
    first, second = Fleet(tmp_path, 2).agents
    second.port = first.port
    taken = run(*command([first, second]))
    assert taken.returncode == 1
    assert f"127.0.0.1:{first.port}" in taken.stderr.splitlines()[-1]
    assert "Traceback" not in taken.stderr

    twice = run(*command([first, first]))
    assert twice.returncode == 1
    (line,) = twice.stderr.splitlines()
    assert "is in use by another agent" in line

    path = second.write_config()
    path.write_text(path.read_text() + "log: {level: debug}\n")
    unlike = run(sys.executable, "-m", "agents.main", f"--config={first.write_config()}", f"--config={path}")
    assert unlike.returncode == 1
    (line,) = unlike.stderr.splitlines()
    assert "equal log.level and log.format" in line


def test_validate_looks_at_all_of_them(tmp_path: Path) -> None:
    first, second = Fleet(tmp_path, 2).agents
    path = first.write_config()
    assert run(*command([first, second], "validate")).stdout.count(": ok") == 2
    early, unknown = tmp_path / "early.yaml", tmp_path / "unknown.yaml"
    text = second.write_config().read_text()
    early.write_text(text.replace(str(second.log), str(tmp_path / "nowhere" / "x.log")))
    unknown.write_text(text + "colour: red\n")
    files = [f"--config={file}" for file in (unknown, path, early)]
    wrong = run(sys.executable, "-m", "agents.main", "validate", *files)
    assert wrong.returncode == 78
    assert wrong.stdout == f"{path}: ok\n{early}: ok\n"
    first_line, _, second_line = wrong.stderr.splitlines()
    assert first_line.startswith(f"elf-agent: {unknown}:")
    assert "unknown key colour" in first_line
    assert second_line.startswith(f"elf-agent: {early}: note: streams.")
    assert "nowhere" in second_line
