"""The sides of a benchmark: each run is a fresh process, which is asked by one value and answers with one."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from typing import Final, TypeVar

import msgspec
import pyarrow as pa

from elf.cli.processes import ROOT
from elf.errors import ElfError, UserError

REFUSED: Final = 3
"""Exit status of a side that has a message for the user, on standard error."""
THREADS: Final = 1

Asked = TypeVar("Asked")
Answer = TypeVar("Answer", bound=msgspec.Struct)


def environment() -> dict[str, str]:
    """Ours, with the place that this code was imported from."""
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}


def ask(module: str, asked: msgspec.Struct, answer: type[Answer]) -> Answer:
    """One run of the side that is this module. Raises ``UserError``, ``ElfError``."""
    done = subprocess.run(
        [sys.executable, "-P", "-m", module],
        input=msgspec.json.encode(asked),
        capture_output=True,
        env=environment(),
        check=False,
    )
    said = done.stderr.decode(errors="replace").strip()
    if done.returncode == REFUSED:
        raise UserError(said)
    if done.returncode != 0:
        raise ElfError(f"{module} failed: {said.splitlines()[-1] if said else f'status {done.returncode}'}")
    return msgspec.json.decode(done.stdout.splitlines()[-1], type=answer)


def answer(asked: type[Asked], run: Callable[[Asked], msgspec.Struct]) -> None:
    """What such a module does when it is run."""
    pa.set_cpu_count(THREADS)
    pa.set_io_thread_count(THREADS)
    found = run(msgspec.json.decode(sys.stdin.buffer.read(), type=asked))
    sys.stdout.buffer.write(msgspec.json.encode(found) + b"\n")
