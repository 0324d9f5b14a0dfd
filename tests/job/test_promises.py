"""WITHIN: what a job promises, what its windows say of it, and who is told (``elf.job.promised``); on virtual
time."""

from __future__ import annotations

from typing import Any

import pytest

from elf.batch import decode
from elf.fields import replace
from elf.job import effects as do
from elf.job import events as was
from elf.job.messages.groups import ReconfigureJob
from elf.job.messages.log import DecidePause
from elf.job.promised import FEW, LAST, Kept, is_kept, promise_told
from elf.job.spec import JobSpec
from elf.job.work import PromiseWork
from elf.ql.memo import remember
from elf.ql.planner import plan_text
from elf.ql.promises import Chosen, Promise
from elf.schema import Column, Schema
from elf.wire.base import Answer
from elf.wire.clients import Reply
from lab.chaos.agent import SimAgent
from lab.chaos.engine import STREAM, defined, plan
from lab.chaos.world import World
from tests.chaos import plants
from tests.support.histories import asked, begun, check_all, said
from tests.support.versions import versions

TWO_P99 = Promise(2_000_000, 99.0)
SCHEMA = Schema((Column("c_ip", "text"), Column("timestamp", "timestamp")), "timestamp")


def statuses(world: World, spec: JobSpec) -> list[dict[str, Any]]:
    rows = world.leader(spec).store.windows(spec.uid, -(1 << 62), 1 << 62)
    return [one for row in rows for one in decode(row.status).to_pylist()]


def heard(world: World, monkeypatch: pytest.MonkeyPatch) -> list[do.Judged]:
    """What the agents of a world are told of promises."""
    found: list[do.Judged] = []
    told = SimAgent.told

    def listening(agent: SimAgent, effect: object) -> None:
        if isinstance(effect, do.Judged):
            found.append(effect)
        told(agent, effect)  # type: ignore[arg-type]

    monkeypatch.setattr(SimAgent, "told", listening)
    return found


def test_each_window_says_what_it_took_and_its_job_what_it_has_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(43, 3, checking=False)
    judged = heard(world, monkeypatch)
    spec, _ = begun(world, 60_000, query=replace(plan(2), promise=TWO_P99))
    world.run(50_000)
    found = statuses(world, spec)
    assert len(found) >= FEW
    took = [one["took_ms"] for one in found]
    assert all(one["promised_ms"] == 2_000 for one in found)
    assert all(isinstance(ms, int) and 0 < ms < 2_000 for ms in took), took
    assert sum(one.kept for one in judged) == len(found)
    assert not any(one.broken for one in judged)
    text, told = asked(world, 2, "EXPLAIN LATENCY job")
    promise = told["promise"]
    assert (promise["is_kept"], promise["windows"], promise["kept"]) == (True, len(found), len(found))
    assert promise["from"] == "the window's end and LATENESS, 0.5 s"
    assert "WITHIN 2000 MILLISECONDS FOR 99 PERCENT: kept" in text
    # what is said before the commit is what the commit took, to the time that commits differ by
    stamped = [
        one for agent in world.agents for one in agent.loop._ports.seen.stamped([], [spec.uid]).windows
    ]
    exact = {one.pane: (one.applied_us - (one.pane + 1) * 2_000_000 - 500_000) / 1e3 for one in stamped}
    said = {one["window_start"].timestamp() // 2: one["took_ms"] for one in found}
    assert exact
    assert all(abs(said[pane] - ms) < 60 for pane, ms in exact.items()), (exact, said)


def test_a_job_whose_windows_come_late_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(44, 3, checking=False)
    judged = heard(world, monkeypatch)
    spec, _ = begun(world, 70_000, query=replace(plan(2), promise=Promise(100_000, None)))
    world.run(60_000)
    found = statuses(world, spec)
    late = [one for one in found if one["took_ms"] > one["promised_ms"]]
    assert len(late) > len(found) / 2
    assert sum(one.broken for one in judged) > len(found) / 2
    text, told = asked(world, 1, "EXPLAIN LATENCY job")
    assert told["promise"]["is_kept"] is False
    assert "ON AVERAGE: broken" in text


def test_agents_look_as_often_as_the_tightest_promise_of_a_stream_wants() -> None:
    world = World(46, 3, checking=False)
    begun(world, 60_000)
    assert [agent.paced for agent in world.agents] == [{}] * 3
    made = {
        name: world.create(0, replace(plan(2, 1), promise=TWO_P99, chosen=Chosen(poll_ms=poll_ms)), name)
        for name, poll_ms in (("soon", 10), ("sooner", 5), ("any", 50))
    }
    world.run(5_000)
    assert [agent.paced for agent in world.agents] == [{STREAM: 5}] * 3
    again = next(agent for agent in world.agents if agent.index == 2)
    again.paced.clear()
    again.crash()
    world.run(1_000)
    world.restart(again)
    world.run(5_000)
    assert again.paced == {STREAM: 5}, "it follows from the log"
    world.drop(made["sooner"])
    world.run(5_000)
    assert [agent.paced for agent in world.agents] == [{STREAM: 10}] * 3


def test_a_promise_that_is_worked_out_anew_is_a_version_with_the_same_flow_and_windows() -> None:
    """ALTER JOB … AS the same query: other costs, other settings."""
    world = World(50, 3)
    query = replace(plan(2, 1), promise=TWO_P99, chosen=Chosen(poll_ms=50))
    spec, until = begun(world, 30_000, query=query)
    for poll_ms, answer in ((50, "nothing changes: that is what version 1 does"), (10, "")):
        made = defined(replace(query, chosen=Chosen(poll_ms=poll_ms, why=("anew",))))
        leader = world.leader(spec)
        request = ReconfigureJob(id=poll_ms, origin="client:9", uid=spec.uid, verb="alter", definition=made)
        world.client_inbox.clear()
        leader.handle(was.Arrived("client:9", request))
        world.run_until(lambda: bool(world.client_inbox), 20_000)
        (told,) = world.client_inbox
        assert isinstance(told, Answer)
        assert told.error == answer
    world.run(5_000)
    assert [agent.paced for agent in world.agents] == [{STREAM: 10}] * 3
    after = world.leader(spec).node.log.job(spec.uid)
    assert after is not None
    assert (after.version, after.flows[0].uid) == (2, spec.flows[0].uid)
    world.run(until - world.now + 8_000)
    check_all(world, spec, until, 20)


def test_a_promise_is_judged_by_windows_of_the_present_version_alone() -> None:
    """Not by those of before, nor by those that the old version owes after the new one has begun."""
    world = World(52, 3, checking=False)
    spec, _ = begun(world, 60_000, query=replace(plan(2), promise=Promise(100_000, None)))
    world.run(30_000)
    assert asked(world, 1, "EXPLAIN LATENCY job")[1]["promise"]["windows"] >= FEW // 2
    made = defined(replace(plan(2), promise=TWO_P99))
    request = ReconfigureJob(id=9, origin="client:9", uid=spec.uid, verb="alter", definition=made)
    world.client_inbox.clear()
    world.leader(spec).handle(was.Arrived("client:9", request))
    world.run_until(lambda: bool(world.client_inbox), 20_000)
    assert asked(world, 1, "EXPLAIN LATENCY job")[1]["promise"]["windows"] == 0
    world.run(15_000)
    rows = world.leader(spec).store.windows(spec.uid, -(1 << 62), 1 << 62)
    new = [one for row in rows if row.version == 2 for one in decode(row.status).to_pylist()]
    assert 0 < len(new) < len(statuses(world, spec))
    assert asked(world, 1, "EXPLAIN LATENCY job")[1]["promise"]["windows"] == len(new)


def broken(monkeypatch: pytest.MonkeyPatch) -> tuple[World, JobSpec, int, object]:
    """A job whose windows come too late by as much as looks that are closer together win. Nobody else may
    keep what is returned last: plans have no text here."""
    world = World(51, 2)
    query = replace(plan(2, 1), promise=Promise(100_000, 99.0), chosen=Chosen(poll_ms=50))
    spec, until = begun(world, 60_000, query=query)
    took = {50: 120, 20: 90}
    why = "worked out anew: 120 ms with looks 50 ms apart, now 20"
    anew = Chosen(poll_ms=20, reached_ms=90, keeps=True, why=(why,))
    held = remember(replace(defined(query), chosen=anew), replace(query, chosen=anew))

    def work(kept: Kept, promise: Promise) -> PromiseWork:
        now = world.leader(spec).node.log.job(spec.uid)
        assert now is not None
        ms = took[now.definition.chosen.poll_ms] if now.definition.chosen else 0
        return PromiseWork(100, 99 if ms <= 100 else 50, ms, ms)

    monkeypatch.setattr(Kept, "work", work)
    return world, spec, until, held


def test_a_promise_that_is_broken_is_worked_out_anew_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once, where shorter pauses between looks keep it; and no window is missed or made twice."""
    world, spec, until, held = broken(monkeypatch)
    world.run(45_000)
    after = world.leader(spec).node.log.job(spec.uid)
    assert after is not None
    assert after.definition.chosen is not None
    assert (after.version, after.definition.chosen.poll_ms, after.flows[0].uid) == (2, 20, spec.flows[0].uid)
    assert [agent.paced for agent in world.agents] == [{STREAM: 20}] * 2
    assert {n: one.by_itself for n, one in versions(world, spec).items()} == {1: False, 2: True}
    reply = said(world, 1, "SHOW DECISIONS")
    assert isinstance(reply, Reply)
    (row,) = decode(reply.payload).to_pylist()
    assert [row[name] for name in ("job", "changes", "from", "to", "state")] == [
        "job",
        "looks",
        "50 ms",
        "20 ms",
        "done",
    ]
    world.run(until - world.now + 8_000)
    check_all(world, spec, until, 40)
    assert held


def decided_late(monkeypatch: pytest.MonkeyPatch) -> int:
    """The pause of a job, after a decision that comes once more when its owner wants another one."""
    world, spec, _, held = broken(monkeypatch)
    monkeypatch.setattr("agents.node.promises.pause_of", lambda poll_ms, *_, kept: poll_ms)
    world.run(5_000)
    voter = next(agent for agent in world.agents if agent.node.catalog.leads)
    asked = DecidePause(
        uid=spec.uid,
        before_ms=50,
        pause_ms=20,
        reached_ms=90,
        at_ms=world.now,
        why="worked out anew: 120 ms with looks 50 ms apart, now 20",
    )

    def propose() -> None:
        voter.perform(voter.node.settle(voter.node.catalog.serve(voter.address, asked, world.now), world.now))

    def pause() -> int:
        now = voter.node.log.job(spec.uid)
        assert now is not None
        assert now.definition.chosen is not None
        return now.definition.chosen.poll_ms

    voter.guard(propose)
    world.run_until(lambda: pause() == 20, 10_000)
    world.run(4_000)
    request = ReconfigureJob(
        id=1, origin="client:9", uid=spec.uid, verb="rollback", version=1, note="back to what it was"
    )
    world.leader(spec).handle(was.Arrived("client:9", request))
    world.run_until(lambda: pause() == 50, 10_000)
    world.run(4_000)
    voter.guard(propose)
    world.run(8_000)
    assert held
    return pause()


def test_a_decision_on_looks_that_comes_late_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        assert decided_late(patch) == 50
    plants.commits.obeys_late_decisions_on_looks(monkeypatch)
    assert decided_late(monkeypatch) == 20


def test_what_has_no_moment_at_which_it_is_due_is_not_promised() -> None:
    """A revision comes when it comes: its status has neither number."""
    world = World(45, 4, checking=False)
    spec, _ = begun(world, 60_000, query=replace(plan(2), promise=TWO_P99))
    world.run(15_000)
    victim = next(a for a in world.agents if a.address != world.leader(spec).address)
    victim.crash()
    world.run(12_000)
    world.restart(victim)
    world.run(30_000)
    found = statuses(world, spec)
    revised = [one for one in found if one["revision"]]
    assert revised, "the agent's rows came as revisions"
    assert all(one["promised_ms"] is None and one["took_ms"] is None for one in revised)
    assert all(one["promised_ms"] for one in found if not one["revision"])


def test_a_shorter_lateness_is_named_with_the_rows_that_it_would_leave_out() -> None:
    world = World(47, 2, checking=False)
    begun(world, 14_000, query=plan(1, lateness_us=2_000_000), rate_ms=2)
    world.run(14_000)
    text, told = asked(world, 1, "EXPLAIN LATENCY job")
    shares = {one["lateness_ms"]: one["share"] for one in told["late_if"]}
    assert list(shares.values()) == sorted(shares.values(), reverse=True)
    assert told["shorter"]["lateness_ms"] == min(ms for ms, share in shares.items() if share <= 1e-4)
    assert told["shorter"]["told"] in text


def test_the_last_windows_say_whether_a_promise_is_kept() -> None:
    query = plan(2)
    kept, promise = Kept(), Promise(500_000, 99.0)
    assert is_kept(promise, kept.work(promise)) is None
    assert "no window" in promise_told(promise, kept.work(promise))
    assert promise_told(promise, None).endswith("does not answer")
    due_ms = query.due_us(2_000_000) // 1000
    kept.committed(query, promise, [2_000_000] * 99, due_ms + 500)
    assert kept.committed(query, promise, [2_000_000], due_ms + 501) == 1
    work = kept.work(promise)
    assert (work.windows, work.kept, work.mean_ms, work.quantile_ms) == (100, 99, 500, 500)
    assert is_kept(promise, work)
    kept.committed(query, promise, [2_000_000], due_ms + 900)
    assert is_kept(promise, kept.work(promise)) is False
    mean = Promise(500_000, None)
    assert is_kept(mean, kept.work(mean)) is False
    kept.committed(query, promise, [2_000_000] * LAST, due_ms - 3)
    assert kept.work(mean) == kept.work(mean).__class__(LAST, LAST, 0, 0), "what is early took nothing"


@pytest.mark.parametrize(
    ("end", "due_us"),
    [
        ("WINDOWING 10 SECONDS LATENESS 3 SECONDS", 63_000_000),
        ("WINDOWING 7 SECONDS SLIDE 2 SECONDS LATENESS 0 SECONDS", 60_000_000),
        ("WINDOWING 10 SECONDS", 64_000_000),
    ],
)
def test_a_window_is_due_at_the_end_of_its_last_pane_and_lateness(end: str, due_us: int) -> None:
    text = f"SELECT COUNT(*) AS n FROM x {end} WITHIN 500 MILLISECONDS FOR 99 PERCENT"
    found = replace(plan_text(text, SCHEMA), chosen=Chosen(lateness_us=4_000_000))
    assert found.due_us(60_000_000) == due_us
    assert found.fragment == plan_text(f"SELECT COUNT(*) AS n FROM x {end}", SCHEMA).fragment, (
        "flows are shared"
    )
