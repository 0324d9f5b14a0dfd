"""The judge of ``elf sim chaos`` waits for what is still on its way, and takes it for lost only then."""

from __future__ import annotations

import pytest

from agents.disk.store import StoreError
from lab.chaos.archives import Archives
from lab.chaos.engine import STREAM
from lab.chaos.jobs import query_of
from lab.chaos.judge import Judge
from lab.chaos.ledger import Ledger
from lab.chaos.world import World


def test_a_late_row_that_waits_for_others_is_not_lost_yet() -> None:
    """It is in the checkpoint, and leaves with its part two seconds later (seed 20421 ended before)."""
    ledger = Ledger()
    world = World(1, 2, ledger=ledger)
    world.start_all()
    world.create(0, query_of("late"))
    for agent in world.agents:
        world.write(agent, world.now + 4_000)
    judge, agent = Judge(world, ledger, world.now + 4_000), world.agents[1]
    world.run(6_000)
    world.run_until(lambda: not judge.open())
    (state,) = agent.worker.states().values()
    agent.log.rows.append((state.sealed * state.flow.fragment.pane_us - 1, "a"))
    world.run_until(lambda: state.after is not None and state.after.waiting == 1)
    uid = state.flow.uid
    assert [one.text for one in judge.open()] == [f"a1 has late rows of {uid[:6]} in no part yet"]
    world.run_until(lambda: not judge.open())
    judge.close()
    assert ledger.findings == []
    assert [counts.total() for counts in ledger.books[uid, 1].parts.values()] == [1]


def refuses(*_: object, **__: object) -> None:
    raise StoreError("database or disk is full")


def test_what_a_full_disk_refuses_has_never_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    """A flow that an agent began, and could not write down, begins later there (seed 31359)."""
    ledger = Ledger()
    world = World(2, 3, ledger=ledger)
    world.supervised = True
    world.start_all()
    until_ms = world.now + 12_000
    for agent in world.agents:
        world.write(agent, until_ms)
    world.run(2_000)
    spec = world.create(0, query_of("plain"))
    full = next(agent for agent in world.agents[1:] if agent is not world.leader(spec))
    with monkeypatch.context() as patch:
        patch.setattr(full.store, "save_checkpoint", refuses)
        world.submit(0, query_of("odd"), "other")
        world.run(3_000)
    assert full.life > 1, "it has tried"
    flows = {flow for flow, agent in ledger.books if agent == full.index}
    assert flows == {flow.uid for flow in spec.flows}
    world.run(12_000)
    for uid, state in full.worker.states().items():
        assert ledger.books[uid, full.index].live_from == state.live_from
    judge = Judge(world, ledger, until_ms)
    world.run_until(lambda: not judge.open())
    judge.close()
    assert ledger.findings == []


def test_a_row_from_before_the_beginning_is_leapt_over_as_any_other() -> None:
    """Rows come out of order: the first of an agent may be older than the world (seed 61048)."""
    ledger = Ledger()
    world = World(3, 4, ledger=ledger)
    began_us, away = world.now * 1_000, world.agents[3]
    world.start_all()
    spec = world.create(0, query_of("leap"))
    world.run_until(lambda: (spec.flows[0].uid, away.index) in ledger.books)
    job_groups = world.leader(spec).node.job_groups
    world.run_until(lambda: len(job_groups.voters(spec.uid)) >= 3)  # of two none may go
    away.log.rows.append((began_us - 100_000, "a"))
    until_ms = world.now + 8_000
    for agent in world.agents:
        world.write(agent, until_ms)
    world.isolated.add(away.address)
    world.run(8_000)
    world.isolated.clear()
    judge = Judge(world, ledger, until_ms)
    world.run_until(lambda: not judge.open())
    judge.close()
    book = ledger.books[spec.flows[0].uid, away.index]
    assert (began_us - 1) // spec.plan.fragment.pane_us in book.leapt
    assert ledger.findings == []


def test_agents_look_at_what_was_sorted_as_those_of_a_fleet_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was sorted an hour of the archive ago is deleted when it is sorted again: who has not looked since
    would read its past no more (seed 9200120)."""
    world = World(4, 1)
    world.archives = archives = Archives(world, 4)
    monkeypatch.setattr(archives, "_meanwhile", lambda: None)  # upkeep looks, too
    try:
        world.start_all()
        (agent,) = world.agents
        world.create(0, query_of("plain"))
        world.write(agent, world.now + 20_000)
        (task,) = agent.tasks.values()
        for _ in range(3):
            world.run(5_000)
            rolls = task._archive.survey(0, task._archive.position, 0).rolls
            rows = {row for roll in rolls for load in roll.parts for row in load()["record"].to_pylist()}
            assert len(rows) == task._archive.position > 0
            archives.sort(STREAM, 0)
    finally:
        archives.close()
