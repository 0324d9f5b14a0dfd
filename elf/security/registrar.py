"""The authority of a cluster at work, on the machine that has its files: it signs keys, and knows what it has
signed and what the fleet says was signed elsewhere (``elf.security.folder`` has the files).

Rules: what is signed is on the disk before it is told; who has these files can let anybody in, so no agent
has them, and none needs them to run.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import msgspec

from elf.errors import UserError
from elf.security import folder
from elf.security.certificates import (
    HOSTS_MAX,
    Certificate,
    Kind,
    Revocation,
    Role,
    Rotation,
    ServerKeys,
    Signed,
    sign,
)
from elf.security.enrolling import Token
from elf.security.keys import KeyPair, curve_of_secret, seal
from elf.security.roster import Roster

OVERLAP_SECS_MIN: Final = 10
"""From a rotation to its beginning: what is signed reaches all agents within five seconds."""


class Registrar:
    """See the module's docstring."""

    def __init__(self, at: Path) -> None:
        """Opens what ``found`` made. Raises ``UserError``."""
        if not (at / folder.AUTHORITY_KEY_FILE).exists():
            raise UserError(f"there is no authority in {at}: elf keys init CLUSTER makes one")
        self._file = at / folder.AUTHORITY_FILE
        self._pair = folder.load_pair(at / folder.AUTHORITY_KEY_FILE)
        self._facts = folder.read_json(self._file, folder.Authority)
        self.roster = Roster(self._facts.cluster, self._pair.public, self._facts.roster)

    @classmethod
    def found(cls, at: Path, cluster: str) -> Registrar:
        """The authority of a new cluster. Raises ``UserError``."""
        file = at / folder.AUTHORITY_FILE
        if file.exists():
            its = folder.read_json(file, folder.Authority).cluster
            raise UserError(f"{at} has the authority of cluster {its!r} already; --dir says another folder")
        folder.make_pair(at / folder.AUTHORITY_KEY_FILE)
        folder.write_json(file, folder.Authority(cluster, (_secret(),)))
        return cls(at)

    @property
    def cluster(self) -> str:
        return self._facts.cluster

    @property
    def contacts(self) -> tuple[str, ...]:
        """Where agents of the fleet were."""
        return self._facts.contacts

    def certify(
        self,
        kind: Kind,
        name: str,
        key: bytes,
        issued: int,
        seconds: int,
        roles: tuple[Role, ...] = (),
        uses: int = 0,
    ) -> Signed:
        """Sign a key. Raises ``UserError`` where the roster says no."""
        what = Certificate(self.cluster, kind, name, key, roles, issued, issued + seconds, uses)
        return self._signed(name, sign(self._pair, what))

    def revoke(self, what: Certificate, issued: int) -> Signed:
        """Sign that a key holds no more."""
        return self._signed(what.name, sign(self._pair, Revocation(self.cluster, what.key, issued)))

    def rotation(self, issued: int, overlap: int) -> Signed:
        """Sign a new key for all listening sockets, sealed for the hosts whose keys hold. Whether it counts
        is for the fleet to say, and ``learn`` is told so; its secret is on the disk before. Raises
        ``UserError``."""
        if overlap < OVERLAP_SECS_MIN:
            raise UserError(
                f"an overlap has {OVERLAP_SECS_MIN} s at least, so that all agents know the new key"
            )
        hosts = [one for one in self.roster if one.kind == "agent" and one.valid(issued)]
        if len(hosts) > HOSTS_MAX:
            raise UserError(
                f"a new key of the fleet is for {HOSTS_MAX} hosts at most, and here are {len(hosts)}"
            )
        if self.roster.rotations:  # two within a second have an order all the same
            issued = max(issued, self.roster.rotations[-1].issued + 1)
        before, secret = self.server_keys.at(issued), _secret()
        kept = self._secrets(self.server_keys)
        self._facts = msgspec.structs.replace(self._facts, fleet_secrets=(*kept, secret))
        self._save()
        sealed = tuple((one.key, seal(one.key, secret)) for one in hosts)
        key = curve_of_secret(secret).public
        return sign(self._pair, Rotation(self.cluster, before, key, issued, issued + overlap, sealed))

    @property
    def server_keys(self) -> ServerKeys:
        """With which keys agents listen."""
        return self.roster.server_keys or ServerKeys(curve_of_secret(self._facts.fleet_secrets[0]).public)

    def _secrets(self, of: ServerKeys) -> list[bytes]:
        """Raises ``UserError``."""
        found = [one for one in self._facts.fleet_secrets if curve_of_secret(one).public in (of.key, of.next)]
        if len(found) < 1 + bool(of.next):
            raise UserError("the fleet has another key than this authority: its files are older than the key")
        return found

    def _signed(self, name: str, signed: Signed) -> Signed:
        if why := self.roster.take(signed):
            raise UserError(f"{name}: {why}")
        self._save()
        return signed

    def learn(self, signed: Iterable[Signed], contacts: Iterable[str]) -> None:
        """What the fleet says was signed, by tokens and admins too, and where it is."""
        for one in signed:
            self.roster.take(one)
        found = tuple(contacts)
        self._facts = msgspec.structs.replace(self._facts, contacts=found or self._facts.contacts)
        self._save()

    def _save(self) -> None:
        self._facts = msgspec.structs.replace(self._facts, roster=self.roster.signed)
        folder.write_json(self._file, self._facts)

    def identity(self, signed: Signed) -> folder.Identity:
        """What the owner of a certificate is to be given. It has no open secret."""
        what = signed.opened()
        if not isinstance(what, Certificate):
            raise UserError("an identity is of a certificate")
        fleet = self.server_keys
        sealed = seal(what.key, b"".join(self._secrets(fleet))) if what.kind == "agent" else b""
        return folder.Identity(
            self.cluster, self._pair.public, signed, fleet, sealed, self.roster.signed, self.contacts
        )

    def token(self, pair: KeyPair) -> Token:
        """What the bearer of a token's key needs beside it."""
        return Token(self.cluster, self._pair.public, self.server_keys, pair.seed, self.contacts[:8])


def _secret() -> bytes:
    return secrets.token_bytes(folder.SECRET_BYTES)
