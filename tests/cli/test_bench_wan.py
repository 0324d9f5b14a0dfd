"""``elf bench wan``: what its fleets found, and the links between its regions."""

from __future__ import annotations

import shutil
import subprocess
import sys
import textwrap
from dataclasses import replace

import pytest

from elf.cli.processes import environment
from elf.errors import ElfError, UserError
from lab.bench.wan import MODES, Wan
from lab.bench.wan_side import Found
from lab.wan.spaces import UNSHARE, check

FOUND = Found(
    latencies_s=[2.0, 2.1, 4.0],
    windows=3,
    incomplete=1,
    slow_bytes=122_880,
    all_bytes=500_000,
    probes_bytes=0,
    rows_wrong=0,
    route="",
)


def test_bytes_and_times_of_each_fleet_are_told() -> None:
    runs = {mode: [FOUND] for mode in MODES}
    runs["act"] = [replace(FOUND, slow_bytes=6_144, route="eu → ap → us")]
    report = Wan(seconds=60).report(runs)
    slow = next(one for one in report.figures if "slow link" in one.what)
    assert (slow.elf, slow.beside) == (0.1, {"flat": 2.0, "heads": 2.0})
    late = next(one for one in report.figures if one.what == "lateness of whole windows, heads")
    assert late.elf == (2_100.0, 4_000.0)
    assert report.facts["act"]["route"] == "eu → ap → us"  # type: ignore[index]
    assert not report.problems


def test_rows_that_are_wrong_are_a_problem_and_so_are_no_windows() -> None:
    runs = {mode: [FOUND] for mode in MODES}
    runs["heads"] = [replace(FOUND, rows_wrong=3)]
    assert Wan().report(runs).problems == ["heads: windows differ by 3 rows from what was written"]
    runs["heads"] = [replace(FOUND, latencies_s=[])]
    with pytest.raises(ElfError, match="no window came with all agents"):
        Wan().report(runs)


def test_a_machine_without_namespaces_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None if name == "tc" else name)
    with pytest.raises(UserError, match="tc is not here: install"):
        check()


@pytest.fixture
def namespaces() -> None:
    try:
        check()
    except UserError as error:
        pytest.skip(str(error))


@pytest.mark.usefixtures("namespaces")
def test_a_link_carries_what_it_is_said_to_and_the_others_more() -> None:
    script = """
        import subprocess, sys, time
        from lab.wan.spaces import Spaces

        SERVE = "import socket; s = socket.socket(); s.bind(('', 7000)); s.listen()\\n"
        SERVE += "print('up', flush=True)\\n"
        SERVE += "for _ in range(2):\\n c, _ = s.accept()\\n while c.recv(65536): pass\\n c.close()"
        SEND = "import socket, sys; s = socket.create_connection((sys.argv[1], 7000))\\n"
        SEND += "s.sendall(b'x' * 125000); s.shutdown(1); s.recv(1)"
        with Spaces(["eu", "us", "ap"]) as spaces:
            spaces.shape("eu", "us", 1)
            command = spaces.inside("us", sys.executable, "-c", SERVE)
            server = subprocess.Popen(command, stdout=subprocess.PIPE)
            server.stdout.readline()
            took = []
            for region in ("eu", "ap"):
                began = time.monotonic()
                send = spaces.inside(region, sys.executable, "-c", SEND, spaces.address("us"))
                subprocess.run(send, check=True)
                took.append(time.monotonic() - began)
            server.wait()
            print(took[0], spaces.sent("eu", "us"), spaces.sent("eu", "ap"))
    """
    command = [*UNSHARE, sys.executable, "-c", textwrap.dedent(script)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment(), check=False)
    assert done.returncode == 0, done.stderr
    took, sent, other = done.stdout.split()
    assert float(took) > 0.8, "a second, and less what may go at once"
    assert 125_000 < int(sent) < 140_000
    assert int(other) < 5_000


@pytest.mark.usefixtures("namespaces")
def test_a_side_that_is_killed_leaves_no_region_behind() -> None:
    """Else whoever waits for what it says would wait for ever."""
    script = """
        import os
        from lab.wan.spaces import Spaces

        spaces = Spaces(["eu", "us"])
        spaces.__enter__()
        print(*(holder.pid for holder in spaces._holders.values()), flush=True)
        os.kill(os.getpid(), 9)
    """
    command = [*UNSHARE, sys.executable, "-c", textwrap.dedent(script)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment(), timeout=60)
    assert len(done.stdout.split()) == 2, done.stderr
