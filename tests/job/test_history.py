"""Windows of before a job began, which were made offline, at its job group: kept, and numbered."""

from __future__ import annotations

import pyarrow as pa

from agents.committing.status import STATUS_SCHEMA
from elf.batch import encode
from elf.job import events as was
from elf.job.messages.groups import FillHistory
from elf.wire.base import Answer
from elf.wire.clients import Filled
from lab.chaos.engine import SECOND, plan
from lab.chaos.ledger import Ledger
from lab.chaos.world import World

SIZE_US = 2 * SECOND


def begun() -> World:
    """A fleet with a job that began in the middle of its lines, and has made windows since."""
    world = World(11, 3, ledger=Ledger(), checking=False)
    world.start_all(world.agents)
    for agent in world.agents:
        world.write(agent, world.now + 60_000, rate_ms=250)
    world.run(8_000)
    world.submit(1, plan(2), "busy")
    world.run(8_000)
    return world


def result(start: int, rows: int) -> Filled:
    said = dict.fromkeys(STATUS_SCHEMA.names) | {
        "window_start": start,
        "window_end": start + SIZE_US,
        "revision": 0,
        "rows_in": rows,
        "archived": rows,
        "offline": True,
    }
    status = pa.Table.from_pylist([said], schema=STATUS_SCHEMA)
    table = pa.table({"k": ["a"], "n": [rows]})
    return Filled(start, start + SIZE_US, encode(status), encode(table))


def test_each_window_is_from_one_side_and_kept_for_good() -> None:
    world = begun()
    (spec,) = world.longest().jobs()  # type: ignore[union-attr]
    leader = world.leader(spec)
    begins = min(row.first_start for row in leader.store.windows(spec.uid, -(1 << 62), 1 << 62))

    def asked(*results: Filled, version: int = 1) -> str:
        request = FillHistory(
            id=len(world.client_inbox), origin="client:1", uid=spec.uid, version=version, results=results
        )
        leader.handle(was.Arrived("client:1", request))
        world.run(1_000)
        answers = [m for m in world.client_inbox if isinstance(m, Answer) and m.id == request.id]
        return answers[-1].error if answers else "no answer"

    older = [result(begins - n * SIZE_US, n) for n in (3, 2, 1)]
    assert asked(*older) == ""
    assert "it makes some of these windows itself" in asked(result(begins, 1))
    assert "it has version 1 by now" in asked(older[0], version=2)
    assert asked(older[0]) == "", "what is there stays, and who asks again is told so"
    world.run(4_000)
    for agent in world.agents:
        rows = agent.store.windows(spec.uid, begins - 4 * SIZE_US, begins)
        assert [(row.first_start, row.seq > 0) for row in rows] == [
            (begins - n * SIZE_US, True) for n in (3, 3, 2, 1)
        ]
        numbers = [row.seq for row in agent.store.windows_after(spec.uid, 0)]
        assert numbers == list(range(1, len(numbers) + 1))
    leader.crash()
    world.run(20_000)
    after = world.leader(spec)
    found = after.store.windows(spec.uid, begins, 1 << 62)
    starts = sorted({row.last_end for row in found})
    assert starts == list(range(starts[0], starts[-1] + 1, SIZE_US)), "the next leader leaves no window out"
    assert world.ledger is not None
    said = [one.text.rpartition(": ")[2] for one in world.ledger.findings]
    assert said == ["nobody was to make it"] * 4, "the ledger knows of no Spark, and of nothing else"
