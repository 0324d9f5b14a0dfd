"""One contract for every transport, run over memory and ZeroMQ alike; then what only one of them can do."""

from __future__ import annotations

import asyncio
import os
import random
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Protocol

import pytest
import zmq

from elf.errors import UserError
from elf.security.keys import curve_of_secret
from elf.security.principals import LOCAL, Security
from elf.transport.base import IN_A_ROW_MAX, Closed, Limits, Received, Transport
from elf.transport.memory import MemoryNetwork
from elf.transport.zeromq import PART_BYTES, ZeroMqTransport
from tests.support.waiting import eventually

SOON = 10.0
SMALL = Limits(message_bytes_max=4 << 20, inbox_messages_max=16, peer_messages_max=8)


class World(Protocol):
    """Makes parties of one kind; everything that it made is closed after the test."""

    async def agent(self, address: str = "", limits: Limits | None = None) -> Transport: ...

    async def client(self) -> Transport: ...

    async def close(self) -> None: ...


class MemoryWorld:
    def __init__(self) -> None:
        self.made: list[Transport] = []
        self.network = MemoryNetwork()

    async def agent(self, address: str = "", limits: Limits | None = None) -> Transport:
        made = self.network.listen(address or f"agent-{len(self.made)}:1", limits)
        self.made.append(made)
        return made

    async def client(self) -> Transport:
        self.made.append(self.network.dial())
        return self.made[-1]

    async def close(self) -> None:
        for made in self.made:
            await made.close()


class ZeroMqWorld:
    security: Security | None = None

    def __init__(self) -> None:
        self.made: list[Transport] = []

    async def agent(self, address: str = "", limits: Limits | None = None) -> ZeroMqTransport:
        made = await ZeroMqTransport.listen(address or "127.0.0.1:0", limits=limits, security=self.security)
        self.made.append(made)
        return made

    async def client(self) -> Transport:
        self.made.append(await ZeroMqTransport.dial(security=self.security))
        return self.made[-1]

    async def close(self) -> None:
        await asyncio.gather(*(made.close() for made in self.made))


class CurveWorld(ZeroMqWorld):
    """Everybody has the one key of the machine."""

    pair = curve_of_secret(random.Random(7).randbytes(32))
    security = Security(pair, pair.public, pair.secret, {pair.public: LOCAL}.get)


@pytest.fixture(params=[MemoryWorld, ZeroMqWorld, CurveWorld], ids=["memory", "zeromq", "curve"])
async def world(request: pytest.FixtureRequest) -> AsyncIterator[World]:
    made: World = request.param()
    yield made
    await made.close()


@pytest.fixture
async def net() -> AsyncIterator[ZeroMqWorld]:
    made = ZeroMqWorld()
    yield made
    await made.close()


async def arrival(party: Transport) -> tuple[str, list[bytes]]:
    return (await asyncio.wait_for(party.receive(), SOON))[:2]


async def silent(party: Transport, secs: float = 0.05) -> bool:
    try:
        await asyncio.wait_for(party.receive(), secs)
    except TimeoutError:
        return True
    return False


async def insist(party: Transport, to: str, frames: list[bytes]) -> None:
    """Send until it is taken, as a retry would."""
    await eventually(lambda: party.send(to, frames), "it is taken", SOON)


# -- the contract --------------------------------------------------------------------------------------------


async def test_a_message_arrives_with_the_address_of_its_sender(world: World) -> None:
    one, other = await world.agent(), await world.agent()
    assert one.send(other.address, [b"head", b"payload"])
    assert await arrival(other) == (one.address, [b"head", b"payload"])
    assert other.send(one.address, [b"back"])
    assert await arrival(one) == (other.address, [b"back"])


async def test_messages_of_one_peer_keep_their_order(world: World) -> None:
    one, other = await world.agent(), await world.agent()

    async def send() -> None:
        for number in range(3000):
            await insist(one, other.address, [b"%d" % number])

    sending = asyncio.create_task(send())
    assert [(await arrival(other))[1] for _ in range(3000)] == [[b"%d" % number] for number in range(3000)]
    await sending


async def test_big_frames_arrive_whole_and_in_order(world: World) -> None:
    one, other = await world.agent(), await world.agent()
    big = [os.urandom(3 << 20) for _ in range(4)]
    for frame in big:
        await insist(one, other.address, [b"head", frame])
        await insist(one, other.address, [b"small"])
    for frame in big:
        assert (await arrival(other))[1] == [b"head", frame]
        assert (await arrival(other))[1] == [b"small"]


@pytest.mark.parametrize("size", [PART_BYTES - 1, PART_BYTES, PART_BYTES + 1, 2 * PART_BYTES])
async def test_frames_about_as_long_as_a_part(world: World, size: int) -> None:
    one, other = await world.agent(), await world.agent()
    frames = [os.urandom(size), b"", os.urandom(size)]
    for sent in (frames[:2], frames[::2]):
        await insist(one, other.address, sent)
        assert (await arrival(other))[1] == sent


async def test_a_frame_may_be_empty(world: World) -> None:
    one, other = await world.agent(), await world.agent()
    one.send(other.address, [b"", b""])
    assert (await arrival(other))[1] == [b"", b""]


async def test_an_agent_can_send_to_itself(world: World) -> None:
    one = await world.agent()
    one.send(one.address, [b"note"])
    assert await arrival(one) == (one.address, [b"note"])


async def test_too_big_is_not_sent_and_counted(world: World) -> None:
    one, other = await world.agent(limits=SMALL), await world.agent(limits=SMALL)
    assert not one.send(other.address, [b"head", b"x" * SMALL.message_bytes_max])
    assert one.counters.dropped == {"size": 1}
    assert one.send(other.address, [b"next"])
    assert (await arrival(other))[1] == [b"next"]


async def test_what_cannot_be_routed_is_counted(world: World) -> None:
    one = await world.agent()
    nowhere = ["", "nobody", "host:99999", "client:", "client:zz", "client:00ff", "tcp://a:1", "ä:b", ":1"]
    assert [one.send(to, [b"x"]) for to in nowhere] == [False] * len(nowhere)
    assert one.counters.dropped == {"unroutable": len(nowhere)}
    assert one.counters.sent == 0


async def test_a_full_receiver_holds_its_sender_back(world: World) -> None:
    """Nothing grows: at some point ``send`` says False; what was taken arrives, in order, once it is read
    again.
    """
    one, other = await world.agent(limits=SMALL), await world.agent(limits=SMALL)
    taken = []
    body = b"x" * 40_000
    for number in range(5000):
        if one.send(other.address, [b"%d" % number, body]):
            taken.append(number)
        elif number - len(taken) > 50:
            break
        await asyncio.sleep(0)
    assert one.counters.dropped["full"] > 50
    assert one.counters.sent == len(taken) < 2000
    arrived = [int((await arrival(other))[1][0]) for _ in taken]
    assert arrived == taken
    await insist(one, other.address, [b"again"])
    assert (await arrival(other))[1] == [b"again"]


async def test_one_slow_party_does_not_hold_others_back(world: World) -> None:
    slow, quick, one = [await world.agent(limits=SMALL) for _ in range(3)]
    for _ in range(3000):
        one.send(slow.address, [b"x" * 60_000])
    assert one.counters.dropped["full"]
    await insist(one, quick.address, [b"hello"])
    assert (await arrival(quick))[1] == [b"hello"]


async def test_many_peers(world: World) -> None:
    hub = await world.agent()
    spokes = [await world.agent() for _ in range(12)]
    for number, spoke in enumerate(spokes):
        spoke.send(hub.address, [b"%d" % number])
    seen = dict([await arrival(hub) for _ in spokes])
    assert seen == {spoke.address: [b"%d" % number] for number, spoke in enumerate(spokes)}
    for spoke in spokes:
        hub.send(spoke.address, [spoke.address.encode()])
    assert [await arrival(spoke) for spoke in spokes] == [
        (hub.address, [spoke.address.encode()]) for spoke in spokes
    ]


async def test_a_client_without_a_listener_gets_answers(world: World) -> None:
    agent = await world.agent()
    clients = [await world.client() for _ in range(3)]
    for number, client in enumerate(clients):
        assert client.send(agent.address, [b"%d" % number])
    asked = [await arrival(agent) for _ in clients]
    assert all(origin.startswith("client:") for origin, _ in asked)
    assert len({origin for origin, _ in asked}) == 3
    big = os.urandom(1 << 20)
    for origin, frames in asked:
        assert agent.send(origin, [b"answer to", *frames])
        assert agent.send(origin, [b"table", big])
    for number, client in enumerate(clients):
        assert await arrival(client) == (agent.address, [b"answer to", b"%d" % number])
        assert await arrival(client) == (agent.address, [b"table", big])
        assert client.counters.received == 2


async def test_a_client_that_went_away_is_unroutable(world: World) -> None:
    agent, client = await world.agent(), await world.client()
    client.send(agent.address, [b"ask"])
    origin, _ = await arrival(agent)
    await client.close()
    await eventually(lambda: not agent.send(origin, [b"answer"]), "it is refused", SOON)
    assert agent.counters.dropped == {"unroutable": 1}


async def test_a_peer_that_went_away_and_came_back(world: World) -> None:
    one, other = await world.agent(), await world.agent()
    address = other.address
    one.send(address, [b"before"])
    assert (await arrival(other))[1] == [b"before"]
    await other.close()
    one.send(address, [b"meanwhile"])
    other = await world.agent(address)

    async def knock() -> None:
        while True:
            one.send(address, [b"after"])
            await asyncio.sleep(0.02)  # as a retry would, until it is heard

    knocking = asyncio.create_task(knock())
    while (await arrival(other))[1] != [b"after"]:
        pass
    knocking.cancel()
    other.send(one.address, [b"I am back"])
    assert await arrival(one) == (address, [b"I am back"])


async def test_after_close(world: World) -> None:
    one, other = await world.agent(), await world.agent()
    waiting = asyncio.create_task(other.receive())
    await asyncio.sleep(0)
    await other.close()
    await other.close()
    with pytest.raises(Closed):
        await asyncio.wait_for(waiting, SOON)
    with pytest.raises(Closed):
        await other.receive()
    assert not other.send(one.address, [b"late"])
    assert other.counters.dropped == {"closed": 1}


async def test_what_had_arrived_is_still_delivered_after_close(world: World) -> None:
    one, other = await world.agent(), await world.agent()
    one.send(other.address, [b"first"])
    one.send(other.address, [b"second"])
    assert (await arrival(other))[1] == [b"first"]
    await asyncio.sleep(0.05)  # for the second, whose arrival nobody sees before it is received
    await other.close()
    assert (await other.receive())[1] == [b"second"]
    with pytest.raises(Closed):
        await other.receive()


async def test_what_comes_is_handed_over_in_its_order(world: World) -> None:
    one, other = await world.agent(), await world.agent()
    one.send(other.address, [b"before"])
    await asyncio.sleep(0.05)
    turns: list[int] = []
    heard: list[bytes] = []

    def take(messages: Sequence[Received]) -> None:
        assert all(origin == one.address for origin, _, _ in messages)
        turns.append(len(messages))
        heard.extend(frames[0] for _, frames, _ in messages)

    other.hand_to(take)
    sent = [str(number).encode() for number in range(3 * IN_A_ROW_MAX)]
    for frame in sent:
        await insist(one, other.address, [frame])
    await eventually(lambda: len(heard) > len(sent), "all have come", SOON)
    assert heard == [b"before", *sent]
    assert max(turns) <= IN_A_ROW_MAX
    assert min(turns) >= 1
    assert other.counters.received == len(heard)


async def test_last_words_are_heard(world: World) -> None:
    one, other = await world.agent(), await world.agent()
    one.send(other.address, [b"hello"])
    await arrival(other)
    one.send(other.address, [b"farewell"])
    await one.close()
    assert (await arrival(other))[1] == [b"farewell"]


async def test_a_cancelled_receive_loses_nothing(world: World) -> None:
    one, other = await world.agent(), await world.agent()
    assert await silent(other, 0.01)
    one.send(other.address, [b"kept"])
    assert (await arrival(other))[1] == [b"kept"]


async def test_a_busy_inbox_lets_others_run(world: World) -> None:
    one, other = await world.agent(), await world.agent()
    for _ in range(900):
        one.send(other.address, [b"x"])
    turns = 0

    async def bystander() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(bystander())
    for _ in range(900):
        await arrival(other)
    task.cancel()
    assert turns >= 10


async def test_an_address_in_use(world: World) -> None:
    one = await world.agent()
    with pytest.raises(UserError) as caught:
        await world.agent(one.address)
    assert one.address in str(caught.value)
    assert "in use" in str(caught.value)
    assert "\n" not in str(caught.value)


async def test_counters_tell_messages_and_bytes(world: World) -> None:
    one, other = await world.agent(), await world.agent()
    one.send(other.address, [b"1234", b"56"])
    await arrival(other)
    assert (one.counters.sent, one.counters.sent_bytes) == (1, 6)
    assert (other.counters.received, other.counters.received_bytes) == (1, 6)
    assert not one.counters.dropped
    assert not other.counters.refused


# -- memory --------------------------------------------------------------------------------------------------


async def test_memory_copies_nothing() -> None:
    network = MemoryNetwork()
    one, other = network.listen("a:1"), network.listen("b:1")
    payload = b"x" * 100
    one.send("b:1", [payload])
    assert (await arrival(other))[1][0] is payload


async def test_an_inbox_is_bounded_in_bytes_but_takes_one_message() -> None:
    network = MemoryNetwork()
    limits = Limits(inbox_bytes_max=1000)
    one, other = network.listen("a:1"), network.listen("b:1", limits)
    assert [one.send("b:1", [b"x" * 5000]) for _ in range(2)] == [True, False]
    await arrival(other)
    assert one.send("b:1", [b"x"])


# -- ZeroMQ --------------------------------------------------------------------------------------------------


def raw(agent: Transport) -> socket.socket:
    host, _, port = agent.address.rpartition(":")
    return socket.create_connection((host, int(port)), timeout=2)


@pytest.mark.parametrize(
    "junk",
    [
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\xff\x00\x00\x00\x00\x00\x00\x00\x01\x7f\x03" + b"\xff" * 500,
        b"\x11" * 4096,
        random.Random(7).randbytes(4096),
        b"\0" * 4096,
        b"",
    ],
)
async def test_bytes_that_are_no_zeromq_hurt_nobody(net: ZeroMqWorld, junk: bytes) -> None:
    """Old peers of ZeroMQ had no greeting, so some junk is messages of theirs: the codec's to refuse."""
    agent, other = await net.agent(), await net.agent()

    async def passes(word: bytes) -> None:
        other.send(agent.address, [word])
        while (heard := await arrival(agent)) != (other.address, [word]):
            assert heard[0].startswith("client:")

    await passes(b"before")
    with raw(agent) as unknown_member:
        unknown_member.sendall(junk)
        await passes(b"during")
    await passes(b"after")


@pytest.fixture
def unknown_member() -> Iterator[zmq.Socket[bytes]]:
    """A DEALER of somebody else's making."""
    with zmq.Context() as context, context.socket(zmq.DEALER) as made:
        made.linger = 0
        yield made


async def test_messages_of_the_wrong_shape_are_counted_and_dropped(
    net: ZeroMqWorld, unknown_member: zmq.Socket[bytes]
) -> None:
    agent, other = await net.agent(limits=SMALL), await net.agent()
    unknown_member.connect(f"tcp://{agent.address}")
    unknown_member.send_multipart([b"x"] * 500)
    unknown_member.send_multipart([b"1", b"2", b"3"])
    part = b"x" * PART_BYTES
    unknown_member.send_multipart([*[part] * (SMALL.message_bytes_max // PART_BYTES), b"x"])
    unknown_member.send_multipart([b"head", part])  # it says that it goes on, and does not
    unknown_member.send(b"good")
    origin, frames = await arrival(agent)
    assert (frames, origin[:7]) == ([b"good"], "client:")
    assert agent.counters.refused == {"malformed": 3, "size": 1}
    other.send(agent.address, [b"also good"])
    assert (await arrival(agent))[1] == [b"also good"]


async def test_a_frame_longer_than_a_part_costs_its_sender_the_connection(
    net: ZeroMqWorld, unknown_member: zmq.Socket[bytes]
) -> None:
    agent, other = await net.agent(limits=SMALL), await net.agent()
    unknown_member.connect(f"tcp://{agent.address}")
    unknown_member.send(b"x" * (2 * PART_BYTES))
    other.send(agent.address, [b"good"])
    assert await arrival(agent) == (other.address, [b"good"])
    assert await silent(agent)


@pytest.mark.parametrize("identity", [b"A", b"A12345678", b"A12345678\xff:1", b"\x01", b"B:1"])
async def test_odd_identities_are_clients(
    net: ZeroMqWorld, unknown_member: zmq.Socket[bytes], identity: bytes
) -> None:
    agent = await net.agent()
    unknown_member.routing_id = identity
    unknown_member.connect(f"tcp://{agent.address}")
    unknown_member.send(b"ask")
    origin, _ = await arrival(agent)
    assert origin == f"client:{identity.hex()}"
    assert agent.send(origin, [b"answer"])
    assert await asyncio.to_thread(unknown_member.recv) == b"answer"


async def test_port_0_is_read_back_and_advertised() -> None:
    agent = await ZeroMqTransport.listen("127.0.0.1:0", advertise="localhost:0")
    host, _, port = agent.address.rpartition(":")
    assert host == "localhost"
    assert 0 < int(port) < 65536
    other = await ZeroMqTransport.listen("127.0.0.1:0", advertise="web-7.example:7071")
    assert other.address == "web-7.example:7071"
    assert other.send(agent.address, [b"x"])
    assert await arrival(agent) == ("web-7.example:7071", [b"x"])
    await agent.close()
    await other.close()


@pytest.mark.parametrize(
    ("listen", "says"),
    [
        ("nonsense", "not host:port"),
        ("127.0.0.1:70000", "port from 0 to 65535"),
        ("192.0.2.1:7071", "no such address"),
        ("::1:7071", "brackets"),
    ],
)
async def test_places_where_one_cannot_listen(listen: str, says: str) -> None:
    with pytest.raises(UserError, match=says) as caught:
        await ZeroMqTransport.listen(listen)
    assert "\n" not in str(caught.value)


async def test_idle_connections_are_closed_and_opened_again(net: ZeroMqWorld) -> None:
    agent = await net.agent()
    other = await net.agent(limits=Limits(idle_secs=0.05))
    for _ in range(2):
        other.send(agent.address, [b"hello"])
        assert await arrival(agent) == (other.address, [b"hello"])
        await eventually(lambda: not other.connections, "they are closed", SOON)


async def test_connections_are_bounded_and_a_closed_one_still_delivers(net: ZeroMqWorld) -> None:
    agents = [await net.agent() for _ in range(4)]
    one = await net.agent(limits=Limits(peers_max=2))
    for agent in agents:
        await insist(one, agent.address, [b"hello"])
    assert one.connections == 2
    for agent in agents:
        assert (await arrival(agent))[1] == [b"hello"]


async def test_bytes_that_wait_for_a_peer_are_bounded(net: ZeroMqWorld) -> None:
    """A peer that is not there: big frames are counted in bytes, not only in messages."""
    one = await net.agent(limits=Limits(peer_bytes_max=5 << 20))
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        to = f"127.0.0.1:{nobody.getsockname()[1]}"
        assert [one.send(to, [b"h", b"x" * (2 << 20)]) for _ in range(4)] == [True, True, False, False]
        assert one.counters.dropped == {"full": 2}


async def test_closing_does_not_wait_for_the_dead(net: ZeroMqWorld) -> None:
    one = await net.agent()
    for port in range(1, 4):
        one.send(f"192.0.2.1:{port}", [b"anybody there?"])
    async with asyncio.timeout(2):
        await one.close()


async def test_a_connection_that_zeromq_has_given_up_is_made_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bytes come back that are none of ZeroMQ's protocol: it takes nothing more, and never tries again."""
    monkeypatch.setattr("elf.transport.zeromq.STUCK_SECS", 0.3)
    there = await ZeroMqTransport.listen("127.0.0.1:0")
    host, port = there.address.split(":")
    noise, ways = b"\xff" * 64, []

    async def spoil(here: asyncio.StreamReader, answers: asyncio.StreamWriter) -> None:
        """A proxy; noise goes back after what ZeroMQ says to greet."""
        back, on = await asyncio.open_connection(host, int(port))
        ways.append(asyncio.ensure_future(pump(here, on)))
        ways.append(asyncio.ensure_future(pump(back, answers)))
        if len(ways) == 2:
            await asyncio.sleep(0.3)  # in which it hears the greeting
            answers.write(noise)

    async def pump(source: asyncio.StreamReader, to: asyncio.StreamWriter) -> None:
        while data := await source.read(1 << 16):
            to.write(data)
        to.close()

    proxy = await asyncio.start_server(spoil, "127.0.0.1", 0)
    to = f"127.0.0.1:{proxy.sockets[0].getsockname()[1]}"
    here = await ZeroMqTransport.listen("127.0.0.1:0")
    here.send(to, [b"first"])
    assert (await asyncio.wait_for(there.receive(), SOON))[1] == [b"first"]
    await eventually(lambda: not here.send(to, [b"into the void"]), "it takes nothing more", SOON)
    waiting = asyncio.ensure_future(_until(there, b"again"))

    def sent_again() -> bool:
        here.send(to, [b"again"])
        return waiting.done()

    await eventually(sent_again, "it arrives by another connection", SOON)
    assert len(ways) >= 4, "another connection"
    await here.close()
    await there.close()
    proxy.close()
    for way in ways:
        way.cancel()
    await asyncio.gather(*ways, return_exceptions=True)


async def _until(transport: Transport, wanted: bytes) -> None:
    while (await transport.receive())[1] != [wanted]:
        pass


FORGOTTEN = """
import asyncio, gc
from elf.transport.zeromq import ZeroMqTransport

async def forget():
    agent, client = await ZeroMqTransport.listen("127.0.0.1:0"), await ZeroMqTransport.dial()
    client.send(agent.address, [b"a"])
    await agent.receive()
    await agent.close()
    client.reading = asyncio.create_task(client.receive())
    await asyncio.sleep(0)

asyncio.run(forget())
gc.collect()
"""


def test_a_client_that_nobody_closed_holds_nobody_up() -> None:
    """Garbage collection finds its context before its sockets, which it would wait for."""
    assert subprocess.run([sys.executable, "-c", FORGOTTEN], timeout=30, check=False).returncode == 0
