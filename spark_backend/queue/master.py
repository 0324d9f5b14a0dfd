"""The application master of one run: its tasks, the states of their attempts, and the releaser.

A task always has one attempt that is not terminal, until it is done. An attempt that was suspended, killed or
has failed is followed by one that begins at the last checkpoint, so what a checkpoint covers is never done
twice; after ``FAILURES_MAX`` failures the run has failed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from elf.errors import ElfBug
from spark_backend.queue.attempts import TERMINAL, Attempt, Checkpoint, Event, State
from spark_backend.queue.manager import Container, Reply, Request
from spark_backend.queue.policies import Draw, TaskEviction, victim_tasks
from spark_backend.queue.progress import Rate

FAILURES_MAX: Final = 4
"""Of one task. YARN's default."""


@dataclass(frozen=True)
class Task:
    """A part of a run.

    Attributes:
        name (str): unique in the queue.
        inputs (tuple[str, ...]): what it reads, in order; a safe point is after each.
        preemptible (bool): whether it may be suspended.

    Example:
        >>> Task("nightly/0", ("a.parquet", "b.parquet")).preemptible
        True
    """

    name: str
    inputs: tuple[str, ...] = ()
    preemptible: bool = True


@dataclass(frozen=True)
class Launch:
    """An attempt is to run in a container.

    Attributes:
        attempt (str): which.
        task (str): its task.
        container (Container): where.
        checkpoint (Checkpoint): from where on.

    Example:
        >>> Launch("t.0", "t", Container("c1", "web-1", Request("t.0"), 0), Checkpoint()).task
        't'
    """

    attempt: str
    task: str
    container: Container
    checkpoint: Checkpoint


class Master:
    """One run.

    Args:
        run (str): its name.
        tasks (Sequence[Task]): its tasks, in the order in which they are asked for.
        eviction (TaskEviction): which of them gives way.
        draw (Draw): chance.
        checkpoints (Mapping[str, Checkpoint]): of tasks that an earlier process has begun.
        done (Sequence[str]): tasks that one has ended.
        numbers (Mapping[str, int]): of each task, the first attempt that has not been named.

    Example:
        >>> master = Master("nightly", [Task("t")], TaskEviction.SRT, lambda n: 0)
        >>> [request.attempt for request in master.requests()]
        ['t.0']
    """

    def __init__(
        self,
        run: str,
        tasks: Sequence[Task],
        eviction: TaskEviction,
        draw: Draw,
        checkpoints: Mapping[str, Checkpoint] | None = None,
        done: Sequence[str] = (),
        numbers: Mapping[str, int] | None = None,
    ) -> None:
        self.run = run
        self.held_back = False
        """Whether its user has suspended it: it asks for nothing, and all of it gives way."""
        self.failed: str | None = None
        """Why it has failed."""
        self._tasks = {task.name: task for task in tasks}
        self._eviction = eviction
        self._draw = draw
        self._attempts: dict[str, Attempt] = {}
        self._now: dict[str, str] = {}  # of each task that is not done: its attempt
        self._counts = dict(numbers or {})
        self._failures: dict[str, int] = {}
        self._rates: dict[str, Rate] = {}
        self._estimates: dict[str, float] = {}
        self._left: dict[str, float] = {}  # of tasks that were suspended: how long they still take
        self._owed = 0
        self._done = set(done)
        for task in tasks:
            if task.name not in self._done:
                self._follow(task.name, (checkpoints or {}).get(task.name, Checkpoint((), 0, task.inputs)))

    # -- to and from the manager -----------------------------------------------------------------------------

    def requests(self) -> list[Request]:
        """What it waits for: for ``Manager.heartbeat``. Of those that resume, the one that will take longest
        comes first, for the run ends with its last task (the paper says nothing of their order)."""
        if self.held_back:
            return []
        found = [self._attempts[name] for name in self._in(State.UNASSIGNED)]
        waiting = sorted(found, key=lambda one: -self._left.get(one.task, -1.0))
        return [
            Request(
                one.name,
                one.checkpoint.counter > 0 or bool(one.checkpoint.attempts),
                one.checkpoint.host,
                self._tasks[one.task].preemptible,
            )
            for one in waiting
        ]

    def told(self, reply: Reply) -> tuple[list[Launch], list[Container]]:
        """Take in what a heartbeat was answered (steps 5 and 12).

        Returns:
            tuple[list[Launch], list[Container]]: what to launch, and the containers that are of no use any
            more and go back.
        """
        launches, unused = [], []
        for container in reply.granted:
            attempt = self._attempts.get(container.request.attempt)
            if attempt is None or attempt.state is not State.UNASSIGNED or self.held_back:
                unused.append(container)
                continue
            attempt.do(Event.GRANT)
            attempt.container, attempt.host = container.name, container.host
            launches.append(Launch(attempt.name, attempt.task, container, attempt.checkpoint))
        self._owed += reply.release
        self._release()
        return launches, unused

    def suspending(self) -> list[str]:
        """The attempts that were asked to suspend, or are about to be."""
        return self._in(State.SUSPEND_PENDING)

    def hold(self) -> None:
        """All of it gives way, and waits until ``go_on``."""
        self.held_back = True
        self._release()

    def go_on(self) -> None:
        """It asks for containers again."""
        self.held_back = False

    # -- from tasks ------------------------------------------------------------------------------------------

    def launched(self, attempt: str, now_ms: int, progress: float = 0.0) -> None:
        """An attempt runs (step 13), with so much of its task done before."""
        self._attempts[attempt].do(Event.LAUNCH)
        self._rates[attempt] = Rate(now_ms, progress)
        self._release()

    def task_heartbeat(self, attempt: str, progress: float, now_ms: int) -> bool:
        """A running attempt tells how far it is.

        Returns:
            bool: whether it is to suspend at its next safe point (step 6).
        """
        self._rates[attempt].seen(now_ms, progress)
        return self._attempts[attempt].state is State.SUSPEND_PENDING

    def estimate(self) -> None:
        """Estimate how long all running attempts still take; once a second."""
        self._estimates = {name: self._rates[name].remaining_ms for name in self._in(State.RUNNING)}

    def suspended(self, attempt: str, checkpoint: Checkpoint) -> None:
        """An attempt has suspended with this checkpoint (step 8); the next one is made."""
        self._left[self._attempts[attempt].task] = self._rates[attempt].remaining_ms
        self._end(attempt, Event.CHECKPOINT, checkpoint)

    def finished(self, attempt: str) -> None:
        """An attempt has done what there was to do: its task is done."""
        one = self._attempts[attempt]
        if one.state is State.RUNNING:  # its container goes back, as if it had been suspended
            self._owed = max(0, self._owed - 1)
        one.do(Event.FINISH)
        self._done.add(one.task)
        del self._now[one.task]

    def killed(self, attempt: str, checkpoint: Checkpoint | None = None) -> None:
        """An attempt was killed: the next one begins where it did, or at the checkpoint that it has saved."""
        self._end(attempt, Event.KILL, checkpoint or self._attempts[attempt].checkpoint)

    def broke(self, attempt: str, why: str, checkpoint: Checkpoint | None = None) -> None:
        """An attempt has failed; the next one is made, or the run has failed."""
        task = self._attempts[attempt].task
        self._failures[task] = self._failures.get(task, 0) + 1
        self._end(attempt, Event.FAIL, checkpoint or self._attempts[attempt].checkpoint)
        if self._failures[task] >= FAILURES_MAX:
            self.failed = why
            self.hold()

    # -- how it stands ---------------------------------------------------------------------------------------

    @property
    def done(self) -> bool:
        """Whether all tasks are."""
        return not self._now

    def pending(self, task: str) -> bool:
        """Whether a task is not done."""
        return task in self._now

    def running(self) -> list[str]:
        """The attempts that have a container."""
        return self._in(State.ASSIGNED, State.RUNNING, State.SUSPEND_PENDING)

    def attempt(self, name: str) -> Attempt:
        """One of its attempts."""
        return self._attempts[name]

    def progress(self) -> float:
        """How much of all tasks is done, 0 to 1; a task counts as one, whatever its size."""
        if not self._tasks:
            return 1.0
        begun = sum(self._progress_of(self._attempts[name]) for name in self._now.values())
        return (len(self._done) + begun) / len(self._tasks)

    def projected_ms(self, began_ms: int, now_ms: int) -> float:
        """When it will be done, if it goes on as it did on average since it began.

        Returns:
            float: the time; infinite as long as there is no progress.
        """
        progress = self.progress()
        return began_ms + (now_ms - began_ms) / progress if progress > 0 else math.inf

    def check(self) -> None:
        """Raises ``ElfBug`` unless each task is done or has one attempt that is not terminal."""
        if self._done | self._now.keys() != self._tasks.keys() or self._done & self._now.keys():
            raise ElfBug(f"run {self.run} has lost tasks")
        live = {name for name, one in self._attempts.items() if one.state not in TERMINAL}
        if live != set(self._now.values()):
            raise ElfBug(f"run {self.run}: attempts {live} are live, {set(self._now.values())} should be")

    # -- inside ----------------------------------------------------------------------------------------------

    def _in(self, *states: State) -> list[str]:
        return [name for name in self._now.values() if self._attempts[name].state in states]

    def _release(self) -> None:
        """The releaser: suspend as many as are owed; the others as soon as they run."""
        candidates = [
            name for name in self._in(State.RUNNING) if self._tasks[self._attempts[name].task].preemptible
        ]
        count = len(candidates) if self.held_back else self._owed
        if not count or not candidates:
            return
        remaining = {name: self._estimates.get(name, self._rates[name].remaining_ms) for name in candidates}
        for name in victim_tasks(self._eviction, remaining, count, self._draw):
            self._attempts[name].do(Event.SUSPEND)
            self._owed = max(0, self._owed - 1)

    def _progress_of(self, attempt: Attempt) -> float:
        if (rate := self._rates.get(attempt.name)) is not None:
            return rate.progress
        inputs = len(attempt.checkpoint.inputs)
        return attempt.checkpoint.counter / inputs if inputs else 0.0

    def _end(self, name: str, event: Event, checkpoint: Checkpoint) -> None:
        attempt = self._attempts[name]
        attempt.do(event)
        self._rates.pop(name, None)
        self._follow(attempt.task, checkpoint)

    def _follow(self, task: str, checkpoint: Checkpoint) -> None:
        number = self._counts.get(task, 0)
        self._counts[task] = number + 1
        attempt = Attempt(f"{task}.{number}", task, checkpoint)
        attempt.do(Event.REQUEST)
        self._attempts[attempt.name] = attempt
        self._now[task] = attempt.name
