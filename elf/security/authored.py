"""A person's signature on what changes something, as values that travel with it.

What is signed is the text of a statement, or a call, with the digests of the files and tables that come with
it, for one cluster, until a moment, once. It imports no cryptography: a client without keys loads it too, and
``elf.security.authorship`` says what follows from a signature.
"""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Iterable
from typing import Annotated, Final

import msgspec
from msgspec import Meta

STATEMENT_SECONDS: Final = 60
"""How long a signed statement may be on its way to an agent."""
SKEW_SECONDS: Final = 60
"""Clocks of who signs and who looks may differ by so much."""
TAKEN_MAX: Final = 65_536
"""Statements that an agent remembers until they expire."""
SUBMIT: Final = "submit "
"""What stands before the name of a job in Python, where a statement's text stands."""
_TAG: Final = "elf statement 1"
_DIGEST_BYTES: Final = 32
_FILES_MAX: Final = 256

Signature = Annotated[bytes, Meta(min_length=64, max_length=64)]
Nonce = Annotated[bytes, Meta(min_length=16, max_length=16)]
Digest = Annotated[bytes, Meta(min_length=_DIGEST_BYTES, max_length=_DIGEST_BYTES)]
Digests = Annotated[
    tuple[tuple[Annotated[str, Meta(max_length=4_096)], Digest], ...], Meta(max_length=_FILES_MAX)
]


class Authored(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Who says so: a public key, until when (seconds since the epoch), a number that is used once, and the
    signature."""

    key: Annotated[bytes, Meta(min_length=32, max_length=32)]
    expires: Annotated[int, Meta(ge=0, le=1 << 40)]
    nonce: Nonce
    signature: Signature


class Authorship(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A signed statement as the log keeps it beside what came of it: ``text``, ``digests`` of what came with
    it, by name, and which of the statements in the text it is."""

    text: Annotated[str, Meta(max_length=1 << 20)]
    digests: Digests
    authored: Authored
    place: Annotated[int, Meta(ge=0, le=1 << 16)] = 0


class Taken:
    """Signed statements that an agent has taken: each once, and while it is fresh."""

    def __init__(self) -> None:
        self._by: dict[tuple[bytes, int], tuple[int, Hashable]] = {}

    def refused(self, said: Authorship, by: Hashable, now: float) -> str:
        """Why it is not taken; empty: it is, from now on. ``by``: the same request may come twice. ``now`` in
        seconds."""
        if why := stale(said.authored, now):
            return why
        name = said.authored.nonce, said.place
        if name in self._by:
            same = self._by[name][1] == by
            return "" if same else "this statement was said before: it has to be signed anew"
        if len(self._by) >= TAKEN_MAX:
            self._by = {n: one for n, one in self._by.items() if one[0] + SKEW_SECONDS > now}
        if len(self._by) >= TAKEN_MAX:
            return f"this agent takes {TAKEN_MAX} signed statements in two minutes, and no more"
        self._by[name] = said.authored.expires, by
        return ""


def stale(said: Authored, now: float) -> str:
    """Why a statement is too old, or too new, by the clock of who looks; empty: it is fresh."""
    if now - SKEW_SECONDS < said.expires <= now + STATEMENT_SECONDS + SKEW_SECONDS:
        return ""
    return "this statement has expired, or is for later: are both machines' clocks right?"


Authorships = Annotated[tuple[Authorship, ...], Meta(max_length=1_024)]
Nonces = Annotated[tuple[Nonce, ...], Meta(max_length=1_024)]


def digest(data: str | bytes) -> bytes:
    """Of a file's text or of a table."""
    return hashlib.sha256(data.encode() if isinstance(data, str) else data).digest()


def digests_of(files: Iterable[tuple[str, str | bytes]]) -> tuple[tuple[str, bytes], ...]:
    """Of all that comes with a statement."""
    return tuple((name, digest(data)) for name, data in files)


def signable(
    cluster: str, text: str, digests: tuple[tuple[str, bytes], ...], expires: int, nonce: bytes
) -> bytes:
    """The bytes that are signed."""
    return msgspec.msgpack.encode((_TAG, cluster, text, digests, expires, nonce))
