"""A graph computation on real agents: spread anew while it goes on, and after a crash, it is right."""

from __future__ import annotations

import math
import random
import time
from typing import Any

import pytest

from elf.client import Client
from elf.errors import ElfError, UserError
from lab.graphs.plain import ranks
from tests.support.confined import needs_confinement
from tests.support.fleet import Fleet
from tests.support.waiting import eventually
from tests.support.watching import connected

pytestmark = needs_confinement

WALKS = """
import time

from elf.job.graphs import PageRank

class Walks(PageRank):
    edges = (
        "SELECT regexp_extract(product, '(.*)>', 1) AS one, regexp_extract(product, '>(.*)', 1) AS other, "
        "COUNT(*) AS steps FROM clicks GROUP BY one, other"
    )
    ends = ("one", "other")
    pause = 0.0
    iterations = 80

    def update(self, *of):
        time.sleep(0.1)  # so that there is time to do something meanwhile
        return super().update(*of)
"""


async def state(client: Client) -> dict[str, Any]:
    found: Any = await client.query("walks")
    return dict(found)


async def test_it_is_spread_anew_while_it_goes_on_and_after_a_crash(three: Fleet) -> None:
    rng = random.Random(1)
    edges = {(f"v{rng.randrange(50)}", f"v{rng.randrange(50)}") for _ in range(300)}
    now = time.time_ns() // 1000
    async with await connected(three, 0) as client:
        for agent in three.agents:
            agent.append([(now, "no edge", 1)])

        async def submitted() -> bool:
            await client.submit(WALKS, "walks.py", "walks", settings={"parts": 1})
            return True

        await eventually(submitted, "a line of the stream", 20, despite=(ElfError,))

        async def asked(message: object) -> object:
            async def answered() -> list[object]:
                return [await client.query("walks", message)]

            (found,) = await eventually(answered, "an answer", 30, despite=(ElfError,))
            return found

        async def reached(condition: Any, what: str) -> dict[str, Any]:
            seen: dict[str, Any] = {}

            async def is_so() -> dict[str, Any] | None:
                seen.update(await state(client))
                return seen if condition(seen) else None

            found = await eventually(is_so, lambda: f"{what}: {seen}", 120, despite=(ElfError,))
            assert isinstance(found, dict)
            return found

        await reached(lambda found: len(found["agents"]) == 3, "three agents")
        for agent in three.agents:
            agent.append((now + 1 + n, f"{one}>{other}", 1) for n, (one, other) in enumerate(sorted(edges)))
        with pytest.raises(UserError, match="1 agent has a part; there are 3 that can, and 1 must"):
            await client.sql("ALTER JOB walks SCALE IN 1")
        count = len({vertex for edge in edges for vertex in edge})

        async def begun() -> bool:
            """All lines are read: the computation that has begun has them."""
            assert str(await asked({"begin": True})).endswith(" begins, over 1 agent")
            found = await reached(lambda found: found["phase"] != "loading", "a beginning")
            return (found["vertices"], found["edges"]) == (count, len(edges))

        await eventually(begun, "all edges", 60)
        found = await client.sql("ALTER JOB walks SCALE OUT 2")
        assert "3 agents have a part each, within some iterations; there were 1" in found.text
        await reached(lambda found: len(found["parts"]) == 3, "three parts")
        victim = three.agents[1]  # perhaps it has the master too
        victim.kill()
        victim.start()
        last = await reached(lambda found: found["result"], "a result")
        result = last["result"]
        assert (result["parts"], result["iterations"]) == (3, 80)
        truth = ranks(edges, 80)
        assert {row["vertex"] for row in result["rows"]} == truth.keys()
        assert all(math.isclose(row["value"], truth[row["vertex"]], rel_tol=1e-12) for row in result["rows"])
