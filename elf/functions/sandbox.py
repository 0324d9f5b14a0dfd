"""A process of its own for a user's code, as the agent sees it: started in milliseconds, called with a time
limit, ended when it misbehaves.

``Template`` holds a zygote; ``Sandboxes`` are an agent's processes of it; ``Sandbox`` is one of them, and
blocks its caller: it is called on a stream task's thread or on a job's own, never on the loop.
``elf.functions.confinement`` says what the code in it may do, ``elf.functions.allowed`` who may send code at
all. The agent trusts nothing that comes out: every answer is bounded, and so is what is printed.
"""

from __future__ import annotations

import os
import resource
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from elf.errors import ElfError
from elf.functions import cgroup, confinement, wire
from elf.functions.cpu import add_called
from elf.functions.zygote import ANSWER, NO_PROCESS, Request
from elf.job.program.calls import JobEffect

Trouble = Literal["raised", "memory", "blocked", "died", "output", "refused", "state"]
OUTPUT_PIPE_BYTES: Final = 64 << 10
LINE_BYTES_MAX: Final = 8 << 10
"""Of its output, that wait for the end of their line."""
OUTPUT_READS_MAX: Final = 16
"""In a row, so that one who prints for ever is not read for ever."""
THREADS_MAX: Final = 64
SPARE_BYTES: Final = 32 << 20
"""A process may have so much more than its limit of memory, since the kernel counts that in another way."""
LOOK_SECS: Final = 0.1
"""How often the threads and the memory of a call are looked at."""
FRAME_BYTES_MIN: Final = 128 << 20
GROUP_BYTES: Final = 8 << 30
IMPORTS_BYTES: Final = 128 << 20
"""What a sandbox may take beside the limit on its memory."""
START_SECS: Final = 20.0
STARVED_TIMES: Final = 10
"""A call that gets no CPU may take so many times its limit."""
GRACE_SECS: Final = 1.0


@dataclass(frozen=True)
class Limits:
    """Of one sandbox. ``call_secs``: of one call, in wall clock, or in CPU time when the machine has none to
    give; ``memory_bytes``: beyond what the imports take; ``rows_max`` and ``bytes_max``: of one result;
    ``log_bytes_max``: of its output that is kept a minute."""

    call_secs: float = 1.0
    memory_bytes: int = 256 << 20
    rows_max: int = 4 << 20
    bytes_max: int = 64 << 20
    log_bytes_max: int = 64 << 10

    @property
    def frame_bytes(self) -> int:
        """The largest batch that is handed over, in or out."""
        return max(2 * self.bytes_max, FRAME_BYTES_MIN)


class SandboxError(ElfError):
    """A call that failed. ``line`` of the user's file, 0 for none; ``ended``: the process is gone; ``state``:
    what a job has after it."""

    def __init__(
        self,
        trouble: Trouble,
        text: str,
        line: int = 0,
        source: str = "",
        *,
        ended: bool = False,
        effects: tuple[JobEffect, ...] = (),
        state: bytes | None = None,
    ) -> None:
        self.trouble: Trouble = trouble
        self.text = text
        self.line = line
        self.source = source
        self.ended = ended
        self.effects = effects
        self.state = state
        super().__init__(text)

    def at(self, filename: str) -> str:
        """For people: file, line, what happened, and the line itself."""
        place = f"{filename}:{self.line}: " if self.line else f"{filename}: "
        return f"{place}{self.text}" + (f" in `{self.source}`" if self.source else "")


class Template:
    """A zygote, started when it is first needed, and again when it has died. Agents of one process share one.
    Not ``confined`` it is for a client alone, which runs its user's own code."""

    program: tuple[str, ...] = ("-m", "elf.functions.zygote")

    def __init__(self, *, confined: bool = True, memory_bytes: int = GROUP_BYTES) -> None:
        """``memory_bytes``: of all its forks, where a control group can hold them to that."""
        self._group = cgroup.Group(memory_bytes)
        self._confined = confined
        self._lock = threading.Lock()
        self._zygote: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None

    def fork(self, limits: Limits) -> tuple[int, socket.socket, int]:
        """A new process: its pid, our end of its socket, and the reading end of its output. Raises
        ``SandboxError``."""
        if self._confined and (why := confinement.lacking()):
            raise SandboxError("refused", f"users' code cannot be confined here: {why}", ended=True)
        ours, theirs = socket.socketpair()
        reading, writing = os.pipe()
        os.set_blocking(reading, False)
        try:
            request = Request(b"F", limits.memory_bytes, limits.frame_bytes)
            pid = self._ask(request, [theirs.fileno(), writing])
            if pid == NO_PROCESS:
                raise SandboxError("died", "the system gives no more processes for user code", ended=True)
        except BaseException:
            ours.close()
            os.close(reading)
            raise
        finally:
            theirs.close()
            os.close(writing)
        return pid, ours, reading

    def end(self, pid: int) -> int:
        """End a process of ours; its wait status, 0 where the zygote is gone, and its children with it."""
        with self._lock:
            if self._control is None:
                return 0
            try:
                return self._exchange(self._control, Request(b"E", pid=pid), [])
            except OSError:
                self._close()
                return 0

    def _ask(self, request: Request, files: list[int]) -> int:
        with self._lock:
            try:
                return self._exchange(self._ready(), request, files)
            except OSError:
                self._close()
            try:
                return self._exchange(self._ready(), request, files)
            except OSError as error:
                raise SandboxError(
                    "died", f"no process can be started for user code: {error}", ended=True
                ) from None

    def _exchange(self, control: socket.socket, request: Request, files: list[int]) -> int:
        socket.send_fds(control, [request.pack()], files)
        answer = control.recv(ANSWER.size, socket.MSG_WAITALL)
        if len(answer) < ANSWER.size:
            raise ConnectionResetError("the template of the sandboxes has ended")
        return int(ANSWER.unpack(answer)[0])

    def _ready(self) -> socket.socket:
        if self._control is None:
            ours, theirs = socket.socketpair()
            root = str(Path(__file__).resolve().parents[2])
            with theirs:
                walls = "confined" if self._confined else "open"
                self._zygote = subprocess.Popen(
                    [sys.executable, "-P", *self.program, str(theirs.fileno()), walls],
                    pass_fds=[theirs.fileno()],
                    stdin=subprocess.DEVNULL,
                    env=confinement.environment(root),
                    cwd="/",
                    start_new_session=True,
                )
            self._group.take(self._zygote.pid)
            ours.settimeout(START_SECS)
            self._control = ours
        return self._control

    def _close(self) -> None:
        if self._control is not None:
            self._control.close()
            self._control = None
        if self._zygote is not None:
            try:
                self._zygote.wait(GRACE_SECS)
            except subprocess.TimeoutExpired:
                self._zygote.kill()
                self._zygote.wait()
            self._zygote = None
            self._group.close()

    def close(self) -> None:
        """End the zygote and every process of it."""
        with self._lock:
            self._close()


class Sandboxes:
    """The sandbox processes of one agent: of its own template, or of one that whoever gives it closes.
    ``confined``: see ``Template``."""

    def __init__(self, template: Template | None = None, *, confined: bool = True) -> None:
        self._template = template or Template(confined=confined)
        self._shared = template is not None
        self._pids: set[int] = set()

    def fork(self, limits: Limits) -> tuple[int, socket.socket, int]:
        """A new process: its pid, our end of its socket, and the reading end of its output."""
        forked = self._template.fork(limits)
        self._pids.add(forked[0])
        return forked

    def end(self, pid: int) -> int:
        """End a process of ours; its wait status."""
        self._pids.discard(pid)
        return self._template.end(pid)

    def close(self) -> None:
        """End every sandbox."""
        if not self._shared:
            self._template.close()
        for pid in list(self._pids):
            self.end(pid)


class Sandbox:
    """One process of a user's code. ``open`` starts it; a call that fails with ``ended`` has closed it."""

    def __init__(self, sandboxes: Sandboxes, limits: Limits, log: Callable[[str], None]) -> None:
        self._sandboxes = sandboxes
        self._limits = limits
        self._log = log
        self._pid = 0
        self._at_first = 0
        self._cpu_us = 0
        self._frames: wire.Frames | None = None
        self._output = -1
        self._either = select.poll()
        """What it says and what it prints: of the process that there is."""
        self._partial = b""
        self._minute = 0
        self._logged = 0
        self.log_bytes_dropped = 0

    @property
    def pid(self) -> int:
        """0 while there is none."""
        return self._pid

    def open(self) -> None:
        """Fork a process; nothing when there is one."""
        if self._frames is None:
            self._pid, sock, self._output = self._sandboxes.fork(self._limits)
            self._at_first, self._cpu_us = _resident_bytes(self._pid), 0
            self._frames = wire.Frames(sock, self._limits.frame_bytes)
            self._either = select.poll()
            self._either.register(sock, select.POLLIN)
            self._either.register(self._output, select.POLLIN)

    def close(self) -> int:
        """End the process; its wait status."""
        if self._frames is None:
            return 0
        self._drain()
        self._count()
        status = self._sandboxes.end(self._pid)
        self._drain(last=True)
        self._frames.sock.close()
        os.close(self._output)
        self._frames, self._output, self._pid = None, -1, 0
        return status

    def call(
        self, message: wire.ToSandbox, payload: bytes = b"", *, secs: float | None = None
    ) -> tuple[wire.FromSandbox, bytes]:
        """Send a call and wait for what comes of it. Raises ``SandboxError``."""
        self.send(message, payload)
        return self.receive(time.monotonic() + (secs or self._limits.call_secs))

    def send(self, message: wire.ToSandbox, payload: bytes = b"") -> None:
        frames = self._opened()
        try:
            frames.send(message, payload, STARVED_TIMES * self._limits.call_secs)
        except TimeoutError:
            self._blocked()
        except OSError:
            self._gone()

    def receive(self, deadline: float) -> tuple[wire.FromSandbox, bytes]:
        """What it says next, until ``deadline`` (monotonic seconds). Raises ``SandboxError``."""
        frames = self._opened()
        self._wait(frames, deadline)
        try:
            said, payload = frames.take_by_agent(STARVED_TIMES * self._limits.call_secs)
        except TimeoutError:
            self._blocked()
        except (EOFError, OSError):
            self._gone()
        except wire.Broken as error:
            self.close()
            raise SandboxError("output", str(error), ended=True) from None
        if isinstance(said, wire.Raised):
            if said.kind == "memory":
                self.close()
                raise SandboxError("memory", self._over_memory(), said.line, said.source, ended=True)
            state = payload if said.kept else None
            trouble: Trouble = "state" if said.kind == "state" else "raised"
            raise SandboxError(trouble, said.text, said.line, said.source, effects=said.effects, state=state)
        return said, payload

    def _wait(self, frames: wire.Frames, deadline: float) -> None:
        had, last = self._cpu_us / 1e6, deadline + STARVED_TIMES * self._limits.call_secs
        while not frames.has_more:
            left = max(0.0, deadline - time.monotonic())
            ready = {file for file, _ in self._either.poll(1e3 * min(left, LOOK_SECS))}
            if self._output in ready and not self._drain():  # what it said before its answer is here by now
                self._either.unregister(self._output)
            if frames.sock.fileno() in ready:
                self._count()
                return
            self._look()
            if (now := time.monotonic()) >= deadline:
                deadline = min(last, now + self._starved(had))
                if deadline <= now:
                    self._blocked()

    def _look(self) -> None:
        """What the kernel's own limits let through: a crowd of threads, and memory in some disguise."""
        if (threads := _threads(self._pid)) > THREADS_MAX:
            self.close()
            text = f"it has {threads} threads; at most {THREADS_MAX} are let live"
            raise SandboxError("died", text, ended=True)
        if _resident_bytes(self._pid) > self._at_first + self._limits.memory_bytes + SPARE_BYTES:
            self.close()
            raise SandboxError("memory", self._over_memory(), ended=True)

    def _count(self) -> None:
        """Its CPU time is that of the thread that calls it (``elf.functions.cpu``)."""
        now_us = int(_cpu_secs(self._pid) * 1e6)
        add_called(max(now_us - self._cpu_us, 0))
        self._cpu_us = max(now_us, self._cpu_us)

    def _starved(self, had: float) -> float:
        """Seconds of CPU that a call at its deadline may still have; 0 for one that waits by itself."""
        wants = _state(self._pid) in ("R", "D")
        return max(0.0, self._limits.call_secs - (_cpu_secs(self._pid) - had)) if wants else 0.0

    def _opened(self) -> wire.Frames:
        self.open()
        if self._frames is None:
            raise SandboxError("died", "it has no process", ended=True)
        return self._frames

    # -- its ends --------------------------------------------------------------------------------------------

    def _blocked(self) -> None:
        self.close()
        text = f"it did not return within {self._limits.call_secs:g} s"
        raise SandboxError("blocked", text, ended=True) from None

    def _gone(self) -> None:
        status = self.close()
        if os.WIFSIGNALED(status):
            what = f"killed by {signal.Signals(os.WTERMSIG(status)).name}"
        else:
            what = f"exit status {os.waitstatus_to_exitcode(status)}"
        raise SandboxError(
            "died", f"its process ended in the middle of a call ({what})", ended=True
        ) from None

    def _over_memory(self) -> str:
        return f"MemoryError: it wants more than its {self._limits.memory_bytes >> 20} MiB"

    # -- its output ------------------------------------------------------------------------------------------

    def _drain(self, *, last: bool = False) -> bool:
        """What it printed, as log lines, up to the quota of a minute. False at the end of it."""
        open_ = True
        for _ in range(OUTPUT_READS_MAX):
            try:
                data = os.read(self._output, OUTPUT_PIPE_BYTES)
            except BlockingIOError:
                break
            except OSError:
                open_ = False
                break
            if not data:
                open_ = False
                break
            self._say(data)
        if last and self._partial:
            self._say(b"\n")
        return open_

    def _say(self, data: bytes) -> None:
        minute = int(time.monotonic() // 60)
        if minute != self._minute:
            self._minute, self._logged = minute, 0
        room = max(0, self._limits.log_bytes_max - self._logged)
        self._logged += min(room, len(data))
        if len(data) > room:
            self.log_bytes_dropped += len(data) - room
            data = data[:room]
        *lines, self._partial = (self._partial + data).split(b"\n")
        if len(self._partial) > LINE_BYTES_MAX:
            lines.append(self._partial)
            self._partial = b""
        for line in lines:
            if line.strip():
                self._log(line.decode("utf-8", "replace"))


def _cpu_secs(pid: int) -> float:
    """CPU time of a process so far (Linux names its clock by the pid); 0 where that cannot be known."""
    try:
        return time.clock_gettime(~pid << 3 | 2)
    except (OSError, OverflowError):
        return 0.0


def _state(pid: int) -> str:
    """R: it runs or wants to; D: it waits for a disk; S: it sleeps."""
    return _stat(pid, 0)


def _threads(pid: int) -> int:
    return int(_stat(pid, 17) or 0)


def _resident_bytes(pid: int) -> int:
    """Memory of a process that is no file's; 0 where that cannot be known."""
    try:
        _, resident, shared, *_ = map(int, Path(f"/proc/{pid}/statm").read_text().split())
        return (resident - shared) * resource.getpagesize()
    except (OSError, ValueError):
        return 0


def _stat(pid: int, field: int) -> str:
    """A word of what the kernel tells of a process, the first being its state; empty where that cannot be
    known."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[field]
    except (OSError, IndexError):
        return ""
