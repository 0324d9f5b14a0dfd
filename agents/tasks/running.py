"""Runs the work of another agent again (``elf.job.reexecution``): one pane of one flow, from files that both
see, and that this agent's own configuration names (``agents.tasks.covered``).

On a thread of its own, with a worker of its own that forgets everything afterwards: the stream task of the
stream is not held up, and nothing is written. One run at a time, and few that wait; each reads a bounded
number of bytes. ``found_at`` is the other side: where an agent is in its files, for those who may run its
work again.
"""

from __future__ import annotations

import stat
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa

from agents.formats import get_format
from agents.inputs.contents import Plain
from agents.inputs.follower import Follower
from agents.inputs.ranges import MAGIC_BYTES, is_compressed
from agents.inputs.values import Chunk, Position
from agents.tasks import covered
from agents.tasks.covered import NotCovered
from agents.tasks.streams import StreamEngine
from elf import windows
from elf.batch import decode, encode
from elf.errors import InputError
from elf.fields import replace
from elf.job.checkpoint import FlowCheckpoint, SourceCheckpoint, StreamCheckpoint
from elf.job.commands import Feed
from elf.job.contributions import to_bytes
from elf.job.counters import COUNTER_COLUMNS
from elf.job.effects import Run
from elf.job.events import Ran
from elf.job.messages.rollup import NotRun, Reexecute, RunSlice
from elf.job.reexecution import Reading, SourceAt, SourceOffsets, Where, can_run
from elf.job.spec import Flow
from elf.job.worker.stream import LONG_AGO, StreamWorker, WorkerSettings

CHUNK_BYTES: Final = 1 << 20
WAITING_MAX: Final = 4
"""Runs that wait for their turn; beyond that nothing is run."""


class Running:
    """The runs of one agent. ``shared``: for each stream the files of others that it may read (patterns);
    ``bytes_max``: what each run may read."""

    def __init__(self, shared: Mapping[str, Sequence[str]], bytes_max: int) -> None:
        self._shared = shared
        self._bytes_max = bytes_max
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="again")
        self._places = threading.BoundedSemaphore(WAITING_MAX)

    def submit(self, run: Run) -> Future[Ran]:
        """On the thread, in its turn; called on the loop. Never fails on what is in files."""
        shared = self._shared.get(run.flow.fragment.stream)
        if not shared:
            return _at_once(_not(run, "this agent shares no files of the stream"))
        if not self._places.acquire(blocking=False):
            return _at_once(_not(run, "too many others wait for theirs"))
        future = self._pool.submit(ran, run, shared, self._bytes_max)
        future.add_done_callback(lambda _: self._places.release())
        return future

    def close(self) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)


def ran(run: Run, shared: Sequence[str], bytes_max: int, chunk_bytes: int = CHUNK_BYTES) -> Ran:
    """The answer: the pane, or why not. Only files that ``shared`` covers are opened.
    ``chunk_bytes`` are read at a time."""
    try:
        return Ran(run.to, _run(run.flow, run.asked, shared, bytes_max, chunk_bytes))
    except NotCovered as refused:
        return replace(_not(run, str(refused)), refused=str(refused))
    except OSError as error:
        return _not(run, f"{error.filename}: {error.strerror}" if error.filename else str(error))
    except Exception as error:  # what ends another agent must not end this one
        return _not(run, str(error) or repr(error))


def _at_once(answer: Ran) -> Future[Ran]:
    done = Future[Ran]()
    done.set_result(answer)
    return done


def _not(run: Run, why: str) -> Ran:
    asked = run.asked
    return Ran(run.to, NotRun(flow=asked.flow, member=asked.member, pane=asked.pane, why=why))


def _run(flow: Flow, asked: Reexecute, shared: Sequence[str], bytes_max: int, chunk_bytes: int) -> RunSlice:
    """Raises ``InputError`` where the files do not have all of the pane."""
    offsets, reading, pane = asked.offsets, asked.reading, asked.pane
    if not can_run(flow.fragment):
        raise InputError("this flow is not run by others")
    with ExitStack() as opened:
        files = {
            s.id: opened.enter_context(_opened(s, shared, reading.max_line_bytes)) for s in offsets.sources
        }
        worker = opened.enter_context(closing(_worker(flow, offsets, reading, pane)))
        left = bytes_max
        for source in offsets.sources:
            if not source.asleep:
                left -= _read(worker, files[source.id], flow, asked, left, chunk_bytes)
        for source in offsets.sources:
            file = files[source.id]
            if source.asleep and (file.offset < 0 or _next(file, chunk_bytes) is not None):
                raise InputError(f"{source.path} says something again")
            _same(file)
        _check_known(offsets, reading, shared)
        sealed = worker.seal_below(flow.uid, pane + 1)
    counted = _rows_of(sealed.counters, pane) if sealed is not None else None
    return RunSlice(
        flow=flow.uid,
        start=pane,
        end=pane + 1,
        members=to_bytes(1 << asked.member),
        direct=True,
        counters=encode(counted) if counted is not None else b"",
        payload=sealed.payload if sealed is not None else b"",
        offsets=offsets.number,
    )


def _worker(flow: Flow, offsets: SourceOffsets, reading: Reading, pane: int) -> StreamWorker:
    """As the agent's was at the source offsets, with this pane alone to answer for; it seals nothing by
    itself."""
    if reading.event_time is None:
        raise InputError("the agent has not found the event time of its stream yet")
    settings = WorkerSettings(
        finite=True,
        future_us=reading.future_us,
        lateness_us=reading.lateness_us,
        since_us=reading.since_us,
        checkpoint_ms=1 << 60,
    )
    awake = [source for source in offsets.sources if not source.asleep]
    applied = tuple(sorted((source.id, source.offset) for source in awake))
    checkpoint = StreamCheckpoint(
        LONG_AGO,
        tuple(SourceCheckpoint(source.id, source.highest, source.offset) for source in awake),
        (FlowCheckpoint(flow, live_from=pane, sealed=pane, applied=applied, tree=b"", counters=b""),),
    )
    engine = StreamEngine(get_format(reading.format), reading.event_time)
    return StreamWorker(flow.fragment.stream, settings, engine, checkpoint)


@contextmanager
def _opened(source: SourceAt, shared: Sequence[str], max_line_bytes: int) -> Iterator[Follower]:
    """The file, if it is the one that the agent reads, where that stood. File systems have the same inode
    for all who mount them, but not the same device."""
    descriptor = covered.opened(source.path, shared)
    file = Follower(source.path, Plain(descriptor), max_line_bytes=max_line_bytes)
    with closing(file):
        device, head = file.device, (source.head_bytes, source.head_crc)
        if not file.resume(Position(source.id, source.path, source.offset, device, source.inode, 0, *head)):
            raise InputError(f"{source.path} is another file by now, or here")
        _same(file)
        yield file


def _same(file: Follower) -> None:
    """Sees how far the file goes now; that it was not begun anew."""
    if file.look() is not None:
        raise InputError(f"{file.path} was begun anew")


def _next(file: Follower, bytes_max: int) -> Chunk | None:
    """The next whole lines, if there are any now. A line that is too long for one read is looked for on and
    on."""
    _same(file)
    while (chunk := file.read(bytes_max)) is None and file.searching:
        pass
    return chunk


def _read(
    worker: StreamWorker, file: Follower, flow: Flow, asked: Reexecute, bytes_max: int, chunk_bytes: int
) -> int:
    """Reads a source until it has gone by the end of the pane; how many bytes that took."""
    lateness, reading = flow.fragment.lateness_us, asked.reading
    lateness = reading.lateness_us if lateness is None else lateness
    source, read = file.source, 0
    if lateness is None or source is None:
        raise InputError("a stream without a bound on lateness has no end of a pane")
    while windows.sealable(worker.highest_of(source.id), lateness, flow.fragment.pane_us) <= asked.pane:
        chunk = _next(file, chunk_bytes)
        if chunk is None:
            raise InputError(f"{file.path} has not gone by the end of the pane")
        read += chunk.end - chunk.start
        if read > bytes_max:
            raise InputError(f"more than protocol.run_bytes_max of {file.path} would have to be read")
        outcome = worker.handle(Feed(chunk, asked.offsets.now_ms))
        for _, why in outcome.failed:
            raise InputError(why)
        if outcome.counts.get("future"):
            raise InputError(f"{file.path} is ahead of what is known of the agent's clock")
    return read


def _check_known(offsets: SourceOffsets, reading: Reading, shared: Sequence[str]) -> None:
    """That no file is the agent's which it did not know at the source offsets."""
    known = {source.inode for source in offsets.sources}
    for path in covered.covered(shared, reading.include, reading.exclude):
        status = Path(path).stat()
        if stat.S_ISREG(status.st_mode) and status.st_size and status.st_ino not in known:
            with Path(path).open("rb") as file:
                if not is_compressed(file.read(MAGIC_BYTES)):
                    raise InputError(f"{path} is new to the agent")


def _rows_of(counted: bytes, pane: int) -> pa.Table | None:
    """How many rows the pane has. What else was counted is the agent's to say."""
    if not counted:
        return None
    table = decode(counted)
    table = table.filter(pa.array(table["_pane"].to_numpy() == pane))
    for place, name in enumerate(table.column_names):
        if name in COUNTER_COLUMNS and name != "rows_in":
            table = table.set_column(place, name, pa.array(np.zeros(table.num_rows, np.int64)))
    return table if table.num_rows else None


def found_at(where: Sequence[Where], positions: Iterable[Position], reading: Reading) -> tuple[Where, ...]:
    """The same, with places. A source offsets from before a file was renamed has it where it is now; one with
    a file that is not open any more is none, and one without a file that has spoken since. Files without a
    row yet are asleep."""
    open_now = {position.source: position for position in positions if not position.finished}
    return tuple(_found(one, open_now, reading) for one in where)


def _found(one: Where, open_now: Mapping[str, Position], reading: Reading) -> Where:
    spoken = {source.id for source in one.now.sources} if one.now is not None else set(open_now)
    offsets = tuple((pane, _placed(offsets, open_now, spoken)) for pane, offsets in one.panes)
    return Where(one.flow, one.sealed, offsets, _placed(one.now, open_now, spoken), reading)


def _placed(
    offsets: SourceOffsets | None, open_now: Mapping[str, Position], spoken: set[str]
) -> SourceOffsets | None:
    known = set() if offsets is None else {source.id for source in offsets.sources}
    new = [SourceAt(name, at.offset, 0, True) for name, at in open_now.items() if name not in known]
    if offsets is None or any(one.id in spoken for one in new) or not known <= open_now.keys():
        return None
    sources = (_source(one, open_now[one.id]) for one in (*offsets.sources, *new))
    return replace(offsets, sources=tuple(sources))


def _source(source: SourceAt, at: Position) -> SourceAt:
    return replace(source, path=at.path, inode=at.inode, head_bytes=at.head_bytes, head_crc=at.head_crc)
