"""``elf audit``: what an agent has kept of what it did for whom, and whether that is as it was written."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import pyarrow as pa

from agents.disk.chain import Head, Record, Verdict, files_of, head_in, lines_of, record_of, verify
from elf.cli.options import Shown
from elf.cli.printing import console, rich_table
from elf.errors import UserError

UNITS: Final = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
TRIES: Final = 3
_APART: Final = ("n", "at", "what", "who", "creator", "from", "outcome", "previous")
"""Facts that have a column of their own, or none."""


def show(place: Path, since: str | None, output: Shown) -> int:
    """Print the records of a file, or of all files of a folder."""
    after = moment(since) if since is not None else None
    records = (one for one in _records(_files(place)) if after is None or _at(one) >= after)
    if output is Shown.JSON:
        for record in records:
            print(json.dumps(record, ensure_ascii=True))
        return 0
    rows = [_row(record) for record in records]
    if not rows:
        print("no records", file=sys.stderr)
        return 0
    console(sys.stdout).print(rich_table(pa.Table.from_pylist(rows)))
    return 0


def verdict(place: Path, state: Path | None) -> int:
    """Print whether the chain holds; 1 if not. ``state``: the file with its head."""
    files, head, found = _verified(place, state)
    for _ in range(TRIES):  # an agent that runs may have removed an old file meanwhile
        if not found.breaks or head == (now := _verified(place, state))[1]:
            break
        files, head, found = now
    for broken in found.breaks:
        print(f"elf audit: {broken}", file=sys.stderr)
    against = "" if head is None else ", up to what the agent wrote last"
    holds = "the chain is broken" if found.breaks else f"the chain holds{against}"
    print(f"{_extent(found)} in {len(files)} {'file' if len(files) == 1 else 'files'}: {holds}")
    return 1 if found.breaks else 0


def _verified(place: Path, state: Path | None) -> tuple[list[Path], Head | None, Verdict]:
    try:
        head = None if state is None else head_in(state)
    except OSError as error:
        raise UserError(str(error)) from None
    files = _files(place, some=head is None)
    return files, head, verify(files, head)


def _extent(found: Verdict) -> str:
    return f"records {found.first} to {found.last}" if found.records else "no records"


def _files(place: Path, *, some: bool = True) -> list[Path]:
    """Raises ``UserError`` where there are none, unless none may be."""
    try:
        found = files_of(place) if place.is_dir() else [place] if place.exists() else []
        if found:
            with found[0].open("rb"):
                pass
    except OSError as error:
        raise UserError(f"cannot read {place}: {(error.strerror or str(error)).lower()}") from None
    if some and not found:
        raise UserError(f"{place} has no audit: give the agent's --data-dir, or a --file")
    return found


def _records(files: list[Path]) -> Iterator[Record]:
    """Of lines that are none it is said how many."""
    other = 0
    for path in files:
        for _, line, whole in lines_of(path):
            record = record_of(line) if whole else None
            if record is not None:
                yield record
            else:
                other += 1
    if other:
        print(f"elf audit: {other} lines are no records; --verify says where", file=sys.stderr)


def _row(record: Record) -> dict[str, str]:
    more = {name: value for name, value in record.items() if name not in _APART}
    told = "; ".join(f"{name} {_text(value)}" for name, value in more.items())
    columns = {
        "at": record["at"],
        "what": record["what"],
        "who": record.get("who", record.get("creator", "")),
    }
    columns |= {"from": record.get("from", ""), "outcome": record.get("outcome", "")}
    return {**{name: str(value) for name, value in columns.items()}, "about": told}


def _text(value: object) -> str:
    return " ".join(value.split()) if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _at(record: Record) -> datetime:
    try:
        found = datetime.fromisoformat(str(record["at"]))
    except ValueError:
        return datetime.max.replace(tzinfo=UTC)  # rather shown than left out
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def moment(text: str) -> datetime:
    """``10m`` ago, or a time (UTC where it says nothing). Raises ``UserError``."""
    ago = re.fullmatch(r"(\d{1,6})([smhd])", text)
    if ago:
        return datetime.now(UTC) - timedelta(**{UNITS[ago[2]]: int(ago[1])})
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise UserError(f"--since {text}: give 10m, 2h or 7d, or a time such as 2026-01-31T12:00") from None
    return found if found.tzinfo else found.replace(tzinfo=UTC)
