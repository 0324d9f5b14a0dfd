"""Strangers say anything at all to a fleet at work: nobody stops, nothing grows, nothing changes."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random

import psutil
import pytest
import zmq

from agents import codec
from elf.cli.processes import free_ports
from elf.client import connect
from elf.wire.clients import Failed, Reply, Stats
from lab.bench.fuzz.closed import attack
from lab.bench.fuzz.found import FuzzKeys
from lab.bench.fuzz.frames import KINDS, Frames, Kind
from lab.bench.fuzz.target import Target
from lab.bench.fuzz.values import Known
from tests.support.fleet import Agent
from tests.support.long import cases
from tests.support.rawsockets import with_this_machines_key
from tests.support.waiting import eventually

FRAMES = cases(800, 20_000)
GROWN_BYTES_MAX = 64 << 20
CLUSTER = "test"


@pytest.fixture(scope="module")
def target() -> Target:
    """Three agents on virtual time, with a job."""
    return Target(2_027)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("known", [0.0, 0.3])
def test_whatever_strangers_say_a_fleet_goes_on(target: Target, kind: Kind, known: float) -> None:
    """``known``: so many of the names in messages are real ones: of its flows, jobs, members, addresses.
    Where nobody has keys, a real message that somebody has changed may be an agent's: a slice, say."""
    target = Target(2_027) if kind == "changed" else target
    (windows, _), before = target.windows(), psutil.Process().memory_info().rss
    for number in range(FRAMES):
        sent = target.send(kind, known)
        assert sent.refused or kind in ("typed", "changed"), f"taken: {sent.message}"
        if number % 100 == 0:
            target.go_on(50)
    target.go_on(6_000)
    assert not target.faults()
    assert not target.stops()
    now, wrong = target.windows()
    assert now > windows
    for agent in target.attacked():
        agent.node.check()
    if kind != "changed":
        assert not wrong
        assert not target.changed()
    gc.collect()
    assert psutil.Process().memory_info().rss - before < GROWN_BYTES_MAX


def test_each_type_of_message_is_taken_from_strangers_and_changes_nothing(target: Target) -> None:
    """All types, the rare ones too: at least one whose values make sense, with real names in it."""
    target.frames.maker.share = 0.5
    for tag in target.frames.harmless:
        sent = (target.deliver(target.frames.typed(tag)) for _ in range(2_000))
        assert any(one.message for one in sent) or tag == "group.InstallSnapshot", tag
    target.go_on(3_000)
    assert not target.faults()
    assert not target.stops()
    assert not target.changed()


@pytest.mark.parametrize(
    ("keys", "kind"),
    [(FuzzKeys.NONE, "handshakes"), (FuzzKeys.READER, "changed")],
)
def test_a_fleet_with_keys_goes_on(tmp_path: Path, keys: FuzzKeys, kind: str) -> None:
    """Somebody without a key, and one with a reader's: windows are right, what is refused adds up."""
    found = attack(tmp_path, keys, kind, cases(2_000, 100_000), 3, 0.2)
    assert found.problems(kind) == []
    assert found.frames >= 2_000
    assert found.windows > 0
    if keys == FuzzKeys.NONE:
        assert found.refused.total() == found.connections > 0
    else:
        assert found.refused.total() + found.taken.total() == found.frames
        assert found.taken["Execute"]


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[Agent]:
    """A real agent, in a process of its own."""
    port, http = free_ports(2)
    made = Agent("web-0", tmp_path / "web-0", port, http, (), cluster=CLUSTER)
    made.write_config()
    made.log.touch()
    made.fork()
    for _ in range(600):
        if (made.folder / "stderr").exists() and "agent is ready" in made.said():
            break
        time.sleep(0.05)
    yield made
    if made.process is not None:
        made.kill()


async def test_a_real_agent_over_zeromq(agent: Agent) -> None:
    """The same through sockets, driver, threads and disk."""
    async with connect(agent.address, cluster=CLUSTER) as client:
        before = await client.fleet()
        frames = Frames(Random(7), CLUSTER, lambda: "", Known())
        frames.real.append(codec.encode(Reply(request=1), cluster=CLUSTER, sender=""))
        context: zmq.Context[zmq.Socket[bytes]] = zmq.Context.instance()
        with context.socket(zmq.DEALER) as socket:
            with_this_machines_key(socket)
            socket.connect(f"tcp://{agent.address}")
            for number in range(cases(3_000, 30_000)):
                socket.send_multipart(frames.made(KINDS[number % len(KINDS)]))
                if number % 200 == 0:
                    time.sleep(0.05)
            hello = codec.encode(Failed(request=0, text=""), cluster=CLUSTER, sender="")
            socket.send_multipart(hello)

        async def answered() -> Stats | None:
            """What may take a while: all of it is read before."""
            return next(one.stats for one in (await client.fleet()).agents if one.agent == "web-0")

        now = await eventually(answered, "the agent says how it is", 60)
        then = next(one.stats for one in before.agents if one.agent == "web-0")
        assert now is not None
        assert then is not None
        assert now.incarnation == then.incarnation
        assert now.resident_bytes - then.resident_bytes < 128 << 20
    assert agent.process is not None
    assert agent.process.poll() is None
    assert "could not be handled" not in agent.said()
