"""``elf offline reduce`` and ``elf offline merge``: archives in several regions, of which only partial states
cross borders."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from elf.cli.compare import check_spark
from elf.cli.offline_run import name_damaged, question_of, say_lacking, setting, windows_of
from elf.cli.options import ArchiveQuery, Output
from elf.cli.printing import printer, say, use_utf8
from elf.cli.results import check_suffix, write_result
from elf.cli.spans import span_of
from elf.errors import UserError

if TYPE_CHECKING:
    from spark_backend.regional import States

SUFFIX: Final = ".states"


@dataclass(frozen=True)
class ReduceOptions:
    """The command line of ``elf offline reduce``."""

    query: ArchiveQuery
    out: str
    skip_damaged: bool
    master: str
    conf: tuple[str, ...]


def run_reduce(options: ReduceOptions) -> int:
    """Reduce, and write the states. Raises ``UserError`` and its kinds."""
    check_spark()
    out = _File(options.out)
    out.check()
    logging.disable(logging.ERROR)  # as in ``elf.cli.offline_run``
    conf = dict(map(setting, options.conf))
    text = options.query.sql("-q SQL and -f FILE")
    span = span_of(options.query.begin, options.query.end)
    asked = question_of(options.query, text, span)
    from spark_backend import offline, regional, session

    damaged = name_damaged if options.skip_damaged else offline.refuse
    say_lacking(asked, span)
    brief = asked.bytes <= session.BRIEF_BYTES_MAX
    with session.opened(options.master, brief=brief, conf=conf) as spark:
        states = regional.reduced(spark, asked, text, span, damaged)
    out.write(states)
    return 0


def run_merge(names: Sequence[str], out: str | None, output: Output) -> int:
    """Merge, and write states or rows, or print rows. Raises ``UserError``."""
    check_spark()
    further = _File(out) if out is not None and (out.endswith(SUFFIX) or "://" in out) else None
    if further is not None:
        further.check()
    elif out is not None:
        check_suffix(Path(out))
    from spark_backend import regional

    files = [(file.name, file.read()) for file in map(_File, names)]
    states = regional.merged([(name, regional.read(data, name)) for name, data in files])
    use_utf8()
    if further is not None:
        further.write(states)
        return 0
    rows = regional.rows_of(states)
    if out is not None:
        write_result(rows, Path(out))
        size = sum(len(data) for _, data in files)
        moved = f"{size:,} bytes of states in place of {states.source_bytes:,} bytes of archive"
        say(f"elf: {rows.num_rows:,} rows are in {out}; {moved}")
        return 0
    shown = printer(output.value)
    shown.windows(windows_of(rows))
    shown.ended(rows.column_names)
    return 0


class _File:
    """Partial states at a path, or at a URI of a place where archives may be too."""

    def __init__(self, name: str) -> None:
        """Raises ``UserError``."""
        from agents.archive.partitions import Target

        folder, _, self._last = name.rpartition("/")
        self._target = Target(folder or ("/" if name.startswith("/") else "."))
        self.name = f"{self._target.uri}/{self._last}" if "://" in name else name
        self._path = f"{self._target.root}/{self._last}"

    def check(self) -> None:
        """Before the work. Raises ``UserError``."""
        if not self._last.endswith(SUFFIX):
            raise UserError(f"--out {self.name}: files of partial states end with {SUFFIX}")
        if self._target.local and not Path(self._target.root).is_dir():
            raise UserError(f"cannot write {self.name}: there is no folder {self._target.root}")

    def read(self) -> bytes:
        """Raises ``UserError``."""
        data = self._target.read(self._path)
        if data is None:
            raise UserError(f"cannot read {self.name}: there is no such file")
        return data

    def write(self, states: States) -> None:
        """Whole, or not at all. Raises ``UserError``."""
        data = msgspec.msgpack.encode(states)
        self._target.place(self._path, [data])
        say(
            f"elf: {states.table.num_rows:,} groups of panes are in {self.name}: {len(data):,} bytes "
            f"in place of {states.source_bytes:,} bytes of {len(states.sources):,} archive files"
        )
