"""What an authority signs: that a key is a host's or a person's, what it may do, and until when.

A ``Certificate``, a ``Revocation`` and a ``Rotation`` travel and are kept as ``Signed``: the bytes that were
signed and who signed them. They are public; only keys are secret.

A *token* is a certificate too: its key may sign the certificates of so many new hosts, for autoscaling.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from elf.errors import UserError
from elf.security.keys import KEY_BYTES, KeyPair, verifies
from elf.security.roles import ROLES, Kind, Role, gives

__all__ = ["ROLES", "Certificate", "Kind", "Revocation", "Role", "Rotation", "ServerKeys", "Signed", "sign"]

Name = Annotated[str, Meta(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9][A-Za-z0-9._@-]*$")]
"""Of a host, a person or a token."""
Cluster = Annotated[str, Meta(min_length=1, max_length=64)]
Key = Annotated[bytes, Meta(min_length=KEY_BYTES, max_length=KEY_BYTES)]
Seconds = Annotated[int, Meta(ge=0, le=1 << 40)]
"""Since the epoch."""
_CERTIFICATE_TAG: Final = "elf certificate 1"
_REVOCATION_TAG: Final = "elf revocation 1"
_ROTATION_TAG: Final = "elf rotation 1"
HOSTS_MAX: Final = 1_000
"""That a new key of the fleet is sealed for."""
SIGNED_BYTES_MAX: Final = 128 << 10
"""A rotation for so many hosts; nothing else is longer than 2 KiB, by its fields."""
Sealed = Annotated[bytes, Meta(min_length=80, max_length=80)]
"""A secret key of 32 bytes, sealed for a host's key."""


class Certificate(
    msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag=_CERTIFICATE_TAG
):
    """``name`` has ``key`` in this cluster. ``uses``: of a token, how many hosts it may enrol."""

    cluster: Cluster
    kind: Kind
    name: Name
    key: Key
    roles: Annotated[tuple[Role, ...], Meta(max_length=len(ROLES))]
    issued: Seconds
    expires: Seconds
    uses: Annotated[int, Meta(ge=0, le=100_000)] = 0

    def may(self, role: Role) -> bool:
        """Whether a person's certificate gives a role."""
        return gives(self.kind, self.roles, role)

    def valid(self, now: float) -> bool:
        """Whether it has not expired; ``now`` in seconds since the epoch."""
        return now < self.expires


class Revocation(
    msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag=_REVOCATION_TAG
):
    """From now on a key is nobody's in this cluster, whatever certificates say."""

    cluster: Cluster
    key: Key
    issued: Seconds


class Rotation(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag=_ROTATION_TAG):
    """From ``starts`` on all agents listen with ``key``, until then with ``before``. ``sealed``: the secret
    key, for each host by its public key; nobody else can read it."""

    cluster: Cluster
    before: Key
    key: Key
    issued: Seconds
    starts: Seconds
    sealed: Annotated[tuple[tuple[Key, Sealed], ...], Meta(max_length=HOSTS_MAX)]

    def sealed_for(self, key: bytes) -> bytes | None:
        """The secret key, for the owner of a public key; None: that host was not given it."""
        return dict(self.sealed).get(key)


class ServerKeys(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The public key of all agents' listening sockets; and the ``next`` one, which holds from ``starts`` on
    (empty: none is known)."""

    key: Key
    next: Annotated[bytes, Meta(max_length=KEY_BYTES)] = b""
    starts: Seconds = 0

    @property
    def newest(self) -> bytes:
        return self.next or self.key

    def at(self, now: float) -> bytes:
        """The key that holds; ``now`` in seconds since the epoch."""
        return self.tried(now)[0]

    def tried(self, now: float) -> tuple[bytes, ...]:
        """The keys to expect of an agent, one after the other: clocks differ, so one may listen with the next
        key already. The old one is nobody's once our own clock says so: it may have been stolen."""
        if not self.next:
            return (self.key,)
        return (self.key, self.next) if now < self.starts else (self.next,)


Statement = Certificate | Revocation | Rotation


class Signed(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """What an authority says, as bytes, the public key of who signed it, and the signature."""

    body: Annotated[bytes, Meta(max_length=SIGNED_BYTES_MAX)]
    signer: Key
    signature: Annotated[bytes, Meta(min_length=64, max_length=64)]

    def opened(self) -> Statement:
        """What was signed. Raises ``UserError`` where the signature or the contents are wrong."""
        return _opened(self)


@lru_cache(4_096)  # several rosters, and several agents of a process, look at each
def _opened(signed: Signed) -> Statement:
    if not verifies(signed.signer, signed.body, signed.signature):
        raise UserError("the signature is wrong")
    try:
        found: Statement = _read(signed.body)
        return found
    except (ValueError, RecursionError) as error:
        raise UserError(f"what was signed is no certificate: {error}") from None


_read: Final = msgspec.msgpack.Decoder(Certificate | Revocation | Rotation).decode
_write: Final = msgspec.msgpack.Encoder().encode


def sign(pair: KeyPair, what: Statement) -> Signed:
    """Sign it. Raises ``UserError`` where a field is not as its type says."""
    body = _write(what)
    try:
        _read(body)
    except msgspec.ValidationError as error:
        raise UserError(f"that cannot be signed: {error}") from None
    return Signed(body, pair.public, pair.sign(body))
