"""Jobs in Python on whole fleets on virtual time: spread, reconfigured, moved to another master, ended."""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec
import pytest

from agents.codec import pack
from elf.fields import replace
from elf.job.program import calls
from elf.job.program.messages import DropProgram, ProgramStatus, SubmitProgram
from elf.job.program.runner import JobRunner
from elf.job.program.running import SENDS_MAX
from elf.job.program.seats import uid_of
from elf.job.program.spec import ProgramSpec, Tap
from elf.job.program.submitting import GIVE_UP_MS
from elf.wire.base import Answer
from lab.chaos.agent import SimAgent
from lab.chaos.engine import plan, tapped
from lab.chaos.world import World

BATCHES = """
from elf.job import Job

class Batches(Job):
    every = 1.0
    def start(self):
        self.subscribe("SELECT key, COUNT(*) AS n FROM clicks GROUP BY key")
        self.seen, self.missed = [], 0
    def on_timer(self):
        if self.is_root:
            self.multicast({"update": len(self.seen), "by": self.me})
    def on_multicast(self, app, message):
        assert app == self.app_id
        self.seen.append((message["by"], message["update"]))
        paos = self.flush()
        self.empty()
        self.up(paos)
    def on_recv(self, node, paos):
        self.up(paos)
    def up(self, paos):
        if self.is_root:
            self.state["total"] = self.merge(self.state.get("total"), paos)
        else:
            self.send_to(self.parent, paos)
    def on_missed(self, app, count):
        self.missed += count
"""


def program(text: str, *, every_ms: int = 1_000, subscription: str = "w", generation: int = 0) -> ProgramSpec:
    tap = Tap("main", plan().fragment, (("k0", "key"),), (("s0", "n"),))
    taps = (tapped(tap),) if "subscribe" in text else ()
    return ProgramSpec("job", "me", generation, text, "job.py", "J", every_ms, taps, (), subscription)


def submit(world: World, through: int, spec: ProgramSpec, *, replace: bool = False, id_: int = 1) -> None:
    agent = world.agents[through]
    request = SubmitProgram(id=id_, origin=f"client{through}", spec=spec, replace=replace)
    agent.perform(agent.node.settle(agent.node.overlay.route(spec.app, pack(request), world.now), world.now))


def answers(world: World) -> list[Answer]:
    return [m for m in world.client_inbox if isinstance(m, Answer)]


def jobs(world: World) -> list[Any]:
    """The job's object on each agent that is up."""
    of = [(key, runner) for a in world.agents if a.up for key, runner in a.jobs.runners.items()]
    return [runner.job for key, runner in of if uid_of(key) == key]


def masters(world: World) -> list[tuple[SimAgent, Any]]:
    """The master's object of each job, and the agent that it is at."""
    of = [(a, key, runner) for a in world.agents if a.up for key, runner in a.jobs.runners.items()]
    return [(agent, runner.job) for agent, key, runner in of if uid_of(key) != key]


def master(world: World) -> SimAgent:
    ((agent, _),) = masters(world)
    return agent


def running(world: World, count: int, jobs_: int = 1) -> None:
    world.run_until(lambda: len(jobs(world)) == count and len(masters(world)) == jobs_)


def test_batches_in_step_count_every_row_once_over_a_network_that_loses_multicasts() -> None:
    world = World(1, 5)
    world.start_all()
    submit(world, 3, program(BATCHES))
    running(world, 5)
    world.run(500)
    for agent in world.agents:
        world.write(agent, world.now + 5_000)
    world.run(9_000)
    ((_, job),) = masters(world)
    total = job.state["total"]
    truth: dict[str, int] = {}
    for agent in world.agents:
        for _, key in agent.log.rows:
            truth[key] = truth.get(key, 0) + 1
    assert {row["key"]: row["n"] for row in total.to_pylist()} == truth
    assert [a.error for a in answers(world)] == [""]


def test_a_multicast_comes_once_and_in_order_or_is_missed() -> None:
    world = World(5, 6, loss=0.1, doubles=0.1, checking=False)
    world.start_all()
    submit(world, 1, program(BATCHES))
    running(world, 6)
    world.run(14_000)
    for job in jobs(world):
        numbers = [n for _, n in job.seen]
        assert len(numbers) + job.missed >= 8
        assert numbers == sorted(numbers)


def test_another_node_is_master_when_the_master_dies_and_who_was_away_catches_up() -> None:
    world = World(2, 5)
    world.start_all()
    nearest = world.agents[0].node.overlay.next_hop(program("").app).address
    away = next(a for a in world.agents[1:] if a.address != nearest)
    away.crash()
    world.run(5_000)
    submit(world, 0, program(BATCHES))
    running(world, 4)
    world.restart(away)
    running(world, 5)
    world.run(3_000)
    first = master(world)
    first.crash()
    world.run(10_000)
    assert master(world) is not first
    assert all(job.seen[-1][0] == master(world).address for job in jobs(world))
    world.restart(first)  # it has the job from its own copy of the log
    running(world, 5)


LOOKS = """
from elf.job import Rounds


class Looks(Rounds):
    at_once = True
    every = 0.5

    def start(self):
        self.subscribe("SELECT key, COUNT(*) AS n FROM clicks GROUP BY key")
        self.state.setdefault("looks", [])
        self.begun = []

    def on_timer(self):
        if self.is_root:
            self.begin()

    def begin(self, message=None):
        super().begin(message)
        self.begun.append(self._begun)

    def contribute(self, message):
        return sum(row["n"] for row in self.flush().to_pylist())

    def combine(self, one, other):
        return one + other

    def finish(self, message, total, agents):
        self.state["looks"] = [*self.state["looks"], (self.round, total, agents)]
"""


def test_looks_at_once_have_all_rows_and_the_next_master_gives_rounds_other_numbers() -> None:
    world = World(4, 5, loss=0.02, doubles=0.05, checking=False)
    world.start_all()
    submit(world, 3, program(LOOKS, every_ms=500))
    running(world, 5)
    world.run(500)
    for agent in world.agents:
        world.write(agent, world.now + 5_000)
    world.run(9_000)
    ((first, job),) = masters(world)
    rows = sum(len(agent.log.rows) for agent in world.agents)
    whole = [total for _, total, agents in job.state["looks"] if agents == 5]
    assert whole[-1] == rows > 0
    assert all(agents <= 5 for _, _, agents in job.state["looks"])
    world.run(100)  # it has begun rounds that no checkpoint has
    begun = set(job.begun)
    first.crash()
    world.run(10_000)
    ((_, after),) = masters(world)
    assert after is not job
    assert after.begun, "it looks, too"
    assert not begun.intersection(after.begun)
    assert any(agents == 4 for number, _, agents in after.state["looks"] if number in after.begun)


TWO_QUERIES = """
from elf.job import Job

class Two(Job):
    every = 0.5
    timer_at_master = True
    def start(self):
        self.subscribe("SELECT key, COUNT(*) AS n FROM clicks GROUP BY key", name="main")
        self.subscribe("SELECT key, COUNT(*) AS n FROM clicks GROUP BY key", name="other")
        self.timers = 0
    def on_timer(self):
        self.timers += 1
"""


def test_timers_may_be_the_masters_alone_and_the_groups_of_a_chunk_come_by_one_call(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    handle, rows = JobRunner.handle, list[calls.Rows]()

    def noted(runner: JobRunner, event: calls.Event, *others: Any) -> None:
        rows.extend([event] if isinstance(event, calls.Rows) else [])
        handle(runner, event, *others)

    monkeypatch.setattr(JobRunner, "handle", noted)
    world = World(6, 3)
    world.start_all()
    main = Tap("main", plan().fragment, (("k0", "key"),), (("s0", "n"),))
    two = tapped(main), tapped(msgspec.structs.replace(main, name="other"))
    submit(world, 1, replace(program(TWO_QUERIES, every_ms=500), definitions=two, timer_at_master=True))
    running(world, 3)
    world.run(500)
    for agent in world.agents:
        world.write(agent, world.now + 5_000)
    world.run(9_000)
    assert {(one.subscription, *(name for name, _ in one.beside)) for one in rows} == {("main", "other")}
    truth = Counter(key for agent in world.agents for _, key in agent.log.rows)
    for name in ("main", "other"):
        groups = [row for job in jobs(world) for row in job.flush(name).to_pylist()]
        assert truth == sum((Counter({row["key"]: row["n"]}) for row in groups), Counter[str]())
    ((_, master_),) = masters(world)
    assert master_.timers > 2
    assert [job.timers for job in jobs(world)] == [0, 0, 0]


def test_two_submit_one_name_at_once_one_wins_and_the_other_is_told() -> None:
    world = World(3, 5)
    world.start_all()
    for through in (1, 2):
        submit(world, through, program(BATCHES, subscription=f"w{through}"), id_=through)
    running(world, 5)
    world.run(2_000)
    found = sorted(a.error for a in answers(world))
    assert len(found) == 2
    assert found[0] == ""
    assert "exists already" in found[1]
    assert {len(a.node.log.programs()) for a in world.agents} == {1}


def test_replace_is_a_new_generation_and_drop_ends_it_everywhere() -> None:
    world = World(4, 4)
    world.start_all()
    submit(world, 1, program(BATCHES))
    running(world, 4)
    submit(world, 2, program(BATCHES + "\n# better\n", subscription="again"), replace=True, id_=2)
    world.run_until(lambda: len(answers(world)) == 2)
    world.run(2_000)
    (uid,) = {uid_of(key) for a in world.agents for key in a.jobs.runners}
    assert uid.endswith(".2")
    agent = world.agents[3]
    request = DropProgram(id=3, origin="client", app=program("").app, uid=uid)
    agent.perform(
        agent.node.settle(agent.node.overlay.route(request.app, pack(request), world.now), world.now)
    )
    world.run_until(lambda: len(answers(world)) == 3)
    world.run(3_000)
    assert jobs(world) == []
    assert all(not a.node.log.programs() for a in world.agents)
    assert all(program("").app not in a.node.overlay.topics() for a in world.agents)


def test_who_replaces_a_job_while_the_log_has_no_majority_leaves_no_other_generation() -> None:
    """The request is given up meanwhile; the new generation's job group is not."""
    world = World(4, 5)
    world.start_all()
    submit(world, 1, program(BATCHES))
    running(world, 5)
    first = master(world)
    voters = [a for a in world.agents if a is not first and a.address in first.node.membership.voters]
    for agent in voters[:3]:
        agent.crash()
    world.run(300)
    better = program(BATCHES + "\n# better\n", subscription="again")
    submit(world, first.index, better, replace=True, id_=2)
    world.run(GIVE_UP_MS + 1_000)
    assert {spec.generation for spec in first.node.log.programs()} == {1}
    for agent in voters[:3]:
        world.restart(agent)
    world.run_until(
        lambda: all([s.generation for s in a.node.log.programs()] == [2] for a in world.agents),
        limit_ms=60_000,
    )
    running(world, 5)
    assert {uid_of(key)[-2:] for a in world.agents for key in a.jobs.runners} == {".2"}


EARS = """
from elf.job import Job

class Ears(Job):
    def start(self):
        self.subscribe(app="job")
        self.heard = []
    def on_multicast(self, app, message):
        self.heard.append((app, message["update"]))
"""


def test_a_job_hears_the_multicasts_of_another_that_it_subscribed_to() -> None:
    world = World(7, 4)
    world.start_all()
    submit(world, 1, program(BATCHES))
    running(world, 4)
    talker = program("")
    ears = replace(talker, name="ears", text=EARS, every_ms=0, definitions=(), subscription="e")
    ears = replace(ears, apps=(talker.app,))
    submit(world, 2, ears, id_=2)
    running(world, 8, 2)
    world.run(4_000)
    listening = [job for job in jobs(world) if job.name == "ears"]
    assert len(listening) == 4
    for job in listening:
        assert len(job.heard) >= 3
        assert {app for app, _ in job.heard} == {talker.app}
    assert len({tuple(n for _, n in job.heard[-3:]) for job in listening}) == 1


TALKS = """
from elf.job import Job

class Talks(Job):
    every = 1.0
    def start(self):
        self.got = []
    def on_timer(self):
        self.route("{to}", ["hello from", self.me])
    def deliver(self, app, message):
        self.got.append((app, *message))
"""


def test_what_any_agent_routes_to_another_job_is_delivered_at_its_master_alone() -> None:
    world = World(8, 5, checking=False)
    world.start_all()
    first = replace(program(TALKS.replace("{to}", "other")), name="one")
    submit(world, 1, first)
    submit(
        world, 2, replace(first, name="other", text=TALKS.replace("{to}", "nobody"), subscription="o"), id_=2
    )
    running(world, 10, 2)
    world.run(3_500)
    assert not [job for job in jobs(world) if job.got]
    heard = [job for _, job in masters(world) if job.got]
    assert [(job.name, job.is_root) for job in heard] == [("other", True)]
    assert {who for _, _, who in heard[0].got} == {agent.address for agent in world.agents}
    assert {app for app, _, _ in heard[0].got} == {first.app}


FLOODS = """
from elf.job import Job

class Floods(Job):
    every = 1.0
    def on_timer(self):
        for n in range(5000):
            self.send_to(self.me, n)
"""

RAISES = """
from elf.job import Job

class Raises(Job):
    every = 1.0
    def on_timer(self):
        raise ValueError("no luck")
"""


@pytest.mark.parametrize(("text", "said"), [(FLOODS, "it floods"), (RAISES, "ValueError: no luck")])
def test_a_job_that_misbehaves_is_told_of_by_its_master(text: str, said: str) -> None:
    world = World(6, 3, checking=False)
    world.start_all()
    submit(world, 1, program(text))
    running(world, 3)
    world.run(4_500)
    node = master(world).node
    (uid,) = node.programs.shown(world.now)
    facts: ProgramStatus = node.programs._facts(uid, world.now)
    assert len(facts.troubles) == 3
    assert all(reason.startswith(said) for _, _, reason in facts.troubles)
    if text is FLOODS:
        sent = 2 * 5_000 * 4 - node.programs.counts["messages_dropped"]  # of the master here, too
        assert 0 < sent <= 2 * 3 * SENDS_MAX


LARGE = """
from elf.job import Job

class Large(Job):
    every = 1.0
    def start(self):
        self.seen, self.missed, self.said = [], 0, 0
    def on_timer(self):
        if self.is_root and self.said < 9:
            for size in (10, 2_500_000, 10):
                self.multicast({"number": self.said, "pad": bytes([self.said]) * size})
                self.said += 1
    def on_multicast(self, app, message):
        self.seen.append((message["number"], len(message["pad"]), message["pad"][-1]))
    def on_missed(self, app, count):
        self.missed += count
"""


def test_large_multicasts_come_whole_and_in_their_place_over_a_network_that_loses_some() -> None:
    world = World(11, 4, loss=0.05, checking=False)
    world.start_all()
    submit(world, 1, program(LARGE))
    running(world, 4)
    (_, root), *_ = masters(world)
    world.run_until(lambda: root.said == 9)
    everybody = [*jobs(world), root]
    world.run_until(lambda: all(len(job.seen) + job.missed >= 9 for job in everybody))
    for job in everybody:
        numbers = [number for number, _, _ in job.seen]
        assert numbers == sorted(set(numbers))
        assert all(size == (2_500_000 if number % 3 == 1 else 10) for number, size, _ in job.seen)
        assert all(last == number for number, _, last in job.seen)
    assert sum(len(job.seen) for job in everybody) > 9 * len(everybody) // 2
