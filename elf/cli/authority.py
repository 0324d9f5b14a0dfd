"""An authority at the command line: whose keys are meant, and what a running fleet is told and says."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from elf.client.enrolment import Known, fit_name, keys_of, tell
from elf.errors import ElfError, UserError
from elf.security import folder
from elf.security.certificates import Kind, Revocation, Rotation, Signed
from elf.security.keys import shown
from elf.security.registrar import Registrar
from elf.security.roster import Roster

AUTHORITY: Final = "authority"
"""The authority's folder in that of its owner's keys."""


@dataclass(frozen=True)
class Owner:
    """Whose key it is to be; ``at``: the folder of the keys, on this machine."""

    kind: Kind
    name: str
    at: Path | None


def place_of(own: Path, data_dir: Path | None) -> Path:
    """The keys that a command is about: a host's, or else its user's."""
    return own if data_dir is None else keys_folder(data_dir)


def keys_folder(data_dir: Path) -> Path:
    """The keys of a host's agent."""
    return data_dir / "keys"


def owners_of(kind: Kind, words: Iterable[str]) -> list[Owner]:
    """Of words ``NAME`` and ``NAME=DIR``. Raises ``UserError``."""
    found = []
    for word in words:
        name, equals, at = word.partition("=")
        if not name or fit_name(name) != name or (equals and not at):
            raise UserError(f"{word!r}: NAME or NAME=DIR; a name has letters, digits and . _ @ -, 64 at most")
        where = Path(at).expanduser() if equals else None
        if where is not None and kind == "agent":
            where = keys_folder(where)
        found.append(Owner(kind, name, where))
    return found


def tell_fleet(own: Path, registrar: Registrar, connect: str | None, *, must: bool = False) -> bool:
    """Tell the fleet what was signed, and learn what else was; whether one was told. A fleet that is named
    has to be there; one that is only known from before does not, and hears of it with the next command."""
    address = address_of(connect, registrar.contacts)
    if not address:
        return False
    try:
        told = asyncio.run(tell(address, own, registrar.cluster, registrar.roster.signed))
    except ElfError as error:
        text = f"signed, but no agent was told: {error}; say it again when one runs"
        if must or connect is not None:
            raise UserError(text) from None
        print(f"elf: {text}", file=sys.stderr)
        return False
    registrar.learn(told.known.signed, told.known.contacts)
    for signed, why in told.refused:
        print(f"elf: the fleet does not take {described(signed)}: {why}", file=sys.stderr)
    if told.refused and must:
        raise UserError("the fleet has not taken it")
    return True


def address_of(connect: str | None, contacts: Sequence[str]) -> str:
    """Where a fleet is asked for; empty: nobody knows of any."""
    return connect or os.environ.get("ELF_CONNECT") or ",".join(contacts)


def fleet_says(own: Path, address: str, *, must: bool) -> Known | None:
    """What a fleet says; None: none is known, or, unless it ``must`` be there, none answers."""
    if not address:
        return None
    try:
        return asyncio.run(keys_of(address, own, folder.load(own).identity.cluster))
    except ElfError as error:
        if must:
            raise
        print(f"elf: no agent says more: {error}", file=sys.stderr)
        return None


def roster_of(keys: folder.Keys, known: Known) -> Roster:
    """Whose keys hold, as a fleet says."""
    return Roster(keys.identity.cluster, keys.identity.authority, known.signed)


# -- words ---------------------------------------------------------------------------------------------------


def now_s() -> int:
    """Seconds since the epoch."""
    return int(time.time())


def described(signed: Signed) -> str:
    """What was signed, for people."""
    what = signed.opened()
    if isinstance(what, Revocation):
        return f"the revocation of {shown(what.key)}"
    if isinstance(what, Rotation):
        return f"the fleet's new key from {moment(what.starts)} on"
    until = datetime.fromtimestamp(what.expires, UTC).strftime("%Y-%m-%d")
    roles = f" ({', '.join(what.roles)})" if what.roles else ""
    return f"{what.kind} {what.name}{roles} until {until}"


def moment(secs: float) -> str:
    """A time, for people."""
    return datetime.fromtimestamp(secs, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
