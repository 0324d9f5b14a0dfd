"""What an authority signs: that a key is a host's or a person's, what it may do, and until when.

A ``Certificate`` and a ``Revocation`` travel and are kept as ``Signed``: the bytes that were signed and who
signed them. They are public; only keys are secret.

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

__all__ = ["ROLES", "Certificate", "Kind", "Revocation", "Role", "Signed", "sign"]

Name = Annotated[str, Meta(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9][A-Za-z0-9._@-]*$")]
"""Of a host, a person or a token."""
Cluster = Annotated[str, Meta(min_length=1, max_length=64)]
Key = Annotated[bytes, Meta(min_length=KEY_BYTES, max_length=KEY_BYTES)]
Seconds = Annotated[int, Meta(ge=0, le=1 << 40)]
"""Since the epoch."""
_CERTIFICATE_TAG: Final = "elf certificate 1"
_REVOCATION_TAG: Final = "elf revocation 1"
SIGNED_BYTES_MAX: Final = 2_048


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


class Signed(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A certificate or revocation as bytes, the public key of who signed it, and the signature."""

    body: Annotated[bytes, Meta(max_length=SIGNED_BYTES_MAX)]
    signer: Key
    signature: Annotated[bytes, Meta(min_length=64, max_length=64)]

    def opened(self) -> Certificate | Revocation:
        """What was signed. Raises ``UserError`` where the signature or the contents are wrong."""
        return _opened(self)


@lru_cache(4_096)  # several rosters, and several agents of a process, look at each
def _opened(signed: Signed) -> Certificate | Revocation:
    if not verifies(signed.signer, signed.body, signed.signature):
        raise UserError("the signature is wrong")
    try:
        found: Certificate | Revocation = _read(signed.body)
        return found
    except (ValueError, RecursionError) as error:
        raise UserError(f"what was signed is no certificate: {error}") from None


_read: Final = msgspec.msgpack.Decoder(Certificate | Revocation).decode
_write: Final = msgspec.msgpack.Encoder().encode


def sign(pair: KeyPair, what: Certificate | Revocation) -> Signed:
    """Sign it. Raises ``UserError`` where a field is not as its type says."""
    body = _write(what)
    try:
        _read(body)
    except msgspec.ValidationError as error:
        raise UserError(f"that cannot be signed: {error}") from None
    return Signed(body, pair.public, pair.sign(body))
