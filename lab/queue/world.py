"""A cluster on virtual time: hosts, masters and tasks around a manager.

A job's master is launched in a container of its own, unless ``Cluster.masters`` is False; then it asks for
its maps, which never give way, and its reduces, which do, all at once unless ``in_turn``. A reduce has
nothing to do until all maps are done. Masters, tasks and hosts tell how they are once a second, each at its
own moment of it.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Final

from lab.queue.sharing import Sharing
from spark_backend.queue.attempts import Checkpoint, State
from spark_backend.queue.manager import HEARTBEAT_MS, Container, Request
from spark_backend.queue.master import Launch, Master, Task

LAUNCH_MS: Final = 1_600
"""Until a container runs its task. With the heartbeats before it a task of an empty cluster is scheduled in
2.6 s (paper: 2.63 s)."""
RESTORE_MS: Final = 1_250
"""Until one that resumes has skipped what is done: 3.9 s with all else (paper: 3.88 s)."""
SAVE_MS: Final = 850
"""To end the key in hand and save a checkpoint: 1.35 s with the heartbeat before it (paper: 1.35 s)."""
END_MS: Final = 24 * 3_600_000
"""No scenario lasts so long: one that does hangs."""


@dataclass(frozen=True)
class Cluster:
    """Attributes:
    hosts (int): workers.
    each (int): containers of each.
    masters (bool): whether a job's master takes a container.
    """

    hosts: int = 6
    each: int = 8
    masters: bool = True


@dataclass(frozen=True)
class Job:
    """A job that is submitted.

    Attributes:
        name (str): unique.
        reduces (tuple[int, ...]): how long each takes, in ms.
        maps (tuple[int, ...]): how long each takes, in ms.
        at_ms (int): when it is submitted.
        production (bool): its queue.
        deadline_ms (int | None): a moment.
        in_turn (bool): whether reduces are asked for only when all maps are done.
    """

    name: str
    reduces: tuple[int, ...]
    maps: tuple[int, ...] = ()
    at_ms: int = 0
    production: bool = False
    deadline_ms: int | None = None
    in_turn: bool = False


@dataclass
class Seen:
    """What a run of the world showed.

    Attributes:
        ended (dict[str, int]): when each job was done, in ms.
        suspends (dict[str, int]): how many tasks of it were suspended, or killed.
        killed (int): containers that the preemptor killed: nobody gave them back in time.
        schedule (list[int]): from the request for a container of a new attempt until it runs, in ms.
        suspend (list[int]): from the releaser's choice until the checkpoint is there, in ms.
        resume (list[int]): from the grant of a container until an attempt that resumes runs, in ms.
        story (list[str]): the steps of Figure 6.17, when they were asked for.
    """

    ended: dict[str, int] = field(default_factory=dict)
    suspends: dict[str, int] = field(default_factory=dict)
    killed: int = 0
    schedule: list[int] = field(default_factory=list)
    suspend: list[int] = field(default_factory=list)
    resume: list[int] = field(default_factory=list)
    story: list[str] = field(default_factory=list)


@dataclass
class _Try:
    """An attempt that has a container."""

    launch: Launch
    length_ms: int
    done_ms: int
    began_ms: int | None = None  # works since then
    chosen_ms: int = 0  # by the releaser
    over: bool = False


class World:
    """Runs jobs to their ends.

    Args:
        cluster (Cluster): its containers.
        sharing (Sharing): how it is shared.
        seed (int): the same seed, the same run.
        tell (bool): whether the story is kept.
        check (bool): whether all that must hold is checked with each heartbeat.
    """

    def __init__(
        self, cluster: Cluster, sharing: Sharing, seed: int = 1, *, tell: bool = False, check: bool = True
    ) -> None:
        self._cluster, self._sharing = cluster, sharing
        self._rng = random.Random(seed)
        hosts = {f"host-{number}": cluster.each for number in range(1, cluster.hosts + 1)}
        self._manager = sharing.manager(hosts, self._rng.randrange)
        self._masters: dict[str, Master] = {}
        self._jobs: dict[str, Job] = {}
        self._tries: dict[str, _Try] = {}
        self._asked: dict[str, int] = {}  # since when an attempt waits
        self._exited: dict[str, list[tuple[str, str]]] = {host: [] for host in hosts}
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._sequence = count()
        self._tell, self._check = tell, check
        self.now_ms = 0
        self.seen = Seen()

    def run(self, jobs: Sequence[Job]) -> Seen:
        """Run them all to their ends. Raises ``RuntimeError`` when they never come."""
        for host in self._exited:
            self._every(self._phase(), lambda host=host: self._host(host))  # type: ignore[misc]
        self._every(self._phase(), self._preempt)
        for job in jobs:
            self._at(job.at_ms, lambda job=job: self._submit(job))  # type: ignore[misc]
        while len(self.seen.ended) < len(jobs):
            self.now_ms, _, do = heapq.heappop(self._events)
            if self.now_ms > END_MS:
                raise RuntimeError(f"{len(jobs) - len(self.seen.ended)} jobs never ended")
            do()
        return self.seen

    # -- time ------------------------------------------------------------------------------------------------

    def _at(self, ms: int, do: Callable[[], None]) -> None:
        heapq.heappush(self._events, (ms, next(self._sequence), do))

    def _after(self, ms: int, do: Callable[[], None]) -> None:
        self._at(self.now_ms + ms, do)

    def _every(self, first_ms: int, do: Callable[[], bool | None]) -> None:
        """Until it says False."""

        def again() -> None:
            if do() is not False:
                self._after(HEARTBEAT_MS, again)

        self._after(first_ms, again)

    def _phase(self) -> int:
        return self._rng.randrange(HEARTBEAT_MS)

    def _step(self, step: str, what: str) -> None:
        if self._tell:
            self.seen.story.append(f"{self.now_ms / 1e3:7.3f} s  {step:>4}  {what}")

    # -- hosts and the manager -------------------------------------------------------------------------------

    def _host(self, host: str) -> None:
        exited, self._exited[host] = self._exited[host], []
        for run, container in exited:
            self._step("10", f"{host} tells that {container} is free")
            self._manager.freed(run, [container], self.now_ms)
        self._manager.assign(self.now_ms)
        if self._check:
            self._manager.check()

    def _preempt(self) -> None:
        before = {} if not self._tell else self._reclaims()
        for container in self._manager.preempt(self.now_ms):
            self.seen.killed += 1
            attempt = self._tries.get(container.request.attempt)
            if attempt is None:  # its master does not know of it yet
                run = container.request.attempt.rpartition("/")[0]
                self._exited[container.host].append((run, container.name))
            elif not attempt.over:
                self._kill(attempt)
        if self._tell:
            for run, victims in self._reclaims().items():
                for victim in victims[len(before.get(run, ())) :]:
                    self._step("2, 3", f"the cluster is full: {victim} is the victim for {run}")

    def _reclaims(self) -> dict[str, list[str]]:
        return {app.name: [one.victim for one in app.reclaims] for app in self._manager.in_order()}

    # -- jobs ------------------------------------------------------------------------------------------------

    def _submit(self, job: Job) -> None:
        self._jobs[job.name] = job
        self.seen.suspends[job.name] = 0
        self._manager.submit(job.name, production=job.production, deadline_ms=job.deadline_ms)
        if not self._cluster.masters:
            self._begin(job)
            return
        request = Request(f"{job.name}/master", preemptible=False)

        def ask() -> bool:
            if not self._manager.heartbeat(job.name, [request], laxity_ms=self._laxity(job)).granted:
                return True
            self._after(LAUNCH_MS, lambda: self._begin(job))
            return False

        self._every(0, ask)

    def _begin(self, job: Job) -> None:
        maps = [Task(f"{job.name}/m{number}", preemptible=False) for number in range(len(job.maps))]
        reduces = [Task(f"{job.name}/r{number}") for number in range(len(job.reduces))]
        policy = self._sharing.policies.tasks
        master = Master(job.name, [*maps, *reduces], policy, self._rng.randrange)
        self._masters[job.name] = master
        self._every(self._phase(), lambda: self._heartbeat(job, master))

    def _heartbeat(self, job: Job, master: Master) -> bool:
        if job.name in self.seen.ended:
            return False
        if self._check:
            master.check()
        master.estimate()
        wanted = master.requests()
        if job.in_turn and not self._mapped(master):
            wanted = [one for one in wanted if not one.preemptible]
        for request in wanted:
            if self._asked.setdefault(request.attempt, self.now_ms) == self.now_ms:
                self._step("1", f"{job.name} asks for a container for {request.attempt}")
        reply = self._manager.heartbeat(
            job.name, wanted, laxity_ms=self._laxity(job), suspending=master.suspending()
        )
        if reply.release:
            self._step("4", f"{job.name} is to release {reply.release}")
        asked = set(master.suspending())
        launches, unused = master.told(reply)
        for name in master.suspending():
            if name not in asked:
                self._tries[name].chosen_ms = self.now_ms
                self._step("5", f"{job.name} chooses {name}")
        for container in unused:
            self._exited[container.host].append((job.name, container.name))
        for launch in launches:
            self._launch(job, master, launch)
        return True

    def _laxity(self, job: Job) -> float:
        if job.deadline_ms is None:
            return float("inf")
        master = self._masters.get(job.name)
        projected = float("inf") if master is None else master.projected_ms(job.at_ms, self.now_ms)
        return job.deadline_ms - projected

    # -- tasks -----------------------------------------------------------------------------------------------

    def _launch(self, job: Job, master: Master, launch: Launch) -> None:
        container = launch.container
        self._step("11", f"{job.name} is granted {container.name} for {launch.attempt}")
        self._step("12", f"{job.name} sends {launch.attempt} to {container.host}")
        kind, number = launch.task.rpartition("/")[2][0], int(launch.task.rpartition("/")[2][1:])
        length = (job.maps if kind == "m" else job.reduces)[number]
        one = _Try(launch, length, launch.checkpoint.counter)
        self._tries[launch.attempt] = one
        resumes = bool(launch.checkpoint.attempts)
        self._after(LAUNCH_MS + RESTORE_MS * resumes, lambda: self._launched(master, one))

    def _launched(self, master: Master, one: _Try) -> None:
        if one.over:
            return
        name = one.launch.attempt
        self._step("13", f"{name} runs")
        resumes = bool(one.launch.checkpoint.attempts)
        took = self.now_ms - (one.launch.container.since_ms if resumes else self._asked[name])
        (self.seen.resume if resumes else self.seen.schedule).append(took)
        master.launched(name, self.now_ms, one.done_ms / one.length_ms)
        if "/m" in one.launch.task or self._mapped(master):
            self._work(master, one)
        self._every(self._phase(), lambda: self._task(master, one))

    def _mapped(self, master: Master) -> bool:
        """Whether a job's maps are done."""
        number = len(self._jobs[master.run].maps)
        return not any(master.pending(f"{master.run}/m{one}") for one in range(number))

    def _work(self, master: Master, one: _Try) -> None:
        one.began_ms = self.now_ms
        self._after(one.length_ms - one.done_ms, lambda: self._finish(master, one))

    def _done_ms(self, one: _Try) -> int:
        return one.done_ms + (0 if one.began_ms is None else self.now_ms - one.began_ms)

    def _task(self, master: Master, one: _Try) -> bool:
        if one.over:
            return False
        name = one.launch.attempt
        if not master.task_heartbeat(name, min(1.0, self._done_ms(one) / one.length_ms), self.now_ms):
            return True
        self._step("6", f"{name} is asked to suspend")
        if not self._sharing.keeps:
            self._kill(one)
            return False
        self._after(SAVE_MS, lambda: self._save(master, one))
        return False

    def _save(self, master: Master, one: _Try) -> None:
        if one.over:
            return
        launch, past = one.launch, one.launch.checkpoint
        counter = self._done_ms(one)
        attempts = (*past.attempts, launch.attempt) if counter else past.attempts
        self._step("7", f"{launch.attempt} has saved a checkpoint")
        master.suspended(launch.attempt, Checkpoint(attempts, counter, (), launch.container.host))
        self._step("8", f"{master.run} has it")
        self.seen.suspend.append(self.now_ms - one.chosen_ms)
        self.seen.suspends[master.run] += 1
        self._exit(master.run, one)

    def _kill(self, one: _Try) -> None:
        run = one.launch.task.rpartition("/")[0]
        self._masters[run].killed(one.launch.attempt)
        self.seen.suspends[run] += 1
        self._exit(run, one)

    def _finish(self, master: Master, one: _Try) -> None:
        if one.over:
            return
        master.finished(one.launch.attempt)
        self._exit(master.run, one)
        if "/m" in one.launch.task and self._mapped(master):
            for name in master.running():
                waits = self._tries[name]
                if waits.began_ms is None and master.attempt(name).state is not State.ASSIGNED:
                    self._work(master, waits)
        if master.done:
            self.seen.ended[master.run] = self.now_ms
            self._manager.leave(master.run)

    def _exit(self, run: str, one: _Try) -> None:
        one.over = True
        container: Container = one.launch.container
        self._step("9", f"{one.launch.attempt} leaves {container.name}")
        self._exited[container.host].append((run, container.name))
