"""Job groups are Raft groups, on virtual time: a job goes on without the agent that was its master,
exactly."""

from __future__ import annotations

import os
from collections import Counter
from functools import partial

import pytest
from msgspec.structs import replace

from agents.disk import groupstore
from agents.disk.store import Store
from agents.node.groups import JobGroupMachine
from elf.errors import ElfBug
from elf.job import events as was
from elf.job.catalog.log import CatalogLog
from elf.job.commits import PaneCommit, WindowCommit
from elf.job.effects import CommitWindows, PruneWindows
from elf.job.group import records
from elf.job.group.commits import alone
from elf.job.group.group import WINDOWS_KEPT, JobGroup
from elf.job.group.master import Master
from elf.job.group.port import Apply, Commit, Drafted
from elf.job.group.records import JointCommit, encode, group_key, record_of
from elf.job.rollup.decide import RootSettings
from elf.job.spec import VersionRecord
from elf.wire.base import Answer
from elf.wire.clients import Execute, KeepAlive, Published, Reply
from lab.chaos.engine import SECOND, plan
from lab.chaos.world import World
from tests.support.histories import begun, settled
from tests.support.jobgroups import agree, exact, last_end, members, moved, staffed
from tests.support.versions import reconfigure
from tests.support.window_commits import spec as made_of

SEEDS = range(int(os.environ.get("ELF_TEST_SEEDS", "1")))
"""Of random histories."""


def test_the_master_dies_for_good_and_its_windows_go_on() -> None:
    world = World(81, 5)
    spec, until = begun(world, 40_000)
    staffed(world, spec, 5)
    world.run(3_000)
    lead = world.leader(spec)
    lead.crash()
    moved(world, spec, lead)
    world.run(until - world.now + 12_000)
    exact(world, spec, until, 12, (lead,))
    log = world.leader(spec).store.load_groups()[group_key(spec.uid)].entries
    said = Counter(type(record_of(entry.payload)) for entry in log if entry.payload)
    assert said[JointCommit] >= 12, "a pane and its window are one record (protocol 5.11)"
    assert not said[WindowCommit]


@pytest.mark.parametrize("seed", [84, 88])
def test_windows_go_on_soon_after_the_master_has_died(seed: int) -> None:
    """3.2 s until it is missed at the latest, then an election, one word of the log, and what all agents owe:
    nobody waits for a period of anything, and not for the dead one."""
    world = World(seed, 5)
    spec, _ = begun(world, 40_000)
    staffed(world, spec, 5)
    world.run(3_000 + 37 * seed % 1_000)
    world.leader(spec).crash()
    now_us = world.now * 1_000
    world.run_until(lambda: last_end(world, spec) > now_us, 4_200)


def test_three_agents_lose_one_master_and_it_comes_back_as_a_member() -> None:
    world = World(82, 3)
    spec, until = begun(world, 50_000)
    staffed(world, spec, 3)
    world.run(3_000)
    lead = world.leader(spec)
    lead.crash()
    moved(world, spec, lead)
    world.restart(lead)
    world.run(3_000)
    second = world.leader(spec)
    assert second is not lead
    second.crash()
    moved(world, spec, second)
    world.restart(second)
    world.run(until - world.now + 15_000)
    exact(world, spec, until, 16)


def test_two_of_five_members_die_at_once_the_master_among_them() -> None:
    world = World(83, 7)
    spec, until = begun(world, 40_000)
    group = staffed(world, spec, 5)
    world.run(3_000)
    lead = world.leader(spec)
    other = next(agent for agent in group if agent is not lead)
    lead.crash()
    other.crash()
    moved(world, spec, lead)
    world.run(until - world.now + 12_000)
    exact(world, spec, until, 12, (lead, other))


@pytest.mark.parametrize("seed", range(3))
def test_a_master_that_is_cut_off_while_it_commits_commits_nothing_more(seed: int) -> None:
    world = World(84 + seed, 5)
    spec, until = begun(world, 50_000)
    staffed(world, spec, 5)
    world.run(7_000 + 37 * seed)
    lead = world.leader(spec)
    before = last_end(world, spec)
    world.isolated.add(lead.address)
    others = [agent for agent in world.agents if agent is not lead]
    world.run_until(lambda: any(agent.node.job_groups.has(spec.uid) for agent in others), 20_000)
    moved(world, spec, lead)
    mine = lead.store.last_windows(spec.uid, 1)[0].last_end
    assert mine <= before + 3 * SECOND, "it needs a majority"
    world.isolated.clear()
    world.run_until(lambda: not lead.node.job_groups.has(spec.uid), 20_000)
    world.run(until - world.now + 15_000)
    exact(world, spec, until, 16)


def test_a_new_member_begins_with_a_state_and_leads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Logs are made states all the time; a dead member is replaced; then only the new one has seen it all."""
    monkeypatch.setattr("agents.node.groups.COMPACT_BYTES", 4_000)
    world = World(90, 4)
    world.root_settings = RootSettings(grace_ms=4_000)
    spec, until = begun(world, 70_000)
    group = staffed(world, spec, 3)
    world.run(6_000)
    lead = world.leader(spec)
    lost = next(agent for agent in group if agent is not lead)
    fresh = next(agent for agent in world.agents if agent not in group)
    lost.crash()
    world.run_until(lambda: fresh in members(world, spec), 40_000)
    world.run(4_000)
    assert fresh.store.load_groups()[group_key(spec.uid)].snapshot.index > 1
    assert {r.last_end for r in fresh.store.windows(spec.uid, 0, 1 << 62)} >= {
        r.last_end for r in lead.store.windows(spec.uid, 0, (world.now - 4_000) * 1_000)
    }
    other = next(agent for agent in group if agent not in (lead, lost))
    world.restart(lost)
    world.run_until(lambda: {fresh, other} < set(members(world, spec)), 20_000)
    desk = lead.node.catalog.desk
    steps = desk._take(desk.groups.transfer(group_key(spec.uid), fresh.address, world.now), world.now)
    lead.perform(lead.node.settle(steps, world.now))
    world.run_until(lambda: world.leader(spec) is fresh, 20_000)
    world.run(until - world.now + 15_000)
    exact(world, spec, until, 20)


def test_a_master_leaves_and_hands_its_jobs_over() -> None:
    world = World(88, 4)
    spec, until = begun(world, 40_000)
    staffed(world, spec, 3)
    world.run(3_000)
    lead = world.leader(spec)
    lead.perform(lead.node.leave(world.now))
    world.run_until(lambda: not lead.up, 40_000)
    assert "left" in lead.ended
    assert group_key(spec.uid) not in lead.store.load_groups()
    world.run(until - world.now + 12_000)
    windows = settled(world, spec, until)
    assert len(windows) >= 12
    agree(world, spec)


def test_a_master_leaves_while_another_member_is_dead() -> None:
    """Its next leader must not take the dead one for alive because it never listened to it: of the two that
    would be left it could not go on alone. Another member comes first."""
    world = World(93, 6)
    world.group_members = 3
    spec, until = begun(world, 40_000)
    (lead, dead, other) = staffed(world, spec, 3)
    assert lead is world.leader(spec)
    world.run(3_000)
    dead.crash()
    dead.ended = "gone"
    world.run(4_500)
    lead.perform(lead.node.leave(world.now))
    world.run_until(lambda: not lead.up, 40_000)
    assert group_key(spec.uid) not in lead.store.load_groups(), "it was let go"
    world.run(until - world.now + 12_000)
    assert len(settled(world, spec, until)) >= 12
    assert other.address in world.leader(spec).node.job_groups.voters(spec.uid)
    agree(world, spec)


def test_a_dropped_job_leaves_nothing_on_any_member() -> None:
    world = World(89, 5)
    spec, _ = begun(world, 20_000)
    staffed(world, spec, 5)
    world.run(5_000)
    world.drop(spec)
    world.run(20_000)
    for agent in world.agents:
        assert group_key(spec.uid) not in agent.store.load_groups()
        assert agent.store.load_jobs() == []
        assert agent.store.windows(spec.uid, -(1 << 62), 1 << 62) == []
        assert agent.store.flows() == {}


@pytest.mark.parametrize("seed", SEEDS)
def test_masters_die_and_come_back_under_loss_and_doubles(seed: int) -> None:
    world = World(900 + seed, 5, loss=0.02, doubles=0.05)
    spec, until = begun(world, 60_000)
    world.crash_share = 0.002
    while world.now < until - 10_000:
        world.run(6_000)
        lead = world.leader(spec)
        if world.rng.random() < 0.7 and lead.up:
            lead.crash()
            world.at(world.now + world.rng.choice([500, 4_000, 12_000]), partial(world.restart, lead))
    world.crash_share = 0.0
    world.run(14_000)
    for agent in world.agents:
        world.restart(agent)
    world.run(50_000)
    windows = settled(world, spec, until)
    assert len(windows) >= 15
    for start, (_, counts, status) in windows.items():
        assert counts == world.truth(spec, start, status["missing"]), (start, status)
    agree(world, spec)


def test_records_are_in_the_order_in_which_they_were_wanted() -> None:
    """The group takes none while it hands its leadership over, to somebody who cannot be reached: what came
    in that time comes before what is wanted after it."""
    world = World(97, 5)
    spec, _ = begun(world, 20_000)
    others = [agent for agent in staffed(world, spec, 5) if agent is not world.leader(spec)]
    lead, groups = world.leader(spec), world.leader(spec).node.catalog.desk.groups
    world.isolated = {others[0].address}
    lead.perform(groups.transfer(group_key(spec.uid), others[0].address, world.now))  # type: ignore[arg-type]
    leadership = groups._groups[group_key(spec.uid)].leadership
    assert leadership is not None
    reconfigure(world, spec, "pause")
    states = [lead.store.load_jobs()[0].state]
    while states[-1] != "active" or len(states) == 1:
        moving = leadership._moving is not None
        world.run(1)
        if moving and leadership._moving is None:
            reconfigure(world, spec, "resume")
        state = lead.store.load_jobs()[0].state
        states += [state] if state != states[-1] else []
        assert world.now < 1_040_000, states
    assert states == ["active", "paused", "resuming", "active"]


def test_a_commit_that_was_known_by_its_name_is_completed_by_a_state() -> None:
    """And the other way round it stays complete; another word on it is a bug as ever."""
    store = Store(":memory:")
    whole = PaneCommit("f" * 24, 3, 4, 0, b"\1", 1, b"tally", b"rows", seq=5)
    for fact in (whole.bare, whole, whole.bare, whole):
        assert groupstore.apply(store, encode(fact)) == (5,)
    (row,) = store.pane_commits("f" * 24, 0, 9)
    assert (row.members, row.counters, row.payload, row.seq) == (b"\1", b"tally", b"rows", 5)
    with pytest.raises(ElfBug):
        groupstore.apply(store, encode(replace(whole, payload=b"others")))


def test_what_was_too_large_to_be_told_is_not_taken_for_the_next_leaders() -> None:
    """Its commit of the same panes has other members, and is told by the same words."""
    whole = PaneCommit("f" * 24, 3, 4, 0, b"\1", 1, b"tally", b"rows", seq=5)
    told = encode(whole.bare)
    for led_on, expected in ((True, encode(whole)), (False, told)):
        machine = JobGroupMachine(bytes(16))
        machine.wants(Commit("", 1, told, encode(whole)))
        if not led_on:
            machine.wants_no_more()
        (effect,) = machine.apply(told)
        assert isinstance(effect, Apply)
        assert effect.record == expected


def test_windows_with_which_a_record_is_too_large_are_not_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are made when their panes are committed (protocol 5.11)."""
    job = made_of(1, 1)
    panes = PaneCommit("f" * 24, 3, 4, 0, b"\1", 1, b"tally", b"rows", seq=5)
    row = WindowCommit(job.uid, 3, 4, 0, 1, False, b"", b"", b"")
    wanted = CommitWindows(job, 3, 4, (), ())
    record = encode(JointCommit(panes, (row,)))
    assert record_of(record, job.uid) == JointCommit(panes, (row,))
    assert isinstance(record_of(record, made_of(2, 1).uid[::-1]), str), "it is of another job"
    draft = Drafted(wanted, was.WindowsCommitted(wanted, None), record, (was.WindowsCommitted(wanted, None),))
    assert alone(draft) is draft
    monkeypatch.setattr(records, "RECORD_BYTES_MAX", len(record) - 1)
    assert (record_of(alone(draft).record), alone(draft).windows) == (panes, ())


def test_what_a_master_has_committed_outlives_a_start_before_the_log_knows_of_it() -> None:
    """A member of a job group's group may die before its catalog log has come to the job."""
    world = World(98, 3)
    begun(world, 1_000)
    agent = world.agents[2]
    agent.store.save_flow("of a job to come", 3)
    agent.store.save_flow("f.copy1", 3)
    agent.crash()
    world.restart(agent)
    assert "of a job to come" in agent.store.flows()
    assert "f.copy1" not in agent.store.flows()


def test_no_job_knows_where_a_flow_begins_before_a_majority_has_it() -> None:
    """A job of another job group might keep it, and the flow begin elsewhere, when the root is cut off
    then."""
    world = World(100, 6)
    world.start_all()
    world.agents[5].crash()  # the root waits for its word; meanwhile the job group has members
    world.submit(1, plan(2), "job", "client:1")
    job_groups = [agent for agent in world.agents if agent.up]
    firsts: list[int] = []
    while not firsts:
        world.run(1)
        told = (agent.node.job_groups.roots for agent in job_groups)
        found = [roots.get(uid) for roots in told for uid in roots.topics()]
        firsts = [root.first_pane for root in found if root is not None and root.first_pane is not None]
        assert world.now < 1_020_000
    (lead,) = (agent for agent in job_groups if agent.node.job_groups.jobs())
    assert len(members(world, lead.node.job_groups.jobs()[0].spec)) > 1
    assert [*lead.store.flows().values()] == firsts, "applied here, so committed"


def test_who_creates_a_job_hears_of_it_when_a_majority_has_it() -> None:
    world = World(99, 4)
    world.start_all()
    world.submit(1, plan(2), "job", "client:1")
    world.run_until(lambda: bool(world.client_inbox))
    (answer,) = world.client_inbox
    assert isinstance(answer, Answer)
    assert answer.error == ""
    (lead,) = (a for a in world.agents if a.node.job_groups.jobs())
    assert [job.state for job in lead.store.load_jobs()] == ["active"]


def test_a_reader_to_whom_windows_come_all_the_time_is_not_forgotten() -> None:
    """Each one shows that its job group lives; the job group must hear of the reader too, or it waits for its
    turn."""
    world = World(31, 3)
    world.start_all()
    spec = world.create(0, plan(1))
    for agent in world.agents:
        world.write(agent, world.now + 16_000)
    lead = world.leader(spec)
    reader = next(agent for agent in world.agents if agent is not lead)
    reader.handle(was.Arrived("client:1", Execute(request=1, sql="SUBSCRIBE job", creator="me")))
    before: set[int] = set()
    for _ in range(48):
        reader.handle(was.Arrived("client:1", KeepAlive(request=1)))
        world.run(300)
        told = {m.result.last_us for m in world.client_inbox if isinstance(m, Published)}
        assert not told or max(told) >= max(before, default=0)
        before = {row.last_end for row in lead.store.windows(spec.uid, -(1 << 62), 1 << 62)}
    assert len(told) > 8


def test_who_reads_from_an_agent_that_has_just_come_back_misses_no_window() -> None:
    """Its jobs are not up yet, and it has a backlog, of which windows are made at once."""
    world = World(32, 1)
    spec, _ = begun(world, 60_000, through=0)
    world.run(8_000)
    lead = world.leader(spec)
    lead.crash()
    world.run(2_000)
    world.restart(lead)
    assert not lead.node.job_groups.has(spec.uid)
    before = last_end(world, spec)
    lead.handle(was.Arrived("client:1", Execute(request=1, sql="SUBSCRIBE job", creator="me")))
    world.run(1_500)
    told = {m.result.last_us for m in world.client_inbox if isinstance(m, Published)}
    made = {row.last_end for row in lead.store.windows(spec.uid, before + 1, 1 << 62)}
    assert told == made != set()


def test_windows_of_long_ago_are_forgotten_in_twentieths() -> None:
    """Not with a record of the group for each minute."""
    job, minute_us = made_of(60_000, 60_000), 60 * SECOND
    master = Master([VersionRecord(job, "committed", first_pane=0)], state="active", assembled={1: 0})
    lead, pruned = JobGroup("a", CatalogLog(), master, 0), []
    for minute in range(1, 2_100):
        master.windows_committed(CommitWindows(job, (minute - 1) * minute_us, minute * minute_us, (), ()))
        pruned += lead.prune(minute * 60_000)
    below = [(minute - WINDOWS_KEPT) * minute_us for minute in (1, 1_001, 2_001)]
    assert pruned == [PruneWindows(job.uid, at) for at in below]


def test_who_reads_is_told_why_nothing_comes_when_a_window_is_late_and_that_a_job_is_paused() -> None:
    world = World(101, 3)
    world.start_all()
    for agent in world.agents:
        world.write(agent, world.now + 60_000)
    spec = world.create(0, plan(8))
    reader = next(agent for agent in world.agents if agent is not world.leader(spec))
    reader.handle(was.Arrived("client:1", Execute(request=1, sql="SUBSCRIBE job", creator="me")))

    def told() -> list[str]:
        world.at(world.now + 3_000, lambda: reader.handle(was.Arrived("client:1", KeepAlive(request=1))))
        world.run(3_000)
        found = [m.text for m in world.client_inbox if isinstance(m, Reply)]
        world.client_inbox.clear()
        return found

    for _ in range(4):
        told()  # until the first window it is told soon
    assert [told() for _ in range(8)] == [[]] * 8, "the window is not over yet"
    reconfigure(world, spec, "pause")
    said = {text for _ in range(8) for text in told()}
    assert "the job is paused; RESUME JOB job has it go on" in said
