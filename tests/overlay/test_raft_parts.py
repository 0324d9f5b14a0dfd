"""The parts of Raft groups: messages that any codec can carry, what is malformed, the log and the disk."""

from __future__ import annotations

import random
import typing

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from lab.raft.disk import Disk, torn
from overlay import Peer, Tick
from overlay.ids import key_of
from overlay.raft import (
    MESSAGES,
    Entry,
    Groups,
    Member,
    Membership,
    Message,
    RaftConfig,
    Received,
    Recorded,
    Send,
    SlotTaken,
    Snapped,
    Snapshot,
)
from overlay.raft.leading import Progress
from overlay.raft.log import Log
from overlay.raft.messages import (
    AppendRequest,
    AppendRequests,
    Ask,
    Header,
    InstallSnapshot,
    VoteRequest,
    VoteRequests,
)
from tests.support.messages import example, plain, random_value

KEY = key_of(b"a group")
STRANGER = Peer("stranger", 1)
HEADER = Header(KEY, 1, 2, 3, 4)
GROUP = Membership(1, (Member("a", 1),), ())


def test_the_tuple_names_all_of_the_union() -> None:
    assert set(MESSAGES) == set(typing.get_args(Message))


@pytest.mark.parametrize("kind", MESSAGES, ids=lambda kind: kind.__name__)
def test_a_message_is_plain_and_explained_and_a_generic_codec_carries_it(kind: type[Message]) -> None:
    assert plain(kind)
    assert kind.__struct_config__.frozen
    assert typing.get_type_hints(kind)["sender"] is Peer
    assert kind.__doc__
    assert "byte" in kind.__doc__
    message = example(kind)
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(message), type=kind) == message


def append(first: int, *terms: int, prev_term: int = 0) -> AppendRequests:
    entries = tuple(Entry(first + at, term, b"x", ()) for at, term in enumerate(terms))
    return AppendRequests(STRANGER, (AppendRequest(HEADER, 1, 0, prev_term, 0, entries),))


@pytest.mark.parametrize(
    "message",
    [
        Ask(STRANGER, b"short"),
        VoteRequests(STRANGER, (VoteRequest(replace(HEADER, group=b""), 5, True, False, 1, 1),)),
        VoteRequests(STRANGER, (VoteRequest(HEADER, 0, True, False, 1, 1),)),
        append(2, 1),
        append(1, 3, 2),
        append(1, 5),
        append(1, 1, prev_term=2),
        AppendRequests(STRANGER, (AppendRequest(HEADER, 1, 0, 0, 0, (Entry(1, 1, b"x", (GROUP,)),)),)),
        InstallSnapshot(STRANGER, HEADER, 1, 5, 1, GROUP, 3, 2, b"xx"),
        InstallSnapshot(STRANGER, HEADER, 1, 5, 1, Membership(1, (), ()), 2, 0, b"xx"),
        InstallSnapshot(STRANGER, HEADER, 1, 5, 5, GROUP, 2, 0, b"xx"),
    ],
)
def test_what_is_malformed_is_dropped_and_counted(message: Message) -> None:
    node = Groups(Peer("me", 1), RaftConfig(), random.Random(1))
    node.start(0)
    assert node.handle(Received(message), 1) == []
    assert node.dropped == 1


@pytest.mark.parametrize("seed", range(3))
def test_any_messages_of_strangers_leave_a_node_sound(seed: int) -> None:
    """Well-typed nonsense from made-up peers breaks no invariant, and takes no slot away."""
    rng = random.Random(seed)
    node = Groups(Peer("me", 1), RaftConfig(), rng)
    node.start(0)
    node.create(bytes([1]) * 16, b"", ["p1", "p2"], 0)
    for now in range(0, 60_000, 20):
        message = random_value(rng, rng.choice(MESSAGES))
        assert isinstance(message, MESSAGES)
        node.handle(Received(message), now)
        due = node.deadline()
        if due is not None and due <= now:
            node.handle(Tick(), now)
        node.check()
    assert bytes([1]) * 16 in node.held()


runs = st.lists(st.tuples(st.integers(1, 12), st.integers(1, 4), st.booleans()), max_size=20)


@given(runs)
def test_log_and_disk_agree_with_a_dict(steps: list[tuple[int, int, bool]]) -> None:
    """Entries put anywhere into the log, and snapshots of it, against a dict of indices."""
    log, disk = Log(Snapshot(1, 1, GROUP, b"")), Disk()
    disk.apply(SlotTaken(KEY, 7, 8, log.base))
    truth: dict[int, int] = {}
    for term, (first, count, compacts) in enumerate(steps, 2):
        if compacts and log.base.index < first <= log.last_index:
            snapshot = Snapshot(first, truth[first], GROUP, b"state")
            log.snap(snapshot)
            disk.apply(Snapped(KEY, snapshot))
        elif log.base.index < first <= log.last_index + 1:
            entries = tuple(Entry(first + at, term, b"x", ()) for at in range(count))
            truth = {index: old for index, old in truth.items() if index < first}
            truth |= {entry.index: term for entry in entries}
            log.put(entries)
            for piece in torn(Recorded(KEY, entries)):
                disk.apply(piece)
        held = disk.groups[KEY]
        assert held.snapshot == log.base
        assert list(held.entries) == log.entries
        assert {e.index: e.term for e in log.entries} == {
            index: old for index, old in truth.items() if index > log.base.index
        }


def test_a_snapshot_of_another_history_leaves_nothing_of_ours() -> None:
    log = Log(Snapshot(1, 1, GROUP, b""), [Entry(index, 2, b"x", ()) for index in (2, 3, 4)])
    log.snap(Snapshot(3, 3, GROUP, b"theirs"))
    assert (log.last_index, log.last_term, log.entries) == (3, 3, [])


def parts(kind: type[AppendRequest], *indices: int, payload: bytes = b"") -> tuple[AppendRequest, ...]:
    return tuple(kind(HEADER, at, at, 4, 0, (Entry(at + 1, 4, payload, ()),)) for at in indices)


def test_messages_that_were_held_back_are_gathered() -> None:
    """To each peer its parts in their order, each kind in a message, or in several of bounded size."""
    node = Groups(STRANGER, RaftConfig(parts_max=3, batch_bytes=10), random.Random(1))
    asked = Send("a", Ask(STRANGER, KEY))
    some = parts(AppendRequest, 1, 2, 3, 4)
    first, second = AppendRequests(STRANGER, some[:1]), AppendRequests(STRANGER, some[1:])
    votes = VoteRequests(STRANGER, (VoteRequest(HEADER, 5, True, False, 1, 1),))
    held = [Send("a", first), Send("b", first), asked, Send("a", votes), Send("a", second)]
    assert node.gathered(held) == [
        Send("a", AppendRequests(STRANGER, some[:3])),
        Send("a", AppendRequests(STRANGER, some[3:])),
        Send("b", first),
        asked,
        Send("a", votes),
    ]
    large = parts(AppendRequest, 1, 2, payload=bytes(8))
    (one, other) = node.gathered([Send("a", AppendRequests(STRANGER, large))])
    assert [one.message, other.message] == [AppendRequests(STRANGER, (part,)) for part in large]
    assert node.gathered([]) == []


def test_who_does_not_answer_is_asked_less_often() -> None:
    """250, 500, then every 1,000 ms."""
    progress = Progress(Member("a", 1), next=5, heard=0)
    waits = []
    for _ in range(5):
        waits.append(progress.patience(250))
        progress.repeats += 1
    assert waits == [250, 500, 1000, 1000, 1000]
