"""Which of two nodes becomes a job group: one of them, once, and mostly the one with fewer jobs."""

from __future__ import annotations

from collections import Counter

import pytest

from elf.job.group.placing import PLACING_MS, AtKey, Here, Placing, Taken
from elf.job.messages.groups import CreateJob
from elf.job.spec import topics_of
from lab.chaos.engine import plan, spec_of
from lab.chaos.world import World
from overlay.ids import closeness, node_id, to_int

PLAN = plan(2)


def request(name: str, number: int = 1, origin: str = "client:1") -> CreateJob:
    return CreateJob(id=number, origin=origin, spec=spec_of(name, "me", 0, PLAN, ()), replace=False)


def nearest(nodes: list[str], key: bytes) -> str:
    return min(nodes, key=lambda address: closeness(to_int(key), node_id(address)))


def place(nodes: dict[str, Placing], jobs: Counter[str], asked: CreateJob) -> tuple[str, bytes]:
    """The job group that a request finds, and the key of its tree."""
    names = list(nodes)
    at = nearest(names, topics_of(asked.spec.name, asked.spec.creator)[0])
    for _ in range(3):
        match nodes[at].where(asked, jobs[at], 0):
            case Here(topic=topic):
                return at, topic
            case AtKey(key=key, request=asked):
                at = nearest(names, key)
            case Taken():
                raise AssertionError("nobody else asks")
    raise AssertionError("no master after three words")


def test_every_job_gets_a_master_nearest_to_its_key_and_none_gets_many() -> None:
    nodes = {f"10.0.0.{n}:7400": Placing() for n in range(100)}
    jobs: Counter[str] = Counter()
    plain: Counter[str] = Counter()
    for n in range(200):
        leader, topic = place(nodes, jobs, request(f"job{n}", n))
        assert leader == nearest(list(nodes), topic)
        jobs[leader] += 1
        plain[nearest(list(nodes), topics_of(f"job{n}", "me")[0])] += 1
    assert max(jobs.values()) < max(plain.values())
    assert max(jobs.values()) <= 5


def test_one_request_a_name_at_a_time_and_a_repeated_one_goes_the_same_way() -> None:
    placing = Placing()
    onward = placing.where(request("j"), 3, 0)
    assert isinstance(onward, AtKey)
    assert (onward.key, onward.request.rival_jobs) == (topics_of("j", "me")[1], 3)
    assert placing.where(request("j"), 3, 1) == onward
    assert placing.where(request("j", 2), 3, 1) == Taken()
    assert placing.where(request("j", 1, "client:2"), 3, 1) == Taken()
    assert isinstance(placing.where(request("k", 2), 3, 1), AtKey)
    placing.placed("j", "me")
    assert isinstance(placing.where(request("j", 2), 3, 2), AtKey)


def test_a_request_that_was_lost_frees_its_name_after_a_while() -> None:
    placing = Placing()
    placing.where(request("j"), 0, 0)
    assert placing.where(request("j", 2), 0, PLACING_MS - 1) == Taken()
    assert isinstance(placing.where(request("j", 3), 0, PLACING_MS), AtKey)


@pytest.mark.parametrize(("rival_jobs", "jobs", "here"), [(1, 0, True), (0, 0, False), (0, 1, False)])
def test_the_second_takes_it_only_with_fewer_jobs(rival_jobs: int, jobs: int, here: bool) -> None:
    first = Placing().where(request("j"), rival_jobs, 0)
    assert isinstance(first, AtKey)
    second = Placing().where(first.request, jobs, 0)
    if here:
        assert second == Here(topics_of("j", "me")[1])
    else:
        assert isinstance(second, AtKey)
        assert second.key == topics_of("j", "me")[0]
        assert Placing().where(second.request, 9, 0) == Here(topics_of("j", "me")[0])


def test_jobs_of_a_whole_fleet_spread_and_answer() -> None:
    """Six jobs among eight agents: each job group is nearest to one of its job's two keys; every job is
    active."""
    world = World(3, 8)
    world.start_all()
    for n in range(6):
        world.create(n, PLAN, f"job{n}")
        world.run(1_000)
    job_groups = {m.spec.name: a.address for a in world.agents for m in a.node.job_groups.jobs()}
    assert len(job_groups) == 6
    addresses = [agent.address for agent in world.agents]
    for name, leader in job_groups.items():
        assert leader in {nearest(addresses, key) for key in topics_of(name, "me")}
    assert max(Counter(job_groups.values()).values()) <= 2


def test_a_name_is_free_again_when_its_job_was_dropped_wherever_that_lived() -> None:
    """Also at the node of the first key, which let the name through, where the job group was at the
    second."""
    world = World(4, 8)
    world.start_all()
    elsewhere = 0
    for n in range(6):
        spec = world.create(n, PLAN, f"job{n}")
        world.run(500)
        first = nearest([agent.address for agent in world.agents], topics_of(spec.name, "me")[0])
        elsewhere += world.leader(spec).address != first
        world.drop(spec)
        world.run(500)
        again = world.create(n + 1, PLAN, f"job{n}")
        assert again.generation == spec.generation + 1
        world.run(500)
    assert elsewhere
