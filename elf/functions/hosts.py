"""The Python jobs of one agent, each with a thread and a sandbox process of its own.

The loop puts calls into a job's queue, which is bounded: what a slow job has no room for is dropped and
counted, timers are never queued twice. The job's thread makes them one at a time and posts what came of them.
A callback that raises costs its call; one that blocks, takes too much memory or dies costs the process. It is
begun again with the last state that it has told, and with what it was given since (``Lasting``), a few times
a minute; then the job has failed on this agent.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from elf.functions import wire
from elf.functions.allowed import Allowed, anybody
from elf.functions.cpu import cpu_us
from elf.functions.sandbox import Limits, Sandbox, SandboxError, Sandboxes
from elf.job.program.calls import LASTING, STATE_BYTES_MAX, Delivered, JobEffect, Keep, Timer, size_of
from elf.job.program.keeping import Lasting
from elf.job.program.port import (
    AnswerProgram,
    CallProgram,
    ProgramActed,
    ProgramAsked,
    ProgramEffect,
    ProgramEvent,
    ProgramLost,
    ProgramState,
    StartProgram,
    StopProgram,
)
from elf.job.program.seats import uid_of
from elf.job.program.spec import ProgramSpec

CALLS_MAX: Final = 4_096
CALL_BYTES_MAX: Final = 32 << 20
"""What may wait for one job."""
JOBS_MAX: Final = 32
"""Python jobs that an agent runs; one more is ``failed`` here."""
MASTERS_EACH: Final = 2
"""So many masters for each job that an agent may run: a job with several trees has more than one."""
RESTARTS_MAX: Final = 3
RESTARTS_WITHIN_SECS: Final = 60.0
NESTED_MAX: Final = 8
"""Messages that are delivered within a callback that waits for a reply, one within the other."""
BEGUN_ANEW: Final = "; its process was ended, so it was begun anew from its last checkpoint"
LOAD_SECS: Final = 10.0
ANSWER_GRACE_SECS: Final = 5.0
UNTOLD: Final = "its process does not tell its state as it must"
STATE_FRAME_BYTES: Final = 1 << 20
"""What a state has beside its contents: the names of its trees."""
TOLD_US: Final = 10_000
"""CPU time of a job that is told at once; less waits for more."""

Post = Callable[[ProgramEvent], None]
Log = Callable[[str], None]


class Stopped(Exception):
    """The job is being ended."""


@dataclass(frozen=True)
class Settings:
    """``limits`` of each job; those that are ``allowed``. ``never``: why none is; empty: some may be."""

    limits: Limits = field(default_factory=Limits)
    jobs_max: int = JOBS_MAX
    allowed: Allowed = anybody
    never: str = ""


class Hosts:
    """All of them. ``perform`` is called on the loop; ``post`` is called on the jobs' threads."""

    def __init__(
        self,
        post: Post,
        log: Callable[[ProgramSpec, str], None],
        settings: Settings | None = None,
        sandboxes: Sandboxes | None = None,
    ) -> None:
        self._post = post
        self._log = log
        self._settings = settings or Settings()
        self._hosts: dict[str, Host] = {}
        self.sandboxes = sandboxes or Sandboxes()

    def perform(self, effect: ProgramEffect) -> None:
        match effect:
            case StartProgram():
                self._start(effect)
            case StopProgram():
                host = self._hosts.pop(effect.uid, None)
                if host is not None:
                    host.stop()
            case CallProgram():
                if effect.uid in self._hosts:
                    self._hosts[effect.uid].call(effect)
            case AnswerProgram():
                if effect.uid in self._hosts:
                    self._hosts[effect.uid].answer(effect)

    def _start(self, effect: StartProgram) -> None:
        spec = effect.spec
        if why := self._settings.allowed(spec.text):
            self._post(ProgramState(effect.uid, "failed", why))
            return
        own = sum(uid_of(uid) == uid for uid in self._hosts)
        here, what = (len(self._hosts) - own, "masters of ") if effect.seat else (own, "")
        if here >= self._settings.jobs_max * (MASTERS_EACH if effect.seat else 1):
            reason = f"this agent runs {here} {what}Python jobs, which is its most"
            self._post(ProgramState(effect.uid, "failed", reason))
            return
        sandbox = Sandbox(self.sandboxes, self._settings.limits, lambda line: self._log(spec, line))
        self._hosts[effect.uid] = Host(effect, sandbox, self._settings.limits, self._post)

    def close(self) -> None:
        """End all jobs; returns when their threads and processes are gone."""
        hosts, self._hosts = list(self._hosts.values()), {}
        for host in hosts:
            host.stop()
        self.sandboxes.close()
        for host in hosts:
            host.join()


class Host:
    """One job on this agent."""

    def __init__(self, start: StartProgram, sandbox: Sandbox, limits: Limits, post: Post) -> None:
        self._start = start
        self._spec = start.spec
        self._uid = start.uid
        self._sandbox = sandbox
        self._limits = limits
        self._tell = post
        self._lock = threading.Condition()
        self._calls: deque[CallProgram] = deque()
        self._bytes = 0
        self._answers: dict[int, AnswerProgram] = {}
        self._awaited: set[int] = set()
        self._lost: list[int] = []
        self._stopping = False
        self._lasting = Lasting(start.state)
        self._failing = ""
        self._told_us = 0
        self._restarts: deque[float] = deque(maxlen=RESTARTS_MAX)
        self._thread = threading.Thread(target=self._run, name=f"job-{self._spec.name}", daemon=True)
        self._thread.start()

    # -- on the loop -----------------------------------------------------------------------------------------

    def call(self, call: CallProgram) -> None:
        size = size_of(call.event, call.payload)
        with self._lock:
            once = isinstance(call.event, Timer | Keep)
            if once and any(type(c.event) is type(call.event) for c in self._calls):
                return
            full = len(self._calls) >= CALLS_MAX or self._bytes + size > CALL_BYTES_MAX
            if full and not isinstance(call.event, Keep):
                self._lost.append(call.number)
                return
            self._bytes += size
            self._calls.append(call)
            self._lock.notify()

    def answer(self, answer: AnswerProgram) -> None:
        with self._lock:
            if answer.number in self._awaited:
                self._answers[answer.number] = answer
                self._lock.notify()

    def stop(self) -> None:
        with self._lock:
            self._stopping = True
            self._lock.notify()

    def join(self) -> None:
        self._thread.join()

    # -- on the job's thread ---------------------------------------------------------------------------------

    def _post(self, event: ProgramEvent) -> None:
        """A host that is stopped says nothing more: another one may have its uid by then."""
        with self._lock:
            if not self._stopping:
                self._tell(event)

    def _run(self) -> None:
        try:
            if self._load():
                while True:
                    call = self._next()
                    if not self._make(call):
                        return
        except Stopped:
            pass
        except Exception as bug:  # ours, not the user's: the job cannot go on, the agent can
            self._post(ProgramState(self._uid, "failed", f"a bug of elf's: {bug!r}"))
        finally:
            self._sandbox.close()

    def _load(self, *, again: bool = False) -> bool:
        """A process with a fresh job in it; False when that cannot be. ``again``: what has ended the last one
        stays to be seen until such a call returns."""
        spec = self._spec
        text, place, trees = spec.text, self._start.place, len(spec.trees)
        message = wire.LoadJob(text, spec.filename, spec.name, spec.creator, place, spec.taps, trees)
        try:
            self._sandbox.call(message, self._lasting.state, secs=LOAD_SECS)
        except SandboxError as error:
            self._post(ProgramState(self._uid, "failed", error.at(spec.filename)))
            return False
        if not again:
            self._post(ProgramState(self._uid, "running"))
        return True

    def _next(self) -> CallProgram:
        with self._lock:
            while not self._calls and not self._stopping:
                self._lock.wait()
            if self._stopping:
                raise Stopped
            return self._taken(0)

    def _taken(self, index: int) -> CallProgram:
        """The call at that place, out of the queue; holds the lock."""
        call = self._calls[index]
        del self._calls[index]
        self._bytes -= size_of(call.event, call.payload)
        if self._lost:
            lost, self._lost = tuple(self._lost), []
            self._post(ProgramLost(self._uid, lost))
        return call

    def _make(self, call: CallProgram) -> bool:
        """One call and what comes of it; False when the job has failed for good. Where the process ends, this
        call and those before it are made again in the next one."""
        calls = [call]
        while calls:
            try:
                self._exchange(calls[0], 0)
            except SandboxError as error:
                if self._stopping:
                    raise Stopped from None
                if error.trouble == "state":
                    self._post(ProgramState(self._uid, "failed", error.at(self._spec.filename)))
                    return False
                if not self._start_again(error):
                    return False
                calls = [*self._lasting.again(), *calls[1:]]
            else:
                del calls[0]
            finally:
                self._tell_cpu()
        return True

    def _tell_cpu(self) -> None:
        """What the job has taken since this was told last: on this thread, and in its process."""
        if (took := cpu_us() - self._told_us) >= TOLD_US:
            self._told_us += took
            self._post(ProgramActed(self._uid, (), took))

    def _exchange(self, call: CallProgram, depth: int) -> None:
        """Call, and serve its queries until it returns. Raises ``SandboxError`` when the process ended."""
        query = call.event.query if isinstance(call.event, Delivered) else ""
        self._lasting.made(call)
        try:
            self._sandbox.send(wire.CallJob(call.event, call.place), call.payload)
            deadline = time.monotonic() + self._limits.call_secs
            while True:
                said, payload = self._sandbox.receive(deadline)
                if not isinstance(said, wire.Asks):
                    break
                began = time.monotonic()
                self._wait_for(said, depth)
                deadline += time.monotonic() - began
        except SandboxError as error:
            if error.trouble == "state":
                raise
            self._acted(call, error.effects, error.state)
            state = error.at(self._spec.filename) + (BEGUN_ANEW if error.ended else "")
            self._failing = type(call.event).__name__
            self._post(ProgramState(self._uid, "failing", state, query))
            if error.ended:
                raise
            return
        if isinstance(call.event, Keep) and not (isinstance(said, wire.Acted) and said.kept):
            raise SandboxError("state", UNTOLD)
        if isinstance(said, wire.Acted) and (said.effects or said.kept):
            self._acted(call, said.effects, payload if said.kept else None)
        if self._failing == type(call.event).__name__:
            self._failing = ""
            self._post(ProgramState(self._uid, "running"))

    def _acted(self, call: CallProgram, effects: tuple[JobEffect, ...], state: bytes | None) -> None:
        """Raises ``SandboxError`` for what no honest process says."""
        untold = state is None and any(isinstance(effect, LASTING) for effect in effects)
        if untold or len(state or b"") > STATE_BYTES_MAX + STATE_FRAME_BYTES:
            raise SandboxError("state", UNTOLD)
        self._lasting.acted(state)
        self._post(ProgramActed(self._uid, effects, number=call.number, state=state))

    def _wait_for(self, asked: wire.Asks, depth: int) -> None:
        """A callback waits for a reply; other jobs' messages are delivered meanwhile."""
        with self._lock:
            self._awaited.add(asked.number)
        self._post(
            ProgramAsked(
                self._uid,
                asked.number,
                asked.app,
                asked.app_name,
                asked.value,
                asked.path,
                asked.timeout_ms,
            )
        )
        until = time.monotonic() + asked.timeout_ms / 1000 + ANSWER_GRACE_SECS
        while (call := self._meanwhile(asked.number, until, depth)) is not None:
            self._exchange(call, depth + 1)
        with self._lock:
            self._awaited.discard(asked.number)
            answer = self._answers.pop(asked.number, None)
        value, error = (answer.value, answer.error) if answer is not None else (b"", "no answer in time")
        self._sandbox.send(wire.Replied(asked.number, value, error))

    def _meanwhile(self, number: int, until: float, depth: int) -> CallProgram | None:
        """A message to deliver while a reply is awaited; None when it is there, or will not be."""
        with self._lock:
            while True:
                if self._stopping:
                    raise Stopped
                left = until - time.monotonic()
                if number in self._answers or left <= 0:
                    return None
                for index, call in enumerate(self._calls):
                    if isinstance(call.event, Delivered) and depth < NESTED_MAX:
                        return self._taken(index)
                self._lock.wait(left)

    def _start_again(self, error: SandboxError) -> bool:
        now = time.monotonic()
        if len(self._restarts) == RESTARTS_MAX and now - self._restarts[0] < RESTARTS_WITHIN_SECS:
            reason = f"{error.at(self._spec.filename)}; started {RESTARTS_MAX} times again within a minute"
            self._post(ProgramState(self._uid, "failed", reason))
            return False
        self._restarts.append(now)
        return self._load(again=True)
