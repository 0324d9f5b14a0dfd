"""Attacks at the doors of agents with keys: who comes without a key, with a wrong one, as somebody else, or
for what its role does not give. Each is refused in one line or dropped, and counted, and all others are
served.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
import struct
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import yaml

import overlay as ring
from agents import codec
from agents.audit import GATHER_SECS
from agents.disk.chain import files_of
from agents.keyring import Keyring, open_keyring
from agents.loading import load
from agents.main import _parser, ended, run
from elf.client import Client, connect
from elf.client.connection import Connection
from elf.errors import ConfigError, ElfError, UserError
from elf.job.messages.groups import ReconfigureJob
from elf.job.messages.log import Hello, JoinStream, LogTail, LogVoters, MemberLeft
from elf.security.folder import load as load_keys
from elf.security.loopback import make_loopback
from elf.security.principals import LOCAL, Security
from elf.transport.base import CLIENTS_MAX, Limits
from elf.transport.gate import OWNED_MAX, STRANGERS_MAX, Gate
from elf.transport.zeromq import ZeroMqTransport
from elf.wire.clients import Call, Failed
from overlay.messages import Ping
from overlay.raft.messages import AppendRequest, AppendRequests, Header
from tests.support.fleet import STREAM, Agent, Fleet
from tests.support.keys import Authority
from tests.support.waiting import eventually, wait_until

SOON = 10.0
CREATE = f"CREATE JOB mine AS SELECT COUNT(*) AS n FROM {STREAM} WINDOWING 1 SECONDS"


class Closed:
    """Two agents with keys, and people with different roles."""

    def __init__(self, folder: Path) -> None:
        self.authority = authority = Authority(folder / "keys")
        authority.enrol("agent", "web-0")
        authority.enrol("agent", "web-1")
        authority.enrol("agent", "web-9")
        authority.enrol("person", "ada", "admin")
        authority.enrol("person", "rita", "read")
        authority.enrol("person", "tom", "read", "tap")
        authority.enrol("person", "will", "read", "write")
        authority.enrol("person", "cody", "read", "write", "code")
        authority.enrol("person", "nobody")
        authority.enrol("person", "eve", "admin", lasts=-5)
        authority.enrol("person", "mallory", "admin")
        authority.enrol("person", "stranger", "admin", known=False)
        authority.enrol("token", "tok", uses=1)
        authority.revoke("mallory")
        self.fleet = Fleet(folder, 2)
        for agent in self.fleet.agents:
            agent.more = {"security": "keys", "keys": str(authority.written(agent.name))}
        self.fleet.start()
        self.fleet.begin_writing()
        self.folders = {name: authority.written(name) for name in authority.owners}

    @property
    def agent(self) -> Agent:
        return self.fleet.agents[0]

    def client(self, name: str) -> Client:
        return connect(self.agent.address, cluster="test", timeout=5, keys=self.folders[name])

    def security(self, name: str) -> Security:
        keys = load_keys(self.folders[name])
        fleet = self.authority.fleet
        return Security(keys.pair.curve, fleet.public, fleet.secret, lambda key: LOCAL)

    def count(self, metric: str, reason: str) -> int:
        """As the first agent's metrics have it."""
        return int(self.agent.metric(f"{metric}_total", reason=reason))


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Closed]:
    made = Closed(tmp_path_factory.mktemp("closed"))

    def gathered() -> bool:
        members = asyncio.run(told(made.client("ada"), "SHOW MEMBERS"))
        return {row["agent"]: row["state"] for row in members} == {"web-0": "live", "web-1": "live"}

    wait_until(gathered, "both are members", 30, despite=(ElfError,))
    yield made
    made.fleet.stop()


async def told(client: Client, sql: str) -> list[dict[str, object]]:
    async with client:
        table = (await client.sql(sql)).table
        return [] if table is None else table.to_pylist()


# -- connections ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "says", "reason"),
    [
        ("stranger", "it does not admit the key of person stranger", "key"),
        ("mallory", "it does not admit the key of person mallory", "key"),
        ("eve", "it does not admit the key of person eve", "key"),
    ],
)
async def test_a_key_that_is_not_in_the_roster_is_refused(
    closed: Closed, name: str, says: str, reason: str
) -> None:
    before = closed.count("handshakes_failed", reason)
    with pytest.raises(ElfError, match=says) as refused:
        await closed.client(name).open()
    assert "\n" not in str(refused.value)
    assert closed.count("handshakes_failed", reason) > before


async def test_who_comes_without_keys_is_told_so(closed: Closed) -> None:
    reasons = ("left", "broken")  # who is first to find out ends the connection
    before = sum(closed.count("handshakes_failed", reason) for reason in reasons)
    with pytest.raises(ElfError, match=r"it wants keys, and there are none here: --keys"):
        await connect(closed.agent.address, cluster="test", keys="none").open()
    assert sum(closed.count("handshakes_failed", reason) for reason in reasons) > before


async def test_keys_of_another_fleet_and_of_another_authority_open_nothing(
    closed: Closed, tmp_path: Path
) -> None:
    """The second one has even the fleet's public key, which is no secret."""
    other = Authority(tmp_path / "other")
    other.enrol("person", "ada", "admin")
    before = closed.count("handshakes_failed", "left")
    with pytest.raises(ElfError, match="it is not of the fleet of the key of person ada"):
        await connect(closed.agent.address, cluster="test", keys=other.written("ada")).open()
    assert closed.count("handshakes_failed", "left") > before
    foreign = Authority(tmp_path / "foreign", fleet=closed.authority.fleet)
    foreign.enrol("person", "ada", "admin")
    with pytest.raises(ElfError, match="it does not admit the key of person ada"):
        await connect(closed.agent.address, cluster="test", keys=foreign.written("ada")).open()


async def test_this_machines_key_opens_no_agent_with_keys(closed: Closed, tmp_path: Path) -> None:
    file = tmp_path / "loopback.key"
    make_loopback(file)
    with pytest.raises(ElfError, match=r"another user's, or of a fleet with keys: --keys names"):
        await connect(closed.agent.address, cluster="test", keys=file).open()


async def test_a_key_that_is_revoked_or_expires_is_dead_at_once(tmp_path: Path) -> None:
    """The connection is there already, and its messages come no more; all others go on."""
    authority = Authority(tmp_path)
    for name in ("ada", "bob"):
        authority.enrol("person", name, "admin")
    authority.enrol("agent", "web-0")
    keyring = Keyring("keys", keys=load_keys(authority.written("web-0")))
    agent = await ZeroMqTransport.listen("127.0.0.1:0", security=keyring.security)
    clients = {name: await dialled(authority, name) for name in ("ada", "bob")}
    for name, client in clients.items():
        client.send(agent.address, [b"hello"])
        _, frames, who = await asyncio.wait_for(agent.receive(), SOON)
        assert (frames, who and who.name) == ([b"hello"], name)
    assert not keyring.take(authority.revocation("ada"))
    clients["ada"].send(agent.address, [b"still here"])
    await eventually(lambda: agent.counters.refused["revoked"], "it is dropped", SOON)
    await eventually(lambda: agent.counters.handshakes["key"], "it may not come again", SOON)
    clients["bob"].send(agent.address, [b"and I"])
    _, frames, who = await asyncio.wait_for(agent.receive(), SOON)
    assert (frames, who and who.name) == ([b"and I"], "bob")
    for party in (agent, *clients.values()):
        await party.close()


async def dialled(authority: Authority, name: str) -> ZeroMqTransport:
    keys = load_keys(authority.written(name))
    return await ZeroMqTransport.dial(security=Security(keys.pair.curve, authority.fleet.public))


# -- messages ------------------------------------------------------------------------------------------------


def forged(address: str) -> dict[str, codec.Message]:
    """What an agent says, and nobody else may."""
    header = Header(group=b"\0" * 16, birth=1, to_slot=1, from_slot=2, term=99)
    me = ring.Peer(address, 1)
    voters = LogVoters(99, 99, address, (address,))
    gone = MemberLeft(seq=3, stream=STREAM, number=0, until_us=1)
    return {
        "append": AppendRequests(me, (AppendRequest(header, 1, 0, 0, 0, ()),)),
        "log": LogTail(cluster_uid="", voters=voters, after=2, entries=(gone,), last=9),
        "join": JoinStream(
            stream=STREAM, agent_id="f" * 32, name="web-7", incarnation=1, address=address, since_us=0
        ),
        "version": ReconfigureJob(id=1, origin=address, uid=f"{1:032x}.1", verb="alter"),
    }


@pytest.mark.parametrize("what", ["append", "log", "join", "version"])
async def test_a_person_may_not_say_what_agents_say(closed: Closed, what: str) -> None:
    before = closed.count("messages_refused", "kind")
    security = closed.security("ada")
    person = await ZeroMqTransport.dial(security=security)
    message = forged("127.0.0.1:9")[what]
    frames = codec.encode(message, cluster="test", sender="127.0.0.1:9")
    person.send(closed.agent.address, frames)
    await eventually(lambda: closed.count("messages_refused", "kind") > before, "it is refused", SOON)
    await person.close()
    members = await told(closed.client("ada"), "SHOW MEMBERS")
    assert {(row["agent"], row["state"]) for row in members} == {("web-0", "live"), ("web-1", "live")}


async def test_refusals_of_one_key_are_one_record_of_the_audit(closed: Closed) -> None:
    before = closed.count("messages_refused", "kind")
    frames = codec.encode(forged("127.0.0.1:9")["join"], cluster="test", sender="127.0.0.1:9")
    for _ in range(3):
        person = await ZeroMqTransport.dial(security=closed.security("will"))
        person.send(closed.agent.address, frames)
        await person.close()
    await eventually(lambda: closed.count("messages_refused", "kind") >= before + 3, "all came", SOON)
    audit = closed.agent.folder / "data" / "audit"

    def of_will() -> list[str]:
        lines = [line for path in files_of(audit) for line in path.read_text().splitlines()]
        return [line for line in lines if '"from":"will"' in line]

    await eventually(of_will, "it is in the audit", SOON)
    await asyncio.sleep(2 * GATHER_SECS)
    assert len(of_will()) == 1


async def test_a_person_cannot_be_reached_at_an_address(closed: Closed) -> None:
    """By an identity like an agent's it would have this agent send answers to any address."""
    before = closed.count("messages_refused", "kind")
    posing = await ZeroMqTransport.listen("127.0.0.1:0", security=closed.security("rita"))
    asks = Call(request=1, verb="status")
    frames = codec.encode(asks, cluster="test", sender=posing.address)
    posing.send(closed.agent.address, frames)
    last = codec.encode(forged(posing.address)["join"], cluster="test", sender=posing.address)
    posing.send(closed.agent.address, last)
    await eventually(lambda: closed.count("messages_refused", "kind") > before, "both have come", SOON)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(posing.receive(), 0.3)
    await posing.close()


@pytest.mark.parametrize("what", ["append", "log", "join", "version", "ping", "claims"])
async def test_an_agent_may_not_speak_for_another(closed: Closed, what: str) -> None:
    """Its key is right, and it says that it is at the other one's address, or in an envelope of its own that
    the other one is a member, or leads."""
    before = closed.count("messages_refused", "sender")
    victim = closed.fleet.agents[1].address
    agent = await ZeroMqTransport.listen("127.0.0.1:0", security=closed.security("web-9"))
    sender = agent.address
    messages = {**forged(victim), "ping": Ping(ring.Peer(victim, 1 << 40), 1), "claims": Hello()}
    if what in ("log", "claims"):
        sender = victim
    frames = codec.encode(messages[what], cluster="test", sender=sender)
    agent.send(closed.agent.address, frames)
    await eventually(lambda: closed.count("messages_refused", "sender") > before, "it is refused", SOON)
    _, word, _ = await asyncio.wait_for(agent.receive(), SOON)
    told_why = codec.decode(word, cluster="test", max_bytes=1 << 20).message
    assert isinstance(told_why, Failed)
    if what in ("log", "claims"):
        assert f"web-9 speaks as {victim}, which is web-1's (elf leave --dead web-1" in told_why.text
    else:
        assert "for another agent" in told_why.text
    await agent.close()
    members = await told(closed.client("ada"), "SHOW MEMBERS")
    assert {(row["agent"], row["address"]) for row in members} == {
        (one.name, one.address) for one in closed.fleet.agents
    }


async def test_an_agent_is_no_client(closed: Closed) -> None:
    """A stolen host's key takes nobody off, and runs no statement."""
    before = closed.count("messages_refused", "kind")
    agent = await ZeroMqTransport.listen("127.0.0.1:0", security=closed.security("web-9"))
    call = Call(request=1, verb="take off", argument="web-1", creator="ada")
    agent.send(closed.agent.address, codec.encode(call, cluster="test", sender=agent.address))
    await eventually(lambda: closed.count("messages_refused", "kind") > before, "it is refused", SOON)
    await agent.close()


async def test_a_token_brings_a_host_and_nothing_else(closed: Closed) -> None:
    async with closed.client("tok") as client:
        with pytest.raises(UserError, match="tok is the key of a token, which cannot do that"):
            await client.sql("SHOW JOBS")
        with pytest.raises(UserError, match="tok is the key of a token, which cannot do that"):
            await client.tree(f"stream:{STREAM}")


# -- roles ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "sql", "role"),
    [
        ("nobody", "SHOW JOBS", "read"),
        ("rita", CREATE, "write"),
        ("tom", CREATE, "write"),
        ("rita", "DROP JOB mine", "write"),
        ("rita", "PAUSE JOB mine", "write"),
        ("rita", "ALTER JOB mine AS SELECT COUNT(*) FROM clicks WINDOWING 1 SECONDS", "write"),
        ("rita", "NOTIFY JOB mine 'hello'", "write"),
        ("rita", "SHOW JOBS; DROP JOB mine", "write"),
        ("rita", f"SELECT * FROM {STREAM} LIMIT 1", "tap"),
        ("rita", f"EXPLAIN SELECT MAX(_line) FROM {STREAM} WINDOWING 1 SECONDS", "tap"),
        ("rita", f"SELECT COUNT(*) FROM {STREAM} AS a JOIN {STREAM} AS b USING (id, _LINE)", "tap"),
        ("will", f"CREATE JOB l AS SELECT _line FROM {STREAM} GROUP BY _line WINDOWING 1 SECONDS", "tap"),
    ],
)
async def test_a_statement_needs_its_role(closed: Closed, name: str, sql: str, role: str) -> None:
    async with closed.client(name) as client:
        with pytest.raises(UserError, match=f"needs the role {role}, which {name} does not have"):
            await client.sql(sql)


async def test_functions_need_the_role_code(closed: Closed, tmp_path: Path) -> None:
    file = tmp_path / "map.py"
    file.write_text("def map(batch):\n    return batch\n")
    async with closed.client("will") as client:
        with pytest.raises(UserError, match="needs the role code, which will does not have"):
            await client.sql(f"ALTER JOB mine SET FUNCTION map FROM '{file}'")
        with pytest.raises(UserError, match="submit needs the role code, which will does not have"):
            await client.submit(PROGRAM, "quiet.py", "quiet")


PROGRAM = """
from elf.job import Job

class Quiet(Job):
    def on_timer(self):
        pass
"""


async def test_a_job_in_python_reads_no_raw_lines_without_the_role_tap(closed: Closed) -> None:
    raw = f"SELECT _line, COUNT(*) AS n FROM {STREAM} GROUP BY _line"
    for asks in (f'"{raw}"', f"stream='{STREAM}', columns=['n'], where=\"_LINE LIKE '%a%'\""):
        program = PROGRAM.replace(
            "def on_timer(self):\n        pass", f"def start(self): self.subscribe({asks})"
        )
        async with closed.client("cody") as client:
            with pytest.raises(
                UserError, match="_line, the raw line, needs the role tap, which cody does not have"
            ):
                await client.submit(program, "raw.py", "raw")


async def test_calls_need_their_roles(closed: Closed) -> None:
    async with closed.client("rita") as client:
        with pytest.raises(UserError, match="tap needs the role tap, which rita does not have"):
            async for _ in client.tap(STREAM):
                pass
        with pytest.raises(UserError, match="ROWS OF needs the role tap, which rita does not have"):
            await client.sql("ROWS OF mine WINDOW '2026-01-01'")
        with pytest.raises(UserError, match="take off needs the role admin, which rita does not have"):
            await client.take_off("web-1")
        with pytest.raises(UserError, match="leave needs the role admin, which rita does not have"):
            await client.leave(force=True)
        assert (await client.status())["agent"] == "web-0"


async def test_the_creator_is_the_name_of_the_key(closed: Closed) -> None:
    made = connect(closed.agent.address, cluster="test", creator="ada", keys=closed.folders["will"])
    async with made as client:
        assert client.creator == "will"
        connection = client._connection
        assert isinstance(connection, Connection)
        connection._creator = client.creator = "ada"  # as an attacker's client would say
        await client.sql(CREATE)
    jobs = await told(closed.client("rita"), "SHOW JOBS")
    assert [(row["job"], row["creator"]) for row in jobs] == [("mine", "will")]


async def test_an_admin_changes_the_jobs_of_others(closed: Closed) -> None:
    async with closed.client("will") as will:
        await will.sql(CREATE.replace("mine", "wills"))
    query = f"SELECT COUNT(*) AS other FROM {STREAM} WINDOWING 1 SECONDS"
    async with closed.client("ada") as ada:
        await ada.sql(f"ALTER JOB wills AS {query}")
        assert "other" in str((await ada.sql("DESCRIBE wills")).table), "all agents take her word for it"
        for change in ("PAUSE", "RESUME", "DROP"):
            await ada.sql(f"{change} JOB wills")
    jobs = await told(closed.client("rita"), "SHOW JOBS")
    assert "wills" not in {row["job"] for row in jobs}


# -- floods --------------------------------------------------------------------------------------------------


@pytest.fixture
async def agent(tmp_path: Path) -> AsyncIterator[ZeroMqTransport]:
    """With this machine's key."""
    made = await ZeroMqTransport.listen("127.0.0.1:0", security=make_loopback(tmp_path / "loopback.key"))
    yield made
    await made.close()


@pytest.fixture
def crowd() -> Iterator[list[socket.socket]]:
    """Sockets that are closed after the test."""
    made: list[socket.socket] = []
    yield made
    for one in made:
        one.close()


def knock(agent: ZeroMqTransport, crowd: list[socket.socket], say: bytes) -> None:
    host, _, port = agent.address.rpartition(":")
    made = socket.create_connection((host, int(port)), timeout=SOON)
    crowd.append(made)
    made.sendall(say)


GREETING = b"\xff" + b"\0" * 8 + b"\x7f\x03\x00CURVE".ljust(23, b"\0") + b"\0" * 32


SAID = {
    "nothing": b"",
    "a byte": b"\xff",
    "a greeting": GREETING,
    "noise": random.Random(5).randbytes(300),
    "noise after it": GREETING + random.Random(6).randbytes(300),
}


@pytest.mark.parametrize("said", SAID)
async def test_a_crowd_at_the_door_keeps_nobody_out(
    agent: ZeroMqTransport, tmp_path: Path, crowd: list[socket.socket], said: str
) -> None:
    """Connections that stay half open are shut out beyond a number; a client's handshake goes on."""
    client = await ZeroMqTransport.dial(security=make_loopback(tmp_path / "loopback.key"))
    for number in range(2 * STRANGERS_MAX):
        knock(agent, crowd, SAID[said])
        if number % 32 == 0:
            await asyncio.sleep(0)
    began = time.monotonic()
    client.send(agent.address, [b"let me in"])
    origin, frames, who = await asyncio.wait_for(agent.receive(), 3)
    assert (frames, who and who.kind) == ([b"let me in"], "local")
    assert time.monotonic() - began < 3
    assert agent.strangers <= STRANGERS_MAX
    if not said.startswith("noise"):
        assert agent.counters.handshakes["flood"] >= STRANGERS_MAX - 8
    assert agent.send(origin, [b"welcome"])
    assert (await asyncio.wait_for(client.receive(), SOON))[1] == [b"welcome"]
    await client.close()


async def test_a_stranger_cannot_have_memory_set_aside(
    agent: ZeroMqTransport, crowd: list[socket.socket]
) -> None:
    """It announces a frame of 2 GiB, or of as much as a message may have, in place of its handshake."""
    for size in (2 << 30, 64 << 20, 1 << 20):
        knock(agent, crowd, GREETING + b"\x02" + struct.pack(">Q", size))
        while data := await asyncio.to_thread(crowd[-1].recv, 4096):
            assert len(data) <= 64  # its own greeting
    assert agent.counters.received == 0
    await eventually(lambda: agent.counters.handshakes["left"] >= 3, "they are counted", SOON)


async def test_agents_are_heard_however_much_clients_ask(agent: ZeroMqTransport, tmp_path: Path) -> None:
    """Their messages stand in no line behind a client's."""
    security = make_loopback(tmp_path / "loopback.key")
    client = await ZeroMqTransport.dial(limits=Limits(peer_messages_max=10_000), security=security)
    other = await ZeroMqTransport.listen("127.0.0.1:0", security=security)
    for number in range(3_000):
        client.send(agent.address, [b"and what is %d" % number])
    assert (await asyncio.wait_for(agent.receive(), SOON))[1] == [b"and what is 0"]
    await asyncio.sleep(0.5)  # as many as it takes are there
    other.send(agent.address, [b"I am here"])
    came = 0
    while (await asyncio.wait_for(agent.receive(), SOON))[1] != [b"I am here"]:
        came += 1
        await asyncio.sleep(0.001)  # each is work
    assert came < CLIENTS_MAX + 64
    for party in (client, other):
        await party.close()


# -- one machine ---------------------------------------------------------------------------------------------


async def test_another_user_of_the_machine_is_kept_out(agent: ZeroMqTransport, tmp_path: Path) -> None:
    """A process that cannot read the key has none, or makes its own."""
    with pytest.raises(ElfError, match="it wants keys"):
        await connect(agent.address, keys="none").open()
    make_loopback(tmp_path / "mine.key")
    with pytest.raises(ElfError, match="another user's"):
        await connect(agent.address, keys=tmp_path / "mine.key").open()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(agent.receive(), 0.1)


def test_a_key_that_others_can_read_is_none(tmp_path: Path) -> None:
    file = tmp_path / "loopback.key"
    make_loopback(file)
    assert file.stat().st_mode & 0o777 == 0o600
    file.chmod(0o644)
    with pytest.raises(UserError, match="can be read by others: chmod 600"):
        make_loopback(file)


def test_the_key_of_the_machine_is_made_once(tmp_path: Path) -> None:
    """Whoever comes first makes it; it is never another one afterwards."""
    file = tmp_path / "folder" / "loopback.key"
    assert make_loopback(file).own == make_loopback(file).own


# -- what does not start -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"agent": {"listen": "0.0.0.0:0", "advertise": "web:1"}}, "agent.listen: other machines can reach"),
        ({"http": {"listen": "0.0.0.0:0"}}, "http.listen: other machines can reach"),
        ({"security": "keys"}, "has no identity.json: elf keys enrol makes it"),
        ({"http": {"listen": "127.0.0.1:0", "tls_cert": "/a"}}, "one of them is missing"),
    ],
)
def test_an_agent_without_keys_does_not_listen_to_others(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], settings: dict[str, object], says: str
) -> None:
    base: dict[str, object] = {"agent": {"listen": "127.0.0.1:0"}, "http": {"listen": None}}
    file = tmp_path / "elf.yaml"
    file.write_text(yaml.safe_dump({"data_dir": str(tmp_path / "data"), **base, **settings}))
    for command in ([], ["validate"]):
        arguments = _parser().parse_args([*command, "--config", str(file)])
        assert ended(lambda: run(arguments)) == 78  # noqa: B023 (called here)
        assert says in capfd.readouterr().err
    assert not (tmp_path / "data").exists()


def test_keys_must_be_the_agents_own(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "keys")
    for name in ("web-0", "gone"):
        authority.enrol("agent", name)
    authority.enrol("person", "ada", "admin")
    authority.revoke("gone")

    def problem(folder: str, **settings: object) -> str:
        file = tmp_path / "elf.yaml"
        made = {"data_dir": str(tmp_path), "keys": str(authority.written(folder)), **settings}
        file.write_text(yaml.safe_dump(made))
        try:
            open_keyring(load(file, {}))
        except ConfigError as error:
            return str(error)
        return ""

    assert problem("web-0") == ""
    assert "the keys of the person ada, not an agent's" in problem("ada")
    assert "web-7, and the keys in" in problem("web-0", agent={"name": "web-7"})
    assert "are for test" in problem("web-0", cluster={"name": "prod"})
    assert "was revoked" in problem("gone")


async def test_an_open_agent_says_so(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path, 1)
    fleet.agents[0].more = {"security": "open"}
    fleet.start()
    try:
        at = fleet.agents[0]

        async def rows() -> list[dict[str, object]]:
            return await told(connect(at.address, cluster="test", keys="none"), "SHOW MEMBERS")

        members = await eventually(rows, "it is a member", 30, despite=(ElfError,))
        assert [row["security"] for row in members] == ["open"]
        assert "security is open: whoever reaches this agent" in at.said()
        make_loopback(tmp_path / "loopback.key")
        with pytest.raises(ElfError, match=r"it has no keys \(security: open\); to ask it all the same"):
            await connect(at.address, cluster="test", keys=tmp_path / "loopback.key").open()
    finally:
        fleet.stop()


def frame(data: bytes, *, more: bool = False, command: bool = False) -> bytes:
    """As ZMTP 3 has it."""
    return struct.pack(">BQ", 2 | more | command << 2, len(data)) + data


async def test_a_message_that_never_ends_costs_its_sender_the_connection(
    crowd: list[socket.socket],
) -> None:
    """Whoever is let in: libzmq would keep all of it until the last frame is there."""
    agent = await ZeroMqTransport.listen("127.0.0.1:0", limits=Limits(message_bytes_max=1 << 20))
    client = await ZeroMqTransport.dial()
    null = b"\xff" + b"\0" * 8 + b"\x7f\x03\x00NULL".ljust(23, b"\0") + b"\0" * 32
    ready = frame(b"\x05READY\x0bSocket-Type\0\0\0\x06DEALER", command=True)
    knock(agent, crowd, null + ready)
    said = b""
    while b"READY" not in said:
        said += await asyncio.to_thread(crowd[-1].recv, 4_096)
    crowd[-1].sendall(frame(b"hello"))
    assert (await asyncio.wait_for(agent.receive(), SOON))[1] == [b"hello"]
    crowd[-1].settimeout(0.5)

    def goes_on() -> int:
        with contextlib.suppress(OSError):
            crowd[-1].sendall(frame(bytes(1 << 18), more=True))
        return agent.counters.handshakes["endless"]

    await eventually(goes_on, "it is shut", SOON)
    client.send(agent.address, [b"head", bytes(1 << 19)])
    assert (await asyncio.wait_for(agent.receive(), SOON))[1] == [b"head", bytes(1 << 19)]
    await client.close()
    await agent.close()


async def test_who_speaks_as_before_there_were_keys_is_not_heard(
    agent: ZeroMqTransport, crowd: list[socket.socket]
) -> None:
    """ZMTP 1 and 2 know no mechanism; a listener without keys takes their messages."""
    knock(agent, crowd, b"\x01\x00" + b"\x06\x00hello")
    knock(agent, crowd, b"\xff" + b"\0" * 8 + b"\x7f\x01\x05" + b"\0\0" + b"\x00\x05hello")
    for one in crowd:
        with contextlib.suppress(ConnectionError):
            while await asyncio.to_thread(one.recv, 4_096):
                pass
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(agent.receive(), 0.1)


def test_a_flood_from_one_host_does_not_push_out_another() -> None:
    shut: list[int] = []
    hosts = {fd: "crowd" if fd % 10 else "peer" for fd in range(1, 1_000)}
    gate = Gate(hosts.get, shut.append, Counter(), connections_max=600, strangers_max=20)
    for fd in range(1, 100):
        gate.accepted(fd)
    assert {hosts[fd] for fd in shut} == {"crowd"}
    assert shut == [fd for fd in range(1, 100) if fd % 10][: len(shut)], "the oldest first"
    assert gate.strangers == 20
    gate.spoke(10)
    gate.gone(20)
    assert (gate.strangers, gate.connections) == (18, 19)


def test_one_person_holds_so_many_connections_and_no_more() -> None:
    shut: list[int] = []
    gate = Gate(lambda _: "here", shut.append, Counter(), connections_max=10_000)
    for fd in range(1, OWNED_MAX + 4):
        gate.accepted(fd)
        gate.spoke(fd, "person rita")
    gate.accepted(9_000)
    gate.spoke(9_000, "person ada")
    assert shut == [1, 2, 3]
    assert gate.connections == OWNED_MAX + 1


async def test_a_host_sees_before_it_starts_whether_others_admit_its_keys(
    closed: Closed, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """``elf-agent validate`` shows its keys to the agents that it is to join."""
    foreign = Authority(tmp_path / "foreign", fleet=closed.authority.fleet)
    foreign.enrol("agent", "web-9")
    data = {"data_dir": str(tmp_path / "data"), "http": {"listen": None}}
    data["agent"] = {"listen": "127.0.0.1:0"}
    data["cluster"] = {"bootstrap": [closed.agent.address]}
    for folder, status in ((closed.folders["web-9"], 0), (foreign.written("web-9"), 1)):
        file = tmp_path / "elf.yaml"
        file.write_text(yaml.safe_dump({**data, "keys": str(folder)}))
        arguments = _parser().parse_args(["validate", "--config", str(file)])
        assert await asyncio.to_thread(run, arguments) == status
    assert "it does not admit the key of agent web-9" in capfd.readouterr().err
