"""Windows of a job against its query over the archive, each judged by the plan of its own version.

Rules: a version that nobody knows any more, that read another stream, or that Spark cannot run (a function,
windows of rows) is named and not compared, and so are windows that a change of the job cut off. What Spark
finds in a window that the live side never committed counts only where this version was the job's.

The counts of rows are read from the archive only where something differs.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final

import pyarrow as pa
from pyspark.sql import SparkSession

from agents.answering.about import not_comparable
from agents.archive.contents import contents
from agents.archive.partitions import Target
from elf.client import CompareFacts, Window, split
from elf.client.values import for_terminal
from elf.errors import UserError
from elf.job.spec import END_OF_TIME
from elf.ql.plan import Plan
from spark_backend import offline
from spark_backend.census import census
from spark_backend.compare import Bounds, Comparison, LiveWindow, Reason, Verdict, compare
from spark_backend.reasons import Census, Hole, explain, shape_of

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_HOUR_US: Final = 3_600_000_000
_HOUR: Final = re.compile(r"/date=(\d{4}-\d\d-\d\d)/hour=(\d\d)/")

Spark = SparkSession
Chosen = Callable[[Bounds], bool]
"""Whether a window is to be judged."""
Versions = Mapping[int, Plan]


def windows_of(facts: CompareFacts) -> dict[Bounds, Window]:
    """The last word on each window that is known.

    Args:
        facts (CompareFacts): of ``Client.compare_facts``.

    Returns:
        dict[Bounds, Window]: by start and end in µs since the epoch, in order. Early results are none.

    Raises:
        PeerError: when a result is no table.

    Example:
        >>> [(end - start) // 1_000_000 for start, end in windows_of(facts)]
        [10]
    """
    found: dict[Bounds, Window] = {}
    for result in facts.job.windows:
        for window in split(result):
            bounds = (_us(window.start), _us(window.end))
            last = found.get(bounds)
            counts = not window.provisional and not window.early
            if counts and (last is None or _rank(last) <= _rank(window)):
                found[bounds] = window
    return dict(sorted(found.items()))


def judge(
    spark: SparkSession,
    facts: CompareFacts,
    chosen: Chosen = lambda _: True,
    damaged: offline.Damaged = lambda path, why: None,
) -> Comparison:
    """Judge the windows of a job, each with its reasons where it differs.

    Args:
        spark (SparkSession): of ``spark_backend.session.opened``.
        facts (CompareFacts): of ``Client.compare_facts``, with all versions.
        chosen (Chosen): which windows; all by default. The others' counters still serve as reasons.
        damaged (Damaged): is told each file that is left out, once, and why.

    Returns:
        Comparison: verdicts by start of the windows.

    Raises:
        UserError: when an archive cannot be listed, or a file not be read, or Spark cannot run a query.

    Example:
        >>> judge(spark, facts).outcome.name
        'EQUAL'
    """
    windows = windows_of(facts)
    statuses = {bounds: window.status for bounds, window in windows.items()}
    holes = [Hole(f"{for_terminal(name)} was not reached") for name in silent(facts)]
    holes += [Hole(f"{for_terminal(name)} keeps no archive") for name in without_archive(facts)]
    told: dict[str, str] = {}

    def leave_out(path: str, why: str) -> None:
        if path not in told:
            told[path] = why
            holes.append(_hole(path))
            damaged(path, why)

    verdicts: list[Verdict] = []
    by_version: dict[int, dict[Bounds, Window]] = defaultdict(dict)
    for bounds, window in windows.items():
        if chosen(bounds):
            by_version[window.version][bounds] = window
    for version, own in sorted(by_version.items()):
        plan, why = _plan_of(facts, version)
        if plan is None:
            verdicts += [_not_compared(one, window, Reason("version", why)) for one, window in own.items()]
            continue
        cut = {one: window for one, window in own.items() if window.status.get("skipped")}
        verdicts += [_not_compared(one, window, _CUT) for one, window in cut.items()]
        live = {one: window for one, window in own.items() if one not in cut}
        try:
            verdicts += _judged(spark, facts, version, plan, live, windows, statuses, holes, leave_out)
        except OSError as error:  # a file went after it was listed
            raise UserError(f"the archive cannot be read: {error}; try again") from None
    verdicts.sort(key=lambda one: (one.start_us, one.end_us))
    return Comparison(facts.job.spec.plan.outputs, tuple(verdicts))


_CUT: Final = Reason("skipped", "a change of the job cut it off: it has no rows to compare")


def _judged(
    spark: SparkSession,
    facts: CompareFacts,
    version: int,
    plan: Plan,
    live: Mapping[Bounds, Window],
    windows: Mapping[Bounds, Window],
    statuses: Mapping[Bounds, Mapping[str, object]],
    holes: Sequence[Hole],
    damaged: offline.Damaged,
) -> list[Verdict]:
    """The windows of one version."""
    if not live:
        return []
    archived = [
        offline.Archived(path, source.stream, source.format, source.timestamp)
        for source in facts.archives
        if source.stream in plan.streams
        for path in source.archives
    ]
    rows = offline.run(spark, plan, archived, list(live), damaged)
    rows = _own(rows, live, windows, _time_of(facts, version))
    shape = shape_of(plan)
    side = [LiveWindow(*one, window.revision, window.status, window.table) for one, window in live.items()]
    verdicts = compare(side, rows, shape.keys).windows
    if all(verdict.equal for verdict in verdicts):
        return list(verdicts)
    counted = Census({})
    if shape.countable and plan.fragment.pane_us:
        spans = {(one.start_us, one.end_us) for one in verdicts}
        spans |= _before(spans, [one for one, window in windows.items() if window.version == version])
        counted = census(spark, plan.fragment.pane_us, archived, sorted(spans), damaged)
    return explain(verdicts, statuses, counted, shape, [*holes, *_deleted(archived)])


def _deleted(archived: Sequence[offline.Archived]) -> list[Hole]:
    """What agents have deleted of their archives, by hour."""
    found = []
    for one in archived:
        shown = contents(Target(one.path), one.stream)
        for agent, gone in shown.gone.items():
            name = for_terminal(shown.names.get(agent) or agent)
            for some in gone:
                text = f"{name} has deleted {some.rows:,} rows of {one.stream}"
                if some.hour is not None:
                    found.append(Hole(text, some.hour * _HOUR_US, (some.hour + 1) * _HOUR_US))
    return found


def _before(spans: Collection[Bounds], known: Sequence[Bounds]) -> set[Bounds]:
    """The windows of the same hours that end no later: rows that are counted as left out may be theirs."""
    first, last = min(start for start, _ in spans), max(end for _, end in spans)
    return {one for one in known if one[0] >= first - first % _HOUR_US and one[1] <= last}


def _own(
    rows: pa.Table, live: Collection[Bounds], windows: Collection[Bounds], time: tuple[int, int]
) -> pa.Table:
    """The rows of these windows, and of windows of the version's own time that nobody knows."""
    if rows.column_names[:2] != ["window_start", "window_end"] or not rows.num_rows:
        return rows
    starts, ends = (
        rows[name].cast(pa.timestamp("us", "UTC")).cast(pa.int64()).to_pylist()
        for name in ("window_start", "window_end")
    )
    keep = [
        one in live or (one not in windows and time[0] <= one[0] < time[1])
        for one in zip(starts, ends, strict=True)
    ]
    return rows.filter(pa.array(keep)) if not all(keep) else rows


def _plan_of(facts: CompareFacts, version: int) -> tuple[Plan | None, str]:
    """The plan of a version; or why its windows cannot be compared."""
    records = {record.spec.version: record.spec for record in facts.job.versions}
    spec = {**records, facts.job.spec.version: facts.job.spec}.get(version)
    if spec is None:
        return None, f"version {version} of the job is not known any more"
    if spec.unusable:
        return None, f"version {version} of the job is not understood here: {spec.unusable}"
    if why := not_comparable(spec.plan):
        return None, f"version {version} {why}"
    others = set(spec.plan.streams) - {source.stream for source in facts.archives}
    if others:
        return None, f"version {version} reads {', '.join(sorted(others))}, which the job reads no more"
    return spec.plan, ""


def _time_of(facts: CompareFacts, version: int) -> tuple[int, int]:
    """Where windows of a version start, in µs: from here, and before there."""
    for record in facts.job.versions:
        if record.spec.version == version:
            pane_us = record.spec.plan.fragment.pane_us
            first = -END_OF_TIME if record.first_pane is None else record.first_pane * pane_us
            return first, min(record.until_us, record.cut_us)
    return -END_OF_TIME, END_OF_TIME


def _not_compared(bounds: Bounds, window: Window, reason: Reason) -> Verdict:
    return Verdict(
        *bounds,
        window.revision,
        window.status,
        live_rows=window.table.num_rows,
        offline_rows=0,
        reasons=(reason,),
        compared=False,
    )


def silent(facts: CompareFacts) -> list[str]:
    """The agents whose archives were not reached.

    Args:
        facts (CompareFacts): of ``Client.compare_facts``.

    Returns:
        list[str]: their names, each once.

    Raises:
        Nothing.

    Example:
        >>> silent(facts)
        []
    """
    return list(dict.fromkeys(name for source in facts.archives for name in source.silent))


def without_archive(facts: CompareFacts) -> list[str]:
    """The agents that keep no archive (``archive: off``).

    Args:
        facts (CompareFacts): of ``Client.compare_facts``.

    Returns:
        list[str]: their names, each once.

    Raises:
        Nothing.

    Example:
        >>> without_archive(facts)
        []
    """
    return list(dict.fromkeys(name for source in facts.archives for name in source.off))


def _hole(path: str) -> Hole:
    """Of a file that is left out: the hour that is in its name."""
    match = _HOUR.search(path)
    if match is None:
        return Hole(f"{path} is damaged")
    start = _us(datetime.fromisoformat(f"{match[1]}T{match[2]}:00:00+00:00"))
    return Hole(f"{path} is damaged", start, start + _HOUR_US)


def _rank(window: Window) -> tuple[int, int]:
    return window.version, window.revision


def _us(moment: datetime | None) -> int:
    """Microseconds since the epoch; 0 for the bounds of a job without windows."""
    if moment is None:
        return 0
    since = moment - _EPOCH
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


def is_gone(spark: Spark) -> bool:
    """Whether a session's Java has ended, so that nothing works any more.

    Args:
        spark (Spark): of ``spark_backend.session.opened``.

    Returns:
        bool: false of a session that merely could not run a query.

    Raises:
        Nothing.

    Example:
        >>> is_gone(spark)
        False
    """
    try:
        spark.sql("SELECT 1").collect()
    except Exception:  # Py4J's, of a socket, or Spark's
        return True
    return False


def updated(comparison: Comparison, judged: Comparison) -> Comparison:
    """A comparison with some windows judged again.

    Args:
        comparison (Comparison): all windows.
        judged (Comparison): those that were judged again, and others.

    Returns:
        Comparison: the later verdict on each window, by start.

    Raises:
        Nothing.

    Example:
        >>> window = Verdict(0, 60_000_000, 0, {}, live_rows=2, offline_rows=2)
        >>> updated(Comparison(("n",)), Comparison(("n",), (window,))).equal_windows
        1
    """
    verdicts = {(one.start_us, one.end_us): one for both in (comparison, judged) for one in both.windows}
    return Comparison(judged.columns, tuple(verdicts[bounds] for bounds in sorted(verdicts)))
