"""The sides of ``elf bench cbt``: the buffer tree, a dict, pyarrow's group-by, DuckDB, and Google's hash
maps, which are a program of their own (``hashmaps.cpp``) that is fed from here."""

from __future__ import annotations

import gc
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, Literal

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from elf.errors import ElfError
from lab.bench.sides import THREADS, resident_bytes

CHUNK_ROWS: Final = 1 << 16
LETTERS: Final = np.frombuffer(b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-_", np.uint8)

Letters = npt.NDArray[np.uint8]


Keys = Literal["zipf", "uniform", "unique"]


class Work(msgspec.Struct, frozen=True):
    """What to count: ``rows`` keys of ``key_length`` bytes, of ``distinct`` different ones.

    ``zipf``: the k-th is drawn in proportion to 1 / k; ``uniform``: all alike; ``unique``: each once, in any
    order (then there are ``distinct`` rows). ``memory_max_bytes`` is for the tree only.
    """

    keys: Keys
    distinct: int
    rows: int
    key_length: int
    memory_max_bytes: int | None = None


class CbtRun(msgspec.Struct, frozen=True):
    """One run. ``checksum``: the sum of the squares of all counts. Bytes are over the baseline: after the
    last insert, and at most. ``stall_seconds``: of the longest insert of one chunk; 0 if there are none."""

    seconds: float
    groups: int
    checksum: int
    final_bytes: float
    peak_bytes: float
    stall_seconds: float
    spilled_bytes: int = 0


class Mapped(msgspec.Struct, frozen=True):
    """Work for one of Google's hash maps: the program, and which of them (``sparse``, ``dense``)."""

    work: Work
    program: str
    map: str


class Stopwatch:
    """Seconds of all laps, and of the longest one."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.longest = 0.0

    def time(self, work: Callable[[], object]) -> None:
        began = time.perf_counter()
        work()
        lap = time.perf_counter() - began
        self.seconds += lap
        self.longest = max(self.longest, lap)


def chunks(work: Work) -> Iterator[Letters]:
    """The keys, a chunk of rows at a time: (rows, key length) letters. The same for the same work."""
    rng = np.random.default_rng(7)
    for start in range(0, work.rows, CHUNK_ROWS):
        rows = min(CHUNK_ROWS, work.rows - start)
        yield spell(_numbers(work.keys, work.distinct, start, rows, rng), work.key_length)


def _numbers(
    keys: Keys, distinct: int, start: int, rows: int, rng: np.random.Generator
) -> npt.NDArray[np.uint64]:
    if keys == "unique":
        return np.arange(start, start + rows, dtype=np.uint64)
    if keys == "uniform":
        return rng.integers(0, distinct, rows).astype(np.uint64)
    # Rank k is what lies between log k and log (k + 1): about 1 / k.
    ranks = np.exp(rng.random(rows) * np.log(distinct + 1)).astype(np.int64)
    numbers: npt.NDArray[np.uint64] = (np.clip(ranks, 1, distinct) - 1).astype(np.uint64)
    return numbers


def spell(numbers: npt.NDArray[np.uint64], length: int) -> Letters:
    """Different numbers below 64**length as different keys that look random (64 letters, 6 bits each)."""
    bits = min(6 * length, 60)
    words = numbers.copy()
    for _ in range(2):
        words = (words * np.uint64(0x9E3779B97F4A7C15)) & np.uint64((1 << bits) - 1)
        words ^= words >> np.uint64(bits // 2)
    letters = np.empty((len(words), length), dtype=np.uint8)
    rest = words * np.uint64(0xD1B54A32D192ED03)
    for place in range(length):
        source, at = (words, 6 * place) if place < bits // 6 else (rest, 6 * (place % 9) + 4)
        letters[:, place] = LETTERS[(source >> np.uint64(at)).astype(np.uint8) & np.uint8(63)]
    return letters


def column(letters: Letters) -> pa.Array:
    """Keys as an Arrow array of texts."""
    rows, length = letters.shape
    edges = np.arange(0, rows * length + 1, length, dtype=np.int32)
    return pa.Array.from_buffers(pa.string(), rows, [None, pa.py_buffer(edges), pa.py_buffer(letters)])


def run_elf(work: Work) -> CbtRun:
    """The buffer tree, read out by ``batches``."""
    from agents.tasks.spill import SpillFolder
    from elf.cbt import BufferTree

    def count(source: Iterator[Letters], folder: Path) -> CbtRun:
        limited = work.memory_max_bytes is not None
        tree = BufferTree(
            keys=["word"],
            aggregates=[("count", None)],
            memory_max_bytes=work.memory_max_bytes,
            store=SpillFolder(folder) if limited else None,
        )
        watch, memory, groups, checksum, spilled = Stopwatch(), Memory(work), 0, 0, 0
        for letters in source:
            batch = pa.record_batch([column(letters)], names=["word"])
            watch.time(lambda batch=batch: tree.insert(batch))  # type: ignore[misc]
            spilled = max(spilled, tree.spilled_bytes)
        final, began, squares = memory.final(), time.perf_counter(), 0.0
        for batch in tree.batches():
            counts = batch.column(1).to_numpy()
            began_square = time.perf_counter()
            groups, checksum = groups + len(counts), checksum + int((counts * counts).sum())
            squares += time.perf_counter() - began_square
        watch.seconds += time.perf_counter() - began - squares
        spilled = max(spilled, tree.spilled_bytes)
        return CbtRun(watch.seconds, groups, checksum, final, memory.peak(), watch.longest, spilled)

    with tempfile.TemporaryDirectory(prefix="elf-bench-") as folder:
        count(iter([spell(np.arange(10, dtype=np.uint64), work.key_length)]), Path(folder) / "first")
        return count(chunks(work), Path(folder) / "spill")


def run_dict(work: Work) -> CbtRun:
    """A Python dict of bytes; making its keys of the letters counts."""
    counts: dict[bytes, int] = {}
    watch, memory = Stopwatch(), Memory(work)

    def add(letters: Letters) -> None:
        for word in letters.view(f"S{work.key_length}").ravel().tolist():
            counts[word] = counts.get(word, 0) + 1

    for letters in chunks(work):
        watch.time(lambda letters=letters: add(letters))  # type: ignore[misc]
    squares = sum(n * n for n in counts.values())
    return CbtRun(watch.seconds, len(counts), squares, memory.final(), memory.peak(), watch.longest)


def run_pyarrow(work: Work) -> CbtRun:
    """Arrow's streaming aggregation over all chunks, on one thread."""
    import pyarrow.compute as pc
    from pyarrow import acero

    making = [0.0]
    pc.sum(pa.array([1]))
    memory = Memory(work)
    reader = _reader(work, making)
    began = time.process_time()
    source = acero.Declaration("record_batch_reader_source", acero.RecordBatchReaderSourceNodeOptions(reader))
    grouping = acero.AggregateNodeOptions([("word", "hash_count", None, "n")], keys=["word"])
    plan = acero.Declaration.from_sequence([source, acero.Declaration("aggregate", grouping)])
    table = plan.to_table(use_threads=False)
    seconds = time.process_time() - began - making[0]
    final, peak = memory.final(), memory.peak()
    counts = table["n"].to_numpy()
    return CbtRun(seconds, len(counts), int((counts * counts).sum()), final, peak, 0.0)


def run_duckdb(work: Work) -> CbtRun:
    """DuckDB's hash aggregation over all chunks, on one thread."""
    import duckdb

    making = [0.0]
    connection = duckdb.connect(config={"threads": THREADS})
    connection.sql("SELECT 1").fetchall()
    memory = Memory(work)
    connection.register("words", _reader(work, making))
    began = time.process_time()
    sql = "SELECT count(*), sum(n * n)::BIGINT FROM (SELECT word, count(*) AS n FROM words GROUP BY word)"
    found = connection.execute(sql).fetchone()
    seconds = time.process_time() - began - making[0]
    assert found is not None
    # Its groups are gone with its answer: what it took at most is all there is to tell.
    return CbtRun(seconds, found[0], found[1], memory.peak(), memory.peak(), 0.0)


def run_hash_map(asked: Mapped) -> CbtRun:
    """One of Google's hash maps, which reads the keys from this process."""
    work = asked.work
    with subprocess.Popen(
        [asked.program, asked.map], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as program:
        assert program.stdin is not None
        program.stdin.write(f"{work.key_length}\n".encode())
        for letters in chunks(work):
            program.stdin.write(letters.tobytes())
        out, errors = program.communicate()
    if program.returncode != 0:
        raise ElfError(f"hashmaps failed: {errors.decode(errors='replace').strip()}")
    return msgspec.json.decode(out.splitlines()[-1], type=CbtRun)


def _reader(work: Work, making: list[float]) -> pa.RecordBatchReader:
    """The keys as record batches; ``making`` as in ``_timed``."""
    batches = (pa.record_batch([column(letters)], names=["word"]) for letters in _timed(chunks(work), making))
    return pa.RecordBatchReader.from_batches(pa.schema([("word", pa.string())]), batches)


def _timed(source: Iterator[Letters], seconds: list[float]) -> Iterator[Letters]:
    """The same; the processor time that making them took is added to ``seconds[0]`` (of a thread that reads
    ahead, so that the clock on the wall would count it twice)."""
    while True:
        began = time.thread_time()
        letters = next(source, None)
        seconds[0] += time.thread_time() - began
        if letters is None:
            return
        yield letters


class Memory:
    """Resident bytes beyond those of when it was made. A chunk of keys is made before, for its own sake."""

    def __init__(self, work: Work) -> None:
        next(chunks(work))
        gc.collect()
        Path("/proc/self/clear_refs").write_text("5")
        self._before = resident_bytes("VmRSS")

    def final(self) -> float:
        return resident_bytes("VmRSS") - self._before

    def peak(self) -> float:
        return resident_bytes() - self._before


SIDES: Final = {"elf": run_elf, "dict": run_dict, "pyarrow": run_pyarrow, "duckdb": run_duckdb}
