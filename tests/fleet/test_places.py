"""``ON place = 'eu'`` over real agents without archives: the others are neither asked nor missing."""

from __future__ import annotations

from pathlib import Path

import pytest

from elf.client.results import facts_of
from elf.errors import UserError
from tests.support.fleet import STREAM, Fleet
from tests.support.waiting import eventually
from tests.support.watching import connected, create

EU = f"SELECT COUNT(*) AS n FROM {STREAM} ON place = 'eu' WINDOWING 2 SECONDS"


async def test_a_window_is_of_those_with_the_labels(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path, 3)
    for agent, place in zip(fleet.agents, ("eu", "eu", "us"), strict=True):
        own = {"name": agent.name, "listen": agent.address, "advertise": agent.reached}
        agent.more |= {
            "agent": {**own, "labels": {"place": place} if place else {}},
            "archive": {"enabled": False},
        }
    fleet.start()
    try:
        async with await connected(fleet, 2) as client:
            fleet.begin_writing()
            await create(client, f"CREATE JOB eu AS {EU}")
            for window in [window async for window in client.subscribe("eu", windows=3)]:
                assert (window.status["expected"], window.status["reported"]) == (2, 2)
                assert window.status["missing"] == []
                assert window.table["n"].to_pylist()[0] > 0
            told = facts_of(await client.sql("DESCRIBE eu"))
            assert sorted(told["members"].split(", ")) == ["web-0", "web-1"]
            assert "2 of 3" in (await client.sql("EXPLAIN eu")).text

            fleet.agents[0].kill()

            async def named() -> bool:
                async for window in client.subscribe("eu", windows=1):
                    return window.status["missing"] == [fleet.agents[0].name]
                return False

            await eventually(named, "who is asked and does not answer is missing", 40)
            with pytest.raises(UserError, match="no agent of stream"):
                await client.sql("CREATE JOB none AS " + EU.replace("'eu'", "'asia'"))
    finally:
        fleet.stop()
