"""What follows from a person's signature on a statement (``elf.security.authored``).

The agent that a statement comes to takes it once, before it expires, and only over a connection of the key
that signed it (``agents.answering.once``). What becomes of it (a job, a version, a job in Python) keeps the
signature (``elf.job.catalog.authors``), so that every agent can tell that a person who may has wanted it,
whoever brought it: before it computes a flow, calls a function or starts a job. That question is answered by
the log alone, never by a clock, so all agents give the same answer.
"""

from __future__ import annotations

from collections.abc import Iterable

from nacl.utils import random

from elf.security.authored import STATEMENT_SECONDS, Authored, Authorship, signable
from elf.security.keys import KeyPair, verifies
from elf.security.roles import Role
from elf.security.roster import Roster


def author(
    pair: KeyPair, cluster: str, text: str, digests: tuple[tuple[str, bytes], ...], now: float
) -> Authored:
    """Sign a statement, for a minute from now (seconds since the epoch) on."""
    expires, nonce = int(now) + STATEMENT_SECONDS, random(16)
    signature = pair.sign(signable(cluster, text, digests, expires, nonce))
    return Authored(pair.public, expires, nonce, signature)


def is_signed(cluster: str, authorship: Authorship) -> bool:
    """Whether the signature is that of its key, for this cluster."""
    said = authorship.authored
    data = signable(cluster, authorship.text, authorship.digests, said.expires, said.nonce)
    return verifies(said.key, data, said.signature)


def refusal(
    roster: Roster, authorship: Authorship, creator: str, roles: Iterable[Role], *, known: bool = False
) -> str:
    """Why a signed statement gives nobody the right to what is said to have come of it; empty: it does.

    Args:
        creator: whose the job is said to be: its author's, unless that one is an admin.
        roles: what its author needs.
        known: the log has had it before: since then its author may have got another key.
    """
    if not is_signed(roster.cluster, authorship):
        return "its signature is wrong"
    key = authorship.authored.key
    if roster.revoked(key):
        return "its author's key was revoked"
    by = roster.ever(key) if known else roster.of(key)
    if by is None or by.kind != "person":
        return "its signature is of nobody who is enrolled"
    lacks = next((role for role in roles if not by.may(role)), None)
    if lacks is not None:
        return f"its author, {by.name}, has not the role {lacks}"
    if by.name != creator and not by.may("admin"):
        return f"it is said to be of {creator}, and {by.name} has signed it"
    return ""
