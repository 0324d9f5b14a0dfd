"""A text in ELF-QL to what Spark runs over an archive, where no fleet is asked: the plan that a fleet would
make, over the columns that samples of the archived lines show.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from agents.archived import ArchivedStream, Span, archived_streams, streams_in, targets_of
from elf.errors import ColumnError, UserError
from elf.ql import files, jobs, planner
from elf.ql.aggregates import CreateAggregate
from elf.ql.definition import Read
from elf.ql.looks import is_look
from elf.ql.own import OwnAggregate
from elf.ql.plan import Plan
from elf.ql.statements import CreateJob, Explain, Query, Select, Statement, parse
from elf.ql.user_functions import functions_of
from elf.schema import OPEN_FORMATS, ColumnType, Schema
from spark_backend.offline import Archived

ONE_SELECT = (
    "elf offline run answers one SELECT (after CREATE JOB for each job that it reads), or EXPLAIN OFFLINE of "
    "one; all other statements are for a fleet: elf sql"
)


@dataclass(frozen=True)
class Question:
    """What is asked of an archive.

    Attributes:
        plan (Plan): of the SELECT.
        archived (tuple[Archived, ...]): where the lines of its streams are.
        streams (tuple[ArchivedStream, ...]): what there is of them in the span.
        explain (bool): whether the plan is asked for, not the answer.

    Example:
        >>> Question(plan, (Archived(archive, "clicks", "json", "ts"),)).explain
        False
    """

    plan: Plan
    archived: tuple[Archived, ...]
    streams: tuple[ArchivedStream, ...] = ()
    explain: bool = False

    @property
    def bytes(self) -> int:
        """Of the files of its span, at most so many are read.

        Example:
            >>> Question(plan, (Archived(archive, "clicks", "json", "ts"),)).bytes
            0
        """
        return sum(file.about.bytes for stream in self.streams for file in stream.files)


def question(
    text: str,
    archives: Sequence[str],
    span: Span | None = None,
    *,
    columns: Mapping[str, ColumnType] | None = None,
    tables: Mapping[str, bytes] | None = None,
    schemas: Mapping[str, Schema] | None = None,
    texts: Mapping[str, str] | None = None,
) -> Question:
    """Plan a text over archives.

    Args:
        text (str): one SELECT, after ``CREATE JOB`` for each job that it reads and ``CREATE AGGREGATE`` for
            each aggregate of one's own that it calls; or ``EXPLAIN OFFLINE`` of it.
        archives (Sequence[str]): their paths or URIs, ``archive.path`` of the agents.
        span (tuple[int, int] | None): event times ``[from, to)`` in µs since the epoch; None: all.
        columns (Mapping[str, str] | None): types that are declared; all others are those of samples.
        tables (Mapping[str, bytes] | None): contents of the files that the query joins, by name.
        schemas (Mapping[str, Schema] | None): of streams whose columns are known, and not told from samples.
        texts (Mapping[str, str] | None): texts of the files that ``CREATE AGGREGATE`` names, by name.

    Returns:
        Question: what ``spark_backend.offline.answer`` takes.

    Raises:
        UserError: for a text that is no such query, one that only the live engine answers, a stream or a
            range that is not in the archives, and archives that cannot be read.

    Example:
        >>> asked = question("SELECT COUNT(*) AS n FROM clicks", [archive])
        >>> asked.archived[0].stream, asked.archived[0].format, asked.plan.outputs
        ('clicks', 'json', ('n',))
    """
    statements = parse(text)
    owns = _owns(statements, texts or {})
    statements = [one for one in statements if not isinstance(one, CreateAggregate)]
    query = _select(statements)
    targets = targets_of(archives)
    known: dict[str, Read] = {}
    looked: dict[str, ArchivedStream] = {}
    fixed = schemas or {}

    def made(one: Query) -> Plan:
        expanded = jobs.expand(one, lambda name: _job(known, name))
        one = expanded.query
        if planner.late_of(one) is not None:
            raise UserError(f"{_LIVE} FROM LATE: which rows came late is not in the archive")
        named = expanded.streams or planner.streams_of(one)
        streams = streams_in(targets) if named == "*" else tuple(named)
        if missing := [name for name in streams if name not in looked]:
            looked.update((of.stream, of) for of in archived_streams(targets, missing, span, columns or {}))
        columns_of = {name: fixed.get(name, looked[name].schema) for name in streams}
        try:
            joined = files.tables_of(one, dict(tables or {}))
            plan = planner.plan_streams(one, columns_of, joined, owns=owns)
        except ColumnError as error:
            raise _with_way_out(error, [looked[name] for name in streams]) from None
        return expanded.finish(plan)

    for job in statements[:-1]:
        if isinstance(job, CreateJob):
            known[job.name] = Read.of(job.name, job.name, made(job.query))
    plan = made(query)
    check(plan)
    archived = tuple(
        Archived(path, name, looked[name].format_text, looked[name].timestamp)
        for name in plan.streams
        for path in archives
    )
    streams = tuple(looked[name] for name in plan.streams)
    return Question(plan, archived, streams, isinstance(statements[-1], Explain))


_LIVE = "only the live engine answers"


def check(plan: Plan) -> None:
    """Raise ``UserError`` for a plan that Spark does not run, which says why."""
    if functions := functions_of(plan):
        names = ", ".join(f"{one.kind} of {one.filename}" for one in functions)
        raise UserError(f"{_LIVE} a query with a function of its own ({names}): Spark does not run it")
    if plan.fragment.late_of:
        raise UserError(f"{_LIVE} FROM LATE: which rows came late is not in the archive")
    if not plan.spark_sql:
        raise UserError(
            f"{_LIVE} windows of rows: where they began to be counted is not in the archive; "
            "say their length in time (WINDOWING 10 SECONDS), or ask elf run --archive"
        )


def _owns(statements: Sequence[Statement], texts: Mapping[str, str]) -> dict[str, OwnAggregate]:
    """The aggregates that a text creates. Raises ``UserError``."""
    found: dict[str, OwnAggregate] = {}
    for one in statements:
        if isinstance(one, CreateAggregate):
            if one.file not in texts:
                raise UserError(f"the text of {one.file} did not come with the statement")
            found[one.name] = OwnAggregate(one.name, texts[one.file], Path(one.file).name)
            _ = found[one.name].signature
    return found


def _select(statements: Sequence[Statement]) -> Query:
    """The query whose answer, or plan, is asked for. Raises ``UserError``."""
    match statements[-1] if statements else None:
        case Select(query=query):
            pass
        case Explain(target=Query() as query, offline=True):
            pass
        case _:
            raise UserError(ONE_SELECT)
    if not all(isinstance(one, CreateJob) for one in statements[:-1]):
        raise UserError(ONE_SELECT)
    if is_look(query):
        raise UserError(
            "a SELECT without groups shows some rows of a live stream; of an archive ask for groups: "
            "SELECT …, COUNT(*) … GROUP BY …"
        )
    return query


def _job(known: Mapping[str, Read], name: str) -> Read:
    if name not in known:
        raise UserError(f"there is no job {name} here: put its CREATE JOB … before the SELECT, or use --job")
    return known[name]


def _with_way_out(error: ColumnError, streams: Sequence[ArchivedStream]) -> UserError:
    """What is wrong with a column, and how it is declared, if its streams let it."""
    if not error.type and not any(one.format.name in OPEN_FORMATS for one in streams):
        return error
    way = f"declare it: --column '{error.name}={error.type or 'TYPE'}'"
    return error.with_way_out(f"{'or' if error.type else 'if no sample shows it,'} {way}")
