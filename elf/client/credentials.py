"""With which keys a client comes: those that are named, a person's own, this machine's, or none.

Rules: what is named is used and nothing else. Without a name, a person's own keys come first, and to an agent
on this machine then the key of the user's own agents there; each is tried. Who has any does not come without:
whoever listens at an agent's address would hear what is said. PyNaCl is loaded for keys of a fleet alone.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from elf.addresses import is_loopback, split_address
from elf.errors import AuthError, UserError
from elf.security.loopback import loopback_file, own_folder, read_loopback
from elf.security.principals import Security
from elf.transport.handshakes import Failure

if TYPE_CHECKING:
    from elf.security.certificates import Signed
    from elf.security.folder import Keys

KEYS_VARIABLE: Final = "ELF_KEYS"
NONE: Final = "none"
"""In place of a folder: without keys."""
_IDENTITY: Final = "identity.json"


@dataclass(frozen=True)
class Credential:
    """What a client shows: ``security`` None is nothing. ``keys``: of a fleet's person, host or token, as
    they are in a ``folder``."""

    called: str
    security: Security | None = None
    keys: Keys | None = None
    folder: Path | None = None

    def refused(self, why: Failure) -> AuthError:
        """Why there is no handshake, and what to do."""
        if why == "key":
            return AuthError(
                f"it does not admit {self.called}: not enrolled there, expired, or revoked (elf keys enrol)"
            )
        if why == "mechanism" and self.security is None:
            return AuthError(
                "it wants keys, and there are none here: --keys names a folder of them, or the file with the "
                "key of another user's agents on this machine"
            )
        if why == "mechanism":
            return AuthError(f"it has no keys (security: open); to ask it all the same: --keys {NONE}")
        if self.security is None:
            return AuthError("it ends the connection before anything is said")
        if self.keys is None:
            return AuthError(
                f"it is not an agent with {self.called}, but another user's, or of a fleet with keys: --keys "
                "names their folder, or file"
            )
        return AuthError(
            f"it is not of the fleet of {self.called}: its key is another one (elf keys enrol gives a new "
            "one, after elf keys rotate --fleet)"
        )


def credentials(address: str, named: str | Path | Security | None) -> tuple[Credential, ...]:
    """What to show at an address, one after the other. Raises ``UserError``."""
    if isinstance(named, Security):
        return (Credential("this token", named),)
    named = named if named is not None else os.environ.get(KEYS_VARIABLE) or None
    if named is not None:
        if str(named) == NONE:
            return (Credential("no keys"),)
        place = Path(named).expanduser()
        return (_loopback(place),) if place.is_file() else _fleet(place)
    found: list[Credential] = []
    if (own_folder() / _IDENTITY).exists():
        found.extend(_fleet(own_folder()))
    file = loopback_file()
    if is_loopback(split_address(address)[0]) and file.exists():
        try:
            found.append(_loopback(file))
        except UserError:
            if not found:
                raise
    return tuple(found) or (Credential("no keys"),)


def _loopback(file: Path) -> Credential:
    return Credential(f"the key in {file}", read_loopback(file))


def renewed(known: Credential, signed: Iterable[Signed]) -> Credential:
    """The same, with the keys that agents listen with, as the fleet says that its authority has signed; they
    are kept in the person's folder."""
    keys = known.keys
    if keys is None or keys.certificate.kind != "person" or (identity := keys.renewed(signed)) is None:
        return known
    from elf.security.folder import Keys, load, write_json

    if known.folder is not None:
        with contextlib.suppress(UserError):  # it may be read-only: then it is told again the next time
            there = load(known.folder).renewed(signed)  # what is there may be newer than what we came with
            if there is not None:
                write_json(known.folder / _IDENTITY, there)
    return replace(known, keys=Keys(keys.pair, identity))


def _fleet(folder: Path) -> tuple[Credential, ...]:
    """One for each key that agents may listen with now."""
    from elf.security.folder import load

    if not (folder / _IDENTITY).exists():
        raise UserError(f"{folder} has no {_IDENTITY}: elf keys enrol makes it")
    keys = load(folder)
    kind, name = keys.certificate.kind, keys.certificate.name
    called = f"the key of {kind} {name} (in {folder})"
    expected = keys.identity.fleet.tried(time.time())
    return tuple(Credential(called, Security(keys.pair.curve, one), keys, folder) for one in expected)
