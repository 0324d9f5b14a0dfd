"""What a client does about keys: it tells a fleet what was signed, hears what else was, and enrols a new host
with a token."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from elf.client.asking import ANSWER_SECS
from elf.client.client import connect
from elf.errors import ElfError, UserError
from elf.security import folder
from elf.security.certificates import Certificate, Signed, sign
from elf.security.enrolling import Admitted, Token, packed, read_token
from elf.security.keys import KeyPair
from elf.security.principals import Security
from elf.security.roster import Roster

HOST_SECONDS: Final = 365 * 86_400
"""How long a host is enrolled that comes with a token."""


class Known(msgspec.Struct, frozen=True):
    """What a fleet says was signed, in its order, and where its agents are."""

    signed: tuple[Signed, ...]
    contacts: tuple[str, ...] = ()


@dataclass(frozen=True)
class Told:
    """What telling a fleet has come to. ``refused``: what it did not take, and why."""

    known: Known
    refused: tuple[tuple[Signed, str], ...]


async def keys_of(address: str, keys: Path, cluster: str) -> Known:
    """What the fleet at an address says. Raises ``ElfError``."""
    async with connect(address, keys=keys, cluster=cluster) as client:
        return _known(await client.call("keys"))


async def tell(address: str, keys: Path, cluster: str, signed: Iterable[Signed]) -> Told:
    """Tell the fleet at an address what was signed, as far as it does not know. Raises ``ElfError``."""
    async with connect(address, keys=keys, cluster=cluster) as client:
        known, refused = _known(await client.call("keys")), list[tuple[Signed, str]]()
        there = set(known.signed)
        for one in signed:
            if one not in there:
                try:
                    await client.call("enrol", packed(one))
                except UserError as error:
                    refused.append((one, str(error)))
        if there.issuperset(signed):
            return Told(known, ())
        # one's own key may be among what was replaced or revoked: then what we know is what we said
        try:
            return Told(_known(await client.call("keys", limit_secs=2.0)), tuple(refused))
        except ElfError:
            return Told(Known((), known.contacts), tuple(refused))


def _known(said: dict[str, object]) -> Known:
    try:
        return msgspec.convert(said, Known, strict=False)
    except msgspec.ValidationError as error:
        raise ElfError(f"the agent's answer says nothing about keys: {error}") from None


def fit_name(name: str) -> str:
    """What somebody or something is called, as far as a certificate takes it."""
    fit = "".join(c if c.isascii() and (c.isalnum() or c in "._@-") else "-" for c in name)
    return fit[:64].lstrip("._@-") or "x"


async def join_fleet(text: str, keys: Path, name: str) -> folder.Identity:
    """Enrol this host: its key is made in a folder, signed with the token's, and brought to an agent; what
    that says is written beside it. Raises ``ElfError``."""
    token = read_token(text)
    if (keys / folder.IDENTITY_FILE).exists():
        raise UserError(f"{keys} has an identity already; remove it to enrol this host anew")
    if not token.contacts:
        raise UserError("this token names no agent: elf keys token --connect HOST:PORT makes one that does")
    pair, bearer = folder.make_pair(keys / folder.KEY_FILE), KeyPair(token.seed)
    now = int(time.time())
    signed = sign(bearer, Certificate(token.cluster, "agent", name, pair.public, (), now, now + HOST_SECONDS))
    admitted = await _admitted(token, bearer, signed)
    identity = folder.Identity(
        token.cluster,
        token.authority,
        signed,
        Roster(token.cluster, token.authority, admitted.roster).server_keys or token.fleet,
        admitted.sealed,
        admitted.roster,
        admitted.contacts or token.contacts,
    )
    _ = folder.Keys(pair, identity).fleet  # it can be unsealed
    folder.write_json(keys / folder.IDENTITY_FILE, identity)
    return identity


async def _admitted(token: Token, bearer: KeyPair, signed: Signed) -> Admitted:
    failed: list[ElfError] = []
    for server in token.fleet.tried(time.time()):
        security = Security(bearer.curve, server)
        try:
            async with connect(",".join(token.contacts), keys=security, cluster=token.cluster) as client:
                said = await client.call("enrol", packed(signed), limit_secs=ANSWER_SECS)
            break
        except UserError:
            raise
        except ElfError as error:
            failed.append(error)
    else:
        raise failed[-1]
    try:
        return msgspec.convert(said, Admitted, strict=False)
    except msgspec.ValidationError as error:
        raise ElfError(f"the agent's answer is not what a new host is told: {error}") from None
