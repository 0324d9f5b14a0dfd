"""What goes out as one: a window's rows, with what tells them from every other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Final

import msgspec

from agents.committing.windowcommits import window_result
from elf.client.values import json_rows, rfc3339
from elf.client.windows import Window, split
from elf.job.commits import WindowCommit
from elf.job.output import OutputSpec

_json: Final = msgspec.json.Encoder(decimal_format="number").encode


@dataclass(frozen=True)
class Parcel:
    """A window of a job. ``number``: of the result that it is in."""

    output: OutputSpec
    number: int
    window: Window

    @property
    def span(self) -> tuple[datetime | None, datetime | None]:
        return self.window.start, self.window.end

    @property
    def rank(self) -> tuple[int, int, int]:
        """Of two parcels of one output and span, the one with the higher rank counts: the job's generation,
        the version, and the revision."""
        generation = int(self.window.job.rpartition(".")[2])
        return generation, self.window.version, self.window.revision

    @property
    def key(self) -> str:
        """Two with the same key are the same."""
        start, end = (int(at.timestamp() * 1_000_000) if at is not None else "" for at in self.span)
        window = self.window
        return f"{self.output.uid}:{window.job}:{start}:{end}:{window.version}:{window.revision}"

    @cached_property
    def json(self) -> bytes:
        """For a program elsewhere: one object."""
        window = self.window
        told = {
            "kind": "window",
            "output": self.output.name,
            "job": window.name,
            "job_uid": window.job,
            "version": window.version,
            "window_start": window.start and rfc3339(window.start),
            "window_end": window.end and rfc3339(window.end),
            "revision": window.revision,
            "number": self.number,
            "status": window.status,
            "rows": msgspec.Raw(f"[{','.join(json_rows(window.table))}]".encode()),
        }
        return _json(told)


def parcels(output: OutputSpec, job: str, row: WindowCommit, master: str) -> Sequence[Parcel]:
    """Those of one result of the job of that name."""
    return [Parcel(output, row.seq, window) for window in split(window_result(job, row, master))]
