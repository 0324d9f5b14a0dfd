"""Keys of a fleet that a test makes: an authority, and folders of hosts, persons and tokens."""

from __future__ import annotations

import os
import time
from pathlib import Path

from elf.security.certificates import Certificate, Kind, Revocation, Role, ServerKeys, Signed, sign
from elf.security.files import write
from elf.security.folder import IDENTITY_FILE, KEY_FILE, Identity, write_json
from elf.security.keys import KeyPair, curve_of_secret, seal, shown
from elf.security.principals import CurvePair


class Authority:
    """``enrol`` everybody first: a folder has the roster of when it was written. ``fleet``: the pair of all
    listening sockets."""

    def __init__(self, folder: Path, cluster: str = "test", fleet: CurvePair | None = None) -> None:
        self.folder = folder
        self.cluster = cluster
        self.pair = KeyPair.new()
        self.fleet = fleet or curve_of_secret(os.urandom(32))
        self.roster: list[Signed] = []
        self.owners: dict[str, tuple[KeyPair, Signed]] = {}

    def enrol(
        self, kind: Kind, name: str, *roles: Role, lasts: float = 3_600, known: bool = True, uses: int = 0
    ) -> KeyPair:
        """``known``: whether its certificate is in the roster."""
        pair, now = KeyPair.new(), int(time.time())
        expires = int(now + lasts)
        issued = min(now, expires) - 1
        signed = sign(
            self.pair, Certificate(self.cluster, kind, name, pair.public, roles, issued, expires, uses)
        )
        self.owners[name] = pair, signed
        if known:
            self.roster.append(signed)
        return pair

    def revocation(self, name: str) -> Signed:
        pair, _ = self.owners[name]
        return sign(self.pair, Revocation(self.cluster, pair.public, int(time.time())))

    def revoke(self, name: str) -> None:
        self.roster.append(self.revocation(name))

    def written(self, name: str) -> Path:
        """The folder of somebody's keys."""
        pair, signed = self.owners[name]
        folder = self.folder / name
        certificate = signed.opened()
        sealed = b""
        if isinstance(certificate, Certificate) and certificate.kind == "agent":
            sealed = seal(pair.public, self.fleet.secret)
        write(folder / KEY_FILE, (shown(pair.seed) + "\n").encode())
        identity = Identity(
            self.cluster, self.pair.public, signed, ServerKeys(self.fleet.public), sealed, tuple(self.roster)
        )
        write_json(folder / IDENTITY_FILE, identity)
        return folder
