"""Graphs in Spark are those of masters: the same rows of the same edges, in all windows at once."""

from __future__ import annotations

import datetime as dt
import json
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from agents.run import run
from agents.runinputs import Asked, RunRequest
from agents.tasks.graphs import vertices as by_scipy
from elf.client.windows import Window, split
from elf.ql.graphs import Graph, GraphStep
from spark_backend.compare import same
from spark_backend.explained import explained
from spark_backend.graphs import vertices as by_spark
from spark_backend.offline import answer, collected, zoned
from spark_backend.offline import run as run_offline
from spark_backend.queries import question
from tests.support.offline import BASE_US, SECOND, store

BOUNDS = ("window_start", "window_end")


def drawn(rng: random.Random) -> pa.Table:
    """Three windows of sparse graphs, with what is no edge in them; a chain is long."""
    rows: dict[tuple[int, str, str], float | None] = {}
    for window in range(3):
        for _ in range(30):
            src, dst = (f"v{rng.randrange(25)}" for _ in range(2))
            rows[window, src, dst] = rng.choice([0.5, 1.0, 2.5, 7.25])
    rows |= {(2, f"w{place:02}", f"w{place + 1:02}"): 1.0 for place in range(5)}
    rows |= {(0, "v1", "none"): None, (0, "v1", "zero"): 0.0, (1, "v1", "far"): float("inf")}
    keys = [(window, src, dst) for window, src, dst in rows]
    starts = [pa.array([(key[0] + more) * 60_000_000 for key in keys], pa.timestamp("us")) for more in (0, 1)]
    ends = [pa.array([key[place] for key in keys]) for place in (1, 2)]
    return pa.table([*starts, *ends, pa.array(list(rows.values()))], names=[*BOUNDS, "src", "dst", "weight"])


GRAPHS = [
    Graph("components", "text"),
    Graph("pagerank", "text", weighted=True, iterations=3),
    Graph("sssp", "text", sources=("v3",)),
    Graph("mssp", "text", weighted=True, sources=("v1", "w00", "absent")),
]


@pytest.mark.parametrize("graph", GRAPHS, ids=lambda graph: graph.text)
def test_the_vertices_are_those_of_scipy(quick_spark: SparkSession, graph: Graph) -> None:
    edges = drawn(random.Random(5))
    compared(quick_spark, GraphStep(graph, "", BOUNDS), edges)


def test_clusters(quick_spark: SparkSession) -> None:
    rng = random.Random(7)
    rows = [
        (window, f"p{n}", rng.gauss(n % 3 * 10, 1), rng.gauss(n % 2, 0.1))
        for window in range(2)
        for n in range(40)
    ]
    rows.append((0, "hole", None, 1.0))  # type: ignore[arg-type]
    starts = [pa.array([(row[0] + more) * 60_000_000 for row in rows], pa.timestamp("us")) for more in (0, 1)]
    points = pa.table(
        [*starts, *(pa.array([row[place] for row in rows]) for place in (1, 2, 3))],
        names=[*BOUNDS, "vertex", "x0", "x1"],
    )
    compared(
        quick_spark,
        GraphStep(Graph("kmeans", "text", iterations=20, clusters=4, columns=2), "", BOUNDS),
        points,
    )


EDGES = "GROUP BY src, dst WITH GRAPH"
JOB = f"SELECT vertex, distance FROM clicks {EDGES} sssp('n1') WINDOWING 20 SECONDS"
ASKED = (
    "SELECT vertex, distance FROM clicks GROUP BY src, dst HAVING COUNT(*) > 1 WITH GRAPH sssp('n1') "
    "WEIGHT COUNT(*) HAVING distance > 0 ORDER BY distance, vertex LIMIT 3 "
    "WINDOWING 20 SECONDS SLIDE 10 SECONDS",
    f"SELECT * FROM clicks WHERE src <> 'n3' {EDGES} sssp('n1') WINDOWING LANDMARK EVERY 20 SECONDS",
    f"CREATE JOB a AS {JOB}; CREATE JOB b AS {JOB.replace('src, dst', 'dst, src')}; "
    "SELECT a.vertex, a.distance AS there, b.distance AS back FROM JOB a AS a "
    "LEFT JOIN JOB b AS b ON a.vertex = b.vertex",
    f"CREATE JOB a AS {JOB}; "
    "SELECT distance, COUNT(*) AS n FROM JOB a GROUP BY distance WINDOWING 40 SECONDS",
)


def test_an_archive_answers_as_a_run_does(quick_spark: SparkSession, tmp_path: Path) -> None:
    rng = random.Random(9)
    at = [BASE_US + place * SECOND // 4 for place in range(240)]
    ends = [(f"n{rng.randrange(7)}", f"n{rng.randrange(7)}") for _ in at]
    rows = [{"ts": when(us), "src": src, "dst": dst} for us, (src, dst) in zip(at, ends, strict=True)]
    lines = list(map(json.dumps, rows))
    store(tmp_path / "t", lines, list(at))
    (tmp_path / "log.json").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    for text in ASKED:
        live = answered(text, tmp_path / "log.json")
        asked = question(text, [str(tmp_path / "t")])
        offline = collected(answer(quick_spark, asked.plan, asked.archived)).cast(live.schema)
        assert live.num_rows > 2, text
        assert sorted_rows(live) == sorted_rows(offline), text
        if "LANDMARK" in text:  # as elf compare asks it
            bounds = zip(*(live[name].cast(pa.int64()).to_pylist() for name in BOUNDS), strict=True)
            judged = run_offline(quick_spark, asked.plan, asked.archived, list(bounds)).cast(live.schema)
            assert sorted_rows(live) == sorted_rows(judged)
            plan = explained(quick_spark, answer(quick_spark, asked.plan, asked.archived, explain=True), ())
            assert "Scan parquet" in plan


def answered(text: str, log: Path) -> pa.Table:
    """What ``elf run`` answers."""
    found = list[Window]()
    run(RunRequest(Asked(text), {"clicks": (str(log),)}), lambda one: found.extend(split(one)))
    return zoned(pa.concat_tables([one.table for one in found if one.table.num_rows]))


def when(us: int) -> str:
    return dt.datetime.fromtimestamp(us / 1e6, dt.UTC).strftime("%Y-%m-%d %H:%M:%S.%f")


def sorted_rows(table: pa.Table) -> list[str]:
    return sorted(map(str, zip(*(column.to_pylist() for column in table.columns), strict=True)))


def compared(spark: SparkSession, step: GraphStep, edges: pa.Table) -> None:
    live = by_scipy(step, edges).rows
    offline = by_spark(step, spark.createDataFrame(zoned(edges))).toArrow().cast(zoned(live).schema)
    assert live.num_rows > 5
    ours, theirs = (
        rows_of(table, len(step.bounds) + len(step.graph.names) - 1) for table in (zoned(live), offline)
    )
    assert ours.keys() == theirs.keys()
    for key, row in ours.items():
        assert all(map(same, row, theirs[key])), (key, row, theirs[key])


def rows_of(table: pa.Table, keys: int) -> dict[tuple[object, ...], tuple[Any, ...]]:
    """By all but the last columns where those are numbers."""
    keys = min(keys, table.column_names.index("vertex") + 1)
    rows = zip(*(column.to_pylist() for column in table.columns), strict=True)
    return {row[:keys]: row[keys:] for row in rows}
