"""``elf bench offload``: what a web server's agent takes of a core with a costly map in Python, and what is
left of that when a helper maps its rows out of the archive (``ALTER JOB … OFFLOAD``).

Two real agents on this machine share an archive; the helper reads no lines. The CPU of an agent is that of
its process and of the processes in which users' code runs; of the helper's, which map a slice each, some end
uncounted. Rows are written at a rate, and each costs the map so many µs; both halves are of one run.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

import msgspec
import psutil
from typer import Option

from elf.cli.processes import ended
from elf.errors import ElfError
from lab.bench.oneagent import OneAgent
from lab.bench.options import Repeat
from lab.bench.runner import Bench, Figure, Report, Scratch, median

EVERY_S: Final = 0.1
LINES: Final = 1_000
"""Rows that there are before the job."""
LIMIT_S: Final = 120.0
SHARE_MAX: Final = 0.5
MAP: Final = """\
import time
def map(batch):
    until = time.thread_time() + batch.num_rows * {us} / 1e6
    while time.thread_time() < until:
        pass
    return batch
"""


class Took(msgspec.Struct, frozen=True):
    """Of a core: the agent that reads lines, alone, and with the helper; and the helper."""

    home: float
    left: float
    helper: float


@dataclass(frozen=True)
class Offload(Bench[str, Took]):
    """Real agents, written to at a rate."""

    rate: Annotated[int, Option(help="Rows a second.", min=1)] = 2_000
    us: Annotated[int, Option(help="What the map takes of each row, in µs.", min=0)] = 100
    seconds: Annotated[float, Option(help="Of each half.", min=0.1)] = 30.0
    roll_secs: Annotated[float, Option(help="archive.roll_secs", min=0.1)] = 2.0
    repeat: Repeat = 1

    def sides(self, scratch: Scratch) -> Mapping[str, Callable[[], Took]]:
        return {"elf": lambda: self._took(scratch)}

    def _took(self, scratch: Scratch) -> Took:
        folder = Path(tempfile.mkdtemp(dir=scratch.folder))
        with ended() as processes:
            web, helper = Measured(processes, folder / "web"), Measured(processes, folder / "helper")
            log, function = folder / "clicks.log", folder / "costly.py"
            function.write_text(MAP.format(us=self.us))
            archive = {"enabled": True, "path": str(folder / "archive"), "roll_secs": self.roll_secs}
            lines = Lines(log, self.rate)
            stream = {"include": [str(log)], "format": "json", "lateness_secs": 0.5}
            web.begin("web", {"streams": {"clicks": stream}, "archive": archive})
            joins = {"cluster": {"bootstrap": [web.address]}}
            helper.begin("helper", {**joins, "streams": {}, "archive": archive})
            lines.write(LINES / self.rate)
            web.perform(
                "CREATE JOB heavy AS SELECT page, COUNT(*) AS hits FROM clicks GROUP BY page "
                "WINDOWING 2 SECONDS"
            )
            lines.write(3)
            web.perform(f"ALTER JOB heavy SET FUNCTION map FROM '{function}'")
            home, _ = self._half(lines, web, helper)
            web.perform(f"ALTER JOB heavy OFFLOAD 'web' TO '{helper.address}'")
            deadline = time.monotonic() + LIMIT_S
            while helper.cpu_secs(functions=True) < self.us * self.rate / 1e6:
                lines.write(1)
                if time.monotonic() > deadline:
                    raise ElfError("the helper maps nothing")
            left, helped = self._half(lines, web, helper)
        return Took(home, left, helped)

    def _half(self, lines: Lines, *agents: Measured) -> tuple[float, float]:
        lines.write(2 * self.roll_secs)
        began, before = time.monotonic(), [agent.cpu_secs() for agent in agents]
        lines.write(self.seconds)
        took = time.monotonic() - began
        first, second = ((one.cpu_secs() - had) / took for one, had in zip(agents, before, strict=True))
        return first, second

    def report(self, runs: Mapping[str, Sequence[Took]]) -> Report:
        took = runs["elf"]
        home, left, helper = (median(took, name) for name in ("home", "left", "helper"))
        facts: dict[str, object] = {
            "rate": self.rate,
            "us": self.us,
            "roll_secs": self.roll_secs,
            "home": home,
            "offloaded": left,
            "helper": helper,
        }
        figures = [
            Figure("a web server's agent, its rows mapped elsewhere", left, "cores", {"at home": home}),
            Figure("its helper, at least", helper, "cores"),
        ]
        problem = f"an agent whose map is elsewhere takes {left / home:.0%} of what it took before"
        return Report(facts, figures, problems=[problem] if self.us and left > SHARE_MAX * home else [])


class Measured(OneAgent):
    """An agent, with the processes of users' code below it."""

    def begin(self, name: str, settings: Mapping[str, object]) -> None:
        self._folder.mkdir()
        self.run(name, {}, {"data_dir": str(self._folder / "data"), **settings})

    def cpu_secs(self, *, functions: bool = False) -> float:
        """``functions``: of these processes alone."""
        found = 0.0
        for process in [*([] if functions else [self.process]), *self.process.children(recursive=True)]:
            with suppress(psutil.Error):
                found += sum(process.cpu_times()[:4])  # with children that have ended
        return found


class Lines:
    """Rows of a log, at a rate."""

    def __init__(self, path: Path, rate: int) -> None:
        self._path, self._rate = path, rate
        self._number = 0

    def write(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        with self._path.open("a") as file:
            while (began := time.monotonic()) < until:
                for _ in range(max(1, round(self._rate * EVERY_S))):
                    self._number += 1
                    row = {"ts": time.time(), "page": f"/{self._number % 100}"}
                    file.write(json.dumps(row) + "\n")
                file.flush()
                time.sleep(max(0.0, EVERY_S - (time.monotonic() - began)))
