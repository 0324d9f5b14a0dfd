"""The key that all agents listen with is changed while they run: who learns the new one, and who does not."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
import zmq

from elf.cli import doctor, rotate
from elf.client import Window, connect
from elf.client.enrolment import join_fleet, keys_of
from elf.errors import ElfError, UserError
from elf.security import folder as files
from elf.security.certificates import Rotation, ServerKeys, Signed, sign
from elf.security.enrolling import packed, read_token
from elf.security.keys import KeyPair, curve_of_secret, seal
from elf.security.principals import CurvePair, Principal, Security
from elf.security.roster import Roster
from elf.transport.handshakes import Failure
from elf.transport.zeromq import ZeroMqTransport
from tests.support.enrolled import CLUSTER, Enrolled, state_of, token_of, until

OVERLAP_SECS = 10
SPREAD_SECS = 5.0
"""Within which what is signed reaches all agents."""
COUNT = "SELECT COUNT(*) AS n FROM clicks WINDOWING 1 SECONDS"


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Enrolled]:
    made = Enrolled(tmp_path_factory.mktemp("rotated"))
    try:
        made.start()
        yield made
    finally:
        made.fleet.stop()


def rotated(fleet: Enrolled, overlap: int = OVERLAP_SECS) -> ServerKeys:
    """What a new key of the fleet has made of its keys."""
    assert rotate.rotate_fleet(fleet.own, f"{overlap}s", fleet.address) == 0
    return files.load(fleet.own).identity.fleet


def begun(keys: ServerKeys) -> None:
    time.sleep(max(0.0, keys.starts - time.time()) + 0.5)


def listens_with(address: str, server: bytes, own: CurvePair) -> bool:
    """Whether who is at an address shakes hands with the owner of that key."""

    async def ask() -> bool:
        ended: asyncio.Future[Failure | None] = asyncio.get_running_loop().create_future()

        def told(_: str, why: Failure | None) -> None:
            if not ended.done():
                ended.set_result(why)

        transport = await ZeroMqTransport.dial(security=Security(own, server), told=told)
        try:
            transport.reach(address)
            async with asyncio.timeout(3):
                return await ended is None
        except TimeoutError:
            return False
        finally:
            await transport.close()

    return asyncio.run(ask())


def signed_by_fleet(fleet: Enrolled) -> tuple[Signed, ...]:
    return asyncio.run(keys_of(fleet.address, fleet.own, CLUSTER)).signed


def last_rotation(fleet: Enrolled) -> Signed:
    return [one for one in signed_by_fleet(fleet) if isinstance(one.opened(), Rotation)][-1]


def said_to(fleet: Enrolled, signed: Signed, keys: Path | None = None) -> str:
    """Why the fleet does not take what somebody brings."""

    async def bring() -> None:
        async with connect(fleet.address, keys=keys or fleet.own) as client:
            await client.call("enrol", packed(signed))

    with pytest.raises(UserError) as caught:
        asyncio.run(bring())
    return str(caught.value)


def test_all_agents_change_without_a_restart_and_without_a_lost_window(fleet: Enrolled) -> None:
    """One client reads windows from before the new key is known until long after it counts."""
    hana = fleet.person("hana", "read,write")
    own = files.load(hana).pair.curve
    before = files.load(hana).identity.fleet
    processes = [agent.process.pid for agent in fleet.fleet.agents if agent.process is not None]
    assert "created" in fleet.sql(f"CREATE JOB counted AS {COUNT}", hana)
    windows: list[Window] = []

    async def read() -> ServerKeys:
        async with connect(fleet.address, keys=hana) as client:
            changed: ServerKeys | None = None
            spread = 0.0
            async for window in client.subscribe("counted"):
                windows.append(window)
                if changed is None and len(windows) == 3:
                    changed = await asyncio.to_thread(rotated, fleet)
                    spread = await known_everywhere(changed)
                    assert spread < SPREAD_SECS
                if changed is not None and time.time() > changed.starts + 4:
                    return changed
        raise AssertionError("the subscription has ended")

    async def known_everywhere(keys: ServerKeys) -> float:
        began = time.monotonic()
        for address in fleet.addresses:
            async with connect(address, keys=fleet.own) as client:
                while (await client.status())["fleet_key"] != keys.next.hex():
                    assert time.monotonic() - began < SPREAD_SECS
                    await asyncio.sleep(0.05)
        return time.monotonic() - began

    async def bounded() -> ServerKeys:
        async with asyncio.timeout(60):
            return await read()

    after = asyncio.run(bounded())
    assert (after.key, before.next) == (before.key, b"")
    for address in fleet.addresses:
        assert listens_with(address, after.next, own)
        assert not listens_with(address, after.key, own)
    assert processes == [agent.process.pid for agent in fleet.fleet.agents if agent.process is not None]
    starts = [window.start.timestamp() for window in windows if window.start is not None]
    assert starts == [starts[0] + number for number in range(len(starts))]
    assert starts[-1] > after.starts
    assert {(one.status["reported"], one.status["expected"]) for one in windows if one.start} == {(3, 3)}
    assert files.load(hana).identity.fleet == after  # learnt on the way, and kept
    assert "dropped" in fleet.sql("DROP JOB counted", hana)


def test_who_asks_within_the_overlap_learns_the_new_key_and_who_does_not_is_told(
    fleet: Enrolled, capsys: pytest.CaptureFixture[str]
) -> None:
    often, seldom = fleet.person("often", "write"), fleet.person("seldom")
    early = token_of(fleet, "early", uses=2)
    keys = rotated(fleet)
    late = token_of(fleet, "late", uses=2)
    both = read_token(late).fleet
    assert both == keys
    assert both.tried(keys.starts - 1) == (keys.key, keys.next)
    assert both.tried(keys.starts) == (keys.next,)
    assert fleet.admitted(often)
    assert doctor.examine(often, None, fleet.address) == 0
    assert "ok     fleet's key: another one, which is known here, holds from" in capsys.readouterr().out
    begun(keys)
    assert fleet.admitted(often)
    with pytest.raises(ElfError, match="its key is another one"):
        fleet.admitted(seldom)
    with pytest.raises(ElfError, match="cannot reach an agent"):
        asyncio.run(join_fleet(early, fleet.folder / "early", "early-1"))
    asyncio.run(join_fleet(late, fleet.folder / "late", "late-1"))
    host = files.load(fleet.folder / "late")
    assert host.fleet.public == keys.next
    fleet.enrol(persons=(f"seldom={seldom}",), connect=fleet.address)
    assert fleet.admitted(seldom)


def test_a_revoked_host_cannot_read_the_new_key(fleet: Enrolled) -> None:
    """The next test changes the key again, before this one counts."""
    good, gone = fleet.folder / "good", fleet.folder / "gone"
    for at in (good, gone):
        fleet.enrol(f"{at.name}={at}", connect=fleet.address)
    rotate.revoke_key(fleet.own, "gone", None, fleet.address)
    keys = rotated(fleet)
    what = last_rotation(fleet).opened()
    assert isinstance(what, Rotation)
    assert what.key == keys.next
    pairs = {at.name: files.load(at / "keys").pair for at in (good, gone)}
    assert what.sealed_for(pairs["gone"].public) is None
    opened = []
    for name, pair in pairs.items():
        for _, sealed in what.sealed:
            try:
                opened.append((name, curve_of_secret(pair.unseal(sealed)).public))
            except UserError:
                continue
    assert opened == [("good", keys.next)]


def test_who_has_stolen_the_old_key_hears_nothing_after_the_overlap(fleet: Enrolled) -> None:
    """The thief has the place of an agent that is gone, and lets everybody in. Before the new key counts that
    works: agents and persons speak to it."""
    agent = fleet.fleet.agents[2]
    stolen = files.load(agent.folder / "data" / "keys")
    ivan = fleet.person("ivan")
    roster = Roster(CLUSTER, stolen.identity.authority, signed_by_fleet(fleet))
    old = stolen.listens_with(roster, time.time())
    keys = rotated(fleet)
    assert fleet.admitted(ivan)  # who learns the new key
    agent.kill()
    with Thief(agent.address, old.secret) as thief:
        until(lambda: thief.heard() > 0, keys.starts - time.time())
        begun(keys)
        time.sleep(2)  # for what is on its way
        thief.forget()
        with pytest.raises(ElfError, match="cannot reach an agent"):
            asyncio.run(asked(agent.address, ivan))
        time.sleep(3)
        assert thief.heard() == 0
        assert thief.tried > 0  # agents do look for it
    agent.fork()
    until(lambda: state_of(fleet, agent.name) == ["live"], 30)


async def asked(address: str, keys: Path) -> None:
    async with connect(address, keys=keys, timeout=3) as client:
        await client.status()


class Thief:
    """Listens with a stolen secret key."""

    def __init__(self, address: str, secret: bytes) -> None:
        self.tried = 0
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._socket = self._context.socket(zmq.ROUTER)
        self._socket.setsockopt(zmq.CURVE_SERVER, 1)
        self._socket.setsockopt(zmq.CURVE_SECRETKEY, secret)
        self._monitor = self._socket.get_monitor_socket(zmq.EVENT_ACCEPTED)
        self._socket.bind(f"tcp://{address}")

    def __enter__(self) -> Thief:
        return self

    def heard(self) -> int:
        """Messages since the last time."""
        count = 0
        while self._monitor.poll(0):
            self._monitor.recv_multipart()
            self.tried += 1
        while self._socket.poll(0):
            self._socket.recv_multipart()
            count += 1
        return count

    def forget(self) -> None:
        self.heard()
        self.tried = 0

    def __exit__(self, *_: object) -> None:
        self._socket.disable_monitor()
        self._context.destroy(linger=0)


def test_an_agent_that_was_away_comes_back(fleet: Enrolled) -> None:
    """By itself within the overlap; later with what the authority gives it again."""
    agent = fleet.fleet.agents[1]
    agent.kill()
    keys = rotated(fleet, 20)
    agent.fork()
    until(lambda: state_of(fleet, agent.name) == ["live"], 30)
    begun(keys)
    own = files.load(fleet.own).pair.curve
    assert listens_with(agent.address, keys.next, own)
    until(lambda: state_of(fleet, agent.name) == ["live"], 15)
    agent.kill()
    agent.fork()  # its files are older than the key, which is in its log
    until(lambda: state_of(fleet, agent.name) == ["live"], 30)
    agent.kill()
    begun(rotated(fleet))
    fleet.enrol(f"{agent.name}={agent.folder / 'data'}", connect=fleet.address)
    agent.fork()
    until(lambda: state_of(fleet, agent.name) == ["live"], 30)


def test_nobody_else_changes_the_key_and_no_rotation_comes_twice(fleet: Enrolled) -> None:
    wanda = fleet.person("wanda", "admin")
    now, pair = int(time.time()), files.load(wanda).pair
    secret = curve_of_secret(b"s" * 32)
    host = files.load(fleet.fleet.agents[0].folder / "data" / "keys").pair.public
    known = files.load(fleet.own).identity.fleet.newest
    mine = Rotation(CLUSTER, known, secret.public, now, now + 60, ((host, seal(host, secret.secret)),))
    assert "the authority alone" in said_to(fleet, sign(pair, mine), wanda)
    assert "the authority alone" in said_to(fleet, sign(KeyPair.new(), mine), wanda)
    authority = files.load_pair(fleet.own / "authority" / "authority.key")

    def again(**changes: object) -> str:
        return said_to(fleet, sign(authority, msgspec.structs.replace(mine, **changes)), wanda)

    assert "begins too soon" in again(starts=now + 1)
    assert "begins before it was signed" in again(starts=now - 1)
    assert "for cluster 'other'" in again(cluster="other")
    assert "there is a newer key of the fleet" in again(issued=now - 3_600)
    assert "has had that key before" in again(key=known)
    assert files.load(fleet.own).identity.fleet.newest == known
    assert bytes.fromhex(str(asyncio.run(status(fleet))["fleet_key"])) == known
    with pytest.raises(UserError, match="an overlap has 10 s at least"):
        rotate.rotate_fleet(fleet.own, "9s", fleet.address)
    with pytest.raises(UserError, match="no authority in"):
        rotate.rotate_fleet(wanda, "60s", fleet.address)


async def status(fleet: Enrolled) -> dict[str, object]:
    async with connect(fleet.address, keys=fleet.own) as client:
        return await client.status()


@pytest.mark.parametrize("listen", ["127.0.0.1:0", "0.0.0.0:0", "[::1]:0"])
def test_a_transport_that_is_given_another_key_is_where_it_was(listen: str) -> None:
    """Its peers reach it with the new key, at the same address, and with the old one no more."""
    own, old, new = (KeyPair.new().curve for _ in range(3))

    def security(server: CurvePair) -> Security:
        return Security(own, server.public, server.secret, lambda _: Principal("agent", "web"))

    async def exchange() -> None:
        async with asyncio.timeout(20):
            one = await ZeroMqTransport.listen(listen, security=security(old))
            peer = await ZeroMqTransport.listen("127.0.0.1:0", security=security(old))
            late = await ZeroMqTransport.listen("127.0.0.1:0", security=security(old))
            address = one.address.replace("0.0.0.0", "127.0.0.1")
            try:
                peer.send(address, [b"before"])
                assert (await one.receive())[1] == [b"before"]
                await asyncio.gather(one.rekey(security(new)), peer.rekey(security(new)))
                assert (one.address.replace("0.0.0.0", "127.0.0.1"), one.strangers) == (address, 0)
                late.send(address, [b"stale"])
                peer.send(address, [b"after"])
                assert (await one.receive())[1] == [b"after"]
                one.send(peer.address, [b"answer"])
                assert (await peer.receive())[1] == [b"answer"]
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0.5):
                        await one.receive()
            finally:
                for party in (one, peer, late):
                    await party.close()

    asyncio.run(exchange())
