"""``elf bench idle``: what an agent takes from its host while nobody writes a line.

One real ``elf-agent`` process, first without a job, then with one: it was asked for the job itself (so it has
parsed the statement), is its home and its master, and has committed windows of the one line that was written.
CPU is user and system time over the span; PSS is the kernel's proportional share, RSS is what PSS would be if
no other process mapped the same libraries. So this process imports none of them: run it where no other agent
runs.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from http import HTTPStatus
from pathlib import Path
from typing import Final

import psutil
import yaml

from elf.errors import ElfError

SETTLE_SECS: Final = 5.0
START_SECS: Final = 30.0
TRY_AGAIN_SECS: Final = 0.5
STOP_SECS: Final = 10.0
ROOT: Final = Path(__file__).parents[2]
JOB: Final = "CREATE JOB busy AS SELECT page, COUNT(*) AS n FROM log GROUP BY page WINDOWING 5 SECONDS"


def bench_idle(seconds: float, *, as_json: bool) -> int:
    """Measure for ``seconds`` without a job, and again with one; print. Raises ``ElfError`` when the agent
    does not do what is asked of it."""
    with tempfile.TemporaryDirectory(prefix="elf-bench-") as name, _agent(Path(name)) as (agent, address):
        found = {"no_job": measure(agent, seconds)}
        line = {"ts": datetime.now(UTC).isoformat(), "page": "/"}
        (Path(name) / "a.log").write_text(json.dumps(line) + "\n", encoding="utf-8")
        _asked(agent, address, JOB)
        _asked(agent, address, "SUBSCRIBE busy", "--windows", "1")
        found["one_job"] = measure(agent, seconds)
    for what, one in found.items():
        print(
            f"{what.replace('_', ' '):8} {one['cpu_percent']:5.2f} % of a core {one['pss_mib']:7.1f} MiB PSS "
            f"{one['rss_mib']:7.1f} MiB RSS {one['threads']:4.0f} threads"
        )
    if as_json:
        print(json.dumps({"seconds": seconds, **found}))
    return 0


def measure(agent: psutil.Popen, seconds: float) -> dict[str, float]:
    """One agent's figures over a span, after a while in which it comes to rest."""
    time.sleep(SETTLE_SECS)
    began, before = time.monotonic(), agent.cpu_times()
    time.sleep(seconds)
    secs, after, memory = time.monotonic() - began, agent.cpu_times(), agent.memory_full_info()
    cpu = after.user + after.system - before.user - before.system
    return {
        "cpu_percent": round(100 * cpu / secs, 2),
        "pss_mib": round(memory.pss / (1 << 20), 1),
        "rss_mib": round(memory.rss / (1 << 20), 1),
        "threads": agent.num_threads(),
    }


@contextlib.contextmanager
def _agent(folder: Path) -> Iterator[tuple[psutil.Popen, str]]:
    """An agent that is ready, and its address; it is gone afterwards."""
    address, http = _free_addresses(2)
    config = {
        "agent": {"name": "idle", "listen": address},
        "data_dir": str(folder / "data"),
        "http": {"listen": http},
        "log": {"level": "warning"},
        "streams": {"log": {"include": [str(folder / "*.log")], "format": "json", "idle_timeout_secs": 1}},
    }
    path = folder / "elf.yaml"
    path.write_text(yaml.safe_dump(config), encoding="utf-8")
    agent = psutil.Popen(_python("agents.main", "--config", str(path)), env=_environment())
    try:
        _until(agent, lambda: _ready(http), "does not become ready")
        yield agent, address
    finally:
        agent.terminate()
        try:
            agent.wait(STOP_SECS)
        except psutil.TimeoutExpired:
            agent.kill()
            agent.wait()


def _ready(http: str) -> bool:
    try:
        with urllib.request.urlopen(f"http://{http}/ready", timeout=START_SECS) as answer:
            return bool(answer.status == HTTPStatus.OK)
    except OSError:
        return False


def _asked(agent: psutil.Popen, address: str, *statement: str) -> None:
    """Have a statement performed by the agent, again until it is ready for it."""
    command = _python("elf.cli.main", "sql", "--connect", address, "-e", *statement)

    def ask() -> bool:
        return subprocess.run(command, capture_output=True, env=_environment(), check=False).returncode == 0

    _until(agent, ask, f"does not perform {statement[0]}")


def _until(agent: psutil.Popen, done: Callable[[], bool], else_: str) -> None:
    deadline = time.monotonic() + START_SECS
    while not done():
        if agent.poll() is not None:
            raise ElfError(f"the agent stopped with status {agent.returncode}")
        if time.monotonic() > deadline:
            raise ElfError(f"the agent {else_} within {START_SECS:.0f} seconds")
        time.sleep(TRY_AGAIN_SECS)


def _free_addresses(count: int) -> list[str]:
    with contextlib.ExitStack() as held:
        found = [held.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [f"127.0.0.1:{one.getsockname()[1]}" for one in found]


def _python(module: str, *args: str) -> list[str]:
    return [sys.executable, "-P", "-m", module, *args]


def _environment() -> dict[str, str]:
    """Ours, without settings for agents, and with the place that this code was imported from."""
    env = {key: value for key, value in os.environ.items() if not key.startswith("ELF_")}
    return {**env, "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, [env.get("PYTHONPATH")])])}
