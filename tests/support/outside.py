"""What has come to the outside of a simulated fleet, and statements that its agents answer."""

from __future__ import annotations

from elf.job import events as was
from elf.wire.clients import Execute, Reply
from lab.chaos.outside import Arrivals
from lab.chaos.world import World


def came(world: World) -> Arrivals:
    (arrivals,) = world.outside.came.values()
    return arrivals


def said(world: World, through: int, sql: str) -> Reply:
    world.client_inbox.clear()
    world.agents[through].handle(was.Arrived("client:9", Execute(request=7, sql=sql, creator="me")))
    world.run_until(lambda: bool(world.client_inbox), 30_000)
    (reply,) = world.client_inbox
    assert isinstance(reply, Reply), reply
    return reply
