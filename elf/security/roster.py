"""Whose keys hold in a cluster: a state machine over signed certificates and revocations, in the order of
the catalog log.

Rules: what is taken depends on the roster so far and on the bytes of the entry alone, never on a clock, so
all agents have the same roster after the same entries. Expiry is looked at when a key is used. Only the
authority, or a token that it signed, enrols; the authority, or an admin whose certificate holds then,
revokes; the authority alone gives the fleet another key for its listening sockets, and none twice. The newest
certificate of a kind and name replaces an older one, with its key; an older one never comes after it. A
revoked key never comes back.

Keys are compared by their CURVE key, since that is what a connection shows: a public key and its negative
have the same one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from elf.errors import UserError
from elf.security.certificates import Certificate, Kind, Revocation, Rotation, ServerKeys, Signed
from elf.security.keys import curve_public

TOKEN_SECONDS_MAX: Final = 366 * 86_400
"""How long what a token signs holds at most."""


@dataclass(frozen=True)
class Trust:
    """Whom the agents of a cluster believe: its authority's public key."""

    cluster: str
    authority: bytes


class Roster:
    """The certificates that hold. Made of what was signed so far."""

    def __init__(self, cluster: str, authority: bytes, signed: Iterable[Signed] = ()) -> None:
        self.cluster = cluster
        self.authority = authority
        self._taken: dict[Signed, None] = {}
        self._by_key: dict[bytes, Certificate] = {}
        self._ever: dict[bytes, Certificate] = {}
        self._ever_curve: dict[bytes, Certificate] = {}
        self._by_curve: dict[bytes, Certificate] = {}
        self._by_name: dict[tuple[Kind, str], Certificate] = {}
        self._issued: dict[tuple[Kind, str], int] = {}
        """Of the newest certificate that a name has had."""
        self._revoked: set[bytes] = set()
        """CURVE keys; and what is no key, as it was named."""
        self._used: dict[bytes, int] = {}
        """By token, how many hosts it has enrolled."""
        self.rotations: list[Rotation] = []
        """Of the key of all listening sockets; the last one counts."""
        for one in signed:
            self.take(one)

    def __iter__(self) -> Iterator[Certificate]:
        return iter(self._by_key.values())

    @property
    def signed(self) -> tuple[Signed, ...]:
        """All that was taken, in its order: another roster of them is equal to this one."""
        return tuple(self._taken)

    @property
    def server_keys(self) -> ServerKeys | None:
        """With which keys agents listen; None: with the first one, which no roster tells."""
        if not self.rotations:
            return None
        last = self.rotations[-1]
        return ServerKeys(last.before, last.key, last.starts)

    def has(self, signed: Signed) -> bool:
        """Whether it was taken."""
        return signed in self._taken

    def of(self, key: bytes) -> Certificate | None:
        """The certificate of a public key."""
        return self._by_key.get(key)

    def ever(self, key: bytes) -> Certificate | None:
        """The last certificate that a public key has had, which may be replaced or revoked."""
        return self._ever.get(key)

    def ever_connected(self, curve_key: bytes) -> Certificate | None:
        """The same, by its CURVE key."""
        return self._ever_curve.get(curve_key)

    def connected(self, curve_key: bytes, now: float) -> Certificate | None:
        """Whose connection it is, by its CURVE key; None: nobody's, or of one whose certificate has
        expired."""
        found = self._by_curve.get(curve_key)
        return found if found is not None and found.valid(now) else None

    def named(self, kind: Kind, name: str) -> Certificate | None:
        """The certificate that a host, person or token of that name has."""
        return self._by_name.get((kind, name))

    def revoked(self, key: bytes) -> bool:
        """Whether a key was revoked."""
        return _curve(key) in self._revoked

    def refusal(self, signed: Signed) -> str:
        """Why ``take`` would not take it; empty: it would."""
        try:
            what = signed.opened()
        except UserError as error:
            return str(error)
        if what.cluster != self.cluster:
            return f"it is for cluster {what.cluster!r}, not {self.cluster!r}"
        if isinstance(what, Revocation):
            return self._refused_revocation(signed.signer, what)
        if isinstance(what, Rotation):
            return self._refused_rotation(signed, what)
        return self._refused_certificate(signed, what)

    def take(self, signed: Signed) -> str:
        """Take what was signed, if it holds; why not, else empty. What is known already changes nothing."""
        if signed in self._taken:
            return ""
        if why := self.refusal(signed):
            return why
        what = signed.opened()
        self._taken[signed] = None
        if isinstance(what, Revocation):
            curve = _curve(what.key)
            self._revoked.add(curve)
            owner = self._by_curve.get(curve)
            if owner is not None:
                self._forget(owner)
            return ""
        if isinstance(what, Rotation):
            self.rotations.append(what)
            return ""
        if signed.signer != self.authority:
            self._used[signed.signer] = self._used.get(signed.signer, 0) + 1
        before = self._by_name.get((what.kind, what.name))
        if before is not None:
            self._forget(before)
        self._by_key[what.key] = self._ever[what.key] = self._by_name[what.kind, what.name] = what
        self._by_curve[curve_public(what.key)] = self._ever_curve[curve_public(what.key)] = what
        self._issued[what.kind, what.name] = what.issued
        return ""

    def _forget(self, gone: Certificate) -> None:
        del self._by_key[gone.key], self._by_name[gone.kind, gone.name], self._by_curve[_curve(gone.key)]

    def _refused_revocation(self, signer: bytes, what: Revocation) -> str:
        by = self._by_key.get(signer)
        admin = by is not None and by.may("admin") and by.issued <= what.issued < by.expires
        return "" if admin or signer == self.authority else "its signer may not revoke keys"

    def _refused_rotation(self, signed: Signed, what: Rotation) -> str:
        if signed.signer != self.authority:
            return "the authority alone changes the fleet's key"
        if what.starts < what.issued:
            return "it begins before it was signed"
        if self.rotations and what.issued <= self.rotations[-1].issued:
            return "there is a newer key of the fleet"
        ever = {what.before, *(key for one in self.rotations for key in (one.before, one.key))}
        return "the fleet has had that key before" if what.key in ever else ""

    def _refused_certificate(self, signed: Signed, what: Certificate) -> str:
        try:
            curve = curve_public(what.key)
        except ValueError as error:
            return str(error)
        if curve in self._revoked:
            return "that key was revoked"
        owner = self._by_curve.get(curve)
        if owner is not None and (owner.kind, owner.name) != (what.kind, what.name):
            return f"that key is {owner.name}'s"
        if self._issued.get((what.kind, what.name), 0) > what.issued:
            return f"{what.name} has had a newer certificate"
        if signed.signer == self.authority:
            return ""
        return self._refused_enrolment(signed.signer, what)

    def _refused_enrolment(self, signer: bytes, what: Certificate) -> str:
        """Of what a token signed."""
        token = self._by_key.get(signer)
        if token is None or token.kind != "token":
            return "its signer may not enrol anybody"
        if what.kind != "agent" or what.roles or what.uses:
            return "a token enrols agents only"
        if not token.issued <= what.issued < token.expires:
            return f"the token {token.name} does not hold at that time"
        if what.expires - what.issued > TOKEN_SECONDS_MAX:
            return f"a token enrols for {TOKEN_SECONDS_MAX // 86_400} days at most"
        if (what.kind, what.name) in self._issued:
            return f"there is or was a {what.name} already, and a token does not replace it"
        if self._used.get(signer, 0) >= token.uses:
            return f"the token {token.name} is used up"
        return ""


def _curve(key: bytes) -> bytes:
    """The CURVE key of a public key; of what is none, itself."""
    try:
        return curve_public(key)
    except ValueError:
        return key
