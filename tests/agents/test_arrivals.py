"""Messages that bring definitions wait for their plans, in the order of their sender; nobody else waits."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import msgspec
import pytest

from agents import codec
from agents.arrivals import WAITING_MAX, Arrivals, brings_definitions, plan_all
from elf.errors import QueryError
from elf.job.catalog.voters import Proposed, encode
from elf.job.messages import groups, log
from elf.job.spec import JobSpec, VersionRecord
from elf.ql import memo, planner
from elf.ql.definition import Definition
from elf.schema import Column, Schema
from elf.transport.base import Received
from elf.wire.base import Answer, Message
from elf.wire.frames import Frame, FrameRefused
from overlay import Peer, raft
from overlay import messages as ring
from overlay.raft import messages as group

SCHEMA = Schema((Column("id", "bigint"), Column("ts", "timestamp")), "ts")
PEER, KEY = Peer("127.0.0.1:1", 1), bytes(16)


def spec(number: int) -> JobSpec:
    """A job of which no plan has been made in this process yet, but for the check of the messages with it."""
    sql = f"SELECT COUNT(*) AS n FROM clicks WHERE id > {number} WINDOWING 1 SECONDS"
    return JobSpec("job", "ada", 0, Definition(sql, (("clicks", SCHEMA),)))


def create(number: int) -> groups.CreateJob:
    return groups.CreateJob(id=number, origin="127.0.0.1:1", spec=spec(number), replace=False)


def frames(message: codec.Message) -> list[bytes]:
    return codec.encode(message, cluster="test", sender="127.0.0.1:1")


def forget() -> None:
    """Of the plans of this process those that nobody holds."""
    memo._RECENT.clear()


def routed(number: int) -> ring.Route:
    return ring.Route(
        sender=PEER, token=1, key=KEY, origin=PEER, number=1, hops=0, payload=codec.pack(create(number))
    )


def replicated(number: int) -> group.AppendRequests:
    record = encode(Proposed(log.AddJob(spec=spec(number)), "127.0.0.1:1", "127.0.0.1:1", 1))
    header = group.Header(group=KEY, birth=1, to_slot=1, from_slot=2, term=1)
    part = group.AppendRequest(header, 1, 0, 0, 0, (raft.Entry(1, 1, record, ()),))
    return group.AppendRequests(PEER, (part,))


def answered(number: int) -> Answer:
    job = spec(number)
    status = groups.JobStatus(job, "active", "a:1", None, None, (), versions=(VersionRecord(job),))
    return Answer(id=number, body=msgspec.msgpack.encode(status))


@pytest.mark.parametrize("message", [create, routed, replicated, answered], ids=lambda made: made.__name__)
def test_what_is_planned_beside_the_loop_is_not_planned_on_it(
    message: Callable[[int], codec.Message], monkeypatch: pytest.MonkeyPatch
) -> None:
    said = frames(message(1))
    forget()
    assert brings_definitions(said)
    held = plan_all(said, "test", 1 << 20)
    assert held
    monkeypatch.setattr(planner, "plan_streams", lambda *_: pytest.fail("it is planned again"))
    assert not spec(1).unusable
    assert codec.decode(said, cluster="test", max_bytes=1 << 20)


def test_a_refusal_is_kept_as_a_plan_is(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = Definition("SELECT nothing FROM clicks WINDOWING 1 SECONDS", (("clicks", SCHEMA),))
    held = wrong.made
    forget()
    monkeypatch.setattr(planner, "plan_streams", lambda *_: pytest.fail("it is planned again"))
    again = Definition(wrong.sql, wrong.streams)
    for _ in range(2):
        with pytest.raises(QueryError, match='unknown column "nothing"'):
            _ = again.plan
    assert again.made is held


def test_what_is_kept_without_a_holder_is_bounded_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    forget()
    monkeypatch.setattr(memo, "RECENT_BYTES_MAX", 2_000)
    for number in range(30):
        assert not spec(number).unusable
    assert 0 < len(memo._RECENT) < 30
    assert sum(size for _, size in memo._RECENT) <= 2_000


class Planned:
    """Arrivals whose plans are there when ``made`` says so. ``took`` and ``dropped`` have requests."""

    def __init__(self, plan_secs: float = 10.0) -> None:
        self.made = asyncio.Event()
        self.took: list[tuple[str, int]] = []
        self.dropped: list[tuple[str, int]] = []
        self.tasks: list[asyncio.Future[None]] = []
        self._arrivals = Arrivals(self._take, self._drop, self._plan, plan_secs)

    def say(self, origin: str, message: Message) -> None:
        if (later := self._arrivals.came((origin, frames(message), None))) is not None:
            self.tasks.append(asyncio.ensure_future(later))

    def _take(self, received: Received) -> None:
        self.took.append(_request(received))

    def _drop(self, received: Received, why: FrameRefused) -> None:
        assert why.reason == "slow"
        self.dropped.append(_request(received))

    async def _plan(self, frames: Sequence[Frame]) -> object:
        await self.made.wait()
        return None


def _request(received: Received) -> tuple[str, int]:
    message = codec.decode(received[1], cluster="test", max_bytes=1 << 20).message
    assert isinstance(message, groups.CreateJob | groups.Inspect)
    return received[0], message.id


def inspect(number: int) -> groups.Inspect:
    return groups.Inspect(id=number, origin="127.0.0.1:1", uid=f"{1:032x}.1", windows=0)


async def test_what_one_says_is_taken_in_its_order_and_nobody_else_waits() -> None:
    them = Planned()
    for message in (inspect(1), create(2), inspect(3), create(4), inspect(5)):
        them.say("a", message)
    them.say("b", inspect(6))
    await asyncio.sleep(0)
    assert them.took == [("a", 1), ("b", 6)]
    them.made.set()
    await asyncio.gather(*them.tasks)
    assert them.took == [("a", 1), ("b", 6), ("a", 2), ("a", 3), ("a", 4), ("a", 5)]
    them.say("a", inspect(7))
    assert them.took[-1] == ("a", 7)
    assert not them.dropped


async def test_a_message_whose_plans_take_too_long_is_dropped_alone() -> None:
    them = Planned(plan_secs=0.01)
    them.say("a", create(1))
    them.say("a", inspect(2))
    await asyncio.gather(*them.tasks)
    assert (them.took, them.dropped) == ([("a", 2)], [("a", 1)])


async def test_so_many_messages_wait_behind_one() -> None:
    them = Planned()
    them.say("a", create(0))
    for number in range(1, WAITING_MAX + 3):
        them.say("a", inspect(number))
    assert [number for _, number in them.dropped] == [WAITING_MAX + 1, WAITING_MAX + 2]
    them.made.set()
    await asyncio.gather(*them.tasks)
    assert [number for _, number in them.took] == list(range(WAITING_MAX + 1))
