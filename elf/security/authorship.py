"""What follows from a person's signature on a statement (``elf.security.authored``).

The agent that a statement comes to takes it once, before it expires, and only over a connection of the key
that signed it. What becomes of it (a job, a version, a job in Python) keeps the signature, so that every
agent can tell that a person who may has wanted it, whoever brought it: before it computes a flow, calls a
function or starts a job. That question is answered by the log alone, never by a clock, so all agents give the
same answer.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable
from typing import Final

from elf.errors import UserError
from elf.security.authored import STATEMENT_SECONDS, Authored, Authorship, digest, signable
from elf.security.keys import KeyPair, verifies
from elf.security.roles import Role
from elf.security.roster import Roster

NONCES_MAX: Final = 65_536
SKEW_SECONDS: Final = 60
"""Clocks of clients may be ahead by so much."""


def author(
    pair: KeyPair, cluster: str, text: str, digests: tuple[tuple[str, bytes], ...], now: float
) -> Authored:
    """Sign a statement, for a minute from now (seconds since the epoch) on."""
    expires, nonce = int(now) + STATEMENT_SECONDS, os.urandom(16)
    signature = pair.sign(signable(cluster, text, digests, expires, nonce))
    return Authored(pair.public, expires, nonce, signature)


def is_signed(cluster: str, authorship: Authorship) -> bool:
    """Whether the signature is that of its key, for this cluster."""
    said = authorship.authored
    data = signable(cluster, authorship.text, authorship.digests, said.expires, said.nonce)
    return verifies(said.key, data, said.signature)


class Once:
    """The statements that an agent has taken: each once."""

    def __init__(self) -> None:
        self._taken: dict[bytes, int] = {}

    def take(self, cluster: str, authorship: Authorship, key: bytes, now: float) -> None:
        """Take a statement over a connection of ``key``. Raises ``UserError``."""
        said = authorship.authored
        if said.key != key:
            raise UserError("this statement was signed with another key than that of the connection")
        if not is_signed(cluster, authorship):
            raise UserError("the signature of this statement is wrong")
        if said.expires <= now:
            raise UserError("this statement has expired: are the clocks of both machines right?")
        if said.expires > now + STATEMENT_SECONDS + SKEW_SECONDS:
            raise UserError("this statement is from the future: is the clock of this machine right?")
        if said.nonce in self._taken:
            raise UserError("this statement was said before: sign it anew")
        if len(self._taken) >= NONCES_MAX:
            self._taken = {nonce: until for nonce, until in self._taken.items() if until > now}
        if len(self._taken) >= NONCES_MAX:
            raise UserError(f"this agent takes no more than {NONCES_MAX} signed statements a minute")
        self._taken[said.nonce] = said.expires


def refusal(
    roster: Roster, authorship: Authorship | None, role: Role, creator: str, texts: Iterable[str] = ()
) -> str:
    """Why what came of a statement must not run; empty: it may. ``creator``: whose it is said to be;
    ``texts``: the functions in it, which need the role ``code``."""
    if authorship is None:
        return "nobody has signed it"
    if not is_signed(roster.cluster, authorship):
        return "its signature is wrong"
    by = roster.of(authorship.authored.key)
    if by is None or by.kind != "person":
        return "its signature is of nobody who is enrolled"
    signed: Collection[bytes] = {one for _, one in authorship.digests}
    needed: tuple[Role, ...] = (role,)
    for text in texts:
        if digest(text) not in signed:
            return "it has a function that its author has not signed"
        needed = (role, "code")
    for one in needed:
        if not by.may(one):
            return f"its author, {by.name}, has not the role {one}"
    if by.name != creator and not by.may("admin"):
        return f"it is said to be {creator}'s, and {by.name} has signed it"
    return ""
