"""Jobs that are changed while they run: each window is of one version, whole, and none is missing."""

from __future__ import annotations

import os
import random
from functools import partial
from itertools import pairwise

import pytest

import overlay as ring
from agents.codec import Message, pack
from elf.fields import replace
from elf.job.catalog.readers import is_read
from elf.job.effects import CommitWindows, Disbelieved, SaveJob
from elf.job.group.master import Master
from elf.job.messages.groups import ReconfigureJob
from elf.job.messages.log import Follow, VersionEnded
from elf.job.rollup.panes import Panes, Segment
from elf.job.spec import Flow, JobSpec, VersionRecord
from elf.windows import Landmark, Sliding
from elf.wire.base import Answer
from lab.chaos.agent import SimAgent
from lab.chaos.engine import SECOND, defined, plan, plan_of, spec_of
from lab.chaos.reference import DROPPING, reducing
from lab.chaos.world import World
from tests.support.histories import begun
from tests.support.versions import answered, check, reconfigure, said, state, truth, versions

SEEDS = range(int(os.environ.get("ELF_TEST_SEEDS", "1")))
"""Of random histories. More: ``ELF_TEST_SEEDS=50 pytest tests/job/test_versions.py -k random``."""


def test_nobody_routes_the_wish_for_another_version() -> None:
    """Its leader may have said it, or anybody on the way."""
    world = World(4, 2)
    spec, _ = begun(world, 5_000)
    lead = world.leader(spec)
    wish = ReconfigureJob(id=1, origin=lead.address, uid=spec.uid, verb="pause")
    brought = ring.Delivered(bytes(16), pack(wish), lead.address, 1)
    why = "it must come from who says it"
    assert lead.node.settle([brought], world.now) == [Disbelieved("ReconfigureJob", lead.address, why)]
    assert next(m for m in lead.node.job_groups.jobs() if m.spec.uid == spec.uid).state == "active"


BOTH = (Sliding(2 * SECOND, 2 * SECOND), Sliding(8 * SECOND, 2 * SECOND))


@pytest.mark.parametrize("reader_first", [True, False])
def test_a_reader_and_a_change_that_do_not_know_of_each_other(reader_first: bool) -> None:
    """One of them is refused, by the order of the log: the other's agent has not heard of it when it asks."""
    world = World(5, 3)
    spec, _ = begun(world, 20_000, query=plan(4, 2), rate_ms=400)
    over_it = replace(plan(4, 2, least=1), reads=(spec.uid,), read_as=(spec.plan.identity,))
    if reader_first:
        world.submit(1, over_it, "reader", "client:1")
        world.run(150)  # its proposal is with the voters, and the job group has not heard
    reconfigure(world, spec, "alter", plan(4, 2, least=3))
    if not reader_first:
        world.run(100)
        world.submit(1, over_it, "reader", "client:1")
    world.run_until(lambda: len(world.client_inbox) == 2, 10_000)
    errors = {one.error for one in world.client_inbox if isinstance(one, Answer)}
    world.client_inbox.clear()
    first = f"nothing is changed: {is_read('job', ['reader'])}"
    second = "job job, which it reads, has been changed meanwhile; try again"
    assert errors == {"", first if reader_first else second}
    world.run(3_000)
    leader = world.leader(spec)
    assert leader.node.log.read_by(spec.uid) == (("reader",) if reader_first else ())
    current = max(n for n, one in versions(world, spec).items() if one.state == "committed")
    assert current == (1 if reader_first else 2)
    assert next(m for m in leader.node.job_groups.jobs() if m.spec.uid == spec.uid).state == "active"


def test_what_a_job_does_by_itself_pushes_out_no_version_of_a_person() -> None:
    """All the same there is an end to them: the record names no more than it did."""
    world = World(42, 2)
    spec, _ = begun(world, 20_000, query=plan(4), rate_ms=400)

    def record(n: int) -> VersionRecord:
        return VersionRecord(replace(spec, version=n), "finished", first_pane=0, by_itself=4 <= n < 40)

    def named(last: int) -> list[int]:
        master = Master([record(n) for n in range(1, last)], state="active")
        spec_of_last = replace(defined_as(master.spec, 5 + last), version=last)
        saved = master.alter(spec_of_last, "", 0, by_itself=4 <= last < 40)
        (kept,) = (one.versions for one in saved if isinstance(one, SaveJob))
        assert kept[-1].by_itself == (4 <= last < 40)
        return [one.spec.version for one in kept]

    assert named(10) == list(range(1, 11))
    assert named(39) == [1, 2, 3, *range(23, 40)]
    assert named(50) == [1, 2, 3, *range(34, 51)]
    assert named(80) == list(range(61, 81))


def defined_as(spec: JobSpec, least: int) -> JobSpec:
    """A job that does another thing."""
    return replace(spec, definition=defined(plan(4, least=least)))


def test_another_filter_takes_over_at_one_moment_and_the_old_flow_ends() -> None:
    world = World(41, 4)
    spec, until = begun(world, 26_000, query=replace(plan(8, 2), windows=BOTH), rate_ms=400)
    world.run(9_000)
    reconfigure(world, spec, "alter", plan(2, where="abc"), note="ALTER …")
    assert answered(world) == ""
    world.run(8_000)
    assert {len(agent.worker.flows()) for agent in world.agents} == {2}, "the old flow lasts its grace"
    world.run_until(lambda: state(world, spec, 1) == "finished", 6_000)
    first, second = versions(world, spec).values()
    assert second.state == "committed"
    assert second.first_pane is not None
    assert first.until_us == second.first_pane * 2 * SECOND
    world.run(20_000)
    windows = check(world, spec, until, least=8)
    straddling = [s for s, one in windows.items() if one[0] == 1 and s[1] > first.until_us]
    assert straddling, "windows that had begun are the old version's to their end"
    assert {len(agent.worker.flows()) for agent in world.agents} == {1}


def test_more_and_fewer_trees_take_over_at_one_moment() -> None:
    world = World(45, 4)
    spec, until = begun(world, 34_000, rate_ms=400)
    world.run(6_000)
    roots = tuple(agent.address for agent in world.agents[:2])
    reconfigure(world, spec, "alter", replace(plan(2), trees=3), note="ALTER … TREES 3", roots=roots)
    assert answered(world) == ""
    world.run_until(lambda: state(world, spec, 1) == "finished", 20_000)
    assert len(versions(world, spec)[2].spec.flows) == 3
    world.run(6_000)
    reconfigure(world, spec, "alter", plan(2), note="ALTER … TREES 1")
    assert answered(world) == ""
    world.run_until(lambda: state(world, spec, 2) == "finished", 20_000)
    world.run(max(0, until - world.now) + 6_000)
    windows = check(world, spec, until, least=12)
    assert {one[0] for one in windows.values()} == {1, 2, 3}


def test_what_only_the_master_does_needs_no_new_flow_and_can_be_rolled_back() -> None:
    world = World(42, 4)
    spec, until = begun(world, 24_000, rate_ms=400)
    world.run(5_000)
    reconfigure(world, spec, "alter", plan(6, 2, least=3), note="ALTER …")
    assert answered(world) == ""
    reconfigure(world, spec, "alter", plan(6, 2, least=3))
    assert answered(world) == "nothing changes: that is what version 2 does"
    reconfigure(world, spec, "rollback", version=7)
    assert answered(world) == "there is no version 7 to go back to; versions: 1, 2"
    reconfigure(world, spec, "alter", plan(2), version=1)
    assert answered(world) == "it has changed meanwhile"
    world.run(6_000)
    reconfigure(world, spec, "rollback", version=1, immediately=True)
    assert answered(world) == ""
    world.run(22_000)
    windows = check(world, spec, until, least=6)
    assert [one.spec.flows for one in versions(world, spec).values()] == 3 * [spec.flows]
    skipped = {span for span, one in windows.items() if one[3]["skipped"]}
    cut = versions(world, spec)[2].until_us
    assert skipped == {s for s, one in windows.items() if one[0] == 2 and s[1] > cut}
    assert len(skipped) == 2, "of three windows that begin each 6 s, those that lie across"


def test_a_final_function_that_fails_costs_no_window_and_is_taken_out() -> None:
    world = World(49, 4)
    query = replace(plan(8, 2), windows=BOTH)
    spec, until = begun(world, 32_000, query=query, rate_ms=400)
    world.run(4_000)
    reconfigure(world, spec, "alter", replace(query, final=DROPPING), note="ALTER …")
    assert answered(world) == ""
    world.run_until(lambda: any(one[0] == 2 for one in said(world, spec).values()), 20_000)
    world.agents[1].log.rows.append((world.now * 1000, "boom"))
    world.run_until(lambda: 3 in versions(world, spec), 20_000)
    world.leader(spec).crash()  # whoever leads the job group next goes on with what is pending
    world.run_until(lambda: state(world, spec, 3) == "committed", 20_000)
    world.run(30_000)
    windows = check(world, spec, until, least=8)
    read = {flow.uid for one in versions(world, spec).values() for flow in one.spec.flows}
    assert read == {flow.uid for flow in spec.flows}
    _, second, third = versions(world, spec).values()
    assert third.spec.plan == query
    assert "dropped its final function by itself: dropping.py:4: ValueError: boom" in third.note
    assert second.state == "finished"
    assert second.ends_us == third.after_us, "what is not made yet is the new version's at once"
    failed = {span for span, one in windows.items() if one[3]["function_failed"]}
    assert failed
    assert all(windows[span][0] == 2 for span in failed)
    assert any("boom" in one[2] for one in windows.values()), "its rows are there"
    assert any(one[0] == 2 and "a" not in one[2] for one in windows.values()), "what the function made"


def test_pause_resume_and_what_is_refused_when() -> None:
    world = World(43, 3)
    spec, until = begun(world, 38_000, rate_ms=400)
    world.run(6_500)
    reconfigure(world, spec, "resume")
    assert answered(world) == "it runs: only a paused job can be resumed"
    reconfigure(world, spec, "empty")
    assert "no landmark windows" in answered(world)
    reconfigure(world, spec, "pause")
    assert answered(world) == ""
    reconfigure(world, spec, "alter", plan(4))
    assert answered(world) == "it is paused: RESUME JOB job first"
    world.run_until(lambda: all(a.node.log.is_paused(spec.uid) for a in world.agents))
    reconfigure(world, spec, "pause")
    assert answered(world) == "it is paused already"
    before = said(world, spec)
    world.run(14_000)
    assert said(world, spec).keys() == before.keys()
    assert {len(agent.worker.flows()) for agent in world.agents} == {0}
    reconfigure(world, spec, "resume")
    assert answered(world) == ""
    world.run(20_000)
    windows = check(world, spec, until, least=5)
    assert {one[0] for one in windows.values()} == {1, 2}
    reconfigure(world, spec, "alter", plan(4), note="ALTER …")
    world.drop(spec)
    world.run(14_000)
    assert all(not a.node.log.jobs() and not a.worker.flows() for a in world.agents)


def test_a_change_that_nobody_answers_is_aborted_and_the_job_goes_on() -> None:
    world = World(44, 4)
    world.group_members = 1
    spec, until = begun(world, 30_000, rate_ms=400)
    leader = world.leader(spec)
    world.run(4_000)
    world.isolated.add(leader.address)
    reconfigure(world, spec, "alter", plan(2, where="abc"), note="ALTER …")
    reconfigure(world, spec, "alter", plan(4))
    assert "another change of it is under way" in answered(world)
    assert answered(world) == "nothing is changed: nobody answered in 6 s (the catalog log is away)"
    world.isolated.clear()
    world.run(25_000)
    check(world, spec, until, least=8)
    assert versions(world, spec)[2].note.startswith("ALTER …; aborted: nobody answered")
    assert all(
        a.node.log.is_over(spec.uid, 2) and a.node.log.version(spec.uid, 2) is None for a in world.agents
    )
    reconfigure(world, spec, "alter", plan(2, where="abc"))
    assert answered(world) == ""
    assert sorted(versions(world, spec)) == [1, 2, 3], "a number is given once"


@pytest.mark.parametrize("by_itself", [True, False])
def test_what_a_job_prepares_by_itself_gives_way_to_a_person(by_itself: bool) -> None:
    world = World(48, 4)
    spec, until = begun(world, 30_000, rate_ms=400)
    world.run(4_000)
    reconfigure(world, spec, "alter", plan(2, where="abc"), note="rows", by_itself=True)
    reconfigure(world, spec, "alter", plan(4, 2), note="other rows", by_itself=by_itself)
    world.run_until(lambda: len(world.client_inbox) == 2, 20_000)
    errors = {one.error for one in world.client_inbox if isinstance(one, Answer)}
    world.client_inbox.clear()
    world.run(26_000)
    check(world, spec, until, least=8)
    if by_itself:
        assert errors == {"", "another change of it is under way; wait until that one is answered"}
        assert sorted(versions(world, spec)) == [1, 2]
        return
    assert errors == {"", "nothing is changed: somebody has asked for another change"}
    assert [one.state for one in versions(world, spec).values()] == ["finished", "aborted", "committed"]
    assert all(a.node.log.is_over(spec.uid, 2) for a in world.agents)


def test_a_restarted_master_finishes_what_was_pending() -> None:
    world = World(45, 4)
    spec, until = begun(world, 26_000, rate_ms=400)
    world.run(4_000)
    leader = world.leader(spec)
    reconfigure(world, spec, "alter", plan(2, where="abc"), note="ALTER …")
    world.run_until(lambda: 2 in versions(world, spec))
    assert versions(world, spec)[2].state == "preparing"
    leader.crash()
    world.run(1_000)
    world.restart(leader)
    world.run_until(lambda: state(world, spec, 2) == "committed")
    leader.crash()
    world.run(500)
    world.restart(leader)
    world.run(26_000)
    check(world, spec, until, least=8)
    assert versions(world, spec)[1].state == "finished"


def test_a_job_goes_on_with_its_versions_when_its_master_moves_for_good() -> None:
    world = World(48, 5)
    world.group_members = 3
    spec, until = begun(world, 40_000, rate_ms=400)
    world.run(6_000)
    reconfigure(world, spec, "alter", plan(4, 2, least=2), note="ALTER …")
    assert answered(world) == ""
    first = world.leader(spec)
    reconfigure(world, spec, "alter", plan(2, where="abc"), note="ALTER again …")
    world.run_until(lambda: 3 in versions(world, spec))
    first.crash()
    world.at(world.now + 12_000, lambda: world.restart(first))
    world.run_until(lambda: world.leader(spec) is not first, 20_000)
    world.run_until(lambda: state(world, spec, 3) in ("committed", "aborted"), 20_000)
    reconfigure(world, spec, "alter", plan(6, 2), note="ALTER from the new master …")
    assert answered(world) == ""
    assert sorted(versions(world, spec)) == [1, 2, 3, 4]
    world.run(max(0, until - world.now) + 24_000)
    check(world, spec, until, least=8)
    logs = [agent.node.log for agent in world.agents]
    assert {log.job(spec.uid).leader for log in logs} == {world.leader(spec).address}  # type: ignore[union-attr]
    (master,) = world.leader(spec).node.job_groups.jobs()
    assert {flow.uid for flow in logs[0].flows()} == {f.uid for v in master.live() for f in v.spec.flows}
    assert {flow.leader for flow in logs[0].flows()} == {world.leader(spec).address}


LANDMARK = (Landmark(2 * SECOND),)


def test_a_landmark_is_kept_or_the_change_refused() -> None:
    world = World(46, 3)
    first, until = begun(world, 24_000, rate_ms=400)
    world.run(3_000)
    world.drop(first)
    spec = world.create(1, plan_of(LANDMARK), "since")
    world.run(6_000)
    other = replace(spec.plan, fragment=replace(spec.plan.fragment, map_sql="count by key, with ends, else"))
    reconfigure(world, spec, "alter", other)
    assert "its landmark windows hold rows that the old query chose" in answered(world)
    reconfigure(world, spec, "alter", replace(spec.plan, final_sql="4"), note="ALTER …")
    assert answered(world) == ""
    world.run(5_000)
    reconfigure(world, spec, "empty")
    assert answered(world) == ""
    world.run(4_000)
    reconfigure(world, spec, "alter", other, reset=True, note="ALTER … RESET")
    assert answered(world) == ""
    world.run(20_000)
    records, windows = versions(world, spec), said(world, spec)
    starts = {n: {s for (s, _), one in windows.items() if one[0] == n} for n in records}
    assert records[2].first_pane == records[1].first_pane, "it goes on"
    mark, emptied = records[2].landmarks
    assert starts[1] == {mark}
    assert starts[2] == {mark, emptied}
    last = records[3].first_pane
    assert last is not None
    assert starts[3] == {last * 2 * SECOND}
    assert records[1].ends_us == records[2].after_us
    for span, (version, _, counts, _) in windows.items():
        if span[1] <= (until - 1_500) * 1000:
            least = 4 if version == 2 else 0
            assert counts == truth(world, plan(2, least=least), span), (version, span)
    ends = sorted(end for _, end in windows)
    assert len(ends) == len(set(ends)), "one window an end: none is missing, none is twice"
    assert max(b - a for a, b in pairwise(ends) if b < until * 1000) <= 4 * SECOND


@pytest.mark.parametrize("seed", SEEDS)
def test_random_changes_crashes_loss_and_doubles_never_mix_versions(seed: int) -> None:
    rng = random.Random(seed)
    world = World(400 + seed, 4, loss=0.03, doubles=0.03)
    spec, until = begun(world, 34_000, through=seed % 4, query=plan(4, 2), rate_ms=400)
    world.crash_share = 0.003
    for _ in range(7):
        world.run(rng.randrange(1_500, 4_500))
        leader = world.leader(spec)
        where, least = rng.choice(["", "", "abc", "bd"]), rng.choice([0, 0, 2])
        size, slide = rng.choice([(2, 2), (4, 2), (6, 2), (3, 1), (4, 4)])
        paused = leader.up and any(master.state == "paused" for master in leader.node.job_groups.jobs())
        verb = "resume" if paused else rng.choice(["alter"] * 7 + ["pause", "rollback", "rollback"])
        query = plan(size, slide, where=where, least=least) if verb == "alter" else None
        if query is not None and rng.random() < 0.25:
            query = replace(query, windows=(*query.windows, Sliding(8 * SECOND, 4 * SECOND)))
        if query is not None and rng.random() < 0.3:
            query = replace(query, final=DROPPING)
        if query is not None and rng.random() < 0.3:
            query = reducing(query)
        if rng.random() < 0.2:
            line = rng.choice(["boom", "bang"])
            world.agents[rng.randrange(4)].log.rows.append((world.now * 1000, line))
        reconfigure(world, spec, verb, query, version=rng.randrange(1, 4), immediately=rng.random() < 0.3)
        if rng.random() < 0.3:
            victim = rng.choice(world.agents)
            victim.crash()
            world.at(world.now + rng.choice([200, 2_000, 7_000]), partial(world.restart, victim))
    world.crash_share, world.loss, world.doubles = 0.0, 0.0, 0.0
    world.run(2_000)
    for agent in world.agents:
        world.restart(agent)
    world.run(max(0, until - world.now) + 22_000)
    check(world, spec, until, least=0)
    (master,) = world.leader(spec).node.job_groups.jobs()
    assert master.state in ("active", "paused")
    flows = {flow.uid for v in master.live() for flow in v.spec.flows}
    assert {flow.uid for flow in world.agents[0].node.log.flows()} == flows, "no version keeps a flow it left"


def test_one_name_twice_at_once_by_one_creator_is_one_job_and_one_clear_error() -> None:
    world = World(47, 3)
    world.start_all()
    for n in range(2):
        world.submit(n, plan(2 + n), "twice", f"client:{n}")
    world.run_until(lambda: len(world.client_inbox) == 2)
    errors = sorted(answer.error for answer in world.client_inbox if isinstance(answer, Answer))
    assert errors == ["", "job twice exists already; DROP JOB twice first, or choose another name"]
    assert [spec.name for spec in world.agents[2].node.log.jobs()] == ["twice"]


def test_what_a_new_version_brings_reaches_all_members_down_the_tree() -> None:
    """The ends of versions concern nobody and are told to nobody: they must not hold up what comes next."""

    class Unasked(World):
        asked = True

        def send(self, agent: SimAgent, to: str, message: Message) -> None:
            if self.asked or not isinstance(message, Follow):
                super().send(agent, to, message)

    world = Unasked(47, 8)
    spec, _ = begun(world, 1, query=plan(2))
    world.run(2_500)
    world.asked = False
    for number in range(2, 5):
        reconfigure(world, spec, "alter", plan(2, where="abcd"[:number]))
        assert answered(world) == ""
        world.run_until(lambda n=number: all(a.node.log.version(spec.uid, n) for a in world.agents), 500)  # type: ignore[misc]
        world.run(500)
    assert any(isinstance(entry, VersionEnded) for entry in world.entries)


def test_the_next_leader_makes_windows_again_whenever_its_log_has_the_job() -> None:
    """Panes had changed, and the one before died over it. The catalog log of an agent may come to a job long
    after the job's group has."""
    query = plan(4, 2)
    flow = Flow("f" * 24, query.fragment, bytes(16), "home")
    spec = spec_of("job", "me", 1, query, (flow,))
    assert query.fragment.pane_us == 2 * SECOND
    committed = [Segment(pane, pane + 1, pane == 7, 0b11, 0) for pane in range(4, 12)]
    master = Master(
        (VersionRecord(spec, "committed", first_pane=4),), state="active", assembled={1: 24 * SECOND}
    )
    assert master.assemble() == []
    (work,) = master.attach(master.current, spec, [Panes(flow, committed)])
    assert isinstance(work, CommitWindows)
    assert (work.first_us, work.last_us, work.revised) == (14 * SECOND, 18 * SECOND, (7, 8))
    assert master.wanted_from(flow.uid, settled=20) == 6, "the window from 12 s on has pane 7"
    assert master.windows_committed(work) == []
    assert master.wanted_from(flow.uid, settled=20) > 7
