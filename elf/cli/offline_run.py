"""``elf offline run``: options in, a query over the archive by Spark, rows out."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from elf.cli.ask import ask
from elf.cli.compare import check_spark
from elf.cli.options import ArchiveQuery, Output
from elf.cli.printing import printer, say, use_utf8
from elf.cli.results import check_suffix, write_result
from elf.cli.run import declared
from elf.cli.spans import span_of
from elf.client.files import files_of, tables_of
from elf.client.windows import WINDOW_COLUMNS, Window
from elf.errors import UserError
from elf.wire.clients import ONE_SHOT_PREFIX

if TYPE_CHECKING:
    from agents.archive.partitions import Target
    from spark_backend.queries import Question

_US: Final = pa.timestamp("us", "UTC")


@dataclass(frozen=True)
class OfflineOptions:
    """The command line of ``elf offline run``."""

    query: ArchiveQuery
    job: str | None
    geoip: tuple[str, ...]
    output: Output
    out: Path | None
    explain: bool
    skip_damaged: bool
    master: str
    conf: tuple[str, ...]
    connect: str
    cluster: str


def run_offline(options: OfflineOptions) -> int:
    """Ask Spark, and print or write the rows. Raises ``UserError`` and its kinds."""
    check_spark()
    from agents.lookups import LOOKUPS

    logging.disable(logging.ERROR)  # what py4j would print of a Ctrl-C; failures come as exceptions too
    if options.out is not None:
        check_suffix(options.out)
    conf = dict(map(setting, options.conf))
    LOOKUPS.open(options.geoip)
    span = span_of(options.query.begin, options.query.end)
    asked = _of_job(options, options.job, span) if options.job is not None else _of_text(options.query, span)
    from spark_backend import explained, offline, session

    damaged = name_damaged if options.skip_damaged else offline.refuse
    say_lacking(asked, span)
    brief = asked.bytes <= session.BRIEF_BYTES_MAX
    with session.opened(options.master, brief=brief, conf=conf) as spark:
        explain = options.explain or asked.explain
        found = offline.answer(spark, asked.plan, asked.archived, span, damaged, explain=explain)
        if explain:
            say(explained.explained(spark, found, asked.streams), sys.stdout)
            return 0
        table = offline.collected(found)
    if options.out is not None:
        write_result(table, options.out)
        say(f"elf: {table.num_rows:,} rows are in {options.out}")
        return 0
    out = printer(options.output.value)
    out.windows(windows_of(table))
    out.ended(table.column_names)
    return 0


def _of_text(query: ArchiveQuery, span: tuple[int, int] | None) -> Question:
    return question_of(query, query.sql("-q SQL, -f FILE and --job JOB", ", or --job JOB"), span)


def question_of(query: ArchiveQuery, text: str, span: tuple[int, int] | None) -> Question:
    """With the files that its text names. Raises ``UserError``."""
    from spark_backend.queries import question

    columns = dict(map(declared, query.columns))
    return question(text, query.archives, span, columns=columns, tables=tables_of(text), texts=files_of(text))


def say_lacking(asked: Question, span: tuple[int, int] | None) -> None:
    """What its archives lack."""
    from spark_backend import offline

    use_utf8()
    for line in offline.lacking(asked.archived, span):
        say(f"elf: the archive lacks rows: {line}")


def _of_job(options: OfflineOptions, job: str, span: tuple[int, int] | None) -> Question:
    """The query of a job that runs, over its agents' archives, or over those that are given."""
    from agents.archived import archived_streams
    from elf.client import CompareFacts, connect
    from spark_backend.offline import Archived
    from spark_backend.queries import Question, check

    query = options.query
    if query.text is not None or query.file is not None or query.columns:
        raise UserError("a job has its query and its columns: leave out -q, -f and --column, or --job")

    async def facts() -> CompareFacts:
        async with connect(options.connect, cluster=options.cluster) as client:
            return await client.compare_facts(job)

    known = ask(facts())
    for source in known.archives:
        if source.silent and not query.archives:
            say(
                f"elf: no archive from {', '.join(source.silent)}: not reached; rows of theirs may be missing"
            )
    plan = known.job.spec.plan
    check(plan)
    archived = tuple(
        Archived(path, source.stream, source.format, source.timestamp)
        for source in known.archives
        for path in query.archives or source.archives
    )
    targets = _there([one.path for one in archived])
    return Question(plan, archived, tuple(archived_streams(targets, plan.streams, span, {})))


def _there(paths: Sequence[str]) -> list[Target]:
    """The archives that can be seen from here; others are named. Raises ``UserError`` where none can."""
    from agents.archive.partitions import Target
    from agents.archived import streams_in

    found = [Target(path) for path in dict.fromkeys(paths)]
    seen = [target for target in found if streams_in([target])]
    away = [target.uri for target in found if target not in seen]
    if not seen:
        raise UserError(
            f"nothing is archived at {', '.join(away)} as seen from this machine: run it where the "
            "archives are, or name copies with --archive PATH"
        )
    for uri in away:
        say(f"elf: nothing is archived at {uri} as seen from this machine: rows of its agents are missing")
    return seen


def name_damaged(path: str, why: str) -> None:
    """A file that is left out."""
    say(f"elf: {path} is damaged and left out ({why}); its rows are missing: put a copy of it back")


def setting(text: str) -> tuple[str, str]:
    """``--conf``. Raises ``UserError``."""
    name, equals, value = text.partition("=")
    if not equals or not name.startswith("spark."):
        raise UserError(f"--conf wants spark.NAME=VALUE, not {text!r}")
    return name, value


def windows_of(table: pa.Table) -> Iterator[Window]:
    """The rows as windows, in their order; of a query without windows as one."""
    if tuple(table.column_names[:2]) != WINDOW_COLUMNS:
        yield _window(table, None)
        return
    bounds = [table[name].cast(_US).cast(pa.int64()).to_numpy() for name in WINDOW_COLUMNS]
    begins = np.flatnonzero(np.diff(bounds[0]) | np.diff(bounds[1])) + 1
    places = [0, *begins.tolist(), table.num_rows] if table.num_rows else []
    for first, last in pairwise(places):
        part = table.slice(first, last - first)
        yield _window(part, part.slice(0, 1))


def _window(rows: pa.Table, first: pa.Table | None) -> Window:
    start, end = (
        (None, None) if first is None else (first[name].cast(_US)[0].as_py() for name in WINDOW_COLUMNS)
    )
    return Window("", ONE_SHOT_PREFIX, 1, "", start, end, 0, {}, rows)
