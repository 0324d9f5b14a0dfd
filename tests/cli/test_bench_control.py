"""``elf bench control`` with three real agents: every figure is there, every process is gone afterwards."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from lab.bench.control_measures import MEASURES, Control
from tests.support.waiting import wait_until


def starters() -> list[psutil.Process]:
    found = []
    for child in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            if "agents.preload" in child.cmdline():
                found.append(child)
    return found


def test_three_agents(capsys: pytest.CaptureFixture[str]) -> None:
    assert Control(3, 1).perform(as_json=True) == 0
    figures = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert figures["agents"] == 3
    assert figures["ready_ms"] > 0
    for name in MEASURES:
        assert 0 < figures[name]["p50"] <= figures[name]["p99"] <= figures[name]["max"]
    assert not starters()


def test_agents_end_when_whoever_ordered_them_is_killed(tmp_path: Path) -> None:
    """Not even a SIGKILL leaves agents behind: their starter hears its orders end."""
    script = (
        "import asyncio, sys, time; from pathlib import Path\n"
        "from lab.bench.control_fleet import Place\n"
        "from elf.cli.processes import Agents\n"
        "from elf.cli.processes import ended\n"
        "folder = Path(sys.argv[1])\n"
        "with ended() as processes:\n"
        "    agents, place = Agents(processes, folder / 'log'), Place(folder, 'a')\n"
        "    agent = agents.start('a', place.config(None), place.log)\n"
        "    asyncio.run(agents.listening([agent], 30))\n"
        "    print(agent.pid, flush=True)\n"
        "    time.sleep(60)\n"
    )
    ordering = subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    assert ordering.stdout is not None
    agent = psutil.Process(int(ordering.stdout.readline()))
    assert agent.parent() != psutil.Process(ordering.pid)
    os.kill(ordering.pid, signal.SIGKILL)
    ordering.wait()
    ordering.stdout.close()
    wait_until(
        lambda: not agent.is_running() or agent.status() == psutil.STATUS_ZOMBIE, "the agent ends too", 10
    )
