"""``elf doctor``: what is wrong with the keys on this machine, with the way to the fleet, and with what its
agents archive; a line each."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from elf.cli.authority import AUTHORITY, address_of, moment, place_of
from elf.client.client import connect
from elf.errors import ElfError, UserError
from elf.security import folder
from elf.security.certificates import Certificate
from elf.security.registrar import Registrar
from elf.security.roles import gives
from elf.wire.clients import AWAY

DAYS: Final = 86_400
SOON_DAYS: Final = 14
"""A certificate that expires so soon is a problem now."""
SKEW_S: Final = 60
"""A clock that is so far behind the authority's, or off from an agent's, is wrong."""

Line = tuple[bool, str]


def examine(own: Path, data_dir: Path | None, address: str | None) -> int:
    """Say what is right and what is not; 1 where something is not."""
    at = place_of(own, data_dir)
    wrong = 0
    for right, text in _lines(at, data_dir, address):
        print(f"{'ok   ' if right else 'WRONG'}  {text}", flush=True)
        wrong += not right
    if wrong:
        print(f"elf: {wrong} {'is' if wrong == 1 else 'are'} wrong", file=sys.stderr)
    return 1 if wrong else 0


def _lines(at: Path, data_dir: Path | None, address: str | None) -> Iterator[Line]:
    yield from (_mode(one) for one in (data_dir, at) if one is not None)
    try:
        keys = folder.load(at)
    except UserError as error:
        missing = not (at / folder.IDENTITY_FILE).exists()
        yield (
            False,
            f"keys: there are none in {at}: elf keys enrol gives them" if missing else f"keys: {error}",
        )
        return
    what = keys.certificate
    yield True, f"keys: {what.kind} {what.name} of cluster {what.cluster}, in {at}"
    if what.kind == "agent":
        yield _unsealed(keys)
    if (begins := keys.identity.fleet.starts) > time.time():
        yield True, f"fleet's key: another one, which is known here, holds from {moment(begins)} on"
    yield _signed(keys)
    yield _expiry(what)
    yield _clock(what)
    known: list[str] = [address_of(address, ()), *keys.identity.contacts]
    if not any(known) and (at / AUTHORITY / folder.AUTHORITY_KEY_FILE).exists():
        known = list(Registrar(at / AUTHORITY).contacts)
    contacts = [one for text in known if text for one in text.split(",")]
    if not contacts:
        yield True, "fleet: no agent is known yet (--connect HOST:PORT asks one)"
    answers = []
    for contact in dict.fromkeys(contacts):
        yield (line := asyncio.run(_reached(contact, at, what.cluster)))
        answers += [contact] if line[0] else []
    may_ask = gives(what.kind, what.roles, "read")
    for contact in answers[:1] if may_ask else ():
        yield from asyncio.run(_archives(contact, at, what.cluster))


def _mode(at: Path) -> Line:
    try:
        mode = at.stat().st_mode & 0o777
    except OSError as error:
        return False, f"folder: {at} cannot be looked at: {(error.strerror or str(error)).lower()}"
    if mode & 0o022:
        return False, f"folder: others may write in {at} (mode {mode:o}): chmod go-w {at}"
    return True, f"folder: {at} has mode {mode:o}"


def _unsealed(keys: folder.Keys) -> Line:
    try:
        _ = keys.fleet
    except UserError as error:
        return False, f"fleet's key: {error}; elf keys enrol makes it anew"
    return True, "fleet's key: it can be unsealed here"


def _signed(keys: folder.Keys) -> Line:
    """Whether the authority that is named has signed it, and nothing it knows speaks against it."""
    roster = keys.roster()
    if roster.of(keys.pair.public) is not None:
        return True, "certificate: signed, and not revoked as far as is known here"
    why = "it was revoked" if roster.revoked(keys.pair.public) else roster.refusal(keys.identity.certificate)
    return False, f"certificate: {why or 'a newer one has replaced it'}; elf keys enrol gives another"


def _expiry(what: Certificate) -> Line:
    days = (what.expires - time.time()) / DAYS
    if days <= 0:
        return False, f"expiry: it has expired {-days:.0f} days ago; elf keys enrol signs it again"
    return days > SOON_DAYS, f"expiry: it expires in {days:.0f} days" + (
        "" if days > SOON_DAYS else "; elf keys enrol signs it again"
    )


def _clock(what: Certificate) -> Line:
    ahead = what.issued - time.time()
    if ahead > SKEW_S:
        return (
            False,
            f"clock: this key was signed {ahead:.0f} s from now; set the clock right",
        )
    return True, "clock: this key was signed before now"


async def _reached(address: str, keys: Path, cluster: str) -> Line:
    try:
        async with connect(address, keys=keys, cluster=cluster) as client:
            asked = time.time()
            said = await client.status()
            answered = time.time()
    except ElfError as error:
        return False, f"fleet: {error}"
    name, its = said.get("agent"), said.get("clock_us")
    if isinstance(its, int):
        off = max(asked - its / 1e6, its / 1e6 - answered, 0.0)
        if off > SKEW_S:
            return (
                False,
                f"fleet: {said.get('agent')} at {address} answers; its clock is {off:.0f} s off from here",
            )
    return True, f"fleet: {name} at {address} answers"


async def _archives(address: str, keys: Path, cluster: str) -> list[Line]:
    """What the agents have archived, and what is wrong with that."""
    try:
        async with connect(address, keys=keys, cluster=cluster) as client:
            table = (await client.sql("SHOW ARCHIVES")).table
    except ElfError as error:
        return [(False, f"archives: {error}")]
    rows = [] if table is None else table.to_pylist()
    found = [archived(row) for row in rows]
    return found or [(True, "archives: no agent keeps one (archive: off)")]


def archived(row: Mapping[str, object]) -> Line:
    """A row of SHOW ARCHIVES as a line."""
    which = f"archive: {row['stream']} on {row['agent']}"
    if row["problem"] == AWAY:  # the fault of no archive
        return True, f"{which}: {AWAY}"
    if row["problem"]:
        waits = f" ({row['waiting']} rolls wait)" if row["waiting"] else ""
        return False, f"{which}: {row['problem']}{waits}"
    text = f"{which}: {row['rows']:,} rows in {row['files']:,} files, {row['bytes']:,} bytes"
    text += f", from {row['from']} on" if row["from"] else ""
    text += f"; {row['gone']:,} older rows are deleted" if row["gone"] else ""
    text += f"; it is being sorted {row['sorted']}" if row["sorted"] else ""
    return True, text
