"""A query over the archive, by Spark: any query (``answer``), or what the windows of a job should have been
(``run``).

Rules: only the hours that the windows can hold rows of are listed and read; the columns are the job's, typed
as the agents typed them (``agents.formats``); event time is the one that was archived with the line. Rows
without event time belong to no window. The result has every window that lies wholly within the span asked
for, whether it was asked for or not, so that a comparison sees rows in windows that the live side never
committed.

It must never parse a line in Python.

In the examples ``spark`` is a session, and ``archive`` a folder with an archive of the stream ``clicks``: two
lines in JSON, of one product, in the first second of 2026. ``plan`` counts them by product, in windows of ten
seconds.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from typing import Final
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from agents.archive.contents import contents
from agents.archive.manifest import File
from agents.archive.partitions import ArchiveError, Target
from agents.archive.pieces import SORTED
from agents.archive.summaries import blooms_of, may_hold
from agents.formats import get_format
from elf.batch import decode
from elf.ql.lookups import lookups_in
from elf.ql.own import owns_of
from elf.ql.plan import Condition, Fragment, Plan
from elf.ql.render import TYPES
from elf.ql.render_spark import since
from elf.ql.unions import side_view, view_of
from elf.schema import LABELS, ColumnType, is_origin
from elf.windows import Landmark, Session
from spark_backend import aggregates, graphs, lookups
from spark_backend.session import SparkFailed, failing

VIEW: Final = "rows"
LINES: Final = "lines"
_LINES: Final = (
    "line STRING, ts TIMESTAMP, source STRING, log STRING, position BIGINT, "
    "stream STRING, date STRING, hour STRING, agent STRING"
)
_FACTS: Final = "agent_name STRING, labels MAP<STRING, STRING>"
_ONE_BY_ONE: Final = "spark.sql.sources.parallelPartitionDiscovery.threshold"
_LOCAL_MAX: Final = 10_000
_AWAY_MAX: Final = 32
"""So many files at most are looked at by the driver; for more, tasks are made, which takes longer where files
are near."""
_SCHEMES: Final = {"s3": "s3a", "gcs": "gs"}
"""What Hadoop calls the file systems that Arrow calls otherwise."""
_ARROWS: Final = {hadoop: arrow for arrow, hadoop in _SCHEMES.items()}


@dataclass(frozen=True)
class Archived:
    """A stream in an archive, as its members describe it.

    Attributes:
        path (str): the folder, or the URI of an object store.
        stream (str): the stream.
        format (str): the format of its lines, such as ``json``.
        timestamp (str | None): the column that event time is read from; None: the format knows.

    Example:
        >>> Archived("s3://logs/archive", "clicks", "json", "ts").stream
        'clicks'
    """

    path: str
    stream: str
    format: str
    timestamp: str | None


Damaged = Callable[[str, str], None]
"""Is told the path of a file, and why it cannot be read."""


def refuse(path: str, why: str) -> None:
    raise ArchiveError(f"{path} is damaged ({why}): put a copy of it back")


def run(
    spark: SparkSession,
    plan: Plan,
    archived: Sequence[Archived],
    windows: Sequence[tuple[int, int]],
    damaged: Damaged | None = refuse,
) -> pa.Table:
    """Run a job's query over archived lines: what its windows should have been.

    Args:
        spark (SparkSession): of ``spark_backend.session.opened``.
        plan (Plan): the job's plan, ``CompareFacts.job.spec.plan``.
        archived (Sequence[Archived]): where the lines of its streams are.
        windows (Sequence[tuple[int, int]]): start and end of the windows, in µs since the epoch; empty for a
            job without windows. All windows in their span are computed.
        damaged (Damaged | None): called with the path of a file that is damaged, and why; the file is then
            left out, wholly. By default that is an error. None: no file is read to its end before Spark reads
            it, which fails where a checksum is wrong.

    Returns:
        pyarrow.Table: ``window_start`` and ``window_end`` (timestamps) first when the job has windows, then
        the columns of the SELECT list.

    Raises:
        ArchiveError: when an archive cannot be listed, or a file not be read.
        SparkFailed: when Spark cannot run the query.

    Example:
        >>> first = 1_767_225_600_000_000
        >>> lines = Archived(archive, "clicks", "json", "ts")
        >>> table = run(spark, plan, [lines], windows=[(first, first + 10_000_000)])
        >>> table.column_names
        ['window_start', 'window_end', 'product', 'n']
        >>> table["product"].to_pylist(), table["n"].to_pylist()
        (['Doom'], [2])
    """
    span = _span(windows) if plan.windows else None
    with failing():
        _make_views(spark, plan, archived, None if span is None else reached(plan, span), damaged)
        graphs.register(spark, plan, lambda sql: _query(plan, sql, span))
        table = spark.sql(_query(plan, plan.spark_sql, span)).toArrow()
    return table if span is None else _within(table, span, min((end for _, end in windows), default=0))


def answer(
    spark: SparkSession,
    plan: Plan,
    archived: Sequence[Archived],
    span: tuple[int, int] | None = None,
    damaged: Damaged | None = None,
    *,
    explain: bool = False,
) -> DataFrame:
    """A query over archived lines, as a table of Spark's that nobody has computed yet (``collected`` does);
    but for graphs, whose iterations are done here.

    Args:
        spark (SparkSession): of ``spark_backend.session.opened``.
        plan (Plan): the query's.
        archived (Sequence[Archived]): where the lines of its streams are.
        span (tuple[int, int] | None): event times ``[from, to)`` in µs since the epoch: the rows of a query
            without windows, and the windows that lie wholly within. None: everything.
        damaged (Damaged | None): as ``run`` takes it.
        explain (bool): whether the table is to be looked at and not computed: no graph is made then.

    Returns:
        pyspark.sql.DataFrame: ``window_start`` and ``window_end`` first when the query has windows, then the
        columns of the SELECT list; in the query's order.

    Raises:
        ArchiveError: when an archive cannot be listed, or a file not be read.
        SparkFailed: when Spark does not take the query.

    Example:
        >>> lines = Archived(archive, "clicks", "json", "ts")
        >>> collected(answer(spark, plan, [lines])).num_rows
        1
    """
    with failing():
        _make_views(spark, plan, archived, None if span is None else reached(plan, span), damaged)
        graphs.register(spark, plan, explain=explain)
        found = spark.sql(plan.spark_sql)
        if span is None or not plan.windows:
            return found
        start, end = (F.timestamp_micros(F.lit(us)) for us in span)
        return found.where((F.col("window_start") >= start) & (F.col("window_end") <= end))


def collected(found: DataFrame) -> pa.Table:
    """Compute a table of Spark's.

    Args:
        found (pyspark.sql.DataFrame): of ``answer``.

    Returns:
        pyarrow.Table: its rows in their order.

    Raises:
        ArchiveError: when a file that it reads is damaged.
        SparkFailed: when Spark cannot compute it for another reason.

    Example:
        >>> collected(spark.sql("SELECT 1 AS one")).to_pylist()
        [{'one': 1}]
    """
    try:
        with failing():
            return found.toArrow()
    except SparkFailed:
        for uri in found.inputFiles():
            _check(uri)
        raise


def _check(uri: str) -> None:
    """Raises ``ArchiveError`` for a file of Spark's, by its URI, that is damaged."""
    scheme, _, rest = uri.partition(":")
    folder, _, name = f"{_ARROWS.get(scheme, scheme)}:{rest}".rpartition("/")
    target = Target(folder)
    path = f"{target.root}/{unquote(name)}"
    if why := target.damage(path):
        refuse(path, why)


def reached(plan: Plan, span: tuple[int, int]) -> tuple[int, int]:
    """The event times of the rows that windows within the span may need: of a session, those that decide
    where its chain is cut (``elf.windows.kinds``)."""
    before, after = plan.reach
    sessions = [kind.half_us + kind.gap_us for kind in plan.windows if isinstance(kind, Session)]
    return span[0] - max([before, *sessions]), span[1] + after


def _make_views(
    spark: SparkSession,
    plan: Plan,
    archived: Sequence[Archived],
    span: tuple[int, int] | None,
    damaged: Damaged | None,
) -> None:
    """All that the query of a plan reads."""
    for number, side in enumerate(plan.sides):
        own = {fragment.stream for fragment in (side.fragment, *side.more)}
        read = archived if len(plan.streams) == 1 else [one for one in archived if one.stream in own]
        _register(spark, side, number, read, span, damaged)
    for joined in dict.fromkeys(table for one in plan.unranged for table in one.tables):
        spark.createDataFrame(zoned(decode(joined.data))).createOrReplaceTempView(joined.relation)
    lookups.register(spark, lookups_in(plan.spark_sql))
    aggregates.register(spark, owns_of(plan.unranged))


def lacking(archived: Sequence[Archived], span: tuple[int, int] | None) -> list[str]:
    """What retention has deleted of what a query reads.

    Args:
        archived (Sequence[Archived]): where the lines of its streams are.
        span (tuple[int, int] | None): event times, in µs since the epoch; None: all.

    Returns:
        list[str]: a line for each agent and stream, such as ``access: web-1 has deleted 1,200 rows of
        2026-11-26 09:00 to 12:00``; empty when nothing is gone.

    Raises:
        ArchiveError: when an archive cannot be read.

    Example:
        >>> lacking([Archived(archive, "clicks", "json", "ts")], None)
        []
    """
    return [
        f"{one.stream}: {line}"
        for one in archived
        for line in contents(Target(one.path), one.stream, *(span or (None, None))).lacking()
    ]


def _register(
    spark: SparkSession,
    side: Plan,
    number: int,
    archived: Sequence[Archived],
    span: tuple[int, int] | None,
    damaged: Damaged | None,
) -> None:
    """The views of one side of a plan."""
    whole = (side.fragment, *side.more)
    reads = {
        one.stream: next((f for f in whole if f.stream == one.stream), side.fragment) for one in archived
    }
    parts = [(one.stream, rows_of(spark, reads[one.stream], one, span, damaged)) for one in archived]
    for stream in dict.fromkeys(name for name, _ in parts) if side.apart else [None]:
        rows = reduce(
            lambda one, other: one.unionByName(other, allowMissingColumns=True),
            [part for name, part in parts if stream in (None, name)],
        )
        rows.createOrReplaceTempView(side_view(number, VIEW if stream is None else view_of(stream)))


def zoned(table: pa.Table) -> pa.Table:
    """A table with its timestamps in UTC: to Spark those without a zone are another type.

    Args:
        table (pyarrow.Table): a table to join.

    Returns:
        pyarrow.Table: the same, with timestamp[us, UTC] for every timestamp.

    Raises:
        pyarrow.ArrowInvalid: for a timestamp finer than a microsecond.

    Example:
        >>> zoned(pa.table({"at": pa.array([0], pa.timestamp("us"))})).schema.field("at").type
        TimestampType(timestamp[us, tz=UTC])
    """
    zoned = [
        field.with_type(pa.timestamp("us", "UTC")) if pa.types.is_timestamp(field.type) else field
        for field in table.schema
    ]
    return table.cast(pa.schema(zoned))


def _query(plan: Plan, sql: str, span: tuple[int, int] | None) -> str:
    """Landmark windows begin where the live ones do, even if no row came for a while."""
    if span is None or not any(isinstance(kind, Landmark) for kind in plan.windows):
        return sql
    return since(sql, span[0])


def _span(windows: Sequence[tuple[int, int]]) -> tuple[int, int]:
    return min((start for start, _ in windows), default=0), max((end for _, end in windows), default=0)


def rows_of(
    spark: SparkSession,
    fragment: Fragment,
    one: Archived,
    span: tuple[int, int] | None,
    damaged: Damaged | None,
    files: Sequence[File] | None = None,
) -> DataFrame:
    """A fragment's columns, typed, and ``_ts``, of the lines whose event time is in the span (all, without
    one); of ``files`` alone, if they are given."""
    origins = [column.name for column in fragment.columns if is_origin(column.name)]
    lines_of(spark, one, span, damaged, origins, fragment, files).createOrReplaceTempView(LINES)
    read = [column for column in fragment.columns if not is_origin(column.name)]
    selection = get_format(one.format).archived_select(read)
    kept = {f"origin{number}": name for number, name in enumerate(origins)}
    return spark.sql(selection.sql(LINES, keep=list(kept), checked=False)).withColumnsRenamed(kept)


def _lines(
    spark: SparkSession,
    one: Archived,
    span: tuple[int, int] | None,
    damaged: Damaged | None,
    origins: Sequence[str],
    fragment: Fragment | None,
    files: Sequence[File] | None,
) -> DataFrame:
    """The archived records that a fragment can need, and as ``origin0`` … where they come from."""
    target = Target(one.path)
    files = _files(target, one.stream, span, damaged, fragment) if files is None else files
    if not files:
        lines = spark.createDataFrame([], f"{_LINES}, {_FACTS}")
    else:
        folder = target.stream_folder(one.stream)
        paths = [f"{folder}/{file.path}" for file in files]
        sorted_by = {} if fragment is None else _sorted_by(files, fragment)
        types = TYPES["spark"]
        more = "".join(f", {_key(name)} {types[kind]}" for name, kind in sorted_by.items())
        spark.conf.set(_ONE_BY_ONE, str(_LOCAL_MAX if target.local else _AWAY_MAX))
        reader = spark.read.schema(f"{_LINES}{more}").option("basePath", _uri(target, target.root))
        lines = reader.parquet(*(_uri(target, path) for path in paths))
        for condition in () if fragment is None else fragment.where:
            if (narrowed := _narrowed(condition, sorted_by)) is not None:
                lines = lines.where(narrowed)
        if any(name != "_source" for name in origins):
            lines = _with_facts(spark, lines, {path: target.facts(path) for path in paths})
    return lines.select("*", *(_origin(name).alias(f"origin{n}") for n, name in enumerate(origins)))


def _files(
    target: Target,
    stream: str,
    span: tuple[int, int] | None,
    damaged: Damaged | None,
    fragment: Fragment | None,
) -> list[File]:
    """Those with rows that a fragment can need, by what is known of them without reading them; whole as far
    as their sizes tell, and unless ``damaged`` is None, as their checksums tell."""
    found = contents(target, stream, *(span or (None, None)))
    folder = target.stream_folder(stream)
    where, columns = ((), ()) if fragment is None else (fragment.where, fragment.columns)
    types = {column.name: column.type for column in columns}
    spoilt, wanted = dict(found.damaged), []
    for file in found.files:
        path = f"{folder}/{file.path}"
        if not may_hold(file, where, types, partial(blooms_of, target, path)):
            continue
        if why := "" if damaged is None else target.damage(path):
            spoilt[file.path] = why
        else:
            wanted.append(file)
    for name, why in spoilt.items():
        (damaged or refuse)(f"{folder}/{name}", why)
    return wanted


def files_of(
    one: Archived, span: tuple[int, int] | None, fragment: Fragment, damaged: Damaged | None = None
) -> list[File]:
    """The files with rows that a fragment can need, by what is known of them without reading them.

    Args:
        one (Archived): where they are.
        span (tuple[int, int] | None): event times in µs; None: all.
        fragment (Fragment): what is asked of them.
        damaged (Damaged | None): as ``run`` takes it.

    Returns:
        list[File]: in the order of their paths.

    Raises:
        ArchiveError: when the archive cannot be listed, or a file of it is not there.

    Example:
        >>> len(files_of(Archived(archive, "clicks", "json", "ts"), None, plan.fragment))
        1
    """
    return _files(Target(one.path), one.stream, span, damaged, fragment)


def _sorted_by(files: Sequence[File], fragment: Fragment) -> dict[str, ColumnType]:
    """The columns that some of the files are sorted by, with the types that the query has for them: the rows
    have their values beside the line (``agents.recluster``). Those of times are of no use to Spark."""
    types = {column.name: column.type for column in fragment.columns if column.type != "timestamp"}
    found = {(file.by, file.columns[file.by].kind) for file in files if file.by in file.columns}
    named = [name for name, _ in found]
    return {name: kind for name, kind in found if types.get(name) == kind and named.count(name) == 1}


def _key(name: str) -> str:
    """The column with the values of one that rows are sorted by, in SQL."""
    return "`" + f"{SORTED}{name}".replace("`", "``") + "`"


def _narrowed(condition: Condition, sorted_by: Mapping[str, ColumnType]) -> Column | None:
    """A condition by which Spark passes over row groups of files that are sorted; None: it says nothing of
    these. Of a file that is not, each row passes."""
    if condition.op not in _COMPARED or len(condition.parts) < 2:
        return None
    column, *constants = condition.parts
    kind = sorted_by.get(column.name) if column.op == "column" else None
    if kind is None or any(one.op != "constant" or one.kind != kind for one in constants):
        return None
    values = [F.lit(one.value) for one in constants]
    key = F.col(_key(column.name))
    return key.isNull() | _COMPARED[condition.op](key, values)


_COMPARED: Final[dict[str, Callable[[Column, list[Column]], Column]]] = {
    "=": lambda key, values: key == values[0],
    "<": lambda key, values: key < values[0],
    "<=": lambda key, values: key <= values[0],
    ">": lambda key, values: key > values[0],
    ">=": lambda key, values: key >= values[0],
    "in": lambda key, values: key.isin(*values),
}


def _with_facts(spark: SparkSession, lines: DataFrame, facts: Mapping[str, Mapping[str, str]]) -> DataFrame:
    """With what the agents have written about these files, by path."""
    about = {
        path.rsplit("/", 1)[1]: (of.get("agent_name"), json.loads(of.get("labels", "{}")))
        for path, of in facts.items()
    }
    table = spark.createDataFrame([(name, *of) for name, of in about.items()], f"file STRING, {_FACTS}")
    lines = lines.select("*", F.col("_metadata.file_name").alias("file"))
    return lines.join(F.broadcast(table), "file", "left")


def _origin(name: str) -> Column:
    if name == "_source":
        return F.col("log")
    return F.col("agent_name") if name == "_agent" else F.col("labels")[name.removeprefix(LABELS)]


def _uri(target: Target, path: str) -> str:
    """The path of a file system of pyarrow's as Spark names it."""
    if target.local:
        return f"file://{path}"
    scheme, _, rest = target.uri.partition("://")
    host = rest.split("/", 1)[0] if path.startswith("/") else ""  # object stores begin with the bucket
    return f"{_SCHEMES.get(scheme, scheme)}://{host}{path}"


def _within(table: pa.Table, span: tuple[int, int], first_end: int) -> pa.Table:
    """Windows in the span; those that ended before the first that was asked for are not known to be
    missing."""
    micros = pa.timestamp("us", "UTC")
    start, end = (table[name].cast(micros).cast(pa.int64()) for name in ("window_start", "window_end"))
    inside = pc.and_(pc.greater_equal(start, span[0]), pc.less_equal(end, span[1]))
    return table.filter(pc.and_(inside, pc.greater_equal(end, first_end)))


def lines_of(
    spark: SparkSession,
    one: Archived,
    span: tuple[int, int] | None,
    damaged: Damaged | None,
    origins: Sequence[str],
    fragment: Fragment | None = None,
    files: Sequence[File] | None = None,
) -> DataFrame:
    """The archived records of a stream whose event time is in a span, as they were archived, with columns
    ``origin0`` … for these columns about where they come from. With a ``fragment`` only those that it can
    need."""
    lines = _lines(spark, one, span, damaged, origins, fragment, files)
    if span is None:
        return lines
    first, end = (F.timestamp_micros(F.lit(us)) for us in span)
    return lines.where((F.col("ts") >= first) & (F.col("ts") < end))
