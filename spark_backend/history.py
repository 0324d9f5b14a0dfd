"""The windows of before a job began, made by Spark from the archive.

A window is made by one side. Where the job has begun, its windows and all that start later are its own; those
that start before are made here, wholly, also those that reach beyond that moment: the archive has their rows
by the time that the job has committed a window that ends later.

Rules: nothing is made of windows without ends of their own (sessions, landmarks): of a session that lies
across the moment each side would have a part. What retention has deleted is named in the windows that lack
it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import pyarrow as pa

from agents.archive.contents import contents
from agents.archive.partitions import HOUR_US, Target
from agents.committing.status import STATUS_SCHEMA
from elf.batch import NO_CAST, encode
from elf.client import CompareFacts
from elf.client.values import for_terminal
from elf.errors import UserError
from elf.job.counters import COUNTER_COLUMNS
from elf.ql.plan import Plan
from elf.windows import Sliding
from elf.wire.clients import Filled
from spark_backend import offline
from spark_backend.census import census
from spark_backend.compare import Bounds
from spark_backend.judging import Spark, windows_of
from spark_backend.queries import check

WINDOWS_AT_ONCE: Final = 1_000
"""Windows that Spark makes in one query."""
_US: Final = pa.timestamp("us")


def begins_us(facts: CompareFacts) -> int:
    """Where a job began.

    Args:
        facts (CompareFacts): of ``Client.compare_facts``, with all versions.

    Returns:
        int: its windows start then or later, whichever version makes them; µs since the epoch.

    Raises:
        UserError: for a job that has not committed a window yet, and one whose windows have no ends of their
            own, or that Spark does not run.

    Example:
        >>> begins_us(facts)
        Traceback (most recent call last):
        elf.errors.UserError: job busy has not committed any window yet; try again later
    """
    spec = facts.job.spec
    check(spec.plan)
    if not spec.plan.windows or not all(isinstance(kind, Sliding) for kind in spec.plan.windows):
        raise UserError(
            f"job {spec.name} has windows whose ends depend on their rows, or none: of these each side would "
            "have a part; elf offline run answers its query over all of the archive"
        )
    if min((one.spec.version for one in facts.job.versions), default=1) > 1:
        raise UserError(
            f"job {spec.name}: its first version is not known any more, and so not where it began"
        )
    begun = [one for one in facts.job.versions if one.first_pane is not None]
    if not begun or not windows_of(facts):
        raise UserError(f"job {spec.name} has not committed any window yet; try again later")
    return min((one.first_pane or 0) * one.spec.plan.fragment.pane_us for one in begun)


def windows_before(plan: Plan, from_us: int, until_us: int) -> list[Bounds]:
    """The windows of a plan that start within a time.

    Args:
        plan (Plan): with tumbling and sliding windows alone.
        from_us (int): they start then or later, in µs since the epoch.
        until_us (int): they start before.

    Returns:
        list[Bounds]: start and end of each, by end and start.

    Raises:
        Nothing.

    Example:
        >>> windows_before(plan, 5_000_000, 30_000_000)
        [(10000000, 20000000), (20000000, 30000000)]
    """
    found = set[Bounds]()
    for kind in plan.windows:
        if isinstance(kind, Sliding):
            first = -(-from_us // kind.slide_us) * kind.slide_us
            found |= {(start, start + kind.size_us) for start in range(first, until_us, kind.slide_us)}
    return sorted(found, key=lambda one: (one[1], one[0]))


def filled(
    spark: Spark,
    facts: CompareFacts,
    archived: Sequence[offline.Archived],
    windows: Sequence[Bounds],
    damaged: offline.Damaged = offline.refuse,
) -> Iterator[Filled]:
    """Make windows of a job, with what each says about itself.

    Args:
        spark (Spark): of ``spark_backend.session.opened``.
        facts (CompareFacts): of the job.
        archived (Sequence[Archived]): where the lines of its streams are.
        windows (Sequence[Bounds]): those of ``windows_before``.
        damaged (Damaged): as ``spark_backend.offline.run`` takes it.

    Yields:
        Filled: the windows that end at one moment, in the order of their ends.

    Raises:
        ArchiveError: when an archive cannot be listed, or a file not be read.
        SparkFailed: when Spark cannot run the query.

    Example:
        >>> first = 1_767_225_600_000_000
        >>> lines = offline.Archived(archive, "clicks", "json", "ts")
        >>> made = list(filled(spark, facts, [lines], [(first, first + 10_000_000)]))
        >>> [(one.last_us - one.first_us) // 1_000_000 for one in made]
        [10]
    """
    spec, schema = facts.job.spec, _schema(facts)
    names, gone = _agents(archived)
    for at in range(0, len(windows), WINDOWS_AT_ONCE):
        some = windows[at : at + WINDOWS_AT_ONCE]
        rows = _by_window(_typed(offline.run(spark, spec.plan, archived, some, damaged), schema))
        counts = census(spark, spec.plan.fragment.pane_us, archived, some, lambda path, why: None)
        by_end: dict[int, list[Bounds]] = defaultdict(list)
        for one in some:
            by_end[one[1]].append(one)
        for end, own in sorted(by_end.items()):
            said = [_status(one, spec.version, counts.total(one), names, gone) for one in own]
            tables = [rows[one] for one in own if one in rows]
            payload = encode(pa.concat_tables(tables).combine_chunks()) if tables else _nothing(schema)
            status = pa.Table.from_pylist(said, schema=STATUS_SCHEMA)
            yield Filled(min(start for start, _ in own), end, encode(status), payload)


def _schema(facts: CompareFacts) -> pa.Schema | None:
    """The columns of the job's own rows, as far as one of its windows shows them."""
    tables = (
        window.table for window in windows_of(facts).values() if window.version == facts.job.spec.version
    )
    return next((table.schema for table in tables if table.num_rows), None)


def _typed(rows: pa.Table, schema: pa.Schema | None) -> pa.Table:
    """As the job's own rows are."""
    for place, name in enumerate(rows.column_names):
        kind = _US if name in ("window_start", "window_end") else None
        if kind is None and schema is not None and name in schema.names:
            kind = schema.field(name).type
        if kind is not None and rows.schema.field(place).type != kind:
            try:
                rows = rows.set_column(place, name, rows[name].cast(kind))
            except NO_CAST:
                continue
    return rows


def _by_window(rows: pa.Table) -> dict[Bounds, pa.Table]:
    """In the order of the query."""
    starts, ends = (rows[name].cast(pa.int64()).to_pylist() for name in ("window_start", "window_end"))
    places: dict[Bounds, list[int]] = defaultdict(list)
    for place, bounds in enumerate(zip(starts, ends, strict=True)):
        places[bounds].append(place)
    return {bounds: rows.take(pa.array(own)) for bounds, own in places.items()}


def _nothing(schema: pa.Schema | None) -> bytes:
    bounds = pa.schema([("window_start", _US), ("window_end", _US)])
    return encode((bounds if schema is None else schema).empty_table())


def _agents(archived: Sequence[offline.Archived]) -> tuple[list[str], Mapping[int, set[str]]]:
    """The names of the agents that have archived lines, and of those that have deleted some, by hour."""
    names, gone = set[str](), defaultdict[int, set[str]](set)
    for one in archived:
        shown = contents(Target(one.path), one.stream)
        called = {file.agent: file.agent for file in shown.files} | dict(shown.names)
        names |= {for_terminal(name or agent) for agent, name in called.items()}
        for agent, hours in shown.gone.items():
            for some in hours:
                if some.hour is not None:
                    gone[some.hour].add(for_terminal(called.get(agent) or agent))
    return sorted(names), gone


def _status(
    bounds: Bounds, version: int, rows: int, names: Sequence[str], gone: Mapping[int, set[str]]
) -> dict[str, object]:
    hours = range(bounds[0] // HOUR_US, -(-bounds[1] // HOUR_US))
    missing = sorted({name for hour in hours for name in gone.get(hour, ())})
    return {
        "window_start": bounds[0],
        "window_end": bounds[1],
        "revision": 0,
        "expected": len(names),
        "reported": len(names) - len(missing),
        "missing": missing,
        "covered": [],
        **dict.fromkeys(COUNTER_COLUMNS, 0),
        "rows_in": rows,
        "archived": rows,
        "gaps": [],
        "budgets": [],
        "skipped": False,
        "version": version,
        "function_failed": False,
        "offline": True,
    }
