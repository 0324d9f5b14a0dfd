"""One cell, as a process: its ``Task`` on standard input, its ``Result`` on standard output."""

from __future__ import annotations

import gzip
import json
import shutil
import signal
import threading
import time
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec

from elf.cli.processes import Processes, ended
from elf.client import Window
from elf.errors import ElfError
from lab.bench.rotation.beside import Beside, Watch, counted, gaps_of, left_out
from lab.bench.rotation.cells import RANDOM, Cell
from lab.bench.rotation.judge import Gap, Row, Seen, Verdict, judge
from lab.bench.rotation.neighbours import Neighbour
from lab.bench.rotation.rotations import ROTATIONS, prepare, rotator_of
from lab.bench.rotation.writers import Nginx, Plain, Traffic, Writer, rows

SETTLE_SECS: Final = 60.0
"""After so long a cell is judged as it is."""
QUIET_SECS: Final = 2.5
"""Nothing may change for so long once every row is accounted for: a doubled one comes late."""
QUIET_MISSING_SECS: Final = 10.0
"""The same while a row is missing."""
POLL_SECS: Final = 0.5
_MAGIC: Final = b"\x1f\x8b"


class Task(msgspec.Struct, frozen=True):
    """A cell; the folder to work in, which is there; where its log is; whether to ask ``elf compare``; who
    reads the log."""

    cell: Cell
    folder: str
    logs: str
    compare: bool = False
    reader: str = "elf"


class Result(msgspec.Struct, frozen=True):
    """``error``: why the cell could not be run to its end, or shows nothing; ``left_out``: what this machine
    lacks for it."""

    name: str
    seconds: float
    verdict: Verdict | None = None
    error: str = ""
    left_out: str = ""


class LeftOut(ElfError):
    """This machine cannot do what the cell asks for."""


def run(task: Task) -> Result:
    """Run and judge a cell; what was seen is in its folder then."""
    began = time.monotonic()
    verdict, error, lacks = None, "", ""
    try:
        verdict = Run(task).run()
        Path(task.folder, "verdict.json").write_bytes(msgspec.json.format(msgspec.json.encode(verdict)))
        if task.cell.gone and not verdict.in_gaps + verdict.lost:
            error = "nothing was gone: the cell shows nothing"
    except LeftOut as raised:
        lacks = str(raised)
    except ElfError as raised:
        error = str(raised)
    return Result(task.cell.name, round(time.monotonic() - began, 1), verdict, error, lacks)


@dataclass
class Files:
    """What is in the log's folder, and what a rotation destroyed before anybody could read it."""

    folder: Path
    truth: Path
    here: set[str] = field(default_factory=set)
    ever: set[str] = field(default_factory=set)
    raced: set[str] = field(default_factory=set)

    def look(self, *, excused: bool) -> None:
        """Rows that were written, but have never been in a file at a look, are ``raced`` if excused."""
        wrote = rows(self.truth.read_bytes()).keys()  # before the files: each of these is in the log by now
        self.here = set().union(*(rows(_contents(path)) for path in _files(self.folder)))
        if excused:
            self.raced |= wrote - self.here - self.ever
        self.ever |= self.here | wrote


def _files(folder: Path) -> Iterator[Path]:
    return (path for path in folder.iterdir() if path.is_file() and not path.is_symlink())


def _contents(path: Path) -> bytes:
    """Unpacked if it is packed; nothing if it is gone."""
    try:
        data = path.read_bytes()
        return gzip.decompress(data) if data.startswith(_MAGIC) else data
    except (FileNotFoundError, EOFError, gzip.BadGzipFile, zlib.error):
        return b""


class Run:
    """The parts of one cell while it runs."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self._cell = task.cell
        self._folder = Path(task.folder)
        self._truth = self._folder / "truth.log"
        self._rotation = ROTATIONS[self._cell.rotation]
        logs = Path(task.logs)
        logs.mkdir(exist_ok=True)
        self._log = prepare(self._rotation, logs)
        self._files = Files(logs, self._truth)
        self._rotating: threading.Thread | None = None
        self._inodes = [self._log.stat().st_ino]
        self._failure: Exception | None = None
        self._agent: Beside | Neighbour

    def run(self) -> Verdict:
        """Raises ``ElfError`` when nginx, logrotate or the agent do not do what is asked of them."""
        with ended() as processes, ExitStack() as opened:
            self._writer: Writer = self._write(processes)
            opened.callback(self._writer.close)
            self._rotate_once = rotator_of(
                self._rotation, self._log, self._writer, self._cell.kept, self._folder
            )
            if self._task.reader != "elf":
                self._agent = neighbour = Neighbour(self._task.reader, processes, self._folder, self._log)
                neighbour.start()
                neighbour.ready()
                return judge(self._written(neighbour, self._play()))
            self._agent = agent = Beside(processes, self._folder, self._log.with_name(self._rotation.include))
            agent.start()
            agent.ready()
            agent.create_job()
            watch = Watch(agent)
            watch.start()
            opened.callback(watch.end)
            windows = self._settled(agent, self._play())
            return judge(self._seen(windows, self._told(agent, windows, watch)))

    def _play(self) -> int:
        """The script, while requests go on; how many there were."""
        traffic = Traffic(self._writer, self._cell.rate)
        traffic.start()
        for step in self._cell.script:
            self._do(step)
        self._rotated()
        traffic.end()
        self._check_inodes()
        return traffic.wrote

    def _written(self, neighbour: Neighbour, wrote: int) -> Seen:
        """What another reader has written when nothing comes any more; it tells of no gaps."""
        truth = self._all_written(wrote)
        began = changed = time.monotonic()
        counts, quiet = neighbour.counts(), QUIET_MISSING_SECS
        while time.monotonic() - changed < quiet and time.monotonic() - began < SETTLE_SECS:
            time.sleep(POLL_SECS)
            before, counts = counts, neighbour.counts()
            if counts != before:
                changed = time.monotonic()
            quiet = QUIET_SECS if counts.keys() >= truth.keys() else QUIET_MISSING_SECS
        away = bool({"kill", "stop"}.intersection(self._cell.script))
        return Seen(truth=truth, counts=counts, files=self._files.here, raced=self._files.raced, away=away)

    def _all_written(self, wrote: int) -> dict[str, Row]:
        self._files.look(excused=False)
        truth = rows(self._truth.read_bytes())
        if len(truth) != wrote:
            raise ElfError(f"{wrote} requests were answered, and {self._truth} has {len(truth)} lines")
        return truth

    def _write(self, processes: Processes) -> Writer:
        if self._cell.writer == "python":
            return Plain(self._log, self._truth)
        return Nginx(processes, self._folder / "nginx", self._log, self._truth)

    # -- the script ------------------------------------------------------------------------------------------

    def _do(self, step: str) -> None:
        name, _, argument = step.partition(":")
        match name:
            case "wait":
                time.sleep(float(argument))
            case "rotate":
                self._rotated()
                self._rotate()
                self._rotated()
            case "rotate&":
                self._rotated()
                self._rotating = threading.Thread(target=self._rotate)
                self._rotating.start()
            case "kill":
                self._agent.kill()
            case "start":
                self._agent.start()
            case "stop":
                self._agent.signal(signal.SIGSTOP)
            case "go":
                self._agent.signal(signal.SIGCONT)
            case "remove":
                self._files.look(excused=False)
                self._log.unlink()
            case "reopen":
                self._writer.reopen()
            case _:
                raise ElfError(f"a script has no step {step!r}")

    def _rotate(self) -> None:
        """What the rotation has destroyed is excused if the agent could not hold it open."""
        before = self._agent.alive
        try:
            self._rotate_once()
            self._inodes.append(self._log.stat().st_ino)
            blind = self._rotation.copies or not (before and self._agent.alive)
            self._files.look(excused=blind)
        except (OSError, ElfError) as error:
            self._failure = error

    def _rotated(self) -> None:
        """Returns when no rotation goes on. Raises what one has raised."""
        if self._rotating is not None:
            self._rotating.join()
            self._rotating = None
        if self._failure is not None:
            raise ElfError(f"the rotation failed: {self._failure}")

    def _check_inodes(self) -> None:
        """The second rotation while an agent is dead is to give the inode that it knows to another file."""
        dead = self._cell.script.index("start") if "start" in self._cell.script else 0
        wanted = self._rotation.reused and self._cell.script[:dead].count("rotate") > 1
        if wanted and len(set(self._inodes)) == len(self._inodes):
            raise LeftOut("the file system gives no inode a second time")

    # -- the end ---------------------------------------------------------------------------------------------

    def _settled(self, agent: Beside, wrote: int) -> list[Window]:
        """The windows when nothing changes any more."""
        self._all_written(wrote)
        began = changed = time.monotonic()
        last: list[Window] = []
        before: object = None
        while time.monotonic() - began < SETTLE_SECS:
            time.sleep(POLL_SECS)
            windows = agent.windows()
            if windows is None:
                continue
            last = windows
            now = counted(windows), gaps_in(windows)
            if now != before:
                before, changed = now, time.monotonic()
            complete = not judge(self._seen(windows, {})).lost
            if time.monotonic() - changed >= (QUIET_SECS if complete else QUIET_MISSING_SECS):
                break
        return last

    def _seen(self, windows: list[Window], told: dict[str, bool]) -> Seen:
        return Seen(
            truth=rows(self._truth.read_bytes()),
            counts=counted(windows),
            gaps=gaps_in(windows),
            files=self._files.here,
            raced=self._files.raced,
            away=bool({"kill", "stop"}.intersection(self._cell.script)),
            by_window={w.start.timestamp(): gaps_of(w.status) for w in windows if w.start is not None},
            left_out=left_out(windows),
            told=told,
            cut=self._cell.rotation.startswith("copytruncate"),
        )

    def _told(self, agent: Beside, windows: list[Window], watch: Watch) -> dict[str, bool]:
        """Whether each place tells the gaps that another one does. What an earlier life of the agent said
        over HTTP just before it was killed may not have been heard, so random cells do not ask that."""
        watch.end()
        _keep(self._folder / "windows.json", windows)
        stated, logged = gaps_in(windows), agent.logged_gaps() > 0
        told = {"status": bool(stated) or not (logged or watch.health or watch.metrics)}
        if not stated:
            return told
        told["log"] = logged
        if self._cell.row != RANDOM:
            told["health"] = stated <= watch.health
            told["metrics"] = {"elf_gaps_total", "elf_gap_bytes_total"} <= watch.metrics or (
                "elf_gaps_total" in watch.metrics and all(not gap.size for gap in stated)
            )
        if self._task.compare:
            said = agent.compared()
            (self._folder / "compare.txt").write_text(said)
            told["compare"] = "gap" in said
        return told


def gaps_in(windows: list[Window]) -> set[Gap]:
    return set().union(*(gaps_of(window.status) for window in windows)) if windows else set()


def _keep(path: Path, windows: list[Window]) -> None:
    facts = [
        {
            "start": str(window.start),
            "revision": window.revision,
            "rows": window.table.num_rows,
            **window.status,
        }
        for window in sorted(windows, key=lambda window: str(window.start))
    ]
    path.write_text("".join(json.dumps(fact, default=str) + "\n" for fact in facts))


@contextmanager
def place(folder: Path, name: str, elsewhere: Path | None) -> Iterator[tuple[Path, Path]]:
    """The folder of a cell and that of its log. Logs on another file system are in the cell's folder in the
    end."""
    here = folder / name.replace("/", "_").replace(", ", "_").replace(" ", "-")
    here.mkdir()
    logs = here / "logs"
    if elsewhere is None:
        yield here, logs
        return
    away = elsewhere / f"{folder.name}-{here.name}"
    try:
        yield here, away
    finally:
        if away.exists():
            shutil.copytree(away, logs)
            shutil.rmtree(away)
