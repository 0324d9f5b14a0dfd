"""What a person shows over HTTP in place of a connection's key: a text that says whose it is and until when,
signed with that key. Whoever has the text may read what its owner may, until then or until the key is
revoked.
"""

from __future__ import annotations

import hashlib
from typing import Final

import msgspec

from elf.errors import UserError
from elf.security.certificates import Certificate, Cluster, Key, Seconds
from elf.security.keys import SEED_BYTES, KeyPair, shown, unshown, verifies
from elf.security.roster import Roster

PREFIX: Final = "elf_"
LASTS_SECS: Final = 3_600
LASTS_SECS_MAX: Final = 31 * 86_400
CHARS_MAX: Final = 512
LOOPBACK: Final = "loopback"
"""In place of a cluster's name."""
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
    found = roster.of(_claim(text, roster.cluster, now).key)
    if found is None or found.kind != "person" or not found.valid(now):
        raise UserError("this token's key is nobody's, has expired or was revoked")
    return found


def loopback_bearer(secret: bytes, now: int, lasts_secs: int = LASTS_SECS) -> str:
    """The text of who can read the loopback key, whose secret CURVE key it is: with it anybody may do what
    that key lets do, at agents on this machine. Raises ``UserError``."""
    return bearer(_loopback_pair(secret), LOOPBACK, now, lasts_secs)


def check_loopback(text: str, secret: bytes, now: float) -> None:
    """Raises ``UserError`` where a text was not made with the loopback key, or holds no more."""
    if _claim(text, LOOPBACK, now).key != _loopback_pair(secret).public:
        raise UserError("this token was made with another loopback key")


def _loopback_pair(secret: bytes) -> KeyPair:
    """A pair that signs, out of one that encrypts."""
    return KeyPair(hashlib.blake2b(secret, digest_size=SEED_BYTES, person=b"elf bearer").digest())


def _claim(text: str, cluster: str, now: float) -> _Claim:
    """What a text says, which its own key has signed."""
    if not text.startswith(PREFIX) or len(text) > CHARS_MAX:
        raise UserError("this is no token for HTTP")
    try:
        data = unshown(text[len(PREFIX) :])
        claim: _Claim = _read(data[_SIGNATURE_BYTES:])
    except (ValueError, RecursionError):
        raise UserError("this is no token for HTTP") from None
    if not verifies(claim.key, data[_SIGNATURE_BYTES:], data[:_SIGNATURE_BYTES]):
        raise UserError("the signature of this token is wrong")
    if claim.cluster != cluster:
        raise UserError("this token is for another cluster")
    if not claim.issued - 60 <= now < claim.expires or claim.expires - claim.issued > LASTS_SECS_MAX:
        raise UserError("this token has expired")
    return claim
