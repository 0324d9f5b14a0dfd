"""What an enrolled agent that lies can do: it has a key, and says what its key does not let it say."""

from __future__ import annotations

import asyncio
import os
import re
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

import overlay as ring
from agents import codec
from agents.codec import Message, pack
from agents.keyring import principal_of
from agents.tasks import covered
from agents.tasks.covered import NotCovered
from agents.tasks.running import Running
from elf.client import connect
from elf.errors import UserError
from elf.fields import replace
from elf.job.catalog.log import CatalogLog
from elf.job.catalog.voters import LOG_GROUP
from elf.job.effects import Run
from elf.job.events import Ran
from elf.job.messages.groups import DropJob, HandOverJob, ReconfigureJob
from elf.job.messages.inquiries import NotifyJob
from elf.job.messages.log import (
    DropJobEntry,
    EndFlow,
    EndVersion,
    Follow,
    Hello,
    LeaveStream,
    LogTail,
    LogVoters,
    MemberLeft,
    SignedTail,
    Spread,
    Welcome,
)
from elf.job.messages.rollup import Broadcast, NotRun, Reexecute
from elf.job.reexecution import Reading, SourceAt, SourceOffsets
from elf.job.spec import Flow, flow_uid, stream_topic
from elf.ql.planner import plan_text
from elf.schema import Column, Schema
from elf.security import folder as files
from elf.security.authored import Authorship
from elf.security.authorship import author
from elf.security.keys import KeyPair
from elf.security.principals import Security
from elf.security.tails import signable
from elf.transport.zeromq import ZeroMqTransport
from overlay.ids import node_id
from overlay.messages import Route
from overlay.raft.messages import (
    AppendRequest,
    AppendRequests,
    Ask,
    Exit,
    Header,
    Told,
    VoteRequest,
    VoteRequests,
)
from overlay.raft.values import Entry
from overlay.treemessages import Multicast
from tests.support.enrolled import CLUSTER, Enrolled, until
from tests.support.fleet import STREAM

SOON = 10.0


class Liar:
    """An enrolled agent that says whatever it likes, from an address of its own."""

    def __init__(self, fleet: Enrolled, name: str) -> None:
        data = fleet.folder / name / "data"
        fleet.enrol(f"{name}={data}", connect=fleet.address)
        self.keys = files.load(data / "keys")

    def _security(self) -> Security:
        own, keys = self.keys.roster(), self.keys

        def admit(key: bytes):  # type: ignore[no-untyped-def]
            found = own.connected(key, time.time())
            return None if found is None else principal_of(found)

        return Security(keys.pair.curve, keys.fleet.public, keys.fleet.secret, admit)

    def says(
        self, address: str, make: Callable[[str], Sequence[Message]], answers: int = 0, secs: float = 1.0
    ) -> list[Message]:
        """What it is told by that agent, of which it wants so many answers."""

        async def say() -> list[Message]:
            transport = await ZeroMqTransport.listen("127.0.0.1:0", security=self._security())
            me, found = transport.address, list[Message]()
            try:
                for message in make(me):
                    transport.send(address, codec.encode(message, cluster=CLUSTER, sender=me))
                async with asyncio.timeout(SOON if answers else secs):
                    while not answers or len(found) < answers:
                        _, frames, _ = await transport.receive()
                        heard = codec.decode(frames, cluster=CLUSTER, max_bytes=1 << 20).message
                        if not answers or isinstance(heard, Welcome | Told | LogTail):
                            found.append(heard)
            except TimeoutError:
                assert not answers, found
            finally:
                await transport.close()
            return found

        return asyncio.run(say())

    def welcome(self, address: str) -> Welcome:
        """Who votes on the log, as an agent says."""
        (told,) = self.says(address, lambda me: [Hello()], 1)
        assert isinstance(told, Welcome)
        return told

    def log(self, address: str) -> CatalogLog:
        """The catalog log, which any agent may ask for."""
        follow = Follow(agent_id="f" * 32, known=0, epoch=0, term=0)
        (tail,) = self.says(address, lambda me: [follow], 1)
        assert isinstance(tail, LogTail)
        return CatalogLog(tail.entries)

    def told(self, address: str) -> Told:
        """What an agent knows of the group of the log."""
        (found,) = self.says(address, lambda me: [Ask(ring.Peer(me, 1), LOG_GROUP)], 1)
        assert isinstance(found, Told)
        return found


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Enrolled]:
    made = Enrolled(tmp_path_factory.mktemp("lied to"))
    try:
        made.start()
        yield made
    finally:
        made.fleet.stop()


@pytest.fixture(scope="module")
def liar(fleet: Enrolled) -> Liar:
    return Liar(fleet, "liar")


def count(fleet: Enrolled, place: int, kind: str) -> float:
    """What that agent has not believed."""
    url = f"http://127.0.0.1:{fleet.fleet.agents[place].http_port}/metrics"
    with urllib.request.urlopen(url, timeout=5) as reply:
        text = reply.read().decode()
    found = re.search(rf'elf_messages_disbelieved_total{{kind="{kind}"}} (\S+)', text)
    return float(found[1]) if found else 0.0


def states(fleet: Enrolled, address: str) -> list[str]:
    """Of all members, as an agent has it."""

    async def ask() -> list[str]:
        async with connect(address, keys=fleet.own) as client:
            table = (await client.sql("SHOW MEMBERS")).table
        assert table is not None
        return [row["state"] for row in table.to_pylist()]

    return asyncio.run(ask())


# -- the catalog log -----------------------------------------------------------------------------------------


def test_no_tombstone_of_who_does_not_vote(fleet: Enrolled, liar: Liar) -> None:
    """By itself, as a voter's answer that others have routed, and down a tree: signed by nobody, by itself,
    as a voter. It says that all have left, and that it alone votes."""
    topic = stream_topic(STREAM)
    assert all(count(fleet, place, kind) == 0 for place in range(3) for kind in ("SignedTail", "LogTail"))
    for address in fleet.addresses:
        known = liar.welcome(address)

        def lies(me: str, known: Welcome = known, address: str = address) -> list[Message]:
            seq = known.entries
            gone = tuple(
                MemberLeft(seq=seq + 1 + n, stream=STREAM, number=n % 3, until_us=1) for n in range(6)
            )
            voters = LogVoters(1 << 30, 1 << 30, me, (me,))
            tail = LogTail(
                cluster_uid=known.cluster_uid, voters=voters, after=seq, entries=gone, last=seq + 6
            )
            packed, peer = pack(tail), ring.Peer(me, 1)
            signature = liar.keys.pair.sign(signable(CLUSTER, packed))
            signed = [
                SignedTail(voter=voter, tail=packed, signature=signature)
                for voter in (me, known.voters.leader, *known.voters.addresses)
            ]
            key = node_id(address).to_bytes(16, "big")
            routed = [
                Route(peer, 7 + n, key, ring.Peer(voter, 1 << 40), 1 + n, 1, packed)
                for n, voter in enumerate(known.voters.addresses)
            ]
            down = [
                Multicast(peer, topic, peer, 1 + n, payload)
                for n, payload in enumerate([packed, *map(pack, signed)])
            ]
            spread = Spread(topic=topic, body=packed)
            welcome = Welcome(voters=voters, cluster_uid=known.cluster_uid, entries=1 << 30)
            other = Welcome(voters=voters, cluster_uid="another", entries=1 << 30)
            return [tail, *signed, *routed, *down, spread, welcome, other]

        liar.says(address, lies, secs=2.0)
    for place, address in enumerate(fleet.addresses):
        assert states(fleet, address) == ["live"] * 3
        told = liar.welcome(address)
        assert set(told.voters.addresses) <= set(fleet.addresses)
        assert told.cluster_uid == known.cluster_uid
        assert count(fleet, place, "SignedTail") > 0
        assert count(fleet, place, "LogTail") > 0


# -- raft ----------------------------------------------------------------------------------------------------


def test_nobody_speaks_for_the_slot_of_a_voter_nor_for_one_of_its_own(fleet: Enrolled, liar: Liar) -> None:
    """It knows all slots, since it may ask. It says that it leads, that it stands, and that a voter goes."""
    before = liar.told(fleet.address)
    assert len(before.members) == 3
    for member in before.members:

        def lies(me: str, to: int = member.slot) -> list[Message]:
            peer, term = ring.Peer(me, 1), before.term + 5
            slots = [other.slot for other in before.members if other.slot != to] + [4711]
            found: list[Message] = []
            for slot in slots:
                header = Header(LOG_GROUP, before.birth, to, slot, term)
                blank = Entry(before.committed + 1, term, b"", ())
                found.append(AppendRequests(peer, (AppendRequest(header, 1, 0, 0, 0, (blank,)),)))
                stands = VoteRequest(header, term + 1, False, True, 1 << 40, term)
                found.append(VoteRequests(peer, (stands,)))
                found.append(Exit(peer, LOG_GROUP, before.birth, slot))
            return [*found, Told(peer, LOG_GROUP, before.birth, 1 << 30, term, 1 << 30, me, ())]

        liar.says(member.address, lies, secs=1.0)
    time.sleep(2)
    for address in fleet.addresses:
        after = liar.told(address)
        assert (after.term, after.leader) == (before.term, before.leader)
        assert after.members == before.members


# -- what persons alone may --------------------------------------------------------------------------------

CREATE = f"CREATE JOB kept AS SELECT COUNT(*) AS n FROM {STREAM} WINDOWING 1 SECONDS"


def job_of(fleet: Enrolled, name: str, keys: Path) -> dict[str, str]:
    """What DESCRIBE says of a job."""

    async def ask() -> dict[str, str]:
        async with connect(fleet.address, keys=keys) as client:
            table = (await client.sql(f"DESCRIBE {name}")).table
        assert table is not None
        return {row["fact"]: row["value"] for row in table.to_pylist()}

    return asyncio.run(ask())


def test_a_job_is_changed_by_its_owner_and_by_admins_and_by_no_agent(fleet: Enrolled, liar: Liar) -> None:
    ada, bob, ruth = (
        fleet.person("ada", "read,write"),
        fleet.person("bob", "read,write"),
        fleet.person("ruth", "read,admin"),
    )
    assert "created" in fleet.sql(CREATE, ada)
    until(lambda: liar.log(fleet.address).find_job("kept", "ada") is not None, SOON)
    log, me = liar.log(fleet.address), files.load(ada)
    spec = log.find_job("kept", "ada")
    assert spec is not None
    flow = spec.flows[0].uid
    now = time.time()

    def wish(text: str, pair: KeyPair, at: float = now) -> Authorship:
        return Authorship(text, (), author(pair, CLUSTER, text, (), at))

    drop, pause, notice = "DROP JOB kept", "PAUSE JOB kept", "NOTIFY JOB kept 'hurrah'"
    forged = [
        None,
        wish(drop, liar.keys.pair),
        wish(drop, files.load(bob).pair),
        wish(drop, me.pair, now - 600),
        wish(drop, me.pair, now + 600),
        wish("DROP JOB other", me.pair),
        wish("SHOW JOBS", me.pair),
        wish("NOTIFY JOB kept 'stop'", me.pair),
    ]

    def shown(by: Authorship | None) -> Broadcast:
        return Broadcast(job=spec.uid, sent_ms=1, text="hurrah", flow=flow, author=by)

    def lies(at: str) -> list[Message]:
        asked, peer = list[Message](), ring.Peer(at, 1)
        for n, by in enumerate(forged):
            asked += [
                DropJob(id=n, origin=at, uid=spec.uid, author=by),
                ReconfigureJob(id=n, origin=at, uid=spec.uid, verb="pause", author=by),
                HandOverJob(
                    id=n, origin=at, uid=spec.uid, agent="web-2", address=fleet.addresses[2], author=by
                ),
                NotifyJob(id=n, origin=at, uid=spec.uid, text="hurrah", flow=flow, author=by),
                Multicast(peer, spec.flows[0].topic, peer, 1 + n, pack(shown(by))),
                DropJobEntry(uid=spec.uid, author=by, name="kept", creator="ada"),
            ]
        left = [
            LeaveStream(stream=STREAM, agent_id=agent_id, until_us=1, author=by)
            for agent_id in [member.agent_id for member in log.members(STREAM)]
            for by in (None, wish("take off web-1", me.pair), wish("take off web-1", liar.keys.pair))
        ]
        return [*asked, *left, EndVersion(uid=spec.uid, version=1), EndFlow(uid=flow)]

    for address in fleet.addresses:
        liar.says(address, lies, secs=1.0)
    time.sleep(2)
    for place in range(3):
        kinds = ("DropJobEntry", "LeaveStream", "EndFlow", "Broadcast")
        assert all(count(fleet, place, kind) > 0 for kind in kinds)
    for kind in ("DropJob", "ReconfigureJob", "HandOverJob", "NotifyJob"):
        assert sum(count(fleet, place, kind) for place in range(3)) > 0
    assert job_of(fleet, "kept", ada)["state"] == "active"
    assert all(states(fleet, address) == ["live"] * 3 for address in fleet.addresses)
    assert not any("hurrah" in agent.said() for agent in fleet.fleet.agents)
    for text in (drop, pause, notice):
        with pytest.raises(UserError, match="is ada's, and only ada may change it"):
            fleet.sql(text, bob)
    for by in (ruth, ada):
        assert "notice sent" in fleet.sql(notice, by)
        assert "paused" in fleet.sql(pause, by, fleet.addresses[1])
        assert "is version" in fleet.sql("RESUME JOB kept", by, fleet.addresses[2])
    until(lambda: all("hurrah" in agent.said() for agent in fleet.fleet.agents), SOON)
    assert "is version" in fleet.sql(
        f"ALTER JOB kept AS {CREATE.partition(' AS ')[2]} LATENESS 1 SECONDS", ruth
    )
    assert "dropped" in fleet.sql(drop, ruth)


# -- files of others -----------------------------------------------------------------------------------------

SCHEMA = Schema((Column("ts", "timestamp"), Column("k", "text"), Column("n", "bigint")), "ts")
QUERY = "SELECT k, SUM(n) AS n FROM clicks GROUP BY k WINDOWING 1 SECONDS STRAGGLERS MIRROR"
FRAGMENT = replace(plan_text(QUERY, SCHEMA).fragment, lateness_us=1_000_000)
FLOW = Flow(flow_uid(FRAGMENT, "1"), FRAGMENT, bytes(16), "root:1")
LINE = '{"ts": 1700000001.5, "k": "secret", "n": 7}\n{"ts": 1700000009.5, "k": "secret", "n": 7}\n'


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    """A shared folder with the log of a neighbour, and a file that is nobody else's."""
    for name in ("logs/web-1", "private"):
        (tmp_path / name).mkdir(parents=True)
    for name in ("logs/web-1/clicks.log", "private/clicks.log"):
        (tmp_path / name).write_text(LINE)
    return tmp_path / "logs"


def run_from(path: Path, shared: str, include: str = "") -> Ran:
    """What a helper that shares these files answers to a root that names this one."""
    status = path.stat()
    source = SourceAt("f", 0, 0, False, str(path), status.st_ino)
    offsets = SourceOffsets(1, 1_700_000_030_000, (source,))
    reading = Reading("json", "ts", None, 1_000_000, 0, 1 << 20, (include or str(path),))
    asked = Reexecute(flow=FLOW.uid, member=3, pane=1_700_000_001, offsets=offsets, reading=reading)
    running = Running({FLOW.fragment.stream: (shared,)}, 1 << 20)
    try:
        return running.submit(Run(FLOW, asked, "root:1")).result(20)
    finally:
        running.close()


def refused(told: Ran) -> bool:
    assert bool(told.refused) == isinstance(told.answer, NotRun)
    return bool(told.refused)


def test_only_files_that_its_own_configuration_names_are_opened_for_others(logs: Path) -> None:
    shared = f"{logs}/*/clicks.log*"
    assert not refused(run_from(logs / "web-1" / "clicks.log", shared))
    for path in (logs.parent / "private" / "clicks.log", logs / ".." / "private" / "clicks.log"):
        told = run_from(path, shared)
        assert told.refused == f"{path} is not among the files that streams.NAME.shared names here"


def test_a_link_in_a_shared_folder_leads_nowhere(logs: Path) -> None:
    shared = f"{logs}/*/clicks.log*"
    (logs / "web-1" / "clicks.log.1").symlink_to(logs.parent / "private" / "clicks.log")
    (logs / "web-2").symlink_to(logs.parent / "private")
    assert refused(run_from(logs / "web-1" / "clicks.log.1", shared))
    assert refused(run_from(logs / "web-2" / "clicks.log", shared))
    (logs.parent / "here").symlink_to(logs)  # its owner's
    assert not refused(run_from(logs / "web-1" / "clicks.log", f"{logs.parent}/here/*/clicks.log"))


def test_what_is_no_file_is_not_opened(logs: Path) -> None:
    os.mkfifo(logs / "web-1" / "clicks.log.2")
    with pytest.raises(NotCovered, match="is no file"):
        covered.opened(str(logs / "web-1" / "clicks.log.2"), [f"{logs}/*/clicks.log*"])


def test_patterns_of_others_choose_among_our_files_and_cost_nothing(logs: Path) -> None:
    shared = [f"{logs}/*/clicks.log*"]
    ours = [str(logs / "web-1" / "clicks.log")]
    assert covered.covered(shared, ["/**"], []) == ours
    assert covered.covered(shared, [f"{logs.parent}/**/clicks.log"], []) == ours
    assert covered.covered(shared, [f"{logs}/clicks.log", f"{logs.parent}/private/*"], []) == []
    began = time.monotonic()
    assert covered.covered(shared, ["/**" * 400 + "/x", "/" + "*a" * 400], []) == []
    assert time.monotonic() - began < 2
