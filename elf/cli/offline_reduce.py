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
from elf.cli.results import check_suffix, part_of, write_result
from elf.cli.spans import span_of
from elf.errors import UserError

if TYPE_CHECKING:
    from spark_backend.regional import States

SUFFIX: Final = ".states"


@dataclass(frozen=True)
class ReduceOptions:
    """The command line of ``elf offline reduce``."""

    query: ArchiveQuery
    out: Path
    skip_damaged: bool
    master: str
    conf: tuple[str, ...]


def run_reduce(options: ReduceOptions) -> int:
    """Reduce, and write the states. Raises ``UserError`` and its kinds."""
    check_spark()
    _check_states(options.out)
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
    _write(states, options.out)
    return 0


def run_merge(names: Sequence[Path], out: Path | None, output: Output) -> int:
    """Merge, and write states or rows, or print rows. Raises ``UserError``."""
    check_spark()
    if out is not None:
        _check_states(out) if out.suffix == SUFFIX else check_suffix(out)
    from spark_backend import regional

    parts = [(str(name), regional.read(_bytes(name), str(name))) for name in names]
    states = regional.merged(parts)
    use_utf8()
    if out is not None and out.suffix == SUFFIX:
        _write(states, out)
        return 0
    rows = regional.rows_of(states)
    if out is not None:
        write_result(rows, out)
        say(f"elf: {rows.num_rows:,} rows are in {out}; {_moved(names, states)}")
        return 0
    shown = printer(output.value)
    shown.windows(windows_of(rows))
    shown.ended(rows.column_names)
    return 0


def _moved(names: Sequence[Path], states: States) -> str:
    size = sum(name.stat().st_size for name in names)
    return f"{size:,} bytes of states in place of {states.source_bytes:,} bytes of archive"


def _write(states: States, out: Path) -> None:
    data = msgspec.msgpack.encode(states)
    with part_of(out) as part:
        part.write_bytes(data)
    say(
        f"elf: {states.table.num_rows:,} groups of panes are in {out}: {len(data):,} bytes in place of "
        f"{states.source_bytes:,} bytes of {len(states.sources):,} archive files"
    )


def _check_states(out: Path) -> None:
    if out.suffix != SUFFIX:
        raise UserError(f"--out {out}: files of partial states end with {SUFFIX}")
    if not out.parent.is_dir():
        raise UserError(f"cannot write {out}: there is no folder {out.parent}")


def _bytes(name: Path) -> bytes:
    try:
        return name.read_bytes()
    except OSError as error:
        raise UserError(f"cannot read {name}: {error.strerror}") from None
