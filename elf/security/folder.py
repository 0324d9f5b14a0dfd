"""Keys in files: a folder of a host's or a person's, and the authority's.

    key             the secret key, base64url, for its owner's eyes only (0600)
    identity.json   ``Identity``: the certificate, and what is needed to know others; no open secret
    authority.key   only where the authority is: its secret key
    authority.json  only there: ``Authority``, with the secret key of the fleet's connections (0600)

A secret file that others may read is refused, as ssh does.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final, TypeVar

import msgspec
from msgspec import Meta

from elf.errors import UserError
from elf.security.certificates import Certificate, Cluster, Key, Signed
from elf.security.files import read_secret, write
from elf.security.keys import KeyPair, curve_of_secret, read_key, shown
from elf.security.principals import CurvePair
from elf.security.roster import Roster

KEY_FILE: Final = "key"
IDENTITY_FILE: Final = "identity.json"
AUTHORITY_KEY_FILE: Final = "authority.key"
AUTHORITY_FILE: Final = "authority.json"

T = TypeVar("T", bound=msgspec.Struct)


class Identity(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the owner of a key has been given by the authority.

    ``fleet``: the public key of all agents' listening sockets. ``sealed``: for an agent, the secret key of
    it, which only its own key can unseal. ``roster``: whom the authority had signed by then. ``contacts``:
    addresses of agents.
    """

    cluster: Cluster
    authority: Key
    certificate: Signed
    fleet: Key
    sealed: bytes = b""
    roster: tuple[Signed, ...] = ()
    contacts: tuple[str, ...] = ()


class Authority(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What an authority keeps: the secret key of the fleet's connections, and all that it has signed."""

    cluster: Cluster
    fleet_secret: Annotated[bytes, Meta(min_length=32, max_length=32)]
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
        """The pair of an agent's listening socket. Raises ``UserError`` for a person's keys."""
        if self.certificate.kind != "agent":
            its = f"{self.certificate.kind} {self.certificate.name}"
            raise UserError(f"these are the keys of the {its}, not an agent's")
        return curve_of_secret(self.pair.unseal(self.identity.sealed))

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
