"""``elf bench cbt``: word count in the buffer tree, against other group-bys on the same keys.

Each run is a fresh process (``elf.bench.cbt_side``; ``hashmaps.cpp`` for Google's hash maps, built into a
temporary folder where g++ and libsparsehash-dev are there). All of them make or read the same keys, chunk by
chunk; only inserting and reading out is timed, and memory is what a process has resident beyond what it had
when the first key came. The answers must agree. The sides take turns, and medians count.
"""

from __future__ import annotations

import json
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Literal

import msgspec

from elf.bench.sides import environment
from elf.errors import ElfError, UserError

Keys = Literal["zipf", "uniform", "unique"]
PYTHON_SIDES: Final = ("elf", "dict", "pyarrow", "duckdb")
MAP_SIDES: Final = ("sparse_hash_map", "dense_hash_map")


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


def bench_cbt(works: list[Work], sides: list[str], repeat: int, *, as_json: bool, plot: Path | None) -> int:
    """Measure and print. Raises ``UserError``, and ``ElfError`` where two answers differ."""
    if plot is not None:
        from elf.cli.pictures import check_plot

        check_plot(plot)
    rows: list[dict[str, object]] = []
    with _hash_maps() as program:
        for work in works:
            found = measure(work, sides, repeat, program)
            rows += found
            _print(work, found)
    if plot is not None:
        from elf.bench.cbt_plot import draw

        draw(rows, plot)
    if as_json:
        print(json.dumps({"repeat": repeat, "runs": rows}))
    return 0


def measure(work: Work, sides: list[str], repeat: int, program: Path | None) -> list[dict[str, object]]:
    """The figures of each side that can run, medians, peaks the highest."""
    able = [side for side in sides if program is not None or side not in MAP_SIDES]
    runs: dict[str, list[CbtRun]] = {side: [] for side in able}
    for _ in range(repeat):
        for side in able:
            runs[side].append(run_side(side, work, program))
    answers = {side: (found[0].groups, found[0].checksum) for side, found in runs.items()}
    if len(set(answers.values())) > 1:
        raise ElfError(f"the answers differ: {answers}")
    return [_figures(side, work, found) for side, found in runs.items()]


def _figures(side: str, work: Work, runs: list[CbtRun]) -> dict[str, object]:
    groups = runs[0].groups
    return {
        "side": side,
        **dict(msgspec.to_builtins(work)),
        "groups": groups,
        "keys_per_s": round(work.rows / statistics.median(run.seconds for run in runs)),
        "bytes_per_key": round(statistics.median(run.final_bytes for run in runs) / groups, 2),
        "peak_bytes_per_key": round(max(run.peak_bytes for run in runs) / groups, 2),
        "stall_ms": round(statistics.median(run.stall_seconds for run in runs) * 1000, 2),
        "spilled_bytes": max(run.spilled_bytes for run in runs),
    }


def _print(work: Work, rows: list[dict[str, object]]) -> None:
    print(
        f"{work.keys}: {work.rows:,} keys of {work.key_length} bytes, {rows[0]['groups']:,} distinct"
        if rows
        else "nothing to run"
    )
    print(f"  {'':16} {'M keys/s':>9} {'bytes/key':>10} {'at peak':>8} {'stall ms':>9} {'spilled MB':>11}")
    for row in rows:
        print(
            f"  {row['side']:16} {_number(row, 'keys_per_s') / 1e6:9.2f} {row['bytes_per_key']:10} "
            f"{row['peak_bytes_per_key']:8} {row['stall_ms']:9} {_number(row, 'spilled_bytes') / 1e6:11.1f}"
        )


def _number(row: dict[str, object], name: str) -> float:
    value = row[name]
    assert isinstance(value, int | float)
    return float(value)


def run_side(side: str, work: Work, program: Path | None) -> CbtRun:
    """One run in a fresh process."""
    if side not in MAP_SIDES:
        return _run(_python("run", side), msgspec.json.encode(work))
    assert program is not None
    feed = subprocess.Popen(
        _python("feed", side), stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment()
    )
    assert feed.stdin is not None
    assert feed.stdout is not None
    feed.stdin.write(msgspec.json.encode(work))
    feed.stdin.close()
    try:
        return _run([str(program), side.split("_", maxsplit=1)[0]], feed.stdout)
    finally:
        feed.stdout.close()
        feed.wait()


def _python(mode: str, side: str) -> list[str]:
    return [sys.executable, "-P", "-m", "elf.bench.cbt_side", mode, side]


def _run(command: list[str], source: object) -> CbtRun:
    if isinstance(source, bytes):
        done = subprocess.run(command, input=source, capture_output=True, env=environment(), check=False)
    else:
        done = subprocess.run(command, stdin=source, capture_output=True, env=environment(), check=False)  # type: ignore[call-overload]
    if done.returncode != 0:
        said = done.stderr.decode(errors="replace").strip().splitlines()
        raise ElfError(f"{Path(command[0]).name} failed: {said[-1] if said else f'status {done.returncode}'}")
    return msgspec.json.decode(done.stdout.splitlines()[-1], type=CbtRun)


@contextmanager
def _hash_maps() -> Iterator[Path | None]:
    """Google's hash maps as a program, or None where they can't be built."""
    compiler = shutil.which("g++")
    if compiler is None:
        print("no g++: sparse_hash_map and dense_hash_map are left out")
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="elf-bench-") as folder:
        program = Path(folder) / "hashmaps"
        source = Path(__file__).with_name("hashmaps.cpp")
        built = subprocess.run(
            [compiler, "-O2", "-std=c++17", str(source), "-o", str(program)], capture_output=True, check=False
        )
        if built.returncode:
            print("no libsparsehash-dev: sparse_hash_map and dense_hash_map are left out")
        yield program if built.returncode == 0 else None


def works_of(
    keys: Keys, distinct: list[int], rows: int | None, key_length: int, memory_max_bytes: int | None
) -> list[Work]:
    """One piece of work for each number of distinct keys. Raises ``UserError``."""
    for count in distinct:
        if count < 1 or count > 64 ** min(key_length, 10):
            raise UserError(f"there are no {count} different keys of {key_length} bytes")
    return [
        Work(keys, n, n if keys == "unique" else rows or max(n, 20_000_000), key_length, memory_max_bytes)
        for n in distinct
    ]


def sides_of(only: list[str] | None) -> list[str]:
    """The sides that were asked for, all if none. Raises ``UserError``."""
    known = [*PYTHON_SIDES, *MAP_SIDES]
    for side in only or ():
        if side not in known:
            raise UserError(f"no side {side}: there are {', '.join(known)}")
    return only or known
