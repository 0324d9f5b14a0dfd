"""Key ranges: the groups of a job over several trees, each with a root of its own; the answer is the same."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest

from agents.disk.store import Store
from agents.node.beginning import BOOTSTRAPPED_FACT
from elf.aggregates import split_by_range
from elf.batch import decode
from elf.fields import replace
from elf.job import events as was
from elf.job.group.records import group_key
from elf.job.spec import JobSpec, group_uid
from elf.ql.plan import Top
from elf.wire.base import Answer
from elf.wire.clients import Call
from lab.chaos.agent import SimAgent
from lab.chaos.engine import EACH, MOST, SECOND, plan, ranged
from lab.chaos.reference import ranked
from lab.chaos.world import World
from tests.support.histories import begun, check_all, lacking_alone, settled
from tests.support.jobgroups import agree, moved, staffed
from tests.support.stores import database
from tests.support.versions import reconfigure


def spread(world: World, trees: int, name: str, size_s: int = 2, slide_s: int | None = None) -> JobSpec:
    """A job of so many trees, whose other roots are on other agents than its master."""
    addresses = [agent.address for agent in world.agents]
    roots = tuple(addresses[(place + 1) % len(addresses)] for place in range(1, trees))
    return world.create(1, replace(plan(size_s, slide_s), trees=trees), name, roots)


def test_a_group_is_in_one_range_with_all_its_rows() -> None:
    rng = np.random.default_rng(3)
    keys = pa.array([None if n == 7 else f"k{n}" for n in rng.integers(0, 500, 4_000)])
    doubles = pa.array(rng.choice([0.0, -0.0, float("nan"), 1.5], 4_000))
    groups = pa.table({"k0": keys, "k1": doubles, "cell": rng.integers(0, 9, 4_000)})
    for count in (2, 5, 64):
        parts = split_by_range(groups, ("k0", "k1"), count)
        assert sum(part.num_rows for part in parts) == 4_000
        assert min(part.num_rows for part in parts) > 0.4 * 4_000 / count
        named = [
            {(k, repr(d + 0.0)) for k, d in zip(*part.select(["k0", "k1"]).to_pydict().values(), strict=True)}
            for part in parts
        ]
        assert sum(map(len, named)) == len(set().union(*named)), "no group is in two ranges"


def test_windows_of_several_trees_are_those_of_one() -> None:
    world = World(31, 4, checking=False)
    one, until = begun(world, 12_000, query=plan(4, 2))
    jobs = {trees: spread(world, trees, f"of{trees}", 4, 2) for trees in (2, 5)}
    for trees, many in jobs.items():
        assert [flow.fragment.range for flow in many.flows] == [(place, trees) for place in range(trees)]
        assert len({flow.leader for flow in many.flows}) >= min(trees, 3)
        assert len({flow.topic for flow in many.flows}) == trees
    world.run(17_000)
    alone = settled(world, one, until)
    for many in jobs.values():
        together = settled(world, many, until)
        assert len(together) >= 3
        for start, (revision, counts, status) in together.items():
            assert revision == 0
            assert counts == alone[start][1] == world.truth(one, start)
            assert status["rows_in"] == alone[start][2]["rows_in"] == sum(counts.values())
            assert (status["expected"], status["reported"]) == (4, 4)
    again = spread(world, 5, "again")
    assert again.flows == jobs[5].flows, "equal ranges are shared"


@pytest.mark.parametrize("stage", [MOST, EACH])
def test_later_stages_at_the_roots_are_those_of_all_groups(stage: str) -> None:
    """In ranges of classes, or of keys; with another number of trees from one moment on."""
    world = World(39, 5, checking=False)
    _, until = begun(world, 18_000)
    query = ranged(plan(2), stage, 3)
    many = world.create(1, query, "many", world.range_roots("many", query))
    world.run(7_000)
    fewer = ranged(plan(2), stage, 2)
    reconfigure(world, many, "alter", fewer)
    world.run(max(0, until - world.now) + 9_000)
    assert [flow.fragment.range[1] for flow in world.active("many").flows] == [2, 2]
    windows = settled(world, many, until)
    assert len(windows) >= 6
    for start, (_, counts, status) in windows.items():
        assert counts == ranked(stage, Counter(world.truth(many, start)))
        assert (status["expected"], status["reported"]) == (5, 5)


def test_the_root_of_a_range_is_away_for_a_while() -> None:
    world = World(32, 4, loss=0.02, doubles=0.02, checking=False)
    begun(world, 16_000, rate_ms=400)
    many = spread(world, 3, "many")
    world.run(4_000)
    root = next(
        world.by_address[flow.leader]
        for flow in many.flows
        if flow.leader not in (many.leader, world.agents[0].address)
    )
    root.crash()
    world.run(5_000)
    world.restart(root)
    world.run(17_000)
    check_all(world, many, world.now - 9_000, least=6)
    assert all(end > 0 for end in np.diff(sorted(world.committed(many))) // SECOND)


def test_the_master_of_a_job_of_several_trees_dies_for_good() -> None:
    """Another member goes on with the job and its first key range; the roots of the others stay."""
    world = World(34, 5, checking=False)
    _, until = begun(world, 36_000)
    others = [a.address for a in world.agents]
    many = world.create(1, replace(plan(2), trees=3), "many", (others[3], others[4]))
    assert many.leader not in others[3:], "the seed puts the master elsewhere"
    staffed(world, many, 5)
    world.run(3_000)
    leader = world.leader(many)
    leader.crash()
    moved(world, many, leader)
    flows = next(spec for spec in world.agents[3].node.log.jobs() if spec.uid == many.uid).flows
    assert [flow.leader for flow in flows] == [world.leader(many).address, *others[3:]]
    world.run(until - world.now + 12_000)
    lacking_alone(world, many, leader, until)
    agree(world, many)


def test_roots_send_a_master_elsewhere_only_the_first_rows_until_a_job_needs_all() -> None:
    """A window is one pane: the checkpoint is exact. A job of the same flows on the same node that needs
    every key gets every key, from its first window on."""
    world = World(33, 4, checking=False)
    world.start_all()
    world.keys = "abcdefghijklmnopqrst"
    for agent in world.agents:
        world.write(agent, world.now + 90_000, rate_ms=400)
    addresses = [agent.address for agent in world.agents]
    query = replace(plan(2), trees=3, top=Top("s0", True, False, 1), limit=1)
    first = world.create(1, query, "first", tuple(addresses[:2]))
    world.run(9_000)
    everything = replace(plan(2), trees=3)
    for n in range(30):
        other = world.create(n % 4, everything, f"other{n}")
        if other.leader == first.leader:
            break
        world.drop(other)
    assert (other.leader, other.flows) == (first.leader, first.flows)
    world.run(12_000)
    for start, (_, counts, _) in settled(world, first, world.now - 2_000).items():
        truth = world.truth(first, start)
        assert all(truth[key] == n for key, n in counts.items())
        most = max(truth.values(), default=0)
        assert {key for key, n in truth.items() if n == most} <= set(counts)
    check_all(world, other, world.now - 2_000, least=3)
    read, made = world.leader(first).store, {a.address: a.store for a in world.agents}
    some = [
        (held(read, copied(world.leader(first), f.uid)), held(made[f.leader], f.uid)) for f in first.flows
    ]
    assert any(mine[start] < whole[start] for mine, whole in some for start in mine), "some was left out"


def test_an_agent_keeps_a_flow_of_a_master_and_the_first_rows_of_it_for_a_job_of_its_own() -> None:
    """All three agents are members of both job groups, and one reads with a checkpoint what it also keeps in
    full."""
    world = World(34, 3, checking=False)
    world.start_all()
    world.keys = "abcdefgh"
    for agent in world.agents:
        world.write(agent, world.now + 90_000, rate_ms=150)
    first = world.create(0, plan(2), "first")
    world.run(5_000)
    query = replace(plan(2), top=Top("s0", True, False, 1), limit=1)
    for n in range(30):
        other = world.create(n % 3, query, f"other{n}")
        if other.leader != first.leader:
            break
        world.drop(other)
    assert (other.leader != first.leader, other.flows) == (True, first.flows)
    world.run(8_000)
    member = world.leader(other)
    (flow,) = first.flows
    whole, checkpoint = held(member.store, flow.uid), held(member.store, copied(member, flow.uid))
    assert any(whole.get(start, 0) > rows for start, rows in checkpoint.items()), (
        "it has both, and they differ"
    )
    member.crash()
    world.run(3_000)
    member.start([first.leader])
    world.run(9_000)
    check_all(world, first, world.now - 3_000, least=8)
    for start, (_, counts, _) in settled(world, other, world.now - 3_000).items():
        truth = world.truth(other, start)
        assert {key: truth[key] for key in counts} == counts
        assert max(truth.values()) in counts.values()
    world.drop(other)
    world.run(14_000)
    assert [set(agent.store.flows()) for agent in world.agents] == [{flow.uid}] * 3


def copied(agent: SimAgent, uid: str) -> str:
    """The name under which an agent has its copy of a flow, if it has one."""
    mirror = agent.node.job_groups.mirrors.get(uid)
    return "" if mirror is None else mirror.stored_as


def range_group(world: World, job: JobSpec, place: int) -> str:
    """Where the job group of a key range is, as the longest log has it."""
    log = max((a.node.log for a in world.agents if a.up), key=lambda log: log.last)
    return log.leader(group_uid(job.uid, place)) or ""


def members(world: World, job: JobSpec, place: int) -> set[str]:
    """Who has a voter slot in the group of a key range's job group."""
    key = group_key(group_uid(job.uid, place))
    return {agent.address for agent in world.agents if agent.up and key in agent.groups()}


def test_the_master_of_a_range_dies_for_good() -> None:
    """Another member goes on as the root, with what was committed; windows lack the dead agent alone."""
    world = World(37, 6, checking=False)
    _, until = begun(world, 36_000)
    many = spread(world, 3, "many")
    world.run_until(lambda: all(len(members(world, many, place)) == 5 for place in (1, 2)), 60_000)
    dead = world.by_address[many.flows[1].leader]
    assert dead.address not in (many.leader, many.flows[2].leader)
    world.run(3_000)
    dead.crash()
    dead.ended = "gone"
    world.run_until(lambda: range_group(world, many, 1) != dead.address, 20_000)
    world.run(max(0, until - world.now) + 12_000)
    lacking_alone(world, many, dead, until)
    altered = world.create(1, replace(plan(2, where="ab"), trees=3), "filtered", ())
    reconfigure(world, many, "alter", altered.plan)
    world.run(6_000)
    fresh = world.active("many").flows[1]
    assert fresh.leader == range_group(world, many, 1) or fresh in altered.flows, "not where the dead one was"


def test_the_master_of_a_range_is_founded_once_by_the_agent_that_was_named() -> None:
    """Not by another one that comes to the same address, nor by itself when it has been put out."""
    world = World(38, 5, checking=False)
    begun(world, 60_000)
    many = spread(world, 2, "many")
    uid, founder = group_uid(many.uid, 1), world.by_address[many.flows[1].leader]
    world.run_until(lambda: len(members(world, many, 1)) == 5, 60_000)
    assert founder.store.get(BOOTSTRAPPED_FACT) == uid.encode()
    log = founder.node.log
    agents = {m.agent_id: m.address for m in log.members("clicks")}
    assert log.to_bootstrap(next(i for i, address in agents.items() if address == founder.address)) == (uid,)
    assert not any(log.to_bootstrap(i) for i, address in agents.items() if address != founder.address)
    with database(founder.store) as con:
        con.execute("DELETE FROM raft_groups WHERE key = ?", (group_key(uid),))
        con.execute("DELETE FROM raft_entries WHERE key = ?", (group_key(uid),))
    founder.crash()
    world.run(300)
    world.restart(founder)
    world.run(1_500)
    standing = founder.node.catalog.desk.groups.standing(group_key(uid))
    assert standing is None or len(standing.membership.voters) > 1, "it founded no second group"


def without(world: World, job: JobSpec, left: SimAgent, until: int) -> None:
    """Windows are right; those in which an agent that has left is expected no more, without it. In the last
    one with it there are lines that it did not stay to read."""
    windows = settled(world, job, until)
    assert len(windows) >= 3
    last = max((s for s, (_, _, told) in windows.items() if told["expected"] == len(world.agents)), default=0)
    for start, (_, counts, status) in windows.items():
        gone = [f"a{left.index}"] if status["expected"] < len(world.agents) else []
        found = sum(counts.values()) + status["late"]
        truth = sum(world.truth(job, start, [*gone, *status["missing"]]).values())
        least = sum(world.truth(job, start, [f"a{left.index}"]).values())
        assert found == truth or (start == last and least < found < truth), (start, status)


def test_the_master_of_a_range_leaves() -> None:
    world = World(35, 4)
    _, until = begun(world, 14_000)
    many = spread(world, 3, "many")
    world.run(5_000)
    agent = world.by_address[many.flows[1].leader]
    agent.handle(was.Arrived("client:1", Call(request=1, verb="leave")))
    world.run_until(lambda: not agent.up)
    assert agent.ended == "left the cluster"
    assert range_group(world, many, 1) not in ("", agent.address)
    world.run(max(0, until - world.now) + 9_000)
    without(world, many, agent, until)


@pytest.mark.parametrize("created_ms", [-120, 300])
def test_an_agent_leaves_while_a_job_is_created_that_would_have_a_root_there(created_ms: int) -> None:
    """The log decides which of the two came first: the agent bootstraps the job group of its key range and
    hands it over (rows of panes that it has sealed early are late), or that range is at the job group."""
    world = World(36, 4)
    spec, until = begun(world, 16_000)
    agent = next(one for one in world.agents[2:] if one is not world.leader(spec))
    query = replace(plan(2), trees=2)
    for what in ("leave", "create") if created_ms > 0 else ("create", "leave"):
        if what == "leave":
            agent.handle(was.Arrived("client:1", Call(request=1, verb="leave")))
        else:
            world.submit(1, query, "many", client="client:2", roots=(agent.address,))
        world.run(abs(created_ms))
    world.run_until(lambda: any(isinstance(m, Answer) for m in world.client_inbox))
    (created,) = (m for m in world.client_inbox if isinstance(m, Answer))
    assert not created.error
    world.run(until - world.now + 12_000)
    assert agent.ended == "left the cluster"
    many = world.active("many")
    has_own = range_group(world, many, 1) != ""
    assert has_own is (created_ms < 0)
    assert agent.address not in {flow.leader for flow in world.leader(many).node.log.flows()}
    without(world, many, agent, until)


def test_a_job_of_one_tree_takes_up_three() -> None:
    """Its new key ranges have job groups of their own, which stay when it changes again."""
    world = World(39, 6, checking=False)
    _, until = begun(world, 30_000)
    job = world.create(1, plan(2), "job")
    world.run(4_000)
    others = [a.address for a in world.agents if a is not world.leader(job)]
    reconfigure(world, job, "alter", replace(plan(2), trees=3), roots=(others[1], others[2]))
    world.run(5_000)
    job_groups = [flow.leader for flow in world.active("job").flows]
    assert job_groups == [world.leader(job).address, others[1], others[2]]
    reconfigure(world, job, "alter", replace(plan(2, where="abcd"), trees=3), roots=(others[3], others[4]))
    world.run(5_000)
    altered = world.active("job")
    assert ([flow.leader for flow in altered.flows], altered.version) == (job_groups, 3)
    world.run(until - world.now + 9_000)
    windows = settled(world, job, until)
    starts = sorted(windows)
    assert starts == list(range(starts[0], starts[-1] + 1, 2 * SECOND))
    whole = {start: world.truth(job, start) for start in starts}
    some = {start: {k: n for k, n in counts.items() if k in "abcd"} for start, counts in whole.items()}
    made = [windows[start][1] for start in starts]
    changed = next(n for n, start in enumerate(starts) if made[n] != whole[start])
    assert made[changed:] == [some[start] for start in starts[changed:]], "no window mixes two versions"
    assert 0 < changed < len(starts)


def held(store: Store, uid: str) -> dict[int, int]:
    """Keys of a flow's commits, by their first pane."""
    rows = store.pane_commits(uid, -(1 << 62), 1 << 62)
    return {row.start: decode(row.payload).num_rows if row.payload else 0 for row in rows}
