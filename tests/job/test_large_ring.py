"""In a ring of which an agent watches a part, whom it does not watch is asked and not taken for dead."""

from __future__ import annotations

from elf.batch import decode
from elf.wire.clients import Reply
from lab.chaos.engine import plan
from lab.chaos.world import World
from overlay.config import OverlayConfig
from tests.support.histories import call, said
from tests.support.jobgroups import staffed


def test_who_is_not_watched_is_not_away() -> None:
    world = World(93, 20)
    world.ring = OverlayConfig(base_bits=2, leaf_set_size=4)
    world.start_all()
    spec = world.create(0, plan(2))
    staffed(world, spec, 5)
    dead, *rest = (a for a in reversed(world.agents) if not a.node.job_groups.voters(spec.uid))
    dead.crash()
    world.run(20_000)
    asked = next(a for a in rest if world.leader(spec).address not in a.node.fleet.live())
    unwatched = next(a for a in rest if a.address not in asked.node.fleet.live())
    assert not asked.node.overlay.sees_all

    reply = said(world, asked.index, "SHOW MEMBERS")
    assert isinstance(reply, Reply)
    states = {str(row["agent"]): str(row["state"]) for row in decode(reply.payload).to_pylist()}
    assert states == {f"a{a.index}": "away" if a is dead else "live" for a in world.agents}
    known = {str(row["agent"]): str(row["state"]) for row in asked.node.fleet.members()}
    assert known[f"a{unwatched.index}"] == "unwatched", "what a page says that asks nobody"

    (job,) = decode(_reply(said(world, asked.index, "SHOW JOBS")).payload).to_pylist()
    assert not job["reason"]
    name = f"a{unwatched.index}"
    assert call(world, asked, "take off", name).startswith(f"{name} lives, at {unwatched.address}")
    name = f"a{dead.index}"
    assert call(world, asked, "take off", name) == f"{name} ({dead.address}) is expected no more"


def _reply(answer: object) -> Reply:
    assert isinstance(answer, Reply)
    return answer
