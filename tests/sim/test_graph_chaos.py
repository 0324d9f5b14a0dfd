"""Graph computations over several agents: equal to networkx, wherever vertices are and whatever happens."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import pairwise
from random import Random
from types import ModuleType
from typing import Any

import networkx as nx
import numpy as np
import pyarrow as pa
import pytest

from agents.tasks.graphs import vertices
from elf.job import JobError
from elf.job.graphs import barrier, worker
from elf.job.graphs.part import part_of, pieces_of
from elf.job.program.calls import VALUE_BYTES_MAX
from elf.ql.graphs import Graph, GraphStep
from lab.graphs import chaos
from lab.graphs.chaos import KINDS, Fleet, Groups, Hang, Many, Ranks, Ways, alone, calm, graph, story
from lab.graphs.plain import Edge, number_of
from tests.chaos import plants
from tests.chaos.plants import Plant

SEEDS = int(os.environ.get("ELF_GRAPH_SEEDS", "5"))
SCALES = {"crash": 10, "scale": 300}


def begun(
    kind: type[chaos._Drawn],
    agents: int,
    parts: int,
    edges: dict[str, list[Edge]] | None = None,
    *,
    ring: bool = False,
) -> Fleet:
    fleet = Fleet(Random(agents), kind, edges or graph(Random(7), agents, 400, 300), parts, ring=ring)
    while len(fleet.state["agents"]) < agents:
        fleet.step({})
    return fleet


def path(agents: int, edges: int) -> dict[str, list[Edge]]:
    """v0 → v1 → …, whose edges lie on the agents in turn."""
    return {f"a{n}": [(f"v{v}", f"v{v + 1}") for v in range(n, edges, agents)] for n in range(agents)}


def to_the_end(fleet: Fleet) -> dict[str, Any]:
    """The result of the computation that is under way."""
    while fleet.state["phase"] != "idle":
        fleet.step({})
    (result,) = fleet.results
    return result


def reach(fleet: Fleet, iteration: int) -> None:
    """A computation begins, and comes to that iteration."""
    fleet.ask({"begin": True})
    while fleet.state["number"] < iteration:
        fleet.step({})


@pytest.mark.parametrize("agents", [1, 3, 8])
@pytest.mark.parametrize("kind", KINDS)
def test_it_is_equal_to_networkx(kind: type[chaos._Drawn], agents: int) -> None:
    fleet = begun(kind, agents, agents)
    pairs = {edge for some in fleet.edges.values() for edge in some}
    result = calm(fleet)
    assert result["parts"] == agents
    rows = result["rows"].to_pylist()
    directed = nx.DiGraph(sorted(pairs))
    if kind is Hang:
        truth = {(min(one), len(one)) for one in nx.weakly_connected_components(directed)}
        assert {(row["component"], row["size"]) for row in rows} == truth
    elif kind is Ways:
        values = {row["vertex"]: row["value"] for row in rows}
        assert values == nx.single_source_shortest_path_length(directed, Ways.source)
    elif kind is Many:
        there = [one for one in Many.sources if one in directed]
        assert len(there) == 3
        ways = {one: nx.single_source_shortest_path_length(directed, one) for one in there}
        assert {(row["source"], row["vertex"]): row["distance"] for row in rows} == {
            (one, vertex): way for one, found in ways.items() for vertex, way in found.items()
        }
        assert rows == sorted(rows, key=lambda row: (row["distance"], row["source"], row["vertex"]))
    elif kind is Groups:
        assert not chaos.same_clusters(rows, by_query(fleet.edges))
    else:
        ours = {row["vertex"]: row["value"] for row in rows}
        assert ours == pytest.approx(by_matrix(directed, Ranks.iterations), rel=1e-12)


def by_query(edges: Mapping[str, list[Edge]]) -> dict[str, tuple[str, float]]:
    """As ``WITH GRAPH kmeans`` makes it of the same points: clusters and distances."""
    pairs = [edge for some in edges.values() for edge in some]
    columns = [[one for one, _ in pairs], [1] * len(pairs), [number_of(other) for _, other in pairs]]
    sums = pa.table(columns, ["vertex", "n", "m"]).group_by("vertex").aggregate([("n", "sum"), ("m", "sum")])
    query = Graph("kmeans", "text", iterations=Groups.iterations, clusters=Groups.clusters, columns=2)
    found = vertices(GraphStep(query, "", ()), sums.rename_columns(["vertex", "x0", "x1"]))
    return {row["vertex"]: (row["cluster"], row["distance"]) for row in found.rows.to_pylist()}


def by_matrix(directed: nx.DiGraph, iterations: int) -> dict[str, float]:
    """The iterations of networkx's PageRank, which itself goes on until a tolerance."""
    names, size = list(directed), len(directed)
    matrix = nx.to_scipy_sparse_array(directed, nodelist=names, dtype=float)
    out = np.asarray(matrix.sum(axis=1)).ravel()
    now = np.full(size, 1 / size)
    for _ in range(iterations):
        told = np.divide(now, out, out=np.zeros(size), where=out > 0)
        now = 0.15 / size + 0.85 * (matrix.T @ told + now[out == 0].sum() / size)
    return dict(zip(names, now.tolist(), strict=True))


@pytest.mark.parametrize("ring", [False, True], ids=["contiguous", "ring"])
@pytest.mark.parametrize("kind", KINDS)
def test_scaling_while_it_goes_on_changes_no_bit(kind: type[chaos._Drawn], ring: bool) -> None:
    fleet = begun(kind, 8, 3, path(8, 24), ring=ring)
    fleet.ask({"begin": True})
    counts = list[int]()
    while fleet.state["phase"] != "idle":
        if fleet.state["phase"] == "running" and fleet.state["plan"] is None:
            fleet.ask({"scale": 1 if len(fleet.state["of"]) < 8 else -5})
        fleet.step({"crash": 10})
        if len(fleet.state["of"]) != (counts or [0])[-1]:
            counts.append(len(fleet.state["of"]))
    (result,) = fleet.results
    assert len(counts) > 2, counts
    assert result["rows"].equals(alone(kind, fleet.edges, 1))


@pytest.mark.parametrize("seed", range(3))
def test_a_change_that_was_asked_for_before_the_first_iteration_is_made(seed: int) -> None:
    fleet = begun(Ways, 4, 2, path(4, 40))
    fleet.rng = Random(seed)
    fleet.ask({"begin": True})
    assert fleet.ask({"scale": 2})
    assert to_the_end(fleet)["parts"] == 4
    assert fleet.state["note"] == ""


@pytest.mark.parametrize("fates", [chaos.FATES, SCALES], ids=["all", "scales"])
@pytest.mark.parametrize("agents", [1, 3, 8])
def test_whatever_happens_results_are_those_of_one_agent(agents: int, fates: dict[str, int]) -> None:
    results = 0
    for seed in range(SEEDS):
        found = story(seed, agents, fates=fates)
        assert not found.wrong, (seed, found)
        results += found.results
    assert results >= SEEDS


PLANTS: dict[Plant, dict[str, int]] = {
    plants.graphs.goes_on_without_the_last: SCALES,
    plants.graphs.tells_at_the_old_places: SCALES,
    plants.graphs.begins_values_anew: SCALES,
    plants.graphs.waits_for_who_is_lost: chaos.FATES,
    plants.graphs.adds_up_by_part: SCALES,
    plants.graphs.adds_up_doubles: SCALES,
}


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.__name__)
def test_each_planted_bug_is_seen(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    monkeypatch.setattr(chaos, "CALM_STEPS", 10_000)

    def is_seen(seed: int) -> bool:
        try:
            return bool(story(seed, 3, fates=PLANTS[plant]).wrong)
        except (JobError, ValueError, KeyError, IndexError):
            return True

    assert any(is_seen(seed) for seed in range(12))


def test_vertices_of_one_hash_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    edges = pa.table([["a", "b"], ["b", "c"]], ["from", "to"])
    found = pieces_of(edges, weighted=False, both_ways=False)
    vertices = found["vertices"]
    same = vertices.set_column(0, "id", pa.array([7] * vertices.num_rows, pa.int64()))
    with pytest.raises(JobError, match="the same hash"):
        part_of([{**found, "vertices": same}], weighted=False)


def test_what_is_no_edge_is_left_out() -> None:
    rows = pa.table([["a", None, "c", "d"], ["b", "b", None, "e"], [2, 1, 1, 0]], ["from", "to", "n"])
    part = part_of([pieces_of(rows, weighted=True, both_ways=False)], weighted=True)
    assert sorted(part.names.to_pylist()) == ["a", "b"]
    assert part.weights.tolist() == [2.0]


@pytest.mark.parametrize(
    ("room", "bound", "most", "parts", "why"),
    [
        (worker, "PART_BYTES_MAX", 1_000, 1, "at most 1000: spread the graph over more agents"),
        (barrier, "ANSWERS_BYTES_MAX", 100, 3, "the parts answer with more than 100 bytes"),
    ],
)
def test_what_is_too_large_says_so_and_others_follow(
    room: ModuleType, bound: str, most: int, parts: int, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet = begun(Hang, 3, parts)
    with monkeypatch.context() as patch:
        patch.setattr(room, bound, most)
        with pytest.raises(chaos.Stuck, match=why):
            calm(fleet)
    assert calm(fleet)["parts"] == parts


@contextmanager
def sends() -> Iterator[list[int]]:
    """How many bytes messages have."""
    sizes = list[int]()
    send = chaos._Host.send_to

    def measured(host: chaos._Host, node: str, message: object, tree: int, **how: bool) -> None:
        send(host, node, message, tree)
        sizes.append(len(next(reversed(host._seat.waiting.values()))[1]))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chaos._Host, "send_to", measured)
        yield sizes


def texts(rng: Random, count: int, digits: int) -> list[str]:
    return [f"{rng.getrandbits(4 * digits):0{digits}x}" for _ in range(count)]


def test_pieces_of_a_graph_with_long_names_go_in_several_messages() -> None:
    names = texts(Random(1), 24_000, 200)
    way = list(pairwise(names))
    fleet = begun(Ways, 2, 1, {"a": way, "b": []})  # the master is at a, so b has the part
    with sends() as sent:
        assert calm(fleet)["count"] == 24_000
    assert 1 << 20 < max(sent) < VALUE_BYTES_MAX


def test_more_pieces_than_a_state_has_room_for_are_refused_and_told() -> None:
    """Their state would be too large to be kept, which ends a job for good."""
    rng = Random(1)
    edges = list(zip(texts(rng, 60_000, 11), texts(rng, 60_000, 11), strict=True))
    fleet = begun(Ranks, 6, 1, {f"a{agent}": [*edges] for agent in range(6)})
    with pytest.raises(chaos.Stuck, match="bytes of the graph; at most 12582912: spread it over more"):
        calm(fleet)
    for some in fleet.edges.values():
        del some[100:]
    assert calm(fleet)["edges"] == 100


def test_an_answer_that_cannot_be_sent_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = begun(Hang, 3, 2)
    send = chaos._Host.send_to

    def bounded(host: chaos._Host, node: str, message: Any, tree: int, **how: bool) -> None:
        if message["graph"] == "answer":
            raise JobError("a message of 5000000 bytes")
        send(host, node, message, tree)

    monkeypatch.setattr(chaos._Host, "send_to", bounded)
    with pytest.raises(chaos.Stuck, match="a message of 5000000 bytes"):
        calm(fleet)


@pytest.mark.parametrize("seed", range(3))
def test_a_change_that_two_agents_refuse_is_given_up_once(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = begun(Ways, 4, 4, path(4, 40))
    fleet.rng = Random(seed)
    reach(fleet, 1)
    assert fleet.ask({"scale": -2})
    with monkeypatch.context() as patch:
        patch.setattr(worker, "PART_BYTES_MAX", 100)
        result = to_the_end(fleet)
    assert fleet.state["error"] == ""
    assert result["parts"] == 4
    assert result["rows"].equals(alone(Ways, fleet.edges, 1))


def test_a_change_for_which_there_is_no_room_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = begun(Ways, 4, 4, path(4, 400))
    reach(fleet, 1)
    most = max(seat.job._agent()._bytes() for name, seat in fleet.seats.items() if name != chaos.MASTER)
    assert fleet.ask({"scale": -3})
    with monkeypatch.context() as patch:
        patch.setattr(worker, "HAD_BYTES_MAX", most + 4_000)
        while fleet.state["note"] == "" or fleet.state["plan"]:
            fleet.step({})
    assert "not scaled: agent" in fleet.state["note"]
    result = to_the_end(fleet)
    assert result["parts"] == 4
    assert result["rows"].equals(alone(Ways, fleet.edges, 1))


def test_where_values_find_no_room_it_is_the_newest_layout_that_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fleet = begun(Ranks, 2, 2)
    reach(fleet, 2)
    agent = fleet.seats["a1"].job._agent()
    agent._of_layout(5).own["a0"] = bytes(10_000)
    monkeypatch.setattr(worker, "HAD_BYTES_MAX", agent._bytes() - 1)
    values = {"graph": "values", "run": agent.run, "number": 99, "agent": "a0", "values": bytes(8)}
    *_, (to, word) = agent.recv(values)
    assert (to, word["graph"], word["layout"]) == ("", "refused", 5)
    assert agent.part is not None
    assert agent._making[5] == worker.Making({})


def test_what_comes_of_a_layout_after_it_was_given_up_is_dropped() -> None:
    one = worker.Worker("a", begun(Ranks, 1, 1).seats["a0"].job, lambda: pa.table({}))
    of = {"a": [0, 4096]}
    one.recv({"graph": "given up", "run": 1, "layout": 2})
    one.recv({"graph": "plan", "run": 1, "layout": 2, "of": of, "before": {"b": [0, 4096]}})
    assert one._making[2] == worker.Making({})
    one.layout = 3
    one.recv({"graph": "plan", "run": 1, "layout": 1, "of": of, "before": {"b": [0, 4096]}})
    assert 1 not in one._making


def test_values_are_of_one_type_whatever_a_class_makes() -> None:
    class Whole(Ranks):
        def first(self, vertices: Any, count: int) -> Any:
            return np.ones(len(vertices.ids), dtype=np.int64)

        def tell(self, values: Any, vertices: Any) -> Any:
            return values

        def update(self, values: Any, heard: Any, vertices: Any, count: int, total: float) -> Any:
            return heard.astype(np.int32)

        def goes_on(self, number: int, total: float) -> bool:
            return number < 2

    edges = {"a0": [("a", "b"), ("b", "c")], "a1": [("c", "d"), ("a", "c"), ("d", "a")]}
    rows = calm(begun(Whole, 2, 2, edges))["rows"].to_pylist()
    assert {row["vertex"]: row["value"] for row in rows} == {"a": 1.0, "b": 1.0, "c": 2.0, "d": 2.0}


def test_what_vertices_tell_is_one_for_each() -> None:
    class Fewer(Many):
        def tell(self, values: Any, vertices: Any) -> Any:
            return values[:, 0]

    with pytest.raises(chaos.Stuck, match=r"values of shape \(\d+,\), for \d+ vertices"):
        calm(begun(Fewer, 2, 2))


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("parts", True, "parts = True: agents with a part"),
        ("rows", -1, "rows = -1: that are kept"),
        ("rows", "many", "rows = 'many': that are kept"),
        ("pause", -1, "pause = -1, patience = 15.0: seconds"),
        ("patience", 0, "patience = 0: seconds, patience above 0"),
        ("every", None, "every = None: seconds between two looks"),
        ("iterations", "x", "iterations = 'x': how many"),
        ("ring", 1, "ring = 1: True or False"),
        ("combine", "max", "combine = 'max': sum or min"),
        ("width", -1, "width = -1: how many numbers"),
    ],
)
def test_settings_that_cannot_be_are_refused(name: str, value: object, why: str) -> None:
    kind = type("Set", (Ranks,), {name: value})
    with pytest.raises(JobError, match=why):
        kind("graph", "me", None)


def test_weights_that_are_no_numbers_are_told() -> None:
    class Weighed(Ranks):
        weight = "n"

        def own_edges(self) -> pa.Table:
            return super().own_edges().set_column(2, "n", pa.array(["many"] * 2))

    with pytest.raises(chaos.Stuck, match="edges cannot be taken: Failed to parse string: 'many'"):
        calm(begun(Weighed, 1, 1, {"a": [("a", "b"), ("b", "c")]}))


def test_who_says_nothing_is_not_waited_for_and_is_named() -> None:
    fleet = begun(Hang, 3, 2)
    fleet.away = {"a2"}
    result = calm(fleet)
    assert result["missing"] == ["a2"]
    assert result["rows"].equals(alone(Hang, {name: fleet.edges[name] for name in ("a0", "a1")}, 1))
    fleet.away.clear()
    fleet.results.clear()
    assert calm(fleet)["missing"] == []


def test_a_change_is_from_the_parts_that_there_are() -> None:
    """More may have been wished for, as three are by default."""
    fleet = begun(Ways, 2, 3, path(2, 40))
    reach(fleet, 1)
    assert len(fleet.state["of"]) == 2
    with pytest.raises(JobError, match="2 agents have a part each; there are 2 that can, and 1 must"):
        fleet.seats[chaos.MASTER].job.deliver(b"", {"scale": 1})
    assert fleet.ask({"scale": -1}) == {"scaled": "1 agent has a part, within some iterations; there were 2"}
    assert to_the_end(fleet)["parts"] == 1


def test_a_change_at_the_end_is_one_of_the_next_computation() -> None:
    fleet = begun(Ways, 3, 2, path(3, 4))
    fleet.ask({"begin": True})
    while fleet.state["phase"] != "ending":
        fleet.step({})
    assert fleet.ask({"scale": 1}) == {
        "scaled": "3 agents have a part each, from the next computation on; there were 2"
    }
    assert to_the_end(fleet)["parts"] == 2


def test_who_is_missing_gets_no_part_before_the_next_computation() -> None:
    fleet = begun(Ways, 3, 2, path(3, 40))
    fleet.away = {"a2"}
    fleet.ask({"begin": True})
    while fleet.state["number"] < 1:
        fleet.step({})
    with pytest.raises(JobError, match="2 agents have a part each; there are 2 that can, and 1 must"):
        fleet.seats[chaos.MASTER].job.deliver(b"", {"scale": 1})
    to_the_end(fleet)
    assert fleet.ask({"scale": 1}) == {
        "scaled": "3 agents have a part each, from the next computation on; there were 2"
    }


def test_who_has_left_and_comes_back_with_its_disk_takes_part_again() -> None:
    fleet = begun(Hang, 3, 2)
    seat = fleet.seats.pop("a2")
    assert calm(fleet)["members"] == ["a0", "a1"]
    fleet.results.clear()
    fleet.seats["a2"] = seat
    fleet._start(seat)
    while "a2" not in fleet.state["agents"]:
        fleet.step({})
    assert calm(fleet)["members"] == ["a0", "a1", "a2"]


def test_what_cannot_be_done_says_why() -> None:
    fleet = begun(Ranks, 3, 3)
    master = fleet.seats[chaos.MASTER].job
    with pytest.raises(JobError, match="3 agents have a part each; there are 3 that can, and 1 must"):
        master.deliver(b"", {"scale": 1})
    with pytest.raises(JobError, match="graph is asked null"):
        master.deliver(b"", "ranks")
    with pytest.raises(JobError, match="no agent takes part yet"):
        Fleet(Random(1), Ranks, {"a": []}, 1).seats[chaos.MASTER].job.deliver(b"", {"begin": True})
    assert fleet.ask({"top": 3}) == []
    for name in fleet.edges:
        fleet.edges[name].clear()
    with pytest.raises(chaos.Stuck, match="no agent has read an edge or a point yet"):
        calm(fleet)
