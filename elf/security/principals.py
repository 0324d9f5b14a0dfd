"""Whom an agent talks to, as the keys of connections tell, and what a transport needs to know of keys.

It imports no cryptography: a client without keys loads it too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Literal

from elf.security.roles import OPEN_CALLS, ROLES, Kind, Role, gives, role_of_call


@dataclass(frozen=True)
class CurvePair:
    """An X25519 key pair, 32 bytes each, for the two ends of CURVE."""

    public: bytes
    secret: bytes = field(repr=False)


@dataclass(frozen=True)
class Principal:
    """Whoever is at the other end of a connection. ``local``: any process that can read the loopback key, as
    agent and as client, with all roles and under any name. ``key``: the public key of its certificate."""

    kind: Kind | Literal["local"]
    name: str
    roles: tuple[Role, ...] = ()
    key: bytes = b""

    def may(self, role: Role) -> bool:
        return gives(self.kind, self.roles, role)

    def lacks(self, role: Role, what: str) -> str:
        """Why it may not do what needs a role; empty: it may."""
        if self.may(role):
            return ""
        if self.kind != "person":
            return f"{what}: {self.name} is the key of {_KINDS[self.kind]}, which cannot do that"
        has = ", ".join(self.roles) or "none"
        return f"{what} needs the role {role}, which {self.name} does not have (roles: {has})"

    def refused_call(self, verb: str) -> str:
        """Why it may not make this call; empty: it may."""
        if self.kind != "local" and verb in OPEN_CALLS[self.kind]:
            return ""
        return self.lacks(role_of_call(verb), verb)


_KINDS: Final = {"agent": "an agent", "token": "a token", "local": "this machine"}
LOCAL: Final = Principal("local", "", ROLES)

Admit = Callable[[bytes], Principal | None]


@dataclass(frozen=True)
class Security:
    """What a transport needs for CURVE.

    ``own``: the pair that this party connects with. ``server``: the public key of all agents' listening
    sockets. ``server_secret``: its secret one, at an agent. ``admit``: who has a CURVE public key, now; None:
    nobody who may connect. It is asked at each handshake and for each message.
    """

    own: CurvePair
    server: bytes
    server_secret: bytes | None = field(default=None, repr=False)
    admit: Admit = lambda key: None
