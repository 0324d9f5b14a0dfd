"""``elf bench offline``: queries over thirty days of archived lines, by Spark.

- elf's query over all of them, against the same query written by hand in Spark's SQL over the same files;
- the same, against elf's query over the raw text log, where each line's time has to be read too;
- one hour of them and one column, against the raw text log;
- what ``elf compare`` asks of three windows of an hour, with the start of Spark.

Each run is a process of its own, in which Spark is started and warm before the clock begins (not of compare).
All answers to a query must be the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Annotated, Final, Literal

import numpy as np
import pyarrow as pa
from typer import Option

from agents.formats import get_format
from agents.inputs.whole import Whole
from agents.tasks.archive import Archive
from agents.tasks.extracting import Extractor
from elf.job.ports import Wanted
from lab.bench.offline_side import STREAM, Answered, Asked, run_side
from lab.bench.options import Repeat
from lab.bench.runner import Bench, Figure, Report, Scratch, same
from lab.bench.sides import ask
from lab.cli.generate import GenerateOptions, write

DAYS: Final = 30
START: Final = "2026-01-01"
START_US: Final = 1_767_225_600_000_000
HOUR_US: Final = 3_600_000_000
DAY_US: Final = 24 * HOUR_US
CHUNK_BYTES: Final = 8 << 20
_HOUR: Final = (START_US + 300 * HOUR_US, START_US + 301 * HOUR_US)
_THREE: Final = (START_US + 300 * HOUR_US, START_US + 303 * HOUR_US)


class OfflineFormat(StrEnum):
    """``elf bench offline --format``"""

    JSON = "json"
    COMBINED = "combined"


@dataclass(frozen=True)
class Offline(Bench[str, Answered]):
    """Generated lines, evenly over the days."""

    rows: Annotated[int, Option("--rows", min=1_000, help="Lines.")] = 2_000_000
    format: Annotated[OfflineFormat, Option("--format", help="Of the lines.")] = OfflineFormat.COMBINED
    master: Annotated[str, Option("--master", help="Spark's.")] = "local[2]"
    repeat: Repeat = 3

    def sides(self, scratch: Scratch) -> Mapping[str, Callable[[], Answered]]:
        """Write log and archive; each side is a process."""
        log, archive = scratch.folder / "log", scratch.folder / "archive"
        kind: Literal["clicks", "access"] = "clicks" if self.format is OfflineFormat.JSON else "access"
        rate = self.rows / (DAYS * 86_400)
        write(GenerateOptions(kind, str(log), self.rows, 1, None, None, rate, START, 0, 0))
        archived(log, archive, self.format.value)
        said = partial(Asked, archive=str(archive), log=str(log), format=self.format, master=self.master)
        asked = {
            "elf": said("elf"),
            "by hand": said("by hand"),
            "raw text": said("raw"),
            "elf, one hour": said("elf", span=_HOUR),
            "raw text, one hour": said("raw", span=_HOUR),
            "compare, three windows": said("compare", span=_THREE),
        }
        return {name: partial(ask, run_side, one) for name, one in asked.items()}

    def report(self, runs: Mapping[str, Sequence[Answered]]) -> Report:
        """Ratios of medians. Raises ``ElfError`` when two sides do not answer alike."""
        for alike in (("elf", "by hand", "raw text"), ("elf, one hour", "raw text, one hour")):
            same({name: runs[name] for name in alike}, lambda run: run.answer, "the answers")
        seconds = {name: median(run.seconds for run in some) for name, some in runs.items()}
        whole = median(run.seconds + run.start_seconds for run in runs["compare, three windows"])
        of = f"{self.rows:,} lines, {self.format}"
        figures = [
            Figure(f"offline: a query over {of}", seconds["elf"], "s", {"by hand": seconds["by hand"]}),
            Figure(f"offline: a query over {of}", seconds["elf"], "s", {"raw text": seconds["raw text"]}),
            Figure(
                f"offline: one hour of {DAYS} days, one column, of {of}",
                seconds["elf, one hour"],
                "s",
                {"raw text": seconds["raw text, one hour"]},
            ),
            Figure(f"compare: three windows of {of}, with the start of Spark", whole, "s"),
        ]
        sides = {
            name: {
                "seconds": round(seconds[name], 3),
                "start_seconds": round(median(run.start_seconds for run in some), 3),
                "rows": some[0].rows,
            }
            for name, some in runs.items()
        }
        facts = {"lines": self.rows, "format": self.format.value, "master": self.master, **sides}
        return Report(
            facts,
            figures,
            [
                f"elf takes {seconds['elf'] / seconds['by hand']:.2f} × the query by hand",
                f"raw text takes {seconds['raw text'] / seconds['elf']:.2f} × the archive; one hour of it "
                f"{seconds['raw text, one hour'] / seconds['elf, one hour']:.1f} ×",
            ],
        )


def archived(log: Path, archive: Path, format: str) -> None:
    """Archive the lines of a log as an agent does, a file for each hour."""
    format_ = get_format(format)
    with log.open(encoding="utf-8") as file:
        event_time = format_.schema(pa.array([file.readline()]), None).event_time
    facts = {"format": format, "timestamp": "", "agent_name": "web-1", "labels": "{}"}
    ours = Archive(
        archive.parent / "rolls",
        str(archive),
        stream=STREAM,
        agent="web-1",
        roll_secs=1,
        roll_bytes=1,
        facts=facts,
    )
    ours.restore(0)
    extractor, source = Extractor(format_, event_time, Wanted()), Whole([str(log)])
    day = START_US // DAY_US
    while (chunk := source.read(CHUNK_BYTES, 0)) is not None:
        found = extractor.extract(chunk.lines)
        times = found.table["_ts"].combine_chunks()
        days = times.to_numpy(zero_copy_only=False) // DAY_US
        places = [0, *(np.flatnonzero(np.diff(days)) + 1).tolist(), len(days)]
        for begin, end in pairwise(places):
            if days[begin] > day:
                day = days[begin]
                ours.roll()
            chosen = found.accepted[begin:end]
            lines = chunk.lines.take(pa.array(chosen))
            ours.append(lines, times[begin:end], chunk.source, chunk.offsets[chosen])
    source.close()
    extractor.close()
    ours.roll()
    ours.ship(ours.sync())
    ours.close()
