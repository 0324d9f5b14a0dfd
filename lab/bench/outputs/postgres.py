"""A real PostgreSQL server of one's own: its files in a folder, on loopback, as a user that is not root."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Final

from elf.cli.processes import free_ports
from elf.errors import UserError

USER: Final = "postgres"
_FOLDERS: Final = Path("/usr/lib/postgresql")
PASSWORD: Final = "a word"


def missing() -> str:
    """Why there can be none here; empty: there can."""
    if _binary("initdb") is None:
        return "PostgreSQL is not installed (Debian: postgresql)"
    if os.geteuid() == 0 and not _is_user(USER):
        return f"PostgreSQL does not run as root, and there is no user {USER}"
    return ""


@dataclass
class Server:
    """It runs; ``url`` is of a database in it."""

    url: str
    process: subprocess.Popen[bytes]


@contextmanager
def running(folder: Path) -> Iterator[Server]:
    """Raises ``UserError`` where there can be none. Its durability is off: nobody cuts the power."""
    if why := missing():
        raise UserError(why)
    data, user = folder / "postgres", USER if os.geteuid() == 0 else None
    data.mkdir()
    if user is not None:
        shutil.chown(data, user)
        for parent in data.parents:  # a folder of pytest is closed to others
            if parent.stat().st_uid == os.geteuid() and parent != Path("/"):
                parent.chmod(parent.stat().st_mode | 0o011)
    word = folder / "word"
    word.write_text(PASSWORD)
    word.chmod(0o644)
    access = ["-U", "elf", "-A", "scram-sha-256", f"--pwfile={word}"]
    _run("initdb", "-D", str(data), *access, "--no-sync", "-E", "UTF8", user=user)
    (port,) = free_ports(1)
    settings = ["fsync=off", "listen_addresses=127.0.0.1", f"unix_socket_directories={data}"]
    binary = _binary("postgres")
    assert binary is not None
    process = subprocess.Popen(
        [binary, "-D", str(data), "-p", str(port), *chain.from_iterable(("-c", one) for one in settings)],
        user=user,
        group=user,
        extra_groups=None if user is None else [],
        stdout=subprocess.DEVNULL,
        stderr=(folder / "postgres.log").open("wb"),
        cwd="/",
    )
    try:
        _wait(port, process, folder)
        yield Server(f"postgres://elf@127.0.0.1:{port}/postgres", process)
    finally:
        process.send_signal(signal.SIGINT)  # SIGTERM waits for clients
        process.wait(20)


def _wait(port: int, process: subprocess.Popen[bytes], folder: Path) -> None:
    deadline = time.monotonic() + 20
    ready = _binary("pg_isready")
    assert ready is not None
    while subprocess.run([ready, "-q", "-h", "127.0.0.1", "-p", str(port)], check=False).returncode:
        if process.poll() is not None or time.monotonic() > deadline:
            raise UserError(f"PostgreSQL does not start: {(folder / 'postgres.log').read_text()[-500:]}")
        time.sleep(0.05)


def _run(name: str, *args: str, user: str | None) -> None:
    binary = _binary(name)
    assert binary is not None
    done = subprocess.run(
        [binary, *args],
        check=False,
        user=user,
        group=user,
        extra_groups=None if user is None else [],
        capture_output=True,
        text=True,
        cwd="/",
    )
    if done.returncode:
        raise UserError(f"{name}: {done.stderr.strip()}")


def _binary(name: str) -> str | None:
    found = sorted(_FOLDERS.glob(f"*/bin/{name}"))
    return str(found[-1]) if found else shutil.which(name)


def _is_user(name: str) -> bool:
    try:
        return bool(pwd.getpwnam(name))
    except KeyError:
        return False
