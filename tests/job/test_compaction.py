"""What the catalog log forgets: nobody can tell a log that does from one that keeps all."""

from __future__ import annotations

import random
from collections.abc import Iterator

from hypothesis import given
from hypothesis import strategies as st

from elf.fields import replace
from elf.job.catalog.admission import grow
from elf.job.catalog.compaction import tombstone
from elf.job.catalog.log import CatalogLog, decode_entry, encode_entry
from elf.job.catalog.membership import Identity, Membership
from elf.job.effects import SaveLog
from elf.job.group.reconfiguration import proposed
from elf.job.messages.log import (
    AddJob,
    AddVersion,
    DropJobEntry,
    EndFlow,
    EndVersion,
    JobAdded,
    JoinStream,
    LogEntry,
)
from elf.job.spec import JobSpec, group_uid
from elf.ql.plan import Table
from elf.schema import Column
from lab.chaos.engine import STREAM, plan, planned, spec_of
from lab.chaos.world import World
from tests.support.proposing import Proposals


class Whole(CatalogLog):
    """One that keeps all entries as they came."""

    def forget(self) -> None:
        pass


def again(entries: list[LogEntry]) -> CatalogLog:
    """A log that begins with these, as they travel."""
    return CatalogLog([decode_entry(encode_entry(entry)) for entry in entries])


@given(st.integers(0, 1 << 30), st.integers(0, 80))
def test_who_forgets_answers_as_who_keeps_all(seed: int, steps: int) -> None:
    """And so does who begins with what others have kept, whoever of them it heard which entry from; also one
    that forgets nothing itself, as an earlier elf."""
    whole, rng = Whole(), random.Random(seed)
    proposals = Proposals(seed, whole, CatalogLog())
    for _ in range(steps):
        proposals.step()
        if rng.random() < 0.1:
            slim = proposals.logs[1]
            slim.forget()
            pairs = list(zip(whole.after(0, whole.last), slim.after(0, slim.last), strict=True))
            assert all(kept in (entry, tombstone(entry)) for entry, kept in pairs)
            mixed = [rng.choice(pair) for pair in pairs]
            proposals.logs[2:] = [
                again([kept for _, kept in pairs]),
                again(mixed),
                Whole(slim.after(0, slim.last)),
            ]
        told = proposals.answers(whole)
        for log in proposals.logs[1:]:
            assert proposals.answers(log) == told
    for log in proposals.logs[1:4]:
        log.forget()
    kept = [log.after(0, log.last) for log in proposals.logs[1:4]]
    assert all(one == kept[0] for one in kept), "whatever it began with, and whenever it forgot"
    assert again(list(kept[0])).after(0, whole.last) == kept[0], "nothing more is forgotten of what is left"


def job(log: CatalogLog, name: str, table: bytes = b"") -> JobSpec:
    """One that joins this table."""
    made = plan(2, where=name)
    tables = (Table((Column("key", "text"),), table, digest=str(len(table))),)
    made = replace(made, fragment=replace(made.fragment, tables=tables))
    spec = spec_of(name, "me", log.generation(name, "me"), made, (), master="here:1")
    spec = spec.with_flows(proposed(spec, b"k" * 16, "here:1"))
    grow(log, AddJob(spec=spec))
    return spec


def size(log: CatalogLog) -> int:
    log.forget()
    return sum(len(encode_entry(entry)) for entry in log.after(0, log.last))


def test_of_a_job_that_is_over_a_few_hundred_bytes_last() -> None:
    log = CatalogLog()
    spec = job(log, "hits", b"x" * 250_000)
    grow(log, DropJobEntry(uid=spec.uid))
    assert size(log) > 250_000, "its flow runs, and may be read again"
    assert log.streams_of(log.after(1)[0]) == (STREAM,)
    grow(log, EndFlow(uid=spec.flows[0].uid))
    assert size(log) < 300
    assert log.ever(spec.uid) is None
    assert job(log, "hits").generation == 2


def ten_versions(log: CatalogLog, trees: int = 1) -> Iterator[JobSpec]:
    """Of one job, each with other rows of its table."""
    spec = job(log, "hits", b"x" * 10)
    spec = replace(spec, roots=("there:1",) * (trees - 1))
    for version in range(2, 12):
        tables = (replace(spec.plan.fragment.tables[0], data=b"x" * 100_000, digest=str(version)),)
        fragment = replace(spec.plan.fragment, tables=tables, map_sql=f"version {version}")
        spec = planned(spec, replace(spec.plan, fragment=fragment, trees=trees), version=version)
        spec = spec.with_flows(proposed(spec, b"k" * 16, "here:1"))
        grow(log, AddVersion(spec=spec))
        grow(log, EndVersion(uid=spec.uid, version=version - 1))
        for flow in log.idle_flows():
            grow(log, EndFlow(uid=flow))
        yield spec


def test_of_versions_that_are_over_no_tables_last() -> None:
    log = CatalogLog()
    *_, spec = ten_versions(log)
    assert 100_000 < size(log) < 105_000, "the tables of the newest, once"
    assert log.job(spec.uid) == spec


def test_of_versions_over_key_ranges_the_first_lasts_which_says_whose_groups_these_are() -> None:
    log = CatalogLog()
    there = JoinStream(
        stream=STREAM, agent_id="it", name="it", incarnation=1, address="there:1", since_us=1, place=""
    )
    grow(log, there)
    *_, spec = ten_versions(log, trees=2)
    group = group_uid(spec.uid, 1)
    assert log.job_groups.founders(group) == ("it",)
    assert 200_000 < size(log) < 210_000, "the tables of the newest, and of the first over these ranges"
    copy = again(list(log.after(0, log.last)))
    for one in (log, copy):
        assert (one.job(spec.uid), one.leader(group)) == (spec, "there:1")
        assert (one.job_groups.founders(group), one.to_bootstrap("it")) == (("it",), (group,))
        assert set(one.job_groups.flows(group)) == {spec.flows[1].uid}
        grow(one, DropJobEntry(uid=spec.uid))
        assert one.job_groups.founders(group) == ("it",), "its flows run"
        for flow in spec.flows:
            grow(one, EndFlow(uid=flow.uid))
        assert size(one) < 6_000
        assert one.job_groups.founders(group) == ()
    assert copy.after(0, log.last) == log.after(0, log.last)


def test_nor_do_they_in_the_stores_of_those_that_follow() -> None:
    log, stored = CatalogLog(), dict[int, LogEntry]()

    def begun() -> Membership:
        """With what is stored."""
        return Membership(Identity("me", "me", 1, "me:1"), (), CatalogLog(stored.values()), cluster=None)

    membership = begun()
    for number, _ in enumerate(ten_versions(log)):
        membership = begun() if number == 5 else membership
        for effect in membership.take(membership.log.last, log.after(membership.log.last)):
            assert isinstance(effect, SaveLog)
            stored.update((one.seq, one) for one in (*effect.entries, *effect.forgotten))
    kept = sum(len(encode_entry(one)) for one in stored.values())
    assert kept < 205_000, "the tables of the newest, and of the one before it until there is more"
    size(log)
    assert again(list(stored.values())).after(0, log.last) == log.after(0, log.last)


def test_who_was_away_learns_what_is_over_and_who_comes_later_hears_no_more_of_it() -> None:
    world = World(42, 5)
    late = world.agents.pop()
    world.start_all()
    spec = world.create(0, plan(2))
    away = next(
        agent for agent in world.agents if agent is not world.leader(spec) and not agent.node.catalog.leads
    )
    world.run_until(lambda: bool(away.worker.flows()))
    away.crash()
    world.drop(spec)
    uids = [flow.uid for flow in spec.flows]
    world.run_until(lambda: all(a.node.log.has_ended(u) for a in world.agents if a.up for u in uids), 30_000)
    other = world.create(0, plan(4), "other")
    world.run_until(lambda: all(a.node.log.ever(spec.uid) is None for a in world.agents if a.up))
    world.restart(away)
    world.run_until(lambda: away.node.ready and away.node.log.ever(spec.uid) is None)
    world.agents.append(late)
    late.start([world.agents[0].address])
    world.run_until(lambda: late.node.ready)
    running = tuple(flow.uid for flow in other.flows)
    world.run_until(lambda: all(agent.worker.flows() == running for agent in (away, late)))
    for agent in (away, late):
        assert agent.node.log.is_dropped(spec.uid)
        assert agent.node.log.has_ended(uids[0])
    told = [decode_entry(entry) for _, entry in late.store.load_log()]
    assert spec not in [entry.spec for entry in told if isinstance(entry, JobAdded)]
    assert world.create(4, plan(2)).generation == spec.generation + 1
