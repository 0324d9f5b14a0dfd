"""Every kind of window in whole fleets on virtual time: an agent and the root die and come back, messages are
lost and doubled, and the last word on each window is what all logs say.
"""

from __future__ import annotations

from collections import Counter

import pytest

from elf.windows import Cumulative, Kind, Landmark, Session, Sliding
from lab.chaos.engine import SECOND, plan_of
from lab.chaos.world import World
from tests.support.histories import begun, last_words, struck
from tests.support.window_oracle import oracle

KINDS: dict[str, tuple[Kind, ...]] = {
    "several": (
        Sliding(2 * SECOND, 2 * SECOND),
        Sliding(6 * SECOND, 6 * SECOND),
        Sliding(5 * SECOND, 2 * SECOND),
        Cumulative(8 * SECOND, 2 * SECOND),
        Landmark(4 * SECOND),
    ),
    "sessions": (Session(500_000, 8 * SECOND),),
}


@pytest.mark.parametrize("name", KINDS)
def test_the_last_word_on_each_window_is_what_all_logs_say(name: str) -> None:
    world = World(31, 4, loss=0.02, doubles=0.02)
    spec, until = begun(world, 24_000, query=plan_of(KINDS[name]), rate_ms=400)
    world.run(8_000)
    victim = next(a for a in world.agents if a.address not in (spec.flows[0].leader, world.agents[0].address))
    struck(world, spec, victim, away_ms=9_000, after_ms=35_000)
    leader = world.leader(spec)
    (master,) = leader.node.job_groups.jobs()
    start, end = max(0, master.current.calendar().from_us), until * 1000
    rows = [
        (key, ts)
        for agent in world.agents
        for log in agent.logs.values()
        for ts, key in log.rows
        if ts >= start
    ]
    kinds = tuple(kind for kind in KINDS[name] if not isinstance(kind, Landmark))
    want = {window: n for window, n in oracle(rows, kinds, end).items() if window[0] >= start}
    if kinds != KINDS[name]:
        every = 4 * SECOND
        mark = start or min(ts for _, ts in rows) // every * every
        for tick in range(mark // every * every + every, end + 1, every):
            counts = Counter((mark, tick, key) for key, ts in rows if ts < tick)
            want |= counts if any(tick - every <= ts < tick for _, ts in rows) else {}
    assert len(want) > 30
    assert {window: n for window, n in last_words(world, spec).items() if window[1] <= end} == want
