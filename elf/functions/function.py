"""A user's function over Arrow batches, in a process of its own: ``map``, ``reduce`` or ``final``.

A call comes to ``Done`` or to ``Failed``, never to an exception. When a batch fails, halves of it are tried
until the row is found, with a bounded number of calls; and the batch is kept on disk for the author.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final
from urllib.parse import quote

import pyarrow as pa

from elf.batch import NO_CAST
from elf.functions import wire
from elf.functions.allowed import Allowed, anybody
from elf.functions.sandbox import Limits, Sandbox, SandboxError, Sandboxes, Trouble
from elf.ql.plan import Function

KINDS: Final = ("map", "reduce", "final")
PROBES_MAX: Final = 32
"""Calls that looking for a row may cost: enough for four thousand million rows that raise at once."""
SLOW_PROBES_MAX: Final = 6
"""The same when each ends the process (it blocks, or takes too much memory)."""
KEPT_MAX: Final = 16
KEPT_BYTES_MAX: Final = 4 << 20
"""Of failing inputs: so many files, each at most so large."""

MORE_BYTES_MAX: Final = 8 << 20
"""What all results for a commit may take beyond what was given: a record has a limit too."""

Origin = Callable[[int], str]
"""Where a row of the batch comes from, for people: ``/var/log/clicks.log, byte 1234``."""


@dataclass(frozen=True, eq=False)
class Done:
    batch: pa.RecordBatch


@dataclass(frozen=True, eq=False)
class Failed:
    """Why a batch has no result. ``row``: the first row that fails by itself; None when none was found.
    ``kept``: the file with the failing input."""

    trouble: Trouble
    text: str
    line: int
    row: int | None = None
    origin: str = ""
    kept: Path | None = None

    @property
    def is_slow(self) -> bool:
        """Whether it ended the process: it blocks, or takes too much memory."""
        return self.trouble not in ("raised", "output")

    def __str__(self) -> str:
        at = f" at row {self.row}" if self.row is not None else ""
        whence = f" ({self.origin})" if self.origin else ""
        kept = f"; the input is in {self.kept}" if self.kept else ""
        return f"{self.text}{at}{whence}{kept}"


class UserFunction:
    """One version of a function on one agent. The process is started by the first call; ``close`` ends it."""

    def __init__(
        self,
        sandboxes: Sandboxes,
        spec: Function,
        limits: Limits,
        log: Callable[[str], None],
        failed_folder: Path | None = None,
        *,
        version: int = 1,
        allowed: Allowed = anybody,
    ) -> None:
        self.spec = spec
        self._allowed = allowed
        self._version = version
        self._limits = limits
        self._folder = failed_folder
        self._sandbox = Sandbox(sandboxes, limits, log)
        self.failures = 0

    def __call__(self, batch: pa.RecordBatch, origin: Origin | None = None) -> Done | Failed:
        """The function's result over a batch; blocks for at most its time limit, and some times that when it
        fails."""
        try:
            return Done(self._call(batch))
        except SandboxError as error:
            failed = self._failed(error)
        if failed.trouble == "refused":
            return failed
        self.failures += 1
        rows = (0, batch.num_rows)
        if batch.num_rows and (self.spec.kind == "map" or failed.line):
            rows, failed = self._search(batch, failed)
        if rows[1] - rows[0] == 1:
            failed = replace(failed, row=rows[0], origin=origin(rows[0]) if origin is not None else "")
        return replace(failed, kept=self._keep(batch, rows, failed))

    def refused(self) -> str:
        """Why it may not run here; empty: it may."""
        return self._allowed(self.spec.text)

    def _call(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        if not self._sandbox.pid:
            if why := self.refused():
                raise SandboxError("refused", why, ended=True)
            self._sandbox.open()
            try:
                self._sandbox.call(wire.LoadFunction(self.spec.text, self.spec.filename, self.spec.kind))
            except SandboxError:
                self._sandbox.close()  # nothing is in it
                raise
        call = wire.CallFunction(self._limits.rows_max, self._limits.bytes_max)
        _, payload = self._sandbox.call(call, wire.to_bytes(batch))
        try:
            result = wire.from_bytes(payload, self._limits.frame_bytes + self._limits.rows_max)
        except wire.Broken as error:
            raise SandboxError("output", str(error)) from None
        if result.num_rows > self._limits.rows_max:  # the process says that it is none, and may lie
            raise SandboxError("output", f"it returns more than {self._limits.rows_max} rows")
        return result

    def _failed(self, error: SandboxError) -> Failed:
        return Failed(error.trouble, error.at(self.spec.filename), error.line)

    def _search(self, batch: pa.RecordBatch, failed: Failed) -> tuple[tuple[int, int], Failed]:
        """The smallest run of rows that was seen to fail, and how it failed. Other functions than map are
        meant for all rows together: there only what fails on the same line counts, and it must be found soon;
        so must what blocks, since a stream task waits, and whoever wants to know whether the function is any
        good.
        """
        first, last = 0, batch.num_rows
        whole = self.spec.kind != "map"
        slow = failed.is_slow
        until = time.monotonic() + (self._limits.call_secs if whole or slow else math.inf)
        probes = SLOW_PROBES_MAX if slow else PROBES_MAX
        while last - first > 1 and probes > 0 and time.monotonic() < until:
            middle = (first + last) // 2
            for start, end in ((first, middle), (middle, last)):
                probes -= 1
                try:
                    self._call(batch.slice(start, end - start))
                except SandboxError as error:
                    if whole and (error.trouble, error.line) != (failed.trouble, failed.line):
                        continue
                    first, last, failed = start, end, self._failed(error)
                    break
                if probes <= 0:
                    break
            else:
                break  # each half is well: it takes both
        return (first, last), failed

    def _keep(self, batch: pa.RecordBatch, rows: tuple[int, int], failed: Failed) -> Path | None:
        """The failing input as an Arrow file: all of it, or what was found when that is too large."""
        if self._folder is None:
            return None
        if batch.nbytes > KEPT_BYTES_MAX:
            batch = batch.slice(rows[0], min(rows[1] - rows[0], 1_000))
            batch = batch.take(pa.array(range(batch.num_rows), pa.int64()))
        notes = {"function": self.spec.kind, "version": str(self._version), "error": failed.text}
        if failed.row is not None:
            notes["row"] = str(failed.row)
        told = f"{self.spec.kind}-v{self._version}-{self.spec.hash}-{self.failures % KEPT_MAX}"
        # They come from elsewhere, and name a file here.
        path = self._folder / f"{quote(f'{Path(self.spec.filename).stem[:40]}-{told}', safe='')[:200]}.arrow"
        with contextlib.suppress(OSError):
            self._folder.mkdir(parents=True, exist_ok=True)
            with (
                pa.OSFile(str(path), "wb") as file,
                pa.ipc.new_file(file, batch.schema.with_metadata(notes)) as out,
            ):
                out.write_batch(batch.replace_schema_metadata(notes))
            self._forget_oldest()
            return path
        return None

    def _forget_oldest(self) -> None:
        if self._folder is not None:
            files = sorted(self._folder.glob("*.arrow"), key=lambda file: file.stat().st_mtime)
            for file in files[:-KEPT_MAX]:
                file.unlink(missing_ok=True)

    def close(self) -> None:
        self._sandbox.close()


def conform(who: str, given: pa.RecordBatch, schema: pa.Schema) -> pa.Table | str:
    """A result with these columns in these types, without others that the function adds; or why it is none.
    ``who`` gives it."""
    missing = [name for name in schema.names if given.schema.names.count(name) != 1]
    if missing:
        has = ", ".join(given.schema.names) or "(none)"
        return f"{who} gives the columns {has}; {', '.join(missing)} must be among them, once"
    try:
        return pa.Table.from_batches([given.select(schema.names).cast(schema)], schema)
    except (*NO_CAST, ValueError) as error:
        return f"{who} gives a column of another type: {error}"
