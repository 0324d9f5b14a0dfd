"""The agent of a cell, and all that it says: windows with their statuses, log, /health, /metrics, compare."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import yaml

from elf.cli.processes import Child, Processes, environment, free_ports
from elf.client import Window, connect, split
from elf.errors import ElfError
from lab.bench.rotation.judge import Gap

CLUSTER: Final = "rotation"
STREAM: Final = "access"
JOB: Final = "requests"
QUERY: Final = f"SELECT cs_uri_stem, COUNT(*) AS n FROM {STREAM} GROUP BY cs_uri_stem WINDOWING 1 SECOND"
LEFT_OUT: Final = ("late", "rejected", "uncast", "future", "unrostered", "shed", "leapt")
LISTEN_SECS: Final = 60.0
COMPARE_SECS: Final = 400.0
POLL_SECS: Final = 0.25
HTTP_SECS: Final = 2.0
_SAMPLE: Final = re.compile(r"^(elf_gaps_total|elf_gap_bytes_total)\{[^}]*\} ([\d.e+]+)$", re.M)


class Reader:
    """A process that reads the log. What its first start makes is its own matter."""

    def __init__(self, processes: Processes) -> None:
        self._processes = processes
        self._child: Child | None = None

    @property
    def alive(self) -> bool:
        return self._child is not None

    def kill(self) -> None:
        """SIGKILL; returns when it is gone."""
        child, self._child = self._child, None
        if child is not None:
            child.signal(signal.SIGKILL, group=True)
            self._processes.stop([child])

    def signal(self, number: signal.Signals) -> None:
        if self._child is not None:
            self._child.signal(number, group=False)

    def check(self) -> None:
        """Raise ``ElfError`` when it has stopped by itself."""
        if self._child is not None:
            self._processes.check([self._child])


class Beside(Reader):
    """One agent, started and killed as the script says; its data stays."""

    def __init__(self, processes: Processes, folder: Path, include: Path) -> None:
        super().__init__(processes)
        self._folder = folder
        ports = free_ports(2)
        self.address, self._http = (f"127.0.0.1:{port}" for port in ports)
        self.log = folder / "agent.log"
        self._config = folder / "elf.yaml"
        self._config.write_text(yaml.safe_dump(self._settings(include)), encoding="utf-8")

    def _settings(self, include: Path) -> dict[str, object]:
        """As in any fleet; what a run would have to wait for is shorter."""
        follow = {
            "include": [str(include)],
            "format": "combined",
            "rotate_wait_secs": 2,
            "idle_timeout_secs": 3,
        }
        return {
            "agent": {"name": "web-1", "listen": self.address},
            "cluster": {"name": CLUSTER},
            "data_dir": str(self._folder / "data"),
            "http": {"listen": self._http},
            "streams": {STREAM: follow},
            "archive": {"path": str(self._folder / "archive"), "roll_secs": 5},
            "protocol": {"cut_interval_secs": 1},
        }

    # -- its life --------------------------------------------------------------------------------------------

    def start(self) -> None:
        if self._child is None:
            args = ["--config", str(self._config)]
            self._child = self._processes.start("elf-agent", "agents.main", args, self.log)

    def ready(self) -> None:
        """Returns when it answers. Raises ``ElfError`` when it does not."""
        deadline = time.monotonic() + LISTEN_SECS
        while self.get("ready") is None:
            self.check()
            if time.monotonic() > deadline:
                raise ElfError(f"the agent is not ready after {LISTEN_SECS:g} s; its log is {self.log}")
            time.sleep(POLL_SECS)

    # -- what it says ----------------------------------------------------------------------------------------

    def get(self, path: str) -> str | None:
        """A page of its HTTP, whatever its status; None when it does not answer, or not with 200."""
        try:
            with urllib.request.urlopen(f"http://{self._http}/{path}", timeout=HTTP_SECS) as page:
                return str(page.read().decode())
        except (OSError, urllib.error.URLError):
            return None

    def create_job(self) -> None:
        async def create() -> None:
            async with connect(self.address, cluster=CLUSTER) as client:
                await client.sql(f"CREATE JOB {JOB} AS {QUERY}")

        asyncio.run(create())

    def windows(self) -> list[Window] | None:
        """The last revision of each committed window; None when the agent does not answer now."""

        async def read() -> list[Window]:
            async with connect(self.address, cluster=CLUSTER) as client:
                facts = await client.compare_facts(JOB)
            return [window for result in facts.job.windows for window in split(result)]

        try:
            found = asyncio.run(read())
        except ElfError:
            self.check()
            return None
        last: dict[object, Window] = {}
        for window in sorted(found, key=lambda window: window.revision):
            if not window.provisional and not window.early:
                last[window.start, window.end] = window
        return list(last.values())

    def logged_gaps(self) -> int:
        """Lines of its log that tell a gap."""
        found = 0
        for line in self.log.read_text(errors="replace").splitlines():
            with contextlib.suppress(ValueError):
                found += bool(re.search(r"\bgaps?\b", str(json.loads(line).get("event"))))
        return found

    def compared(self) -> str:
        """What ``elf compare`` prints, on both outputs."""
        command = [sys.executable, "-P", "-m", "elf.cli.main", "compare", JOB, "--connect", self.address]
        command += ["--cluster", CLUSTER]
        try:
            done = subprocess.run(
                command,
                capture_output=True,
                check=False,
                env=environment(),
                timeout=COMPARE_SECS,
            )
        except subprocess.TimeoutExpired:
            return ""
        return (done.stdout + done.stderr).decode(errors="replace")


class Watch:
    """A thread that asks the agent's /health and /metrics all the time: what its lives have told of gaps."""

    def __init__(self, agent: Beside) -> None:
        self.health: set[Gap] = set()
        self.metrics: set[str] = set()
        self._agent = agent
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def end(self) -> None:
        """After one last look."""
        self._ending.set()
        self._thread.join()
        self._look()

    def _run(self) -> None:
        while not self._ending.wait(POLL_SECS):
            self._look()

    def _look(self) -> None:
        health, metrics = self._agent.get("health"), self._agent.get("metrics")
        if health is not None:
            self.health |= gaps_of(json.loads(health))
        self.metrics |= {name for name, value in _SAMPLE.findall(metrics or "") if float(value) > 0}


def gaps_of(told: Mapping[str, object]) -> set[Gap]:
    """Those of a status or of /health. A status may hold them as JSON text."""
    gaps = told.get("gaps") or []
    if isinstance(gaps, str):
        gaps = json.loads(gaps)
    return {Gap.of(gap) for gap in gaps} if isinstance(gaps, list) else set()


def counted(windows: Sequence[Window]) -> Counter[str]:
    """How often each row is in all of these."""
    counts: Counter[str] = Counter()
    for window in windows:
        if window.table.num_rows:
            names, numbers = (window.table[name].to_pylist() for name in ("cs_uri_stem", "n"))
            for name, number in zip(names, numbers, strict=True):
                counts[name] += number
    return counts


def left_out(windows: Sequence[Window]) -> int:
    values = (window.status.get(name) for window in windows for name in LEFT_OUT)
    return sum(value for value in values if isinstance(value, int))
