"""The helper's side of rows that are mapped elsewhere (``elf.job.offload``): it reads what another agent has
archived at ``archive.path``, which is its own too, and maps it, on a thread of its own.

Nothing is written, and nothing is kept: what is asked for twice is done twice, but not at once.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from typing import Final

import pyarrow as pa

from agents.archive.partitions import ArchiveError, Target
from agents.archive.shelf import Shelf
from agents.formats import get_format
from agents.tasks import archive
from agents.tasks.ownarchive import SAME, OwnArchive
from agents.tasks.past import Archived, Pasts
from agents.tasks.streams import FunctionsAt, StreamEngine
from elf.errors import ElfBug, ElfError
from elf.fields import replace
from elf.job.checkpoint import FlowCheckpoint, StreamCheckpoint
from elf.job.commands import Replay
from elf.job.effects import Help
from elf.job.events import Helped
from elf.job.messages.helping import MapRows, RowsMapped, RowsNotMapped
from elf.job.offload import Archive, why_not
from elf.job.ports import Engine
from elf.job.spec import START_OF_TIME, Flow
from elf.job.worker.stream import LONG_AGO, StreamWorker, WorkerSettings

ROWS_MAX: Final = 65_536
"""Rows that are mapped for one answer, about."""
WAITING_MAX: Final = 64
"""Requests that wait for their turn; others are to come again."""
Key = tuple[str, str, int]


class NoHelp(ElfError):
    """Rows of another agent cannot be mapped here (yet)."""


class Helping:
    """Of one agent. ``path``: its ``archive.path`` (None: it has no archive); ``functions``: where users'
    code runs."""

    def __init__(
        self, path: str | None, functions: FunctionsAt | None = None, rows_max: int = ROWS_MAX
    ) -> None:
        self._path = path
        self._functions = functions
        self._rows_max = rows_max
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="help")
        self._under_way = dict[Key, Future[Helped]]()
        self._lock = threading.Lock()

    def submit(self, effect: Help) -> Future[Helped]:
        """On the thread, in its turn. Never fails on what is in files, or in functions."""
        key = effect.to, effect.asked.wanted.flow, effect.asked.wanted.number
        with self._lock:
            if (known := self._under_way.get(key)) is not None:
                return known
            if len(self._under_way) >= WAITING_MAX:
                return _done(_not(effect, "too many others wait for theirs", again=True))
            future = self._under_way[key] = self._pool.submit(self._helped, effect)
        future.add_done_callback(lambda _: self._over(key))
        return future

    def _over(self, key: Key) -> None:
        with self._lock:
            self._under_way.pop(key, None)

    def close(self) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _helped(self, effect: Help) -> Helped:
        try:
            answer = self._answer(effect)
        except ArchiveError as error:  # it may come back
            return _not(effect, str(error), again=True)
        except Exception as error:  # what ends another agent must not end this one
            return _not(effect, str(error) or repr(error))
        return Helped(effect.to, answer)

    def _answer(self, effect: Help) -> RowsMapped:
        asked = effect.asked
        about, past = asked.wanted.archive, asked.wanted.past
        if self._path is None:
            raise NoHelp("this agent has no archive (archive: off)")
        shelf = Shelf(Target(self._path), asked.stream, asked.agent_id)
        if not shelf.is_known or shelf.shipped(about.life) < past.until:
            raise NoHelp(
                f"the rows are not at {shelf.target.uri}, this agent's archive.path: it must be the same "
                "place as that of the agent that reads the stream"
            )
        engine = StreamEngine(get_format(about.format), asked.wanted.event_time or None, self._functions)
        return mapped_for(
            asked, effect.flow, OwnArchive(_Shelved(shelf, about, past.until)), engine, self._rows_max
        )


def mapped_for(asked: MapRows, flow: Flow, archive: Archived, engine: Engine, rows_max: int) -> RowsMapped:
    """The answer of a helper: the next rows of the round. Raises ``ArchiveError`` and ``NoHelp``."""
    wanted = asked.wanted
    if why := why_not(flow.fragment):
        raise NoHelp(why)
    settings = WorkerSettings(
        finite=True,
        future_us=None,
        lateness_us=wanted.lateness_us,
        since_us=wanted.since_us,
        checkpoint_ms=1 << 60,
        name=wanted.name,
        labels=wanted.labels,
        traces=True,
    )
    at = wanted.stand
    begun = FlowCheckpoint(
        flow,
        live_from=at.live_from,
        sealed=at.sealed,
        applied=(),
        tree=b"",
        counters=b"",
        leapt=at.leapt,
        since=at.since,
        past=replace(wanted.past, ceiling=START_OF_TIME),  # it seals nothing
    )
    worker = StreamWorker(asked.stream, settings, engine, StreamCheckpoint(LONG_AGO, (), (begun,)))
    with closing(worker):
        pasts = Pasts(worker, archive, rows_max)
        past = worker.states()[flow.uid].past
        assert past is not None
        found = pasts.slice_of(flow, past)
        replay = Replay(flow.uid, found.records, found.past, 0, found.holes, until_us=wanted.until_us)
        outcome = worker.handle(replay)
        mapped = worker.states()[flow.uid].taken()
        failed = next((why for uid, why in outcome.failed if uid == flow.uid), mapped.failed)
    return RowsMapped(
        flow=flow.uid,
        number=wanted.number,
        asked=wanted.past,
        stand=wanted.stand,
        past=found.past,
        mapped=replace(mapped, failed=failed),
    )


class _Shelved:
    """What another agent has shipped (``agents.tasks.ownarchive.Rolls``)."""

    def __init__(self, shelf: Shelf, about: Archive, until: int) -> None:
        self.shelf = shelf
        self.life = about.life
        said = (about.format, about.timestamp, about.mask)
        self.facts: Mapping[bytes, bytes] = {key: text.encode() for key, text in zip(SAME, said, strict=True)}
        self.position = self.shipped = until

    def roll(self) -> None:
        """All of it is in files."""

    def closed(self) -> tuple[archive.Roll, ...]:
        return ()

    def pieces(self, roll: archive.Roll) -> dict[int | None, list[pa.Buffer]]:
        raise ElfBug(f"there is no roll {roll}")


def _not(effect: Help, why: str, *, again: bool = False) -> Helped:
    wanted = effect.asked.wanted
    return Helped(effect.to, RowsNotMapped(flow=wanted.flow, number=wanted.number, why=why, again=again))


def _done(answer: Helped) -> Future[Helped]:
    done = Future[Helped]()
    done.set_result(answer)
    return done
