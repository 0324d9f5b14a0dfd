"""What the demo starts is gone afterwards, and it submits to an agent that is not the master."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
import yaml

from agents.loading import load
from elf.cli.demo import fleet
from elf.cli.demo.play import job_sql, submit_place
from elf.cli.processes import Processes, ended
from elf.errors import ElfError
from elf.job.spec import topics_of
from elf.ql.statements import CreateJob, parse
from overlay.ids import closeness, node_id, to_int
from tests.support.waiting import wait_until


def gone(pid: int) -> bool:
    with suppress(ProcessLookupError, FileNotFoundError):
        os.kill(pid, 0)
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        return state == "Z"
    return True


def grandchild(log: Path) -> int:
    wait_until(lambda: log.exists() and log.read_text().strip().isdigit(), "the child starts", 10)
    return int(log.read_text())


@pytest.fixture
def stubborn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A module that starts a process of its own, says its id, and ignores SIGTERM."""
    (tmp_path / "stubborn_child.py").write_text(
        "import signal, subprocess, sys, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "print(subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)']).pid, flush=True)\n"
        "time.sleep(60)\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr("elf.cli.processes.STOP_SECS", 0.2)
    return "stubborn_child"


def test_all_is_gone_after_an_error_even_what_ignores_us(tmp_path: Path, stubborn: str) -> None:
    log = tmp_path / "log"
    with pytest.raises(RuntimeError), ended() as processes:  # noqa: PT012
        child = processes.start("child", stubborn, [], log)
        below = grandchild(log)
        raise RuntimeError
    assert gone(child.process.pid)
    wait_until(lambda: gone(below), "it ends", 5)


def test_a_child_that_dies_is_named_with_the_end_of_its_log(tmp_path: Path) -> None:
    with ended() as processes:
        child = processes.start("agent-3", "no_such_module", [], tmp_path / "log")
        child.process.wait()
        with pytest.raises(
            ElfError, match=r"agent-3 stopped with status 1; the end of its log:\n.*no_such_module"
        ):
            processes.check([child])


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_demo_and_its_children(tmp_path: Path, stubborn: str, number: int) -> None:
    script = (
        "import signal, sys, time; from pathlib import Path\n"
        "signal.signal(signal.SIGINT, signal.SIG_IGN)  # as a shell starts what is in the background\n"
        "from elf.cli import processes as p\n"
        "p.STOP_SECS = 0.2\n"
        "with p.ended() as children:\n"
        f"    children.start('x', {stubborn!r}, [], Path(sys.argv[1]))\n"
        "    time.sleep(60)\n"
    )
    log = tmp_path / "log"
    demo = subprocess.Popen([sys.executable, "-c", script, str(log)], stderr=subprocess.DEVNULL)
    below = grandchild(log)
    demo.send_signal(number)
    assert demo.wait(10) != 0
    wait_until(lambda: gone(below), "it ends", 5)


def test_the_agents_take_the_configurations_as_they_are_written(tmp_path: Path) -> None:
    first, *others = fleet.places(tmp_path)
    for place in (first, *others):
        place.config.parent.mkdir(parents=True)
        bootstrap = None if place is first else first.address
        place.config.write_text(yaml.safe_dump(fleet.config_of(place, bootstrap)))
        config = load(place.config, {})
        assert config.agent.name == place.name
        assert config.streams[place.stream].include == (str(place.log),)
    assert [place.stream for place in (first, *others)] == ["clicks"] * 7 + ["access"]
    assert len({place.address for place in (first, *others)}) == 8


def test_the_job_is_submitted_to_another_than_its_master(tmp_path: Path) -> None:
    places = fleet.places(tmp_path)
    for creator in ("ada", "bo", "chidi", "dana"):
        chosen = submit_place(places, creator)
        for key in topics_of("micro_promotion", creator):
            assert chosen != min(places, key=lambda place: closeness(to_int(key), node_id(place.address)))
        assert chosen.stream == "clicks"


def test_the_statement_is_the_papers() -> None:
    (statement,) = parse(job_sql(5))
    assert isinstance(statement, CreateJob)
    assert statement.name == "micro_promotion"


def test_processes_stop_politely_first(tmp_path: Path) -> None:
    processes = Processes()
    path = tmp_path / "clicks.jsonl"
    args = ["generate", "clicks", "--out", str(path), "--rate", "2000"]
    child = processes.start("generator", "elf.cli.main", args, tmp_path / "log")
    wait_until(lambda: path.exists() and path.stat().st_size, "lines", 20)
    processes.stop([child])
    assert child.process.returncode == 0
