"""Replicas of snapshots at neighbours: when they are made and forgotten, and who sends them when their
owner is gone."""

from __future__ import annotations

from typing import Any

import pytest

from agents.disk import replicastore
from agents.disk.store import ReplicaRow, Store
from elf.job import events as was
from elf.job import replicas as disk
from elf.job.catalog.voters import apart
from elf.job.contributions import Piece, from_bytes, to_bytes
from elf.job.effects import CommitPanes, Send
from elf.job.messages.rollup import (
    Committed,
    DropReplicas,
    FlowProgress,
    KeepReplicas,
    OfferReplicas,
    ReplicasKept,
    ReplicaVerdict,
    Slice,
)
from elf.job.openparts import open_part
from elf.job.replicas import REPLICA_OVERHEAD, Replica, ReplicaName
from elf.job.rollup import holding, proxies, replication
from elf.job.rollup.decide import RootSettings
from elf.job.rollup.proxies import Proxies
from elf.job.rollup.replication import Replication
from elf.job.rollup.root import Root
from elf.job.rollup.sender import SNAPSHOT_OVERHEAD
from elf.job.snapshots import Sealed
from elf.wire.clients import Call, Reply
from lab.chaos.agent import SimAgent
from lab.chaos.engine import GONE, STREAM, plan
from lab.chaos.jobs import query_of
from lab.chaos.ledger import Ledger
from lab.chaos.world import World
from tests.support.flow_copies import FLOW, HOLDER, OTHER, OWNER, ROOT, Holder, Owner, flow_of, log_of, rooted
from tests.support.stores import database


def name(start: int, end: int | None = None, part: int = 0, member: int = 0) -> ReplicaName:
    return ReplicaName(FLOW.uid, member, start, start + 1 if end is None else end, part)


# -- the owner -----------------------------------------------------------------------------------------------


def test_what_is_committed_soon_is_never_copied() -> None:
    owner = Owner()
    assert owner.replication.deadline() is None, "nothing is owed: nothing to look at"
    owner.seal(1, 0)
    owner.tick(900)
    assert (owner.sent, owner.replication.wanting) == ([], 0)
    owner.commit(1, 2)
    owner.tick(1_500)
    assert (owner.sent, owner.replication.deadline()) == ([], None)


def test_what_waits_is_copied_to_neighbours_and_dropped_there_when_it_has_its_answer() -> None:
    owner = Owner()
    owner.seal(1, 0)
    owner.seal(2, 100)
    owner.seal(2, 100, part=1)
    owner.tick(1_100)
    whole = (name(1), name(2), name(2, part=1))
    assert owner.sent == [(HOLDER, whole), (OTHER, whole)], "they share messages"
    assert (owner.replication.wanting, owner.replication.copied) == (3, 0)
    owner.answers(HOLDER, *whole)
    owner.answers(OTHER, *whole)
    owner.tick(1_600)
    assert (owner.sent, owner.dropped) == ([], [])
    assert (owner.replication.wanting, owner.replication.copied) == (0, 3)
    owner.commit(1, 3)
    owner.tick(2_100)
    assert owner.dropped == [(HOLDER, whole[:2]), (OTHER, whole[:2])]
    assert owner.replication.copied == 1, "the part has no answer yet"


def test_a_neighbour_that_is_silent_or_dead_or_refuses_has_another_in_its_place() -> None:
    owner = Owner()
    owner.seal(1, 0)
    owner.tick(1_000)
    owner.answers(OTHER, refused=(name(1),))
    owner.tick(1_500)
    assert owner.sent == [(ROOT, (name(1),))]
    owner.answers(ROOT, name(1))
    owner.tick(1_000 + replication.ANSWER_MS)
    assert owner.sent == [], "nobody is left, and the silent one is left alone for a while"
    assert owner.replication.wanting == 1
    owner.tick(1_000 + replication.ANSWER_MS + replication.SILENT_MS)
    assert owner.sent == [(HOLDER, (name(1),))]
    owner.answers(HOLDER, name(1))
    assert owner.replication.wanting == 0
    owner.replication.peer_down(ROOT)
    owner.live = [OTHER, "10.0.0.9:7100"]
    owner.tick(60_000)
    assert owner.sent == [("10.0.0.9:7100", (name(1),))]


def test_what_is_under_way_is_bounded_and_a_larger_snapshot_goes_alone() -> None:
    owner, half = Owner(replicas=1), replication.UNDERWAY_BYTES // 2
    for pane, size in enumerate([half, half + 1, 10, 3 * half]):
        owner.seal(pane, 0, size=size)
    owner.tick(1_000)
    assert owner.sent == [(HOLDER, (name(0),)), (HOLDER, (name(2),))]
    assert owner.replication.wanting == 4, "counted, and nothing waits for it"
    owner.answers(HOLDER, name(0), name(2))
    owner.tick(1_500)
    assert owner.sent == [(HOLDER, (name(1),))]
    owner.answers(HOLDER, name(1))
    owner.tick(2_000)
    assert owner.sent == [(HOLDER, (name(3),))]


def test_small_ones_share_messages_up_to_a_size() -> None:
    owner = Owner(replicas=1)
    for pane in range(replication.TOGETHER_MAX + 1):
        owner.seal(pane, 0)
    for pane in range(3):
        owner.seal(1_000 + pane, 0, size=replication.TOGETHER_BYTES // 2)
    owner.tick(1_000)
    assert [len(names) for _, names in owner.sent] == [replication.TOGETHER_MAX, 2, 1, 1]


def test_none_are_copied_where_none_are_wanted() -> None:
    owner = Owner(replicas=0)
    owner.seal(1, 0)
    owner.tick(5_000)
    assert (owner.sent, owner.replication.deadline()) == ([], None)


def test_other_racks_come_first_then_the_nearest() -> None:
    racks = {"a": "eu/1", "b": "eu/1", "c": "eu/2", "d": "", "e": "eu/2"}
    assert apart(["a"], ["b", "c", "d", "e"], racks.__getitem__, 3) == ["c", "d", "b"]


# -- the holder ----------------------------------------------------------------------------------------------


def test_copies_are_durable_before_the_owner_hears_of_it() -> None:
    holder = Holder()
    message = KeepReplicas(replicas=(Replica(name(1), b"", b"x"),))
    first = holder.holding.keep(OWNER, message, 0)
    assert [type(step) for step in first] == [disk.StoreReplicas]
    assert holder.holding.keep(OWNER, message, 1) == [], "it comes twice, and is not there yet"
    assert holder.perform(first) == [Send(OWNER, ReplicasKept(names=(name(1),)))]
    assert holder.keep(name(1)) == [Send(OWNER, ReplicasKept(names=(name(1),)))]
    holder.begin()
    assert holder.there() == [name(1)]
    assert holder.keep(name(1)) == [Send(OWNER, ReplicasKept(names=(name(1),)))]


def test_open_parts_of_several_owners_are_written_together() -> None:
    """Each owner hears of its own; what is asked for meanwhile is written first."""
    holder, part = Holder(), open_part(1)
    ours, others = name(1, part=part), name(1, part=part, member=1)
    for owner, one in ((OWNER, ours), (OTHER, others)):
        assert holder.holding.keep(owner, KeepReplicas(replicas=(Replica(one, b"t", b"x"),)), 100) == []
    assert holder.holding.deadline() == 0, "it looks for replicas of the dead"
    holder.holding.tick(100)
    assert (holder.holding.deadline(), holder.store.replicas()) == (2_100, [])
    (written,) = steps = holder.holding.tick(2_100)
    assert isinstance(written, disk.StoreReplicas)
    told = holder.perform(steps)
    assert told == [Send(OWNER, ReplicasKept(names=(ours,))), Send(OTHER, ReplicasKept(names=(others,)))]
    holder.begin()
    assert holder.there() == [ours, others]

    more, gone = name(2, part=part), name(3, part=part)
    assert holder.keep(more, gone, now_ms=3_000) == []
    holder.holding.drop(DropReplicas(names=(gone,)))
    word = ReplicaVerdict(flow=FLOW.uid, member=0, start=2, end=3, verdict="send", part=part)
    sent = holder.perform(holder.holding.verdict(word))
    assert [type(one.message) for one in sent] == [ReplicasKept, Slice]
    assert holder.there() == [ours, others, more], "what was dropped is never written"


def test_open_parts_are_written_before_they_are_handed_on() -> None:
    holder = Holder()
    assert holder.keep(name(1, part=open_part(1)), now_ms=100) == []
    holder.holding.closed = True
    assert [type(step) for step in holder.holding.tick(101)] == [disk.StoreReplicas]


def test_what_was_forgotten_while_it_was_written_is_deleted() -> None:
    holder = Holder()
    steps = holder.holding.keep(OWNER, KeepReplicas(replicas=(Replica(name(1)),)), 0)
    steps += holder.holding.drop(DropReplicas(names=(name(1),)))
    assert holder.perform(steps) == [Send(OWNER, ReplicasKept(names=()))]
    assert holder.there() == []


def test_a_commit_forgets_the_panes_of_its_members_and_parts() -> None:
    holder = Holder()
    holder.keep(name(1), name(2, 6), name(2, part=1), name(2, part=2), name(1, member=1))

    def committed(start: int, end: int, members: int, *parts: tuple[int, int]) -> list[ReplicaName]:
        word = Committed(
            flow=FLOW.uid, start=start, end=end, revision=0, members=to_bytes(members), parts=parts
        )
        assert holder.perform(holder.holding.committed(word)) == []
        return holder.there()

    assert committed(1, 4, 0b01) == [name(2, 6), name(2, part=1), name(2, part=2), name(1, member=1)]
    assert committed(4, 9, 0b10) == [name(2, 6), name(2, part=1), name(2, part=2), name(1, member=1)]
    assert committed(2, 3, 0b01, (0, 1), (1, 2)) == [name(2, 6), name(2, part=2), name(1, member=1)]
    assert committed(4, 6, 0b01) == [name(2, part=2), name(1, member=1)]
    assert committed(1, 2, 0b11) == [name(2, part=2)]


def test_where_agents_are_leapt_over_a_commit_is_the_last_word() -> None:
    dropping = flow_of(query_of("leap").fragment)
    holder = Holder(dropping)
    holder.keep(ReplicaName(dropping.uid, 0, 1, 2))
    word = Committed(flow=dropping.uid, start=1, end=2, revision=0, members=to_bytes(0b10))
    holder.perform(holder.holding.committed(word))
    assert holder.there() == []


def test_beyond_the_quota_the_oldest_go_and_are_counted() -> None:
    size = 1_000 - REPLICA_OVERHEAD - 1
    holder = Holder(bytes_max=3_000)
    for pane in range(4):
        holder.keep(name(pane), size=size, now_ms=pane)
    assert holder.there() == [name(1), name(2), name(3)]
    assert (holder.holding.dropped, holder.holding.bytes) == (1, 3_000)
    told = holder.keep(name(9), size=9_999)
    assert told == [Send(OWNER, ReplicasKept(names=(), refused=(name(9),)))], "it would never fit"
    assert len(holder.there()) == 3


def test_a_full_disk_refuses_copies_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    holder = Holder()
    with holder.store._file.reading() as con:
        (pages,) = con.execute("PRAGMA page_count").fetchone()
        con.execute(f"PRAGMA max_page_count = {pages}")
    told = holder.keep(name(1), size=9_000)
    assert told == [Send(OWNER, ReplicasKept(names=(), refused=(name(1),)))]
    assert (len(holder.holding), holder.holding.bytes) == (0, 0)


def test_only_copies_of_the_dead_are_offered_and_at_times_those_of_which_nothing_is_heard() -> None:
    holder = Holder()
    holder.keep(name(1), name(2, 4), name(3, part=1), now_ms=1)
    assert holder.perform(holder.holding.tick(10)) == []
    offer = OfferReplicas(flow=FLOW.uid, member=0, names=((1, 2, 0), (2, 4, 0), (3, 4, 1)))
    assert holder.perform(holder.holding.tick(holding.STALE_MS + 10)) == [Send(ROOT, offer)]
    holder.holding.hurry()
    assert holder.perform(holder.holding.tick(holding.STALE_MS + 20)) == [], "just offered"
    holder.dead.add(OWNER)
    holder.holding.hurry()
    assert holder.perform(holder.holding.tick(holding.STALE_MS + 30)) == [Send(ROOT, offer)]


def test_an_agent_in_whose_place_another_has_come_is_dead() -> None:
    holder = Holder(addresses=(OWNER, HOLDER, OWNER))
    holder.keep(name(1), name(1, member=2))
    (offered,) = holder.perform(holder.holding.tick(10))
    assert offered.message == OfferReplicas(flow=FLOW.uid, member=0, names=((1, 2, 0),))


def test_the_proxy_sends_in_the_owners_name() -> None:
    holder = Holder()
    holder.keep(name(1, 4), name(4, 5), name(2, part=3))
    word = ReplicaVerdict(flow=FLOW.uid, member=0, start=1, end=4, verdict="send")
    (sent,) = holder.perform(holder.holding.verdict(word))
    assert sent.to == ROOT
    assert isinstance(sent.message, Slice)
    assert (from_bytes(sent.message.members), sent.message.direct) == (0b01, True)
    assert (sent.message.start, sent.message.end, sent.message.payload) == (1, 4, bytes(10))
    word = ReplicaVerdict(flow=FLOW.uid, member=0, start=2, end=3, verdict="send", part=3)
    (sent,) = holder.perform(holder.holding.verdict(word))
    assert isinstance(sent.message, Slice)
    assert (from_bytes(sent.message.members), sent.message.parts) == (0, ((0, 3),))
    assert len(holder.there()) == 3, "they stay until they are in a commit"


def test_the_roots_word_is_about_these_panes_only() -> None:
    holder = Holder()
    holder.keep(name(1, 4), name(1, member=1), name(1, part=1))
    for start, end, verdict in ((1, 2, "included"), (2, 3, "final"), (3, 4, "leapt")):
        assert name(1, 4) in holder.there()
        word = ReplicaVerdict(flow=FLOW.uid, member=0, start=start, end=end, verdict=verdict)
        holder.perform(holder.holding.verdict(word))
    assert holder.there() == [name(1, member=1), name(1, part=1)]


def test_a_damaged_copy_is_never_sent() -> None:
    holder = Holder()
    holder.keep(name(1), name(2))
    with database(holder.store) as con:
        con.execute("UPDATE replicas SET payload = x'00' WHERE pane_start = 1")
    word = ReplicaVerdict(flow=FLOW.uid, member=0, start=1, end=3, verdict="send")
    (sent,) = holder.perform(holder.holding.verdict(word))
    assert isinstance(sent.message, Slice)
    assert sent.message.start == 2
    assert (holder.there(), holder.holding.damaged) == ([name(2)], 1)


# -- the root ------------------------------------------------------------------------------------------------


def commit(root: Root, start: int, end: int, members: int) -> None:
    """The pieces of these members, and the commit."""
    root.take(Piece(start, end, members))
    (work,) = root.propose(90_000)
    assert isinstance(work, CommitPanes)
    root.committed(work, 90_000)


def test_one_holder_at_a_time_is_told_to_send_and_only_for_the_dead() -> None:
    root, roots = rooted(), Proxies()
    offer = OfferReplicas(flow=FLOW.uid, member=0, names=((1, 2, 0), (2, 3, 7)))

    def told(holder: str, now_ms: int) -> list[str]:
        said = roots.offered(root, holder, offer, now_ms)
        assert all(one.to == holder for one in said)
        return [one.message.verdict for one in said if isinstance(one.message, ReplicaVerdict)]

    assert told(HOLDER, 10_500) == [], "it lives"
    root.down(OWNER)
    assert told(HOLDER, 10_600) == ["send", "send"]
    assert told(OTHER, 10_700) == told(HOLDER, 10_800) == []
    assert told(OTHER, 10_600 + proxies.PROXY_MS) == ["send", "send"], "the first one is silent"
    root.take(Piece(1, 2, 0b01))
    assert told(HOLDER, 30_000) == ["send"], "the piece is held: it is not its turn yet"
    root.hear(0, FlowProgress(FLOW.uid, 0, 5), 40_000)
    assert told(HOLDER, 40_001) == []
    commit(root, 1, 2, 0b10)
    assert told(OTHER, 40_002) == ["included"], "that, whoever lives"
    assert (
        roots.offered(root, OTHER, OfferReplicas(flow=FLOW.uid, member=9, names=((1, 2, 0),)), 99_999) == []
    )


def test_an_agent_that_is_silent_is_dead_for_its_copies() -> None:
    root, roots = rooted(), Proxies()
    offer = OfferReplicas(flow=FLOW.uid, member=0, names=((1, 2, 0),))
    assert roots.offered(root, HOLDER, offer, 10_000 + proxies.SILENT_MS) == []
    (said,) = roots.offered(root, HOLDER, offer, 10_001 + proxies.SILENT_MS)
    assert isinstance(said.message, ReplicaVerdict)
    assert said.message.verdict == "send"


def test_a_new_root_waits_longer_for_words_that_come_less_often() -> None:
    """Of three members one is heard, whose next word comes three seconds later than usual: so may the first
    words of the others."""
    root = Root(FLOW, RootSettings())
    root.set_roster(log_of(addresses=(OWNER, HOLDER, OTHER)).members(STREAM), 1)
    root.begin(1, 0)
    root.hear(0, FlowProgress(FLOW.uid, 0, 5, later_ms=3_000), 100)
    root.take(Piece(1, 2, 0b001))
    assert root.propose(root.stragglers.limit_ms() + 3_000) == []
    assert len(root.propose(root.stragglers.limit_ms() + 3_001)) == 1


# -- the disk ------------------------------------------------------------------------------------------------


def test_an_owner_reads_what_it_retains_and_the_first_copy_of_a_name_stays() -> None:
    store = Store(":memory:")
    store.save_checkpoint("s", b"cut", [Sealed("f", 1, 2, b"t", b"p")])
    names = (ReplicaName("f", 7, 1, 2), ReplicaName("f", 7, 2, 3))
    read = replicastore.perform(store, disk.ReadSnapshots(names, (HOLDER,)))
    assert read == disk.SnapshotsRead((HOLDER,), (Replica(names[0], b"t", b"p"),))
    store.keep_replicas([ReplicaRow(*names[0], b"t", b"p", 0), ReplicaRow(*names[1], b"", b"", 0)])
    store.keep_replicas([ReplicaRow(*names[0], b"other", b"other", 0)])
    assert replicastore.held(store) == {names[0]: SNAPSHOT_OVERHEAD + 2, names[1]: SNAPSHOT_OVERHEAD}
    store.delete_flow("f")
    assert store.replicas() == []


# -- a fleet -------------------------------------------------------------------------------------------------


def test_what_an_agent_had_sealed_is_in_the_windows_though_it_is_gone_for_good() -> None:
    """Nothing of what it sealed has come to the root, and its disk is lost."""
    world = World(5, 6)
    world.start_all()
    spec = world.create(0, query_of("plain"))
    for agent in world.agents:
        world.write(agent, world.now + 20_000)
    world.run(6_000)
    others = [agent for agent in world.agents[1:] if agent is not world.leader(spec)]
    victim = next(agent for agent in others if world.spares(agent))
    world.unheard.add(victim.address)
    world.run_until(lambda: victim.node.replicas.replication.copied > 0, 6_000)
    held = list(victim.node.replicas.replication._due)
    told: list[dict[str, Any]] = [agent.node.clients.statements.status() for agent in world.agents]
    assert sum(one["copies"]["held"] for one in told) >= 2 * len(held)
    victim.crash()
    victim.ended = GONE
    world.run(12_000)
    pane_us = spec.plan.fragment.pane_us
    assert held
    for one in held:
        revision, counts, status = world.committed(spec)[one.start * pane_us]
        assert counts == world.truth(spec, one.start * pane_us)
        assert (status["missing"], revision) == ([], 1), "it came as a revision"
    later = max(world.committed(spec).values(), key=lambda window: str(window[2]["window_start"]))
    assert later[2]["missing"] == [f"a{victim.index}"]
    assert all(len(agent.node.replicas.holding) == 0 for agent in world.agents if agent.up), "all is settled"


# -- a holder that leaves ------------------------------------------------------------------------------------


def test_who_leaves_hands_on_what_it_has_of_the_dead() -> None:
    """Both holders go, one after the other, while nobody can commit; what they had is in the windows."""
    world = World(65, 8, checking=False, ledger=Ledger())
    world.group_members = 1
    for agent in world.agents[3:]:
        agent.streams = ("buys",)  # who owes panes itself would wait for their commit, and be there for all
    world.start_all()
    for agent in world.agents:
        world.write(agent, world.now + 60_000)
    job = world.create(0, plan(2))
    world.run(8_000)
    leader, victim = world.leader(job), world.agents[0]
    assert leader is not victim
    leader.crash()
    world.run_until(lambda: victim.node.replicas.replication.copied > 0, 20_000)
    number = next(m.number for m in victim.node.log.members(STREAM) if m.address == victim.address)
    victim.crash()
    victim.ended = GONE
    ledger = world.ledger
    assert ledger is not None
    ledger.replicas.goes(victim.index, {agent.index for agent in world.agents if not agent.ended})
    copied = ledger.replicas.gone[victim.index]
    assert copied

    def holders() -> list[SimAgent]:
        up = [agent for agent in world.agents if agent.up]
        return [a for a in up if any(one[1] == number for one in replicastore.held(a.store))]

    first = holders()
    assert 1 <= len(first) <= 2
    assert not any(STREAM in agent.streams for agent in first)
    world.run(4_000)
    for agent in first:
        agent.handle(was.Arrived("client:1", Call(request=1, verb="leave")))
        world.run_until(lambda agent=agent: not agent.up, 40_000)  # type: ignore[misc]
        assert agent.ended == "left the cluster"
        assert holders(), "somebody else has it"
    told = [said.text for said in world.client_inbox if isinstance(said, Reply)]
    assert told == [f"a{agent.index} has left" for agent in first]
    world.restart(leader)
    world.run(30_000)
    assert ledger.findings == []
    rows = {row.start: row for row in leader.store.pane_commits(job.flows[0].uid, -(1 << 62), 1 << 62)}
    for one in copied:
        assert all(from_bytes(rows[pane].members) >> number & 1 for pane in range(one.start, one.end))
    assert holders() == [], "it has its answer"


def test_all_copies_are_handed_on_but_a_damaged_one() -> None:
    """Of the living too: one that died a second ago seems to be one of them."""
    holder = Holder(addresses=(OWNER, HOLDER, OTHER))
    holder.keep(name(1), name(2), name(3, member=2))
    size = 10 + 1 + REPLICA_OVERHEAD
    assert holder.holding.owed_since(0) == [(name(1), size), (name(2), size), (name(3, member=2), size)]
    with database(holder.store) as con:
        con.execute("UPDATE replicas SET payload = x'00' WHERE pane_start = 1")
    read = replicastore.perform(holder.store, disk.ReadHeld((name(1), name(2), name(9)), (OTHER,)))
    assert isinstance(read, disk.HeldRead)
    assert (read.replicas, read.damaged) == ((Replica(name(2), b"t", bytes(10)),), (name(1),))
    holder.perform(holder.holding.read_held(read))
    assert (holder.there(), holder.holding.damaged) == ([name(2), name(3, member=2)], 1)
    holder.holding.closed = True
    told = holder.keep(name(2), name(5))
    assert told == [Send(OWNER, ReplicasKept(names=(), refused=(name(2), name(5))))], "it has one, but leaves"
    handing = Replication(
        holder.holding, lambda: [OTHER], replicas=2, after_ms=0, reads=disk.ReadHeld, own=False
    )
    (asked,) = handing.tick(1_000)
    assert asked == disk.ReadHeld((name(2), name(3, member=2)), (OTHER,))
    assert handing.read(read) == [Send(OTHER, KeepReplicas(replicas=read.replicas))]
    assert handing.lacking([name(2)]) == 1
    handing.kept(OTHER, ReplicasKept(names=(name(2),)))
    assert handing.lacking([name(2)]) == 0
    word = Committed(flow=FLOW.uid, start=2, end=3, revision=0, members=to_bytes(1))
    holder.perform(holder.holding.committed(word))
    assert handing.tick(2_000) == [], "the root tells them, or they ask it"
