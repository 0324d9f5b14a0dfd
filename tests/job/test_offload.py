"""Rows of an agent that a helper maps (``elf.job.offload``; protocol 13.8), in simulated fleets."""

from __future__ import annotations

from collections import Counter

import pytest

from elf.fields import replace
from elf.job import effects as do
from elf.job import events as was
from elf.job.messages.helping import MapRows, RowsMapped
from elf.job.messages.log import OffloadRows
from elf.job.offload import Archive, Mapped, RowsWanted, Stand
from elf.job.past import Past
from elf.job.spec import JobSpec
from elf.wire.base import Message
from lab.chaos.agent import SimAgent
from lab.chaos.engine import STREAM, plan
from lab.chaos.world import World
from tests.chaos import plants
from tests.chaos.plants import Plant
from tests.support.archived_fleet import SIZE_US, told, truth, writing

MAPPED, HELPER = 2, 1


def fleet(seed: int = 7) -> tuple[World, JobSpec]:
    """Three agents with a job, which have read lines for a while and go on so."""
    world = writing(seed)
    world.submit(0, plan(2), "counted")
    world.run(6_000)
    return world, world.active("counted")


def offload(world: World, spec: JobSpec, helper: SimAgent | None) -> None:
    """What ALTER JOB … OFFLOAD proposes, and until the agent knows it."""
    agent = world.agents[MAPPED]
    to = "" if helper is None else helper.address
    word = OffloadRows(uid=spec.uid, agent_id=agent.agent_id, helper=to, at_ms=world.now)
    log = world.agents[0].node.log
    world.agents[0].node.membership.propose(word, lambda: log.offloads.helper(spec.uid, agent.agent_id) == to)
    world.run_until(lambda: agent.node.log.offloads.helper(spec.uid, agent.agent_id) == to)


def is_over(world: World) -> bool:
    return any(state.is_over for state in world.agents[MAPPED].worker.states().values())


def all_right(world: World) -> dict[int, dict[str, object]]:
    """All windows are there, with each row once; their status by start."""
    windows = told(world)
    assert sorted(windows) == list(range(min(windows), max(windows) + 1, SIZE_US))
    for start, (counts, status) in windows.items():
        assert counts == truth(world, start), (start, status)
        assert (status["missing"], status["late"]) == ([], 0)
    assert world.ledger is not None
    assert world.ledger.findings == []
    return {start: status for start, (_, status) in windows.items()}


def storm(world: World, spec: JobSpec) -> None:
    """A helper maps rows, cannot read the archive for a while, and gives them back."""
    helper = world.agents[HELPER]
    offload(world, spec, helper)
    world.run_until(lambda: is_over(world))
    world.run(1_000)
    helper.blind = True
    world.run(2_500)
    helper.blind = False
    world.run(4_000)
    offload(world, spec, None)
    world.run_until(lambda: not is_over(world))
    world.run(6_000)


def test_a_helper_maps_the_rows_of_an_agent_and_gives_them_back() -> None:
    world, spec = fleet()
    over_us = 1_000 * world.now
    storm(world, spec)
    status = all_right(world)
    within = [one for start, one in status.items() if one["archived"]]
    assert len(within) >= 3
    assert not status[min(status)]["archived"]
    assert not status[max(status)]["archived"]
    assert min(start for start, one in status.items() if one["archived"]) >= over_us - 2 * SIZE_US


@pytest.mark.parametrize(
    "plant",
    [
        plants.past.maps_the_last_rows_twice,
        plants.past.maps_the_next_rows_nowhere,
        plants.past.believes_whoever_answers,
        plants.past.seals_by_the_clock,
    ],
)
def test_what_goes_wrong_without_a_rule_is_seen(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)

    def is_seen(seed: int) -> bool:
        world, spec = fleet(seed)
        world.doubles = 0.5
        storm(world, spec)
        try:
            all_right(world)
        except AssertionError:
            return True
        return False

    assert any(is_seen(seed) for seed in (2, 4, 10)), "not each storm has a row that is late for it"


def test_the_same_with_messages_that_come_twice_and_get_lost() -> None:
    world, spec = fleet()
    world.doubles, world.loss = 0.5, 0.05
    storm(world, spec)
    world.doubles = world.loss = 0.0
    world.run(4_000)
    all_right(world)


def test_a_helper_is_replaced_and_the_next_one_goes_on() -> None:
    """Nothing of its disk is needed: what it has not answered another one is asked for."""
    world, spec = fleet()
    offload(world, spec, world.agents[HELPER])
    world.run_until(lambda: is_over(world))
    world.run(2_000)
    world.agents[HELPER].blind = True
    offload(world, spec, world.agents[0])
    world.run(6_000)
    assert is_over(world)
    status = all_right(world)
    assert any(one["archived"] for start, one in status.items() if start > 1_000 * (world.now - 6_000))


def test_an_agent_maps_its_rows_itself_while_its_helper_is_dead() -> None:
    world, spec = fleet()
    offload(world, spec, world.agents[HELPER])
    world.run_until(lambda: is_over(world))
    world.run(2_000)
    world.kill(world.agents[HELPER], 15_000)
    world.run(12_000)
    last = max(told(world))
    assert last > 1_000 * (world.now - 9_000), "windows go on"
    world.run(15_000)
    assert is_over(world), "and it is asked again"
    all_right_but_for_the_dead(world)


def all_right_but_for_the_dead(world: World) -> None:
    for start, (counts, status) in told(world).items():
        if not status["missing"]:
            assert counts == truth(world, start)
    assert world.ledger is not None
    assert world.ledger.findings == []


def unread(world: World) -> Counter[str]:
    """Retention wants all that is archived while the helper cannot read it; what windows lack in the end."""
    spec = world.active("counted")
    helper, agent = world.agents[HELPER], world.agents[MAPPED]
    offload(world, spec, helper)
    world.run_until(lambda: is_over(world))
    helper.blind = True
    world.run(2_000)
    agent.log.lose(len(agent.log.rows))
    helper.blind = False
    world.run(8_000)
    lacking = Counter[str]()
    for start, (counts, _) in told(world).items():
        lacking += truth(world, start) - counts
    return lacking


def test_retention_leaves_what_a_helper_has_not_read() -> None:
    assert not unread(fleet()[0])


def test_retention_that_does_not_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    plants.past.deletes_what_a_helper_has_not_read(monkeypatch)
    assert unread(fleet()[0])


def test_retention_has_nothing_yet_of_what_is_in_no_checkpoint() -> None:
    """Only what is in one is shipped, and only that is deleted (seed 7100014 of five agents)."""
    world, spec = fleet()
    agent = world.agents[MAPPED]
    agent.stuck = True
    world.run(3_000)
    unread = range(agent.log.kept, len(agent.log.rows))
    assert len(unread) > 5
    agent.log.lose(len(agent.log.rows))
    offload(world, spec, world.agents[HELPER])
    agent.stuck = False
    world.run_until(lambda: is_over(world))
    world.run(6_000)
    assert agent.log.lost == set(range(unread.start))
    all_right_but_for_the_dead(world)


def test_an_agent_dies_and_goes_on_with_its_helper() -> None:
    world, spec = fleet()
    offload(world, spec, world.agents[HELPER])
    world.run_until(lambda: is_over(world))
    world.run(2_000)
    world.kill(world.agents[MAPPED], 500)
    world.run(12_000)
    assert is_over(world)
    all_right(world)


def test_who_leaves_reads_what_its_helper_has_not() -> None:
    world, spec = fleet()
    offload(world, spec, world.agents[HELPER])
    world.run_until(lambda: is_over(world))
    world.agents[HELPER].blind = True
    world.run(2_000)
    agent = world.agents[MAPPED]
    agent.guard(lambda: agent.perform(agent.node.leave(agent.now_ms)))
    world.run_until(lambda: not agent.up)
    world.run(6_000)
    read = agent.tasks[STREAM].read_rows()
    with_it = 0
    for start, (counts, status) in told(world).items():
        if "a2" not in str(status["missing"]) and status["reported"] == 3:
            here = Counter(key for ts, key in read if start <= ts < start + SIZE_US)
            assert not here - counts
            with_it += 1
    assert with_it


def test_nobody_else_answers_or_asks_for_rows() -> None:
    """Only the helper that the log names is believed, and it works for the agent that the log names."""
    world, spec = fleet()
    agent, helper, stranger = world.agents[MAPPED], world.agents[HELPER], world.agents[0]
    offload(world, spec, helper)
    world.run_until(lambda: is_over(world))
    (flow,) = spec.flows
    wanted = RowsWanted(flow.uid, 1, Past(0, 5, 0, 0), Stand(0, 0), Archive("life"), since_us=0, name="a2")
    asks = MapRows(agent_id=agent.agent_id, stream=STREAM, wanted=wanted)
    at = (wanted.past, wanted.stand)
    answer = RowsMapped(
        flow=flow.uid, number=1, asked=at[0], stand=at[1], past=Past(5, 5, 0, 0), mapped=Mapped()
    )

    def done(who: SimAgent, sender: SimAgent, message: Message) -> list[object]:
        return list(who.node.handle(was.Arrived(sender.address, message), world.now))

    def has(kind: type, effects: list[object]) -> bool:
        return any(isinstance(one, kind) for one in effects)

    assert has(do.Help, done(helper, agent, asks))
    assert not has(do.Help, done(helper, stranger, asks))
    assert not has(do.Help, done(stranger, agent, asks))
    assert not has(do.Help, done(helper, agent, replace(asks, agent_id=stranger.agent_id)))
    assert has(do.Work, done(agent, helper, answer))
    assert not has(do.Work, done(agent, stranger, answer))
    offload(world, spec, stranger)
    assert not has(do.Work, done(agent, helper, answer)), "it was replaced"


def test_an_answer_to_an_earlier_life_is_none() -> None:
    """Its requests had the same numbers, and were about other rows."""
    world, spec = fleet()
    helper, agent = world.agents[HELPER], world.agents[MAPPED]
    offload(world, spec, helper)
    world.run_until(lambda: is_over(world))
    helper.blind = True
    offloading = agent.tasks[STREAM]._offloading
    world.run_until(lambda: bool(offloading._asked))
    ((uid, asked),) = offloading._asked.items()
    now = asked.wanted.past
    answer = RowsMapped(
        flow=uid,
        number=asked.wanted.number,
        asked=now,
        stand=asked.wanted.stand,
        past=replace(now, position=now.until),
        mapped=Mapped(),
    )
    for other in (replace(now, position=now.position + 1), replace(now, until=now.until + 1)):
        assert offloading.take(replace(answer, asked=other), world.now) is None
    assert offloading.take(replace(answer, stand=Stand(0, 1)), world.now) is None
    assert offloading.take(replace(answer, number=answer.number + 1), world.now) is None
    assert offloading.take(answer, world.now) is not None
    assert offloading.take(answer, world.now) is None, "it was taken"


def test_a_flow_is_mapped_elsewhere_if_all_who_read_it_say_so() -> None:
    world, spec = fleet()
    world.submit(1, plan(2), "other")
    world.run(2_000)
    other = world.active("other")
    assert [flow.uid for flow in other.flows] == [flow.uid for flow in spec.flows]
    offload(world, spec, world.agents[HELPER])
    world.run(1_000)
    assert not is_over(world)
    offload(world, other, world.agents[HELPER])
    world.run(1_000)
    assert is_over(world)
    offload(world, other, None)
    world.run(4_000)
    assert not is_over(world)
