"""Paths from several vertices and clusters of points, over several agents; and what a ring moves."""

from __future__ import annotations

import math
from collections.abc import Sequence
from random import Random
from typing import Any

import networkx as nx
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.tasks.graphs import vertices
from elf.job import JobError
from elf.job.graphs import clusters
from elf.job.graphs.part import SLOTS, of_image, part_of, points_of
from elf.ql.graphs import Graph, GraphStep
from lab.graphs import chaos
from lab.graphs.afterwards import Computation
from lab.graphs.chaos import Fleet, Groups, Hang, Many, Ways, alone, calm
from tests.support.graph_examples import EDGES, Alike, Clicks
from tests.support.two_agents import two_agents

Point = tuple[str, float | None, float | None]


class Points(Groups):
    """``edges`` of an agent are points."""

    edges, clusters = "SELECT one, SUM(n) AS n, SUM(m) AS m FROM clicks GROUP BY one", 3

    def own_edges(self) -> pa.Table:
        host: Any = self._host
        rows = host.fleet.edges[self.me]
        columns = [pa.array([row[place] for row in rows]) for place in range(3)]
        return pa.table([columns[0], *(one.cast(pa.float64()) for one in columns[1:])], ["one", "n", "m"])


def answered(kind: type[chaos._Drawn], edges: dict[str, Any], parts: int) -> pa.Table:
    fleet = Fleet(Random(1), kind, edges, parts)
    while len(fleet.state["agents"]) < len(edges):
        fleet.step({})
    return calm(fleet)["rows"]


def by_query(points: Sequence[Point], many: int) -> dict[str, tuple[str, float]]:
    """As ``WITH GRAPH kmeans``."""
    columns = [pa.array([point[place] for point in points]) for place in range(3)]
    table = pa.table(columns, ["vertex", "x0", "x1"])
    query = Graph("kmeans", "text", iterations=Points.iterations, clusters=many, columns=2)
    found = vertices(GraphStep(query, "", ()), table).rows.to_pylist()
    return {row["vertex"]: (row["cluster"], row["distance"]) for row in found}


def drawn(seed: int, count: int) -> list[Point]:
    rng = Random(seed)
    return [(f"p{n}", rng.gauss(n % 3 * 9, 1), rng.gauss(n % 2 * 1e9, 1e8)) for n in range(count)]


def spread(points: Sequence[Point], agents: int) -> dict[str, list[Point]]:
    """Over agents; those of all but one in two halves, which come to the same."""
    found: dict[str, list[Point]] = {f"a{n}": [] for n in range(agents)}
    for place, (name, x, y) in enumerate(points):
        halves = (
            [(name, None if x is None else x / 2, None if y is None else y / 2)] * 2 if place else [points[0]]
        )
        for n, half in enumerate(halves):
            found[f"a{(place + n) % agents}"].append(half)
    return found


@pytest.mark.parametrize("agents", [1, 3, 8])
@pytest.mark.parametrize("seed", range(3))
def test_clusters_are_those_of_the_query(seed: int, agents: int) -> None:
    points = [*drawn(seed, 70), ("none", None, 1.0), ("far", math.inf, 1.0), ("odd", 1.0, math.nan)]
    rows = answered(Points, spread(points, agents), agents).to_pylist()
    assert len(rows) == 70
    assert not chaos.same_clusters(rows, by_query(points, Points.clusters))
    assert rows == sorted(rows, key=lambda row: (-row["distance"], row["vertex"]))


@pytest.mark.parametrize("unit", [1e-310, 1e300])
def test_coordinates_may_be_of_any_size(unit: float) -> None:
    """The query's own mean is infinite there; a power of two changes nothing."""
    points = [(name, x, y and y / 1e8) for name, x, y in drawn(4, 30)]
    scale = 2.0 ** round(math.log2(unit))
    sized = [(name, x and x * scale, y and y * 2.0**20) for name, x, y in points]
    told = answered(Points, {"a": sized}, 1).to_pylist()
    truth = {
        row["vertex"]: (row["cluster"], row["distance"])
        for row in answered(Points, {"a": points}, 1).to_pylist()
    }
    assert {row["vertex"]: row["cluster"] for row in told} == {one: name for one, (name, _) in truth.items()}


def test_ends_of_a_coordinate_may_be_farther_apart_than_a_double() -> None:
    points: list[Point] = [
        ("a", -1.7e308, 2.0),
        ("b", 1.7e308, 2.0),
        ("c", 1.6e308, 2.0),
        ("d", -1.6e308, 2.0),
    ]
    two = type("Two", (Points,), {"clusters": 2})
    rows = answered(two, {"a": points}, 1).to_pylist()
    assert {row["vertex"]: row["cluster"] for row in rows} == {"a": "a", "b": "b", "c": "b", "d": "a"}


@pytest.mark.parametrize("far", [1e9, -1e12, 1e15])
def test_coordinates_may_differ_by_little_beside_their_size(far: float) -> None:
    """As moments do, in seconds or less since 1970."""
    rng = Random(5)
    points: list[Point] = [(f"p{n}", n % 3 * 9.0 + rng.randrange(4), float(n % 2 * 50)) for n in range(40)]
    rows = answered(Points, {"a": [(name, far + (x or 0.0), y) for name, x, y in points]}, 1).to_pylist()
    assert not chaos.same_clusters(rows, by_query(points, Points.clusters))


@pytest.mark.parametrize(
    "points",
    [
        [("a", 1.0, 2.0), ("b", 1.0, 2.0)],
        [("b", 1.0, 2.0), ("a", 5.0, 2.0), ("c", 1.0, 2.0)],
        [("a", 3.0, 0.0)],
    ],
)
def test_there_may_be_fewer_points_than_clusters(points: list[Point]) -> None:
    rows = answered(Points, spread(points, 2), 2).to_pylist()
    assert not chaos.same_clusters(rows, by_query(points, Points.clusters))


def test_without_a_point_there_are_no_rows() -> None:
    assert answered(Points, {"a": [("a", None, 1.0)], "b": []}, 2).num_rows == 0


def test_coordinates_are_made_of_sums() -> None:
    class Means(Points):
        def coordinates(self, numbers: Sequence[Any]) -> list[Any]:
            return [numbers[1] / numbers[0]]

    points: list[Point] = [("a", 2.0, 6.0), ("b", 1.0, 3.0), ("c", 4.0, 400.0), ("d", 0.0, 1.0)]
    rows = answered(Means, spread(points, 2), 2).to_pylist()
    assert {row["vertex"]: row["cluster"] for row in rows} == {"a": "a", "b": "a", "c": "c"}


def test_coordinates_that_are_none_are_told() -> None:
    class Wrong(Points):
        def coordinates(self, numbers: Sequence[Any]) -> list[Any]:
            return [numbers[0][:1]]

    many = type("Many", (Points,), {"coordinates": lambda _, numbers: [*numbers] * 9})
    for kind, why in ((Wrong, "gives no column of 2 numbers"), (many, "gives 18 columns; at most 16")):
        with pytest.raises(chaos.Stuck, match=f"coordinates {why}"):
            answered(kind, {"a": [("a", 1.0, 1.0), ("b", 1.0, 1.0)]}, 1)


NUMBERS = st.lists(st.floats(-1, 1), max_size=30)


@given(NUMBERS, st.integers(0, 30), st.randoms())
def test_sums_of_points_are_the_same_in_any_order(numbers: list[float], place: int, rng: Any) -> None:
    def summed(some: list[float]) -> Any:
        return np.array(clusters._sums([np.array(some)], np.zeros(len(some), dtype=np.int64), 1))

    mixed = [*numbers]
    rng.shuffle(mixed)
    whole = clusters._values(summed(numbers))
    assert whole == clusters._values(summed(mixed[:place]) + summed(mixed[place:]))
    assert whole[0][0] == pytest.approx(math.fsum(numbers), rel=1e-15, abs=1e-21)


def test_points_are_the_same_again_after_they_were_kept_or_moved() -> None:
    rows = pa.table([["a", "b", "c", None], [1.0, None, math.nan, 1.0]], ["p", "x"])
    part = part_of([points_of(rows), points_of(rows)], weighted=False)
    for other in (of_image(part.image), part_of([part.cut((0, SLOTS))], weighted=True)):
        assert other.names.equals(part.names)
        assert np.array_equal(other.numbers[0], part.numbers[0], equal_nan=True)
    assert sorted(zip(part.names.to_pylist(), map(str, part.numbers[0].tolist()), strict=True)) == [
        ("a", "2.0"), ("b", "nan"), ("c", "nan"),
    ]  # fmt: skip


class Weighed(Many):
    weight = "n"

    def own_edges(self) -> pa.Table:
        rows = super().own_edges()
        return rows.set_column(
            2, "n", pa.array([weight_of(a, b) for a, b in zip(*rows.columns[:2], strict=True)])
        )


def weight_of(one: Any, other: Any) -> float:
    return 0.1 + int(str(one)[1:]) * int(str(other)[1:]) % 11 / 3


@pytest.mark.parametrize("parts", [1, 3])
def test_paths_by_weight_are_those_of_networkx_to_the_last_bit(parts: int) -> None:
    rng = Random(3)
    pairs = sorted({(f"v{rng.randrange(40)}", f"v{rng.randrange(40)}") for _ in range(120)})
    edges = {f"a{n}": pairs[n::parts] for n in range(parts)}
    rows = answered(Weighed, edges, parts).to_pylist()
    graph = nx.DiGraph()
    graph.add_weighted_edges_from((a, b, weight_of(a, b)) for a, b in pairs)
    truth = {
        (one, vertex): far
        for one in Weighed.sources
        if one in graph
        for vertex, far in nx.single_source_dijkstra_path_length(graph, one).items()
    }
    assert {(row["source"], row["vertex"]): row["distance"] for row in rows} == truth


def test_more_paths_than_a_part_has_room_for_are_told() -> None:
    class Sources(Many):
        sources = tuple(f"v{n}" for n in range(64))

    edges = {"a": [], "b": [(f"v{n}", f"v{n + 1}") for n in range(30_000)]}
    with pytest.raises(chaos.Stuck, match="bytes; at most 6291456: spread the graph over more agents"):
        answered(Sources, edges, 1)


@pytest.mark.parametrize(
    ("kind", "name", "value", "why"),
    [
        (Many, "sources", (), r"sources = \(\): 1 to 64 texts, in \( ,\)"),
        (Many, "sources", "v0", "sources = 'v0': 1 to 64 texts"),
        (Many, "sources", (1,), r"sources = \(1,\): 1 to 64 texts"),
        (Groups, "clusters", 1, "clusters = 1: how many, 2 to 64"),
        (Groups, "iterations", 0, "iterations = 0: how many at most, 1 to 100"),
        (Groups, "columns", (), r"columns = \(\): 1 to 16 names"),
        (Groups, "columns", "n", "columns = 'n': 1 to 16 names"),
        (Groups, "columns", 5, "columns = 5: 1 to 16 names"),
        (Groups, "columns", (5,), r"columns = \(5,\): 1 to 16 names"),
        (Groups, "weight", "n", "weight = 'n': points have no edges"),
        (Ways, "source", None, "source = None: the vertex where paths begin, a text"),
        (Ways, "source", 7, "source = 7: the vertex where paths begin, a text"),
        (Hang, "least", "many", "least = 'many': how many vertices"),
    ],
)
def test_settings_that_cannot_be_are_refused(kind: Any, name: str, value: object, why: str) -> None:
    with pytest.raises(JobError, match=why):
        type("Set", (kind,), {name: value})("graph", "me", None)


@pytest.mark.parametrize("ends", ["one", (), ("one", "other"), 5, (5,)])
def test_a_point_has_one_name(ends: Any) -> None:
    job = type("Set", (Groups,), {"ends": ends})("graph", "me", None)
    with pytest.raises(JobError, match="its one column that names a point"):
        job.start()


def test_columns_that_edges_do_not_have_are_told() -> None:
    kind = type("Set", (Groups,), {"columns": ("n", "bytes")})
    with pytest.raises(
        chaos.Stuck, match="edges has no column bytes, which ends or columns names; it has one, n"
    ):
        answered(kind, {"a": [("v1", "v2")]}, 1)


def test_of_many_rows_the_nearest_and_the_farthest_are_kept() -> None:
    edges = {f"a{n}": [(f"v{v}", f"v{v + 1}") for v in range(n, 40, 2)] for n in range(2)}
    few = type("Few", (Many,), {"rows": 3})
    assert answered(few, edges, 2).equals(alone(Many, edges, 1).slice(0, 3))
    points = spread(drawn(5, 40), 2)
    some = type("Some", (Points,), {"rows": 5})
    assert answered(some, points, 2).equals(answered(Points, points, 1).slice(0, 5))


@pytest.mark.parametrize(
    ("ring", "by", "moves", "largest"),
    [
        (False, 1, 1 / 3, 1),
        (True, 1, 1 / 6, 4 / 3),
        (False, -1, 1 / 3, 1),
        (True, -1, 1 / 3, 4 / 3),
        (True, 3, 1 / 2, 1),
    ],
)
def test_a_ring_moves_less_and_is_less_even(ring: bool, by: int, moves: float, largest: float) -> None:
    found = Computation(6, 3, ring=ring)
    while found.number < 1:
        found.step()
    found.scale(by)
    assert found.moved / SLOTS == pytest.approx(moves, abs=0.001)
    assert found.slots * (3 + by) / SLOTS == pytest.approx(largest, abs=0.001)


def test_one_source_is_a_matrix_too() -> None:
    one = type("One", (Many,), {"sources": ("v0",)})
    rows = answered(one, {"a": [("v0", "v1"), ("v1", "v2")]}, 1).to_pylist()
    assert [row["distance"] for row in rows] == [0.0, 1.0, 2.0]


def told(kind: Any, **rows: Any) -> dict[str, Any]:
    """What the master tells of a computation over these rows."""
    master, below = two_agents(kind)
    if rows:
        below.insert(pa.table(rows), "edges")
    below.on_timer()
    master.deliver(b"", {"begin": True})
    return dict(master.deliver(b"", None))


@pytest.mark.parametrize(
    ("base", "settings"),
    [
        (
            Alike,
            {"edges": "SELECT product, MAX(clicks) AS n FROM clicks GROUP BY product", "columns": ("n",)},
        ),
        (
            Clicks,
            {"edges": f"{EDGES}, clicks".replace("COUNT(*) AS n", "clicks AS n, COUNT(*)"), "weight": "n"},
        ),
    ],
)
def test_numbers_that_several_agents_cannot_add_up_are_told(base: Any, settings: dict[str, Any]) -> None:
    """A MAX of two agents is not the sum of theirs, and a key is there once for each agent."""
    found = told(type("Of", (base,), settings))
    assert found["error"].startswith(
        "n is no COUNT and no SUM: what agents have of an edge or point is added"
    )


def test_sums_may_be_greater_than_the_integers_of_a_double() -> None:
    found = told(Alike, product=["Doom", "Go"], n=[1, 1], clicks=[2**60 + 1, 3])
    assert {row["cluster"] for row in found["result"]["rows"]} == {"Doom", "Go"}
    weight = type("Of", (Clicks,), {"weight": "n"})
    found = told(weight, **{"user.name": ["ada"], "product": ["Doom"], "n": [2**53 + 1]})
    assert found["result"]["rows"][-1] == {"vertex": "Doom", "value": 2.0**53}
