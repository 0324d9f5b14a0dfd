"""``elf offline submit`` and what follows it: the commands of a queue, and its daemon.

All but ``serve`` read and write the queue's database alone; only ``submit`` and ``serve`` load more.
"""

from __future__ import annotations

import getpass
import json
import os
import random
import re
import secrets
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from elf.cli.printing import console, say
from elf.errors import UserError

if TYPE_CHECKING:
    from rich.table import Table

    from spark_backend.queue.store import Run, Store

POLL_SECS: Final = 0.5
_NAME: Final = re.compile(r"[A-Za-z0-9][\w.-]{0,63}")


def folder_of(queue: Path | None) -> Path:
    """Where the queue is: ``--queue``, or the user's own."""
    if queue is not None:
        return queue
    state = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    return Path(state).expanduser() / "elf" / "queue"


@dataclass(frozen=True)
class SubmitOptions:
    """The command line of ``elf offline submit``."""

    text: str | None
    file: Path | None
    archives: tuple[str, ...]
    begin: str | None
    end: str | None
    columns: tuple[str, ...]
    out: Path
    name: str | None
    production: bool
    deadline: str | None
    queue: Path


def submit(options: SubmitOptions) -> int:
    """Check all that can be checked now, and put the run into the queue. Raises ``UserError``."""
    from elf.cli.compare import check_spark
    from elf.cli.options import one_text
    from elf.cli.results import check_suffix
    from elf.cli.run import declared
    from elf.cli.spans import seconds_of, span_of
    from elf.client.files import files_of, tables_of

    text = one_text(options.text, options.file, "-q SQL and -f FILE")
    if not options.archives:
        raise UserError("give the archive to read: --archive PATH (archive.path of the agents)")
    if options.name is not None and not _NAME.fullmatch(options.name):
        raise UserError(f"--name {options.name}: letters, digits, '.', '_' and '-', at most 64 of them")
    secs = None if options.deadline is None else seconds_of(options.deadline, "--deadline")
    out = options.out.absolute()
    check_suffix(out)
    check_spark()
    span = span_of(options.begin, options.end)
    from spark_backend.queries import question
    from spark_backend.queue.store import Spec, Store

    tables, texts = tables_of(text), files_of(text)
    archives = tuple(path if "://" in path else str(Path(path).absolute()) for path in options.archives)
    columns = dict(map(declared, options.columns))
    asked = question(text, archives, span, columns=columns, tables=tables, texts=texts)
    if asked.explain:
        raise UserError("a run answers a SELECT; elf offline run --explain shows a plan")
    spec = Spec(text, archives, span, {one.stream: one.schema for one in asked.streams}, tables, texts)
    store, now = Store(options.queue, create=True), now_ms()
    run = store.submit(
        options.name or f"run-{secrets.token_hex(3)}",
        spec,
        out,
        owner=getpass.getuser(),
        production=options.production,
        deadline_ms=None if secs is None else now + secs * 1_000,
        now_ms=now,
    )
    print(run.name)
    _say_if_unserved(options.queue)
    return 0


def now_ms() -> int:
    """The time, ms since the epoch."""
    return time.time_ns() // 1_000_000


def ask(folder: Path, names: Sequence[str], what: str) -> int:
    """Ask the daemon to suspend, resume or cancel runs. Raises ``UserError``."""
    store = _opened(folder)
    for name in names:
        store.ask(name, what)
    _say_if_unserved(folder)
    return 0


def show(folder: Path, *, as_json: bool, watch: bool, every: bool) -> int:
    """Print the queue: what is not over, or ``every`` run. Raises ``UserError``."""
    if as_json and watch:
        raise UserError("give --json or --watch, not both")
    store = _opened(folder)
    runs = store.runs(over=every)
    if as_json:
        for run in runs:
            print(json.dumps(facts(run)))
        return 0
    if not all(run.over for run in runs):
        _say_if_unserved(folder)
    if watch:
        _live(lambda: store.runs(over=every))
    else:
        console(sys.stdout).print(_table(runs, now_ms()))
    return 0


def wait(folder: Path, names: Sequence[str]) -> int:
    """Wait until these runs are over; 1 when one is not done. Raises ``UserError``."""
    store = _opened(folder)
    if not all(store.run(name).over for name in names):
        _say_if_unserved(folder)
    _live(lambda: [store.run(name) for name in names])
    runs = [store.run(name) for name in names]
    for run in runs:
        match run.state:
            case "done":
                say(f"elf: {run.name} is done: its rows are in {run.out}")
            case "failed":
                say(f"elf: {run.name} has failed: {run.why}")
            case state:
                say(f"elf: {run.name} is {state}")
    return 0 if all(run.state == "done" for run in runs) else 1


def facts(run: Run) -> dict[str, object]:
    """A run as JSON."""
    return {
        "run": run.name,
        "owner": run.owner,
        "priority": "production" if run.production else "research",
        "state": run.state,
        "asked": run.asked or None,
        "progress": round(run.progress, 4),
        "remaining_s": None if run.remaining_ms is None else round(run.remaining_ms / 1e3, 1),
        "deadline": None if run.deadline_ms is None else run.deadline_ms / 1e3,
        "submitted": run.submitted_ms / 1e3,
        "ended": None if run.ended_ms is None else run.ended_ms / 1e3,
        "containers": run.containers,
        "suspends": run.suspends,
        "out": run.out,
        "why": run.why or None,
    }


def _opened(folder: Path) -> Store:
    from spark_backend.queue.store import Store

    return Store(folder)


def _say_if_unserved(folder: Path) -> None:
    """Where no daemon is at work, say so."""
    import fcntl

    try:
        with (folder / "serve.lock").open("r") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        pass
    except OSError:
        return
    say(f"elf: nobody serves {folder}: start elf offline serve")


def _live(look: Callable[[], Sequence[Run]]) -> None:
    """Show runs until they are over: live in a terminal."""
    from rich.live import Live

    if not sys.stdout.isatty():
        while not all(run.over for run in look()):
            time.sleep(POLL_SECS)
        return
    with Live(console=console(sys.stdout), auto_refresh=False) as live:
        while True:
            runs = look()
            live.update(_table(runs, now_ms()), refresh=True)
            if all(run.over for run in runs):
                return
            time.sleep(POLL_SECS)


def _table(runs: Sequence[Run], now: int) -> Table:
    from rich.table import Table

    table = Table(
        "run", "priority", "state", "done", "remaining", "deadline", "containers", "gave way", "owner"
    )
    for run in runs:
        state = f"{run.state}, to {run.asked}" if run.asked else run.state
        table.add_row(
            run.name,
            "production" if run.production else "research",
            f"{state}: {run.why}" if run.why else state,
            f"{run.progress:.0%}",
            _length(run.remaining_ms) if run.containers else "",
            "" if run.deadline_ms is None else _length(run.deadline_ms - (run.ended_ms or now)),
            str(run.containers),
            str(run.suspends),
            run.owner,
        )
    return table


def _length(ms: int | None) -> str:
    if ms is None:
        return ""
    sign, secs = "-" if ms < 0 else "", abs(ms) // 1_000
    hours, minutes = secs // 3_600, secs // 60 % 60
    return f"{sign}{hours}h{minutes:02}m" if hours else f"{sign}{minutes}m{secs % 60:02}s"


# -- the daemon ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ServeOptions:
    """The command line of ``elf offline serve``."""

    queue: Path
    master: str
    conf: tuple[str, ...]
    slots: int | None
    evict_runs: str
    evict_tasks: str
    select: str | None
    geoip: tuple[str, ...]
    until_idle: bool


def serve(options: ServeOptions) -> int:
    """Serve a queue until it is asked to stop. Raises ``UserError``."""
    import logging

    from elf.cli.compare import check_spark
    from elf.cli.offline_run import setting
    from elf.cli.results import write_result

    check_spark()
    from agents.lookups import LOOKUPS
    from spark_backend import session
    from spark_backend.queue.policies import Policies, RunEviction, Selection, TaskEviction
    from spark_backend.queue.serve import FAIR, Daemon, alone
    from spark_backend.queue.store import Store

    select = None if options.select is None else Selection(options.select)
    policies = Policies(RunEviction(options.evict_runs), TaskEviction(options.evict_tasks), select)
    conf = {**FAIR, **dict(map(setting, options.conf))}
    logging.disable(logging.ERROR)
    LOOKUPS.open(options.geoip)
    stop = threading.Event()
    with alone(options.queue):
        store = Store(options.queue, create=True)
        with session.opened(options.master, progress=False, conf=conf) as spark:
            slots = options.slots or spark.sparkContext.defaultParallelism
            for number in (signal.SIGINT, signal.SIGTERM):
                signal.signal(number, lambda *_: stop.set())
            say(f"elf: serving {options.queue} with {slots} containers on {options.master}")
            daemon = Daemon(
                store,
                spark,
                slots,
                policies,
                random.Random().randrange,
                now_ms,
                write_result,
                lambda line: say(f"elf: {line}"),
            )
            daemon.run(stop, until_idle=options.until_idle)
        store.close()
    return 0
