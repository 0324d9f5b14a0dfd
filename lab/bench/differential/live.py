"""The live answers: real nodes, trees, masters and stream tasks in one process over the memory transport, as
in ``elf run``, but with chunks of random sizes, agents that begin at random moments, and messages that take
random times (in order between two agents, in any order among them), all from one seed. Maps and final
fragments that need no SQL are made with it too (``bothways``).
"""

from __future__ import annotations

import asyncio
import random
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final
from unittest.mock import patch

import pyarrow as pa

from agents import logs as console
from agents.formats import get_format
from agents.inputs.ranges import Range, split_inputs
from agents.inputs.values import Chunk
from agents.inputs.whole import Whole
from agents.run import Fleet
from agents.runinputs import FleetStream
from agents.tasks.streamtask import TaskStatus
from elf.client.windows import split
from elf.errors import ElfError
from elf.ql.plan import COUNTED
from elf.transport.base import Dropped
from elf.transport.memory import MemoryNetwork
from elf.wire.clients import WindowResult
from lab.bench.differential.asked import FILES
from lab.bench.differential.bothways import both_ways, finished_both_ways
from lab.bench.differential.differences import Answer, Row, plain
from lab.bench.differential.logs import Log

DELAYS_S: Final = (0.0, 0.0, 0.002, 0.01)
"""The most that a message takes, one of these a fleet."""
CHUNK_BYTES: Final = (4_000, 12_000, 1 << 20)
"""The most that is read at once, one of these an agent."""

Answered = Answer | str
"""An answer, or why there is none."""


class _Restless(MemoryNetwork):
    """A network whose messages take their time."""

    def __init__(self, rng: random.Random) -> None:
        super().__init__()
        self._rng = rng
        self._delay_s = rng.choice(DELAYS_S)
        self._last: dict[tuple[str, str], float] = {}

    def _carry(self, origin: str, to: str, frames: list[bytes]) -> Dropped | None:
        if not self._delay_s:
            return super()._carry(origin, to, frames)
        loop = asyncio.get_running_loop()
        # Later than the one before: of timers of one moment asyncio promises no order.
        before = self._last.get((origin, to), 0.0)
        at = max(loop.time() + self._rng.random() * self._delay_s, before + 1e-6)
        self._last[origin, to] = at
        loop.call_at(at, super()._carry, origin, to, frames)
        return None


class _Choppy(Whole):
    """Reads in pieces of random sizes."""

    def __init__(self, ranges: Sequence[Range | str], rng: random.Random) -> None:
        super().__init__(ranges)
        self._rng = rng
        self._most = rng.choice(CHUNK_BYTES)

    def read(self, bytes_max: int, now_ms: int) -> Chunk | None:
        """See ``Whole``."""
        return super().read(self._rng.randint(1, self._most), now_ms)


def answers(log: Log, queries: Sequence[str], agents: int, seed: str) -> list[Answered]:
    """What a fleet of so many agents says to each of the queries, all of them asked at once."""
    console.configure("error", "console")
    maps = patch("agents.tasks.direct.mapper_of", both_ways)
    finals = patch("agents.tasks.finishing.finisher_of", finished_both_ways)
    with maps, finals, tempfile.TemporaryDirectory(prefix="elf-differential-") as folder:
        paths = write(log, Path(folder))
        streams = []
        for stream in dict.fromkeys(log.streams):
            mine = [path for path, of in zip(paths, log.streams, strict=True) if of == stream]
            shares = split_inputs(mine, agents, whole_files=log.whole)
            facts = TaskStatus(stream, get_format("json"), None, "")
            streams.append(FleetStream(facts, shares, log.samples(stream)))
        return asyncio.run(_ask(streams, queries, random.Random(seed)))


def write(log: Log, folder: Path) -> list[str]:
    """The log's files in a folder."""
    paths = []
    for number, file in enumerate(log.files):
        path = folder / f"{number}.json"
        path.write_text("".join(line.text + "\n" for line in file), encoding="utf-8")
        paths.append(str(path))
    return paths


async def _ask(streams: Sequence[FleetStream], queries: Sequence[str], rng: random.Random) -> list[Answered]:
    fleet = Fleet(
        streams,
        network=_Restless(random.Random(rng.random())),
        open_input=lambda share: _Choppy(share, random.Random(rng.random())),
    )
    results: list[list[WindowResult]] = [[] for _ in queries]
    try:
        await fleet.start()
        failed = await fleet.answer(queries, lambda number, result: results[number].append(result), FILES)
    except ElfError as error:
        return [f"the fleet: {error}"] * len(queries)
    finally:
        await fleet.stop()
    return [
        failed[i] if i in failed else _joined(found, revised="REVISE" in queries[i])
        for i, found in enumerate(results)
    ]


def _joined(results: Sequence[WindowResult], *, revised: bool) -> Answer | str:
    """The last revision of each window, by their bounds; ``revised``: whether there may be more than one."""
    names: tuple[str, ...] = ()
    windows: dict[tuple[str, str], pa.Table] = {}
    for window in (window for result in results for window in split(result)):
        span = (str(window.start), str(window.end))
        if span in windows and not revised:
            return f"the window {window.start} … {window.end} came again, as revision {window.revision}"
        windows[span] = window.table
    rows: list[Row] = []
    for _, table in sorted(windows.items(), key=lambda item: item[0]):
        if table.num_columns:
            names = tuple(table.column_names)
            cells = (column.to_pylist() for column in table.columns)
            rows += [tuple(map(plain, row)) for row in zip(*cells, strict=True)]
    if COUNTED[0] in names:  # a path, of which the file's name tells enough
        at = names.index(COUNTED[0])
        rows = [(*row[:at], Path(str(row[at])).name, *row[at + 1 :]) for row in rows]
    return Answer(names, rows)
