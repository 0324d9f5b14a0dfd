"""A map function that fails at one agent of many begins nowhere, and its author hears where and on what."""

from __future__ import annotations

from elf.fields import replace
from elf.ql.plan import Function
from lab.chaos.engine import plan
from lab.chaos.world import World
from tests.support.histories import begun
from tests.support.long import cases
from tests.support.versions import answered, check, reconfigure, versions

AGENTS, CULPRIT = cases((24, 17), (64, 37))
PLEASE = """\
import pyarrow.compute as pc
def map(batch):
    if "bad" in batch["key"].to_pylist():
        raise ValueError("no bad, please")
    return batch
"""
MENDED = """\
import pyarrow.compute as pc
def map(batch):
    return batch.filter(pc.not_equal(batch["key"], "bad"))
"""


def test_what_raises_at_one_agent_of_many_leaves_all_on_the_old_version_and_says_which_line() -> None:
    world = World(66, AGENTS, checking=False)
    query = plan(2)
    spec, until = begun(world, 15_000, query=query, rate_ms=4_000)
    world.run(3_000)
    culprit = world.agents[CULPRIT]
    bad_us = culprit.now_ms * 1000
    culprit.log.rows.append((bad_us, "bad"))
    world.run(1_500)
    (old,) = {uid for agent in world.agents for uid in agent.worker.flows()}

    def altered(text: str) -> str:
        function = Function("map", text, "clean.py")
        fragment = replace(query.fragment, function=function)
        reconfigure(world, spec, "alter", replace(query, fragment=fragment), note="ALTER …")
        return answered(world)

    said = altered(PLEASE)
    assert said.startswith("nothing is changed: clean.py:4: ValueError: no bad, please at row ")
    assert said.endswith(f" (the line '{bad_us},bad') on agent a{CULPRIT}")
    world.run(2_500)  # the log's word that a version is over is in no tree: all have it by following
    assert versions(world, spec)[2].state == "aborted"
    assert said.removeprefix("nothing is changed: ") in versions(world, spec)[2].note
    for agent in world.agents:
        log = agent.node.log
        assert [flow.uid for version in log.versions(spec.uid) for flow in version.flows] == 2 * [old]
        assert log.is_over(spec.uid, 2)
    assert altered(MENDED) == ""
    (new,) = versions(world, spec)[3].spec.flows
    assert all(new.uid in agent.worker.flows() for agent in world.agents)
    world.run(max(0, until - world.now) + 4_000)
    windows = check(world, spec, until, least=4)
    assert {one[0] for one in windows.values()} == {1, 3}
