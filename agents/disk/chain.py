"""Files of records that can be added to and not be changed unseen: JSON lines, each with the hash of the one
before.

A *record* is an object with ``n`` (its number), ``at`` (RFC 3339), ``what``, whatever else it tells, and
``previous``: the SHA-256 of the line before it, newline excluded. The files of a folder are numbered
(``audit-000001.jsonl`` …), and the chain goes on from one to the next. The first record of a chain has an
empty ``previous``; one that is begun after a break says ``why``.

A chain alone does not show that its end was cut off, or its beginning. So the writer also keeps its *head*
elsewhere (in the agent's state): the last record's number and hash, and the first file that should be there.
What stands after the head was written just before a crash. Whoever can rewrite the files *and* the state can
make a chain that holds; keep copies on another machine against that.

A line that a crash has torn has no newline. It is no record, and nothing was told of it; the next start goes
on in a new file.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec

from agents.disk.durable import waited

HEAD: Final = "audit.head"
"""Under which name an agent's state has it."""
NO_HASH: Final = ""
LINE_BYTES_MAX: Final = 256 << 10
_NAME: Final = re.compile(r"audit-(\d{6,})\.jsonl")
_FLAGS: Final = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC

Record = dict[str, object]


class Head(msgspec.Struct, frozen=True):
    """The end of a chain: the number and hash of its last record, and the first file of the folder."""

    number: int
    hash: str
    first_file: str


@dataclass(frozen=True)
class Break:
    """Where a chain does not hold (the line of a file, 0: the file), and why. ``begins``: here a new one was
    begun after that."""

    file: str
    line: int
    why: str
    begins: bool = False

    def __str__(self) -> str:
        return f"{self.file}{f':{self.line}' if self.line else ''}: {self.why}"


@dataclass
class Verdict:
    """What verifying has found: so many records, the numbers of the first and the last, the last one's hash,
    that of the head's number, and the breaks. ``torn``: the last file ends in half a line."""

    records: int = 0
    first: int = 0
    last: int = 0
    hash: str = NO_HASH
    at_head: str = NO_HASH
    torn: bool = False
    breaks: list[Break] = field(default_factory=list)

    @property
    def goes_on(self) -> bool:
        """Whether more may follow: the last chain holds."""
        return not self.breaks or self.breaks[-1].begins


def files_of(folder: Path) -> list[Path]:
    """The files of a folder, oldest first."""
    with contextlib.suppress(OSError):
        return sorted(path for path in folder.iterdir() if _NAME.fullmatch(path.name))
    return []


def lines_of(path: Path) -> Iterator[tuple[int, bytes, bool]]:
    """(number, line, whether it is whole) of each."""
    with path.open("rb") as file:
        number = 0
        while line := file.readline(LINE_BYTES_MAX):
            number += 1
            yield number, line.removesuffix(b"\n"), line.endswith(b"\n")


def record_of(line: bytes) -> Record | None:
    """The record of a line; None: it is none."""
    try:
        found = msgspec.json.decode(line, type=dict[str, object])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    number, previous = found.get("n"), found.get("previous")
    fits = isinstance(number, int) and number > 0 and isinstance(previous, str)
    return found if fits and isinstance(found.get("what"), str) and isinstance(found.get("at"), str) else None


def hash_of(line: bytes) -> str:
    return hashlib.sha256(line).hexdigest()


def verify(files: Iterable[Path], head: Head | None = None) -> Verdict:
    """Whether these files, oldest first, are one chain, and reach to the head."""
    found, names = Verdict(), list[str]()
    for path in files:
        names.append(path.name)
        _verify_file(path, found, head.number if head is not None else 0)
    if head is None:
        return found
    if names and names[0] > head.first_file:
        found.breaks.append(Break(names[0], 0, f"the files from {head.first_file} to here are gone"))
    elif not names:
        found.breaks.append(Break(head.first_file, 0, f"it is gone, with {head.number} records"))
    elif found.last < head.number:
        why = f"records {found.last + 1} to {head.number} are gone from the end"
        found.breaks.append(Break(names[-1], 0, why))
    elif found.at_head not in (head.hash, NO_HASH):
        why = f"record {head.number} is another than the one that the agent wrote"
        found.breaks.append(Break(names[-1], 0, why))
    return found


def _verify_file(path: Path, found: Verdict, head: int) -> None:
    """``head``: the number whose hash is wanted."""
    found.torn = False
    try:
        for place, line, whole in lines_of(path):
            if not whole:
                found.torn = True
                continue
            if found.torn:
                found.breaks.append(Break(path.name, place - 1, "the line is too long to be a record"))
                found.torn = False
            record = record_of(line)
            found_hash = hash_of(line)
            if record is None:
                found.breaks.append(Break(path.name, place, "the line is no record"))
            elif begins := place == 1 and record["previous"] == NO_HASH and "why" in record:
                why = f"a new chain begins here: {record['why']}"
                found.breaks.append(Break(path.name, place, why, begins))
            elif why := _gap(record, found):
                found.breaks.append(Break(path.name, place, why))
            if record is not None:
                number = int(str(record["n"]))
                found.first = found.first or number
                found.records, found.last = found.records + 1, number
                found.at_head = found_hash if number == head else found.at_head
            found.hash = found_hash
    except OSError as error:
        found.breaks.append(Break(path.name, 0, f"it cannot be read: {error.strerror}"))


def _gap(record: Record, found: Verdict) -> str:
    """Why a record does not follow on those before it; empty: it does."""
    previous, number = record["previous"], int(str(record["n"]))
    if not found.records and not found.breaks:  # files before it may be gone by rotation
        return "" if (previous == NO_HASH) == (number == 1) else f"record {number} has nothing before it"
    if number != found.last + 1:
        return f"record {number} stands where {found.last + 1} should: records were removed, added or moved"
    if previous != found.hash:
        return f"record {number} does not follow on the one before it: one of them was changed"
    return ""


def head_in(state: Path) -> Head | None:
    """The head that an agent's state file has; None: it has none. The agent may be running. Raises
    ``OSError``."""
    if not state.exists():
        return None
    try:
        with contextlib.closing(sqlite3.connect(f"file:{state}?mode=rw", uri=True, timeout=5)) as con:
            con.execute("PRAGMA query_only=1")
            row = con.execute("SELECT value FROM facts WHERE key = ?", (HEAD,)).fetchone()
    except sqlite3.Error as error:
        raise OSError(f"{state} cannot be read: {error}") from None
    return None if row is None else decode_head(row[0])


def encode_head(head: Head) -> bytes:
    return msgspec.json.encode(head)


def decode_head(data: bytes) -> Head | None:
    try:
        return msgspec.json.decode(data, type=Head)
    except msgspec.MsgspecError:
        return None


class Chain:
    """The end of a chain, to which records are added: in ``folder``, in files of about ``file_bytes_max``, of
    which the last ``files_max`` are kept. One thread uses it."""

    def __init__(self, folder: Path, *, file_bytes_max: int, files_max: int) -> None:
        self._folder = folder
        self._file_bytes_max = file_bytes_max
        self._files_max = files_max
        self._file = -1
        self._bytes = 0
        self._number = 0
        self._hash = NO_HASH
        self._why = ""

    @property
    def head(self) -> Head:
        """To be kept elsewhere before ``prune``."""
        files = files_of(self._folder)[-self._files_max :]
        return Head(self._number, self._hash, files[0].name if files else _name(1))

    def prune(self) -> None:
        """Remove the files that are too old."""
        for path in files_of(self._folder)[: -self._files_max]:
            path.unlink(missing_ok=True)

    def open(self, head: Head | None) -> Verdict:
        """Go on where the files end, or begin a new chain where they do not hold. Raises ``OSError``."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        files = files_of(self._folder)
        verdict = verify(files, head)
        self._number, self._hash = max(verdict.last, head.number if head else 0), verdict.hash
        if not verdict.goes_on:
            self._why, self._hash = str(verdict.breaks[-1]), NO_HASH
        if files and verdict.goes_on and not verdict.torn:
            self._reopen(files[-1])
        return verdict

    def append(self, records: Iterable[Mapping[str, object]]) -> None:
        """Add records, durably. ``OSError``: none of them is there."""
        if self._file < 0 or self._bytes >= self._file_bytes_max:
            self._next_file()
        number, hashed, lines = self._number, self._hash, list[bytes]()
        for facts in records:
            number += 1
            begun = {"why": self._why} if self._why and not lines else {}
            line = msgspec.json.encode({"n": number, **facts, **begun, "previous": hashed})
            hashed = hash_of(line)
            lines.append(line + b"\n")
        data = b"".join(lines)
        try:
            _write(self._file, data)
            os.fsync(self._file)
        except OSError:
            with contextlib.suppress(OSError):
                os.ftruncate(self._file, self._bytes)
            raise
        waited("audit")
        self._number, self._hash, self._why = number, hashed, ""
        self._bytes += len(data)

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _next_file(self) -> None:
        self.close()
        files = files_of(self._folder)
        last = _NAME.fullmatch(files[-1].name) if files else None
        self._reopen(self._folder / _name(int(last[1]) + 1 if last else 1))

    def _reopen(self, path: Path) -> None:
        self._file = os.open(path, _FLAGS, 0o600)
        os.fchmod(self._file, 0o600)
        self._bytes = os.fstat(self._file).st_size


def _name(number: int) -> str:
    return f"audit-{number:06}.jsonl"


def _write(file: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(file, view) :]
