"""Code of an attacker in a sandbox: what it tries is refused with an error that says so; the agent goes on.

Each attack is the body of a function ``map(batch)``. It runs where users' functions run.
"""

from __future__ import annotations

import contextlib
import os
import platform
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from string import Template
from textwrap import indent

import pyarrow as pa
import pytest

from elf.fields import replace
from elf.functions import confinement
from elf.functions.function import Done, Failed, UserFunction
from elf.functions.sandbox import LINE_BYTES_MAX, Limits, Sandboxes
from elf.functions.syscalls import Filter
from elf.ql.plan import Function
from tests.support.confined import needs_confinement
from tests.support.fleet import alive

BATCH = pa.RecordBatch.from_pydict({"x": [1]})
SECRET = "hunter2-of-the-agent"
CALL = Filter().number if platform.machine() in ("x86_64", "aarch64") else (lambda _: 0)
RAW = """
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
def call(number, *arguments):
    found = libc.syscall(ctypes.c_long(number), *[ctypes.c_long(one) for one in arguments])
    if found < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
"""
NATIVE = """
import ctypes, mmap
def run(code):
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    page = libc.mmap(None, 4096, 7, 0x22, -1, 0)
    ctypes.memmove(page, code, len(code))
    found = ctypes.CFUNCTYPE(ctypes.c_long)(page)()
    if found < 0:
        raise OSError(-found, os.strerror(-found))
"""
"""Machine code, from memory that may be written to and executed."""


@dataclass
class Prey:
    """What an attacker is after: files of an agent, its process, and where it listens."""

    folder: Path
    pid: int
    tcp: socket.socket
    unix: socket.socket
    abstract: socket.socket
    sandboxes: Sandboxes

    def filled(self, body: str) -> str:
        given = {"DATA": f"{self.folder}/data", "KEYS": f"{self.folder}/keys", "AGENT": self.pid}
        given |= {"PORT": self.tcp.getsockname()[1], "UNIX": self.unix.getsockname()}
        return Template(body).safe_substitute(given)

    def run(self, body: str, **limits: float) -> Done | Failed:
        made = self.function(body, **limits)
        try:
            return made(BATCH)
        finally:
            made.close()

    def function(self, body: str, **limits: float) -> UserFunction:
        text = "import os, sys, time\nimport pyarrow as pa\n"
        text += f"def map(batch):\n{indent(self.filled(body).strip(), '    ')}\n    return batch\n"
        given = Limits(**{"call_secs": 2.0, "memory_bytes": 48 << 20, "log_bytes_max": 4_000, **limits})  # type: ignore[arg-type]
        return UserFunction(self.sandboxes, Function("map", text, "evil.py"), given, lambda _: None)


@pytest.fixture(scope="module")
def prey(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prey]:
    folder = tmp_path_factory.mktemp("prey")
    for place in ("data/elf.sqlite", "keys/identity.json"):
        (folder / place).parent.mkdir()
        (folder / place).write_text(SECRET)
    os.environ["ELF_SECRET"] = SECRET
    leftover = os.open(folder / "data/elf.sqlite", os.O_RDWR)
    os.set_inheritable(leftover, True)
    agent = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    sandboxes = Sandboxes()
    with socket.create_server(("127.0.0.1", 0)) as tcp, socket.socket(socket.AF_UNIX) as unix:
        unix.bind(str(folder / "socket"))
        unix.listen()
        with socket.socket(socket.AF_UNIX) as abstract:
            abstract.bind(f"\0elf-{os.getpid()}")
            abstract.listen()
            yield Prey(folder, agent.pid, tcp, unix, abstract, sandboxes)
    sandboxes.close()
    os.close(leftover)
    del os.environ["ELF_SECRET"]
    agent.kill()
    agent.wait()


FILES = {
    "a file of the system": "open('/etc/passwd').read()",
    "the agent's data": "open('$DATA/elf.sqlite', 'rb').read()",
    "a key": "open('$KEYS/identity.json').read()",
    "a way out of what may be read": "open('/usr/lib/../../etc/passwd').read()",
    "a way out over /proc": "open('/proc/self/root/etc/passwd').read()",
    "through Arrow": "pa.memory_map('$DATA/elf.sqlite').read()",
    "a folder": "os.listdir('$DATA')",
    "the root folder": "os.listdir('/')",
    "writing a file": "open('$DATA/new', 'w')",
    "writing over a file": "os.open('$DATA/elf.sqlite', os.O_RDWR)",
    "cutting a file": "os.truncate('$DATA/elf.sqlite', 0)",
    "a temporary file": "os.open('/tmp', os.O_TMPFILE | os.O_RDWR)",
    "making a folder": "os.mkdir('$DATA/new')",
    "removing a file": "os.unlink('$DATA/elf.sqlite')",
    "moving a file": "os.rename('$DATA/elf.sqlite', '$DATA/moved')",
    "a symbolic link": "os.symlink('/etc/passwd', '/tmp/elf-link')",
    "a hard link": "os.link('/etc/passwd', '/tmp/elf-link')",
    "a pipe with a name": "os.mkfifo('/tmp/elf-fifo')",
    "another mode": "os.chmod('$DATA/elf.sqlite', 0o666)",
    "another owner": "os.chown('$DATA/elf.sqlite', 1, 1)",
    "another working folder": "os.chdir('/etc')",
    "another root": "os.chroot('/usr')",
    "the agent's memory": "open('/proc/$AGENT/mem', 'rb').read(1)",
    "the agent's environment": "open('/proc/$AGENT/environ', 'rb').read()",
    "its own environment": "open('/proc/self/environ', 'rb').read()",
    "processes": "os.listdir('/proc')",
    "descriptors": "os.listdir('/proc/self/fd')",
}
NETWORK = {
    "TCP": "import socket; socket.create_connection(('127.0.0.1', $PORT))",
    "UDP": "import socket; socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('127.0.0.1', 53))",
    "IPv6": "import socket; socket.socket(socket.AF_INET6)",
    "a Unix socket": "import socket; socket.socket(socket.AF_UNIX).connect('$UNIX')",
    "listening": "import socket; socket.create_server(('127.0.0.1', 0))",
    "raw packets": "import socket; socket.socket(socket.AF_PACKET, socket.SOCK_RAW)",
    "netlink": "import socket; socket.socket(socket.AF_NETLINK, socket.SOCK_RAW)",
    "a pair of sockets": "import socket; socket.socketpair()",
}
PROCESSES = {
    "a program": "os.execv('/bin/sh', ['sh'])",
    "a program beside it": "import subprocess; subprocess.run(['/bin/true'])",
    "posix_spawn": "os.posix_spawn('/bin/true', ['true'], {})",
    "a fork bomb": "while True: os.fork()",
    "ending the agent": "os.kill($AGENT, 9)",
    "ending its parent": "os.kill(os.getppid(), 9)",
    "ending its group": "os.killpg(0, 9)",
    "ending everybody": "os.kill(-1, 9)",
    "signals by a descriptor": "import fcntl; fcntl.fcntl(0, fcntl.F_SETOWN, $AGENT)",
    "a pidfd": "os.pidfd_open($AGENT)",
    "another session": "os.setsid()",
    "a higher priority": "os.setpriority(os.PRIO_PROCESS, 0, -10)",
    "another user": "os.setuid(1)",
    "anonymous files": "os.memfd_create('x')",
    "shared memory": "from multiprocessing.shared_memory import SharedMemory; SharedMemory('elf', True, 10)",
    "memory that no limit counts": "import mmap; mmap.mmap(-1, 1 << 20)",
}


@needs_confinement
@pytest.mark.parametrize("attack", [*FILES, *NETWORK, *PROCESSES])
def test_what_is_tried_is_not_permitted(prey: Prey, attack: str) -> None:
    result = prey.run((FILES | NETWORK | PROCESSES)[attack])
    assert isinstance(result, Failed)
    assert result.trouble == "raised"
    assert "PermissionError" in result.text, result.text
    assert SECRET not in result.text
    assert (prey.folder / "data/elf.sqlite").read_text() == SECRET
    assert sorted(p.name for p in (prey.folder / "data").iterdir()) == ["elf.sqlite"]
    assert alive(prey.pid)


REFUSED = {
    "unshare": "call(CALL, 0x10000000)",
    "clone": "call(CALL, 0x10000000 | 17, 0, 0, 0, 0)",
    "prctl": "call(CALL, 1, 0)",
    "execveat": "call(CALL, -100, 0, 0, 0, 0)",
    "seccomp": "call(CALL, 1, 0, 0)",
    "shmget": "call(CALL, 0, 4096, 0o1600)",
    "sendto": "call(CALL, 3, 0, 0, 0, ctypes.addressof(ctypes.create_string_buffer(110)), 110)",
    "sendmsg": "call(CALL, 3, 0, 0)",
    "pidfd_send_signal": "call(CALL, 0, 9, 0, 0)",
    "inotify_init1": "call(CALL, 0)",
    "mq_open": "call(CALL, 0, 0o100, 0o600, 0)",
    "personality": "call(CALL, 0x0040000)",
    "swapoff": "call(CALL, 0)",
}
OTHERS = {
    "x86_64": {
        "unshare": 272, "execveat": 322, "seccomp": 317, "shmget": 29, "sendmsg": 46,
        "pidfd_send_signal": 424, "inotify_init1": 294, "mq_open": 240, "personality": 135, "swapoff": 168,
    },
    "aarch64": {
        "unshare": 97, "execveat": 281, "seccomp": 277, "shmget": 194, "sendmsg": 211,
        "pidfd_send_signal": 424, "inotify_init1": 26, "mq_open": 180, "personality": 92, "swapoff": 225,
    },
}  # fmt: skip
"""Numbers of calls that the filter does not name, and so refuses."""


@needs_confinement
@pytest.mark.parametrize("name", REFUSED)
def test_a_call_that_is_not_on_the_list_is_refused(prey: Prey, name: str) -> None:
    number = OTHERS[platform.machine()].get(name) or CALL(name)
    result = prey.run(RAW + REFUSED[name].replace("CALL", str(number)))
    assert isinstance(result, Failed)
    assert "PermissionError: [Errno 1]" in result.text


@needs_confinement
@pytest.mark.parametrize("name", ["ptrace", "process_vm_readv", "mount", "bpf", "keyctl", "io_uring_setup"])
def test_what_only_an_attack_asks_for_ends_the_process(prey: Prey, name: str) -> None:
    result = prey.run(f"{RAW}call({CALL(name)}, 0, 0, 0, 0, 0)")
    assert isinstance(result, Failed)
    assert (result.trouble, result.row) == ("died", 0)
    assert "SIGSYS" in result.text
    assert isinstance(prey.run("pass"), Done)


@needs_confinement
@pytest.mark.skipif(platform.machine() != "x86_64", reason="machine code of x86_64")
def test_machine_code_gets_no_further(prey: Prey) -> None:
    """A call from memory made executable, one by the gate of 32-bit programs, one by the numbers of x32."""
    fork, gate, x32 = (
        b"\xb8\x39\0\0\0\x0f\x05\xc3",
        b"\xb8\x14\0\0\0\xcd\x80\xc3",
        b"\xb8\x27\0\0\x40\x0f\x05\xc3",
    )
    result = prey.run(f"{NATIVE}run({fork!r})")
    assert isinstance(result, Failed)
    assert "PermissionError: [Errno 1]" in result.text
    for code in (gate, x32):
        result = prey.run(f"{NATIVE}run({code!r})")
        assert isinstance(result, Failed)
        assert "SIGSYS" in result.text


@needs_confinement
def test_neither_environment_nor_descriptors_are_handed_on(prey: Prey) -> None:
    result = prey.run(
        "def is_open(number):\n    try:\n        return bool(os.fstat(number))\n    except OSError:\n"
        "        return False\n"
        "descriptors = [number for number in range(1024) if is_open(number)]\n"
        f"known = {SECRET!r} in str(os.environ)\n"
        "raise ValueError('; '.join([str(descriptors), ' '.join(os.environ), str(known)]))"
    )
    assert isinstance(result, Failed)
    descriptors, names, known = result.text.partition(" in `")[0].split("; ")
    assert descriptors == "evil.py:11: ValueError: [0, 1, 2, 3]"
    assert set(names.split()) <= set(confinement.environment("/"))
    assert known == "False"


@needs_confinement
@pytest.mark.parametrize(
    "body",
    [
        "os.write(3, b'\\xff' * 64)",
        "os.write(3, (5).to_bytes(4, 'big') + (0).to_bytes(4, 'big') + b'\\xc1' * 5)",
        "from elf.functions import wire\n"
        "many, head = wire.to_bytes(pa.record_batch({'x': pa.nulls(5 << 20)})), wire._encode(wire.Done())\n"
        "os.write(3, wire._LENGTHS.pack(len(head), len(many)) + head + many)\n"
        "time.sleep(9)",
    ],
    ids=["a frame too large", "bytes that are no message", "more rows than it may return"],
)
def test_what_it_tells_the_agent_is_not_trusted(prey: Prey, body: str) -> None:
    """It has the socket, so it can say anything."""
    result = prey.run(body)
    assert isinstance(result, Failed)
    assert result.trouble == "output", result.text


OLD = (
    "import socket, sys\nfrom elf.functions import landlock, zygote\nlandlock.version = lambda: 1\n"
    "with socket.socket(fileno=int(sys.argv[1])) as agent:\n    zygote.main(agent, confined=True)"
)


class OldKernel(Sandboxes):
    """As on a kernel with the first Landlock, which knows files alone, and not all that is done with them."""

    def __init__(self) -> None:
        super().__init__()
        self._template.program = ("-c", OLD)


@needs_confinement
def test_the_first_landlock_is_enough(prey: Prey) -> None:
    """What it does not know the filter of system calls refuses."""
    old = replace(prey, sandboxes=OldKernel())
    attacks = (
        "the agent's data",
        "cutting a file",
        "writing over a file",
        "TCP",
        "a Unix socket",
        "listening",
    )
    try:
        for attack in (*attacks, "ending the agent", "ending its parent", "signals by a descriptor"):
            result = old.run((FILES | NETWORK | PROCESSES)[attack])
            assert isinstance(result, Failed)
            assert "PermissionError" in result.text, (attack, result.text)
        assert isinstance(old.run("pass"), Done)
        assert alive(prey.pid)
    finally:
        old.sandboxes.close()


@needs_confinement
@pytest.mark.parametrize(
    ("body", "troubles"),
    [
        ("while True: os.write(1, b'x' * 65536)", {"blocked"}),
        ("while True: print('x' * 1000, file=sys.stderr)", {"blocked"}),
        ("def deep(): deep()\ndeep()", {"raised"}),
        (
            "sys.setrecursionlimit(1 << 30)\ndef deep(x): return [deep(x), deep(x)]\ndeep(1)",
            {"blocked", "died", "memory", "raised"},
        ),
        ("x = bytearray(200 << 20)", {"memory"}),
        (
            # written to, and then made read-only: no data any more, for the kernel
            "import ctypes\nlibc = ctypes.CDLL(None)\nlibc.mmap.restype = ctypes.c_void_p\nsize = 16 << 20\n"
            "while True:\n    page = libc.mmap(None, size, 3, 0x22, -1, 0)\n"
            "    if page in (None, 2**64 - 1): raise MemoryError\n"
            "    ctypes.memset(page, 1, size)\n    libc.mprotect(ctypes.c_void_p(page), size, 1)",
            {"memory"},
        ),
        (
            "import threading\nthreading.stack_size(32 << 10)\nwhile True:\n"
            "    threading.Thread(target=time.sleep, args=(60,), daemon=True).start()",
            {"died", "raised", "memory"},
        ),
        ("while True: pass", {"blocked"}),
        (
            "os.write(3, bytes([0, 0, 0, 9, 1, 0, 0, 0]))\nwhile True: os.write(3, b'x'); time.sleep(0.1)",
            {"blocked"},
        ),
    ],
    ids=[
        "output",
        "errors",
        "recursion",
        "no limit of recursion",
        "memory",
        "hidden memory",
        "threads",
        "CPU",
        "an answer",
    ],
)
def test_what_never_ends_is_ended(prey: Prey, body: str, troubles: set[str]) -> None:
    began = time.monotonic()
    result = prey.run(body, call_secs=0.5)
    assert isinstance(result, Failed)
    assert result.trouble in troubles, result
    assert time.monotonic() - began < 20
    assert isinstance(prey.run("pass"), Done)


@needs_confinement
def test_a_line_that_never_ends_is_not_kept(prey: Prey) -> None:
    """It would grow with each minute's quota, for as long as the agent lives."""
    said: list[str] = []
    text = "def map(batch):\n    print('x' * 3_000, end='', flush=True)\n    return batch\n"
    limits = Limits(call_secs=5.0, memory_bytes=48 << 20)
    made = UserFunction(prey.sandboxes, Function("map", text, "long.py"), limits, said.append)
    for _ in range(4):
        assert isinstance(made(BATCH), Done)
    before = sum(map(len, said))
    made.close()
    assert before >= LINE_BYTES_MAX
    assert sum(map(len, said)) == 12_000


@needs_confinement
def test_sandboxes_cannot_reach_each_other(prey: Prey) -> None:
    victim = prey.function("pass")
    assert isinstance(victim(BATCH), Done)
    pid = victim._sandbox.pid
    for body in (f"os.kill({pid}, {int(signal.SIGKILL)})", f"open('/proc/{pid}/mem', 'rb').read(1)"):
        result = prey.run(body)
        assert isinstance(result, Failed)
        assert "PermissionError" in result.text
    assert isinstance(victim(BATCH), Done)
    assert victim._sandbox.pid == pid
    victim.close()


def group_of_tests() -> Path | None:
    """A real control group for a test, given to it as systemd gives one; None where none can be made."""
    with contextlib.suppress(OSError, StopIteration):
        mounts = [line.split() for line in Path("/proc/self/mountinfo").read_text().splitlines()]
        base = next(Path(words[4]) for words in mounts if words[words.index("-") + 1] == "cgroup2")
        group = base / f"elf-tests-{os.getpid()}"
        (group / "agent").mkdir(parents=True)
        os.setxattr(group, "trusted.delegate", b"1")
        return group
    return None


IN_GROUP = """
import os, sys
from pathlib import Path
Path(sys.argv[1], "agent", "cgroup.procs").write_text(str(os.getpid()))
from elf.functions.sandbox import Limits, Sandboxes
sandboxes = Sandboxes()
pid, sock, output = sandboxes.fork(Limits())
print(sandboxes._template._zygote.pid, pid, *Path(f"/proc/{pid}/cgroup").read_text().split(), flush=True)
print(*sorted(path.name for path in Path(sys.argv[1]).iterdir() if path.is_dir()), flush=True)
sandboxes.close()
"""


@needs_confinement
def test_a_control_group_holds_users_code_where_one_is_given() -> None:
    group = group_of_tests()
    if group is None:
        pytest.skip("no control group can be made here: that takes root and cgroup v2")
    try:
        done = subprocess.run(
            [sys.executable, "-c", IN_GROUP, str(group)],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        first, folders = done.stdout.splitlines()
        zygote, _, *places = first.split()
        name = f"elf-functions-{zygote}"
        assert any(place.startswith("0::") and place.endswith(f"/{name}") for place in places)
        assert folders.split() == ["agent", name]
        assert not (group / name).exists()
    finally:
        (group / "agent").rmdir()
        group.rmdir()


@needs_confinement
def test_what_users_code_needs_still_works(prey: Prey) -> None:
    """Modules that nobody has imported yet, threads, Arrow's own, machine code of libraries, clocks."""
    result = prey.run(
        "import ast, ctypes, decimal, sqlite3, statistics, threading, xml.dom.minidom, zoneinfo\n"
        "import numpy.fft, pyarrow.compute as pc, pyarrow.csv as csv, io\n"
        "thread = threading.Thread(target=time.sleep, args=(0.01,)); thread.start(); thread.join()\n"
        "table = pa.table({'a': list(range(100_000))}).group_by('a').aggregate([('a', 'sum')])\n"
        "assert csv.read_csv(io.BytesIO(b'a,b\\n1,2\\n')).num_rows == 1\n"
        "assert sqlite3.connect(':memory:').execute('select 1').fetchone() == (1,)\n"
        "ctypes.CFUNCTYPE(ctypes.c_int)(lambda: 1)()\n"
        "os.urandom(8); time.localtime(); open('/dev/null').read()\n"
        "os.kill(os.getpid(), 0)"
    )
    assert isinstance(result, Done), result
