"""Jobs that begin in the past (``elf.job.past``), in simulated fleets: what their windows have, and whom they
wait for."""

from __future__ import annotations

from elf.fields import replace
from elf.job.messages.rollup import FlowProgress
from elf.job.rollup.presence import Presence
from lab.chaos.engine import SECOND, plan
from lab.chaos.jobs import since
from lab.chaos.ledger import Ledger
from lab.chaos.world import World
from tests.support.archived_fleet import SIZE_US, told, truth, writing


def archived() -> World:
    """A fleet that has read lines for a while, and goes on so."""
    world = writing()
    world.run(12_000)
    return world


def begin(world: World, back_ms: int) -> None:
    world.submit(1, since(plan(2), 1_000 * (world.now - back_ms)), "past")


def test_windows_of_the_past_and_of_now_are_one_row_of_windows() -> None:
    world = archived()
    created_us = 1_000 * world.now
    begin(world, 10_000)
    world.run(7_000)
    windows = told(world)
    assert sorted(windows) == list(range(min(windows), max(windows) + 1, SIZE_US))
    assert created_us - 10 * SECOND <= min(windows) < created_us - 7 * SECOND
    for start, (counts, status) in windows.items():
        assert counts == truth(world, start)
        assert (status["missing"], status["late"], status["revision"]) == ([], 0, 0)
        assert status["rows_in"] == counts.total()
        if start + SIZE_US <= created_us - SECOND:
            assert status["archived"] == status["rows_in"]
    assert windows[max(windows)][1]["archived"] == 0
    assert world.ledger is not None
    assert world.ledger.findings == []


def test_an_agent_whose_archive_is_gone_is_named_where_it_lacks_it() -> None:
    world = archived()
    log = world.agents[2].log
    log.lose(len(log.rows) - 20)
    gone_us = 1 + max(log.rows[row][0] for row in log.lost)
    begin(world, 10_000)
    world.run(7_000)
    for start, (counts, status) in told(world).items():
        if start + SIZE_US <= gone_us:
            assert status["missing"] == ["a2"]
        if not status["missing"]:
            assert counts == truth(world, start)
    assert any(not status["missing"] and status["archived"] for _, status in told(world).values())


def test_no_pane_of_the_past_is_committed_before_all_have_read_it() -> None:
    """An agent that reads slowly is waited for, longer than stragglers are."""
    world = archived()
    begin(world, 10_000)
    slow = world.agents[2]
    world.run_until(lambda: any(state.past for state in slow.worker.states().values()))
    slow.stuck = True
    world.run(6_000)
    assert told(world) == {}
    slow.stuck = False
    world.run(5_000)
    windows = told(world)
    assert len(windows) > 5
    for start, (counts, status) in windows.items():
        if status["archived"]:
            assert (counts, status["missing"], status["revision"]) == (truth(world, start), [], 0)


def test_who_gets_no_further_in_its_past_is_waited_for_no_more() -> None:
    presence = Presence(grace_ms=5_000)
    at = FlowProgress("f", live_from=10, sealed=10, past=True)
    presence.hear(0, at, 1_000)
    presence.hear(1, replace(at, past=False), 1_000)
    presence.hear(0, replace(at, sealed=12), 4_000)
    assert presence.in_their_past(11, 4_000) == 0
    assert presence.in_their_past(12, 4_000) == 0b01
    for now_ms in (6_000, 8_000, 10_000):
        presence.hear(0, replace(at, sealed=12), now_ms)
    assert presence.in_their_past(12, 9_000) == 0b01
    assert presence.in_their_past(12, 9_001) == 0


def test_an_agent_without_lines_answers_from_that_moment_on() -> None:
    """It has read nothing, so it lacks nothing."""
    world = World(8, 3, ledger=Ledger(), checking=False)
    world.start_all(world.agents)
    for agent in world.agents[:2]:
        world.write(agent, world.now + 60_000, rate_ms=250)
    world.run(8_000)
    since_us = 1_000 * (world.now - 6_000)
    begin(world, 6_000)
    world.run(7_000)
    windows = told(world)
    assert min(windows) == -(-since_us // SIZE_US) * SIZE_US
    assert len(windows) >= 4
    for start, (counts, status) in windows.items():
        assert (counts, status["missing"], status["reported"]) == (truth(world, start), [], 3)
