"""The template of all sandboxes of an agent: a process of one thread that has imported what they need, and
forks.

To start Python and import Arrow takes 0.3 s of CPU; a fork of this takes some milliseconds and shares the
memory of the imports. It holds one socket to its agent and reads one request at a time:

    F limits + (socket, output)   fork; answered with the pid
    E pid                         end that child: killed if it lives, reaped, answered with its wait status

It never runs a line of a user's. When the agent is gone it ends all its children and itself; if it is killed,
they are killed with it.
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
from dataclasses import dataclass
from pathlib import Path
from typing import Final

REQUEST: Final = struct.Struct(">cqqi")
ANSWER: Final = struct.Struct(">q")
_PR_SET_PDEATHSIG: Final = 1
NICENESS: Final = 5
"""Of this process and all sandboxes, above the agent's."""
FILES_MAX: Final = 64
FILE_BYTES_MAX: Final = 64 << 20
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


def environment(root: str) -> dict[str, str]:
    """Of a zygote: nothing that it imports may start a thread, and memory comes from malloc, so that a limit
    on it is felt at once."""
    return os.environ | {
        "PYTHONPATH": os.pathsep.join([root, *filter(None, [os.environ.get("PYTHONPATH")])]),
        "OPENBLAS_NUM_THREADS": "1",
        "OMP_NUM_THREADS": "1",
        "ARROW_DEFAULT_MEMORY_POOL": "system",
        "JE_ARROW_MALLOC_CONF": "background_thread:false",
    }


def main(control: socket.socket) -> None:
    os.nice(NICENESS)  # before the imports: where many agents start theirs at once, their loops go first
    from elf.functions import child  # everything that a sandbox needs

    gc.freeze()  # what is imported stays shared: no collection writes to it
    signal.signal(signal.SIGINT, signal.SIG_IGN)
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
                _confine(files[1], request.memory_bytes)
                child.main(socket.socket(fileno=files[0]), request.payload_bytes)
                os._exit(0)
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


def _confine(output: int, memory_bytes: int) -> None:
    """Limits of the child; nothing is promised beyond them: no wall around files or the network."""
    parent = os.getppid()
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)
    with Path(os.devnull).open() as nothing:
        os.dup2(nothing.fileno(), 0)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.close(output)
    kind, used = _memory_now()
    for limit, value in (
        (kind, used + memory_bytes),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_NOFILE, FILES_MAX),
        (resource.RLIMIT_FSIZE, FILE_BYTES_MAX),
    ):
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(limit, (value, value))


def _memory_now() -> tuple[int, int]:
    """Which limit holds memory here, and what the imports take of it (bytes)."""
    try:
        with Path("/proc/self/status").open() as status:
            words = next(line.split() for line in status if line.startswith("VmData:"))
        return resource.RLIMIT_DATA, int(words[1]) * 1024
    except (OSError, StopIteration):
        return resource.RLIMIT_AS, 1 << 30


if __name__ == "__main__":
    # Not to be __main__ twice: what is pickled or imported by name must be one module.
    from elf.functions import zygote

    with socket.socket(fileno=int(sys.argv[1])) as agent:
        zygote.main(agent)
