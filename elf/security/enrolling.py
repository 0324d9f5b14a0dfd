"""What travels when keys are enrolled: what was signed, as a text; a token; and what a new host is told."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec
from msgspec import Meta

from elf.errors import UserError
from elf.security.certificates import SIGNED_BYTES_MAX, Cluster, Key, Rotation, ServerKeys, Signed
from elf.security.keys import shown, unshown

TOKEN_PREFIX: Final = "elf-join-1."
"""What a join token begins with, so that it is known for one wherever it turns up."""
SKEW_S: Final = 300
"""What a token or an admin signs is brought at once; clocks may be off by so much."""
SPREAD_SECS: Final = 5
"""Within so long all agents know what is signed."""
_CHARS_MAX: Final = 2 * SIGNED_BYTES_MAX + 512
_TOKEN_CHARS_MAX: Final = 8_192

Seed = Annotated[bytes, Meta(min_length=32, max_length=32)]
Contacts = Annotated[tuple[Annotated[str, Meta(max_length=262)], ...], Meta(max_length=64)]


class Token(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """What lets a new host in: whom to ask, whose agents those must be, and the token's own secret key.
    Whoever has it can enrol a host."""

    cluster: Cluster
    authority: Key
    fleet: ServerKeys
    seed: Seed
    contacts: Contacts


class Admitted(msgspec.Struct, frozen=True):
    """What a fleet tells the owner of an agent's new certificate: the secret keys of all agents' listening
    sockets, sealed for that agent's key, all that was signed, and where agents are."""

    sealed: bytes
    roster: tuple[Signed, ...]
    contacts: tuple[str, ...]


def stale(signed: Signed, authority: bytes, now_ms: int) -> str:
    """Why what was signed is not let in now. By another than the authority: it was signed long ago, or for
    later, and its signer's certificate may have expired meanwhile. A rotation: it begins before all agents
    can know it. Empty: it is. Raises ``UserError``."""
    what = signed.opened()
    if isinstance(what, Rotation) and what.starts - now_ms // 1_000 < SPREAD_SECS:
        return "the new key begins too soon for all agents to know it: say it again"
    off = abs(what.issued - now_ms // 1_000)
    if signed.signer == authority or off <= SKEW_S:
        return ""
    return f"it was signed {off} s before or after now: is the clock of that host right?"


def packed(signed: Signed) -> str:
    """As the argument of a call."""
    return shown(msgspec.msgpack.encode(signed))


def unpacked(text: str) -> Signed:
    """The opposite. Raises ``UserError``."""
    try:
        return msgspec.msgpack.decode(_bytes(text, _CHARS_MAX), type=Signed)
    except ValueError:
        raise UserError("that is nothing that was signed") from None


def shown_token(token: Token) -> str:
    """A token as one line, which is a secret."""
    return TOKEN_PREFIX + shown(msgspec.msgpack.encode(token))


def read_token(text: str) -> Token:
    """The opposite. Raises ``UserError``, which does not repeat it."""
    text = text.strip()
    try:
        if not text.startswith(TOKEN_PREFIX):
            raise ValueError
        return msgspec.msgpack.decode(_bytes(text[len(TOKEN_PREFIX) :], _TOKEN_CHARS_MAX), type=Token)
    except ValueError:
        raise UserError("that is no join token, or not all of it: elf keys token prints one") from None


def _bytes(text: str, chars_max: int) -> bytes:
    """Raises ``ValueError``."""
    if len(text) > chars_max:
        raise ValueError
    return unshown(text)
