"""``elf backup``: what a fleet has been told to do, out of one agent's copy of the catalog log, as statements
that another fleet can be told.

Rules: the state of an agent is no part of it. A fleet has that on several hosts, and an old copy of it must
never be started: it has forgotten what it has promised since. With ``keys`` the archive has secrets; it is
for its owner's eyes alone (0600).
"""

from __future__ import annotations

import io
import sqlite3
import tarfile
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import pyarrow.parquet as pq

from agents.disk.store import Store
from agents.process import STORE_FILE
from elf.batch import decode
from elf.errors import UserError
from elf.job.catalog.log import CatalogLog, decode_entry
from elf.job.output import OutputSpec
from elf.job.spec import JobSpec
from elf.job.tables import is_table
from elf.ql.files import with_file
from elf.ql.plan import TABLE_OF
from elf.ql.statements import parse_query
from elf.security.files import write
from elf.wire.clients import ONE_SHOT_PREFIX

SQL_FILE: Final = "fleet.sql"
LATER_FILE: Final = "later.sql"
"""What reads jobs that have functions: it is refused while windows of these are made without the function."""
SECRETS: Final = ("keys", "mask.key")
"""In the data folder: what a host needs to be the same to others, and to hash values as before."""
_RESTORE: Final = """\
-- {jobs} jobs, {outputs} outputs and alerts, {aggregates} aggregates of the fleet of {agent}, {at}
-- To tell another fleet: tar -xzf FILE && cd elf-backup && elf sql -f {file}
-- All of it is then of whoever says it; who made it is beside each.
"""


@dataclass
class Backup:
    """``files``: what the statements name, and secrets, by their paths."""

    statements: list[str] = field(default_factory=list)
    later: list[str] = field(default_factory=list)
    files: dict[str, bytes] = field(default_factory=dict)

    def file(self, name: str, data: bytes) -> str:
        """Its path; another one than of the others of that name."""
        stem, suffix = Path(name).stem, Path(name).suffix
        path, number = f"files/{stem}{suffix}", 1
        while self.files.get(path, data) != data:
            number += 1
            path = f"files/{stem}-{number}{suffix}"
        self.files[path] = data
        return path


def _one_line(name: str) -> str:
    """A name in a comment, which ends with its line; clients of open fleets call themselves as they like."""
    return " ".join(name.split())


def back_up(folder: Path, out: Path, *, keys: bool) -> int:
    """``elf backup``. Raises ``UserError``."""
    log = _log(folder)
    found = Backup()
    jobs = [spec for spec in log.jobs() if not spec.name.startswith(ONE_SHOT_PREFIX)]
    for own in log.aggregates():
        path = found.file(own.filename, own.text.encode())
        found.statements.append(
            f"CREATE AGGREGATE {_name(own.name)} FROM {_text(path)}; -- {_one_line(own.creator)}"
        )
    changed: set[str] = set()
    count = 0
    for spec in _ordered(jobs):
        waits = bool({one.uid for one in spec.definition.jobs} & changed)
        if waits or spec.definition.functions:
            changed.add(spec.uid)
        into = found.later if waits else found.statements
        into += _job(spec, found)
        outputs = log.outputs(spec.uid)
        into += (f"{_output(one, spec.name)}; -- {_one_line(one.creator)}" for one in outputs)
        count += len(outputs)
    for program in log.programs():
        path = found.file(program.filename, program.text.encode())
        found.statements.append(
            f"-- of {_one_line(program.creator)}: elf submit {path} --name {program.name}"
        )
    head = _RESTORE.format(
        jobs=len(jobs) + len(log.programs()), outputs=count, aggregates=len(log.aggregates()),
        agent=folder, at=datetime.now(UTC).isoformat(timespec="seconds"), file=SQL_FILE,
    )  # fmt: skip
    if found.later:
        found.statements.append(
            f"-- then, when all that is altered has begun (DESCRIBE): elf sql -f {LATER_FILE}"
        )
        found.files[LATER_FILE] = "".join(f"{line}\n" for line in found.later).encode()
    text = head + "\n".join(found.statements) + "\n"
    if keys:
        found.files |= dict(_secrets(folder))
    write(out, _packed({SQL_FILE: text.encode(), **found.files}))
    print(f"{len(jobs)} jobs, {len(log.programs())} jobs in Python, {count} outputs and alerts, "
          f"{len(log.aggregates())} aggregates; {len(found.files)} files: {out}")  # fmt: skip
    return 0


def _log(folder: Path) -> CatalogLog:
    """The log as the agent has it now, whether it runs or not."""
    state = folder / STORE_FILE
    if not state.exists():
        raise UserError(f"{folder} is no data folder of an agent: there is no {STORE_FILE}")
    with tempfile.TemporaryDirectory(prefix="elf-backup-") as place:
        try:
            source = sqlite3.connect(f"file:{state}?mode=ro", uri=True)
            copy = sqlite3.connect(Path(place) / STORE_FILE)
            try:
                source.backup(copy)
            finally:
                source.close()
                copy.close()
        except sqlite3.Error as error:
            raise UserError(f"{state} cannot be read: {error}; be the agent's user, or root") from None
        store = Store(Path(place) / STORE_FILE)
        try:
            return CatalogLog(decode_entry(entry) for _, entry in store.load_log())
        finally:
            store.close()


def _ordered(jobs: list[JobSpec]) -> Iterator[JobSpec]:
    """Each behind those that it reads."""
    left = {spec.uid: spec for spec in jobs}
    while left:
        free = [spec for spec in left.values() if not {one.uid for one in spec.definition.jobs} & left.keys()]
        for spec in free or list(left.values()):
            del left[spec.uid]
            yield spec


def _job(spec: JobSpec, found: Backup) -> Iterator[str]:
    definition = spec.definition
    sql = definition.sql.strip().rstrip(";")
    for table in definition.tables:
        data = io.BytesIO()
        pq.write_table(decode(table.data), data)
        path = found.file(
            f"{Path(table.file.removeprefix(TABLE_OF).partition(':')[0]).stem}.parquet", data.getvalue()
        )
        if table.moment is None:
            sql = sql.replace(_text(table.file), _text(path))
            continue
        query = parse_query(sql)
        sql = sql if query is None else with_file(query, table.name, path).sql
        found.later.append(f"ALTER JOB {_name(spec.name)} SET TABLE {_name(table.name)} FROM {table.file};")
    yield f"CREATE JOB {_name(spec.name)} AS {sql}; -- {_one_line(spec.creator)}"
    for function in definition.functions:
        path = found.file(function.filename, function.text.encode())
        yield f"ALTER JOB {_name(spec.name)} SET FUNCTION {function.kind} FROM {_text(path)};"


def create_table(table: OutputSpec, job: str) -> str:
    """The statement that makes a table of a job."""
    key = ", ".join(map(_name, table.option("key").split(",")))
    minutes = int(table.option("retain", "0")) // 60_000_000
    retained = f" RETAIN {minutes} MINUTES" if minutes else ""
    shards = f" SHARDS {table.option('shards')}" if table.option("shards") else ""
    shards = " RING" if table.option("ring") else shards
    return f"CREATE TABLE {_name(table.name)} FROM JOB {_name(job)} KEY ({key}){shards}{retained}"


def _output(output: OutputSpec, job: str) -> str:
    pairs = ", ".join(f"{key} = {_text(value)}" for key, value in output.options)
    options = f" WITH ({pairs})" if pairs else ""
    if is_table(output):
        return create_table(output, job)
    if output.alert is None:
        begin = " FROM BEGINNING" if output.from_beginning else ""
        name, target = _name(output.name), _text(output.target)
        return f"CREATE OUTPUT {name} FROM JOB {_name(job)} TO {target}{options}{begin}"
    alert = output.alert
    by = f" BY {', '.join(map(_name, alert.by))}" if alert.by else ""
    held = f" FOR {alert.windows} WINDOWS COVERAGE >= {alert.coverage:g}"
    of = f"CREATE ALERT {_name(output.name)} ON JOB {_name(job)} WHEN {alert.when}{by}{held}"
    return f"{of} NOTIFY {_text(output.target)}{options}"


def _name(name: str) -> str:
    return name if name.isidentifier() and name.isascii() else '"' + name.replace('"', '""') + '"'


def _text(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _secrets(folder: Path) -> Iterator[tuple[str, bytes]]:
    try:
        for name in SECRETS:
            place = folder / name
            for path in sorted(place.iterdir()) if place.is_dir() else [place] if place.exists() else []:
                yield str(path.relative_to(folder)), path.read_bytes()
    except OSError as error:
        raise UserError(
            f"{error.filename} cannot be read: {(error.strerror or str(error)).lower()}"
        ) from None


def _packed(files: dict[str, bytes]) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        for name, data in files.items():
            entry = tarfile.TarInfo(f"elf-backup/{name}")
            entry.size, entry.mtime, entry.mode = len(data), int(time.time()), 0o600
            tar.addfile(entry, io.BytesIO(data))
    return packed.getvalue()
