"""EXPLAIN and EXPLAIN ANALYZE of a running job, through a statement to some agent, on virtual time."""

from __future__ import annotations

from agents.answering.explain import graph
from elf.fields import replace
from elf.ql.plan import Component, Function, Step, Top
from lab.chaos.engine import MOST, plan, ranged, staged
from lab.chaos.reference import DROPPING, reducing
from lab.chaos.world import World
from tests.support.histories import asked, begun


def test_what_is_explained_and_what_is_counted_at_each_level() -> None:
    world = World(41, 6, checking=False)
    query = replace(plan(2), trees=2, top=Top("s0", True, False, 1), limit=1)
    spec, _ = begun(world, 30_000, query=query)
    other = world.create(2, replace(plan(2), trees=2), "other")
    world.run(9_000)
    text, told = asked(world, 3, "EXPLAIN job")
    assert "live" not in told
    assert [flow["shared_with"] for flow in told["flows"]] == [["other"], ["other"]]
    assert [flow["keys"] for flow in told["flows"]] == ["range 1 of 2", "range 2 of 2"]
    assert all(flow["depth"] >= 1 for flow in told["flows"])
    assert told["top_k"]["strategy"] == "cut at the roots"
    assert "with STRAGGLERS LEAP a window is not revised" in told["top_k"]["thresholds"]
    assert told["graph"] == [
        "lines of clicks → map at the agents → 2 trees, one a key range → reduce at their roots → "
        "windows of 2 s → final fragment at the master"
    ]
    assert told["graph"][0] in text
    assert told["fragments"][0]["stragglers"] == "REVISE"
    for part in (
        "count by key",
        "thresholds",
        "pane 2 s",
        "cut at the roots: a window is one pane",
        "range 2 of 2",
    ):
        assert part in text
    victim = next(
        a for a in world.agents if a.address not in (spec.leader, other.leader, world.agents[3].address)
    )
    before, told = asked(world, 3, "EXPLAIN ANALYZE job")
    live = told["live"]
    assert (live["asked"], live["silent"]) == (6, [])
    written = sum(len(agent.log.rows) for agent in world.agents)
    for place, flow in enumerate(live["flows"]):
        levels = flow["levels"]
        assert [level["level"] for level in levels] == list(range(len(levels)))
        assert sum(level["agents"] for level in levels) == 6
        assert (levels[0]["agents"], levels[0]["messages"]) == (1, 0)
        rows = sum(level["rows"] for level in levels)
        assert rows == 0 if place else 0 < rows <= written, "rows are counted once for all ranges"
        assert sum(level["keys"] for level in levels) > levels[0]["commit_keys"] > 0
        assert all(level["messages"] and level["sent_bytes"] for level in levels[1:])
        assert levels[0]["commit_panes"] >= levels[0]["commits"] >= 3
        assert place or sum(flow["levels"][0]["commit_rows"] for flow in live["flows"]) > 0
    assert live["master"]["commits"] >= 3
    assert "master: " in before
    victim.crash()
    after, told = asked(world, 3, "EXPLAIN ANALYZE job")
    assert told["live"]["silent"] == [f"a{victim.index} ({victim.address})"]
    assert f"silent: a{victim.index}" in after


def test_the_graph_of_several_stages_names_the_functions_and_where_they_run() -> None:
    query = reducing(staged(replace(plan(2), trees=3), 6, 2))
    fragment = replace(query.fragment, function=Function("map", "def map(batch): return batch", "clean.py"))
    query = replace(query, fragment=fragment, final=DROPPING)
    assert graph(query) == [
        "lines of clicks → map at the agents (map of clean.py) → 3 trees, one a key range → "
        "reduce at their roots (reduce of several.py) → "
        "windows of 2 s → map and reduce at the master → windows of 6 s, every 2 s → "
        "final fragment at the master (final of dropping.py)"
    ]
    beside = replace(plan(4, 2), beside=(plan(4, 2, where="abc"),))
    assert [line.rsplit(" → ", 1)[1] for line in graph(beside)] == [
        "the final fragment's groups",
        "the final fragment's groups_1",
    ]


def test_stages_are_told_with_what_parts_them_and_where_they_are_done() -> None:
    first = Step("GROUP BY key, class", ("class",), "roots")
    steps = (first, Step("rows of all ranges together", (), "master"))
    fused = Component(("GROUP BY key, class", "GROUP BY class"), ("class",), "roots", "comm")
    query = replace(ranged(plan(2), MOST, 3), steps=steps, components=(fused,))
    assert graph(query) == [
        "lines of clicks → map at the agents → 3 trees, one a key range → reduce at their roots → "
        "later stages at their roots, in ranges of class → windows of 2 s → final fragment at the master"
    ]
    world = World(9, 3, checking=False)
    world.start_all()
    world.create(0, query, "job", world.range_roots("job", query))
    text, told = asked(world, 1, "EXPLAIN job")
    assert [(one["what"], one["by"], one["at"]) for one in told["steps"]] == [
        ("GROUP BY key, class", ["class"], "roots"),
        ("rows of all ranges together", [], "master"),
    ]
    (told_of,) = told["components"]
    assert (told_of["keys"], told_of["at"]) == (["class"], "roots")
    assert "GROUP BY key, class + GROUP BY class  class  the roots" in text
    assert told.get("live") is None
    for agent in world.agents:
        world.write(agent, world.now + 8_000)
    world.run(10_000)
    text, told = asked(world, 1, "EXPLAIN ANALYZE job")
    between = told["live"]["between"]
    assert between["rows"] >= between["to_roots"] > between["to_master"] > 0
    assert f"went to the roots, and of these {between['to_master']:,} rows" in text
    for part in ("GROUP BY key, class", "the roots, each its range", "at the root of a range of k1", MOST):
        assert part in text
    alone = replace(plan(2), steps=steps, not_at_roots="one tree has one root")
    world.create(0, alone, "alone")
    text, told = asked(world, 1, "EXPLAIN alone")
    assert told["fragments"][0]["stage"] is None
    assert "later stages are the master's: one tree has one root" in text
