"""What ``elf keys`` does with keys that there are: it ends, changes and shows them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa

from elf.cli.authority import (
    AUTHORITY,
    Owner,
    address_of,
    described,
    fleet_says,
    moment,
    now_s,
    owners_of,
    roster_of,
    tell_fleet,
)
from elf.cli.enrol import NEXT_FILE, install
from elf.cli.options import Output
from elf.cli.printing import printer, use_utf8
from elf.cli.spans import seconds_of
from elf.client.enrolment import keys_of, tell
from elf.errors import UserError
from elf.security import folder
from elf.security.certificates import Certificate, Revocation, Rotation, sign
from elf.security.keys import shown
from elf.security.registrar import Registrar
from elf.security.roster import Roster

# -- ending --------------------------------------------------------------------------------------------------


def revoke_key(own: Path, name: str, kind: str | None, connect: str | None) -> int:
    """``elf keys revoke``"""
    if not (own / AUTHORITY / folder.AUTHORITY_KEY_FILE).exists():
        return _revoke_as_admin(own, name, kind, connect)
    registrar = Registrar(own / AUTHORITY)
    known = fleet_says(own, address_of(connect, registrar.contacts), must=connect is not None)
    if known is not None:
        registrar.learn(known.signed, known.contacts)
    what = _one_of(registrar.roster, name, kind)
    if not registrar.roster.revoked(what.key):
        registrar.revoke(what, now_s())
    told = tell_fleet(own, registrar, connect)
    print(f"revoked the {what.kind} {what.name}{'' if told else ': no fleet was told'}")
    return 1 if not told and address_of(connect, registrar.contacts) else 0


def _revoke_as_admin(own: Path, name: str, kind: str | None, connect: str | None) -> int:
    keys = folder.load(own)
    address = address_of(connect, keys.identity.contacts)
    if not address:
        raise UserError("the authority is not here, so a fleet has to be told: --connect HOST:PORT")
    roster = roster_of(keys, asyncio.run(keys_of(address, own, keys.identity.cluster)))
    what = _one_of(roster, name, kind)
    signed = sign(keys.pair, Revocation(keys.identity.cluster, what.key, now_s()))
    if why := roster.refusal(signed):
        raise UserError(f"{what.name}: {why}")
    told = asyncio.run(tell(address, own, keys.identity.cluster, [signed]))
    if told.refused:
        raise UserError(told.refused[0][1])
    print(f"revoked the {what.kind} {what.name}")
    return 0


# -- changing ------------------------------------------------------------------------------------------------


def rotate_keys(
    own: Path, names: Sequence[str], persons: Sequence[str], expires: str, connect: str | None
) -> int:
    """``elf keys rotate``"""
    registrar = Registrar(own / AUTHORITY)
    owners = [*owners_of("agent", names), *owners_of("person", persons)]
    if not owners:
        owners = [Owner("person", folder.load(own).certificate.name, own)]
    found = [_enrolled(registrar.roster, owner) for owner in owners]
    for owner, (at, before) in zip(owners, found, strict=True):
        (at / NEXT_FILE).unlink(missing_ok=True)
        pair = folder.make_pair(at / NEXT_FILE)
        signed = registrar.certify(
            owner.kind, owner.name, pair.public, now_s(), seconds_of(expires), before.roles
        )
        tell_fleet(own, registrar, connect)
        install(at, registrar.identity(signed))
        again = "; restart its agent, if it runs" if owner.kind == "agent" else ""
        print(f"{described(signed)} has a new key in {at}{again}")
    return 0


def _enrolled(roster: Roster, owner: Owner) -> tuple[Path, Certificate]:
    """Where its keys are, and what it has been given. Raises ``UserError``."""
    before = roster.named(owner.kind, owner.name)
    if before is None:
        raise UserError(f"no {owner.kind} {owner.name} is enrolled; elf keys list names those that are")
    if owner.at is None:
        raise UserError(f"{owner.name}: say where its keys are, {owner.name}=DIR")
    if not (owner.at / folder.IDENTITY_FILE).exists():
        raise UserError(f"{owner.name}: {owner.at} has no {folder.IDENTITY_FILE}")
    return owner.at, before


def rotate_fleet(own: Path, overlap: str, connect: str | None) -> int:
    """``elf keys rotate --fleet``"""
    registrar, keys = Registrar(own / AUTHORITY), folder.load(own)
    address = address_of(connect, registrar.contacts)
    if not address:
        raise UserError("a fleet that runs has to be told: --connect HOST:PORT says where an agent is")
    known = asyncio.run(keys_of(address, own, registrar.cluster))
    registrar.learn(known.signed, known.contacts)
    signed = registrar.rotation(now_s(), seconds_of(overlap, "--overlap"))
    told = asyncio.run(tell(address, own, registrar.cluster, (*registrar.roster.signed, signed)))
    if refused := dict(told.refused).get(signed):
        raise UserError(f"the fleet has not taken a new key: {refused}")
    registrar.learn((signed, *told.known.signed), told.known.contacts)
    if (identity := keys.renewed(registrar.roster.signed)) is not None:
        folder.write_json(own / folder.IDENTITY_FILE, identity)
    what = signed.opened()
    if isinstance(what, Rotation):
        print(f"from {moment(what.starts)} on all agents listen with a new key ({len(what.sealed)} hosts)")
    print(
        "who asks the fleet before then learns it; elf keys enrol gives it to others; make join tokens anew"
    )
    return 0


# -- looking -------------------------------------------------------------------------------------------------


def show_keys(own: Path, connect: str | None, output: Output) -> int:
    """``elf keys list``"""
    use_utf8()
    keys = folder.load(own)
    roster = keys.roster()
    if (own / AUTHORITY / folder.AUTHORITY_KEY_FILE).exists():
        registrar = Registrar(own / AUTHORITY)
        roster, contacts = registrar.roster, registrar.contacts
    else:
        contacts = keys.identity.contacts
    known = fleet_says(own, address_of(connect, contacts), must=connect is not None)
    if known is not None:
        roster = roster_of(keys, known)
    printer(output.value).table(_listed(roster, now_s()))
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


def _one_of(roster: Roster, name: str, kind: str | None) -> Certificate:
    """Whose key holds, or else was revoked: a fleet may not have been there to be told."""
    found = [one for one in roster if one.name == name and kind in (None, one.kind)]
    if len(found) > 1:
        raise UserError(f"several are called {name}: --kind {' or '.join(one.kind for one in found)}")
    ever = (one for signed in roster.signed if isinstance(one := signed.opened(), Certificate))
    ended = [one for one in ever if one.name == name and kind in (None, one.kind) and roster.revoked(one.key)]
    if not (found := found or ended[-1:]):
        raise UserError(f"nobody called {name} has a key; elf keys list names those who have")
    return found[0]
