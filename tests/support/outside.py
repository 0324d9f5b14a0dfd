"""What has come to the outside of a simulated fleet, and statements that its agents answer."""

from __future__ import annotations

from elf.wire.clients import Failed, Reply
from lab.chaos.outside import Arrivals
from lab.chaos.world import World
from tests.support import histories


def came(world: World) -> Arrivals:
    (arrivals,) = world.outside.came.values()
    return arrivals


def said(world: World, through: int, sql: str) -> Reply:
    reply = histories.said(world, through, sql)
    assert isinstance(reply, Reply), reply
    return reply


def refused(world: World, through: int, sql: str) -> str:
    reply = histories.said(world, through, sql)
    assert isinstance(reply, Failed), reply
    return reply.text
