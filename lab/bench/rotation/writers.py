"""Who writes the log: nginx, asked by a client over one connection, or Python.

Both write a line in the format ``combined`` for each number, to the log that is rotated and to a second file
that is not (the truth), and begin a new file when they are told to reopen.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import threading
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Protocol

from elf.cli.processes import Child, Processes, free_ports
from elf.errors import ElfError, UserError
from lab.bench.rotation.judge import Row

ANSWER_SECS: Final = 10.0
TICK_SECS: Final = 0.01
REOPENED_SECS: Final = 0.2
"""After so long nginx has reopened its log; its manual waits too before it compresses."""
_ANSWER: Final = b"HTTP/1.1 204"
_END: Final = b"\r\n\r\n"
_TIME: Final = "%d/%b/%Y:%H:%M:%S %z"
_NGINX: Final = """\
{user}worker_processes 1;
daemon off;
pid {folder}/nginx.pid;
error_log {folder}/error.log notice;
events {{ worker_connections 1024; }}
http {{
    client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
    keepalive_requests 100000000;
{servers}}}
"""
_SERVER: Final = """\
    keepalive_timeout 600s;
    server {{
        listen 127.0.0.1:{port};
        access_log {log} combined;
        access_log {truth} combined;
        location / {{ return 204; }}
    }}
"""


class Writer(Protocol):
    """``pid``: whom logrotate sends USR1; None: nobody."""

    pid: int | None

    def write(self, first: int, count: int) -> None:
        """Lines of these numbers; returns when they are in the log and in the truth."""

    def reopen(self) -> None:
        """Go on in the file that the log's name leads to (made if there is none); returns when that is so."""

    def close(self) -> None: ...


def stem(number: int) -> str:
    return f"/r/{number:06}"


def place_of(tool: str) -> str | None:
    """Where a tool is, which may be an administrator's."""
    return shutil.which(tool, path=f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin")


def found(
    tool: str, package: str, instead: str = ", or use --writer python", who: str = "elf bench rotation"
) -> str:
    """Where a tool is. Raises ``UserError`` with the package's name."""
    path = place_of(tool)
    if path is None:
        raise UserError(f"{who} needs {tool}: apt-get install {package}{instead}")
    return path


def nginx(processes: Processes, folder: Path, servers: str, program: str) -> Child:
    """Start an nginx of one worker, with these ``server`` blocks of its configuration."""
    user = "user root;\n" if os.geteuid() == 0 else ""  # else its worker could not reopen the log
    config = folder / "nginx.conf"
    config.write_text(_NGINX.format(folder=folder, user=user, servers=servers))
    return processes.run("nginx", [program, "-p", str(folder), "-c", str(config)], folder / "nginx.said")


class Nginx:
    """An nginx of one worker, on a port of its own."""

    def __init__(self, processes: Processes, folder: Path, log: Path, truth: Path) -> None:
        folder.mkdir()
        (port,) = free_ports(1)
        servers = _SERVER.format(port=port, log=log, truth=truth)
        self._child = nginx(processes, folder, servers, found("nginx", "nginx"))
        self.pid: int | None = self._child.process.pid
        self._socket = connected(processes, self._child, port)
        self._read = b""

    def write(self, first: int, count: int) -> None:
        ask = b"".join(b"GET %b HTTP/1.1\r\nHost: x\r\n\r\n" % stem(first + n).encode() for n in range(count))
        self._socket.sendall(ask)
        answered = 0
        while answered < count:
            data = self._socket.recv(1 << 16)
            if not data:
                raise ElfError("nginx has closed the connection")
            *answers, self._read = (self._read + data).split(_END)
            if not all(answer.startswith(_ANSWER) for answer in answers):
                raise ElfError(f"nginx answers {answers[0][:80]!r}")
            answered += len(answers)

    def reopen(self) -> None:
        self._child.signal(signal.SIGUSR1, group=False)
        time.sleep(REOPENED_SECS)

    def close(self) -> None:
        self._socket.close()


def connected(processes: Processes, child: Child, port: int) -> socket.socket:
    """To an nginx that has just been started. Raises ``ElfError`` when it does not answer."""
    deadline = time.monotonic() + ANSWER_SECS
    while True:
        try:
            return socket.create_connection(("127.0.0.1", port), ANSWER_SECS)
        except OSError as error:
            processes.check([child])
            if time.monotonic() > deadline:
                raise ElfError(f"nginx does not answer: {error}") from None
            time.sleep(TICK_SECS)


class Plain:
    """What nginx does to its logs, in Python."""

    def __init__(self, log: Path, truth: Path) -> None:
        self.pid: int | None = None
        self._log = log
        self._lock = threading.Lock()
        self._truth = _opened(truth)
        self._now = _opened(log)

    def write(self, first: int, count: int) -> None:
        at = datetime.now(UTC).strftime(_TIME)
        lines = "".join(
            f'127.0.0.1 - - [{at}] "GET {stem(first + n)} HTTP/1.1" 204 0 "-" "-"\n' for n in range(count)
        ).encode()
        with self._lock:
            os.write(self._now, lines)
            os.write(self._truth, lines)

    def reopen(self) -> None:
        with self._lock:
            os.close(self._now)
            self._now = _opened(self._log)

    def close(self) -> None:
        os.close(self._now)
        os.close(self._truth)


def _opened(path: Path) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)


class Traffic:
    """A thread that writes ``rate`` numbers a second, from 0 on; ``wrote``: so many were answered."""

    def __init__(self, writer: Writer, rate: int) -> None:
        self.wrote = 0
        self.failure: Exception | None = None
        self._writer = writer
        self._rate = rate
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def end(self) -> None:
        """Returns when all is written. Raises what the writer has raised."""
        self._ending.set()
        self._thread.join()
        if self.failure is not None:
            raise self.failure

    def _run(self) -> None:
        began = time.monotonic()
        try:
            while not self._ending.wait(TICK_SECS):
                due = int((time.monotonic() - began) * self._rate) - self.wrote
                if due > 0:
                    self._writer.write(self.wrote, due)
                    self.wrote += due
        except (OSError, ElfError) as error:
            self.failure = error


def rows(data: bytes) -> dict[str, Row]:
    """The rows of whole lines in the format ``combined``, by their stems."""
    lines = data[: data.rfind(b"\n") + 1].splitlines(keepends=True)
    times: dict[str, float] = {}
    read = {}
    for line in lines:
        text = line.decode(errors="replace")
        _, _, rest = text.partition("[")
        at, _, rest = rest.partition("]")
        words = rest.split(" ", 3)
        if len(words) < 3:
            continue
        if at not in times:
            times[at] = datetime.strptime(at, _TIME).timestamp()
        read[words[2]] = Row(times[at], len(line))
    return read
