"""An idle agent holds no library that only jobs, lines, statements or people need."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

from tests.support.fleet import Fleet
from tests.support.waiting import wait_until

AGENT = (
    "import atexit, sys; atexit.register(lambda: print(*sys.modules)); from agents.main import main; main()"
)
NOT_YET = {
    "duckdb": "the first line or job that needs SQL",
    "sqlglot": "the first statement",
    "prometheus_client": "the first look at /metrics",
    "pyarrow.parquet": "the first shipped roll",
    "pyarrow.fs": "the first shipped roll",
    "pyarrow.dataset": "never",
    "pyspark": "never",
    "pandas": "never",
    "typer": "never",
    "elf.cli": "never",
    "prompt_toolkit": "never",
    "matplotlib": "never",
}
"""Modules, and what an agent may import them for."""


def modules_of_an_agent(folder: Path, *, line: str) -> set[str]:
    """What it has imported when it is stopped, a while after it became ready, with ``line`` in its log."""
    (agent,) = Fleet(folder, 1).agents
    config = agent.write_config()
    agent.log.write_text(line)
    with (folder / "stderr").open("w+") as said:
        process = subprocess.Popen(
            [sys.executable, "-c", AGENT, "--config", str(config)],
            stdout=subprocess.PIPE,
            stderr=said,
            text=True,
        )
        rolls = agent.folder / "data" / "rolls"

        def reads() -> bool:
            assert process.poll() is None, (folder / "stderr").read_text()
            ready = "agent is ready" in (folder / "stderr").read_text()
            return ready and (not line or any(rolls.rglob("open-*")))

        wait_until(reads, (folder / "stderr").read_text)
        time.sleep(1)  # a few looks at the log, and what the clock brings
        process.send_signal(signal.SIGTERM)
        modules, _ = process.communicate(timeout=30)
    assert process.returncode == 0, (folder / "stderr").read_text()
    return set(modules.split())


def test_an_idle_agent_is_small(tmp_path: Path) -> None:
    modules = modules_of_an_agent(tmp_path, line="")
    assert {"agents.tasks.streamtask", "pyarrow", "zmq", "uvicorn"} <= modules
    assert {name: why for name, why in NOT_YET.items() if name in modules} == {}


def test_an_agent_that_reads_plain_lines_needs_no_sql(tmp_path: Path) -> None:
    line = '{"created_at": "2026-01-01T00:00:00Z", "product": "Doom", "clicks_count": 1}\n'
    modules = modules_of_an_agent(tmp_path, line=line)
    assert "agents.tasks.streamtask" in modules
    assert not modules & {"duckdb", "sqlglot"}
