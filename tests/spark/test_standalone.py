"""A real standalone cluster: its answers are those of one machine; and masters that are not there."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from elf.errors import UserError
from lab.queue.standalone import standalone
from spark_backend import session
from tests.support.offline import clicks, store

QUERY = (
    "SELECT product, COUNT(*) AS n, SUM(clicks) AS s FROM clicks GROUP BY product ORDER BY n DESC "
    "WINDOWING 20 SECONDS"
)


@pytest.mark.timeout(600)
def test_a_cluster_of_a_master_and_two_workers_says_the_same_as_one_machine(tmp_path: Path) -> None:
    for agent, seed in (("a", 1), ("b", 2)):
        rows = clicks(300, seed)
        facts = {"format": "json", "timestamp": "ts", "agent_name": f"web-{agent}"}
        store(tmp_path / "t", [r.line() for r in rows], [r.ts_us for r in rows], agent=agent, facts=facts)
    with standalone(tmp_path) as cluster:
        answers = [_run(tmp_path, master) for master in (cluster.url, "local[1]")]
        executors = [path.name for path in tmp_path.glob("work-*/app-*/*")]
    assert answers[0] == answers[1]
    assert len(answers[0].splitlines()) == 3 * 4
    assert len(executors) == 2


def _run(folder: Path, master: str) -> str:
    words = ["offline", "run", "--archive", str(folder / "t"), "-q", QUERY, "--json", "--master", master]
    done = subprocess.run(
        [sys.executable, "-m", "elf.cli.main", *words], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    ("master", "says"),
    [
        ("spark://127.0.0.1:{port}", r"the Spark master .* does not answer \(connection refused\)"),
        ("k8s://https://127.0.0.1:{port}", r"the Spark master .* does not answer \(connection refused\)"),
        ("spark://127.0.0.1", "is no master: say the port of each"),
        ("sc://127.0.0.1:15002", "does not speak Spark Connect"),
        ("yarn", "yarn: set HADOOP_CONF_DIR"),
    ],
)
def test_a_master_that_is_not_there_is_one_line_soon(
    master: str, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HADOOP_CONF_DIR", raising=False)
    monkeypatch.delenv("YARN_CONF_DIR", raising=False)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    began = time.monotonic()
    with pytest.raises(UserError, match=says), session.opened(master.format(port=port)):
        pass
    assert time.monotonic() - began < session.REACH_SECS + 1


def test_a_master_that_says_nothing_is_waited_for_so_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "REACH_SECS", 0.2)
    with pytest.raises(UserError, match="does not answer"), session.opened("spark://192.0.2.1:7077"):
        pass
