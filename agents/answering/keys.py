"""Procedures about keys (``agents.answering.asks``): who is enrolled, and what an authority, an admin or a
token has signed.

What is brought speaks for itself: whoever carries it, its signature says who wants it, and the roster of the
catalog log whether that one may (``elf.security.roster``). A new host that comes with a token is told what
makes it an agent: the roster, and the secret keys of all agents' listening sockets, sealed for its own key.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from agents.answering.asks import Procedure, Until
from agents.answering.fleet import LOG_WAITS_MAX
from elf.errors import UserError
from elf.job.catalog.log import CatalogLog
from elf.job.catalog.membership import Membership
from elf.security.certificates import Certificate, ServerKeys, Signed
from elf.security.enrolling import Admitted, stale, unpacked
from elf.security.roster import Trust
from elf.wire.clients import Call, Reply


@dataclass(frozen=True)
class NodeKeys:
    """What a node is given of its keys.

    ``known``: what its identity says was signed; ``fleet``: the public keys of all agents' listening sockets,
    as it says; ``seal`` makes the secret ones readable for a new host's key; ``sign`` signs with the agent's
    own key.
    """

    trust: Trust
    known: tuple[Signed, ...]
    fleet: ServerKeys
    seal: Callable[[bytes], bytes]
    sign: Callable[[bytes], bytes]


class KeyRequests:
    """Of clients of this agent. ``keys``: None where the fleet has none."""

    def __init__(self, log: CatalogLog, membership: Membership, keys: NodeKeys | None) -> None:
        self._log = log
        self._membership = membership
        self._keys = keys

    def enrol(self, call: Call, now_ms: int) -> Procedure:
        """Have the log say what was signed."""
        keys, roster = self._keys, self._log.roster
        if keys is None or roster is None:
            raise UserError("this fleet has no keys; elf keys init makes them")
        signed = unpacked(call.argument)
        if not roster.has(signed):
            if why := roster.refusal(signed) or stale(signed, keys.trust.authority, now_ms):
                raise UserError(f"refused: {why}")
            self._membership.sign(signed)
            for _ in range(LOG_WAITS_MAX):
                yield [Until(lambda: roster.has(signed))]
                if roster.has(signed):
                    break
            else:
                raise UserError(
                    "the voters of the catalog log have not answered yet, or have refused it; "
                    "elf keys list tells"
                )
        what = signed.opened()
        if not isinstance(what, Certificate) or what.kind != "agent":
            return Reply(request=call.request, text="the fleet knows it")
        told = Admitted(keys.seal(what.key), roster.signed, self._contacts(now_ms))
        return Reply(request=call.request, body=msgspec.json.encode(told))

    def _contacts(self, now_ms: int) -> tuple[str, ...]:
        """Where agents are whose keys hold."""
        return tuple(sorted(at for at in self._log.addresses() if self._log.is_enrolled(at, now_ms)))

    def newest(self) -> str:
        """The newest key of all agents' listening sockets: who knows another asks for what was signed."""
        keys, roster = self._keys, self._log.roster
        if keys is None or roster is None:
            return ""
        return (roster.server_keys or keys.fleet).newest.hex()

    def list(self, call: Call, now_ms: int) -> Reply:
        """All that was signed, and where agents are."""
        roster = self._log.roster
        if roster is None:
            raise UserError("this fleet has no keys; elf keys init makes them")
        told = {"signed": roster.signed, "contacts": self._contacts(now_ms)}
        return Reply(request=call.request, body=msgspec.json.encode(told))
