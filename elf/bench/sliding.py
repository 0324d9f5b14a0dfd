"""``elf bench sliding``: windows that slide, against the same events in windows that tumble, on one thread.

An hour of generated clicks (as the peers' job C: Zipf 1.2 over the products, up to two seconds of disorder),
the top ten products of each window. elf's way is that of an agent and a master: lane, tree, snapshot, pane
commit, windows, final fragment, window commit. DuckDB reads the file in one batch query, sums over panes as
long as the slide, and spreads them to the windows. ``live`` is what a fleet does: the same panes, committed
one by one, each with the window that it completes. Each run is a fresh process; the sides take turns, medians
count, and all answers must be the same.
"""

from __future__ import annotations

import json
import statistics
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

import msgspec
import numpy as np

from elf.bench.sides import ask
from elf.errors import ElfError, UserError

Engine = Literal["elf", "duckdb", "live"]
TOP_ROWS: Final = 10
FIRST_MS: Final = 1_767_225_600_000
HOUR_MS: Final = 3_600_000
DISORDER_MS: Final = 2_000
ZIPF: Final = 1.2


class Job(msgspec.Struct, frozen=True):
    """What a side is to do. ``slide_s`` equals ``size_s`` for windows that tumble.

    ``store``: only its clicks.
    """

    engine: Engine
    path: str
    size_s: int
    slide_s: int
    store: str | None = None


class Answer(msgspec.Struct, frozen=True):
    """What a side did. ``digest`` is of its answer, in order; ``stages`` are seconds; ``slides`` are the
    milliseconds from a pane to its window committed, for ``live``.
    """

    seconds: float
    peak_rss_bytes: int
    rows: int
    digest: str
    stages: dict[str, float]
    slides: list[float] = []


@dataclass(frozen=True)
class Shape:
    """The generated hour, and the windows."""

    rows: int
    products: int
    size_s: int
    slide_s: int


def bench_sliding(shape: Shape, repeat: int, *, as_json: bool) -> int:
    """Measure and print. Raises ``ElfError`` when two answers differ, ``UserError``."""
    if shape.size_s % shape.slide_s:
        raise UserError("the size of the windows must be a multiple of the slide")
    with tempfile.TemporaryDirectory(prefix="elf-bench-") as folder:
        path = Path(folder) / "hour.jsonl"
        generate(path, shape.rows, shape.products)
        sides: tuple[tuple[Engine, int], ...] = (
            ("elf", shape.size_s),
            ("elf", shape.slide_s),
            ("duckdb", shape.size_s),
            ("duckdb", shape.slide_s),
            ("live", shape.slide_s),
        )
        runs: dict[tuple[Engine, int], list[Answer]] = {side: [] for side in sides}
        for _ in range(repeat):
            for engine, slide_s in runs:
                runs[engine, slide_s].append(measure(Job(engine, str(path), shape.size_s, slide_s)))
    for slide_s in (shape.size_s, shape.slide_s):
        digests = {run.digest for (_, slide), found in runs.items() if slide == slide_s for run in found}
        if len(digests) != 1:
            raise ElfError(f"the answers differ with windows that slide by {slide_s} s")
    said = report(shape, runs, repeat)
    _print(shape, runs, said)
    if as_json:
        print(json.dumps(said))
    return 0


def generate(path: Path, rows: int, products: int, per_hour: int | None = None) -> None:
    """Clicks as JSON lines, so many an hour (all of them if None); the same bytes each time."""
    chance = np.random.default_rng(1)
    times = FIRST_MS + (np.arange(rows) * (HOUR_MS / max(1, per_hour or rows))).astype(np.int64)
    times -= chance.integers(0, DISORDER_MS + 1, rows)
    product = chance.zipf(ZIPF, rows) % products
    stores = ("video_games", "books", "music")
    with path.open("w") as file:
        for i, (time, number) in enumerate(zip(times.tolist(), product.tolist(), strict=True)):
            file.write(
                f'{{"created_at":{time},"id":{299_665_941_824_950_273 + i},"product":"product-{number}",'
                f'"clicks_count":{1 + i % 3},"buys_count":{i % 2},"store":"{stores[i % 3]}",'
                f'"user":{{"id":{i % 9973},"name":"@u{i % 9973}","location":"Ohio"}}}}\n'
            )


def report(shape: Shape, runs: dict[tuple[Engine, int], list[Answer]], repeat: int) -> dict[str, object]:
    """The JSON object: events/s of each side, elf's ratio of sliding to tumbling, and to DuckDB's sliding."""

    def speed(engine: Engine, slide_s: int) -> float:
        return shape.rows / statistics.median(run.seconds for run in runs[engine, slide_s])

    slides = [ms for run in runs["live", shape.slide_s] for ms in run.slides]
    last = runs["elf", shape.slide_s][-1]
    return {
        "events": shape.rows,
        "products": shape.products,
        "size_s": shape.size_s,
        "slide_s": shape.slide_s,
        "repeat": repeat,
        "tumbling_events_per_s": round(speed("elf", shape.size_s)),
        "sliding_events_per_s": round(speed("elf", shape.slide_s)),
        "ratio": round(speed("elf", shape.slide_s) / speed("elf", shape.size_s), 4),
        "duckdb_tumbling_events_per_s": round(speed("duckdb", shape.size_s)),
        "duckdb_sliding_events_per_s": round(speed("duckdb", shape.slide_s)),
        "ratio_to_duckdb": round(speed("elf", shape.slide_s) / speed("duckdb", shape.slide_s), 4),
        "stages_s": {name: round(seconds, 4) for name, seconds in last.stages.items()},
        "slide_ms_median": round(statistics.median(slides), 3) if slides else None,
        "slide_ms_max": round(max(slides), 3) if slides else None,
        "peak_rss_bytes": max(run.peak_rss_bytes for run in runs["elf", shape.slide_s]),
    }


def _print(shape: Shape, runs: dict[tuple[Engine, int], list[Answer]], said: dict[str, object]) -> None:
    print(f"{shape.rows:,} events, {shape.products:,} products, one hour; medians of {said['repeat']}")
    for (engine, slide_s), found in runs.items():
        seconds = statistics.median(run.seconds for run in found)
        rss = max(run.peak_rss_bytes for run in found) / 1e6
        if engine != "live":
            print(
                f"{engine:6} {shape.size_s:4} s by {slide_s:3} s {shape.rows / seconds:12,.0f} events/s "
                f"{rss:6,.0f} MB {found[0].rows:8,} rows"
            )
    stages = said["stages_s"]
    print(
        f"elf slides at {said['ratio']} × its tumbling, {said['ratio_to_duckdb']} × DuckDB; stages: {stages}"
    )
    print(
        f"live, from a pane to its window: median {said['slide_ms_median']} ms, max {said['slide_ms_max']} ms"
    )


def measure(job: Job) -> Answer:
    """One run of one side, in a process of its own."""
    return ask("elf.bench.sliding_side", job, Answer)
