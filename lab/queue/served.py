"""A queue for offline runs, and the process of its own that serves it with a Spark."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from agents.archived import Span
from elf.errors import ElfError
from spark_backend.queries import question
from spark_backend.queue.store import Run, Spec, Store

SLOTS: Final = 2
LOOK_SECS: Final = 0.05


class Served:
    """A queue over one archive.

    Args:
        folder (Path): of the queue, which is made.
        archive (Path): what its runs read.
        master (str): Spark's.
        conf (Mapping[str, str]): settings of Spark's.
    """

    def __init__(self, folder: Path, archive: Path, master: str, conf: Mapping[str, str]) -> None:
        self.store = Store(folder, create=True)
        self.process: subprocess.Popen[bytes] | None = None
        self._archive, self._master, self._conf = archive, master, conf
        self._said = folder / "serve.err"

    def submit(self, name: str, text: str, span: Span | None = None, *, production: bool = False) -> Path:
        """A run; the file that its rows go to."""
        out = self.store.folder / f"{name}.parquet"
        archives = (str(self._archive),)
        schemas = {one.stream: one.schema for one in question(text, archives, span).streams}
        self.store.submit(
            name,
            Spec(text, archives, span, schemas),
            out,
            owner="lab",
            production=production,
            deadline_ms=None,
            now_ms=time.time_ns() // 1_000_000,
        )
        return out

    def begin(self) -> None:
        """Start a daemon, unless there is one."""
        if self.process is None:
            command = [sys.executable, "-m", "elf.cli.main", "offline", "serve", "--master", self._master]
            command += ["--queue", str(self.store.folder), "--slots", str(SLOTS)]
            command += [w for name, value in self._conf.items() for w in ("--conf", f"{name}={value}")]
            with self._said.open("wb") as said:
                self.process = subprocess.Popen(
                    command, stdout=subprocess.DEVNULL, stderr=said, start_new_session=True
                )

    def kill(self) -> None:
        """``kill -9``, of Spark too."""
        if self.process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            self.process = None

    def look(self, name: str) -> Run:
        """How a run stands. Raises ``ElfError`` where its daemon has ended by itself."""
        if self.process is not None and self.process.poll() is not None:
            *_, last = ["", *self._said.read_text(errors="replace").splitlines()]
            raise ElfError(f"the daemon has ended with {self.process.returncode}: {last}")
        return self.store.run(name)

    def until_over(self, name: str) -> Run:
        """Wait for a run. Raises ``ElfError`` where it is not done."""
        while not (run := self.look(name)).over:
            time.sleep(LOOK_SECS)
        if run.state != "done":
            raise ElfError(f"{name} is {run.state}: {run.why}")
        return run
