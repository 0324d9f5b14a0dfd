"""Runs each sender beside one agent, which lives on, or is killed (SIGKILL) while it is sent to; then every
row is looked for in the windows of a job."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Final

from typer import Option

from elf.cli.processes import Processes, ended, free_ports
from elf.errors import ElfError, UserError
from lab.bench.inputs.senders import SENDERS, LeftOut
from lab.bench.rotation.beside import STREAM, Beside, counted, left_out
from lab.bench.rotation.writers import Traffic, stem
from lab.bench.runner import Bench, Figure, Report, Scratch

QUIET_SECS: Final = 3.0
"""The windows are all there when nothing has changed for so long."""
SETTLE_SECS: Final = 60.0
POLL_SECS: Final = 0.5
DEAD_SECS: Final = 1.0
IDLE_SECS: Final = 3.0
LATENESS_SECS: Final = 20.0
"""rsyslog's queue sends what is new before what has waited."""


@dataclass(frozen=True)
class Came:
    """What came of a sender. ``told``: rows that are in no window, as the windows say (late, mostly);
    ``lost``: those of which nobody says so."""

    wrote: int = 0
    lost: int = 0
    doubled: int = 0
    told: int = 0
    missing: str = ""


class Receiving(Beside):
    """The agent, with a stream that is sent to."""

    def __init__(self, processes: Processes, folder: Path, type: str, format: str) -> None:
        (self.port,) = free_ports(1)
        self._type, self._format = type, format
        super().__init__(processes, folder, folder)

    def _settings(self, include: Path) -> dict[str, object]:
        receive = {"listen": f"127.0.0.1:{self.port}", "line": "message"}
        stream = {
            "type": self._type,
            "format": self._format,
            "receive": receive,
            "idle_timeout_secs": IDLE_SECS,
        }
        stream["lateness_secs"] = LATENESS_SECS
        if self._format == "json":
            stream["columns"] = {"ts": "timestamp", "cs_uri_stem": "text"}
        return super()._settings(include) | {"streams": {STREAM: stream}}


@dataclass(frozen=True)
class InputsBench(Bench[str, Came]):
    """Each sender, twice."""

    seconds: Annotated[float, Option("--seconds", min=2, help="So long each sends.")] = 15.0
    rate: Annotated[int, Option("--rate", min=1, help="So many rows a second.")] = 500
    kills: Annotated[int, Option("--kills", min=1, help="So often the agent is killed meanwhile.")] = 2
    only: Annotated[list[str] | None, Option("--only", metavar="NAME", help="These senders.")] = None

    def sides(self, scratch: Scratch) -> Mapping[str, Callable[[], Came]]:
        """Each sender, with an agent that lives on and with one that is killed."""
        for name in self.only or ():
            if name not in SENDERS:
                raise UserError(f"--only {name}: there is no such sender; senders: {', '.join(SENDERS)}")
        return {
            f"{name} {how}": partial(self._run, name, kills, scratch.folder / f"{name}-{how}")
            for name in self.only or SENDERS
            for how, kills in (("alive", 0), ("killed", self.kills))
        }

    def _run(self, name: str, kills: int, folder: Path) -> Came:
        type, _, _, make = SENDERS[name]
        folder.mkdir()
        with ended() as processes:
            agent = Receiving(processes, folder, type, "combined" if name == "nginx" else "json")
            try:
                sender = make(agent.port, processes, folder / "sender")
            except LeftOut as why:
                return Came(missing=str(why))
            agent.start()
            agent.ready()
            agent.create_job()
            traffic = Traffic(sender, self.rate)
            traffic.start()
            for _ in range(kills):
                time.sleep(self.seconds / (kills + 1))
                agent.kill()
                time.sleep(DEAD_SECS)
                agent.start()
                agent.ready()
            time.sleep(self.seconds / (kills + 1))
            traffic.end()
            found = self._settled(agent, traffic.wrote)
            sender.close()
            return found

    def _settled(self, agent: Beside, wrote: int) -> Came:
        """When all rows are there, or nothing has changed for a while."""
        began = changed = time.monotonic()
        last: Came | None = None
        while time.monotonic() - began < SETTLE_SECS:
            windows = agent.windows()
            if windows is not None:
                now = judged(wrote, counted(windows), left_out(windows))
                if now != last:
                    last, changed = now, time.monotonic()
                quiet = (
                    QUIET_SECS if last is None or not last.lost else LATENESS_SECS + IDLE_SECS + QUIET_SECS
                )
                if time.monotonic() - changed > quiet:
                    break
            time.sleep(POLL_SECS)
        if last is None:
            raise ElfError(f"the agent does not answer; its log is {agent.log}")
        return last

    def report(self, runs: Mapping[str, Sequence[Came]]) -> Report:
        """A problem where a sender repeats, and something is lost or doubled."""
        facts: dict[str, object] = {}
        figures, problems, notes = [], [], []
        for side, (came, *_) in runs.items():
            name = side.partition(" ")[0]
            _, who, repeats, _ = SENDERS[name]
            if came.missing:
                notes.append(f"{side}: left out: {came.missing}")
                continue
            facts[f"{side} ({who})"] = f"{came.lost} lost, {came.doubled} doubled, of {came.wrote:,}"
            if came.told:
                notes.append(f"{side}: {came.told} rows are in no window, and the windows say so")
            if repeats or side.endswith("alive"):
                figures.append(Figure(f"{side}: rows lost", came.lost, f"of {came.wrote}"))
                figures.append(Figure(f"{side}: rows doubled", came.doubled, f"of {came.wrote}"))
                if name != "nginx" and came.lost + came.doubled:
                    problems.append(f"{side}: {came.lost} rows lost, {came.doubled} doubled")
        return Report(facts, figures, notes, problems=problems)


def judged(wrote: int, counts: Counter[str], told: int) -> Came:
    """Of the rows 0 to ``wrote``."""
    missing = sum(stem(number) not in counts for number in range(wrote))
    return Came(wrote, max(missing - told, 0), sum(count - 1 for count in counts.values()), told)
