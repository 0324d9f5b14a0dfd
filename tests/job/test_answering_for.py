"""STRAGGLERS MIRROR: a neighbour that has a copy answers for an agent that is behind
(``elf.job.rollup.replication``). The ledger and the judge of chaos look on."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest

from agents.answering.about import describe
from elf.batch import decode
from elf.fields import replace
from elf.job import events as was
from elf.job.contributions import Piece
from elf.job.effects import Send
from elf.job.messages.groups import JobStatus
from elf.job.messages.rollup import DropReplicas, FlowProgress, OfferReplicas, ReplicaVerdict
from elf.job.replicas import ReplicaName
from elf.job.rollup import holding
from elf.job.rollup.decide import MIRROR_OF, RootSettings
from elf.job.rollup.holding import OFFERS_A_LIMIT
from elf.job.rollup.proxies import Proxies
from elf.job.rollup.replication import LOOK_MS
from elf.job.rollup.root import Root
from elf.job.spec import flow_uid
from elf.wire.clients import Execute, Reply
from lab.chaos.engine import SECOND, STREAM, plan, planned
from lab.chaos.jobs import behind, mirrored, query_of
from tests.support.flow_copies import FLOW, HOLDER, OTHER, OWNER, ROOT, Holder, Owner, flow_of, log_of, rooted
from tests.support.stragglers import Fleet

MIRRORED = flow_of(query_of("mirror").fragment)
LIMIT_MS = RootSettings().limit_ms(MIRRORED.fragment)
SPAN = 6_000


def name(pane: int, member: int = 0) -> ReplicaName:
    return ReplicaName(MIRRORED.uid, member, pane, pane + 1)


def test_a_flow_with_mirrors_is_another_flow() -> None:
    fragment = MIRRORED.fragment
    assert fragment.mirror
    assert flow_uid(fragment, "1") != flow_uid(replace(fragment, mirror=False), "1")


# -- the owner -----------------------------------------------------------------------------------------------


def test_what_is_sealed_of_a_mirrored_flow_is_copied_at_once() -> None:
    owner = Owner(flow=MIRRORED)
    owner.tick(0)
    owner.seal(1, 100)
    assert owner.sent == [(HOLDER, (name(1),)), (OTHER, (name(1),))]
    assert owner.replication.deadline() == LOOK_MS
    owner.answers(HOLDER, name(1))
    owner.answers(OTHER, name(1))
    owner.commit(1, 2)
    owner.tick(100 + LOOK_MS)
    assert owner.dropped == [(HOLDER, (name(1),)), (OTHER, (name(1),))]
    assert owner.replication.deadline() is None


# -- the holder ----------------------------------------------------------------------------------------------


def test_copies_of_a_mirrored_flow_are_offered_while_their_owner_lives() -> None:
    """First when they have waited for a part of the limit, then so often; those of other flows are not."""
    holder, every = Holder(MIRRORED, FLOW), LIMIT_MS // OFFERS_A_LIMIT
    holder.keep(name(1), name(2), ReplicaName(FLOW.uid, 0, 1, 2), now_ms=1)
    assert holder.perform(holder.holding.tick(every)) == []
    assert holder.holding.deadline() == every + holding.LOOK_MS
    offer = OfferReplicas(flow=MIRRORED.uid, member=0, names=((1, 2, 0), (2, 3, 0)))
    assert holder.perform(holder.holding.tick(every + holding.LOOK_MS)) == [Send(ROOT, offer)]
    assert holder.perform(holder.holding.tick(2 * every)) == [], "just offered"
    assert holder.perform(holder.holding.tick(2 * every + holding.LOOK_MS)) == [Send(ROOT, offer)]
    holder.perform(holder.holding.drop(DropReplicas(names=(name(1), name(2)))))
    assert holder.perform(holder.holding.tick(5 * every)) == []


# -- the root ------------------------------------------------------------------------------------------------


def behind_root(sealed: int = 5) -> Root:
    """A root of panes up to this one that half of its members have sealed at 10,000 ms; the other one
    beats."""
    root = Root(MIRRORED, RootSettings())
    root.set_roster(log_of(MIRRORED).members(STREAM), 1)
    root.begin(1, 0)
    root.hear(1, FlowProgress(MIRRORED.uid, 0, sealed), 10_000)
    root.hear(0, FlowProgress(MIRRORED.uid, 0, 1), 10_000)
    return root


def test_one_holder_at_a_time_answers_for_an_agent_that_is_behind() -> None:
    root, after_ms = behind_root(2), LIMIT_MS // MIRROR_OF
    roots, offer = Proxies(700), OfferReplicas(flow=MIRRORED.uid, member=0, names=((1, 2, 0),))

    def told(holder: str, now_ms: int) -> list[str]:
        root.hear(0, FlowProgress(MIRRORED.uid, 0, 1), now_ms)
        said = roots.offered(root, holder, offer, now_ms)
        return [one.message.verdict for one in said if isinstance(one.message, ReplicaVerdict)]

    assert told(HOLDER, 10_000 + after_ms - 1) == []
    assert told(HOLDER, 10_000 + after_ms) == ["send"]
    assert told(OTHER, 10_000 + after_ms + 100) == []
    assert told(OTHER, 10_000 + after_ms + 700) == ["send"], "the first one is silent"
    piece = Piece(1, 2, 0b01)
    for _ in range(2):
        roots.take(root, OTHER, piece, 12_000)
        root.take(piece)
    assert roots.answered == {0: 1}
    assert told(OTHER, 20_000) == [], "it is held"
    root.take(Piece(1, 2, 0b10))
    (work,) = root.propose(12_100)
    assert work.members == 0b11, "before the limit"
    roots.take(root, HOLDER, piece, 12_110)
    assert roots.answered == {0: 1}, "the other mirror's, while it is being committed"
    root.committed(work, 12_100)
    roots.take(root, OWNER, piece, 12_200)
    root.take(piece)
    assert root.propose(12_300) == [], "the owner's own comes too late to matter"
    assert (roots.answered, told(OTHER, 12_300)) == ({0: 1}, ["included"])


def test_for_who_is_two_intervals_behind_a_holder_answers_at_once() -> None:
    offer = OfferReplicas(flow=MIRRORED.uid, member=0, names=((1, 2, 0),))
    assert [len(Proxies().offered(behind_root(n), HOLDER, offer, 10_001)) for n in (2, 3)] == [0, 1]


def test_what_an_agent_sends_itself_is_no_mirrors_work() -> None:
    root, roots = behind_root(), Proxies()
    roots.take(root, OWNER, Piece(1, 2, 0b01), 12_000)
    roots.take(root, HOLDER, Piece(1, 2, 0b100), 12_000)
    assert roots.answered == {}


def test_elsewhere_nobody_answers_for_the_living() -> None:
    root = rooted()
    assert not root.stragglers.wants_mirror(1, 1, 99_999)


# -- a fleet -------------------------------------------------------------------------------------------------


def lacking(fleet: Fleet) -> int:
    """Panes whose first word is without some member."""
    everybody = (1 << len(fleet.world.agents)) - 1
    words = fleet.ledger.panes[fleet.uid].values()
    return sum(word.members != everybody for word in words if not word.revision)


def answered(fleet: Fleet) -> int:
    return fleet.world.leader(fleet.spec).node.job_groups.roots.mirrored


def described(fleet: Fleet) -> str:
    """What DESCRIBE says of stragglers."""
    world = fleet.world
    world.client_inbox.clear()
    world.agents[0].handle(was.Arrived("client:9", Execute(request=7, sql="DESCRIBE job", creator="me")))
    world.run_until(lambda: bool(world.client_inbox))
    (reply,) = world.client_inbox
    assert isinstance(reply, Reply)
    facts: dict[str, str] = {row["fact"]: row["value"] for row in decode(reply.payload).to_pylist()}
    return facts["stragglers"]


def test_windows_are_whole_while_an_agents_way_up_is_broken() -> None:
    """Slices get lost, those that the root asks for too; what else it says arrives."""
    fleet = Fleet(mirrored(plan(1)))
    fleet.world.unheard.add(fleet.away.address)
    fleet.world.run(SPAN)
    fleet.world.unheard.clear()
    assert answered(fleet) >= 2
    windows = fleet.end()
    assert lacking(fleet) == 0
    assert all([one["missing"] for one in said] == [[]] for said in windows.values()), "said once, and whole"


def test_where_the_master_hears_nothing_of_an_agent_its_mirrors_answer_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Not even its beats: after three of them a copy is taken as soon as it is offered."""
    fleet = Fleet(mirrored(plan(1)))
    world, leader = fleet.world, fleet.world.leader(fleet.spec).address
    parted = world.network.parted
    monkeypatch.setattr(
        world.network, "parted", lambda a, b: (a, b) == (fleet.away.address, leader) or parted(a, b)
    )
    world.run(SPAN)
    monkeypatch.undo()
    assert answered(fleet) >= 3
    fleet.end()
    assert lacking(fleet) <= 1


def test_an_agent_that_stops_when_it_has_sealed_is_answered_for_and_then_has_nothing_to_add() -> None:
    fleet = Fleet(mirrored(plan(1)))
    world, away = fleet.world, fleet.away
    world.unheard.add(away.address)
    replication, root = (
        away.node.replicas.replication,
        world.leader(fleet.spec).node.job_groups.roots.get(fleet.uid),
    )
    assert root is not None

    def behind() -> list[ReplicaName]:
        """What neighbours have and windows wait for: since now, that is long before the ring takes the agent
        for dead."""
        waits = (n for n in replication._due if n.start >= fleet.committed_to())
        return [name for name in waits if replication.wanting == 0 and root.stragglers.is_due(name.start)]

    world.run_until(lambda: bool(behind()))
    (held, *_) = behind()
    world.isolated.add(away.address)
    limit_ms = RootSettings().limit_ms(fleet.spec.plan.fragment)
    world.run(limit_ms - 200)
    word = fleet.ledger.latest(fleet.uid, held.start)
    assert word is not None, "before the limit"
    assert (word.members >> held.member & 1, word.revision) == (1, 0)
    world.isolated.clear()
    world.unheard.clear()
    windows = fleet.end()
    start = held.start * SECOND
    assert len(windows[start, start + SECOND]) == 1


def test_without_copies_it_is_as_with_revise() -> None:
    """Windows come without the agent, and are revised."""
    fleet = Fleet(mirrored(plan(1)))
    for agent in fleet.world.agents:
        agent.node.replicas.replication.replicas = 0
    fleet.world.unheard.add(fleet.away.address)
    fleet.world.run(SPAN)
    fleet.world.unheard.clear()
    assert answered(fleet) == 0
    windows = fleet.end()
    assert lacking(fleet) > 0
    assert all(said[-1]["missing"] == [] for said in windows.values())
    assert described(fleet) == (
        "MIRROR: neighbours have sent no snapshots yet; this agent makes no copies (protocol.copies is 0): "
        "when it is behind, nobody answers for it"
    )


def test_describe_says_for_whom_neighbours_have_answered() -> None:
    fleet = Fleet(mirrored(plan(1)))
    leader = fleet.world.leader(fleet.spec)
    fleet.world.unheard.add(fleet.away.address)
    fleet.world.run(SPAN)
    told, count = described(fleet), answered(fleet)
    found = re.findall(r"(\d+) snapshots of (a\d)", told)
    assert told.startswith("MIRROR: neighbours have sent ")
    assert sum(int(sent) for sent, _ in found) == count
    assert f"a{fleet.away.index}" in [who for _, who in found], "and those for which it is an inner node"
    status: dict[str, Any] = leader.node.clients.statements.status()
    assert status["copies"]["mirrored"] == count
    facts = JobStatus(fleet.spec, "active", leader.address, None, None, ())
    assert describe(facts, leader.node.log, str, [None])["stragglers"].endswith("a root does not answer")
    plain = msgspec.structs.replace(facts, spec=planned(fleet.spec, behind(plan(1))))
    assert describe(plain, leader.node.log, str)["stragglers"] == "REVISE"
