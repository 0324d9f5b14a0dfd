"""Keys that are always the same, and what they sign."""

from __future__ import annotations

from elf.security.certificates import Certificate, Kind, Revocation, Role, Signed, sign
from elf.security.keys import KeyPair

SHOP = "shop"
AUTHORITY = KeyPair(b"authority".ljust(32))
PAIRS = [KeyPair(bytes([n]) * 32) for n in range(1, 7)]


def certificate(
    name: str,
    pair: KeyPair | bytes,
    kind: Kind = "agent",
    *,
    by: KeyPair = AUTHORITY,
    issued: int = 100,
    expires: int = 1_000,
    roles: tuple[Role, ...] = (),
    uses: int = 0,
    cluster: str = SHOP,
) -> Signed:
    key = pair if isinstance(pair, bytes) else pair.public
    return sign(by, Certificate(cluster, kind, name, key, roles, issued, expires, uses))


def revocation(pair: KeyPair | bytes, by: KeyPair = AUTHORITY, cluster: str = SHOP) -> Signed:
    key = pair if isinstance(pair, bytes) else pair.public
    return sign(by, Revocation(cluster, key, 200))


TOKEN = certificate("scale", PAIRS[5], "token", uses=2, expires=500)
