"""An archive in real files, which all simulated agents of a world share: rolls are shipped to it, small files
merged, old ones deleted, and somebody sorts it by a column, and may die of it.

An agent reads it with its own reader (``agents.tasks.ownarchive``). Its times are stretched, so that a storm
lasts for some hours of the archive, and are in the future of the process that all of this is.
"""

from __future__ import annotations

import random
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from agents.archive import layout as layouts
from agents.archive.contents import contents
from agents.archive.manifest import File
from agents.archive.partitions import Target, by_hour
from agents.archive.pieces import file_of, piece_of
from agents.archive.retention import Limits
from agents.archive.shelf import Shelf
from agents.archive.upkeep import Upkeep
from agents.recluster import recluster
from agents.tasks import archive as rolls
from agents.tasks.ownarchive import OwnArchive
from agents.tasks.past import Survey
from elf.job.offload import Archive

if TYPE_CHECKING:
    from lab.chaos.agent import SimAgent
    from lab.chaos.task import Log
    from lab.chaos.world import World

STRETCH: Final = 1_800
"""An hour of the archive is two seconds of the world."""
BASE_US: Final = 4_102_444_800_000_000
"""2100-01-01, when the world begins."""
SHIP_ROWS: Final = 7
COLUMN: Final = "key"
"""By which it is sorted."""
NOBODY: Final = (1 << 22) + 1
"""The id of a process that has ended: no process can have it."""
MEMORY: Final = Path("/dev/shm")
_FACTS: Final = {b"elf.format": b"csv:at,key", b"elf.timestamp": b"at"}
_NAME: Final = pa.dictionary(pa.int32(), pa.string())
_SCHEMA: Final = pa.schema(
    [
        ("line", pa.string()),
        ("ts", pa.timestamp("us", "UTC")),
        ("source", _NAME),
        ("log", _NAME),
        ("position", pa.int64()),
        ("record", pa.int64()),
    ],
    metadata=_FACTS,
)


class Died(BaseException):
    """Who sorts the archive."""


class Archives:
    """Of one world. ``rng``: what agents do while somebody sorts it."""

    def __init__(self, world: World, seed: int) -> None:
        self._world = world
        self._rng = random.Random(f"archives {seed}")
        self._folder = tempfile.TemporaryDirectory(
            prefix="elf-chaos-", dir=MEMORY if MEMORY.is_dir() else None
        )
        self.place = Path(self._folder.name) / "archive"
        self._of: dict[tuple[int, str], FileArchive] = {}

    def of(self, agent: SimAgent, stream: str, fed: Callable[[], int]) -> FileArchive:
        """An agent's own, in a new life of its process, which has been given so many rows."""
        target, log = Target(str(self.place)), agent.logs[stream]
        shelf = Shelf(target, stream, f"a{agent.index}", now_ms=self.now_ms)
        self._of[agent.index, stream] = found = FileArchive(shelf, f"{agent.index:032x}", log, fed)
        return found

    def shipped_of(self, agent: SimAgent, stream: str) -> Stretched:
        """What an agent has shipped, as others see it: they read its manifest."""
        shelf = Shelf(Target(str(self.place)), stream, f"a{agent.index}", now_ms=self.now_ms)
        life = f"{agent.index:032x}"
        end = shelf.shipped(life) if shelf.is_known else 0
        return Stretched(FileArchive(shelf, life, agent.logs[stream], lambda: end))

    def now_ms(self) -> int:
        return BASE_US // 1_000 + STRETCH * self._world.now

    def close(self) -> None:
        self._folder.cleanup()

    # -- what agents do --------------------------------------------------------------------------------------

    def _own(self, agent: SimAgent) -> Iterator[FileArchive]:
        if agent.up:
            yield from (one for (index, _), one in self._of.items() if index == agent.index)

    def upkeep(self, agent: SimAgent) -> None:
        """A pass over its files: small ones become larger ones."""
        for own in self._own(agent):
            Upkeep(
                [own.shelf], Limits(free_bytes=0), grace_ms=0, now_ms=self.now_ms, room=lambda shelf: None
            ).run()

    def retain(self, agent: SimAgent, share: int) -> None:
        """So many percent of its files go, the oldest."""
        for own in self._own(agent):
            own.shelf.look()
            files = sorted(own.shelf.files(), key=lambda file: (file.hour or 0, file.path))
            own.let_go(files[: -(-len(files) * share // 100)])

    def _meanwhile(self) -> None:
        """While the archive is sorted."""
        agent = self._rng.choice(self._world.agents)
        match self._rng.choice(["upkeep", "ship", "retain"]):
            case "upkeep":
                self.upkeep(agent)
            case "retain":
                self.retain(agent, 10)
            case _:
                for own in self._own(agent):
                    own.ship(own.kept)

    # -- somebody else ---------------------------------------------------------------------------------------

    def sort(self, stream: str, dies_after: int) -> None:
        """Sort a stream by ``COLUMN``; after so many steps of that its process dies (0: it does not)."""
        target = Target(str(self.place))
        if not target.everything(stream):
            return
        steps, left = 0, self.place.with_name("left")

        def now_ms() -> int:
            nonlocal steps
            steps += 1
            if steps == dies_after:
                shutil.copytree(self.place, left)
                raise Died
            if self._rng.random() < 0.3:
                self._meanwhile()
            return self.now_ms()

        try:
            recluster(str(self.place), stream, COLUMN, now_ms=now_ms)
        except Died:  # what it would have cleaned up is there
            shutil.rmtree(self.place)
            left.rename(self.place)
            for uid, hold in layouts.holds(target, stream).items():
                layouts.hold(target, stream, uid, msgspec.structs.replace(hold, pid=NOBODY))

    # -- what the judge asks ---------------------------------------------------------------------------------

    def wrong(self) -> Iterator[str]:
        """Each row that was shipped is shown once, or counted once as gone."""
        target = Target(str(self.place))
        for stream in sorted({stream for _, stream in self._of}):
            found = contents(target, stream)
            yield from (f"{path} of the archive is damaged: {why}" for path, why in found.damaged.items())
            shown: dict[str, Counter[int]] = {}
            for file in found.files:
                shown.setdefault(file.agent, Counter()).update(_records(target, stream, file))
            for (index, of), own in self._of.items():
                if of != stream:
                    continue
                name, lost = f"a{index}'s {stream} in the archive", own.log.lost
                rows = shown.get(f"a{index}", Counter())
                if twice := [row for row, count in rows.items() if count > 1]:
                    yield f"{name}: rows {twice[:5]} are there more than once"
                if wanted := set(range(own.shelf.shipped(own.life))) - lost - rows.keys():
                    yield f"{name}: rows {sorted(wanted)[:5]} are not there, and were not deleted"
                if back := lost & rows.keys():
                    yield f"{name}: rows {sorted(back)[:5]} were deleted, and are there again"
                gone = sum(one.rows for one in found.gone.get(f"a{index}", ()))
                if gone != len(lost):
                    yield f"{name}: {len(lost)} rows were deleted, and {gone} are counted as gone"


class FileArchive:
    """What one agent archives of a stream (``agents.tasks.ownarchive.Rolls``); a position is a row of its
    log. ``kept``: rows below it are in a durable checkpoint, and may be shipped."""

    def __init__(self, shelf: Shelf, life: str, log: Log, fed: Callable[[], int]) -> None:
        self.shelf = shelf
        self.life = life
        self.facts = _FACTS
        self.log = log
        self._fed = fed
        self.kept = 0

    @property
    def position(self) -> int:
        return self._fed()

    @property
    def shipped(self) -> int:
        return self.shelf.shipped(self.life)

    def roll(self) -> None:
        """What is not shipped is one roll."""

    def closed(self) -> tuple[rolls.Roll, ...]:
        start, end = self.shelf.shipped(self.life), self.position
        return (rolls.Roll(Path(), start, end),) if start < end else ()

    def pieces(self, roll: rolls.Roll) -> dict[int | None, list[pa.Buffer]]:
        parts = by_hour(self._table(roll.start, roll.end))
        return {hour: [pa.py_buffer(piece_of(part))] for hour, part in parts}

    def _table(self, start: int, end: int) -> pa.Table:
        rows, places = self.log.rows[start:end], np.arange(start, end)
        columns = [
            pa.array([f"{ts},{key}" for ts, key in rows], pa.string()),
            pa.array([BASE_US + STRETCH * ts for ts, _ in rows], pa.timestamp("us", "UTC")),
            pa.array(["log"] * len(rows)).dictionary_encode(),
            pa.array(["log"] * len(rows)).dictionary_encode(),
            pa.array(places),
            pa.array(places),
        ]
        return pa.Table.from_arrays(columns, schema=_SCHEMA)

    def ship(self, end: int) -> None:
        """What is in a durable checkpoint, if it is worth a file."""
        self.kept, start = end, self.shelf.shipped(self.life)
        if end - start >= SHIP_ROWS or (start < end and self.log.spared is not None):
            files = {
                hour: file_of(parts) for hour, parts in self.pieces(rolls.Roll(Path(), start, end)).items()
            }
            self.shelf.ship(files, life=self.life, first=start, end=end)

    def let_go(self, files: list[File]) -> None:
        files = [file for file in files if not self.shelf.is_spared(file)]
        records = [row for file in files for row in _records(self.shelf.target, self.shelf.stream, file)]
        if files and self.shelf.let_go(files, at_once=True):
            self.log.lost.update(records)
            self.shelf.sweep(1)


class Stretched:
    """What an agent has archived (``agents.tasks.past.Archived``), in the times of the world."""

    def __init__(self, files: FileArchive) -> None:
        self._own = OwnArchive(files)

    @property
    def position(self) -> int:
        return self._own.position

    @property
    def shipped(self) -> int:
        return self._own.shipped

    @property
    def about(self) -> Archive | None:
        return self._own.about

    def close_roll(self) -> int:
        return self._own.close_roll()

    def survey(self, start: int, end: int, since_us: int) -> Survey:
        found = self._own.survey(start, end, BASE_US + STRETCH * since_us)
        return Survey(
            tuple(
                roll._replace(
                    first_us=(roll.first_us - BASE_US) // STRETCH,
                    parts=tuple(partial(_loaded, load) for load in roll.parts),
                )
                for roll in found.rolls
            ),
            _shrunk(found.covers_us),
            found.gone,
            _shrunk(found.gone_to_us),
            _shrunk(found.closed_to_us),
        )


def _shrunk(us: int | None) -> int | None:
    return None if us is None else -((BASE_US - us) // STRETCH)


def _loaded(load: Callable[[], pa.Table]) -> pa.Table:
    rows = load()
    ts = pc.divide(pc.subtract(rows["ts"].cast(pa.int64()), BASE_US), STRETCH).cast(pa.timestamp("us"))
    return rows.set_column(rows.schema.get_field_index("ts"), "ts", ts)


def _records(target: Target, stream: str, file: File) -> list[int]:
    with target.opened(f"{target.stream_folder(stream)}/{file.path}") as opened:
        found: list[int] = pq.ParquetFile(opened).read(["record"])["record"].to_pylist()
    return found
