"""What people wait for waits for nothing but its own messages and work: no step of a change rests on a beat,
on asking again or on a limit, whoever hears of it first.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from elf.fields import replace
from elf.job import events as was
from elf.job.catalog.log import CatalogLog
from elf.job.catalog.membership import JOINING_MS
from elf.job.effects import Send
from elf.job.group.groups import JobGroups
from elf.job.group.proposals import ASKING_MS
from elf.job.messages.groups import CreateJob
from elf.job.messages.log import AddJob, JoinStream
from elf.job.rollup.decide import RootSettings
from elf.job.spec import JobSpec
from elf.ql.plan import Function, Plan
from elf.wire.base import Answer
from elf.wire.clients import Execute, Reply
from lab.chaos.engine import STREAM, plan, spec_of
from lab.chaos.world import World
from tests.support.versions import reconfigure

EVEN, UNEVEN = (1, 2), (1, 35)
"""How long messages take: none overtakes another, or many do."""
PROMPT_MS = {EVEN: 150, UNEVEN: 600}
"""Some twenty messages after the other, and less than any beat."""
STEP_MS = 5
BAD = """\
def map(batch):
    if "bad" in batch["key"].to_pylist():
        raise ValueError("no bad, please")
    return batch
"""

Delay = tuple[int, int]


def at_rest(delay_ms: Delay) -> World:
    """Sixteen agents."""
    world = World(91, 16, checking=False)
    world.delay_ms, world.work_ms = delay_ms, (1, 4)
    world.start_all()
    world.run(12_000)
    return world


def took(world: World, done: Callable[[], bool]) -> int:
    """Milliseconds until that is so."""
    began = world.now
    while not done():
        assert world.now - began < 10_000, "not at all"
        world.run(STEP_MS)
    return world.now - began


def computed(world: World, spec: JobSpec) -> bool:
    """Whether every agent computes the flows of a version."""
    uids = {flow.uid for flow in spec.flows}
    return all(uids <= agent.worker.states().keys() for agent in world.agents)


def all_ready(world: World) -> bool:
    return all(agent.node.ready for agent in world.agents)


def newest(world: World, name: str) -> JobSpec:
    logs = max((agent.node.log for agent in world.agents), key=lambda log: log.last)
    found = logs.find_job(name, "me")
    assert found is not None
    return found


def answered(world: World) -> bool:
    return bool(world.client_inbox)


def reconfigured(world: World, name: str, query: Plan) -> tuple[int, str]:
    """How long an ALTER takes, and its error."""
    reconfigure(world, newest(world, name), "alter", query)
    ms = took(world, lambda: answered(world))
    answer = world.client_inbox.pop()
    assert isinstance(answer, Answer)
    return ms, answer.error


def test_who_is_alone_is_ready_without_waiting_for_a_timer() -> None:
    world = World(92, 1)
    world.agents[0].start([])
    assert took(world, lambda: world.agents[0].node.ready) < JOINING_MS // 2


@pytest.mark.parametrize("delay_ms", [EVEN, UNEVEN])
def test_those_who_start_at_once_are_ready_without_waiting_for_a_timer(delay_ms: Delay) -> None:
    for seed in range(3):
        world = World(seed, 16, checking=False)
        world.delay_ms, world.work_ms = delay_ms, (1, 4)
        first, *others = world.agents
        first.start([])
        for agent in others:
            agent.start([first.address])
        assert took(world, partial(all_ready, world)) <= PROMPT_MS[delay_ms]


@pytest.mark.parametrize("delay_ms", [EVEN, UNEVEN])
@pytest.mark.parametrize("trees", [1, 3])
def test_a_job_is_created_and_changed_at_once_without_waiting_for_a_beat(delay_ms: Delay, trees: int) -> None:
    world, waits = at_rest(delay_ms), []
    for number in range(12):
        name, first = f"job{number}", replace(plan(2, least=number), trees=trees)
        roots = tuple(agent.address for agent in world.agents[1:trees])
        world.submit(number, first, name, "client:1", roots)
        waits.append(took(world, lambda: answered(world)))
        world.client_inbox.clear()
        for where in ("abcd", "abce"):
            ms, error = reconfigured(world, name, replace(plan(2, least=number, where=where), trees=trees))
            assert error == ""
            assert computed(world, newest(world, name))
            waits.append(ms)
        world.drop(newest(world, name))
    assert max(waits) <= PROMPT_MS[delay_ms], waits


@pytest.mark.parametrize("delay_ms", [EVEN, UNEVEN])
def test_a_function_that_fails_at_one_agent_is_refused_without_waiting_for_a_beat(delay_ms: Delay) -> None:
    world, waits = at_rest(delay_ms), []
    world.agents[11].log.rows.append((world.now * 1_000, "bad"))
    world.run(1_500)
    world.create(0, plan(2))
    function = Function("map", BAD, "bad.py")
    for number in range(8):
        fragment = replace(plan(2, where="abcdefgh"[number]).fragment, function=function)
        ms, error = reconfigured(world, "job", replace(plan(2), fragment=fragment))
        assert "no bad, please" in error
        waits.append(ms)
    assert max(waits) <= PROMPT_MS[delay_ms], waits


def test_who_is_told_that_a_job_is_dropped_sees_that_it_is() -> None:
    """The answer comes straight from its job group, the entry of the log by its own way."""
    world = at_rest(UNEVEN)
    behind = 0
    for number in range(12):
        spec = world.create(number, plan(2, least=number), f"job{number}")
        agent = world.agents[(7 * number + 3) % 16]
        world.run(500)
        asked = Execute(request=number, sql=f"DROP JOB job{number}", creator="me")
        agent.handle(was.Arrived("client:1", asked))
        began = world.now
        while not answered(world):
            world.run(STEP_MS)
            others = (one.node.log for one in world.agents)
            behind += answered(world) and not all(log.is_dropped(spec.uid) for log in others)
        (reply,) = world.client_inbox
        assert isinstance(reply, Reply), reply
        assert agent.node.log.is_dropped(spec.uid)
        assert world.now - began <= PROMPT_MS[UNEVEN]
        world.client_inbox.clear()
    assert behind > 0, "others hear of it later"


def test_the_next_keeper_of_the_log_is_asked_before_anybody_has_noticed_that_one_is_dead() -> None:
    job_groups = JobGroups("home:1", CatalogLog(), RootSettings())
    asked = CreateJob(id=1, origin="c", spec=spec_of("_select_1", "me", 0, plan(2), ()), replace=False)
    job_groups.create(asked, b"0" * 16, 0)
    told = []
    for now_ms in range(0, 2 * ASKING_MS + 1, 10):
        found = (effect for effect in job_groups.tick(now_ms, ["k0", "k1", "k2"]) if isinstance(effect, Send))
        told += [(now_ms, sent.to) for sent in found if isinstance(sent.message, AddJob)]
    assert told == [(0, "k1"), (ASKING_MS, "k2"), (2 * ASKING_MS, "k0")]


def test_what_a_dead_leader_of_the_log_was_asked_for_is_asked_of_the_next_one() -> None:
    """Every voter has handed the same proposal to the one that is dead, when nobody knows that yet."""
    world = World(93, 5, checking=False)
    world.delay_ms, world.work_ms = EVEN, (1, 4)
    world.start_all()
    world.run_until(lambda: all(agent.node.catalog.keeps for agent in world.agents))
    keepers = list(world.agents)
    (leader,) = (agent for agent in keepers if agent.node.catalog.leads)
    keepers.remove(leader)
    leader.crash()
    asked, made = list[JoinStream](), 0

    def propose(proposal: JoinStream) -> None:
        for keeper in keepers:
            keeper.handle(was.Arrived("none:1", proposal))

    while not any(keeper.node.catalog.leads for keeper in keepers):
        made += 1
        name, address = f"new{made}", f"new:{made}"
        asked.append(
            JoinStream(stream=STREAM, agent_id=name, name=name, incarnation=1, address=address, since_us=0)
        )
        propose(asked[-1])
        world.run(100)
    world.run(50)  # all have heard of the next one
    propose(asked[-2])
    assert took(world, lambda: newest_member(world, asked[-2].agent_id)) <= 100


def newest_member(world: World, agent_id: str) -> bool:
    logs = (agent.node.log for agent in world.agents if agent.up)
    return any(log.member_of(STREAM, agent_id) is not None for log in logs)
