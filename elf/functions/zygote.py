"""The template of all sandboxes of an agent: a process of one thread that has imported what they need, and
forks.

To start Python and import Arrow takes 0.3 s of CPU; a fork of this takes some milliseconds and shares the
memory of the imports. It holds one socket to its agent and reads one request at a time:

    F limits + (socket, output)   fork; answered with the pid
    E pid                         end that child: killed if it lives, reaped, answered with its wait status

It never runs a line of a user's. When the agent is gone it ends all its children and itself; if it is killed,
they are killed with it. Started with ``confined`` it builds the walls of ``elf.functions.confinement``, or
ends; with ``open`` it builds none, for a client that runs its user's own code.
"""

from __future__ import annotations

import contextlib
import gc
import os
import resource
import signal
import socket
import struct
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NoReturn

from elf.functions import confinement

REQUEST: Final = struct.Struct(">cqqi")
ANSWER: Final = struct.Struct(">q")
_PR_SET_PDEATHSIG: Final = 1
NICENESS: Final = 5
"""Of this process and all sandboxes, above the agent's."""
FILES_MAX: Final = 64
FILE_BYTES_MAX: Final = 0
"""A sandbox writes no files."""
TASKS_MAX: Final = 2_048
"""All sandboxes together may bring the processes and threads of their user to so many more than there were
when the zygote was started. (The kernel asks that of nobody who is root; ``elf.functions.sandbox`` counts
threads.)"""
SOCKET: Final = 3
"""The descriptor of a sandbox's one socket; 0 to 2 are its standard ones, and there are no others."""
SPACE_BYTES_MAX: Final = 1 << 30
"""Of addresses that are reserved and not used, beyond the limit on memory: stacks of threads, and the heaps
that malloc lays out for them."""
_OPEN_MAX: Final = 1_024
CANNOT_CONFINE: Final = 71
"""The exit status of a sandbox around which no walls could be built."""
NO_PROCESS: Final = -1
"""The answer when the system gives no more processes."""


@dataclass(frozen=True)
class Request:
    """``verb``: F or E. ``pid`` for E; ``memory_bytes`` and ``payload_bytes`` for F."""

    verb: bytes
    memory_bytes: int = 0
    payload_bytes: int = 0
    pid: int = 0

    def pack(self) -> bytes:
        return REQUEST.pack(self.verb, self.memory_bytes, self.payload_bytes, self.pid)

    @classmethod
    def unpack(cls, data: bytes) -> Request:
        return cls(*REQUEST.unpack(data))


@dataclass(frozen=True)
class _Surroundings:
    """What all forks of a zygote have in common. ``memory``: what the imports take, by limit (bytes);
    ``tasks``: threads of this user."""

    confined: bool
    nothing: int
    memory: Mapping[int, int]
    tasks: int


def main(control: socket.socket, *, confined: bool) -> None:
    os.nice(NICENESS)  # before the imports: where many agents start theirs at once, their loops go first
    from elf.functions import child  # everything that a sandbox needs

    gc.freeze()  # what is imported stays shared: no collection writes to it
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    nothing = os.open(os.devnull, os.O_RDONLY)
    here = _Surroundings(confined, nothing, _memory_now(), _tasks_now())
    if confined:
        confinement.enter()
    children: set[int] = set()
    try:
        while True:
            data, files, _, _ = socket.recv_fds(control, REQUEST.size, 2)
            if len(data) < REQUEST.size:
                return
            request = Request.unpack(data)
            if request.verb == b"E":
                control.sendall(ANSWER.pack(_end(request.pid, children)))
                continue
            try:
                pid = os.fork()
            except OSError:
                pid = NO_PROCESS
            if pid == 0:
                control.close()
                _begin(child.main, files, request, here)
            if pid > 0:
                children.add(pid)
            for file in files:
                os.close(file)
            control.sendall(ANSWER.pack(pid))
    finally:
        for pid in list(children):
            _end(pid, children)


def _end(pid: int, children: set[int]) -> int:
    """Only a child that is not reaped yet is killed, so the pid cannot be somebody else's."""
    if pid not in children:
        return 0
    children.discard(pid)
    found, status = os.waitpid(pid, os.WNOHANG)
    if not found:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
    return status


def _begin(
    run: Callable[[socket.socket, int], None], files: list[int], request: Request, here: _Surroundings
) -> NoReturn:
    """All that a fork is before it hears of a user's code, and then that. ``files``: socket, output."""
    try:
        _end_with_parent()
        for descriptor, file in ((0, here.nothing), (1, files[1]), (2, files[1])):
            os.dup2(file, descriptor)
        if files[0] != SOCKET:
            os.dup2(files[0], SOCKET)
        os.closerange(SOCKET + 1, _OPEN_MAX)
        agent = socket.socket(fileno=SOCKET)
        _limit(request.memory_bytes, here)
        if here.confined:
            confinement.seal()
    except BaseException as error:
        print(f"no walls can be built around users' code: {error!r}", file=sys.stderr, flush=True)
        os._exit(CANNOT_CONFINE)
    run(agent, request.payload_bytes)
    os._exit(0)


def _end_with_parent() -> None:
    parent = os.getppid()
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)


def _limit(memory_bytes: int, here: _Surroundings) -> None:
    spare = {resource.RLIMIT_DATA: 0, resource.RLIMIT_AS: SPACE_BYTES_MAX}
    for limit, value in (
        *((kind, used + memory_bytes + spare[kind]) for kind, used in here.memory.items()),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_NOFILE, FILES_MAX),
        (resource.RLIMIT_FSIZE, FILE_BYTES_MAX),
        (resource.RLIMIT_NPROC, here.tasks + TASKS_MAX),
    ):
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(limit, (value, value))


def _memory_now() -> dict[int, int]:
    """What the imports take of memory, by the limits that hold here. (Data that is written to and then made
    read-only is in addresses alone.)"""
    try:
        with Path("/proc/self/status").open() as status:
            told = {line.partition(":")[0]: line.split()[1] for line in status if line.startswith("Vm")}
        kinds = {resource.RLIMIT_DATA: "VmData", resource.RLIMIT_AS: "VmSize"}
        return {limit: int(told[name]) * 1024 for limit, name in kinds.items()}
    except (OSError, KeyError):
        return {resource.RLIMIT_AS: 0}


def _tasks_now() -> int:
    """Threads of all processes of this user, as far as they can be seen."""
    found = 0
    for place in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if place.stat().st_uid == os.getuid():
                found += len(list((place / "task").iterdir()))
    return found


if __name__ == "__main__":
    # Not to be __main__ twice: what is pickled or imported by name must be one module.
    from elf.functions import zygote

    with socket.socket(fileno=int(sys.argv[1])) as agent:
        zygote.main(agent, confined=sys.argv[2] == "confined")
