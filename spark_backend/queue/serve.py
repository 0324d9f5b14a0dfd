"""The daemon of a queue: manager, masters and the store around one Spark.

It looks at the database once a second, and whenever a task has something to tell. A container is a thread
that gives Spark one job at a time, in the pool of its run; a task tells how far it is after each input, which
is its safe point: its partial states are on disk and in the database before the next one begins. So a daemon
that is killed loses only the inputs in hand, and the next one goes on behind them.

Spark shares its cores among the pools of runs (FAIR), and never takes one back from a task. What takes back
is here: small tasks, the preemptor, checkpoints; and, for a task that does not give way in 12 s, Spark's own
cancelling of a job group.
"""

from __future__ import annotations

import fcntl
import os
import socket
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pyarrow as pa
from pyspark.sql import SparkSession

from elf.batch import decode, encode
from elf.errors import ElfBug, ElfError, UserError
from spark_backend.queue.attempts import Checkpoint
from spark_backend.queue.checks import AskFleet, CheckWork, complaint, remembered
from spark_backend.queue.manager import HEARTBEAT_MS, Container, Manager
from spark_backend.queue.master import Launch, Master, Task
from spark_backend.queue.policies import Draw, Policies
from spark_backend.queue.progress import Rate
from spark_backend.queue.rights import Quotas, Rights
from spark_backend.queue.schedules import Schedules
from spark_backend.queue.store import Check, Run, Spec, Store
from spark_backend.queue.work import Work

TASK_INPUTS_MAX: Final = 16
"""Files of a task, at most."""
TASKS_A_SLOT: Final = 2
"""Tasks that a run has for each container of the cluster, where it has so many files."""
LIVE_MAX: Final = 64
"""Runs that have tasks at a time; others wait for them, production before research."""
FAIR: Final[Mapping[str, str]] = {"spark.scheduler.mode": "FAIR"}
"""What the daemon's Spark must be opened with."""

Write = Callable[[pa.Table, Path], None]
"""Puts rows into a file, whole or not at all. Raises ``UserError``."""


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """One daemon a queue. Raises ``UserError`` when there is one."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with (folder / "serve.lock").open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            file.seek(0)
            raise UserError(f"{folder} is served by process {file.read().strip()} already") from None
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield


@dataclass
class _Live:
    """A run that the daemon works on."""

    number: int
    name: str
    work: Work | CheckWork
    master: Master
    inputs: list[list[bytes]]
    rate: Rate
    began_ms: int
    deadline_ms: int | None
    out: Path
    cancelled: bool = False
    suspends: int = 0
    finishing: bool = False
    killed: set[str] = field(default_factory=set)
    shown: dict[str, object] = field(default_factory=dict)
    check: Check | None = None
    schedule: str = ""

    def place(self, task: str) -> int:
        return int(task.rpartition("/")[2])


class Daemon:
    """Serves one queue. ``tick`` once a second, or ``run``.

    Args:
        store (Store): the queue.
        spark (SparkSession): opened with ``FAIR``.
        slots (int): containers; as many as Spark has cores.
        policies (Policies): who gives way.
        draw (Draw): chance.
        clock_ms (Callable[[], int]): the time, ms since the epoch.
        write (Write): how results are written.
        tell (Callable[[str], None]): is told what happens to runs, a line each.
        ask_fleet (AskFleet): asks fleets for the windows that are checked.
        rights (Rights | None): who may have which runs; None: everybody all.

    Example:
        >>> daemon = Daemon(store, spark, 2, Policies(), lambda n: 0, lambda: 0, write, print, ask)
        >>> daemon.tick()
        >>> daemon.idle
        True
    """

    def __init__(
        self,
        store: Store,
        spark: SparkSession,
        slots: int,
        policies: Policies,
        draw: Draw,
        clock_ms: Callable[[], int],
        write: Write,
        tell: Callable[[str], None],
        ask_fleet: AskFleet,
        rights: Rights | None = None,
    ) -> None:
        self._ask_fleet, self._rights = ask_fleet, rights or Rights(store, Quotas())
        self._store, self._spark, self._policies, self._draw = store, spark, policies, draw
        self._clock_ms, self._write, self._tell = clock_ms, write, tell
        self._host = socket.gethostname()
        self._manager = Manager({self._host: slots}, policies, draw)
        self._live: dict[str, _Live] = {}
        self._lock = threading.RLock()
        self.news = threading.Event()
        """Set when a thread has something to tell."""
        self._pool = ThreadPoolExecutor(slots, thread_name_prefix="container")
        self._ends = ThreadPoolExecutor(1, thread_name_prefix="commit")
        self._preempted_ms = 0
        self._bug: BaseException | None = None

    @property
    def idle(self) -> bool:
        """Whether there is nothing to do now: all runs are over, or suspended."""
        with self._lock:
            busy = any(one.master.running() for one in self._live.values())
            waiting = self._store.runs(over=False)
            return not busy and all(run.state == "suspended" and not run.asked for run in waiting)

    def run(self, stop: threading.Event, *, before: Callable[[int], None], until_idle: bool = False) -> None:
        """Serve until ``stop`` is set, or until there is nothing to do. ``before`` is called with the
        time in ms before each look. Raises ``ElfBug``."""
        try:
            while not stop.is_set():
                before(self._clock_ms())
                self.tick()
                if until_idle and self.idle:
                    return
                self.news.wait(HEARTBEAT_MS / 1e3)
                self.news.clear()
        finally:
            self.close()

    def close(self) -> None:
        """Stop at once: what is in hand is lost, all else is on disk."""
        with self._lock:
            for live in self._live.values():
                live.cancelled = True
                for attempt in live.master.running():
                    self._cancel(attempt)
        self._pool.shutdown(wait=True, cancel_futures=True)
        self._ends.shutdown(wait=True)

    def tick(self) -> None:
        """Do what is to be done now. Raises ``ElfBug`` for what went wrong in a thread of ours."""
        if self._bug is not None:
            raise ElfBug(f"the queue: {self._bug!r}") from self._bug
        with self._lock:
            now_ms = self._clock_ms()
            for run in sorted(self._store.runs(over=False), key=lambda run: not run.production):
                if run.asked or run.name in self._live or len(self._live) < LIVE_MAX:
                    self._look(run, now_ms)
            if now_ms - self._preempted_ms >= HEARTBEAT_MS:
                self._preempted_ms = now_ms
                for live in self._live.values():
                    live.master.estimate()
                for container in self._manager.preempt(now_ms):
                    self._kill(container)
            self._heartbeats()
            self._manager.assign(now_ms)
            self._heartbeats()
            self._manager.check()
            for live in list(self._live.values()):
                self._show(live, now_ms)
                self._end(live, now_ms)

    # -- runs ------------------------------------------------------------------------------------------------

    def _look(self, run: Run, now_ms: int) -> None:
        """What its user asks for."""
        if run.asked and (why := self._rights.refused_change(run, now_ms / 1e3)):
            self._store.answer(run)
            self._tell(f"{run.name} was not to {run.asked}: {why}")
            return
        if run.asked == "cancel":
            self._cancel_run(run, now_ms)
            return
        if run.asked == "suspend":
            self._store.answer(run, state="suspended")
            if (live := self._live.get(run.name)) is not None:
                live.master.hold()
            self._tell(f"{run.name} is suspended")
            return
        if run.asked == "resume":
            self._store.answer(run, state="waiting", why="", ended_ms=None)
            if (live := self._live.get(run.name)) is not None:
                self._store.update(run.number, state="running")
                live.master.go_on()
                self._tell(f"{run.name} goes on")
        elif run.state == "suspended":
            return
        if run.name not in self._live:
            self._start(run, now_ms)

    def _start(self, run: Run, now_ms: int) -> None:
        try:
            spec, inputs = self._store.spec(run.number), self._store.tasks(run.number)
            if why := self._rights.refused(run, spec, now_ms / 1e3, begun=bool(inputs)):
                self._fail(run.number, run.name, why, now_ms)
                return
            work = self._work(run, spec)
            if not inputs:
                inputs = tasks_of(work.inputs(), sum(self._manager.slots.values()))
                self._store.plan(run.number, inputs)
            else:
                self._store.update(run.number, state="running")
        except ElfError as error:
            self._fail(run.number, run.name, str(error), now_ms)
            return
        tasks = [
            Task(f"{run.name}/{place}", tuple(map(str, range(len(some)))), work.divisible)
            for place, some in enumerate(inputs)
        ]
        begun: dict[str, list[str]] = {task.name: [] for task in tasks}
        for place, _, attempt in self._store.outputs(run.number):
            begun[f"{run.name}/{place}"].append(attempt)
        checkpoints = {
            task.name: Checkpoint(tuple(dict.fromkeys(had)), len(had), task.inputs, self._host)
            for task in tasks
            if (had := begun[task.name])
        }
        done = [task.name for task in tasks if len(begun[task.name]) == len(task.inputs)]
        numbers = dict(zip(begun, self._store.attempts(run.number), strict=True))
        master = Master(run.name, tasks, self._policies.tasks, self._draw, checkpoints, done, numbers)
        rate = Rate(now_ms, master.progress())
        self._live[run.name] = _Live(
            run.number, run.name, work, master, inputs, rate, run.submitted_ms, run.deadline_ms,
            Path(run.out), suspends=run.suspends, check=spec.check, schedule=run.schedule,
        )  # fmt: skip
        self._manager.submit(run.name, production=run.production, deadline_ms=run.deadline_ms)
        ended, whole = sum(map(len, begun.values())), sum(map(len, inputs))
        self._tell(f"{run.name} {'goes on' if ended else 'begins'}: {ended} of {whole} inputs done")

    def _work(self, run: Run, spec: Spec) -> Work | CheckWork:
        if spec.check is None:
            return Work(self._spark, spec)
        judged = Schedules(self._store).judged(run.schedule)
        return CheckWork(self._spark, spec.check, self._ask_fleet, judged)

    def _cancel_run(self, run: Run, now_ms: int) -> None:
        live = self._live.get(run.name)
        if live is not None:
            live.cancelled = True
            for attempt in live.master.running():
                self._cancel(attempt)
            if live.finishing or live.master.running():
                return  # when its tasks have ended
            self._forget(live)
        self._store.update(run.number, state="cancelled", asked="", ended_ms=now_ms, containers=0)
        self._store.drop(run.number)
        self._tell(f"{run.name} is cancelled")

    def _forget(self, live: _Live) -> None:
        del self._live[live.name]
        self._manager.leave(live.name)

    def _fail(self, number: int, name: str, why: str, now_ms: int) -> None:
        self._store.update(number, state="failed", why=why, ended_ms=now_ms, containers=0, asked="")
        self._tell(f"{name} has failed: {why}")

    def _show(self, live: _Live, now_ms: int) -> None:
        """Progress and remaining time, for whoever looks."""
        progress = live.master.progress()
        live.rate.seen(now_ms, progress)
        left = live.rate.remaining_ms
        shown: dict[str, object] = {
            "progress": progress,
            "remaining_ms": round(left) if left < 1e15 else None,
            "containers": len(live.master.running()),
            "suspends": live.suspends,
        }
        if shown != live.shown:
            live.shown = shown
            self._store.update(live.number, **shown)

    def _end(self, live: _Live, now_ms: int) -> None:
        if live.cancelled or live.finishing:
            return
        if live.master.failed is not None and not live.master.running():
            self._forget(live)
            self._fail(live.number, live.name, live.master.failed, now_ms)
        elif live.master.done:
            live.finishing = True
            self._store.update(live.number, state="committing")
            self._ends.submit(self._guarded, self._commit, live)
        elif live.master.held_back and not live.master.running():
            self._forget(live)  # all that it has done is on disk; the next one may have its place

    def _commit(self, live: _Live) -> None:
        why = None
        try:
            outputs = self._store.outputs(live.number)
            paths = (self._store.path(live.number, *one) for one in outputs)
            rows = live.work.result(decode(path.read_bytes()) for path in paths)
            follows = live.check is not None and live.check.follow
            if not live.cancelled and (rows.num_rows or not follows):
                self._write(rows, live.out)
            if follows and not live.cancelled:
                Schedules(self._store).remember(live.schedule, live.number, remembered(rows))
            if live.check is not None and (wrong := complaint(rows)):
                why = f"{wrong}: {live.out} has all verdicts"
                if not follows:  # who resumes it has it judged anew; one that follows says the same again
                    self._store.drop(live.number)
        except (ElfError, OSError) as error:
            why = str(error)
        with self._lock:
            now_ms = self._clock_ms()
            live.finishing = False
            if live.cancelled:
                return
            self._forget(live)
            if why is not None:
                self._fail(live.number, live.name, why, now_ms)
                return
            self._store.update(
                live.number,
                state="done",
                progress=1.0,
                remaining_ms=0,
                containers=0,
                asked="",
                ended_ms=now_ms,
            )
            self._store.drop(live.number)
            nothing = follows and not rows.num_rows
            where = "no window was due" if nothing else f"{rows.num_rows:,} rows are in {live.out}"
            self._tell(f"{live.name} is done: {where}")

    # -- messages --------------------------------------------------------------------------------------------

    def _heartbeats(self) -> None:
        for live in self._live.values():
            master = live.master
            projected = master.projected_ms(live.began_ms, self._clock_ms())
            laxity = float("inf") if live.deadline_ms is None else live.deadline_ms - projected
            reply = self._manager.heartbeat(
                live.name, master.requests(), laxity_ms=laxity, suspending=master.suspending()
            )
            launches, unused = master.told(reply)
            self._manager.freed(live.name, [one.name for one in unused], self._clock_ms())
            for launch in launches:
                self._store.begin(
                    live.number, live.place(launch.task), int(launch.attempt.rpartition(".")[2])
                )
                self._pool.submit(self._guarded, self._attempt, live, launch)

    def _kill(self, container: Container) -> None:
        for live in self._live.values():
            if container.request.attempt in live.master.running():
                live.killed.add(container.request.attempt)
                self._cancel(container.request.attempt)

    def _cancel(self, attempt: str) -> None:
        self._spark.sparkContext.cancelJobGroup(attempt)

    def _guarded(self, do: Callable[..., None], *args: object) -> None:
        try:
            do(*args)
        except BaseException as error:
            traceback.print_exc()
            self._bug = error
        finally:
            self.news.set()

    # -- tasks -----------------------------------------------------------------------------------------------

    def _attempt(self, live: _Live, launch: Launch) -> None:
        """One attempt, in a thread of its own."""
        name, place = launch.attempt, live.place(launch.task)
        inputs, past = live.inputs[place], launch.checkpoint
        counter, why = past.counter, ""
        context = self._spark.sparkContext
        context.setLocalProperty("spark.scheduler.pool", live.name)
        context.setJobGroup(name, live.name, interruptOnCancel=True)
        with self._lock:
            live.master.launched(name, self._clock_ms(), counter / len(inputs))
        suspends = False
        try:
            while counter < len(inputs) and not suspends and not live.cancelled and name not in live.killed:
                context.setJobDescription(f"{live.name}: file {counter + 1} of {len(inputs)} of task {place}")
                table = live.work.partial(inputs[counter])
                self._store.output(live.number, place, counter, name, encode(table))
                counter += 1
                with self._lock:
                    suspends = live.master.task_heartbeat(name, counter / len(inputs), self._clock_ms())
        except (ElfError, OSError) as error:
            why = str(error)
        attempts = (*past.attempts, name) if counter > past.counter else past.attempts
        checkpoint = Checkpoint(attempts, counter, past.inputs, launch.container.host)
        with self._lock:
            if counter == len(inputs):
                live.master.finished(name)
            elif live.cancelled or name in live.killed:
                live.master.killed(name, checkpoint)
            elif why:
                live.master.broke(name, why, checkpoint)
            else:
                live.suspends += 1
                live.master.suspended(name, checkpoint)
            self._manager.freed(live.name, [launch.container.name], self._clock_ms())


def tasks_of(inputs: list[bytes], slots: int) -> list[list[bytes]]:
    """Inputs as tasks, in their order: some for each container, none of them long.

    Example:
        >>> [len(task) for task in tasks_of([b""] * 9, slots=2)]
        [2, 2, 2, 2, 1]
    """
    each = max(1, min(TASK_INPUTS_MAX, len(inputs) // (TASKS_A_SLOT * slots)))
    return [inputs[at : at + each] for at in range(0, len(inputs), each)]
