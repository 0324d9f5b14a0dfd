"""A shipper of log lines, to stand beside an agent: rsyslog follows files (imfile) and sends their lines over
TCP, from a queue, to whoever hears them here. Fluent Bit, Vector and Filebeat are in no registry of packages
that this lab installs from.

Nothing is imported here that takes memory: see ``lab.bench.idle``.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from elf.cli.processes import Child, Processes
from elf.errors import ElfError
from lab.bench.rotation.writers import found

HEARS_BYTES: Final = 1 << 16
FIRST_SECS: Final = 30.0
"""What the files have already must be here by then."""
_CONFIG: Final = """\
global(workDirectory="{state}" maxMessageSize="64k")
module(load="imfile" mode="inotify")
template(name="line" type="string" string="%msg%\\n")
ruleset(name="lines") {{
  action(type="omfwd" target="127.0.0.1" port="{port}" protocol="tcp" template="line"
         queue.type="LinkedList" queue.filename="lines" action.resumeRetryCount="-1")
}}
input(type="imfile" file="{files}" tag="t" ruleset="lines" persistStateInterval="100")
"""


def program() -> str:
    """Where rsyslog is. Raises ``UserError`` with the package's name."""
    return found("rsyslogd", "rsyslog", "", "elf bench idle --shipper")


@contextmanager
def ships(processes: Processes, folder: Path, pattern: str) -> Iterator[Child]:
    """rsyslog, which sends on the lines of these files of the folder; it has begun when the block does.
    Raises ``ElfError`` when nothing comes."""
    state = folder / "shipper"
    state.mkdir()
    with socket.create_server(("127.0.0.1", 0)) as server:
        config = state / "rsyslog.conf"
        port, files = server.getsockname()[1], folder / pattern
        config.write_text(_CONFIG.format(state=state, port=port, files=files), encoding="utf-8")
        heard = threading.Event()
        hearing = threading.Thread(target=_hear, args=(server, heard), daemon=True)
        hearing.start()
        command = [program(), "-n", "-f", str(config), "-i", str(state / "pid")]
        child = processes.run("rsyslogd", command, state / "log")
        try:
            deadline = time.monotonic() + FIRST_SECS
            while not heard.wait(0.1):
                processes.check([child])
                if time.monotonic() > deadline:
                    raise ElfError(f"rsyslogd sends nothing within {FIRST_SECS:g} s")
            yield child
        finally:
            processes.stop([child])


def _hear(server: socket.socket, heard: threading.Event) -> None:
    """All that one sender says."""
    with suppress(OSError):  # the block is over
        connection, _ = server.accept()
        with connection:
            while connection.recv(HEARS_BYTES):
                heard.set()
