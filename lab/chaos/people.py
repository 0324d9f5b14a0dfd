"""What people ask of a fleet: jobs, changes of jobs, and where their windows go. A request may be refused, or
get lost: then it is not repeated."""

from __future__ import annotations

import random
from functools import partial

from elf.fields import replace
from elf.job import events as was
from elf.job.alerts import follow_on
from elf.job.messages.groups import DropJob, HandOverJob, ReconfigureJob
from elf.job.messages.log import AddOutput, DropJobEntry, OffloadRows, PauseRekeying
from elf.job.output import TABLE, OutputSpec
from elf.job.ring import COPIES, PARTS, has_ring
from elf.job.spec import JobSpec, is_range
from elf.job.tables import is_table, joins_tables
from elf.ql.alert import Alert
from elf.ql.plan import Plan
from elf.ql.promises import Promise
from elf.wire.base import Request
from elf.wire.clients import Execute
from lab.chaos.agent import SimAgent
from lab.chaos.engine import defined, owning, plan, staged, united
from lab.chaos.jobs import (
    JOINING,
    READERS,
    UNITS,
    WAIT_US,
    behind,
    mirrored,
    query_of,
    revising,
    since,
    tardy,
)
from lab.chaos.joining import joined, unread
from lab.chaos.outside import TARGET
from lab.chaos.placing import decide, route, scaled
from lab.chaos.reference import DROPPING, SEVERAL, reducing
from lab.chaos.schedule import Fault, Schedule
from lab.chaos.world import World

PROMISE = Promise(500_000, 99.0, best_effort=True)
APART = 3
"""So many different ones there are, each of twice the time."""
PEOPLE = "client:people"
ON_THE_WAY_MS = (2, 10, 50, 300, 1_000)
"""Since a job was asked to move."""


class People:
    """``specs``: those of jobs as they were before the storm, by number."""

    def __init__(self, world: World, schedule: Schedule) -> None:
        self._world, self._schedule = world, schedule
        self._rng = random.Random(schedule.seed)
        alike = f"alike {schedule.seed}"
        self._alike = {number: random.Random(alike) for number in schedule.together}
        """Who asks for jobs that are drawn apart: all of them for the same, one after the other."""
        self._names: dict[int, str] = {}
        self.specs: dict[int, JobSpec] = {}

    def submit(self, number: int, through: int) -> None:
        query, name = self._query(number), self._name(number)
        self._world.submit(through, query, name, PEOPLE, self._world.range_roots(name, query))

    def found(self, number: int) -> None:
        """Wait for a job that was submitted."""
        self.specs[number] = self._world.active(self._name(number))

    def _name(self, number: int) -> str:
        """The name of a job; for one that is to be where others are, both keys are those of their agent."""
        if number not in self._names:
            together = self._schedule.together
            others = filter(None, map(self.spec, together))
            leader = next(map(self._world.leader, others), None) if number in together else None
            name = f"job{number}"
            self._names[number] = name if leader is None else self._world.name_at(name, leader)
        return self._names[number]

    def spec(self, number: int) -> JobSpec | None:
        """The spec in the longest log, or as it was before the storm."""
        known, name = self._world.longest(), self._names.get(number)
        specs = known.jobs() if known is not None else ()
        return next((spec for spec in specs if spec.name == name), self.specs.get(number))

    def _query(self, number: int) -> Plan:
        kind = self._schedule.jobs[number]
        reads = (self.specs[0].uid,) if kind in READERS else ()
        query = replace(query_of(kind), reads=reads)
        query = owning(query) if number in self._schedule.owned else query
        query = mirrored(query) if number in self._schedule.mirrored else query
        query = self._promising(number, query)
        back_ms = dict(self._schedule.pasts).get(number)
        if back_ms is not None:
            query = since(query, 1_000 * (self._world.now - back_ms))
        return self._suited(query)

    def _suited(self, query: Plan) -> Plan:
        """The query with a lateness that suits its rows: rows of files come later."""
        return tardy(query) if self._schedule.files else query

    def _promising(self, number: int, query: Plan) -> Plan:
        """The query with what the job promises."""
        query = replace(query, gives_way=number in self._schedule.research)
        promise = replace(PROMISE, within_us=PROMISE.within_us << number % APART)
        return replace(query, promise=promise) if number in self._schedule.promised else query

    def fashion(self) -> None:
        """Keys as people choose them: some often, and soon others."""
        world, letters = self._world, self._rng.sample("abcdef", 6)
        world.keys = "".join(key * often for key, often in zip(letters, (8, 4, 2, 1, 1, 1), strict=True))
        world.at(world.now + self._rng.randrange(2_000, 12_000), self.fashion)

    # -- what they ask for -----------------------------------------------------------------------------------

    def ask(self, fault: Fault) -> None:
        """A request about a job."""
        world, number = self._world, fault.amount
        if fault.kind == "create":
            if world.agents[fault.who[0]].up:
                self.submit(number, fault.who[0])
            return
        spec = self.specs.get(number) or self.spec(number)
        if spec is None or not world.leader(spec).up:
            return
        leader, rng = world.leader(spec), self._alike.get(number, self._rng)
        request: Request
        if fault.kind == "drop":
            request = DropJob(id=1, origin=PEOPLE, uid=spec.uid)
        elif fault.kind == "decide":
            decide(world, self._newest(spec), fault, self._apart(fault))
            return
        elif fault.kind == "route":
            route(world, self._newest(spec), self._apart(fault))
            return
        elif fault.kind == "scale":
            known = scaled(world, self._newest(spec), self._apart(fault), PEOPLE)
            if known is None:
                return
            request = known
        elif fault.kind in ("move", "heir dies"):
            to = world.agents[fault.who[0]]
            if fault.kind == "heir dies" and to is not leader:
                world.at(
                    world.now + self._apart(fault).choice(ON_THE_WAY_MS), lambda: world.kill(to, fault.for_ms)
                )
            request = HandOverJob(id=1, origin=PEOPLE, uid=spec.uid, agent=f"a{to.index}", address=to.address)
        elif fault.kind == "reduce":
            request = self._reduce(number, spec)
        else:
            where, least = rng.choice(["", "abc", "bd"]), rng.choice([0, 0, 2])
            size, slide = rng.choice([(2, 2), (4, 2), (6, 2), (3, 1)])
            final = DROPPING if rng.random() < 0.2 else None
            query = replace(plan(size, slide, where=where, least=least), final=final)
            if self._schedule.jobs[number] in UNITS:  # most of them over the same panes
                query = rng.choice([united(4, 4), united(6, 6), united(2, 2), plan(3, 1), query])
            if size == slide and rng.random() < 0.3 and query.windows == plan(2).windows:
                query = staged(query, 4, 2)
            anew = defined(self._suited(self._promising(number, query)))
            request = ReconfigureJob(
                id=1,
                origin=PEOPLE,
                uid=spec.uid,
                verb=fault.kind,  # type: ignore[arg-type]
                definition=anew if fault.kind == "alter" else None,
                version=1,
                immediately=rng.random() < 0.3,
                note=f"{fault.kind} …",
            )
        leader.guard(lambda: leader.handle(was.Arrived(PEOPLE, request)))

    def _reduce(self, number: int, spec: JobSpec) -> ReconfigureJob:
        """ALTER JOB … SET FUNCTION reduce, with another query beside it."""
        rng = random.Random(f"reduce {self._schedule.seed}")  # the same whoever asks, and however often
        size, slide = rng.choice([(2, 2), (4, 2), (3, 1)])
        query = plan(size, slide, where=rng.choice(["", "", "abc"]))
        query = reducing(query, rng.choice([*SEVERAL.values()]))
        match rng.choice(["plain", "trees", "late", "late", "wait", "leap"]):
            case "trees":  # without a policy beside it, as the planner has it
                query = replace(query, trees=3)
            case "late":
                query = revising(query)
            case "wait":
                query = behind(query, wait_us=WAIT_US)
            case "leap":
                query = behind(query, leap=True)
        fragment, mirrors = query.fragment, number in self._schedule.mirrored
        if mirrors and not fragment.leap and fragment.wait_us is None:
            query = mirrored(query)
        query = self._suited(query)
        return ReconfigureJob(
            id=1,
            origin=PEOPLE,
            uid=spec.uid,
            verb="alter",
            definition=defined(query),
            version=1,
            roots=self._world.range_roots(spec.name, query),
            note="reduce …",
        )

    def _newest(self, spec: JobSpec) -> JobSpec:
        """A job as the catalog log has it by now."""
        log = self._world.longest()
        return (log and log.job(spec.uid)) or spec

    def _apart(self, fault: Fault) -> random.Random:
        """What is drawn for one request, whatever else befalls the fleet."""
        return random.Random(f"{fault.kind} {self._schedule.seed} {fault.at_ms}")

    # -- where windows go ------------------------------------------------------------------------------------

    def output(self, agent: SimAgent, fault: Fault) -> None:
        """CREATE OUTPUT, of what is kept and of all that comes; and an alert over the same windows."""
        spec, name = self.spec(fault.amount), f"out{fault.at_ms}"
        if spec is None or not agent.up:
            return
        sql = f"CREATE OUTPUT {name} FROM JOB {spec.name} TO '{TARGET}/{name}' FROM BEGINNING"
        asked = Execute(request=1, sql=sql, creator=spec.creator)
        agent.guard(lambda: agent.handle(was.Arrived(PEOPLE, asked)))
        if follow_on(spec.plan):
            agent.guard(lambda: self._alert(agent, spec, fault.at_ms))

    def _alert(self, agent: SimAgent, spec: JobSpec, number: int) -> None:
        """What CREATE ALERT proposes. (Its condition cannot be checked against a job without a text.)"""
        rng = random.Random(f"alert {self._schedule.seed} {number}")
        by = rng.choice([(), ("k0",)])
        alert = Alert(
            f"s0 >= {rng.choice([1, 2, 4])}", rng.choice([1, 1, 2, 3]), rng.choice([1.0, 1.0, 0.7]), by
        )
        target = f"{TARGET}/alert{number}"
        made = OutputSpec(f"alert{number}", spec.creator, 1, spec.uid, target, (), True, None, alert)
        log = agent.node.log
        agent.node.membership.propose(AddOutput(spec=made), lambda: log.has_output(made.uid))

    def table(self, agent: SimAgent, fault: Fault) -> None:
        """What CREATE TABLE proposes, for whatever query the job has."""
        spec, name = self.spec(fault.amount), f"table{fault.at_ms}"
        if spec is None or not agent.up:
            return
        retain = (("retain", "6000000"),) if fault.at_ms % 3 == 0 else ()
        ranges = spec.plan.fragments[0].range[1]
        shards: tuple[tuple[str, str], ...] = (
            (("shards", str(ranges)),) if ranges > 1 and fault.at_ms % 2 == 0 else ()
        )
        if fault.kind == "ring":
            shards = (("ring", str(COPIES)), ("shards", str(PARTS)))
        made = OutputSpec(
            name, spec.creator, 1, spec.uid, f"{TABLE}:", tuple(sorted((("key", "k0"), *retain, *shards)))
        )
        log = agent.node.log
        agent.node.membership.propose(AddOutput(spec=made), lambda: log.has_output(made.uid))

    def rekey(self, agent: SimAgent) -> None:
        """What ALTER TABLE proposes. (The other key is the same one: all else is as if it were not.)"""
        log = agent.node.log
        for one in filter(is_table, log.outputs() if agent.up else ()):
            options = dict(one.options) | {"of": one.uid}
            if homes := log.homes(one.uid):
                apart = "".join("01"[is_range(home)] for home in homes)
                options |= {"was": one.option("key"), "homes": apart}
            if has_ring(one):
                options |= {"was": one.option("key")}
            new = replace(
                one,
                generation=1 + log.highest(one.app.hex()),
                options=tuple(sorted(options.items())),
            )
            agent.node.membership.propose(AddOutput(spec=new), partial(log.has_output, new.uid))

    def hold(self, agent: SimAgent, *, paused: bool) -> None:
        """What ALTER TABLE … PAUSE, or RESUME, proposes, of all changes of keys that the agent knows of."""
        log = agent.node.log

        def seen(uid: str) -> bool:
            return log.is_rekeying_paused(uid) == paused or log.is_dropped(uid)

        for one in filter(is_table, log.outputs() if agent.up else ()):
            if one.option("of") and not seen(one.uid):
                agent.node.membership.propose(
                    PauseRekeying(uid=one.uid, paused=paused), partial(seen, one.uid)
                )

    def offload(self, through: SimAgent, fault: Fault) -> None:
        """What ALTER JOB … OFFLOAD proposes."""
        spec, agents, log = self.spec(fault.amount), self._world.agents, through.node.log
        if spec is None or not through.up:
            return
        agent = agents[fault.who[0]]
        helper = agents[fault.who[1]].address if fault.kind == "offload" else ""
        word = OffloadRows(uid=spec.uid, agent_id=agent.agent_id, helper=helper, at_ms=self._world.now)

        def seen() -> bool:
            return not log.offloads.is_news(word) or log.is_dropped(spec.uid)

        through.node.membership.propose(word, seen)

    def join_table(self, agent: SimAgent, fault: Fault) -> bool:
        """CREATE JOB … JOIN TABLE, of which the agent has read no rows yet; whether it knows of a table."""
        there = list(filter(is_table, agent.node.log.outputs() if agent.up else ()))
        if there:
            kind = self._apart(fault).choice(JOINING)
            query = joined(self._suited(query_of(kind)), unread(there[-1]))
            self._world.submit(agent.index, query, f"join{fault.at_ms}", PEOPLE)
        return bool(there)

    def rejoin(self, fault: Fault) -> None:
        """ALTER JOB, or ROLLBACK, of jobs that join tables."""
        rng, log = self._apart(fault), self._world.longest()
        for spec in filter(joins_tables, log.jobs() if log is not None else ()):
            size, slide = rng.choice([(2, 2), (4, 2), (3, 1)])
            query = self._suited(plan(size, slide, where=rng.choice(["", "abc", "bd"])))
            back, leader = rng.random() < 0.2, self._world.leader(spec)
            request = ReconfigureJob(
                id=1,
                origin=PEOPLE,
                uid=spec.uid,
                verb="rollback" if back else "alter",
                definition=None if back else defined(joined(query, spec.definition.tables[0].table)),
                version=1 if back else spec.version,
                immediately=rng.random() < 0.3,
                note="rejoin …",
            )
            if leader.up:
                leader.guard(partial(leader.handle, was.Arrived(PEOPLE, request)))

    def drop_tables(self, agent: SimAgent) -> None:
        log = agent.node.log
        for one in filter(is_table, log.outputs() if agent.up else ()):
            done = partial(log.is_dropped, one.uid)
            agent.node.membership.propose(DropJobEntry(uid=one.uid), done)
