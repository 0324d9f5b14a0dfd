"""Keys in files: a folder of a host's or a person's, and the authority's.

    key             the secret key, base64url, for its owner's eyes only (0600)
    identity.json   ``Identity``: the certificate, and what is needed to know others; no open secret
    authority.key   only where the authority is: its secret key
    authority.json  only there: ``Authority``, with the secret keys of the fleet's listening sockets (0600)

A secret file that others may read is refused, as ssh does.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Final, TypeVar

import msgspec
from msgspec import Meta

from elf.errors import UserError
from elf.security.certificates import Certificate, Cluster, Key, ServerKeys, Signed
from elf.security.files import read_secret, write
from elf.security.keys import KeyPair, curve_of_secret, read_key, shown
from elf.security.principals import CurvePair
from elf.security.roster import Roster

KEY_FILE: Final = "key"
IDENTITY_FILE: Final = "identity.json"
AUTHORITY_KEY_FILE: Final = "authority.key"
AUTHORITY_FILE: Final = "authority.json"

T = TypeVar("T", bound=msgspec.Struct)
SECRET_BYTES: Final = 32
Secret = Annotated[bytes, Meta(min_length=SECRET_BYTES, max_length=SECRET_BYTES)]


class Identity(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the owner of a key has been given by the authority.

    ``fleet``: the public keys of all agents' listening sockets. ``sealed``: for an agent, the secret keys of
    these (32 bytes each), which only its own key can unseal. ``roster``: whom the authority had signed by
    then. ``contacts``: addresses of agents.
    """

    cluster: Cluster
    authority: Key
    certificate: Signed
    fleet: ServerKeys
    sealed: bytes = b""
    roster: tuple[Signed, ...] = ()
    contacts: tuple[str, ...] = ()


class Authority(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What an authority keeps: the secret keys of all agents' listening sockets, and all that it has
    signed."""

    cluster: Cluster
    fleet_secrets: Annotated[tuple[Secret, ...], Meta(min_length=1)]
    roster: tuple[Signed, ...] = ()
    contacts: tuple[str, ...] = ()


class Keys:
    """The key and the identity of a host or a person, loaded and checked."""

    def __init__(self, pair: KeyPair, identity: Identity) -> None:
        """Raises ``UserError`` where they do not belong together."""
        certificate = identity.certificate.opened()
        if not isinstance(certificate, Certificate) or certificate.key != pair.public:
            raise UserError("the certificate is for another key")
        self.pair = pair
        self.identity = identity
        self.certificate: Final = certificate

    @property
    def fleet(self) -> CurvePair:
        """The pair that an agent listens with, as far as its files know. Raises ``UserError``."""
        return self.listens_with(self.roster(), time.time())

    def listens_with(self, roster: Roster, now: float) -> CurvePair:
        """The pair that an agent listens with now. Raises ``UserError`` for a person's keys, and where this
        host was not given the key that holds."""
        found = self.pairs(roster).get((roster.server_keys or self.identity.fleet).at(now))
        if found is None:
            raise UserError("this host was not given the key that the fleet listens with now")
        return found

    def pairs(self, roster: Roster) -> dict[bytes, CurvePair]:
        """The pairs of listening sockets that hold now or next, as far as this host was given them, by their
        public keys. Raises ``UserError``."""
        if self.certificate.kind != "agent":
            its = f"{self.certificate.kind} {self.certificate.name}"
            raise UserError(f"these are the keys of the {its}, not an agent's")
        sealed = [self.identity.sealed, *(one.sealed_for(self.pair.public) for one in roster.rotations)]
        given = b"".join(self.pair.unseal(one) for one in sealed if one is not None)
        secrets = [given[at : at + SECRET_BYTES] for at in range(0, len(given), SECRET_BYTES)]
        known = roster.server_keys or self.identity.fleet
        pairs = (curve_of_secret(one) for one in secrets if len(one) == SECRET_BYTES)
        return {pair.public: pair for pair in pairs if pair.public in (known.key, known.next)}

    def renewed(self, signed: Iterable[Signed]) -> Identity | None:
        """The identity with the keys that agents listen with, as its authority has signed; None: it has
        them."""
        known = Roster(self.identity.cluster, self.identity.authority, signed).server_keys
        if known is None or known == self.identity.fleet:
            return None
        return msgspec.structs.replace(self.identity, fleet=known)

    def roster(self) -> Roster:
        """Everybody whom the authority had signed when it made this identity, and its owner."""
        identity = self.identity
        return Roster(identity.cluster, identity.authority, (*identity.roster, identity.certificate))


def load(folder: Path) -> Keys:
    """The keys in a folder. Raises ``UserError``."""
    pair = load_pair(folder / KEY_FILE)
    identity = read_json(folder / IDENTITY_FILE, Identity)
    try:
        return Keys(pair, identity)
    except UserError as error:
        raise UserError(f"{folder}: {error}") from None


def load_pair(file: Path) -> KeyPair:
    """The secret key in a file. Raises ``UserError``."""
    return KeyPair(read_key(read_secret(file).decode("ascii", "replace").strip()))


def make_pair(file: Path) -> KeyPair:
    """The secret key in a file, which is made where it is not there yet. Raises ``UserError``."""
    if not file.exists():
        write(file, (shown(KeyPair.new().seed) + "\n").encode(), only_new=True)
    return load_pair(file)


def write_json(file: Path, what: msgspec.Struct) -> None:
    """A struct as JSON, in a file that nobody else may read. Raises ``UserError``."""
    write(file, msgspec.json.format(msgspec.json.encode(what), indent=2) + b"\n")


def read_json(file: Path, kind: type[T]) -> T:
    """The opposite. Raises ``UserError``."""
    try:
        return msgspec.json.decode(read_secret(file), type=kind)
    except msgspec.MsgspecError as error:
        raise UserError(f"{file} is damaged: {error}") from None
