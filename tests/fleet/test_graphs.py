"""WITH GRAPH in a fleet of real processes: the windows of a job are the graphs of what the logs say, through
a changed query, the death of its master and late rows; previews and readers have them too."""

from __future__ import annotations

import time
from collections import Counter
from contextlib import AsyncExitStack

import networkx as nx

from elf.client import Window
from elf.client.previews import Previewed
from tests.support.fleet import STREAM, Fleet
from tests.support.waiting import eventually
from tests.support.watching import SECOND_US, connected, create, start_us, watched

BOUNDS = ("window_start", "window_end")
LENGTH_US = 2 * SECOND_US
EDGES = f"FROM {STREAM} GROUP BY product, clicks_count::TEXT HAVING COUNT(*) > 3"
JOB = f"CREATE JOB rings AS SELECT * {EDGES} WITH GRAPH components WINDOWING 2 SECONDS EMIT FINAL REVISE"
PATHS = (
    f"SELECT * {EDGES} WITH GRAPH mssp('0', '1', '2') HAVING distance < 2 "
    "WINDOWING 2 SECONDS EMIT FINAL REVISE"
)
READER = "CREATE JOB over AS SELECT source, COUNT(*) AS n FROM JOB rings GROUP BY source"
BOTH_WAYS = PATHS.replace("GROUP BY product, clicks_count::TEXT", "GROUP BY clicks_count::TEXT, product")


async def test_each_window_is_the_graph_of_its_rows_whatever_happens(five: Fleet) -> None:
    client = await connected(five, 0)
    five.begin_writing()
    await create(client, JOB)
    master = five.agent_at(str((await client.tree("rings"))["master"]))
    await client.close()
    one, other, *_ = (place for place, agent in enumerate(five.agents) if agent is not master)
    async with AsyncExitStack() as stack:
        client = await connected(five, one)
        windows = await stack.enter_async_context(watched(client, "rings"))
        await eventually(lambda: len(windows) >= 2, "two windows")
        pairs = [pair async for pair in client.preview(f"ALTER JOB rings AS {BOTH_WAYS} PREVIEW 1 WINDOWS")]
        assert isinstance(pairs[0], Previewed)
        assert pairs[0].window.table.column_names[2:] == ["source", "vertex", "distance"]
        await client.sql(f"ALTER JOB rings AS {BOTH_WAYS}")
        await eventually(lambda: sum(w.version == 2 for w in windows.values()) >= 2, "two windows of paths")
        await client.sql(READER)
        read = await stack.enter_async_context(watched(await connected(five, other), "over"))
        await eventually(lambda: len(read) >= 1, "a window of a job over it")
        master.kill()
        killed_us = time.time_ns() // 1000
        await eventually(lambda: max(windows) > killed_us + LENGTH_US, "windows from another master")
        assert any(w.status["missing"] == [master.name] for w in windows.values())
        master.start()
        end_us = five.end_writing() - SECOND_US
        await eventually(lambda: max(windows) + 2 * LENGTH_US >= end_us, "the last windows", 40)
        await eventually(lambda: all(not w.status["missing"] for w in windows.values()), "complete ones", 40)
        await eventually(lambda: all(not w.status["missing"] for w in read.values()), "complete ones", 40)
    done = {at: window for at, window in windows.items() if at + LENGTH_US <= end_us - LENGTH_US}
    assert {window.version for window in done.values()} == {1, 2}
    assert any(window.revision > 0 for window in done.values())
    for window in done.values():
        assert vertices(window) == wanted(five, window), window.status
    for at in read.keys() & done.keys():
        counts = Counter(source for source, *_ in wanted(five, done[at]))
        assert vertices(read[at]) == set(counts.items())


def graph_of(fleet: Fleet, window: Window) -> nx.DiGraph:
    start, edges = start_us(window), Counter[tuple[str, str]]()
    for agent in fleet.agents:
        for at, product, clicks in agent.written:
            if start <= at < start + LENGTH_US:
                edges[(product, str(clicks)) if window.version == 1 else (str(clicks), product)] += 1
    graph = nx.DiGraph()
    graph.add_edges_from(edge for edge, rows in edges.items() if rows > 3)
    return graph


def wanted(fleet: Fleet, window: Window) -> set[tuple[object, ...]]:
    graph = graph_of(fleet, window)
    if window.version == 1:
        parts = list(nx.weakly_connected_components(graph))
        return {(vertex, min(part), len(part)) for part in parts for vertex in part}
    return {
        (source, vertex, distance)
        for source in ("0", "1", "2")
        if source in graph
        for vertex, distance in nx.single_source_shortest_path_length(graph, source, 1).items()
    }


def vertices(window: Window) -> set[tuple[object, ...]]:
    return {tuple(row.values()) for row in window.table.drop_columns(list(BOUNDS)).to_pylist()}
