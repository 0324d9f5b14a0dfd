"""What a person shows over HTTP in place of a connection's key: a text that says whose it is and until when,
signed with that key. Whoever has the text may read what its owner may, until then or until the key is
revoked.
"""

from __future__ import annotations

from typing import Final

import msgspec

from elf.errors import UserError
from elf.security.certificates import Certificate, Cluster, Key, Seconds
from elf.security.keys import KeyPair, shown, unshown, verifies
from elf.security.roster import Roster

PREFIX: Final = "elf_"
LASTS_SECS: Final = 3_600
LASTS_SECS_MAX: Final = 31 * 86_400
CHARS_MAX: Final = 512
_SIGNATURE_BYTES: Final = 64


class _Claim(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag="elf bearer 1"):
    cluster: Cluster
    key: Key
    issued: Seconds
    expires: Seconds


_read: Final = msgspec.msgpack.Decoder(_Claim).decode


def bearer(pair: KeyPair, cluster: str, now: int, lasts_secs: int = LASTS_SECS) -> str:
    """The text. Raises ``UserError``."""
    if not 0 < lasts_secs <= LASTS_SECS_MAX:
        raise UserError(f"a token for HTTP lasts at most {LASTS_SECS_MAX // 86_400} days")
    body = msgspec.msgpack.encode(_Claim(cluster, pair.public, now, now + lasts_secs))
    return PREFIX + shown(pair.sign(body) + body)


def owner(text: str, roster: Roster, now: float) -> Certificate:
    """Whose text it is. Raises ``UserError``, whose text is for whoever shows it."""
    if not text.startswith(PREFIX) or len(text) > CHARS_MAX:
        raise UserError("this is no token for HTTP")
    try:
        data = unshown(text[len(PREFIX) :])
        claim: _Claim = _read(data[_SIGNATURE_BYTES:])
    except (ValueError, RecursionError):
        raise UserError("this is no token for HTTP") from None
    if not verifies(claim.key, data[_SIGNATURE_BYTES:], data[:_SIGNATURE_BYTES]):
        raise UserError("the signature of this token is wrong")
    if claim.cluster != roster.cluster:
        raise UserError("this token is for another cluster")
    if not claim.issued - 60 <= now < claim.expires or claim.expires - claim.issued > LASTS_SECS_MAX:
        raise UserError("this token has expired")
    found = roster.of(claim.key)
    if found is None or found.kind != "person" or not found.valid(now):
        raise UserError("this token's key is nobody's, has expired or was revoked")
    return found
