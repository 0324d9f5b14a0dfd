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

from elf.errors import UserError
from lab.bench.control_measures import MEASURES, SEPARATE, Control, wanted_of
from tests.support.waiting import wait_until


def starters() -> list[psutil.Process]:
    found = []
    for child in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            if "agents.preload" in child.cmdline():
                found.append(child)
    return found


AFTER_FORK = """\
import os, sys

first = os.getpid()

def imported(event, args):
    if event == "import" and os.getpid() != first and args[0] not in sys.modules:
        if args[0].split(".")[0] in ("agents", "elf", "overlay", "duckdb", "pyarrow", "sqlglot", "zmq"):
            with open({log!r}, "a") as log:
                print(args[0], file=log)

sys.addaudithook(imported)
"""
"""What Python runs at its start: it notes what a fork imports of what takes long."""


def test_three_agents(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """None of them imports what their starter could have imported for all: two cores take half a second for
    each agent that does."""
    late, before = tmp_path / "late", starters()
    late.touch()
    (tmp_path / "sitecustomize.py").write_text(AFTER_FORK.format(log=str(late)), encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    assert Control(3, 1).perform(as_json=True) == 0
    assert late.read_text(encoding="utf-8").split() == []
    figures = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert figures["agents"] == 3
    assert figures["ready_ms"] > 0
    for name in MEASURES:
        assert 0 < figures[name]["p50"] <= figures[name]["p99"] <= figures[name]["max"]
    assert set(starters()) <= set(before)


def test_operators_alone_and_together(capsys: pytest.CaptureFixture[str]) -> None:
    assert Control(2, 1, operators=True).perform(as_json=True) == 0
    figures = json.loads(capsys.readouterr().out.splitlines()[-1])
    for name in SEPARATE:
        for how in ("", "_together"):
            assert 0 < figures[f"{name}{how}_ms"]["p50"] <= figures[f"{name}{how}_ms"]["max"]
    assert "notify_ms" not in figures


def test_a_measure_that_there_is_not() -> None:
    with pytest.raises(UserError, match="--only leap: there are submit, notify, window, cycle"):
        Control(2, 1, only=["notify", "leap"])
    assert list(wanted_of(["filter", "notify"], MEASURES)) == ["notify_ms", "filter_ms"]


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
