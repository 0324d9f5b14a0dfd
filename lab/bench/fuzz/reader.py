"""A person with a reader's key, over a connection that is right: over it comes what no honest client sends.

Each frame is said to all agents. What of it is no client's message is told here by the code that an agent
tells it by, so the agents' counts are known before. After every ``PACE`` frames each agent is asked for a
sign of life: what is said faster than it is heard waits in sockets, and libzmq gives up a connection that
stands still for 15 seconds, with what is on it.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Sequence
from typing import Final

import zmq
from zmq.utils import z85

from agents.doors import FROM_CLIENTS, Doors
from elf.errors import ElfError
from elf.job.catalog.log import CatalogLog
from elf.security.authorship import author
from elf.security.folder import Keys
from elf.security.principals import Principal
from elf.transport.zeromq import FRAMES_MAX
from elf.wire.base import FAMILY, Message
from elf.wire.clients import CLIENT_MESSAGES, Call, Cancel, Execute, KeepAlive, Reply
from elf.wire.frames import Codec, FrameRefused
from lab.bench.control_fleet import CLUSTER, STREAM
from lab.bench.fuzz.frames import Frames, Kind

OFTEN: Final = 0.05
"""So many of the random messages are those that a client may send."""
PACE: Final = 500
SIGN_SECS: Final = 120.0
_SIGN: Final = 1 << 40
"""The number of that request."""
_ORIGIN: Final = "client:00"
_BYTES_MAX: Final = 64 << 20
_MISSHAPEN: Final = "misshapen"
_CODEC: Final[Codec[Message]] = Codec({FAMILY: FROM_CLIENTS})
_ANSWERS: Final[Codec[Message]] = Codec({FAMILY: CLIENT_MESSAGES})
_TAGS: Final = tuple(_CODEC.types)
_WINDOWS: Final = f"COUNT(*) AS n FROM {STREAM} WINDOWING 1 SECONDS"
STATEMENTS: Final = (
    f"SELECT {_WINDOWS}",
    "SHOW JOBS",
    "SHOW MEMBERS",
    "SHOW STREAMS",
    "DESCRIBE alive",
    "SUBSCRIBE alive",
    f"EXPLAIN SELECT {_WINDOWS}",
    f"CREATE JOB other AS SELECT {_WINDOWS}",
    f"ALTER JOB alive AS SELECT {_WINDOWS}",
    "DROP JOB alive",
    "PAUSE JOB alive",
    "NOTIFY JOB alive 'hello'",
    f"SELECT MAX(_line) FROM {STREAM} WINDOWING 1 SECONDS",
    "SHOW JOBS; DROP JOB alive",
)
CALLS: Final = (
    ("status", ""),
    ("fleet", ""),
    ("tree", "alive"),
    ("compare", "alive"),
    ("query", "alive"),
    ("keys", ""),
    ("tap", "{}"),
    ("submit", "{}"),
    ("enrol", "{}"),
    ("take off", "web-001"),
    ("leave", "force"),
)


def said_by_clients(keys: Keys) -> list[list[bytes]]:
    """What clients say, signed by the owner of these keys where it changes something."""
    asked: list[Message] = [
        Execute(
            request=number,
            sql=sql,
            creator="ada",
            authored=author(keys.pair, CLUSTER, sql, (), time.time()),
        )
        for number, sql in enumerate(STATEMENTS, 1)
    ]
    asked += [Call(request=20, verb=verb, argument=argument, creator="ada") for verb, argument in CALLS]
    asked += [KeepAlive(request=1), Cancel(request=1)]
    return [_CODEC.encode(one, cluster=CLUSTER, sender=_ORIGIN) for one in asked]


class Reader:
    """``addresses``: of the agents; ``own``: the reader's keys; ``frames``: makes them."""

    def __init__(
        self, kind: Kind, rng: random.Random, addresses: Sequence[str], own: Keys, frames: Frames
    ) -> None:
        self._kind: Kind = kind
        self._rng = rng
        self._frames = frames
        self._doors = Doors(CatalogLog(), CLUSTER, _BYTES_MAX)
        self._who = Principal("person", own.certificate.name, own.certificate.roles)
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._sockets = [self._connected(address, own) for address in addresses]
        self.connections = 0
        self.answers = 0
        self.expected: Counter[str] = Counter()
        """What agents are to count, by reason."""
        self.taken: Counter[str] = Counter()

    def _connected(self, address: str, own: Keys) -> zmq.Socket[bytes]:
        socket = self._context.socket(zmq.DEALER)
        socket.setsockopt(zmq.LINGER, 0)
        socket.curve_serverkey = z85.encode(own.identity.fleet.key)
        socket.curve_publickey = z85.encode(own.pair.curve.public)
        socket.curve_secretkey = z85.encode(own.pair.curve.secret)
        socket.connect(f"tcp://{address}")
        return socket

    def send(self, frames: int) -> int:
        """About so many, each to every agent, and how many."""
        each = max(frames // len(self._sockets), 1)
        for number in range(each):
            said = self._made()
            became, is_refused = self._becomes(said)
            (self.expected if is_refused else self.taken)[became] += len(self._sockets)
            for socket in self._sockets:
                socket.send_multipart(said)
            if (number + 1) % PACE == 0 or number + 1 == each:
                self._wait()
        return each * len(self._sockets)

    def close(self) -> None:
        for socket in self._sockets:
            socket.close()
        self._context.term()

    def _made(self) -> list[bytes]:
        if self._kind == "typed" and self._rng.random() < OFTEN:
            return self._frames.typed(self._rng.choice(_TAGS))
        return self._frames.made(self._kind)

    def _becomes(self, frames: list[bytes]) -> tuple[str, bool]:
        """Why an agent refuses it, or what it takes it for; and which of both."""
        if len(frames) > FRAMES_MAX:
            return _MISSHAPEN, True
        try:
            message = self._doors.opened(_ORIGIN, frames, self._who, 0.0).message
        except FrameRefused as refused:
            return refused.reason, True
        return type(message).__name__, False

    def _wait(self) -> None:
        """Until each agent has heard all. Raises ``ElfError`` when one does not say so in time."""
        sign = Call(request=_SIGN, verb="status")
        asks = _CODEC.encode(sign, cluster=CLUSTER, sender=_ORIGIN)
        for socket in self._sockets:
            socket.send_multipart(asks)
        for socket in self._sockets:
            while True:
                if not socket.poll(int(SIGN_SECS * 1e3)):
                    raise ElfError(f"an agent has said nothing for {SIGN_SECS:g} s")
                frames = socket.recv_multipart()
                self.answers += 1
                if len(frames) > FRAMES_MAX:
                    continue  # a long one, in parts
                answer = _ANSWERS.decode(frames, cluster=CLUSTER, max_bytes=_BYTES_MAX).message
                if isinstance(answer, Reply) and answer.request == _SIGN:
                    break
