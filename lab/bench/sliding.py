"""``elf bench sliding``: windows that slide, against the same events in windows that tumble, on one thread.

An hour of generated clicks (as the peers' job C: Zipf 1.2 over the products, up to two seconds of disorder),
the top ten products of each window. elf's way is that of an agent and a master: stream task, tree, snapshot,
pane commit, windows, final fragment, window commit. DuckDB reads the file in one batch query, sums over panes
as long as the slide, and spreads them to the windows. ``live`` is what a fleet does: the same panes,
committed one by one, each with the window that it completes. All answers must be the same.
"""

from __future__ import annotations

import hashlib
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache, partial
from itertools import starmap
from pathlib import Path
from typing import Annotated, Final, Literal

import duckdb
import msgspec
import numpy as np
import pyarrow as pa
from typer import Option

from elf.batch import decode, encode
from elf.errors import UserError
from lab.bench.options import Hour, Products, Repeat
from lab.bench.pipeline import Clicks
from lab.bench.runner import Bench, Figure, Report, Scratch, median, ratio, same
from lab.bench.sides import THREADS, ask, clocked, resident_bytes

Engine = Literal["elf", "duckdb", "live"]
Side = tuple[Engine, int]
"""An engine, and the seconds between its windows."""
TOP_ROWS: Final = 10
FIRST_MS: Final = 1_767_225_600_000
HOUR_MS: Final = 3_600_000
DISORDER_MS: Final = 2_000
ZIPF: Final = 1.2


class Job(msgspec.Struct, frozen=True):
    """What a side is to do. ``slide_s`` equals ``size_s`` for windows that tumble."""

    path: str
    size_s: int
    slide_s: int


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
class SlidingWindows(Bench[Side, Answer]):
    """The generated hour, and windows of ``size_s`` seconds every ``slide_s``."""

    rows: Hour = 2_000_000
    products: Products = 200_000
    size_s: Annotated[int, Option("--size", min=1, help="Seconds of a window.")] = 300
    slide_s: Annotated[int, Option("--slide", min=1, help="Seconds between windows.")] = 5
    repeat: Repeat = 3

    def __post_init__(self) -> None:
        """Raises ``UserError``."""
        if self.size_s % self.slide_s:
            raise UserError("the size of the windows must be a multiple of the slide")

    def sides(self, scratch: Scratch) -> Mapping[Side, Callable[[], Answer]]:
        """elf and DuckDB with both kinds of windows, and elf live."""
        path = scratch.folder / "hour.jsonl"
        generate(path, self.rows, self.products)
        runs: Mapping[Engine, Callable[[Job], Answer]] = {
            "elf": run_elf,
            "duckdb": run_duckdb,
            "live": run_live,
        }
        sides: list[Side] = [
            (engine, slide_s) for engine in ("elf", "duckdb") for slide_s in (self.size_s, self.slide_s)
        ]
        return {
            (engine, slide_s): partial(ask, runs[engine], Job(str(path), self.size_s, slide_s))
            for engine, slide_s in [*sides, ("live", self.slide_s)]
        }

    def report(self, runs: Mapping[Side, Sequence[Answer]]) -> Report:
        """Events/s of each side, elf's ratio of sliding to tumbling, and to DuckDB's sliding."""
        for slide_s in (self.size_s, self.slide_s):
            alike = {side: found for side, found in runs.items() if side[1] == slide_s}
            same(alike, lambda run: run.digest, f"the answers with windows that slide by {slide_s} s")
        rates = {side: self.rows / median(found, "seconds") for side, found in runs.items()}
        sliding, tumbling = rates["elf", self.slide_s], rates["elf", self.size_s]
        by_duckdb = rates["duckdb", self.slide_s]
        slides = [ms for run in runs["live", self.slide_s] for ms in run.slides]
        stages = runs["elf", self.slide_s][-1].stages
        return Report(
            {
                "events": self.rows,
                "products": self.products,
                "size_s": self.size_s,
                "slide_s": self.slide_s,
                "repeat": self.repeat,
                "tumbling_events_per_s": round(tumbling),
                "sliding_events_per_s": round(sliding),
                "ratio": ratio(sliding, tumbling),
                "duckdb_tumbling_events_per_s": round(rates["duckdb", self.size_s]),
                "duckdb_sliding_events_per_s": round(by_duckdb),
                "ratio_to_duckdb": ratio(sliding, by_duckdb),
                "stages_s": {name: round(secs, 4) for name, secs in stages.items()},
                "slide_ms_median": round(statistics.median(slides), 3) if slides else None,
                "slide_ms_max": round(max(slides), 3) if slides else None,
                "peak_rss_bytes": max(run.peak_rss_bytes for run in runs["elf", self.slide_s]),
            },
            [
                Figure(
                    f"{self.size_s} s windows every {self.slide_s} s, the first {TOP_ROWS}",
                    sliding,
                    "events/s",
                    {"DuckDB": by_duckdb, "elf, tumbling": tumbling},
                )
            ],
        )


def generate(path: Path, rows: int, products: int, per_hour: int | None = None, format: str = "json") -> None:
    """Clicks, so many an hour (all of them if None); the same bytes each time. As JSON lines, or in an access
    log as hits of pages."""
    chance = np.random.default_rng(1)
    times = FIRST_MS + (np.arange(rows) * (HOUR_MS / max(1, per_hour or rows))).astype(np.int64)
    times -= chance.integers(0, DISORDER_MS + 1, rows)
    product = chance.zipf(ZIPF, rows) % products
    stores = ("video_games", "books", "music")
    with path.open("w") as file:
        if format == "combined":
            file.writelines(starmap(_hit, enumerate(zip(times.tolist(), product.tolist(), strict=True))))
            return
        for i, (time, number) in enumerate(zip(times.tolist(), product.tolist(), strict=True)):
            file.write(
                f'{{"created_at":{time},"id":{299_665_941_824_950_273 + i},"product":"product-{number}",'
                f'"clicks_count":{1 + i % 3},"buys_count":{i % 2},"store":"{stores[i % 3]}",'
                f'"user":{{"id":{i % 9973},"name":"@u{i % 9973}","location":"Ohio"}}}}\n'
            )


def _hit(i: int, click: tuple[int, int]) -> str:
    """A line of an access log."""
    time_ms, number = click
    return (
        f"10.{i % 7}.{i % 211}.{i % 251} - - [{_logged(time_ms // 1000)} +0000] "
        f'"GET /product-{number}?from={i % 97} HTTP/1.1" 200 {500 + i % 9973} '
        '"https://shop.example/" "Mozilla/5.0 (X11; Linux x86_64; rv:132.0) Gecko/20100101 Firefox/132.0"\n'
    )


@lru_cache
def _logged(second: int) -> str:
    return datetime.fromtimestamp(second, UTC).strftime("%d/%b/%Y:%H:%M:%S")


def run_elf(job: Job) -> Answer:
    """Everything at once, as ``elf run``."""
    clicks = _clicks(job)
    with clocked() as task:
        sealed = clicks.sealed()
    with clocked() as panes:
        clicks.master.commit(sealed)
    with clocked() as windows:
        clicks.master.finish(sealed)
    stages = {"task": task.seconds, "panes": panes.seconds, "windows": windows.seconds}
    return answered(sum(stages.values()), clicks.master.answer(), stages)


def run_live(job: Job) -> Answer:
    """Pane by pane: each is committed, then the window that it completes."""
    clicks = _clicks(job)
    master, sealed = clicks.master, clicks.sealed()
    groups, counters = decode(sealed.payload), decode(sealed.counters)
    numbers = np.unique(groups["_pane"].to_numpy())
    first, last = int(numbers[0]), int(numbers[-1])
    slides, slide_us = [], job.slide_s * 1_000_000
    for pane in range(first, last + job.size_s // job.slide_s):
        inside = [encode(_of_pane(table, pane)) for table in (counters, groups)]
        with clocked() as clock:
            master.panes(pane, pane + 1, *inside)
            master.windows(pane * slide_us, (pane + 1) * slide_us, (first, pane + 1))
        slides.append(clock.seconds)
    return answered(sum(slides), master.answer(), {}, [1_000 * seconds for seconds in slides])


def _clicks(job: Job) -> Clicks:
    return Clicks(job.path, f"{job.size_s} SECONDS SLIDE {job.slide_s} SECONDS", TOP_ROWS)


def _of_pane(table: pa.Table, pane: int) -> pa.Table:
    return table.filter(pa.array(table["_pane"].to_numpy() == pane))


def run_duckdb(job: Job) -> Answer:
    """One batch query."""
    connection = duckdb.connect(config={"threads": THREADS})
    sql = duckdb_sql(job.path, job.size_s * 1000, job.slide_s * 1000, None)
    with clocked() as clock:
        rows = connection.execute(sql).fetchall()
    return answered(clock.seconds, rows, {})


def duckdb_sql(path: str, size_ms: int, slide_ms: int, store: str | None, source: str | None = None) -> str:
    """The top rows of each window (its start in µs), by panes as long as the slide. ``source``: the clicks,
    where they are no JSON lines."""
    also, where = (", store: 'VARCHAR'", f"WHERE store = '{store}'") if store else ("", "")
    source = source or (
        f"read_json('{path}', format='newline_delimited', "
        f"columns={{created_at: 'BIGINT', product: 'VARCHAR', clicks_count: 'BIGINT'{also}}})"
    )
    return f"""
        WITH panes AS (
          SELECT created_at // {slide_ms} AS pane, product, SUM(clicks_count)::BIGINT AS clicks
          FROM {source} {where} GROUP BY ALL),
        sums AS (
          SELECT pane - back AS slot, product, SUM(clicks)::BIGINT AS clicks
          FROM panes, range({size_ms // slide_ms}) AS g(back) GROUP BY ALL),
        ranked AS (
          SELECT *, ROW_NUMBER() OVER (PARTITION BY slot ORDER BY clicks DESC, product) AS place FROM sums)
        SELECT slot * {slide_ms} * 1000, product, clicks FROM ranked WHERE place <= {TOP_ROWS}
        ORDER BY slot, place"""


def answered(
    seconds: float,
    rows: Iterable[tuple[int, str, int]],
    stages: dict[str, float],
    slides: Sequence[float] = (),
) -> Answer:
    """What to say of an answer."""
    found = list(rows)
    digest = hashlib.sha1(repr(found).encode()).hexdigest()
    return Answer(seconds, resident_bytes(), len(found), digest, stages, list(slides))
