"""Somebody without a key at the doors of agents that have keys: connections over which comes anything but a
handshake that ends well.

Of each connection the listener reads until something is wrong, and ends it. The stranger sends all that it
has at once, says that no more comes, and waits until the listener has ended the connection: so what comes of
each is known. ``CROWD`` of them are open at once, fewer than the listener bears.
"""

from __future__ import annotations

import contextlib
import os
import random
import socket
import struct
from collections import Counter
from collections.abc import Sequence
from typing import Final, Literal

from nacl.bindings import crypto_box, crypto_box_keypair, crypto_box_open

from lab.bench.fuzz.frames import Frames, damaged

Knock = Literal["bytes", "greetings", "plain", "handshakes"]
KNOCKS: Final[tuple[Knock, ...]] = ("bytes", "greetings", "plain", "handshakes")
"""Random bytes; greetings of every version and mechanism, damaged; greetings of libzmq's other mechanisms,
and messages of the fleet behind; what CURVE says, damaged, invented, or of a key that nobody has signed."""

CROWD: Final = 32
AT_ONCE: Final = 32
"""Frames over one connection."""
WAIT_SECS: Final = 20.0
MANY: Final = 1 << 16
"""Bytes that are read in one go."""
_SIGNATURE: Final = b"\xff" + b"\0" * 7 + b"\x01\x7f"
_WELCOME_BYTES: Final = 64 + 2 + 168


def greeting(mechanism: bytes, *, minor: int = 1, server: int = 0) -> bytes:
    """Of ZMTP 3."""
    return _SIGNATURE + bytes((3, minor)) + mechanism.ljust(20, b"\0") + bytes((server,)) + b"\0" * 31


def frame(data: bytes, *, command: bool = False, more: bool = False) -> bytes:
    """As ZMTP 3 has it."""
    flags = command << 2 | more
    if len(data) < 256:
        return bytes((flags, len(data))) + data
    return struct.pack(">BQ", flags | 2, len(data)) + data


class Curve:
    """The client's side of CURVE (RFC 26), as far as the door: with a key of its own that nobody knows, and
    the public key of the fleet's listeners, which is no secret."""

    def __init__(self, fleet: bytes) -> None:
        self._fleet = fleet
        self._public, self._secret = crypto_box_keypair()
        self._brief_public, self._brief_secret = crypto_box_keypair()

    def hello(self) -> bytes:
        short = (1).to_bytes(8, "big")
        box = crypto_box(bytes(64), b"CurveZMQHELLO---" + short, self._fleet, self._brief_secret)
        return b"\x05HELLO\x01\0" + bytes(72) + self._brief_public + short + box

    def initiate(self, welcome: bytes, metadata: bytes) -> bytes:
        """The answer to a ``WELCOME``. Raises ``CryptoError`` where that is none."""
        long, box = welcome[8:24], welcome[24:168]
        plain = crypto_box_open(box, b"WELCOME-" + long, self._fleet, self._brief_secret)
        its, cookie = plain[:32], plain[32:]
        nonce, short = os.urandom(16), (2).to_bytes(8, "big")
        vouch = crypto_box(self._brief_public + self._fleet, b"VOUCH---" + nonce, its, self._secret)
        said = self._public + nonce + vouch + metadata
        return (
            b"\x08INITIATE"
            + cookie
            + short
            + crypto_box(said, b"CurveZMQINITIATE" + short, its, self._brief_secret)
        )


METADATA: Final = b"\x0bSocket-Type\0\0\0\x06DEALER\x08Identity\0\0\0\0"


class Stranger:
    """``doors``: host and port of each agent; ``fleet``: the public key of their listeners; ``frames``: makes
    what an agent or a client would send."""

    def __init__(
        self, kind: Knock, rng: random.Random, doors: Sequence[tuple[str, int]], fleet: bytes, frames: Frames
    ) -> None:
        self._kind = kind
        self._rng = rng
        self._doors = doors
        self._frames = frames
        self._fleet = fleet
        self._hello = Curve(fleet).hello()
        self.connections = 0
        self.expected: Counter[str] = Counter()
        """What agents are to count: nothing by name, since who finds out first names it."""
        self.taken: Counter[str] = Counter()

    def send(self, frames: int) -> int:
        """About so many, and how many."""
        sent = 0
        while sent < frames:
            crowd = [self._connected() for _ in range(CROWD)]
            try:
                said = [self._said() for _ in crowd]
                for one, (first, _) in zip(crowd, said, strict=True):
                    _give(one, first)
                for one, (_, curve) in zip(crowd, said, strict=True):
                    if curve is not None:
                        _give(one, self._behind(one, curve))
                    with contextlib.suppress(OSError):
                        one.shutdown(socket.SHUT_WR)
                for one in crowd:
                    _drain(one)
            finally:
                for one in crowd:
                    one.close()
            sent += CROWD * AT_ONCE
            self.connections += CROWD
        return sent

    def _connected(self) -> socket.socket:
        """From one of many addresses."""
        rng = self._rng
        source = f"127.{rng.randrange(1, 200)}.{rng.randrange(256)}.{rng.randrange(1, 255)}"
        return socket.create_connection(rng.choice(self._doors), WAIT_SECS, (source, 0))

    def _said(self) -> tuple[bytes, Curve | None]:
        """What is said first; and who goes on when it is answered."""
        rng = self._rng
        match self._kind:
            case "bytes":
                return b"".join(rng.randbytes(rng.randrange(1, 200)) for _ in range(AT_ONCE)), None
            case "greetings":
                hello = frame(self._hello, command=True)
                said = damaged(rng, self._greeting() + hello)
                return b"".join([said, *self._messages(AT_ONCE - 2)]), None
            case "plain":
                return b"".join([self._other(), *self._messages(AT_ONCE - 1)]), None
            case _:
                return self._handshake()

    def _greeting(self) -> bytes:
        mechanism = self._rng.choice((b"CURVE", b"CURVE", b"NULL", b"PLAIN", b"GSSAPI"))
        return greeting(mechanism, minor=self._rng.randrange(3), server=self._rng.randrange(2))

    def _other(self) -> bytes:
        """As who knows no keys begins: of this version of ZMTP or of those before it."""
        rng = self._rng
        null = greeting(b"NULL") + frame(b"\x05READY" + METADATA, command=True)
        user = greeting(b"PLAIN") + frame(b"\x05HELLO\x05admin\x05admin", command=True)
        return rng.choice((null, user, b"\x01\0", _SIGNATURE + b"\x01\x05\0\0", _SIGNATURE + b"\0\x05\0\0"))

    def _messages(self, count: int) -> list[bytes]:
        """Such as agents and clients say."""
        made: list[bytes] = []
        while len(made) < count:
            *first, last = self._frames.made(self._rng.choice(("bytes", "damaged", "changed")))
            made += [*(frame(one, more=True) for one in first), frame(last)]
        return made[:count]

    def _handshake(self) -> tuple[bytes, Curve | None]:
        rng, open_ = self._rng, greeting(b"CURVE")
        if rng.random() < 0.5:
            curve = Curve(self._fleet)
            return open_ + frame(curve.hello(), command=True), curve
        invented = (
            self._hello,
            damaged(rng, self._hello),
            b"\x08INITIATE" + rng.randbytes(rng.randrange(400)),
            b"\x07MESSAGE" + rng.randbytes(rng.randrange(200)),
            rng.choice((b"\x07WELCOME", b"\x05READY", b"\x05ERROR", b"\x04PING")) + rng.randbytes(20),
        )
        said = [frame(rng.choice(invented), command=rng.random() < 0.9) for _ in range(AT_ONCE - 1)]
        return b"".join([open_, *said]), None

    def _behind(self, one: socket.socket, curve: Curve) -> bytes:
        """What follows a right ``HELLO``: what is all right but for the key, or damaged; and messages."""
        rng, welcome = self._rng, b""
        with contextlib.suppress(OSError):
            while len(welcome) < _WELCOME_BYTES and (data := one.recv(_WELCOME_BYTES - len(welcome))):
                welcome += data
        if len(welcome) < _WELCOME_BYTES:
            return b""
        metadata = METADATA if rng.random() < 0.5 else damaged(rng, METADATA)
        said = curve.initiate(welcome[-168:], metadata)
        if rng.random() < 0.7:
            said = damaged(rng, said)
        behind = [frame(b"\x07MESSAGE" + rng.randbytes(60)) for _ in range(AT_ONCE - 3)]
        return b"".join([frame(said, command=True), *behind])


def _give(one: socket.socket, data: bytes) -> None:
    with contextlib.suppress(OSError):  # it has ended the connection already
        one.sendall(data)


def _drain(one: socket.socket) -> None:
    with contextlib.suppress(ConnectionError):
        while one.recv(MANY):
            pass
