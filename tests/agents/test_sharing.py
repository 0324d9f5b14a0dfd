"""Which panes a new job gets, as an agent decides it: what it asks, of whom, and when it asks nothing."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import pytest

from agents.answering.asks import Ask, Offload, ToAddress
from agents.answering.sharing import Instead, Sharing, is_free
from elf.fields import replace
from elf.job.catalog.admission import grow
from elf.job.catalog.log import CatalogLog
from elf.job.catalog.members import Member
from elf.job.messages.log import AddJob
from elf.job.spec import Flow, JobSpec, app_id, flow_uid
from elf.job.work import FlowWork, InspectWork, WorkStatus
from elf.ql.plan import Function, Plan
from elf.ql.planner import plan_streams
from elf.ql.statements import Select, parse
from elf.ql.user_functions import with_function
from elf.wire.base import Answer
from lab.chaos.engine import spec_of
from tests.support.ql_table import SCHEMA

SECOND_US = 1_000_000
TEXT = "SELECT store, SUM(clicks) AS n FROM x WHERE clicks > :least GROUP BY store {} WITH (least = 1)"
MEMBERS = tuple(Member(n, f"id{n}", f"a{n}", 1, f"a{n}:1", 0) for n in range(2))
BUSY = FlowWork("", rows=900, keys=9, commits=3, commit_panes=3, commit_keys=9, commit_rows=900_000)


def planned(text: str, pane_us: int | None = None) -> Plan:
    (statement,) = parse(text)
    assert isinstance(statement, Select)
    return plan_streams(statement.query, {"x": SCHEMA}, pane_us=pane_us)


def windows(clause: str) -> str:
    return TEXT.format(f"WINDOWING {clause}")


def job(plan: Plan, name: str, creator: str = "me") -> JobSpec:
    uid = f"{app_id(name, creator).hex()}.1"
    flows = tuple(
        Flow(flow_uid(f, f"{uid}.1.{n}"), f, bytes(16), f"root-of-{name}")
        for n, f in enumerate(plan.fragments)
    )
    return spec_of(name, creator, 1, plan, flows, master=f"root-of-{name}")


class Fleet:
    """A log with jobs, and what agents say of their work, by address; others are silent."""

    def __init__(self, *jobs: JobSpec, says: Mapping[str, FlowWork]) -> None:
        self.log = CatalogLog()
        for spec in jobs:
            grow(self.log, AddJob(spec=spec))
        self.says = says
        self.asked: list[str] = []

    def plan(self, text: str, instead: Instead | None = None) -> Plan:
        sharing = Sharing(self.log, lambda stream: MEMBERS)
        procedure = sharing.plan(lambda pane_us: planned(text, pane_us), instead)
        answers: list[Answer] | None = None
        while True:
            try:
                asks = procedure.send(answers) if answers is not None else next(procedure)
            except StopIteration as done:
                made: Plan = done.value
                return made
            answers = [self.answer(ask) for ask in asks]

    def answer(self, ask: Ask) -> Answer:
        if isinstance(ask, Offload):
            ask.value = ask.work()
            return Answer(id=0)
        assert isinstance(ask, ToAddress)
        assert isinstance(ask.request, InspectWork)
        self.asked.append(ask.to)
        if ask.to not in self.says:
            return Answer(id=0, error="no answer in time")
        work = self.says[ask.to]
        flows = tuple(msgspec.structs.replace(work, flow=uid) for uid in ask.request.flows)
        return Answer(id=0, body=msgspec.msgpack.encode(WorkStatus(ask.to, flows, ())))


SECONDS = job(planned(windows("1 SECOND")), "seconds")
SAYS = {"root-of-seconds": BUSY}


def test_a_flow_with_shorter_panes_is_read_where_that_is_cheaper() -> None:
    fleet = Fleet(SECONDS, says=SAYS)
    made = fleet.plan(windows("1 MINUTE, 5 MINUTES SLIDE 30 SECONDS"))
    assert made.fragment == SECONDS.plan.fragment
    assert made.choice is not None
    assert (made.choice.own_us, made.choice.pane_us) == (30 * SECOND_US, SECOND_US)
    assert made.choice.why.startswith("panes of 1 s of a flow that runs, not own ones of 30 s")
    assert [kind.text for kind in made.windows] == ["1 min", "5 min, every 30 s"]
    assert fleet.asked == ["root-of-seconds", "a0:1", "a1:1"]


@pytest.mark.parametrize(
    ("says", "why"),
    [
        ({}, "own panes of 1 min: the root of the flow with panes of 1 s does not answer"),
        (
            {"root-of-seconds": FlowWork("", rows=5)},
            "own panes of 1 min: of the flow with panes of 1 s nothing has been measured yet",
        ),
        (
            {"root-of-seconds": msgspec.structs.replace(BUSY, commit_rows=9)},
            "own panes of 1 min, not those of 1 s that a flow has: sharing takes at most ",
        ),
        (
            {"root-of-seconds": msgspec.structs.replace(BUSY, commit_keys=100_000)},
            "a master would have 2,000,000 of its groups at once, and 1,000,000 at most",
        ),
    ],
)
def test_own_panes_and_why(says: Mapping[str, FlowWork], why: str) -> None:
    made = Fleet(SECONDS, says=says).plan(windows("1 MINUTE"))
    assert made == planned(windows("1 MINUTE"))
    assert made.choice is not None
    assert why in made.choice.why


@pytest.mark.parametrize(
    "text",
    [
        windows("1 SECOND"),
        windows("1500 MILLISECONDS"),
        windows("1 MINUTE").replace("> :least", ">= :least"),
        windows("1 MINUTE STRAGGLERS LEAP"),
        windows("1 MINUTE LATENESS 3 SECONDS"),
        windows("SESSION 1 MINUTE"),
        windows("60 ROWS"),
        windows("LANDMARK EVERY 1 MINUTE"),
        TEXT.format("ORDER BY n DESC LIMIT 3 APPROXIMATE WINDOWING 1 MINUTE"),
        windows("1 MINUTE TREES 2"),
    ],
)
def test_nobody_is_asked_where_there_is_nothing_to_choose(text: str) -> None:
    fleet = Fleet(SECONDS, says=SAYS)
    assert fleet.plan(text) == planned(text)
    assert fleet.asked == []


def test_an_equal_flow_is_read_without_a_question() -> None:
    fleet = Fleet(SECONDS, job(planned(windows("1 MINUTE")), "minutes"), says=SAYS)
    assert fleet.plan(windows("1 MINUTE")) == planned(windows("1 MINUTE"))
    assert fleet.asked == []


def test_all_key_ranges_have_such_a_flow_and_all_are_measured() -> None:
    two = job(planned(windows("1 SECOND TREES 2")), "seconds")
    fleet = Fleet(two, says=SAYS)
    made = fleet.plan(windows("1 MINUTE TREES 2"))
    assert made.fragments == two.plan.fragments
    assert made.choice is not None
    once = Fleet(SECONDS, says=SAYS).plan(windows("1 MINUTE")).choice
    assert once is not None
    assert once.own_ms is not None
    assert made.choice.own_ms == pytest.approx(2 * once.own_ms), "both ranges say as much"


def test_a_job_keeps_its_panes_while_it_is_altered() -> None:
    fleet = Fleet(SECONDS, says=SAYS)
    before = job(fleet.plan(windows("1 MINUTE")), "minutes")
    later = Fleet(before, says={})
    instead = Instead(before, ())
    kept = later.plan(TEXT.format("HAVING n > 3 WINDOWING 1 MINUTE"), instead)
    assert kept.fragments == before.plan.fragments
    longer = later.plan(windows("1 MINUTE, 1 HOUR"), instead)
    assert longer.fragments == before.plan.fragments
    assert longer.choice is not None
    assert longer.choice.why == "panes of 1 s, as the job had them"
    others = later.plan(windows("1 MINUTE").replace("least = 1", "least = 2"), instead)
    assert others.fragment.pane_us == 60 * SECOND_US, "another question is planned as if it were new"
    half = later.plan(windows("1500 MILLISECONDS"), instead)
    assert half.fragment.pane_us == 1_500_000
    assert later.asked == [], "and its own flow ends with it, so that is none to share"


def test_a_job_with_own_panes_gets_longer_ones_with_longer_windows() -> None:
    fleet = Fleet(SECONDS, says=SAYS)
    assert fleet.plan(windows("1 MINUTE"), Instead(SECONDS, ())).fragment.pane_us == 60 * SECOND_US
    assert fleet.plan(windows("1 MINUTE"), Instead(SECONDS)).fragment.pane_us == 60 * SECOND_US
    assert fleet.asked == []


def test_what_is_done_to_whole_panes_is_done_to_own_ones() -> None:
    plain = planned(windows("1 MINUTE"))
    assert is_free(plain)
    for kind in ("map", "reduce"):
        function = Function(kind, f"def {kind}(batch): return batch", "f.py")
        assert not is_free(with_function(plain, function))
    assert not is_free(replace(plain, reads=("job",)))
    assert not is_free(replace(plain, fragment=replace(plain.fragment, late_of="flow")))
