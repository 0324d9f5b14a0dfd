"""Poison: what is well-typed and makes no sense, or is committed and means nothing. It stops no agent, nor at
the next start, when the log says it again; all agents skip it alike, and say so."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import msgspec
import pytest

from agents import codec
from agents.codec import decode, encode, pack, unpack
from agents.node.node import Node
from agents.node.working import ToWorker
from elf.fields import replace
from elf.job import events as was
from elf.job.catalog.voters import LOG_GROUP, Proposed
from elf.job.catalog.voters import encode as encode_proposal
from elf.job.commits import PaneCommit, WindowCommit
from elf.job.group import records
from elf.job.group.records import group_key
from elf.job.messages.inquiries import InspectClocks
from elf.job.messages.log import (
    AddJob,
    DropJobEntry,
    JoinStream,
    LeaveStream,
    LogTail,
    LogVoters,
    MemberLeft,
    Proposal,
    Welcome,
)
from elf.job.messages.rollup import (
    Committed,
    LeaveOut,
    PaneRequest,
    Progress,
    ReadPanes,
    Resend,
    Slice,
    Verdict,
)
from elf.job.program.messages import DropProgram, Told
from elf.job.spec import JobSpec
from elf.ql.plan import Top
from elf.wire.base import Message
from elf.wire.clients import Call, Execute
from elf.wire.frames import FrameRefused
from lab.bench.fuzz.target import AGENTS, Attacked, Target
from lab.chaos.engine import plan, planned
from overlay import raft
from overlay.ids import Peer
from overlay.raft.forms import COUNTED_MAX, well_formed
from overlay.raft.messages import AppendReply, AppendRequest, Header, VoteRequest

STRANGER = "10.66.6.6:6666"


@pytest.fixture(scope="module")
def target() -> Target:
    """Three agents at work on a job."""
    return Target(11)


def refused(message: Message) -> str:
    with pytest.raises(FrameRefused) as caught:
        decode(encode(message, cluster="c", sender="s"), cluster="c", max_bytes=1 << 20)
    assert caught.value.reason == "fields"
    with pytest.raises(FrameRefused):
        unpack(pack(message))
    return str(caught.value)


APP = "0" * 32
LONG = f"{APP}.{'9' * 5_000}"


@pytest.mark.parametrize("uid", ["", "zz.1", "abc", APP, f"{APP}.x", LONG, "\u0663" * 32])
def test_a_uid_that_is_none(uid: str) -> None:
    """It was taken apart as hexadecimal digits, at each agent, and at each start."""
    refused(Told(uid=uid, value=b""))
    refused(DropJobEntry(uid=uid))
    refused(DropProgram(id=1, origin="a:1", app=b"a" * 16, uid=uid))


def test_numbers_that_cannot_be(target: Target) -> None:
    flow = target.job.flows[0].uid
    refused(Progress(member=1 << 60, incarnation=1, flows=()))
    refused(LeaveStream(stream="clicks", agent_id="a", until_us=1 << 63))
    refused(JoinStream(stream="", agent_id="a", name="a", incarnation=1, address="a:1", since_us=0))
    for least, watched in ((float("nan"), b""), (float("inf"), b""), (-1.0, b""), (1.0, b"123")):
        body = msgspec.msgpack.encode([flow, least, watched])
        with pytest.raises(msgspec.ValidationError):
            msgspec.msgpack.decode(body, type=LeaveOut)
    for parts, members, end in (((0, 1), (0, 2)), b"", 1), (((0, 1),), b"\1", 1), (((0, 1),), b"", 2):
        body = msgspec.msgpack.encode([flow, 0, end, members, parts])
        with pytest.raises(msgspec.ValidationError, match="a delta that is none"):
            msgspec.msgpack.decode(body, type=Slice)


# -- what is committed ---------------------------------------------------------------------------------------


def leader_of(target: Target, key: bytes) -> Attacked:
    def leads(agent: Attacked) -> bool:
        standing = agent.node.catalog.desk.groups.standing(key)
        return standing is not None and standing.leads

    return next(agent for agent in target.attacked() if leads(agent))


def commit(target: Target, key: bytes, record: bytes) -> None:
    """Have a group take a record, whatever it says, as anybody can who speaks to its leader."""
    agent = leader_of(target, key)
    steps = agent.node.catalog.desk.propose(key, record, target.world.now)
    agent.perform(agent.node.settle(steps, target.world.now))
    target.go_on(3_000)


def proposal(said: Proposal) -> bytes:
    return encode_proposal(Proposed(said, STRANGER, STRANGER, 1))


def raw(value: object) -> bytes:
    return msgspec.msgpack.encode(value)


def another(target: Target, **changes: object) -> JobSpec:
    return replace(target.job, generation=7, **changes)


LOG_RECORDS: dict[str, Callable[[Target], bytes]] = {
    "bytes": lambda _: b"\xc1 nothing",
    "nested": lambda _: b"\x91" * 50_000 + b"\xc0",
    "a number": lambda _: raw(7),
    "another kind": lambda _: raw([["Nothing", 1], "a", "b", 1]),
    "a uid that is none": lambda _: raw([["DropJobEntry", "zz"], "a", "b", 1]),
    "a uid of many digits": lambda _: raw([["DropJobEntry", LONG], "a", "b", 1]),
    "a generation out of reach": lambda t: proposal(
        DropJobEntry(uid=f"{t.job.uid.partition('.')[0]}.{10**15 - 1}")
    ),
    "a job without flows": lambda t: proposal(AddJob(spec=another(t).with_flows(()))),
    "a job with flows of another": lambda t: proposal(AddJob(spec=planned(another(t), plan(4)))),
    "a flow of a wrong name": lambda t: proposal(
        AddJob(spec=another(t).with_flows((replace(t.job.flows[0], uid="0" * 24),)))
    ),
}


@pytest.mark.parametrize("name", LOG_RECORDS)
def test_a_record_of_the_catalog_log_that_means_nothing(target: Target, name: str) -> None:
    """Every voter skips it, before and after a restart, and goes on with the next one."""
    before, windows = [agent.node.log.last for agent in target.attacked()], target.windows_right()
    told = [len(agent.skipped) for agent in target.attacked()]
    commit(target, LOG_GROUP, LOG_RECORDS[name](target))
    assert [agent.node.log.last for agent in target.attacked()] == before, "it became an entry"
    if name in ("bytes", "nested", "a number", "another kind", "a uid that is none", "a uid of many digits"):
        assert [len(agent.skipped) for agent in target.attacked()] == [n + 1 for n in told]
    goes_on(target, windows)


def goes_on(target: Target, windows: int) -> None:
    """After a restart of each, too: each hears of all records again."""
    for agent in target.attacked():
        agent.crash()
        target.go_on(500)
        target.world.restart(agent)
        target.go_on(6_000)
    assert all(agent.up and agent.node.ready for agent in target.attacked())
    assert [one[:AGENTS] for one in target.facts()] == [one[:AGENTS] for one in target.before]
    assert all(agent.node.log.job(target.job.uid) is not None for agent in target.attacked())
    target.before = target.facts()  # a job group may have moved
    assert not target.faults()
    assert not target.stops()
    assert target.windows_right() > windows


def pane_commit(target: Target, **changes: object) -> PaneCommit:
    """The first pane of the job, said otherwise."""
    store, flow = leader_of(target, group_key(target.job.uid)).store, target.job.flows[0].uid
    known = store.committed(flow)[0]
    said = PaneCommit(flow, known.start, known.end, known.revision, b"\x07", 1, b"", b"another")
    return replace(said, **changes)


def job_records(target: Target) -> dict[str, bytes]:
    window = WindowCommit("0" * 32 + ".1", 0, 1, 0, 1, False, b"", b"", b"")
    wrong = raw([*raw_list(records.encode(pane_commit(target)))[:-2], b"\xff no parts", b""])
    return {
        "bytes": b"\xc1 nothing",
        "another kind": raw(["Nothing", 1, 2]),
        "a pane of no flow": raw(["PaneCommit", "zz", 0, 1, 0, b"", 0, b"", b""]),
        "no panes": raw(["PaneCommit", target.job.flows[0].uid, 5, 5, 0, b"", 0, b"", b""]),
        "parts that are none": wrong,
        "a window of another job": records.encode(window),
        "another job": records.encode(records.JobKept(another(target), "active", 1)),
        "a state that is none": raw(
            ["JobKept", raw_list(records.encode(records.JobKept(target.job, "active", 1)))[1], "x", 1]
        ),
    }


def raw_list(data: bytes) -> list[object]:
    found: list[object] = msgspec.msgpack.decode(data)
    return found


def test_records_of_a_job_group_that_mean_nothing(target: Target) -> None:
    windows, key = target.windows_right(), group_key(target.job.uid)
    told = [len(agent.skipped) for agent in target.attacked()]
    some = job_records(target)
    for record in some.values():
        commit(target, key, record)
    assert [len(agent.skipped) - n for agent, n in zip(target.attacked(), told, strict=True)] == [
        len(some)
    ] * 3
    goes_on(target, windows)


def test_a_second_word_on_a_pane(target: Target) -> None:
    """A pane is committed once: who says it again, and otherwise, changes nothing at any member."""
    windows, key = target.windows_right(), group_key(target.job.uid)
    said = pane_commit(target)
    commit(target, key, records.encode(said))
    for agent in target.attacked():
        known = agent.store.committed_as(*said.name)
        assert known is not None
        assert known.payload != said.payload
        assert "is committed" in agent.skipped[-1].why
    goes_on(target, windows)


def test_a_state_that_is_none_is_not_begun_with() -> None:
    """A snapshot of the catalog log that nobody can read: the agent says so, and answers for no log."""
    kept = Target(12).attacked()[0].node.catalog.kept
    entries = kept.log.last
    (told,) = kept.install(b"\xc1 nothing")
    assert kept.unusable
    assert "the state of the catalog log" in str(told)
    assert kept.apply(proposal(DropJobEntry(uid="0" * 32 + ".1"))) == []
    assert kept.log.last == entries


# -- what is said --------------------------------------------------------------------------------------------


def hear(target: Target, agent: Attacked, message: codec.Message, sender: str = STRANGER) -> None:
    target.deliver_to(agent, encode(message, cluster="sim", sender=sender))
    target.go_on(500)


def test_a_follower_skips_an_entry_that_cannot_be(target: Target) -> None:
    """It has its number in the log all the same, so that those behind it follow."""
    log = Target(13).attacked()[0].node.log
    last = log.last
    gone = MemberLeft(seq=last + 1, stream="clicks", number=99, until_us=0)
    next_one = MemberLeft(seq=last + 2, stream="clicks", number=0, until_us=77)
    assert log.extend(last, [gone, next_one]) == (gone, next_one)
    assert log.skipped == {last + 1: "clicks has no member 99"}
    assert log.members("clicks")[0].until_us == 77


def test_a_stranger_does_not_say_which_cluster_this_is(target: Target) -> None:
    """The smaller of two clusters stops: only whoever was asked may say that there is another."""
    agent = target.attacked()[0]
    voters = LogVoters(epoch=1 << 40, term=1, leader=STRANGER, addresses=(STRANGER,))
    hear(target, agent, Welcome(voters=voters, cluster_uid="zzzz", entries=1 << 40))
    uid = agent.node.membership.cluster
    assert uid is not None
    entry = MemberLeft(seq=agent.node.log.last + 1, stream="clicks", number=0, until_us=0)
    last = agent.node.log.last
    tail = LogTail(cluster_uid=uid.uid, voters=voters, after=last, entries=(entry,), last=last + 1)
    hear(target, agent, tail)
    assert not target.stops()
    assert agent.node.log.last == last
    assert agent.node.membership.voters != (STRANGER,)
    assert not target.changed()


def test_what_nobody_can_make_of_panes(target: Target) -> None:
    """A threshold for a flow that has none, a cut by a column that is none, members that are none."""
    flow, windows = target.job.flows[0].uid, target.windows_right()
    for agent in target.attacked():
        hear(target, agent, LeaveOut(flow=flow, least=1.0, watched=b"12345678"))
        cut = Top("no such state", True, False, 3)
        hear(target, agent, ReadPanes(requests=(PaneRequest(flow, 0, 0, 1, cut),)))
    target.go_on(5_000)
    assert target.windows_right() > windows
    assert not target.faults()


def test_a_voter_that_lies(target: Target) -> None:
    """Who has more than the leader is not heard; a leader that takes back what is committed is a fault: its
    message is dropped, and counted, and the group goes on."""
    windows = target.windows_right()
    leader = leader_of(target, LOG_GROUP)
    group = leader.node.catalog.desk.groups.group(LOG_GROUP)
    local, (other, *_) = group.local, group.local.others()
    header = Header(LOG_GROUP, local.hard.birth, local.hard.slot, other.slot, local.term)
    sender = Peer(other.address, 1 << 40)
    far = AppendReply(header, 1, True, local.log.last_index + 9, 0)
    hear(target, leader, raft.messages.AppendReplies(sender, (far,)), other.address)
    follower = next(a for a in target.attacked() if a.address == other.address)
    there = follower.node.catalog.desk.groups.group(LOG_GROUP).local
    back = Header(LOG_GROUP, there.hard.birth, there.hard.slot, local.hard.slot, there.term)
    entry = raft.Entry(there.commit, there.term, b"other", ())
    first = there.log.term_at(there.commit - 1)
    if first is not None:
        entry = raft.Entry(there.commit, there.term + 1, b"other", ())
        newer = replace(back, term=there.term + 1)
        part = AppendRequest(newer, 1, there.commit - 1, first, 0, (entry,))
        hear(
            target,
            follower,
            raft.messages.AppendRequests(Peer(leader.address, 1 << 40), (part,)),
            leader.address,
        )
    told = {fault.about for agent in target.attacked() for fault in agent.faults}
    assert told == {"AppendRequests"}
    for agent in target.attacked():
        agent.faults.clear()
        agent.node.check()
    target.go_on(20_000)
    assert target.windows_right() > windows


def test_a_message_that_no_code_can_handle_is_dropped_alone(
    target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last guard: whatever fails, one message is lost, and is named with its sender."""
    agent, windows = target.attacked()[1], target.windows_right()
    node: Node = agent.node

    def fails(*_: object) -> None:
        raise ZeroDivisionError("nobody thought of that")

    with monkeypatch.context() as patched:
        patched.setattr(node.requests, "answer", fails)
        event = was.Arrived(STRANGER, InspectClocks(id=1, origin=STRANGER))
        agent.guard(partial(agent.handle, event))
    (fault,) = agent.faults
    assert (fault.about, fault.sender) == ("InspectClocks", STRANGER)
    agent.faults.clear()
    target.go_on(5_000)
    assert target.windows_right() > windows


def test_a_term_that_would_use_up_all_terms(target: Target) -> None:
    """Nobody comes there by elections: what names it is dropped, and the group goes on in its own."""
    windows, leader = target.windows_right(), leader_of(target, LOG_GROUP)
    group = leader.node.catalog.desk.groups.group(LOG_GROUP)
    local, (other, *_) = group.local, group.local.others()
    term = local.term
    far = Header(LOG_GROUP, local.hard.birth, local.hard.slot, other.slot, COUNTED_MAX)
    sender = Peer(other.address, 1 << 40)
    hear(
        target, leader, raft.messages.AppendReplies(sender, (AppendReply(far, 1, True, 1, 0),)), other.address
    )
    vote = VoteRequest(replace(far, term=term), COUNTED_MAX, False, False, 1, 1)
    hear(target, leader, raft.messages.VoteRequests(sender, (vote,)), other.address)
    target.go_on(10_000)
    assert group.local.term < term + 100
    assert target.windows_right() > windows
    assert not target.faults()


@pytest.mark.parametrize("number", [-(1 << 63), (1 << 62) + 1, (1 << 64) - 1])
def test_a_request_has_a_number_that_an_answer_can_have(number: int) -> None:
    refused(Call(request=number, verb="status"))
    refused(Execute(request=number, sql="SHOW JOBS", creator="ada"))


@pytest.mark.parametrize("whom", ["leader", "follower"])
def test_nobody_says_that_a_member_is_out(target: Target, whom: str) -> None:
    """A slot that is gone never returns: two such words would leave a group of three without a majority."""
    leader = leader_of(target, LOG_GROUP)
    group = leader.node.catalog.desk.groups.group(LOG_GROUP)
    others = [one for one in target.attacked() if one is not leader]
    victim = leader if whom == "leader" else others[0]
    local = victim.node.catalog.desk.groups.group(LOG_GROUP).local
    said = group.told()
    kept = tuple(one for one in said.members if one.slot != local.hard.slot)
    sender = Peer(others[-1].address, 1 << 40)
    for epoch in (said.epoch, said.epoch + 1) if whom == "leader" else (said.epoch,):
        out = replace(said, sender=sender, epoch=epoch, members=kept, leader=sender.address)
        hear(target, victim, out, sender.address)
    assert victim.node.catalog.desk.groups.group(LOG_GROUP).local is local
    assert not local.released
    windows = target.windows_right()
    target.go_on(5_000)
    assert target.windows_right() > windows
    assert not target.faults()


def test_a_follower_that_has_more_than_its_leader(target: Target) -> None:
    leader = leader_of(target, LOG_GROUP)
    group = leader.node.catalog.desk.groups.group(LOG_GROUP)
    local, (other, *_) = group.local, group.local.others()
    header = Header(LOG_GROUP, local.hard.birth, local.hard.slot, other.slot, local.term)
    reply = AppendReply(header, 1, True, local.log.last_index + 100, local.commit)
    sender = Peer(other.address, 1 << 40)
    hear(target, leader, raft.messages.AppendReplies(sender, (reply,)), other.address)
    target.go_on(2_000)
    assert local.commit <= local.log.last_index
    assert not target.faults()


def test_a_candidate_after_ballots_that_nobody_won() -> None:
    """Terms may be ahead of a short log."""
    header = Header(LOG_GROUP, 1, 1, 2, 9)
    candidate = Peer("a:1", 1)

    def wants(ballot: int, last_index: int, last_term: int) -> bool:
        vote = VoteRequest(header, ballot, True, False, last_index, last_term)
        return well_formed(raft.messages.VoteRequests(candidate, (vote,)))

    assert wants(10, 2, 9)
    assert not wants(9, 2, 9)
    assert not wants(10, 2, -1)


def test_nobody_enters_with_a_number_that_all_refuse(target: Target) -> None:
    """A leader with such a member would send it what is dropped at every entrance, for ever."""
    leader = leader_of(target, LOG_GROUP)
    group = leader.node.catalog.desk.groups.group(LOG_GROUP)
    known = len(group.local.others())
    hear(target, leader, raft.messages.Enter(Peer("b:1", 1), LOG_GROUP, group.local.hard.birth, 0), "b:1")
    target.go_on(5_000)
    assert len(group.local.others()) == known
    assert not target.faults()


def test_a_stranger_does_not_say_what_is_committed(target: Target) -> None:
    """Nor that snapshots go: who retains them believes their root."""
    flow, agent = target.job.flows[0], target.attacked()[1]
    node, now = agent.node, target.world.now
    words: list[ToWorker] = [
        Committed(flow=flow.uid, start=0, end=1 << 40, revision=0, members=b"\7"),
        LeaveOut(flow=flow.uid, least=5.0, watched=b""),
        *(Verdict(flow=flow.uid, start=0, end=1 << 40, verdict=word) for word in ("final", "leapt", "send")),
        Resend(flow=flow.uid, start=0, end=1 << 40),
    ]
    for word in words:
        assert list(node._working.arrived(STRANGER, word, now)) == []
    known = node.log.flow(flow.uid)
    assert known is not None
    assert node._working._is_root(known.leader, flow.uid), "its root is believed"
