"""``elf keys`` and ``elf doctor`` where no agent runs."""

from __future__ import annotations

import os
import time
from pathlib import Path

import msgspec
import pytest

from elf.cli.main import app
from elf.errors import UserError
from elf.security import folder as files
from elf.security.folder import Authority
from elf.security.keys import KeyPair, shown
from elf.security.registrar import Registrar


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The keys of who has made an authority."""
    monkeypatch.setenv("ELF_KEYS", str(tmp_path / "own"))
    monkeypatch.delenv("ELF_CONNECT", raising=False)
    assert elf("keys", "init", "shop") == 0
    return tmp_path / "own"


def elf(*args: str) -> object:
    return app(list(args), standalone_mode=False)


def listed(capsys: pytest.CaptureFixture[str]) -> dict[str, str]:
    capsys.readouterr()
    elf("keys", "list", "--output", "csv")
    rows = [line.split(",") for line in capsys.readouterr().out.splitlines()[1:]]
    return {row[0]: row[-2] for row in rows}


def test_nothing_of_it_can_be_read_by_others(own: Path, tmp_path: Path) -> None:
    elf("keys", "enrol", f"web-1={tmp_path / 'web-1'}", "--person", f"ada={tmp_path / 'ada'}")
    made = [*own.rglob("*"), own, *(tmp_path / "web-1" / "keys").rglob("*"), *(tmp_path / "ada").rglob("*")]
    assert len(made) == 10
    assert {path.stat().st_mode & 0o077 for path in made} == {0}


def test_secrets_are_in_the_files_that_say_so_and_nowhere_else(own: Path, tmp_path: Path) -> None:
    elf("keys", "enrol", f"web-1={tmp_path / 'web-1'}")
    (fleet,) = files.read_json(own / "authority" / "authority.json", Authority).fleet_secrets
    host = files.load(tmp_path / "web-1" / "keys")
    assert host.fleet.secret == fleet
    for path in tmp_path.rglob("*.json"):
        told = path.read_bytes()
        if path.name != "authority.json":
            assert msgspec.json.encode(fleet).strip(b'"') not in told
        assert msgspec.json.encode(host.pair.seed).strip(b'"') not in told


def test_all_of_one_command_know_each_other(own: Path, tmp_path: Path) -> None:
    elf("keys", "enrol", f"a={tmp_path / 'a'}", f"b={tmp_path / 'b'}", "--person", f"ada={tmp_path / 'ada'}")
    for at in (tmp_path / "a" / "keys", tmp_path / "b" / "keys"):
        keys = files.load(at)
        assert {one.name for one in keys.roster() if one.kind == "agent"} == {"a", "b"}
        assert keys.roster().named("person", "ada") is not None


def test_a_key_that_is_made_elsewhere_never_leaves_it(
    own: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    elf("keys", "new", "--data-dir", str(tmp_path / "far"))
    public = capsys.readouterr().out.strip()
    elf("keys", "enrol", "web-7", "--key", public, "--out", str(tmp_path / "for-7"))
    assert files.load_pair(tmp_path / "far" / "keys" / "key").seed not in (tmp_path / "for-7").read_bytes()
    elf("keys", "install", str(tmp_path / "for-7"), "--data-dir", str(tmp_path / "far"))
    assert files.load(tmp_path / "far" / "keys").fleet.secret
    capsys.readouterr()
    elf("keys", "new", "--data-dir", str(tmp_path / "far"))  # another one, which counts when it is signed
    assert capsys.readouterr().out.strip() != public
    assert files.load(tmp_path / "far" / "keys").certificate.name == "web-7"
    other = shown(KeyPair.new().public)
    elf("keys", "enrol", "web-8", "--key", other, "--out", str(tmp_path / "for-8"))
    with pytest.raises(UserError, match="the certificate is for another key"):
        elf("keys", "install", str(tmp_path / "for-8"), "--data-dir", str(tmp_path / "far"))


def test_what_was_revoked_comes_back_with_another_key_only(
    own: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    elf("keys", "enrol", f"web-1={tmp_path / 'a'}", f"web-2={tmp_path / 'b'}")
    first = files.load(tmp_path / "a" / "keys").pair.public
    elf("keys", "revoke", "web-1")
    found = listed(capsys)
    assert (found["web-1"], found["web-2"]) == ("revoked", "valid")
    elf("keys", "enrol", f"web-1={tmp_path / 'a'}")
    assert files.load(tmp_path / "a" / "keys").pair.public != first
    assert listed(capsys)["web-1"] == "valid"
    with pytest.raises(UserError, match="nobody called web-9 has a key"):
        elf("keys", "revoke", "web-9")


def test_a_revocation_that_no_agent_was_told_of_is_a_failure_each_time(
    own: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    elf("keys", "enrol", f"web-1={tmp_path / 'a'}")
    monkeypatch.setenv("ELF_CONNECT", "127.0.0.1:1")
    for _ in range(2):
        assert elf("keys", "revoke", "web-1") == 1
        said = capsys.readouterr()
        assert "revoked the agent web-1: no fleet was told" in said.out
        assert "no agent was told: cannot reach an agent" in said.err
    assert len(Registrar(own / "authority").roster.signed) == 3


def test_a_name_that_gets_another_key_is_said_and_ones_own_is_kept(
    own: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    elf("keys", "enrol", f"web-1={tmp_path / 'a'}")
    elf("keys", "enrol", f"web-1={tmp_path / 'a'}")
    assert capsys.readouterr().err == ""
    elf("keys", "enrol", f"web-1={tmp_path / 'b'}")
    assert capsys.readouterr().err == "elf: web-1 had another key, which holds no more\n"
    mine = files.load(own).certificate
    with pytest.raises(UserError, match="is your own name"):
        elf("keys", "enrol", "--person", f"{mine.name}={tmp_path / 'mine'}")
    with pytest.raises(UserError, match="one name was given twice"):
        elf("keys", "enrol", f"web-2={tmp_path / 'c'}", f"web-2={tmp_path / 'd'}")
    assert Registrar(own / "authority").roster.of(mine.key) == mine


def test_folders_that_are_made_for_keys_are_the_owners_alone(own: Path, tmp_path: Path) -> None:
    elf("keys", "enrol", f"web-1={tmp_path / 'var' / 'elf'}")
    made = (tmp_path / "var", tmp_path / "var" / "elf", tmp_path / "var" / "elf" / "keys")
    assert [at.stat().st_mode & 0o777 for at in made] == [0o700] * 3


@pytest.mark.parametrize(
    ("args", "why"),
    [
        (["enrol"], "whom"),
        (["enrol", "web-1"], "say where its keys are to be"),
        (["enrol", "../x=/tmp"], "NAME or NAME=DIR"),
        (["enrol", "web-1="], "NAME or NAME=DIR"),
        (["enrol", "--person", "ada=/nowhere", "--roles", "read,root"], "no such role: root"),
        (["enrol", "web-1=/nowhere", "--expires", "1y"], "a time such as"),
        (["enrol", "web-1", "--key", "x"], "is no key"),
        (["enrol", "a", "b", "--key", "x"], "--key is of one NAME"),
        (["rotate", "--fleet"], "a fleet that runs has to be told"),
        (["rotate", "--fleet", "web-1=/nowhere"], "--fleet stands alone"),
        (["rotate", "web-1"], "is enrolled; elf keys list names"),
        (["token"], "a token is for a fleet that runs"),
        (["rotate", "web-5=/nowhere"], "is enrolled; elf keys list names"),
        (["init", "shop"], "has keys already"),
        (["install", "/nowhere"], "cannot be read: no such file"),
    ],
)
def test_what_is_wrong_is_one_line(own: Path, args: list[str], why: str) -> None:
    before = Registrar(own / "authority").roster.signed
    with pytest.raises(UserError, match=why) as caught:
        elf("keys", *args)
    assert "\n" not in str(caught.value)
    assert Registrar(own / "authority").roster.signed == before
    assert not Path("/nowhere").exists()


def test_without_an_authority_nobody_is_enrolled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ELF_KEYS", str(tmp_path))
    with pytest.raises(UserError, match="elf keys init CLUSTER makes one"):
        elf("keys", "enrol", f"a={tmp_path}")


def test_a_file_that_others_can_read_is_not_used(own: Path) -> None:
    (own / "authority" / "authority.key").chmod(0o640)
    with pytest.raises(UserError, match="can be read by others"):
        elf("keys", "enrol", "a=/nowhere")


# -- doctor --------------------------------------------------------------------------------------------------


def doctor(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[object, list[str]]:
    capsys.readouterr()
    status = elf("doctor", *args)
    return status, [line for line in capsys.readouterr().out.splitlines() if line.startswith("WRONG")]


def test_the_doctor_finds_nothing_where_nothing_is_wrong(
    own: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    elf("keys", "enrol", f"a={tmp_path / 'a'}")
    assert doctor(capsys) == (0, [])
    assert doctor(capsys, "--data-dir", str(tmp_path / "a")) == (0, [])


def test_the_doctor_finds_what_is_wrong(
    own: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "a"
    elf("keys", "enrol", f"a={data}", "--expires", "2d")

    def found() -> str:
        status, (line, *_) = doctor(capsys, "--data-dir", str(data))
        assert status == 1
        return line

    assert "expires in 2 days" in found()
    (data / "keys" / "key").chmod(0o644)
    assert "can be read by others" in found()
    (data / "keys" / "key").chmod(0o600)
    (data / "keys").chmod(0o777)
    assert "others may write" in found()
    (data / "keys").chmod(0o700)
    identity = files.read_json(data / "keys" / "identity.json", files.Identity)
    registrar = Registrar(own / "authority")
    key = files.load(data / "keys").pair.public

    def given(issued: int, **changes: object) -> None:
        signed = registrar.certify("agent", "a", key, issued, 86_400 * 90)
        changed = msgspec.structs.replace(identity, certificate=signed, **changes)
        files.write_json(data / "keys" / "identity.json", changed)

    given(int(time.time()) + 600)
    assert "clock: this key was signed" in found()
    given(int(time.time()) + 601, sealed=os.urandom(80))
    assert "fleet's key: it was sealed for another key" in found()
    given(int(time.time()) + 602, contacts=("127.0.0.1:1",))
    assert "cannot reach an agent at 127.0.0.1:1" in doctor(capsys, "--data-dir", str(data))[1][-1]
    what = registrar.roster.named("agent", "a")
    assert what is not None
    revoked = registrar.revoke(what, int(time.time()))
    files.write_json(data / "keys" / "identity.json", msgspec.structs.replace(identity, roster=(revoked,)))
    assert "certificate: it was revoked" in found()
    (data / "keys" / "identity.json").unlink()
    assert "there are none in" in found()
