"""Graphs of windows against networkx, which shares nothing with scipy's."""

from __future__ import annotations

import json
import random
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

import networkx as nx
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.run import run
from agents.runinputs import Asked, RunRequest
from agents.tasks import graphs, streamtask
from agents.tasks.graphs import vertices
from elf.client.windows import Window, split
from elf.errors import UserError
from elf.ql.graphs import Bounds, Graph, GraphStep

BOUNDS = ("window_start", "window_end")
Edge = tuple[int, int, float]
NAMES = st.integers(0, 9)
EDGES = st.lists(st.tuples(NAMES, NAMES, st.floats(0.25, 4)), max_size=30, unique_by=lambda edge: edge[:2])


def made(
    graph: Graph, edges: Sequence[tuple[object, ...]], kind: pa.DataType | None = None
) -> list[tuple[object, ...]]:
    """The rows of the vertices of one graph."""
    columns = list(zip(*edges, strict=True)) or [()] * len(graph.inputs)
    types = [kind or pa.int64()] * 2 + [pa.float64()]
    arrays = [pa.array(column, of) for column, of in zip(columns, types, strict=False)]
    table = pa.table(arrays[: len(graph.inputs)], names=list(graph.inputs))
    found = vertices(GraphStep(graph, "", ()), table)
    assert not found.refused
    return list(zip(*(column.to_pylist() for column in found.rows.columns), strict=True))


def graph_of(edges: Iterable[Edge]) -> nx.DiGraph:
    whole = nx.DiGraph()
    whole.add_weighted_edges_from(edges)
    return whole


@given(EDGES)
def test_components_are_named_by_their_least_vertex(edges: list[Edge]) -> None:
    wanted = {
        (vertex, min(part), len(part))
        for part in nx.weakly_connected_components(graph_of(edges))
        for vertex in part
    }
    assert made(Graph("components", "bigint"), edges) == sorted(wanted)


@given(EDGES, st.booleans())
@settings(deadline=None)
def test_ranks_are_those_of_networkx(edges: list[Edge], weighted: bool) -> None:
    graph = Graph("pagerank", "bigint", weighted=weighted, iterations=100)
    weight = "weight" if weighted else None
    wanted = nx.pagerank(graph_of(edges), weight=weight, tol=1e-13, max_iter=1000) if edges else {}
    found = {name: float(str(rank)) for name, rank in made(graph, edges)}
    assert found.keys() == wanted.keys()
    assert all(found[one] == pytest.approx(wanted[one], abs=1e-6) for one in found)
    assert not edges or sum(found.values()) == pytest.approx(1)


@given(EDGES, st.lists(NAMES, min_size=1, max_size=3, unique=True), st.booleans())
def test_paths_are_those_of_networkx(edges: list[Edge], sources: list[int], weighted: bool) -> None:
    whole = graph_of(edges)
    wanted = []
    for source in sorted(sources):
        if source in whole:
            ways = nx.single_source_dijkstra_path_length(
                whole, source, weight="weight" if weighted else lambda *_: 1
            )
            wanted += [(source, vertex, ways[vertex]) for vertex in sorted(ways)]
    assert made(Graph("mssp", "bigint", weighted, sources=tuple(sources)), edges) == wanted
    first = sources[0]
    alone = [(vertex, way) for source, vertex, way in wanted if source == first]
    assert made(Graph("sssp", "bigint", weighted, sources=(first,)), edges) == alone


@given(EDGES, st.randoms())
@settings(deadline=None)
def test_the_order_of_edges_changes_no_bit(edges: list[Edge], rng: random.Random) -> None:
    mixed = [*edges]
    rng.shuffle(mixed)
    for graph in (
        Graph("components", "bigint"),
        Graph("pagerank", "bigint", weighted=True, iterations=20),
        Graph("mssp", "bigint", weighted=True, sources=(1, 2)),
    ):
        assert made(graph, edges) == made(graph, mixed)


def test_texts_ascend_by_their_bytes() -> None:
    edges = [("é", "z"), ("Z", "a"), ("a", "é")]
    found = made(Graph("components", "text"), edges, pa.string())
    assert found == [(name, "Z", 4) for name in ("Z", "a", "z", "é")]


def test_what_is_no_edge_is_left_out() -> None:
    graph = Graph("sssp", "bigint", weighted=True, sources=(1,))
    edges = [(1, 2, 1.0), (1, None, 1.0), (None, 3, 1.0), (1, 4, None), (1, 5, 0.0), (1, 6, -1.0)]
    assert made(graph, [*edges, (1, 7, float("inf")), (1, 8, float("nan"))]) == [(1, 0.0), (2, 1.0)]


def windows(edges: dict[tuple[int, int], list[tuple[int, int]]]) -> pa.Table:
    rows = [(start, end, src, dst) for (start, end), some in edges.items() for src, dst in some]
    random.Random(1).shuffle(rows)
    starts, ends, srcs, dsts = zip(*rows, strict=True)
    times = [pa.array(some, pa.timestamp("us")) for some in (starts, ends)]
    return pa.table([*times, pa.array(srcs), pa.array(dsts)], names=[*BOUNDS, "src", "dst"])


def test_each_window_is_a_graph_of_its_own() -> None:
    table = windows({(0, 10): [(1, 2), (3, 4)], (10, 20): [(2, 3)], (0, 20): [(1, 2), (3, 4), (2, 3)]})
    found = vertices(GraphStep(Graph("components", "bigint"), "", BOUNDS), table).rows
    parts = defaultdict(set)
    for row in found.to_pylist():
        span = tuple(int(row[name].timestamp() * 1e6) for name in BOUNDS)
        parts[span].add((row["vertex"], row["component"]))
    assert parts == {
        (0, 10): {(1, 1), (2, 1), (3, 3), (4, 3)},
        (10, 20): {(2, 2), (3, 2)},
        (0, 20): {(1, 1), (2, 1), (3, 1), (4, 1)},
    }


def test_a_graph_that_is_too_large_is_refused_and_others_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    table = windows({(0, 10): [(1, 2), (3, 4), (5, 6)], (10, 20): [(2, 3)]})
    step = GraphStep(Graph("components", "bigint"), "", BOUNDS)
    for limits, most, what in ((Bounds(2, 9, None), 2, "3 edges"), (Bounds(9, 5, None), 5, "6 vertices")):
        with monkeypatch.context() as patch:
            patch.setattr(graphs, "bounds_of", lambda graph, limits=limits: limits)
            found = vertices(step, table)
        assert found.refused.startswith(f"WITH GRAPH components: {what}, and {most} is the most")
        assert "in the window from 1970-01-01 00:00:00 to" in found.refused
        assert found.spans == {(0, 10)}
        assert found.rows["vertex"].to_pylist() == [2, 3]


@pytest.mark.parametrize(
    ("graph", "what", "most"),
    [
        (Graph("components", "bigint"), "2,000,001 edges", "2,000,000"),
        (Graph("sssp", "bigint", sources=(1,)), "2,000,001 edges", "2,000,000"),
        (Graph("mssp", "bigint", sources=tuple(range(64))), "1,000,000 edges × 64 sources", "50,000,000"),
        (Graph("pagerank", "bigint", iterations=100), "6,000,000 edges × 100 iterations", "500,000,000"),
        (
            Graph("kmeans", "bigint", iterations=100, clusters=64, columns=1),
            "100,000 points × 64 clusters × 1 columns × 100 iterations",
            "500,000,000",
        ),
    ],
)
def test_a_graph_that_would_hold_up_the_agent_is_refused(graph: Graph, what: str, most: str) -> None:
    ones = np.ones(int(what.split()[0].replace(",", "")), np.int64)
    found = vertices(GraphStep(graph, "", ()), pa.table(dict.fromkeys(graph.inputs, ones)))
    assert found.refused.startswith(f"WITH GRAPH {graph.algorithm}: {what}, and {most} is the most")
    fewer = pa.table(dict.fromkeys(graph.inputs, ones[:1_000]))
    assert not vertices(GraphStep(graph, "", ()), fewer).refused


def test_no_edges_are_no_vertices_in_the_right_types() -> None:
    for graph in (Graph("pagerank", "text", iterations=1), Graph("mssp", "text", sources=("a",))):
        table = pa.table({name: pa.array([], pa.string()) for name in graph.inputs})
        found = vertices(GraphStep(graph, "", ()), table).rows
        assert found.num_rows == 0
        assert found.schema.names == list(graph.names)
        assert made(graph, [(None, None)], pa.string()) == []


def clusters(
    points: dict[int, tuple[float | None, ...]], k: int, iterations: int = 20
) -> dict[object, object]:
    columns = list(zip(*points.values(), strict=True))
    graph = Graph("kmeans", "bigint", iterations=iterations, clusters=k, columns=len(columns))
    names = [pa.array(list(points)), *(pa.array(column, pa.float64()) for column in columns)]
    found = vertices(GraphStep(graph, "", ()), pa.table(names, names=list(graph.inputs))).rows
    return dict(zip(found["vertex"].to_pylist(), found["cluster"].to_pylist(), strict=True))


def test_clusters_are_found_whatever_the_scale_of_a_column() -> None:
    rng = np.random.default_rng(1)
    points: dict[int, tuple[float | None, ...]] = {}
    for at, centre in enumerate([(0, 0), (10, 1e6), (20, 0)]):
        for place in range(20):
            x, y = rng.normal(centre, (0.1, 1e4))
            points[at * 100 + place] = (x, y)
    points[999] = (None, 1.0)
    assert clusters(points, 3) == {name: name // 100 * 100 for name in sorted(points) if name != 999}
    assert clusters({1: (5.0,), 2: (5.0,)}, 3) == {1: 1, 2: 1}


def test_clusters_are_begun_with_one_look_for_each_and_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    points = np.random.default_rng(2).random((1_000, 3))
    whole = graphs._clustered(points, 30, 2)
    looked, apart = list[int](), graphs._apart

    def counted(some: graphs.Doubles, centres: graphs.Doubles) -> graphs.Doubles:
        looked.append(len(some))
        return apart(some, centres)

    monkeypatch.setattr(graphs, "BLOCK", 7)
    monkeypatch.setattr(graphs, "_apart", counted)
    in_blocks = graphs._clustered(points, 30, 2)
    assert [one.tolist() for one in whole] == [one.tolist() for one in in_blocks]
    assert looked.count(1_000) == 1 + 30 + 1
    assert sum(looked) == 1_000 * (1 + 30 + 3 * 30 + 1)


GRAPHS = "SELECT vertex, size FROM log GROUP BY src, dst WITH GRAPH components WINDOWING 1 MINUTE"


def answered(folder: Path, text: str = GRAPHS) -> list[Window]:
    """By ``elf run``, of a graph of two edges in the first minute and one in the second and in the third."""
    log = folder / "log.json"
    rows = [("00:00:01", "a", "b"), ("00:00:02", "b", "c"), ("00:01:00", "c", "d"), ("00:02:00", "c", "d")]
    lines = (json.dumps({"ts": f"2026-01-01 {at}", "src": src, "dst": dst}) for at, src, dst in rows)
    log.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    found = list[Window]()
    run(RunRequest(Asked(text), {"log": (str(log),)}), lambda result: found.extend(split(result)))
    return found


def test_a_window_without_its_graph_says_so_and_others_are_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(graphs, "bounds_of", lambda graph: Bounds(1, 9, None))
    first, second, _ = answered(tmp_path)
    assert first.status["function_failed"]
    assert first.table.num_rows == 0
    assert first.coverage.endswith("a function failed, or a graph was too large")
    assert not second.status["function_failed"]
    assert second.table["vertex"].to_pylist() == ["c", "d"]


@pytest.mark.parametrize("counted", ["COUNT(*)", "lower(COUNT(*)::TEXT)"], ids=["direct", "by SQL"])
def test_a_larger_window_says_that_it_lacks_a_graph(
    counted: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(graphs, "bounds_of", lambda graph: Bounds(1, 9, None))
    text = f"SELECT size, {counted} AS n FROM JOB small GROUP BY size WINDOWING 2 MINUTES"
    first, second = answered(tmp_path, f"CREATE JOB small AS {GRAPHS}; {text}")
    assert first.coverage.endswith("a function failed, or a graph was too large")
    assert [first.table.num_rows, second.table.num_rows] == [1, 1]
    assert not second.status["function_failed"]


def test_a_statement_is_refused_where_scipy_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streamtask, "find_spec", lambda name: None)
    with pytest.raises(
        UserError, match="an agent of stream log has no package scipy, which WITH GRAPH needs"
    ):
        answered(tmp_path)
