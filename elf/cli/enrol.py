"""What ``elf keys`` does."""

from __future__ import annotations

import asyncio
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import msgspec
import pyarrow as pa

from elf.cli.options import Output
from elf.cli.printing import printer, use_utf8
from elf.client.client import user_name
from elf.client.enrolment import Known, fit_name, join_fleet, keys_of, tell
from elf.errors import ElfError, UserError
from elf.security import folder
from elf.security.bearer import bearer
from elf.security.certificates import ROLES, Certificate, Kind, Revocation, Role, Signed, sign
from elf.security.enrolling import shown_token
from elf.security.files import FILE_BYTES_MAX, write
from elf.security.keys import KeyPair, read_key, shown
from elf.security.loopback import own_folder
from elf.security.registrar import Registrar
from elf.security.roster import Roster

AUTHORITY: Final = "authority"
"""The authority's folder in that of its owner's keys."""
NEXT_FILE: Final = "key.next"
"""A key that replaces the one beside it when it is signed."""
_UNITS: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
SSH_SECS: Final = 120.0
AGENT_DAYS_MAX: Final = 36_500


@dataclass(frozen=True)
class Wanted:
    """The command line of ``elf keys enrol``."""

    names: tuple[str, ...]
    persons: tuple[str, ...]
    roles: str
    expires: str
    key: str | None
    out: Path | None


@dataclass(frozen=True)
class _Owner:
    """Whose key it is to be; ``at``: the folder of the keys, on this machine."""

    kind: Kind
    name: str
    at: Path | None


def keys_folder(data_dir: Path) -> Path:
    """The keys of a host's agent."""
    return data_dir / "keys"


# -- making --------------------------------------------------------------------------------------------------


def make_authority(own: Path | None, cluster: str) -> int:
    """``elf keys init``"""
    own = own or own_folder()
    own.mkdir(mode=0o700, parents=True, exist_ok=True)
    if (own / folder.IDENTITY_FILE).exists():
        raise UserError(f"{own} has keys already; --dir says another folder")
    registrar = Registrar.found(own / AUTHORITY, cluster)
    pair = folder.make_pair(own / folder.KEY_FILE)
    signed = registrar.certify(
        "person", fit_name(user_name()), pair.public, _now(), _seconds("365d"), ("admin",)
    )
    folder.write_json(own / folder.IDENTITY_FILE, registrar.identity(signed))
    print(f"made the authority of cluster {cluster} in {own / AUTHORITY}, and your own key in {own}")
    print("who has the authority's files can let anybody in: keep a copy of them away from this machine")
    print("next: elf keys enrol HOST=DATA_DIR … (or elf keys deploy HOST …)")
    return 0


def enrol_all(own: Path | None, wanted: Wanted, connect: str | None) -> int:
    """``elf keys enrol``"""
    own = own or own_folder()
    registrar = Registrar(own / AUTHORITY)
    owners = [*_owners("agent", wanted.names), *_owners("person", wanted.persons)]
    if not owners:
        raise UserError("whom? give hosts, NAME=DATA_DIR, or --person NAME")
    if wanted.key is not None:
        return _enrol_by_key(own, registrar, owners, wanted, connect)
    for owner in owners:
        if owner.at is None:
            where = "DATA_DIR" if owner.kind == "agent" else "DIR"
            raise UserError(
                f"{owner.name}: say where its keys are to be, {owner.name}={where}, or give --key, "
                "as elf keys new prints it there"
            )
    roles, seconds = _roles(wanted.roles), _seconds(wanted.expires)
    keys = [_key_at(_at(owner), registrar.roster) for owner in owners]
    all_signed = _certify(registrar, owners, keys, roles, seconds)
    _tell_fleet(own, registrar, connect)
    for owner, signed in zip(owners, all_signed, strict=True):
        _write(_at(owner), registrar.identity(signed))
        print(f"enrolled {_described(signed)}: {_at(owner)}")
    return 0


def _key_at(at: Path, roster: Roster) -> bytes:
    """The public key of the pair in a folder; a new one where there is none, or one that was revoked."""
    pair = folder.make_pair(at / folder.KEY_FILE)
    if roster.revoked(pair.public):
        (at / folder.KEY_FILE).unlink()
        pair = folder.make_pair(at / folder.KEY_FILE)
    return pair.public


def _enrol_by_key(
    own: Path, registrar: Registrar, owners: Sequence[_Owner], wanted: Wanted, connect: str | None
) -> int:
    if len(owners) != 1 or owners[0].at is not None:
        raise UserError("--key is of one NAME, without =DIR")
    key = read_key(wanted.key or "")
    (signed,) = _certify(registrar, owners, [key], _roles(wanted.roles), _seconds(wanted.expires))
    _tell_fleet(own, registrar, connect)
    text = _json(registrar.identity(signed))
    if wanted.out is None or str(wanted.out) == "-":
        print(text)
    else:
        write(wanted.out, text.encode() + b"\n")
        print(
            f"enrolled {_described(signed)}: bring {wanted.out} there, and say: elf keys install",
            file=sys.stderr,
        )
    return 0


def _certify(
    registrar: Registrar,
    owners: Sequence[_Owner],
    keys: Sequence[bytes],
    roles: tuple[Role, ...],
    seconds: int,
) -> list[Signed]:
    """All of them, or none: what the first ones were told has all the others in it."""
    found = []
    for owner, key in zip(owners, keys, strict=True):
        given = roles if owner.kind == "person" else ()
        found.append(registrar.certify(owner.kind, owner.name, key, _now(), seconds, given))
    return found


def make_key(own: Path | None, data_dir: Path | None) -> int:
    """``elf keys new``"""
    at = keys_folder(data_dir) if data_dir is not None else own or own_folder()
    file = NEXT_FILE if (at / folder.IDENTITY_FILE).exists() else folder.KEY_FILE
    pair = folder.make_pair(at / file)
    _same_owner(at)
    print(shown(pair.public))
    return 0


def install_identity(own: Path | None, data_dir: Path | None, file: Path) -> int:
    """``elf keys install``"""
    at = keys_folder(data_dir) if data_dir is not None else own or own_folder()
    text = sys.stdin.buffer.read(FILE_BYTES_MAX) if str(file) == "-" else _bytes_of(file)
    try:
        identity = msgspec.json.decode(text, type=folder.Identity)
    except msgspec.MsgspecError as error:
        raise UserError(f"{file} is nothing that elf keys enrol wrote: {error}") from None
    _install(at, identity)
    print(f"{at}: {_described(identity.certificate)}")
    return 0


def _install(at: Path, identity: folder.Identity) -> None:
    """Put an identity beside the key that it is of. Raises ``UserError``."""
    refused: list[str] = []
    for name in (folder.KEY_FILE, NEXT_FILE):
        if not (at / name).exists():
            continue
        try:
            keys = folder.Keys(folder.load_pair(at / name), identity)
        except UserError as error:
            refused.append(str(error))
            continue
        if why := keys.roster().refusal(identity.certificate):
            raise UserError(f"{at}: {why}")
        if keys.certificate.kind == "agent":
            _ = keys.fleet
        if name == NEXT_FILE:
            (at / NEXT_FILE).replace(at / folder.KEY_FILE)
        _write(at, identity)
        return
    raise UserError(f"{at}: {refused[0] if refused else 'there is no key: elf keys new makes one'}")


# -- tokens --------------------------------------------------------------------------------------------------


def make_token(own: Path | None, name: str | None, uses: int, expires: str, connect: str | None) -> int:
    """``elf keys token``"""
    own = own or own_folder()
    registrar, pair = Registrar(own / AUTHORITY), KeyPair.new()
    name = name or f"token-{shown(pair.public)[:8].replace('_', '-').strip('-')}"
    if not _address(connect, registrar.contacts):
        raise UserError("a token is for a fleet that runs: --connect HOST:PORT says where an agent is")
    registrar.certify("token", name, pair.public, _now(), _seconds(expires), uses=uses)
    _tell_fleet(own, registrar, connect, must=True)
    print(shown_token(registrar.token(pair)))
    print(
        f"{name}: enrols {uses} within {expires}; whoever has it can: ELF_JOIN=… elf-agent", file=sys.stderr
    )
    return 0


def make_bearer(own: Path | None, expires: str) -> int:
    """``elf keys bearer``"""
    keys = folder.load(own or own_folder())
    if keys.certificate.kind != "person":
        raise UserError(f"these are the keys of {keys.certificate.name}, which is no person")
    print(bearer(keys.pair, keys.identity.cluster, _now(), _seconds(expires)))
    print(f"{keys.certificate.name}: for {expires}; whoever has it may read what you may", file=sys.stderr)
    return 0


def join_with(token: str, data_dir: Path, name: str | None) -> int:
    """``elf keys join``"""
    at = keys_folder(data_dir)
    text = sys.stdin.readline() if token == "-" else token
    identity = asyncio.run(join_fleet(text, at, name or fit_name(socket.gethostname())))
    _same_owner(at)
    print(f"{at}: {_described(identity.certificate)}")
    return 0


# -- over ssh ------------------------------------------------------------------------------------------------


def deploy_all(
    own: Path | None, hosts: Sequence[str], data_dir: Path, elf: str, expires: str, connect: str | None
) -> int:
    """``elf keys deploy``"""
    own = own or own_folder()
    registrar = Registrar(own / AUTHORITY)
    for host in hosts:
        if host.startswith("-"):
            raise UserError(f"{host!r} is no host")
        (owner,) = _owners("agent", [host.rpartition("@")[2]])
        key = read_key(_over_ssh(host, [elf, "keys", "new", "--data-dir", str(data_dir)], b"").strip())
        (signed,) = _certify(registrar, [owner], [key], (), _seconds(expires))
        _tell_fleet(own, registrar, connect)
        given = _json(registrar.identity(signed)).encode()
        _over_ssh(host, [elf, "keys", "install", "-", "--data-dir", str(data_dir)], given)
        print(f"enrolled {_described(signed)}: {host}:{keys_folder(data_dir)}; restart its agent, if it runs")
    return 0


def _over_ssh(host: str, command: Sequence[str], given: bytes) -> str:
    """What a command prints there. Raises ``UserError``."""
    import shlex

    try:
        done = subprocess.run(
            ["ssh", "--", host, shlex.join(command)],
            input=given,
            capture_output=True,
            timeout=SSH_SECS,
            check=False,
        )
    except FileNotFoundError:
        raise UserError("elf keys deploy needs ssh, which is not here") from None
    except subprocess.TimeoutExpired:
        raise UserError(f"{host}: no answer within {SSH_SECS:g} s") from None
    if done.returncode:
        said = done.stderr.decode("utf-8", "replace").strip().splitlines()
        raise UserError(f"{host}: {said[-1] if said else f'ssh ended with {done.returncode}'}")
    return done.stdout.decode("utf-8", "replace")


# -- ending --------------------------------------------------------------------------------------------------


def revoke_key(own: Path | None, name: str, kind: str | None, connect: str | None) -> int:
    """``elf keys revoke``"""
    own = own or own_folder()
    if not (own / AUTHORITY / folder.AUTHORITY_KEY_FILE).exists():
        return _revoke_as_admin(own, name, kind, connect)
    registrar = Registrar(own / AUTHORITY)
    known = _fleet_says(own, _address(connect, registrar.contacts), must=connect is not None)
    if known is not None:
        registrar.learn(known.signed, known.contacts)
    what = _one_of(registrar.roster, name, kind)
    registrar.revoke(what, _now())
    told = _tell_fleet(own, registrar, connect)
    print(f"revoked the {what.kind} {what.name}{'' if told else ': no fleet was told'}")
    return 0


def _revoke_as_admin(own: Path, name: str, kind: str | None, connect: str | None) -> int:
    keys = folder.load(own)
    address = _address(connect, keys.identity.contacts)
    if not address:
        raise UserError("the authority is not here, so a fleet has to be told: --connect HOST:PORT")
    roster = _roster_of(keys, asyncio.run(keys_of(address, own, keys.identity.cluster)))
    what = _one_of(roster, name, kind)
    signed = sign(keys.pair, Revocation(keys.identity.cluster, what.key, _now()))
    if why := roster.refusal(signed):
        raise UserError(f"{what.name}: {why}")
    told = asyncio.run(tell(address, own, keys.identity.cluster, [signed]))
    if told.refused:
        raise UserError(told.refused[0][1])
    print(f"revoked the {what.kind} {what.name}")
    return 0


def rotate_keys(
    own: Path | None, names: Sequence[str], persons: Sequence[str], expires: str, connect: str | None
) -> int:
    """``elf keys rotate``"""
    own = own or own_folder()
    registrar = Registrar(own / AUTHORITY)
    owners = [*_owners("agent", names), *_owners("person", persons)]
    if not owners:
        owners = [_Owner("person", folder.load(own).certificate.name, own)]
    for owner in owners:
        before = registrar.roster.named(owner.kind, owner.name)
        if owner.at is None or before is None:
            raise UserError(f"{owner.name}: give {owner.name}=DIR of one that is enrolled")
        (owner.at / NEXT_FILE).unlink(missing_ok=True)
        pair = folder.make_pair(owner.at / NEXT_FILE)
        signed = registrar.certify(
            owner.kind, owner.name, pair.public, _now(), _seconds(expires), before.roles
        )
        _tell_fleet(own, registrar, connect)
        _install(owner.at, registrar.identity(signed))
        again = "; restart its agent, if it runs" if owner.kind == "agent" else ""
        print(f"{_described(signed)} has a new key in {owner.at}{again}")
    return 0


# -- looking -------------------------------------------------------------------------------------------------


def show_keys(own: Path | None, connect: str | None, output: Output) -> int:
    """``elf keys list``"""
    use_utf8()
    own = own or own_folder()
    keys = folder.load(own)
    roster = keys.roster()
    if (own / AUTHORITY / folder.AUTHORITY_KEY_FILE).exists():
        registrar = Registrar(own / AUTHORITY)
        roster, contacts = registrar.roster, registrar.contacts
    else:
        contacts = keys.identity.contacts
    known = _fleet_says(own, _address(connect, contacts), must=connect is not None)
    if known is not None:
        roster = _roster_of(keys, known)
    printer(output.value).table(_listed(roster, _now()))
    return 0


def _listed(roster: Roster, now: int) -> pa.Table:
    """The newest certificate of each kind and name."""
    newest: dict[tuple[str, str], Certificate] = {}
    enrolled: dict[bytes, int] = {}
    for signed in roster.signed:
        what = signed.opened()
        if isinstance(what, Certificate):
            newest[what.kind, what.name] = what
            enrolled[signed.signer] = enrolled.get(signed.signer, 0) + 1
    rows = []
    for what in sorted(newest.values(), key=lambda one: (one.kind, one.name)):
        state = "valid" if what.valid(now) else "expired"
        if roster.revoked(what.key):
            state = "revoked"
        elif what.kind == "token" and what.valid(now):
            state = f"{enrolled.get(what.key, 0)} of {what.uses} used"
        until = datetime.fromtimestamp(what.expires, UTC).strftime("%Y-%m-%d %H:%M")
        rows.append((what.name, what.kind, ",".join(what.roles), until, state, shown(what.key)))
    columns = ("name", "kind", "roles", "expires", "state", "key")
    return pa.table({name: [row[n] for row in rows] for n, name in enumerate(columns)})


# -- the fleet -----------------------------------------------------------------------------------------------


def _tell_fleet(own: Path, registrar: Registrar, connect: str | None, *, must: bool = False) -> bool:
    """Tell the fleet what was signed, and learn what else was; whether one was told. A fleet that is named
    has to be there; one that is only known from before does not, and hears of it with the next command."""
    address = _address(connect, registrar.contacts)
    if not address:
        return False
    try:
        told = asyncio.run(tell(address, own, registrar.cluster, registrar.roster.signed))
    except ElfError as error:
        text = f"signed, but no agent was told: {error}; say it again when one runs"
        if must or connect is not None:
            raise UserError(text) from None
        print(f"elf: {text}", file=sys.stderr)
        return False
    registrar.learn(told.known.signed, told.known.contacts)
    for signed, why in told.refused:
        print(f"elf: the fleet does not take {_described(signed)}: {why}", file=sys.stderr)
    if told.refused and must:
        raise UserError("the fleet has not taken it")
    return True


def _address(connect: str | None, contacts: Sequence[str]) -> str:
    """Where a fleet is asked for; empty: nobody knows of any."""
    return connect or os.environ.get("ELF_CONNECT") or ",".join(contacts)


def _fleet_says(own: Path, address: str, *, must: bool) -> Known | None:
    """What a fleet says; None: none is known, or, unless it ``must`` be there, none answers."""
    if not address:
        return None
    try:
        return asyncio.run(keys_of(address, own, folder.load(own).identity.cluster))
    except ElfError as error:
        if must:
            raise
        print(f"elf: no agent says more: {error}", file=sys.stderr)
        return None


def _roster_of(keys: folder.Keys, known: Known) -> Roster:
    return Roster(keys.identity.cluster, keys.identity.authority, known.signed)


# -- words ---------------------------------------------------------------------------------------------------


def _owners(kind: Kind, words: Iterable[str]) -> list[_Owner]:
    found = []
    for word in words:
        name, equals, at = word.partition("=")
        if not name or fit_name(name) != name or (equals and not at):
            raise UserError(f"{word!r}: NAME or NAME=DIR; a name has letters, digits and . _ @ -, 64 at most")
        where = Path(at).expanduser() if equals else None
        if where is not None and kind == "agent":
            where = keys_folder(where)
        found.append(_Owner(kind, name, where))
    return found


def _at(owner: _Owner) -> Path:
    if owner.at is None:
        raise UserError(f"{owner.name}: say where its keys are")
    return owner.at


def _one_of(roster: Roster, name: str, kind: str | None) -> Certificate:
    found = [one for one in roster if one.name == name and kind in (None, one.kind)]
    if not found:
        raise UserError(f"no key of {name} holds; elf keys list names those that do")
    if len(found) > 1:
        raise UserError(f"several are called {name}: --kind {' or '.join(one.kind for one in found)}")
    return found[0]


def _roles(text: str) -> tuple[Role, ...]:
    given = {one.strip() for one in text.split(",") if one.strip()}
    if unknown := given - set(ROLES):
        raise UserError(f"no such role: {', '.join(sorted(unknown))}; roles: {', '.join(ROLES)}")
    return tuple(role for role in ROLES if role in given)


def _seconds(text: str) -> int:
    match = re.fullmatch(r"([1-9][0-9]{0,9})([smhd])", text)
    if match is None or (seconds := int(match[1]) * _UNITS[match[2]]) > AGENT_DAYS_MAX * 86_400:
        raise UserError(f"--expires {text}: a time such as 90s, 30m, 12h or 365d")
    return seconds


def _now() -> int:
    return int(time.time())


def _described(signed: Signed) -> str:
    what = signed.opened()
    if isinstance(what, Revocation):
        return f"the revocation of {shown(what.key)}"
    until = datetime.fromtimestamp(what.expires, UTC).strftime("%Y-%m-%d")
    roles = f" ({', '.join(what.roles)})" if what.roles else ""
    return f"{what.kind} {what.name}{roles} until {until}"


def _json(identity: folder.Identity) -> str:
    return msgspec.json.encode(identity).decode()


def _bytes_of(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise UserError(f"{file} cannot be read: {(error.strerror or str(error)).lower()}") from None


def _write(at: Path, identity: folder.Identity) -> None:
    folder.write_json(at / folder.IDENTITY_FILE, identity)
    _same_owner(at)


def _same_owner(at: Path) -> None:
    """Root's files in a folder of the agent's user are that user's."""
    if os.geteuid() != 0:
        return
    owner = at.parent.stat()
    for path in (at, *at.iterdir()):
        os.chown(path, owner.st_uid, owner.st_gid, follow_symlinks=False)
