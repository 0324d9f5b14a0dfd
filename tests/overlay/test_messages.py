"""Messages: plain values that a generic codec can carry, each explained; and what is wrong does no harm."""

from __future__ import annotations

import random
import types
import typing

import msgspec
import pytest

from overlay import Overlay, OverlayConfig, Peer, Received, Tick
from overlay.messages import MESSAGES, Message, Route
from overlay.treemessages import Head, Multicast, Refresh, Subscribe, TopicMark, TopicPath, Unsubscribe
from tests.support.messages import example, plain, random_value


def test_the_tuple_names_all_of_the_union() -> None:
    assert isinstance(Message, types.UnionType)
    assert set(MESSAGES) == set(typing.get_args(Message))


@pytest.mark.parametrize("kind", MESSAGES, ids=lambda kind: kind.__name__)
def test_a_message_is_frozen_plain_and_explained(kind: type[Message]) -> None:
    assert plain(kind)
    assert kind.__struct_config__.frozen
    assert typing.get_type_hints(kind)["sender"] is Peer
    assert kind.__doc__
    assert "byte" in kind.__doc__ or "KB" in kind.__doc__ or "payload" in kind.__doc__


@pytest.mark.parametrize(
    "kind", [*MESSAGES, Peer, Head, TopicMark, TopicPath], ids=lambda kind: kind.__name__
)
def test_a_generic_codec_carries_it(kind: type[Message]) -> None:
    message = example(kind)
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(message), type=kind) == message


STRANGER = Peer("stranger", 1)


@pytest.mark.parametrize(
    "message",
    [
        Route(STRANGER, 1, b"short", STRANGER, 1, 0, b""),
        Subscribe(STRANGER, b"", "", False, False, ()),
        Multicast(STRANGER, bytes(17), STRANGER, 1, b""),
        Unsubscribe(STRANGER, (bytes(16), b"x")),
        Refresh(STRANGER, 1, (TopicMark(b"x", 1),)),
    ],
    ids=lambda message: type(message).__name__,
)
def test_a_malformed_key_is_dropped_and_counted(message: Message) -> None:
    overlay = Overlay(Peer("me", 1), OverlayConfig(), random.Random(1))
    overlay.start([], 0)
    assert overlay.handle(Received(message), 1) == []
    assert overlay.dropped == 1
    assert overlay.peers() == ()


@pytest.mark.parametrize("seed", range(3))
def test_any_messages_of_strangers_leave_a_node_sound(seed: int) -> None:
    """Well-typed nonsense from a few made-up peers, in any order, breaks no invariant."""
    rng = random.Random(seed)
    overlay = Overlay(Peer("me", 1), OverlayConfig(leaf_set_size=4), rng)
    overlay.start([], 0)
    for now in range(0, 60_000, 40):
        overlay.handle(Received(_nonsense(rng, rng.choice(MESSAGES))), now)
        due = overlay.deadline()
        if due is not None and due <= now:
            overlay.handle(Tick(), now)
        overlay.check()


def _nonsense(rng: random.Random, kind: type[Message]) -> Message:
    message = random_value(rng, kind)
    assert isinstance(message, MESSAGES)
    return message
