"""Keys of a real fleet: who gets in, and who does not any more."""

from __future__ import annotations

import asyncio
import json
import os
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from agents import codec
from agents.keyring import principal_of
from elf.cli import doctor, enrol, rotate
from elf.cli.processes import free_ports
from elf.client import connect
from elf.client.enrolment import join_fleet
from elf.errors import ElfError, UserError
from elf.fields import replace
from elf.job.messages.groups import CreateJob
from elf.job.messages.log import AddJob, AddProgram, ChangeRoster
from elf.job.program.messages import SubmitProgram
from elf.job.program.spec import ProgramSpec
from elf.job.spec import JobSpec
from elf.ql.definition import Definition
from elf.ql.plan import Function
from elf.schema import Column, Schema
from elf.security import folder as files
from elf.security.authored import Authorship
from elf.security.authorship import author
from elf.security.certificates import Certificate, Revocation, ServerKeys, Signed, sign
from elf.security.enrolling import Token, packed, read_token, shown_token
from elf.security.files import write
from elf.security.keys import KeyPair
from elf.security.principals import Security
from elf.transport.zeromq import ZeroMqTransport
from elf.wire.base import Answer, Message, Request
from elf.wire.clients import Execute, Failed, Reply
from tests.support.confined import needs_confinement
from tests.support.enrolled import CLUSTER, Enrolled, admitted, state_of, token_of, until
from tests.support.fleet import Agent

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Enrolled]:
    made = Enrolled(tmp_path_factory.mktemp("keyed"))
    try:
        made.start()
        yield made
    finally:
        made.fleet.stop()


def now() -> int:
    """Seconds since 1970, as certificates have them."""
    return int(time.time())


def brought(fleet: Enrolled, signed: Signed, keys: Path | Security | None = None) -> dict[str, object]:
    """What the fleet says to something that was signed."""

    async def bring() -> dict[str, object]:
        async with connect(fleet.address, keys=keys or fleet.own, cluster=CLUSTER) as client:
            return await client.call("enrol", packed(signed))

    return asyncio.run(bring())


def refused(fleet: Enrolled, signed: Signed, keys: Path | Security | None = None) -> str:
    before = fleet.names()
    with pytest.raises(UserError) as caught:
        brought(fleet, signed, keys)
    assert fleet.names() == before
    return str(caught.value)


def by_token(text: str, name: str, kind: str = "agent", **changes: object) -> tuple[Signed, Security]:
    """A certificate that the bearer of a token signs, and with what it comes."""
    token = read_token(text)
    pair = KeyPair(token.seed)
    what = Certificate(CLUSTER, "agent", name, KeyPair.new().public, (), now(), now() + 900)
    signed = sign(pair, msgspec.structs.replace(what, kind=kind, **changes))
    return signed, Security(pair.curve, token.fleet.key)


# -- revocation ----------------------------------------------------------------------------------------------


def test_a_revocation_reaches_all_agents_within_five_seconds(fleet: Enrolled) -> None:
    bob = fleet.person("bob")
    until(lambda: all(admitted(address, bob) for address in fleet.addresses), 5)
    open_ones = []

    async def watch() -> list[str]:
        """What becomes of connections that are open."""
        found = []
        for address in fleet.addresses:
            client = await connect(address, keys=bob).open()
            await client.status()
            open_ones.append(client)
        await asyncio.to_thread(rotate.revoke_key, fleet.own, "bob", None, fleet.address)
        began = time.monotonic()
        for client in open_ones:
            try:
                while time.monotonic() - began < 5:
                    await client.call("status", limit_secs=0.5)
                    await asyncio.sleep(0.1)
                found.append("still answered")
            except ElfError as error:
                found.append(str(error))
            await client.close()
        return found

    said = asyncio.run(watch())
    assert len(said) == 3
    assert "still answered" not in said
    assert not any(admitted(address, bob) for address in fleet.addresses)
    assert "bob" not in fleet.names()


def test_a_host_that_is_revoked_is_out_of_the_fleet_and_another_key_lets_it_in(fleet: Enrolled) -> None:
    data = fleet.folder / "web-8" / "data"
    asyncio.run(join_fleet(token_of(fleet, "for-8"), data / "keys", "web-8"))
    port, http = free_ports(2)
    agent = Agent("web-8", fleet.folder / "web-8", port, http, (), cluster=CLUSTER)
    try:
        agent.write_config()
        agent.log.touch()
        agent.fork()
        fleet.ready(agent)
        assert fleet.admitted(address=agent.address)
        rotate.revoke_key(fleet.own, "web-8", "agent", fleet.address)
        until(lambda: "away" in state_of(fleet, "web-8"), 15)
        agent.kill()
        fleet.enrol(f"web-8={data}", connect=fleet.address)
        agent.fork()
        until(lambda: state_of(fleet, "web-8") == ["live"], 30)
    finally:
        if agent.process is not None:
            agent.kill()


def test_who_is_not_admin_revokes_nobody(fleet: Enrolled) -> None:
    carol = fleet.person("carol", "read,tap,write,code")
    keys = files.load(carol)
    victim = files.load(fleet.fleet.agents[1].folder / "data" / "keys").pair.public
    said = refused(fleet, sign(keys.pair, Revocation(CLUSTER, victim, now())), carol)
    assert said == "refused: its signer may not revoke keys"
    with pytest.raises(UserError, match="may not revoke"):
        rotate.revoke_key(carol, "web-1", "agent", fleet.address)


def test_an_admin_revokes_without_the_authority(fleet: Enrolled) -> None:
    dora, eve = fleet.person("dora", "admin"), fleet.person("eve")
    assert rotate.revoke_key(dora, "eve", None, fleet.address) == 0
    until(lambda: not any(admitted(address, eve) for address in fleet.addresses), 5)


# -- who gets in ---------------------------------------------------------------------------------------------


def test_a_key_of_another_authority_gets_nowhere(fleet: Enrolled, tmp_path: Path) -> None:
    enrol.make_authority(tmp_path / "own", CLUSTER)
    stranger = Enrolled.__new__(Enrolled)
    stranger.own, stranger.folder = tmp_path / "own", tmp_path
    stranger.enrol(persons=(f"mallory={tmp_path / 'mallory'}",), roles="admin")
    identity = files.read_json(tmp_path / "mallory" / "identity.json", files.Identity)
    ours = files.load(fleet.own).identity
    files.write_json(
        tmp_path / "mallory" / "identity.json",
        msgspec.structs.replace(identity, fleet=ours.fleet, authority=ours.authority),
    )
    assert not fleet.admitted(tmp_path / "mallory")
    signed = identity.certificate
    assert "may not enrol" in refused(fleet, signed)


def test_roles_do_not_grow_in_files(fleet: Enrolled) -> None:
    """A person writes other roles into the certificate, or signs a new one for the same key."""
    frank = fleet.person("frank")
    identity, pair = files.load(frank).identity, files.load(frank).pair
    more = msgspec.structs.replace(files.load(frank).certificate, roles=("admin",), issued=now() + 60)
    body = sign(pair, more).body
    damaged = Signed(body, identity.certificate.signer, identity.certificate.signature)
    files.write_json(frank / "identity.json", msgspec.structs.replace(identity, certificate=damaged))
    with pytest.raises(UserError, match="the signature is wrong"):
        files.load(frank)
    own = sign(pair, more)
    files.write_json(frank / "identity.json", msgspec.structs.replace(identity, certificate=own))
    assert fleet.admitted(frank)  # its key is known, with the roles that it had
    with pytest.raises(UserError, match="CREATE JOB needs the role write, which frank does not have"):
        fleet.sql("CREATE JOB f AS SELECT COUNT(*) FROM clicks WINDOWING 1 SECONDS", frank)
    assert "may not enrol" in refused(fleet, own, frank)
    assert "signature is wrong" in refused(fleet, damaged, frank)


def test_a_key_that_expires_gets_in_no_more(fleet: Enrolled) -> None:
    at = fleet.folder / "guest"
    enrol.enrol_all(fleet.own, enrol.Wanted((), (f"guest={at}",), "read", "3s", None, None), fleet.address)
    assert fleet.admitted(at)
    until(lambda: not fleet.admitted(at), 10)


def test_a_person_gets_a_new_key_and_the_old_one_is_dead(fleet: Enrolled, tmp_path: Path) -> None:
    grace = fleet.person("grace", "read,tap")
    for name in ("key", "identity.json"):
        write(tmp_path / name, (grace / name).read_bytes())
    assert rotate.rotate_keys(fleet.own, (), (f"grace={grace}",), "30d", fleet.address) == 0
    until(lambda: fleet.admitted(grace) and not fleet.admitted(tmp_path), 5)
    assert files.load(grace).certificate.roles == ("read", "tap")


# -- tokens --------------------------------------------------------------------------------------------------


def test_a_token_is_used_as_often_as_it_says(fleet: Enrolled, tmp_path: Path) -> None:
    text = token_of(fleet, "once")
    asyncio.run(join_fleet(text, tmp_path / "a", "auto-1"))
    assert files.load(tmp_path / "a").fleet.public == files.load(fleet.own).identity.fleet.key
    with pytest.raises(UserError, match="the token once is used up"):
        asyncio.run(join_fleet(text, tmp_path / "b", "auto-2"))
    assert not (tmp_path / "b" / "identity.json").exists()
    assert "auto-1" in fleet.names()


def test_an_agent_joins_with_a_token_and_goes_on_without_it(fleet: Enrolled) -> None:
    """It knows nobody but through the token, and founds no fleet of its own."""
    (port, http), at = free_ports(2), fleet.folder / "web-9"
    agent = Agent("web-9", at, port, http, (), cluster=CLUSTER)
    config = agent.write_config()
    agent.log.touch()
    command = [sys.executable, "-m", "agents.main", "--config", str(config)]
    token = {"ELF_JOIN": token_of(fleet, "for-9")}
    for more in (token, token, {}):
        with (at / "stderr").open("ab") as errors:
            process = subprocess.Popen(command, stderr=errors, env={**os.environ, **more})
        try:
            fleet.ready(agent)
            assert state_of(fleet, "web-9") == ["live"]
        finally:
            process.terminate()
            assert process.wait(20) == 0
    assert token["ELF_JOIN"] not in agent.said()
    rotate.revoke_key(fleet.own, "web-9", None, fleet.address)


def test_what_a_token_may_not(fleet: Enrolled) -> None:
    text = token_of(fleet, "many", uses=50)
    admin, bearer = by_token(text, "root2", "person", roles=("admin",))
    assert "enrols agents only" in refused(fleet, admin, bearer)
    assert "enrols agents only" in refused(fleet, by_token(text, "t", "token", uses=99)[0], bearer)
    assert "does not replace it" in refused(fleet, by_token(text, "web-1")[0], bearer)
    assert "for cluster" in refused(fleet, by_token(text, "x", cluster="other")[0], bearer)
    old = by_token(text, "x", issued=now() - 60)[0]
    assert "does not hold at that time" in refused(fleet, old, bearer)
    late = by_token(text, "x", issued=now() + 400)[0]
    assert "is the clock of that host right" in refused(fleet, late, bearer)
    known = fleet.names()
    agent = files.load(fleet.fleet.agents[1].folder / "data" / "keys")
    for address in fleet.addresses:  # a member that lies says it to the voters themselves
        heard_by(fleet, agent, address, ChangeRoster(signed=late), ChangeRoster(signed=old), secs=0.5)
    assert fleet.names() == known

    async def more() -> None:
        async with connect(fleet.address, keys=bearer, cluster=CLUSTER) as client:
            for verb in ("keys", "fleet", "leave", "take off", "submit", "tap"):
                with pytest.raises(UserError, match="the key of a token, which cannot do that"):
                    await client.call(verb)
            with pytest.raises(UserError, match="the key of a token"):
                await client.sql("SHOW JOBS")

    asyncio.run(more())


def test_a_token_that_has_expired_or_was_revoked_is_worth_nothing(fleet: Enrolled, tmp_path: Path) -> None:
    brief = token_of(fleet, "brief", seconds=3)
    text = token_of(fleet, "gone", uses=5)
    assert rotate.revoke_key(fleet.own, "gone", None, fleet.address) == 0
    with pytest.raises(ElfError, match="does not admit this token"):
        asyncio.run(join_fleet(text, tmp_path, "auto-3"))
    assert "may not enrol" in refused(fleet, by_token(text, "auto-3")[0])
    time.sleep(3)
    with pytest.raises(ElfError, match="does not admit this token"):
        asyncio.run(join_fleet(brief, tmp_path, "auto-3"))
    assert "does not hold at that time" in refused(fleet, by_token(brief, "auto-3")[0])


@pytest.mark.parametrize("text", ["", "elf-join-1.", "elf-join-1.AAAA", "elf-join-1." + "A" * 9_000, "ä"])
def test_what_is_no_token_is_one_line_that_does_not_repeat_it(text: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no join token") as caught:
        asyncio.run(join_fleet(text, tmp_path, "x"))
    assert len(str(caught.value)) < 100


def test_a_token_of_another_fleet_is_not_sent_to_this_one(fleet: Enrolled, tmp_path: Path) -> None:
    """Who listens at an agent's address without the fleet's key hears nothing of the token."""
    token = read_token(token_of(fleet, "elsewhere"))
    other = Token(
        CLUSTER, token.authority, ServerKeys(KeyPair.new().curve.public), token.seed, token.contacts
    )
    with pytest.raises(ElfError, match="cannot reach an agent"):
        asyncio.run(join_fleet(shown_token(other), tmp_path, "x"))


# -- looking -------------------------------------------------------------------------------------------------


def test_the_doctor_looks_at_the_clocks(
    fleet: Enrolled, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    assert doctor.examine(fleet.own, None, fleet.address) == 0
    assert f"ok     fleet: web-0 at {fleet.address} answers" in capsys.readouterr().out
    now = time.time
    monkeypatch.setattr(time, "time", lambda: now() + 3_600)
    assert doctor.examine(fleet.own, None, fleet.address) == 1
    assert (
        f"WRONG  fleet: web-0 at {fleet.address} answers; its clock is 3600 s off" in capsys.readouterr().out
    )


# -- over ssh ------------------------------------------------------------------------------------------------


def test_hosts_are_enrolled_over_ssh(
    fleet: Enrolled, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "bin" / "ssh"
    script.parent.mkdir()
    script.write_text('#!/bin/sh\n[ "$1" = -- ] && [ "$2" = ops@db-1 ] || exit 9\nexec sh -c "$3"\n')
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    elf = tmp_path / "bin" / "elf"
    elf.write_text(f'#!/bin/sh\nexec {sys.executable} -m elf.cli.main "$@"\n')
    elf.chmod(0o755)
    monkeypatch.setenv("PATH", f"{script.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    data = tmp_path / "da ta"
    assert enrol.deploy_all(fleet.own, ["ops@db-1"], data, str(elf), "10d", fleet.address) == 0
    assert "db-1" in fleet.names()
    first = files.load(data / "keys")
    assert first.certificate.name == "db-1"
    assert first.identity.contacts
    assert enrol.deploy_all(fleet.own, ["ops@db-1"], data, str(elf), "10d", fleet.address) == 0
    assert files.load(data / "keys").pair.public != first.pair.public
    with pytest.raises(UserError, match="other: ssh ended with 9"):
        enrol.deploy_all(fleet.own, ["other"], data, str(elf), "10d", fleet.address)
    with pytest.raises(UserError, match="is no host"):
        enrol.deploy_all(fleet.own, ["-oProxyCommand=id"], data, str(elf), "10d", fleet.address)
    assert json.loads((data / "keys" / "identity.json").read_text())["cluster"] == CLUSTER


# -- whose statements ----------------------------------------------------------------------------------------

COUNT = "SELECT COUNT(*) AS n FROM clicks WINDOWING 1 SECONDS"
CODE = "def map(batch):\n    return batch\n"


@needs_confinement
def test_code_needs_its_role_and_its_author(fleet: Enrolled, tmp_path: Path) -> None:
    writer, coder = fleet.person("henry", "read,write"), fleet.person("iris", "read,write,code")
    (tmp_path / "f.py").write_text(CODE)
    change = f"SET FUNCTION map FROM '{tmp_path / 'f.py'}'"
    assert "created" in fleet.sql(f"CREATE JOB plain AS {COUNT}", writer)
    with pytest.raises(UserError, match="needs the role code, which henry does not have"):
        fleet.sql(f"ALTER JOB plain {change}", writer)
    assert "created" in fleet.sql(f"CREATE JOB coded AS {COUNT}", coder)
    assert "is version 2 now" in fleet.sql(f"ALTER JOB coded {change}", coder, fleet.addresses[1])
    assert "is version 3 now" in fleet.sql("ROLLBACK JOB coded TO VERSION 1", coder, fleet.addresses[2])
    assert "is version 4 now" in fleet.sql("ROLLBACK JOB coded TO VERSION 2", coder)
    out = "CREATE OUTPUT o FROM JOB plain TO 'http://127.0.0.1:1/'"
    with pytest.raises(UserError, match="only henry may change it"):
        fleet.sql(out, coder)
    assert "output o created" in fleet.sql(out, writer, fleet.addresses[1])
    with pytest.raises(UserError, match="output o is henry's, and only henry may drop it"):
        fleet.sql("DROP OUTPUT o", coder)
    assert "output o dropped" in fleet.sql("DROP OUTPUT o", writer, fleet.addresses[2])
    for name, by in (("plain", writer), ("coded", coder)):
        assert "dropped" in fleet.sql(f"DROP JOB {name}", by)


def heard_by(
    fleet: Enrolled, keys: files.Keys, address: str, *messages: Message, secs: float = 6.0
) -> list[Message]:
    """What an agent says to the owner of these keys, who says whatever it likes."""

    async def say() -> list[Message]:
        fleet_key = keys.identity.fleet.key
        is_agent = keys.certificate.kind == "agent"
        secret = keys.fleet.secret if is_agent else None
        own = keys.roster()
        security = Security(
            keys.pair.curve,
            fleet_key,
            secret,
            lambda key: None if (one := own.connected(key, time.time())) is None else principal_of(one),
        )
        if is_agent:
            transport = await ZeroMqTransport.listen("127.0.0.1:0", security=security)
        else:
            transport = await ZeroMqTransport.dial(security=security)
        found: list[Message] = []
        try:
            for message in messages:
                if isinstance(message, Request):
                    message = msgspec.structs.replace(message, origin=transport.address)
                transport.send(address, codec.encode(message, cluster=CLUSTER, sender=transport.address))
            async with asyncio.timeout(secs):
                while len(found) < len(messages):
                    _, frames, _ = await transport.receive()
                    decoded = codec.decode(frames, cluster=CLUSTER, max_bytes=1 << 20).message
                    if isinstance(decoded, Answer | Failed | Reply):
                        found.append(decoded)
        except TimeoutError:
            pass
        finally:
            await transport.close()
        return found

    return asyncio.run(say())


def test_a_member_that_lies_brings_no_job_and_no_code_into_the_fleet(fleet: Enrolled) -> None:
    """It is enrolled, speaks the agents' language, and says that ada wants this."""
    data = fleet.folder / "liar" / "data"
    fleet.enrol(f"liar={data}", connect=fleet.address)
    liar = files.load(data / "keys")
    schema = Schema((Column("created_at", "timestamp"),), "created_at")
    plain = Definition(COUNT, (("clicks", schema),))
    code = (Function("map", "import os\n" + CODE, "evil.py"),)
    evil = Definition(COUNT, (("clicks", schema),), functions=code)
    text = "CREATE JOB evil AS " + COUNT
    own = Authorship(text, (), author(liar.pair, CLUSTER, text, (), time.time()))
    forged = msgspec.structs.replace(own, authored=msgspec.structs.replace(own.authored, key=os.urandom(32)))
    program = ProgramSpec("evil", "ada", 0, "import os\n", "evil.py", author=own)
    asked: list[Message] = [
        CreateJob(id=1, origin="", replace=False, spec=JobSpec("evil", "ada", 0, evil)),
        CreateJob(id=2, origin="", replace=False, spec=JobSpec("evil", "ada", 0, plain, authors=(own,))),
        CreateJob(id=3, origin="", replace=False, spec=JobSpec("evil", "ada", 0, evil, authors=(forged,))),
        CreateJob(id=4, origin="", replace=False, spec=JobSpec("_select_evil", "ada", 0, evil)),
        SubmitProgram(id=5, origin="", spec=program),
        SubmitProgram(id=6, origin="", spec=replace(program, author=None)),
    ]
    for address in fleet.addresses:
        answers = heard_by(fleet, liar, address, *asked)
        errors = [answer.error for answer in answers if isinstance(answer, Answer)]
        assert len(errors) == len(asked)
        assert all("is refused: " in error for error in errors), errors
        added = AddJob(spec=JobSpec("evil", "ada", 1, evil, master=address))
        heard_by(fleet, liar, address, added, AddProgram(spec=program), secs=1.0)
    assert "evil" not in str(jobs_of(fleet))


def jobs_of(fleet: Enrolled) -> object:
    async def ask() -> object:
        async with connect(fleet.address, keys=fleet.own) as client:
            return (await client.status())["jobs"]

    return asyncio.run(ask())


def test_a_statement_that_is_said_again_is_refused(fleet: Enrolled) -> None:
    keys = files.load(fleet.person("judy", "read,write"))
    text = "PAUSE JOB nowhere"
    word = author(keys.pair, CLUSTER, text, (), time.time())
    asked = Execute(request=1, sql=text, creator="judy", authored=word)
    again = msgspec.structs.replace(asked, request=2)
    late = author(keys.pair, CLUSTER, text, (), time.time() - 600)
    other = msgspec.structs.replace(asked, request=4, sql="DROP JOB nowhere")
    said = heard_by(
        fleet,
        keys,
        fleet.address,
        asked,
        again,
        msgspec.structs.replace(asked, request=3, authored=late),
        other,
        msgspec.structs.replace(asked, request=5, authored=None),
    )
    texts = {one.request: one.text for one in said if isinstance(one, Failed)}
    assert "there is no job nowhere" in texts[1]
    assert "said before" in texts[2]
    assert "has expired" in texts[3]
    assert "signature of this statement is wrong" in texts[4]
    assert "is not signed" in texts[5]
