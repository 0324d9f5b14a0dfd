"""What ``elf keys`` does to give hosts and persons keys: it makes, signs and brings them."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from elf.cli.authority import (
    AUTHORITY,
    Owner,
    address_of,
    described,
    keys_folder,
    now_s,
    owners_of,
    place_of,
    tell_fleet,
)
from elf.cli.spans import seconds_of
from elf.client.client import user_name
from elf.client.enrolment import fit_name, join_fleet
from elf.errors import UserError
from elf.security import folder
from elf.security.bearer import bearer, loopback_bearer
from elf.security.certificates import ROLES, Role, Signed
from elf.security.enrolling import shown_token
from elf.security.files import FILE_BYTES_MAX, write
from elf.security.keys import KeyPair, read_key, shown
from elf.security.loopback import loopback_file, read_loopback
from elf.security.registrar import Registrar
from elf.security.roster import Roster

NEXT_FILE: Final = "key.next"
"""A key that replaces the one beside it when it is signed."""
SSH_SECS: Final = 120.0


@dataclass(frozen=True)
class Wanted:
    """The command line of ``elf keys enrol``."""

    names: tuple[str, ...]
    persons: tuple[str, ...]
    roles: str
    expires: str
    key: str | None
    out: Path | None


# -- making --------------------------------------------------------------------------------------------------


def make_authority(own: Path, cluster: str) -> int:
    """``elf keys init``"""
    if (own / folder.IDENTITY_FILE).exists():
        raise UserError(f"{own} has keys already; --dir says another folder")
    registrar = Registrar.found(own / AUTHORITY, cluster)
    pair = folder.make_pair(own / folder.KEY_FILE)
    signed = registrar.certify(
        "person", fit_name(user_name()), pair.public, now_s(), seconds_of("365d"), ("admin",)
    )
    folder.write_json(own / folder.IDENTITY_FILE, registrar.identity(signed))
    print(f"made the authority of cluster {cluster} in {own / AUTHORITY}, and your own key in {own}")
    print("who has the authority's files can let anybody in: keep a copy of them away from this machine")
    print("next: elf keys enrol HOST=DATA_DIR … (or elf keys deploy HOST …)")
    return 0


def enrol_all(own: Path, wanted: Wanted, connect: str | None) -> int:
    """``elf keys enrol``"""
    registrar = Registrar(own / AUTHORITY)
    owners = [*owners_of("agent", wanted.names), *owners_of("person", wanted.persons)]
    if not owners:
        raise UserError("whom? give hosts, NAME=DATA_DIR, or --person NAME")
    if wanted.key is not None:
        return _enrol_by_key(own, registrar, owners, wanted, connect)
    places = [_place(owner) for owner in owners]
    roles, seconds = _roles(wanted.roles), seconds_of(wanted.expires)
    keys = [_key_at(at, registrar.roster) for at in places]
    all_signed = _certify(own, registrar, owners, keys, roles, seconds)
    tell_fleet(own, registrar, connect)
    for at, signed in zip(places, all_signed, strict=True):
        _write(at, registrar.identity(signed))
        print(f"enrolled {described(signed)}: {at}")
    return 0


def _place(owner: Owner) -> Path:
    """Where its keys are to be. Raises ``UserError``."""
    if owner.at is None:
        where = "DATA_DIR" if owner.kind == "agent" else "DIR"
        raise UserError(
            f"{owner.name}: say where its keys are to be, {owner.name}={where}, or give --key, "
            "as elf keys new prints it there"
        )
    return owner.at


def _key_at(at: Path, roster: Roster) -> bytes:
    """The public key of the pair in a folder; a new one where there is none, or one that was revoked."""
    pair = folder.make_pair(at / folder.KEY_FILE)
    if roster.revoked(pair.public):
        (at / folder.KEY_FILE).unlink()
        pair = folder.make_pair(at / folder.KEY_FILE)
    return pair.public


def _enrol_by_key(
    own: Path, registrar: Registrar, owners: Sequence[Owner], wanted: Wanted, connect: str | None
) -> int:
    if len(owners) != 1 or owners[0].at is not None:
        raise UserError("--key is of one NAME, without =DIR")
    key = read_key(wanted.key or "")
    (signed,) = _certify(own, registrar, owners, [key], _roles(wanted.roles), seconds_of(wanted.expires))
    tell_fleet(own, registrar, connect)
    text = _json(registrar.identity(signed))
    if wanted.out is None or str(wanted.out) == "-":
        print(text)
    else:
        write(wanted.out, text.encode() + b"\n")
        print(
            f"enrolled {described(signed)}: bring {wanted.out} there, and say: elf keys install",
            file=sys.stderr,
        )
    return 0


def _certify(
    own: Path,
    registrar: Registrar,
    owners: Sequence[Owner],
    keys: Sequence[bytes],
    roles: tuple[Role, ...],
    seconds: int,
) -> list[Signed]:
    """All of them, or none: what the first ones were told has all the others in it. A name that has a key
    loses it, and that is said; nobody takes the own key away in passing. Raises ``UserError``."""
    mine, found = folder.load(own), []
    if len({(owner.kind, owner.name) for owner in owners}) < len(owners):
        raise UserError("one name was given twice")
    for owner, key in zip(owners, keys, strict=True):
        before = registrar.roster.named(owner.kind, owner.name)
        if before is not None and before.key != key:
            if before.key == mine.pair.public:
                raise UserError(
                    f"{owner.name} is your own name, and its key is in {own}: elf keys rotate changes it"
                )
            print(f"elf: {owner.name} had another key, which holds no more", file=sys.stderr)
        given = roles if owner.kind == "person" else ()
        found.append(registrar.certify(owner.kind, owner.name, key, now_s(), seconds, given))
    return found


def make_key(own: Path, data_dir: Path | None) -> int:
    """``elf keys new``"""
    at = place_of(own, data_dir)
    file = NEXT_FILE if (at / folder.IDENTITY_FILE).exists() else folder.KEY_FILE
    pair = folder.make_pair(at / file)
    _same_owner(at)
    print(shown(pair.public))
    return 0


def install_identity(own: Path, data_dir: Path | None, file: Path) -> int:
    """``elf keys install``"""
    at = place_of(own, data_dir)
    text = sys.stdin.buffer.read(FILE_BYTES_MAX) if str(file) == "-" else _bytes_of(file)
    try:
        identity = msgspec.json.decode(text, type=folder.Identity)
    except msgspec.MsgspecError as error:
        raise UserError(f"{file} is nothing that elf keys enrol wrote: {error}") from None
    install(at, identity)
    print(f"{at}: {described(identity.certificate)}")
    return 0


def install(at: Path, identity: folder.Identity) -> None:
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


def make_token(own: Path, name: str | None, uses: int, expires: str, connect: str | None) -> int:
    """``elf keys token``"""
    registrar, pair = Registrar(own / AUTHORITY), KeyPair.new()
    name = name or f"token-{shown(pair.public)[:8].replace('_', '-').strip('-')}"
    if not address_of(connect, registrar.contacts):
        raise UserError("a token is for a fleet that runs: --connect HOST:PORT says where an agent is")
    registrar.certify("token", name, pair.public, now_s(), seconds_of(expires), uses=uses)
    tell_fleet(own, registrar, connect, must=True)
    print(shown_token(registrar.token(pair)))
    print(
        f"{name}: enrols {uses} within {expires}; whoever has it can: ELF_JOIN=… elf-agent", file=sys.stderr
    )
    return 0


def make_bearer(own: Path, expires: str) -> int:
    """``elf keys bearer``"""
    if not (own / folder.IDENTITY_FILE).exists() and (file := loopback_file()).exists():
        secret = read_loopback(file).own.secret
        print(loopback_bearer(secret, now_s(), seconds_of(expires)))
        print(f"this machine's agents: for {expires}; whoever has it may do what you may", file=sys.stderr)
        return 0
    keys = folder.load(own)
    if keys.certificate.kind != "person":
        raise UserError(f"these are the keys of {keys.certificate.name}, which is no person")
    print(bearer(keys.pair, keys.identity.cluster, now_s(), seconds_of(expires)))
    print(f"{keys.certificate.name}: for {expires}; whoever has it may read what you may", file=sys.stderr)
    return 0


def join_with(token: str, data_dir: Path, name: str | None) -> int:
    """``elf keys join``"""
    at = keys_folder(data_dir)
    text = sys.stdin.readline() if token == "-" else token
    identity = asyncio.run(join_fleet(text, at, name or fit_name(socket.gethostname())))
    _same_owner(at)
    print(f"{at}: {described(identity.certificate)}")
    return 0


# -- over ssh ------------------------------------------------------------------------------------------------


def deploy_all(
    own: Path, hosts: Sequence[str], data_dir: Path, elf: str, expires: str, connect: str | None
) -> int:
    """``elf keys deploy``"""
    registrar = Registrar(own / AUTHORITY)
    for host in hosts:
        if host.startswith("-"):
            raise UserError(f"{host!r} is no host")
        (owner,) = owners_of("agent", [host.rpartition("@")[2]])
        key = read_key(_over_ssh(host, [elf, "keys", "new", "--data-dir", str(data_dir)], b"").strip())
        (signed,) = _certify(own, registrar, [owner], [key], (), seconds_of(expires))
        tell_fleet(own, registrar, connect)
        given = _json(registrar.identity(signed)).encode()
        _over_ssh(host, [elf, "keys", "install", "-", "--data-dir", str(data_dir)], given)
        print(f"enrolled {described(signed)}: {host}:{keys_folder(data_dir)}; restart its agent, if it runs")
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


# -- words ---------------------------------------------------------------------------------------------------


def _roles(text: str) -> tuple[Role, ...]:
    given = {one.strip() for one in text.split(",") if one.strip()}
    if unknown := given - set(ROLES):
        raise UserError(f"no such role: {', '.join(sorted(unknown))}; roles: {', '.join(ROLES)}")
    return tuple(role for role in ROLES if role in given)


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
