"""The codec: every message survives the wire; any bytes at all give a message or FrameRefused."""

from __future__ import annotations

import contextlib
import random
import typing
import zlib

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.codec import Message, decode, encode, pack, unpack
from elf.errors import ElfBug, PeerError
from elf.fields import replace
from elf.job import messages as job
from elf.job.messages.log import Hello, Refused
from elf.job.messages.rollup import Progress, Slice
from elf.job.program import messages as program
from elf.wire.clients import Failed
from elf.wire.frames import MAGIC, WIRE_VERSION, Envelope, FrameRefused, OtherCluster, Reason
from lab.bench.fuzz.frames import message_of
from lab.raft.world import Weather, World
from overlay import messages as ring
from overlay import raft, treemessages
from overlay.ids import KEY_BYTES, Peer

CLUSTER = "shop"
SENDER = "10.0.0.7:7071"
MAX = 1 << 20
ALL_TYPES: tuple[type, ...] = (*job.MESSAGES, *program.MESSAGES, *ring.MESSAGES)
"""Of any values; those of Raft groups see below."""

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)


def value_of(cls: type) -> st.SearchStrategy[typing.Any]:
    """A message of any values that its type allows."""
    return st.integers(0, (1 << 32) - 1).map(lambda seed: message_of(cls, random.Random(seed)))


STRATEGIES = {cls: value_of(cls) for cls in ALL_TYPES}
messages = st.sampled_from(ALL_TYPES).flatmap(STRATEGIES.__getitem__)

SLICE = Slice(flow="f" * 24, start=-4, end=9, members=b"\x05", counters=b"t" * 9, payload=b"arrow" * 99)
ROUTE = ring.Route(
    sender=Peer("a:1", 1),
    token=3,
    key=b"k" * KEY_BYTES,
    origin=Peer("b:1", 2),
    number=7,
    hops=0,
    payload=pack(SLICE),
)


def sent(message: Message) -> list[bytes]:
    return encode(message, cluster=CLUSTER, sender=SENDER)


def read(frames: typing.Sequence[bytes | memoryview]) -> Message:
    return decode(frames, cluster=CLUSTER, max_bytes=MAX).message


def same(one: Message, other: Message) -> bool:
    """Whether two messages are the same: by their bytes, since what is no number is not equal to itself."""
    return type(one) is type(other) and (one == other or sent(one) == sent(other))


def reason_of(frames: typing.Sequence[bytes | memoryview], max_bytes: int = MAX) -> Reason:
    with pytest.raises(PeerError) as caught:
        decode(frames, cluster=CLUSTER, max_bytes=max_bytes)
    assert isinstance(caught.value, FrameRefused)
    assert caught.value.reason in typing.get_args(Reason)
    return caught.value.reason


def envelope_of(message: Message) -> Envelope:
    return msgspec.msgpack.decode(sent(message)[0], type=Envelope)


def forged(envelope: Envelope, **changes: object) -> bytes:
    """An envelope with other contents and a right checksum: what a careful enemy would send."""
    other = msgspec.structs.replace(envelope, **changes)
    words = "\0".join((other.cluster, other.sender, other.tag)).encode()
    return msgspec.msgpack.encode(
        msgspec.structs.replace(other, checksum=zlib.crc32(words, zlib.crc32(other.body)))
    )


@given(messages)
@settings(max_examples=400, deadline=None)
def test_every_message_survives(message: Message) -> None:
    frames = sent(message)
    decoded = decode(frames, cluster=CLUSTER, max_bytes=MAX)
    assert decoded.sender == SENDER
    assert same(decoded.message, message)
    assert same(read([memoryview(frame) for frame in frames]), message)
    assert same(unpack(pack(message)), message)


@pytest.mark.parametrize("cls", ALL_TYPES)
@given(data=st.data())
@settings(max_examples=8, deadline=None)
def test_no_type_is_left_out(cls: type[Message], data: st.DataObject) -> None:
    message = data.draw(STRATEGIES[cls])
    assert same(read(sent(message)), message)


class _Heard(World):
    """A world of Raft groups in which every message travels as frames."""

    heard: typing.ClassVar[set[type]] = set()

    def _send(self, source: str, effect: raft.Send) -> None:
        message = read(sent(effect.message))
        assert message == effect.message
        self.heard.add(type(message))
        super()._send(source, raft.Send(effect.to, message))


def test_replica_groups_work_through_frames() -> None:
    """What they say must make sense to be decoded, so real groups say it: all of it."""
    config = raft.RaftConfig(size=3, piece_bytes=50, compact_entries=4)
    world, key = _Heard(random.Random(4), config, Weather(loss=0.05, doubling=0.05)), b"k" * KEY_BYTES
    for address in "abcd":
        world.start(address)
    world.perform("a", world.at("a").create(key, b"state" * 40, ["b", "c"], world.now))
    world.run(3_000)
    for turn in range(9):
        for address in "bc":
            record = f"{address} {turn}".encode()
            world.judge.asked(address, turn, key, record)
            world.perform(address, world.at(address).propose(key, turn, record, world.now))
        world.run(400)
    world.crash("b")
    world.wipe("b")
    world.start("b")
    world.run(4_000)
    world.perform("d", world.at("d").enter(key, ["a", "b", "c"], world.now))
    world.run(4_000)
    for address in "ac":
        world.perform(address, world.at(address).leave(world.now))
        world.run(4_000)
    assert _Heard.heard == set(raft.MESSAGES)


def test_groups_of_nonsense_are_refused() -> None:
    ask = raft.messages.Ask(Peer("a:1", 1), b"short")
    assert reason_of(sent(ask)) == "fields"


def test_a_payload_is_a_frame_of_its_own_and_the_very_same_bytes() -> None:
    frames = sent(SLICE)
    assert len(frames) == 2
    assert frames[1] is SLICE.payload
    assert SLICE.payload not in frames[0]
    decoded = read(frames)
    assert isinstance(decoded, Slice)
    assert decoded.payload is frames[1]


def test_an_empty_payload_is_no_frame() -> None:
    assert len(sent(msgspec.structs.replace(SLICE, payload=b""))) == 1


def test_a_message_rides_in_an_overlay_message() -> None:
    routed = read(sent(ROUTE))
    assert isinstance(routed, ring.Route)
    assert unpack(routed.payload) == SLICE


def test_names_that_both_families_use_stay_apart() -> None:
    for refused in (
        Refused(agent_id="a", text="no"),
        treemessages.Refused(sender=Peer("a:1", 1), topic=b"t" * KEY_BYTES, reason="no", instead=""),
    ):
        assert read(sent(refused)) == refused


def test_what_may_not_travel_is_a_bug_of_ours() -> None:
    with pytest.raises(ElfBug, match="Peer is not a message"):
        sent(Peer("a:1", 1))  # type: ignore[arg-type]


def test_another_cluster() -> None:
    """Who sends it is known, so that it can be told; what is damaged names no cluster."""
    frames = encode(SLICE, cluster="other", sender=SENDER)
    assert reason_of(frames) == "cluster"
    with pytest.raises(OtherCluster) as caught:
        decode(frames, cluster=CLUSTER, max_bytes=MAX)
    assert (caught.value.cluster, caught.value.sender, caught.value.told) == ("other", SENDER, False)
    with pytest.raises(OtherCluster) as caught:
        read(encode(Failed(request=0, text=""), cluster="x" * 99, sender=""))
    assert (caught.value.cluster, caught.value.told) == ("x" * 64, True)
    damaged = msgspec.msgpack.encode(msgspec.structs.replace(envelope_of(SLICE), cluster="other"))
    assert reason_of([damaged, *sent(SLICE)[1:]]) == "checksum"


def test_another_version_whatever_it_looks_like() -> None:
    assert reason_of([forged(envelope_of(Hello()), version=WIRE_VERSION + 1)]) == "version"
    assert reason_of([msgspec.msgpack.encode([MAGIC, WIRE_VERSION + 1, {"all": "different"}])]) == "version"
    assert reason_of([msgspec.msgpack.encode(["flea", WIRE_VERSION])]) == "malformed"


def test_size_counts_all_frames() -> None:
    frames = sent(SLICE)
    size = sum(map(len, frames))
    assert decode(frames, cluster=CLUSTER, max_bytes=size).message == SLICE
    assert reason_of(frames, max_bytes=size - 1) == "size"


def test_frames_that_do_not_fit_together() -> None:
    head, payload = sent(SLICE)
    assert reason_of([]) == "malformed"
    assert reason_of([head]) == "malformed"
    assert reason_of([head, payload, b""]) == "malformed"
    assert reason_of([head, payload[:-1]]) == "malformed"
    assert reason_of([head, payload[:-1] + b"!"]) == "checksum"
    assert reason_of([sent(Hello())[0], b""]) == "malformed"
    assert reason_of([sent(Hello())[0], payload]) == "malformed"


def test_a_careful_enemy() -> None:
    head, payload = sent(SLICE)
    envelope = envelope_of(SLICE)
    hello = envelope_of(Hello())
    assert reason_of([forged(envelope, tag="job.Nothing"), payload]) == "tag"
    assert reason_of([forged(envelope, tag="job.Committed"), payload]) == "fields"
    assert reason_of([forged(hello, body=b"")]) == "fields"
    assert reason_of([forged(hello, body=b"\xa2\xff\xfe")]) == "fields"
    assert reason_of([forged(hello, body=hello.body + b"\0")]) == "fields"
    nested = b"\x82\xa4type\xa5Hello\xa1x" + b"\x91" * 200_000 + b"\xc0"
    assert reason_of([forged(hello, body=nested)]) == "fields"
    endless = (
        msgspec.msgpack.encode(Progress(member=1, incarnation=1, flows=()))[:-1] + b"\xdd\xff\xff\xff\xff"
    )
    assert reason_of([forged(hello, tag="job.Progress", body=endless)]) == "fields"
    with_place_for_none = forged(hello, payload_bytes=len(payload), payload_checksum=zlib.crc32(payload))
    assert reason_of([with_place_for_none, payload]) == "fields"
    twice = forged(envelope, body=msgspec.msgpack.encode(SLICE))
    assert reason_of([twice, payload]) == "fields"
    short_key = msgspec.msgpack.encode(replace(ROUTE, key=b"k", payload=b""))
    assert reason_of([forged(envelope_of(ROUTE), body=short_key), ROUTE.payload]) == "fields"
    assert read([head, payload]) == SLICE


def test_fields_may_be_appended_and_one_without_them_is_still_understood() -> None:
    for message in (SLICE, replace(ROUTE, payload=b"")):
        envelope, payload = envelope_of(message), sent(message)[1:]
        newer = msgspec.msgpack.encode([*msgspec.msgpack.decode(envelope.body), "of a later version"])
        assert read([forged(envelope, body=newer), *payload]) == message
    *older, _payload = msgspec.msgpack.decode(envelope_of(SLICE).body)
    assert read([forged(envelope_of(SLICE), body=msgspec.msgpack.encode(older)), sent(SLICE)[1]]) == SLICE


def test_a_heartbeat_is_small() -> None:
    """Fields have no names on the wire: with them it was 152 bytes."""
    beat = ring.Heartbeat(Peer("10.0.0.7:7071", 3), 1 << 40, 1 << 40, 250)
    assert len(sent(beat)[0]) < 100


def test_a_changed_sender_or_tag_is_noticed() -> None:
    envelope = envelope_of(Hello())
    for change in ({"sender": "10.0.0.8:7071"}, {"tag": "job.Welcome"}):
        assert reason_of([msgspec.msgpack.encode(msgspec.structs.replace(envelope, **change))]) == "checksum"


@given(st.lists(st.binary(max_size=200), max_size=4))
@settings(max_examples=300, deadline=None)
def test_any_bytes_at_all(frames: list[bytes]) -> None:
    reason_of(frames)
    for frame in frames:
        with pytest.raises(FrameRefused):
            unpack(frame)


@given(messages, st.data())
@settings(max_examples=300, deadline=None)
def test_a_damaged_frame_is_refused_or_means_the_same(message: Message, data: st.DataObject) -> None:
    frames = sent(message)
    which = data.draw(st.integers(0, len(frames) - 1))
    frame = bytearray(frames[which])
    match data.draw(st.sampled_from(["flip", "cut", "grow", "insert"])):
        case "flip":
            frame[data.draw(st.integers(0, len(frame) - 1))] ^= data.draw(st.integers(1, 255))
        case "cut":
            del frame[data.draw(st.integers(0, len(frame) - 1)) :]
        case "grow":
            frame += data.draw(st.binary(min_size=1, max_size=8))
        case _:
            frame.insert(data.draw(st.integers(0, len(frame))), data.draw(st.integers(0, 255)))
    frames[which] = bytes(frame)
    with contextlib.suppress(PeerError):
        assert same(read(frames), message)  # a number may be written in several ways


@given(messages, st.data())
@settings(max_examples=300, deadline=None)
def test_any_fields_with_a_right_checksum(message: Message, data: st.DataObject) -> None:
    """Behind the checksum too: other types, other values, cut bodies give a message or a FrameRefused."""
    envelope = envelope_of(message)
    junk = st.recursive(
        st.none()
        | st.booleans()
        | st.integers(-(1 << 63), (1 << 64) - 1)
        | st.floats()
        | texts
        | st.binary(max_size=20),
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
        max_leaves=10,
    )
    fields = msgspec.msgpack.decode(envelope.body)
    for place in data.draw(st.lists(st.integers(0, len(fields)), max_size=2)):
        fields[place : place + 1] = [data.draw(junk)]
    body = msgspec.msgpack.encode(fields)
    body = body[: data.draw(st.sampled_from([len(body), len(body) // 2]))]
    tag = data.draw(
        st.sampled_from([envelope.tag, f"job.{data.draw(st.sampled_from(job.MESSAGES)).__name__}"])
    )
    frames = [forged(envelope, body=body, tag=tag, payload_bytes=0, payload_checksum=0)]
    try:
        decoded = read(frames)
    except FrameRefused:
        return
    assert type(decoded) in ALL_TYPES
    assert same(read(sent(decoded)), decoded)


@given(messages, st.integers(0, 1 << 20), st.integers(1, 255))
@settings(max_examples=200, deadline=None)
def test_a_damaged_packed_message_is_refused(message: Message, place: int, bits: int) -> None:
    data = bytearray(pack(message))
    data[place % len(data)] ^= bits
    with pytest.raises(FrameRefused):
        unpack(bytes(data))
