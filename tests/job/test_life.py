"""The whole life of a job as a script, on a network that loses, doubles and reorders, with a crash at each
step: of its master, a root, a worker, or the agent that asks.

Each step ends as it was asked for or not at all, and then it can be asked for again; there is one job of the
name, and after the last step none. The ledger and the judge of chaos (``lab.chaos``) look at all that is ever
made durable: each window is of one version, and right.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import pytest

from agents.codec import pack
from elf.fields import replace
from elf.job import events as was
from elf.job.catalog.admission import grow
from elf.job.catalog.log import CatalogLog
from elf.job.catalog.readers import not_taken
from elf.job.effects import Send
from elf.job.group.master import Master
from elf.job.group.records import group_key
from elf.job.messages.groups import CreateJob, ReconfigureJob
from elf.job.messages.log import AddJob, JobAdded, JobDropped
from elf.job.spec import Flow, JobSpec, app_id, flow_uid
from elf.ql.plan import Plan
from elf.wire.base import Answer
from elf.wire.clients import Execute
from lab.chaos.agent import SimAgent
from lab.chaos.engine import defined, plan, spec_of
from lab.chaos.judge import Judge
from lab.chaos.ledger import Ledger
from lab.chaos.reference import reducing
from lab.chaos.world import World
from overlay import OverlayConfig
from tests.support.long import cases

SEEDS = range(int(os.environ.get("ELF_TEST_SEEDS", "1")))
SETTLES_MS = 30_000
LATE_MS = 2_100
"""A message that is overtaken comes by then."""
OLD_MS = 6_000
"""Windows that have ended so long ago must be there."""
TREES = 2


def ranged(query: Plan) -> Plan:
    return replace(query, trees=TREES)


@dataclass(frozen=True)
class Step:
    """``verb``: create, replace, alter, or a statement."""

    verb: str
    query: Plan | None = None


FIRST, OTHER = ranged(plan(2)), ranged(plan(4, 2))
SCRIPT = (
    Step("create", FIRST),
    Step("alter", ranged(plan(2, least=2))),  # what parameters change: the final fragment alone
    Step("alter", ranged(plan(4, 2, where="abcd"))),
    Step("alter", reducing(ranged(plan(4, 2, where="abcd")))),
    Step("NOTIFY JOB job 'a word'"),
    Step("PAUSE JOB job"),
    Step("RESUME JOB job"),
    Step("ROLLBACK JOB job TO VERSION 1"),
    Step("replace", OTHER),
    Step("DROP JOB job"),
)


class Life:
    """One job's life. ``victim``: who dies at each step."""

    def __init__(self, victim: str, seed: int) -> None:
        self.ledger = Ledger()
        self.world = World(7_000 + seed, 5, ledger=self.ledger)
        self.world.check_every = 100
        self.victim = victim
        self.world.start_all()
        self.until = self.world.now + 600_000
        for agent in self.world.agents:
            self.world.write(agent, self.until, rate_ms=1_000)
        self.world.run(2_500)
        self.roots = (self.world.agents[4].address,)

    # -- what is there ---------------------------------------------------------------------------------------

    def spec(self) -> JobSpec | None:
        """The job, as the longest log has it."""
        log = max((agent.node.log for agent in self.world.agents if agent.up), key=lambda log: log.last)
        found = [spec for spec in log.jobs() if spec.name == "job"]
        assert len(found) <= 1, "one job of a name"
        return found[0] if found else None

    def master(self) -> Master | None:
        """Its master, where the log says that it is, if nothing is under way."""
        spec = self.spec()
        leader = self.world.leader(spec) if spec is not None else None
        if spec is None or leader is None or not leader.up:
            return None
        masters = [master for master in leader.node.job_groups.jobs() if master.spec.uid == spec.uid]
        return next((master for master in masters if master.state in ("active", "paused")), None)

    def settled(self) -> bool:
        """All agents are back, know the same, and the job is where nothing is under way, or nowhere."""
        agents = self.world.agents
        if not all(agent.up and agent.node.ready for agent in agents):
            return False
        if len({agent.node.log.last for agent in agents}) > 1:
            return False
        return self.spec() is None or self.master() is not None

    # -- a step ----------------------------------------------------------------------------------------------

    def take(self, step: Step, number: int) -> None:
        """Ask for it while somebody dies; then, if it came to nothing, in peace."""
        world, before = self.world, self.seen()
        world.loss = world.doubles = 0.03
        victim, down_ms = self.victims()[self.victim], world.rng.choice([700, 4_500])
        dies_ms = world.now + world.rng.choice([1, 20, 60, 150, 400])
        world.at(dies_ms, lambda: self.kill(victim, down_ms))
        self.ask(step, victim)
        assert self.seen() == before or self.done(step, before), (number, step.verb, self.victim, self.seen())
        for _ in range(3):
            if not self.done(step, before):
                self.ask(step)
        assert self.done(step, before), (number, step.verb, self.victim, "not even in peace")
        assert not self.ledger.findings, (number, step.verb, self.ledger.findings)

    def kill(self, victim: SimAgent, down_ms: int) -> None:
        if victim.up:
            victim.crash()
            self.world.at(self.world.now + down_ms, lambda: self.world.restart(victim))

    def victims(self) -> dict[str, SimAgent]:
        spec, agents = self.spec(), self.world.agents
        leader = self.world.leader(spec) if spec is not None else agents[0]
        asker, root = self.asker(), self.world.by_address[self.roots[0]]
        worker = next(a for a in agents if a not in (leader, asker, root))
        return {"master": leader, "root": root, "worker": worker, "asker": asker}

    def asker(self) -> SimAgent:
        spec, agents = self.spec(), self.world.agents
        leader = self.world.leader(spec) if spec is not None else agents[0]
        return next(a for a in agents[1:] if a.up and a is not leader and a.address not in self.roots)

    def ask(self, step: Step, victim: SimAgent | None = None) -> None:
        """Until it is answered or nobody waits for that any more, and nothing is under way."""
        world, asker, life = self.world, self.asker(), self.asker().life
        world.client_inbox.clear()
        self.say(asker, step)
        world.run(500)
        if step.query is None:
            world.run_until(lambda: bool(world.client_inbox) or asker.life != life, SETTLES_MS)
        if victim is not None:
            world.run_until(lambda: victim.up, SETTLES_MS)
        world.loss = world.doubles = 0.0
        world.run(LATE_MS)
        world.run_until(self.settled, SETTLES_MS)

    def say(self, asker: SimAgent, step: Step) -> None:
        """By a message of the asking agent, or by a client's statement to it."""
        world, spec = self.world, self.spec()
        if step.query is None:
            asked = Execute(request=1, sql=step.verb, creator="me")
            asker.guard(lambda: asker.handle(was.Arrived("client:1", asked)))
        elif step.verb == "alter":
            assert spec is not None
            made = defined(step.query)
            request = ReconfigureJob(
                id=0, origin=asker.address, uid=spec.uid, verb="alter", definition=made, note="ALTER …"
            )
            asker.perform([Send(world.leader(spec).address, request)])
        else:
            fresh = spec_of("job", "me", 0, step.query, (), roots=self.roots)
            create = CreateJob(id=world.now, origin=asker.address, spec=fresh, replace=step.verb == "replace")
            routed = asker.node.overlay.route(app_id("job", "me"), pack(create), world.now)
            asker.perform(asker.node.settle(routed, world.now))

    # -- what has become of it -------------------------------------------------------------------------------

    def seen(self) -> tuple[Any, ...]:
        """(generation, version, state, notices) of the job; nothing where there is none."""
        spec, master = self.spec(), self.master()
        if spec is None or master is None:
            return ()
        broadcasts = max(len(agent.node.broadcasts.of(spec.uid)) for agent in self.world.agents)
        return spec.generation, master.current.number, master.state, broadcasts

    def done(self, step: Step, before: tuple[Any, ...]) -> bool:
        master, now = self.master(), self.seen()
        plan_ = master.spec.plan if master is not None else None
        state = master.state if master is not None else "none"
        match step.verb.split()[0]:
            case "create" | "alter":
                return plan_ == step.query and state == "active"
            case "replace":
                return plan_ == step.query and now[:1] > before[:1]
            case "NOTIFY":
                return bool(now) and now[3] > before[3]
            case "PAUSE":
                return state == "paused"
            case "RESUME":
                return state == "active"
            case "ROLLBACK":
                return plan_ == FIRST and state == "active"
            case _:
                return not now

    def complete(self) -> None:
        """All windows so far are there and right, by the last words on their panes."""
        judge = Judge(self.world, self.ledger, self.world.now - OLD_MS)
        self.world.run_until(lambda: not judge.open() or bool(self.ledger.findings), SETTLES_MS)
        judge.close()
        assert not self.ledger.findings


@pytest.mark.parametrize("victim", ["master", "root", *cases((), ("worker", "asker"))])
@pytest.mark.parametrize("seed", SEEDS)
def test_each_step_ends_as_asked_or_not_at_all_whoever_dies(victim: str, seed: int) -> None:
    life = Life(victim, seed)
    for number, step in enumerate(SCRIPT):
        if step.verb in ("replace", "DROP JOB job"):
            life.world.run(OLD_MS)  # each generation lives long enough for a window
            life.complete()
        life.take(step, number)
    world = life.world

    jobs = {uid for uid, *_ in life.ledger.windows.committed}
    assert len(jobs) == 2, "of each generation"

    def left(agent: SimAgent) -> bool:
        kept = any(agent.store.windows(uid, -(1 << 62), 1 << 62) for uid in jobs)
        return kept or bool(agent.node.log.flows() or agent.worker.flows())

    world.run_until(lambda: not any(map(left, world.agents)), SETTLES_MS)


def test_a_job_is_replaced_in_one_wish_and_not_while_another_reads_it() -> None:
    log, query = CatalogLog(), plan(2)
    uid = f"{app_id('job', 'me').hex()}.1"
    flow = Flow(flow_uid(query.fragment, f"{uid}.1.0"), query.fragment, bytes(16), "here")
    old = spec_of("job", "me", 1, query, (flow,), master="here")
    assert old.uid == uid
    grow(log, AddJob(spec=old))
    new = replace(old, generation=2, replaces=old.uid)
    ended, added = grow(log, AddJob(spec=new))
    assert (ended, added) == (
        JobDropped(seq=2, uid=old.uid),
        JobAdded(seq=3, spec=new),
    )
    assert [spec.uid for spec in log.jobs()] == [new.uid]
    over = replace(query, reads=(new.uid,), read_as=(query.identity,))
    grow(log, AddJob(spec=spec_of("over", "me", 1, over, (flow,), master="here")))
    third = replace(old, generation=3, replaces=new.uid)
    (refused,) = grow(log, AddJob(spec=third))
    assert refused == JobDropped(seq=5, uid=third.uid)
    assert log.job(new.uid) == new
    assert "is read by over (FROM JOB)" in not_taken(log, third)


def test_a_job_that_is_created_on_both_sides_of_a_partition_is_one() -> None:
    """The side whose words the log does not take gives way, and says so to whoever created it there."""
    world = World(31, 5)
    world.start_all()
    world.run(6_000)
    voters = {a.address for a in world.agents if a.node.catalog.keeps}
    assert len(voters) == 5
    leader = next(a for a in world.agents if a.node.catalog.leads)
    few = [a for a in world.agents if a is not leader][:2]
    many = [a for a in world.agents if a not in few]
    world.network.sides = {agent.address: 1 for agent in few}
    world.run(8_000)
    world.submit(world.agents.index(few[0]), plan(2), "job", "client:few")
    world.run(3_000)
    world.submit(world.agents.index(many[0]), plan(2), "job", "client:many")
    world.run(4_000)
    bootstrapped = [a for a in world.agents if a.node.job_groups.jobs()]
    assert len(bootstrapped) == 2, "each side has one"
    world.network.sides.clear()
    spec = world.active("job")
    world.run(20_000)
    assert [a.address for a in world.agents if a.node.job_groups.jobs()] == [world.leader(spec).address]
    assert world.leader(spec) in many
    answers = [said for said in world.client_inbox if isinstance(said, Answer)]
    assert sorted(answer.error[:23] for answer in answers) == ["", "job job exists already;"]
    loser = next(a for a in bootstrapped if a in few)
    assert group_key(spec.uid) not in loser.node.catalog.desk.groups.held() or loser.address in {
        *world.leader(spec).node.job_groups.voters(spec.uid)
    }


def test_after_a_partition_of_more_than_ten_minutes_the_agents_are_one_ring() -> None:
    """Neither side remembers the other any more: the log does, which has all members."""
    world = World(7, 5, checking=False)
    world.start_all()
    world.run(6_000)
    world.network.sides = {agent.address: 1 for agent in world.agents[3:]}
    world.run(OverlayConfig().dead_forget_ms + 20_000)
    assert [len(agent.node.overlay.peers()) for agent in world.agents] == [2, 2, 2, 1, 1]
    world.network.sides.clear()
    world.run(15_000)
    assert [len(agent.node.overlay.peers()) for agent in world.agents] == [4] * 5
