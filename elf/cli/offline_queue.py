"""``elf offline submit`` and what follows it: the commands of a queue, and its daemon.

All but ``serve`` read and write the queue's database alone; only what submits, and ``serve``, load more.
Schedules are in ``elf.cli.offline_schedule``.
"""

from __future__ import annotations

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

from elf.cli.options import ArchiveQuery
from elf.cli.printing import console, say
from elf.errors import UserError

if TYPE_CHECKING:
    from rich.table import Table

    from elf.client import CompareFacts
    from elf.security.folder import Keys
    from spark_backend.queue.rights import Author, Rights
    from spark_backend.queue.schedules import Asked
    from spark_backend.queue.store import Check, Run, Spec, Store

POLL_SECS: Final = 0.5
_NAME: Final = re.compile(r"[A-Za-z0-9][\w.-]{0,63}")
_OF_SCHEDULE: Final = re.compile(r"-\d{8}T\d{4}$")
"""How the names of the runs of schedules end."""


def folder_of(queue: Path | None) -> Path:
    """Where the queue is: ``--queue``, or the user's own."""
    if queue is not None:
        return queue
    state = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    return Path(state).expanduser() / "elf" / "queue"


@dataclass(frozen=True)
class Wanted:
    """What a run is to answer, as it was typed: a query over archives, or a job's windows to be checked."""

    query: ArchiveQuery
    job: str | None
    windows: int | None
    connect: str
    cluster: str
    follow: bool = False

    def asked(self) -> Asked:
        """With the files that it names. Raises ``UserError``."""
        from elf.cli.compare import check_spark
        from elf.cli.run import declared
        from elf.client.files import files_of, tables_of
        from spark_backend.queue.schedules import Asked

        check_spark()
        query = self.query
        if self.job is not None:
            if query.text is not None or query.file is not None or query.archives or query.columns:
                raise UserError(
                    "a job has its query and its archives: leave out -q, -f, --archive and --column, or "
                    "--compare"
                )
            return Asked(
                begin=query.begin,
                end=query.end,
                job=self.job,
                connect=self.connect,
                cluster=self.cluster,
                windows=self.windows,
                follow=self.follow,
            )
        if self.windows is not None or self.follow:
            raise UserError("--windows and --follow go with --compare")
        text = query.sql("-q SQL, -f FILE and --compare JOB")
        return Asked(
            text,
            tuple(path if "://" in path else str(Path(path).absolute()) for path in query.archives),
            query.begin,
            query.end,
            dict(map(declared, query.columns)),
            tables_of(text),
            files_of(text),
        )


def specified(asked: Asked, at_ms: int) -> Spec:
    """What is asked for, as it is meant at a moment: the query is planned. Raises ``ElfError``."""
    from elf.cli.spans import span_of
    from spark_backend.queries import question
    from spark_backend.queue.store import Check, Spec

    span = span_of(asked.begin, asked.end, at_ms * 1_000)
    if asked.job:
        check = Check(asked.job, asked.connect, asked.cluster, asked.windows, span, asked.follow)
        return Spec("", (), check=check)
    found = question(
        asked.text, asked.archives, span, columns=asked.columns, tables=asked.tables, texts=asked.texts
    )
    if found.explain:
        raise UserError("a run answers a SELECT; elf offline run --explain shows a plan")
    schemas = {one.stream: one.schema for one in found.streams}
    return Spec(asked.text, asked.archives, span, schemas, asked.tables, asked.texts)


def author_of(rights: Rights, creator: str | None) -> Author:
    """Who gives a command to a queue: in one that is signed whoever has the keys. Raises ``UserError``."""
    from elf.client import user_name
    from elf.security.loopback import own_folder
    from spark_backend.queue.rights import Author

    if not rights.signed:
        return Author(creator or user_name())
    from elf.security.folder import IDENTITY_FILE, load

    folder = Path(os.environ.get("ELF_KEYS") or own_folder())
    if not (folder / IDENTITY_FILE).exists():
        return Author(creator or user_name())
    keys = load(folder)
    return Author(keys.certificate.name, keys)


def check_name(name: str, option: str) -> None:
    """Raises ``UserError``."""
    if not _NAME.fullmatch(name):
        raise UserError(f"{option} {name}: letters, digits, '.', '_' and '-', at most 64 of them")


@dataclass(frozen=True)
class SubmitOptions:
    """The command line of ``elf offline submit``."""

    wanted: Wanted
    out: Path
    name: str | None
    production: bool
    deadline: str | None
    queue: Path
    creator: str | None


def submit(options: SubmitOptions) -> int:
    """Check all that can be checked now, and put the run into the queue. Raises ``UserError``."""
    from elf.cli.results import check_suffix
    from elf.cli.spans import seconds_of

    asked = options.wanted.asked()
    if options.name is not None:
        check_name(options.name, "--name")
        if _OF_SCHEDULE.search(options.name):
            raise UserError(f"--name {options.name}: only runs of schedules are called after a moment")
    secs = None if options.deadline is None else seconds_of(options.deadline, "--deadline")
    out = options.out.absolute()
    check_suffix(out)
    now = now_ms()
    spec = specified(asked, now)
    from spark_backend.queue.rights import Rights, roles_of, signed_run
    from spark_backend.queue.store import Store

    store = Store(options.queue, create=True)
    rights = Rights.of(store)
    by = author_of(rights, options.creator)
    rights.check_author(by, roles_of(spec.text, spec.texts, spec.check is not None))
    name = options.name or f"run-{secrets.token_hex(3)}"
    deadline_ms = None if secs is None else now + secs * 1_000
    run = store.submit(
        name,
        spec,
        out,
        owner=by.name,
        production=options.production,
        deadline_ms=deadline_ms,
        now_ms=now,
        said=by.say("submit", *signed_run(name, spec, str(out), options.production, deadline_ms)),
        within=lambda waiting: rights.quotas.refused(by.name, spec, options.production, waiting),
    )
    print(run.name)
    say_if_unserved(options.queue)
    return 0


def now_ms() -> int:
    """The time, ms since the epoch."""
    return time.time_ns() // 1_000_000


def ask(folder: Path, names: Sequence[str], what: str, creator: str | None) -> int:
    """Ask the daemon to suspend, resume or cancel runs; all of them, or none. Raises ``UserError``."""
    from spark_backend.queue.rights import Rights

    store = opened(folder)
    rights = Rights.of(store)
    by = author_of(rights, creator)
    for run in [store.run(name) for name in names]:
        rights.check_owner(by, what, run.owner, run.name)
    for name in names:
        run = store.run(name)
        store.ask(name, what, by.say(what, run.number, run.name))
    say_if_unserved(folder)
    return 0


def show(folder: Path, *, as_json: bool, watch: bool, every: bool) -> int:
    """Print the queue: what is not over, or ``every`` run. Raises ``UserError``."""
    if as_json and watch:
        raise UserError("give --json or --watch, not both")
    store = opened(folder)
    runs = store.runs(over=every)
    if as_json:
        for run in runs:
            print(json.dumps(facts(run)))
        return 0
    if not all(run.over for run in runs):
        say_if_unserved(folder)
    if watch:
        _live(lambda: store.runs(over=every))
    else:
        console(sys.stdout).print(_table(runs, now_ms()))
    return 0


def wait(folder: Path, names: Sequence[str]) -> int:
    """Wait until these runs are over; 1 when one is not done. Raises ``UserError``."""
    store = opened(folder)
    if not all(store.run(name).over for name in names):
        say_if_unserved(folder)
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
        "schedule": run.schedule or None,
    }


def opened(folder: Path) -> Store:
    from spark_backend.queue.store import Store

    return Store(folder)


def say_if_unserved(folder: Path) -> None:
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
    signed: bool
    quotas: tuple[str, ...]


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
    from spark_backend.queue.rights import Quotas, Rights
    from spark_backend.queue.schedules import Scheduler
    from spark_backend.queue.serve import FAIR, Daemon, alone
    from spark_backend.queue.store import Store

    select = None if options.select is None else Selection(options.select)
    policies = Policies(RunEviction(options.evict_runs), TaskEviction(options.evict_tasks), select)
    conf = {**FAIR, **dict(map(setting, options.conf))}
    quotas, keys = Quotas.of(options.quotas), _keys() if options.signed else None
    logging.disable(logging.ERROR)
    LOOKUPS.open(options.geoip)
    stop = threading.Event()
    with alone(options.queue):
        store = Store(options.queue, create=True)
        rights = Rights.fix(store, quotas, keys)
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
                _facts,
                rights,
            )
            scheduler = Scheduler(store, specified, lambda line: say(f"elf: {line}"), rights.refused_schedule)
            daemon.run(stop, before=scheduler.tick, until_idle=options.until_idle)
        store.close()
    return 0


def _keys() -> Keys:
    """Those of the cluster whose persons may use the queue. Raises ``UserError``."""
    from elf.security.folder import IDENTITY_FILE, load
    from elf.security.loopback import own_folder

    folder = Path(os.environ.get("ELF_KEYS") or own_folder())
    if not (folder / IDENTITY_FILE).exists():
        raise UserError(
            f"--signed: {folder} has no keys of a cluster: --keys names a folder of an agent's or a person's "
            "(elf keys enrol)"
        )
    return load(folder)


def _facts(check: Check) -> CompareFacts:
    from elf.cli.compare import Fleet

    begin = None if check.span is None else check.span[0]
    return Fleet(check.connect, check.cluster, check.job).facts(begin)
