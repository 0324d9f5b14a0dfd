"""How many rows of the stream each window should have: Spark counts archived lines by pane and agent.

It reads event times alone, of the hours of the windows, and never a line.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from spark_backend import offline
from spark_backend.compare import Bounds
from spark_backend.reasons import Census
from spark_backend.session import SparkFailed


def census(
    spark: SparkSession,
    pane_us: int,
    archived: Sequence[offline.Archived],
    windows: Sequence[Bounds],
    damaged: offline.Damaged,
) -> Census:
    """Count the archived rows of windows.

    Args:
        spark (SparkSession): of ``spark_backend.session.opened``.
        pane_us (int): the length of a pane, in µs: windows are whole panes.
        archived (Sequence[Archived]): where the lines of the job's streams are.
        windows (Sequence[Bounds]): start and end of each, in µs since the epoch.
        damaged (Damaged): called with the path of a file that is left out, and why.

    Returns:
        Census: an entry for each window, also for one without rows.

    Raises:
        ArchiveError: when an archive cannot be listed, or a file not be read.
        SparkFailed: when Spark cannot count.

    Example:
        >>> first, ten = 1_767_225_600_000_000, 10_000_000
        >>> lines = offline.Archived(archive, "clicks", "json", "ts")
        >>> counted = census(spark, ten, [lines], [(first, first + ten)], lambda path, why: None)
        >>> counted.total((first, first + ten))
        2
    """
    span = min((start for start, _ in windows), default=0), max((end for _, end in windows), default=0)
    by_agent: dict[str, Counter[int]] = defaultdict(Counter)
    try:
        for one in archived:
            lines = offline.lines_of(spark, one, span, damaged, ["_agent"])
            pane = F.expr(f"(unix_micros(ts) - pmod(unix_micros(ts), {pane_us}L)) div {pane_us}L")
            counted = lines.groupBy(pane.alias("pane"), F.coalesce("origin0", "agent").alias("agent")).count()
            for number, agent, rows in counted.collect():
                by_agent[agent][number] += rows
    except (PySparkException, Py4JError) as error:
        raise SparkFailed(f"Spark could not count the rows: {str(error).splitlines()[0]}") from error
    return Census({window: _of_window(window, pane_us, by_agent) for window in windows})


def _of_window(window: Bounds, pane_us: int, by_agent: dict[str, Counter[int]]) -> dict[str, int]:
    panes = range(window[0] // pane_us, -(-window[1] // pane_us))
    sums = {agent: _sum(counts, panes) for agent, counts in by_agent.items()}
    return {agent: rows for agent, rows in sums.items() if rows}


def _sum(counts: Counter[int], panes: range) -> int:
    if len(panes) <= len(counts):
        return sum(counts[pane] for pane in panes)
    return sum(rows for pane, rows in counts.items() if pane in panes)
