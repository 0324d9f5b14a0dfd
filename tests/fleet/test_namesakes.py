"""An agent whose data folder is lost, and brought back: who is a member, and what is said of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from elf.client import Client
from elf.errors import ElfError
from tests.support.fleet import Fleet
from tests.support.waiting import eventually
from tests.support.watching import connected

Rows = list[dict[str, object]]

TOLD = "another member has this agent's name"


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    fleet = Fleet(tmp_path, 2)
    fleet.start()
    yield fleet
    fleet.stop()


async def members(client: Client, holds: Callable[[Rows], bool]) -> Rows:
    found = Rows()

    async def shown() -> bool:
        nonlocal found
        table = (await client.sql("SHOW MEMBERS")).table
        found = [] if table is None else table.to_pylist()
        return holds(found)

    await eventually(shown, lambda: str(found), 40, despite=(ElfError,))
    return found


def states(rows: Rows) -> list[tuple[object, object]]:
    return [(row["number"], row["state"]) for row in rows]


async def test_a_folder_that_was_lost_and_is_brought_back(fleet: Fleet) -> None:
    _, agent = fleet.agents
    client = await connected(fleet, 0)
    try:
        rows = await members(client, lambda rows: len(rows) == 2)
        assert "note" not in rows[0]
        (number,) = [row["number"] for row in rows if row["agent"] == agent.name]
        data, lost = agent.folder / "data", agent.folder / "lost"
        agent.kill()
        data.rename(lost)
        agent.start()
        rows = await members(client, lambda rows: (2, "live") in states(rows))
        assert (number, "away") in states(rows)
        assert {row["number"]: row["note"] for row in rows}[number] == (
            f"2 have this name: elf leave --dead {agent.name}"
        )
        await eventually(lambda: TOLD in agent.said(), "it says so itself", 20)
        agent.kill()
        assert agent.said().count(TOLD) == 1
        data.rename(agent.folder / "data2")
        lost.rename(data)
        agent.start()
        rows = await members(client, lambda rows: (number, "live") in states(rows))
        assert (2, "away") in states(rows)
        await client.take_off(agent.name)
        rows = await members(client, lambda rows: (2, "left") in states(rows))
        assert (number, "live") in states(rows)
        assert "note" not in rows[0]
        await eventually(lambda: agent.said().count(TOLD) == 2, "it says so once more", 20)
    finally:
        await client.close()
