"""Real agents in two regions: one of those where the root is not sends over the border, and no other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from elf.cli.tree import heads_of, read_tree
from tests.support.fleet import STREAM, Agent, Fleet
from tests.support.waiting import eventually
from tests.support.watching import connected, create

QUERY = f"SELECT product, COUNT(*) AS n FROM {STREAM} GROUP BY product WINDOWING 2 SECONDS"
REGIONS = ("eu", "us", "eu", "us")


def sent(agent: Agent, kind: str) -> float:
    return agent.metric("slices_sent_bytes_total", kind=kind)


async def test_one_agent_of_a_region_sends_over_its_border(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path, len(REGIONS))
    for agent, region in zip(fleet.agents, REGIONS, strict=True):
        own = {"name": agent.name, "listen": agent.address, "advertise": agent.reached}
        cluster = {"name": agent.cluster, "bootstrap": list(agent.bootstrap), "regions": True}
        cluster |= {"links": {"eu/us": "20 Mbit/s 40 ms"}}
        agent.more |= {"agent": {**own, "place": f"{region}/{agent.name}"}, "cluster": cluster}
    fleet.start()
    try:
        async with await connected(fleet, 1) as client:
            fleet.begin_writing()
            await create(client, f"CREATE JOB busy AS {QUERY}")

            async def settled() -> bool:
                return len(heads_of(read_tree(await client.tree("busy")).flows[0])) == 1

            await eventually(settled, "one tree link crosses the border", 40)
            root = fleet.agent_at(read_tree(await client.tree("busy")).flows[0].root)
            far = [a for a in fleet.agents if REGIONS[int(a.name[-1])] != REGIONS[int(root.name[-1])]]
            before = {agent.name: sent(agent, "across") for agent in fleet.agents}
            async for window in client.subscribe("busy", windows=4):
                assert window.status["expected"] == len(REGIONS)
            across = {agent.name: sent(agent, "across") - before[agent.name] for agent in fleet.agents}
            heads = {name for name, size in across.items() if size}
            assert heads
            assert len(heads) == 1
            assert heads <= {agent.name for agent in far}
            (other,) = [agent for agent in far if agent.name not in heads]
            assert sent(other, "within") > 0
            (out, back) = (REGIONS[int(one.name[-1])] for one in (far[0], root))
            assert root.metric("slices_arrived_bytes_total", region=out) > 0
            routes: Any = (await client.sql("EXPLAIN ROUTES")).data
            links = {(one["origin"], one["target"]): one for one in routes["links"]}
            assert {(one["rate"], one["delay_s"]) for one in links.values()} == {(2.5e6, 0.04)}
            assert links[out, back]["arrived_bytes"] > 0
            assert routes["plan"]["routes"]["busy"]["vias"] == {out: back}
            described = await client.sql("DESCRIBE busy")
            assert f"2 agents through {heads.pop()}" in str(described.table)
    finally:
        fleet.stop()
