"""A stand-in for an agent, for tests of the client: the real codec and the real ZeroMQ, with answers that a
test decides.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable, Iterable
from datetime import UTC, datetime

import pyarrow as pa

from agents import codec
from elf.batch import encode
from elf.security.loopback import loopback_file, make_loopback
from elf.transport.zeromq import ZeroMqTransport
from elf.wire.base import Message
from elf.wire.clients import Call, Reply, WindowResult

Answers = Callable[[Message], Iterable[Message]]
JOB = f"{1:032x}.1"
"""The uid of a job."""
STATUS = {"agent": "fake", "incarnation": 1, "jobs": ["busy"], "streams": {"clicks": 1}}


class FakeAgent:
    """Answers what ``answers`` gives for a message; ``status`` by itself. ``heard`` has all messages."""

    def __init__(self, transport: ZeroMqTransport, answers: Answers, cluster: str) -> None:
        self.transport = transport
        self.cluster = cluster
        self.status = dict(STATUS)
        self.heard: list[Message] = []
        self.silent = False
        self.spoil: Callable[[list[bytes]], list[bytes]] = lambda frames: frames
        """What becomes of an answer on its way."""
        self._answers = answers

    @property
    def address(self) -> str:
        return self.transport.address

    async def serve(self) -> None:
        while True:
            client, frames, _ = await self.transport.receive()
            message = codec.decode(frames, cluster=self.cluster, max_bytes=1 << 20).message
            assert isinstance(message, Message)
            self.heard.append(message)
            for reply in self._reply(message):
                frames = codec.encode(reply, cluster=self.cluster, sender=self.address)
                self.transport.send(client, self.spoil(frames))

    def _reply(self, message: Message) -> Iterable[Message]:
        if self.silent:
            return []
        if isinstance(message, Call) and message.verb == "status":
            return [Reply(request=message.request, body=json.dumps(self.status).encode())]
        return self._answers(message)

    def got(self, kind: type[Message]) -> list[Message]:
        return [message for message in self.heard if isinstance(message, kind)]


@contextlib.asynccontextmanager
async def fake_agent(answers: Answers, cluster: str = "elf") -> AsyncIterator[FakeAgent]:
    transport = await ZeroMqTransport.listen("127.0.0.1:0", security=make_loopback(loopback_file()))
    agent = FakeAgent(transport, answers, cluster)
    serving = asyncio.create_task(agent.serve())
    try:
        yield agent
    finally:
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)
        await transport.close()


def at(second: int) -> datetime:
    return datetime(2026, 11, 21, 2, 0, second, tzinfo=UTC)


def window_result(
    *starts: int, revision: int = 0, rows: int = 2, job: str = JOB, whole: bool = False
) -> WindowResult:
    """Windows of five seconds; ``rows`` rows in each. Without ``whole`` an agent is missing in each."""
    naive = [at(start).replace(tzinfo=None) for start in starts]
    ends = [at(start + 5).replace(tzinfo=None) for start in starts]
    us = pa.timestamp("us")
    count = len(starts)
    status = pa.table(
        {
            "window_start": pa.array(naive, us),
            "window_end": pa.array(ends, us),
            "revision": [revision] * count,
            "expected": [7] * count,
            "reported": [7 if whole else 6] * count,
            "missing": pa.array([[] if whole else ["shop-3"]] * count, pa.list_(pa.string())),
            "rows_in": [100] * count,
            "late": [int(not whole)] * count,
        }
    )
    payload = pa.table(
        {
            "window_start": pa.array([start for start in naive for _ in range(rows)], us),
            "window_end": pa.array([end for end in ends for _ in range(rows)], us),
            "product": [f"p{n}" for _ in starts for n in range(rows)],
            "clicks": pa.array([10 * s + n for s in starts for n in range(rows)], pa.decimal128(38, 0)),
        }
    )
    return WindowResult(
        job=job,
        name="busy",
        version=1,
        master="127.0.0.1:1",
        first_us=0,
        last_us=0,
        revision=revision,
        status=encode(status),
        payload=encode(payload) if rows else b"",
    )
