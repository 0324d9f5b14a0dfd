"""Who sends: real programs where a machine has them, and one of ours where no package has one.

Each is a ``Writer`` of rotation's bench: ``write`` returns when its protocol says that the rows are taken.
Rows are lines of JSON with a time and a ``cs_uri_stem``; nginx writes its own.
"""

from __future__ import annotations

import json
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import msgspec

from elf.cli.processes import Processes, free_ports
from elf.errors import ElfError
from lab.bench.rotation.writers import Nginx, Writer, place_of, stem

AGAIN_S: Final = 0.2
TRIES_SECS: Final = 60.0


class LeftOut(ElfError):
    """This machine has no such sender."""


def _found(tool: str, package: str) -> str:
    path = place_of(tool)
    if path is None:
        raise LeftOut(f"{tool} is not here: apt-get install {package}")
    return path


class _Plain:
    """Has no file, which could be rotated, and nothing open."""

    pid: int | None = None

    def reopen(self) -> None: ...

    def close(self) -> None: ...


class _Connected(_Plain):
    """Has a connection to the agent, or to who sends for it, which is made anew where it has broken."""

    def __init__(self, port: int) -> None:
        self._at = "127.0.0.1", port
        self._socket: socket.socket | None = None

    def connected(self) -> socket.socket:
        if self._socket is None:
            self._socket = socket.create_connection(self._at, 5)
        return self._socket

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None


def texts(first: int, count: int) -> Iterator[str]:
    """The rows of these numbers."""
    for number in range(first, first + count):
        yield json.dumps({"ts": datetime.now(UTC).isoformat(), "cs_uri_stem": stem(number)})


class Curl(_Plain):
    """curl, which repeats a request until it is answered with 202."""

    def __init__(self, port: int) -> None:
        again = ["--retry", "60", "--retry-delay", "1", "--retry-all-errors"]
        self._command = [_found("curl", "curl"), "-sS", "--fail", *again]
        self._command += ["--data-binary", "@-", f"http://127.0.0.1:{port}/"]

    def write(self, first: int, count: int) -> None:
        body = "".join(f"{text}\n" for text in texts(first, count)).encode()
        command = [*self._command, "-H", f"Idempotency-Key: {first}"]
        done = subprocess.run(command, input=body, capture_output=True, check=False, timeout=TRIES_SECS)
        if done.returncode:
            raise ElfError(f"curl has given up: {done.stderr.decode(errors='replace').strip()}")


class Forward(_Connected):
    """The forward protocol with acks, by us: chunks as Fluent Bit sends them, repeated until acknowledged."""

    def write(self, first: int, count: int) -> None:
        entries = [[int(time.time()), {"log": text}] for text in texts(first, count)]
        block = b"".join(map(msgspec.msgpack.encode, entries))
        message = msgspec.msgpack.encode(["web", block, {"chunk": str(first), "size": count}])
        until = time.monotonic() + TRIES_SECS
        while not self._acknowledged(message, str(first)):
            if time.monotonic() > until:
                raise ElfError("a chunk was not acknowledged")
            time.sleep(AGAIN_S)

    def _acknowledged(self, message: bytes, chunk: str) -> bool:
        try:
            peer = self.connected()
            peer.sendall(message)
            answer = peer.recv(1 << 12)
            if answer:
                return bool(msgspec.msgpack.decode(answer) == {"ack": chunk})
        except OSError:
            pass
        self.close()
        return False


class OpenTelemetry(_Plain):
    """The SDK of OpenTelemetry for Python, and its exporter over HTTP."""

    def __init__(self, port: int) -> None:
        try:
            from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
            from opentelemetry.sdk._logs import LoggerProvider
            from opentelemetry.sdk._logs.export import BatchLogRecordProcessor
        except ImportError:
            raise LeftOut(
                "pip install opentelemetry-sdk opentelemetry-exporter-otlp-proto-http is needed"
            ) from None
        exporter = OTLPLogExporter(endpoint=f"http://127.0.0.1:{port}/v1/logs", timeout=TRIES_SECS)
        self._provider: Any = LoggerProvider()
        self._provider.add_log_record_processor(BatchLogRecordProcessor(exporter))
        self._logger: Any = self._provider.get_logger("bench")

    def write(self, first: int, count: int) -> None:
        for text in texts(first, count):
            self._logger.emit(timestamp=time.time_ns(), body=text)
        self._provider.force_flush(int(TRIES_SECS * 1000))

    def close(self) -> None:
        self._provider.shutdown()


class Syslog(_Connected):
    """Syslog over TCP, by us, as every program does it: nothing is repeated."""

    def write(self, first: int, count: int) -> None:
        at = datetime.now(UTC).strftime("%b %d %H:%M:%S")
        data = "".join(f"<13>{at} web-1 app: {text}\n" for text in texts(first, count)).encode()
        until = time.monotonic() + TRIES_SECS
        while True:
            try:
                self.connected().sendall(data)
                return
            except OSError:
                self.close()
                if time.monotonic() > until:
                    raise
                time.sleep(AGAIN_S)


class Rsyslog(Syslog):
    """rsyslog, which has messages of us over TCP, and sends them on, with octets counted, from a queue."""

    def __init__(self, port: int, processes: Processes, folder: Path) -> None:
        path = _found("rsyslogd", "rsyslog")
        (own,) = free_ports(1)
        folder.mkdir()
        (folder / "rsyslog.conf").write_text(
            f'global(workDirectory="{folder}" maxMessageSize="64k")\n'
            'module(load="imptcp")\n'
            f'input(type="imptcp" address="127.0.0.1" port="{own}")\n'
            'template(name="plain" type="string" string="<%PRI%>%TIMESTAMP% %HOSTNAME% %syslogtag%%msg%")\n'
            f'action(type="omfwd" target="127.0.0.1" port="{port}" protocol="tcp" template="plain"\n'
            '       TCP_Framing="octet-counted" queue.type="LinkedList" queue.filename="elf"\n'
            '       queue.timeoutShutdown="10000" action.resumeRetryCount="-1" action.resumeInterval="1")\n'
        )
        command = [path, "-n", "-f", str(folder / "rsyslog.conf"), "-i", str(folder / "pid")]
        processes.run("rsyslogd", command, folder / "rsyslog.log")
        super().__init__(own)


def nginx(port: int, processes: Processes, folder: Path) -> Writer:
    """nginx, whose access log is syslog (over UDP)."""
    _found("nginx", "nginx")
    log = Path(f"syslog:server=127.0.0.1:{port},tag=nginx,nohostname")
    return Nginx(processes, folder, log, folder / "truth.log")


Make = Callable[[int, Processes, Path], Writer]
SENDERS: Final[dict[str, tuple[str, str, bool, Make]]] = {
    "http": ("http", "curl", True, lambda port, processes, folder: Curl(port)),
    "forward": ("forward", "our own sender, with acks", True, lambda port, processes, folder: Forward(port)),
    "otlp": ("otlp", "OpenTelemetry's SDK", True, lambda port, processes, folder: OpenTelemetry(port)),
    "syslog": ("syslog", "our own sender, TCP", False, lambda port, processes, folder: Syslog(port)),
    "rsyslog": ("syslog", "rsyslog, TCP", False, Rsyslog),
    "nginx": ("syslog", "nginx, UDP", False, nginx),
}
"""By name: the type of the stream, who sends, whether it repeats what was not acknowledged, and how it is
made."""
