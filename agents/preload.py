"""Many agents on one machine: everything is imported once, and each agent is a fork of that.

``python -m agents.preload`` takes orders from its standard input and tells on its standard output what became
of them, one JSON object a line:

    {"name": "web-1", "config": "/…/elf.yaml", "log": "/…/agent.log"}             start an agent
    {"event": "started", "name": "web-1", "pid": 4711, "at": 1767225600.25}
    {"event": "listening", "name": "web-1", "address": "127.0.0.1:7071", "http": "127.0.0.1:7072"}
    {"event": "ended", "name": "web-1", "status": 0}

An order may name others that are to share that process, by their configurations (``"beside": {"web-2":
"/…"}``); what becomes of each is told by its name.

Each is a whole ``elf-agent`` process, with its own configuration, data folder, sockets and log; what they
share is memory that nobody writes. ``at`` is the clock's time just before the fork.

Rules: a fork copies one thread only, so nothing that has threads may exist before it (looked at each time).
All agents end with this process, by their ids: on SIGTERM, on SIGINT, and when standard input ends, so also
when whoever gave the orders was killed. (``multiprocessing``'s fork server would leave them behind then.)
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import selectors
import signal
import sys
import time
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn

import msgspec

from agents.main import ended, spare
from elf.errors import ElfBug

if TYPE_CHECKING:
    from agents.process import Listening

STOP_SECS: Final = 6.0
"""An agent that was asked to stop is killed after so long."""
_ENDING: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_HANDLED: Final = (*_ENDING, signal.SIGCHLD)
_POLL_SECS: Final = 0.02


class Order(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Start this agent, in one process with those ``beside`` it."""

    name: str
    config: str
    log: str
    beside: dict[str, str] = {}

    @property
    def names(self) -> tuple[str, ...]:
        return (self.name, *self.beside)


@dataclass
class _Running:
    names: tuple[str, ...]
    pid: int


class Preload:
    """See the module's docstring."""

    def __init__(self) -> None:
        self._agents: dict[int, _Running] = {}
        self._orders = b""
        self._signals, self._wakeup = os.pipe()
        os.set_blocking(self._signals, False)
        os.set_blocking(self._wakeup, False)
        self._ending = False
        for number in _HANDLED:
            signal.signal(number, self._signalled)
        signal.set_wakeup_fd(self._wakeup)

    def _signalled(self, number: int, _frame: object) -> None:
        self._ending |= number in _ENDING

    def run(self) -> None:
        """Take orders until there are none to come, then end all agents."""
        with selectors.DefaultSelector() as ready:
            ready.register(sys.stdin.fileno(), selectors.EVENT_READ)
            ready.register(self._signals, selectors.EVENT_READ)
            while not self._ending:
                for key, _ in ready.select():
                    self._listen() if key.fd == sys.stdin.fileno() else self._drain()
                self._reap()
        self._end()

    def _drain(self) -> None:
        os.read(self._signals, 4096)

    def _listen(self) -> None:
        data = os.read(sys.stdin.fileno(), 1 << 16)
        self._ending |= not data
        *lines, self._orders = (self._orders + data).split(b"\n")
        for line in lines:
            self._start(msgspec.json.decode(line, type=Order))

    def _start(self, order: Order) -> None:
        threads = len(list(Path("/proc/self/task").iterdir())) if Path("/proc/self/task").exists() else 1
        if threads > 1:
            raise ElfBug(f"{threads} threads before a fork: something that was imported has started them")
        at = time.time()
        signal.pthread_sigmask(signal.SIG_BLOCK, _HANDLED)
        pid = os.fork()
        if pid == 0:
            self._be(order)
        self._agents[pid] = _Running(order.names, pid)
        for name in order.names:
            _tell("started", name, pid=pid, at=at)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _HANDLED)

    def _be(self, order: Order) -> NoReturn:
        """In the child: become that agent, and never come back."""
        status = 1
        try:
            signal.set_wakeup_fd(-1)
            for number in _HANDLED:
                signal.signal(number, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _HANDLED)
            os.close(self._signals)
            os.close(self._wakeup)
            told = os.dup(1)
            _redirect(order.log)

            def listening(which: int, address: str, http: str | None) -> None:
                _tell("listening", order.names[which], to=told, address=address, http=http)

            status = ended(lambda: _run(order, listening))
            sys.stdout.flush()
            sys.stderr.flush()
        except Exception:
            traceback.print_exc()
        finally:
            os._exit(status)

    def _reap(self) -> None:
        for running in list(self._agents.values()):
            pid, status = os.waitpid(running.pid, os.WNOHANG)
            if pid:
                del self._agents[pid]
                for name in running.names:
                    _tell("ended", name, status=os.waitstatus_to_exitcode(status))

    def _end(self) -> None:
        """Ask all to stop, and kill those that don't."""
        for running in self._agents.values():
            os.kill(running.pid, signal.SIGTERM)
        deadline = time.monotonic() + STOP_SECS
        while self._agents and time.monotonic() < deadline:
            self._reap()
            time.sleep(_POLL_SECS)
        for running in self._agents.values():
            os.kill(running.pid, signal.SIGKILL)
            os.waitpid(running.pid, 0)


def _run(order: Order, listening: Listening) -> int:
    from agents.loading import load
    from agents.process import run_agents

    files = (order.config, *order.beside.values())
    return run_agents([load(Path(file)) for file in files], listening)


def _redirect(log: str) -> None:
    """Standard output and error to the agent's log, standard input from nowhere."""
    nowhere = os.open(os.devnull, os.O_RDONLY)
    out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    for old, new in ((nowhere, 0), (out, 1), (out, 2)):
        os.dup2(old, new)
    os.close(nowhere)
    os.close(out)


def _tell(event: str, name: str, *, to: int = 1, **facts: object) -> None:
    """A line, in one piece however many agents write theirs. Nobody may be there to read it any more."""
    line = json.dumps({"event": event, "name": name, **facts}) + "\n"
    with contextlib.suppress(BrokenPipeError):
        os.write(to, line.encode())


def _prepare_everything() -> None:
    """All that an agent imports, at its start, at its first line, statement, window and function: what it had
    to import by itself would take half a second of CPU, of each agent. And DuckDB, opened: it has no thread,
    and its forks share nothing but memory that they copy when they write."""
    import h11  # noqa: F401
    import numpy.ma  # noqa: F401
    import pyarrow.parquet  # noqa: F401
    import uvicorn.lifespan.off
    import uvicorn.protocols.http.h11_impl  # noqa: F401

    import agents.process
    import agents.tasks.direct
    import agents.tasks.finishing
    import agents.tasks.mapping  # noqa: F401
    import elf.ql.conditions
    import elf.ql.groups
    import elf.ql.jobs
    import elf.ql.looks
    import elf.ql.planner
    import elf.ql.prepared
    import elf.ql.signed
    import elf.ql.since
    import elf.ql.statements
    import elf.ql.user_functions  # noqa: F401

    _rehearse()


def _rehearse() -> None:
    """What each agent would find out, compile or load for itself, for its settings and for its first line."""
    import pyarrow as pa

    from agents.codec import CODEC
    from agents.formats import get_format
    from agents.loading import load
    from agents.tasks.engine import SqlExtractor
    from agents.tasks.extracting import Extractor
    from elf.job.ports import Wanted

    CODEC.prepare()
    load(None, {})
    time.strptime("2026", "%Y")  # its module is imported with the first call
    line = '{"ts": "2026-01-01T00:00:00Z"}'
    for extractor in (
        Extractor(get_format("json"), "ts", Wanted()),
        SqlExtractor(get_format("json"), "ts", Wanted()),
    ):
        extractor.extract(pa.array([line]))
        extractor.close()


def main() -> None:
    """Entry point."""
    spare()
    _prepare_everything()
    gc.collect()
    gc.freeze()  # else the first collection of each agent would write, and so copy, all of it
    status = 1
    try:
        Preload().run()
        status = 0
    except Exception:
        traceback.print_exc()
    os._exit(status)  # at once: nothing was opened, and DuckDB would complain about what nobody let go


if __name__ == "__main__":
    main()
