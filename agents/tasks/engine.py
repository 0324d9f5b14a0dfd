"""DuckDB at the edge: lines to typed rows, rows to partial aggregates, groups to results.

Each object here owns a connection to the process's one DuckDB, in UTC, and one prepared statement over a
table whose batch is changed between runs. Not for several threads at once, but an object may move between
them. Close what you made.

DuckDB here reads and writes no file, loads no extension, sees no variable of Python's, and its settings stay
as they are: it has the tables that it is given (``instance``). What it runs is one SELECT (``one_select``).
"""

from __future__ import annotations

import atexit
import threading
import warnings
from collections.abc import Mapping, Sequence
from functools import cache, partial
from typing import Final

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from duckdb.func import FunctionNullHandling, PythonUDFType

from agents.formats import Format
from agents.formats.dialect import DUCKDB, DUCKDB_QUICK, Dialect, Selection
from agents.lookups import LOOKUPS
from agents.tasks.direct import no_panes
from agents.tasks.extracted import Extracted
from agents.tasks.memory import LIMIT
from agents.tasks.times import read_times
from elf.aggregates import normalise
from elf.batch import decode
from elf.errors import ElfBug, UserError
from elf.fields import replace
from elf.job.ports import FinisherPort, MapFailed, MapperPort, Wanted
from elf.job.worker.fitting import arrow_schema, as_schema
from elf.ql.graphs import GraphStep
from elf.ql.lookups import LOOKUPS as KNOWN_LOOKUPS
from elf.ql.lookups import lookups_in, sql_name
from elf.ql.plan import PLACES, Fragment, Plan, Table, side_groups
from elf.ql.render import TYPES
from elf.ql.tables import TABLE_BYTES_MAX
from elf.ql.timestamps import FIRST_US, LAST_US
from elf.schema import Column, alike

Int64s = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

_CAREFUL_CHUNKS: Final = 16
EVENT_FIRST_US: Final = FIRST_US + 365 * 86_400_000_000
EVENT_LAST_US: Final = LAST_US - 365 * 86_400_000_000
"""The years 2 to 9998 in µs since the epoch."""
_PANE: Final = pa.field("_pane", pa.int64())
_FEW_ROWS: Final = 4096
"""Up to so many the copy that ``execute`` makes of a result, of which DuckDB warns, is cheaper than the
second query that ``sql`` asks: JSON of 500 lines takes 1.7 ms, not 2.4. A kept relation would be planned
again each time (8.5 ms); one of ``EXECUTE`` keeps its first answer."""
_CONFINED: Final[dict[str, str | bool | int | float | list[str]]] = {
    "threads": 1,
    "async_threads": 0,
    "enable_external_access": False,
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
    "allow_community_extensions": False,
    "allow_persistent_secrets": False,
    "python_enable_replacements": False,
    "temp_directory": "",
    "allowed_configs": ["memory_limit"],
}
"""Nothing but memory and the tables that it is given. What may still be set is how much memory
(``agents.tasks.memory``)."""
warnings.filterwarnings("ignore", "Arrow output on a DB-API result", UserWarning, r"agents\.tasks\.engine")


class _Batch:
    """The table that a prepared statement reads: whatever was put into it last.

    DuckDB binds the object, not its contents, so a statement is prepared once and sees a new batch each time.
    """

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        self.table = schema.empty_table()

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.table.__arrow_c_stream__(requested_schema)


@cache
def instance() -> duckdb.DuckDBPyConnection:
    """The one DuckDB of the process: another would cost 4 MB where a connection costs 1. It has no thread of
    its own: each query runs on that of its caller, and a process may be forked after it (opening it takes 40
    ms of CPU). It is locked before anybody has it."""
    connection = _opened(_CONFINED)
    LIMIT.opened(lambda most: connection.execute(f"SET GLOBAL memory_limit = '{most >> 10}KiB'"))
    atexit.register(connection.close)
    return connection


def with_lookups() -> duckdb.DuckDBPyConnection:
    """The same, with the functions of ``elf.ql.lookups``."""
    with _REGISTERING:  # stream tasks begin at once, and DuckDB takes each name once
        _register_lookups()
    return instance()


_REGISTERING: Final = threading.Lock()


@cache
def _register_lookups() -> None:
    for name, lookup in KNOWN_LOOKUPS.items():
        instance().create_function(
            sql_name(name),
            partial(LOOKUPS.values, name),
            [TYPES["duckdb"]["text"]],
            TYPES["duckdb"][lookup.kind],
            type=PythonUDFType.ARROW,
            null_handling=FunctionNullHandling.SPECIAL,
            exception_handling=duckdb.PythonExceptionHandling.RETURN_NULL,
        )


def apart(memory_bytes: int) -> duckdb.DuckDBPyConnection:
    """A DuckDB of its own, confined as well, with so much memory: what it needs is not taken from the stream
    tasks. It is to be closed."""
    return _opened({**_CONFINED, "memory_limit": f"{memory_bytes >> 10}KiB"})


def _opened(config: dict[str, str | bool | int | float | list[str]]) -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect(":memory:", config=config)
    for setting in ("TimeZone = 'UTC'", "lock_configuration = true"):
        connection.execute(f"SET GLOBAL {setting}")
    return connection


def one_select(connection: duckdb.DuckDBPyConnection, sql: str) -> str:
    """The text, which is exactly one SELECT, as DuckDB itself reads it. Raises ``ElfBug``."""
    found = connection.extract_statements(sql)
    if len(found) != 1 or found[0].type != duckdb.StatementType.SELECT:
        raise ElfBug(f"DuckDB runs one SELECT, and this is {len(found)} statements or another kind\n{sql}")
    return sql


class Statement:
    """One SELECT over one table of a fixed schema, and over others that stay as they are, prepared."""

    def __init__(
        self, sql: str, table: str, schema: pa.Schema, others: Mapping[str, pa.Table] | None = None
    ) -> None:
        self._sql = sql
        self._table = table
        self._schema = schema
        self._batch = _Batch(schema)
        if (pair := alike(schema.names)) is not None:
            raise ElfBug(
                f"columns {pair} in one statement: DuckDB would read one of them for the other\n{sql}"
            )
        self._connection = (with_lookups() if lookups_in(sql) else instance()).cursor()
        try:
            self._connection.register(table, self._batch)
            for name, other in (others or {}).items():
                self._connection.register("other", other)
                self._connection.execute(f'CREATE TEMP TABLE "{name}" AS SELECT * FROM other')
                self._connection.unregister("other")
            self._connection.execute(f"PREPARE run AS {one_select(self._connection, sql)}")
        except duckdb.Error as error:
            self.close()
            raise ElfBug(f"DuckDB does not take a statement of ours: {error}\n{sql}") from error

    def run(self, table: pa.Table) -> pa.Table:
        """The result over these rows, which have the columns of the schema in any order."""
        self._batch.table = as_schema(self._schema, table)
        try:
            if table.num_rows < _FEW_ROWS:
                return self._connection.execute("EXECUTE run").to_arrow_table()
            return self._connection.sql("EXECUTE run").to_arrow_table()
        except duckdb.OutOfMemoryException as error:
            raise UserError(f"DuckDB needs more than its half of memory_max_bytes here: {error}") from error
        finally:
            self._batch.table = self._schema.empty_table()

    def close(self) -> None:
        """Lets go of the connection, and with it of the batch."""
        self._connection.close()


_LINES: Final = pa.schema([pa.field("line", pa.string())])


class SqlExtractor:
    """Lines of one format to typed columns, event time first, by DuckDB alone; and which rows are wanted.

    A statement that tries each line for itself costs a tenth more than one that fails as a whole on a line
    that does not parse; so the quick one is run until it fails, and the careful one for a while from then on.
    What is not needed yet is not prepared yet: preparing one takes longer than a thousand lines do.
    """

    def __init__(self, fmt: Format, event_time: str | None, wanted: Wanted) -> None:
        self._format = fmt
        columns = wanted.columns
        self._wanted, self._event_time = wanted, event_time
        self._numbered = alike(column.name for column in columns) is not None
        quick = self._select(DUCKDB_QUICK)
        self._quick_sql = _extraction(quick, wanted.where_sqls)
        self._schema = pa.schema([pa.field("_ts", pa.int64()), *arrow_schema(columns)])
        self._quick = Statement(self._quick_sql, "lines", _LINES)
        self._careful: Statement | None = None
        self._careful_left = 0
        self._times = Times(quick.dialect) if quick.event_text is not None else None

    def _select(self, dialect: Dialect) -> Selection:
        """Columns that differ by case (each for another job) are ``c0``, ``c1`` … there."""
        found = self._format.select(dialect, self._wanted.columns, self._event_time)
        if not self._numbered:
            return found
        numbered = (f"c{number}" for number, _ in enumerate(found.columns))
        return replace(found, columns=tuple(zip(numbered, (sql for _, sql in found.columns), strict=True)))

    def _careful_sql(self) -> str:
        return _extraction(self._select(DUCKDB), self._wanted.where_sqls)

    def extract(self, lines: pa.StringArray) -> Extracted:
        """Never fails on a line, whatever is in it (valid UTF-8 without NUL)."""
        found = self._read(pa.table({"line": lines}))
        valid = np.array(found["_ok"].to_numpy(), dtype=np.bool_)
        valid[self._format.refused(lines)] = False
        rejected = ~valid
        if (headings := self._format.headings(lines)) is not None:
            valid &= ~headings
            rejected &= ~headings
        if not valid.all():
            found = found.filter(pa.array(valid))
        if self._numbered:
            names = ("_ts", *(f"c{number}" for number, _ in enumerate(self._wanted.columns)))
            rows = found.select(names).rename_columns(self._schema.names)
        else:
            rows = found.select(self._schema.names)
        if self._times is not None:
            rows = rows.set_column(0, "_ts", self._times.read(rows["_ts"].combine_chunks()))
        rows = rows.set_column(0, "_ts", _in_reach(rows["_ts"].combine_chunks()))
        return Extracted(
            table=as_schema(self._schema, rows),
            accepted=np.flatnonzero(valid).astype(np.int64, copy=False),
            rejected=np.flatnonzero(rejected).astype(np.int64, copy=False),
            uncast=int(pc.sum(found["_uncast"]).as_py() or 0),
            wanted=found["_wanted"].to_numpy() if "_wanted" in found.column_names else None,
            beyond=(pc.sum(found["_beyond"]).as_py() or 0) if "_beyond" in found.column_names else 0,
        )

    def _read(self, lines: pa.Table) -> pa.Table:
        if not self._careful_left:
            try:
                return self._quick.run(lines)
            except (duckdb.Error, UnicodeDecodeError):  # the message has a piece of the line, cut anywhere
                if self._careful_sql() == self._quick_sql:
                    raise
                self._careful_left = _CAREFUL_CHUNKS
        if self._careful is None:
            self._careful = Statement(self._careful_sql(), "lines", _LINES)
        self._careful_left -= 1
        return self._careful.run(lines)

    def close(self) -> None:
        self._quick.close()
        if self._careful is not None:
            self._careful.close()
        if self._times is not None:
            self._times.close()


def _in_reach(us: pa.Array) -> pa.Array:
    """Event times of the years 2 to 9998, the others NULL: a window around one begins and ends in a year that
    can be written."""
    ends = pc.min_max(us)
    least, most = ends["min"].as_py(), ends["max"].as_py()
    if least is None or (least >= EVENT_FIRST_US and most <= EVENT_LAST_US):
        return us
    inside = pc.and_(pc.greater_equal(us, EVENT_FIRST_US), pc.less_equal(us, EVENT_LAST_US))
    return pc.if_else(inside, us, pa.scalar(None, us.type))


def _extraction(selection: Selection, where_sqls: Sequence[str]) -> str:
    """``_ok``, ``_uncast``, ``_ts`` and the columns; with conditions also ``_wanted``, and the columns of
    other rows NULL, which is cheaper to hand over."""
    every, also = selection.sql("lines", as_text=True), [] if selection.beyond is None else ["_beyond"]
    if not where_sqls:
        return every
    wanted = f"({' OR '.join(f'({where})' for where in where_sqls)}) IS TRUE"
    names = [DUCKDB.name(name) for name, _ in selection.columns]
    chosen = (f"CASE WHEN _wanted THEN {n} END AS {n}" for n in names)
    items = ["_ok", "_uncast", *also, "_ts", "_wanted", *chosen]
    return f"SELECT {', '.join(items)} FROM (SELECT *, {wanted} AS _wanted FROM ({every}) AS r)"


class Times:
    """Event times from text: the usual shape by ``read_times``, the rest by DuckDB (in a statement that takes
    7 ms to prepare, and few streams ever need)."""

    def __init__(self, dialect: Dialect = DUCKDB) -> None:
        self._dialect = dialect
        self._rest: Statement | None = None

    def read(self, texts: pa.StringArray) -> pa.Int64Array:
        """µs since the epoch; NULL where a text is no time."""
        us, done = read_times(texts)
        if done.all():
            return pa.array(us)
        left = pa.array(~done)
        if self._rest is None:
            sql = f"SELECT {self._dialect.time_us('text')} AS us FROM texts"
            self._rest = Statement(sql, "texts", pa.schema([pa.field("text", pa.string())]))
        rest = self._rest.run(pa.table({"text": texts.filter(left)}))["us"].combine_chunks()
        return pc.replace_with_mask(pa.array(us), left, rest.cast(pa.int64()))

    def close(self) -> None:
        if self._rest is not None:
            self._rest.close()


class Mapper(MapperPort):
    """A fragment's map over ``rows`` (``columns`` and ``_pane``; where it ``counts``, ``PLACES`` too) and
    ``tables``: typed rows to partial aggregates.

    Prepared in a quiet moment, or for the first rows: who installs a flow waits for the last agent of all.
    """

    def __init__(
        self, map_sql: str, columns: Sequence[Column], tables: Sequence[Table] = (), counts: bool = False
    ) -> None:
        self._sql = map_sql
        self._tables = tables
        self._lookups = lookups_in(map_sql)
        places = [pa.field(name, pa.int64()) for name in (PLACES if counts else ())]
        self.schema = pa.schema([*arrow_schema(columns), _PANE, *places])
        self._statement: Statement | None = None

    @classmethod
    def of(cls, fragment: Fragment) -> Mapper:
        return cls(fragment.map_sql, fragment.columns, fragment.tables, fragment.count is not None)

    def run(self, rows: pa.Table) -> pa.Table:
        """Columns as DuckDB gives them: a sum of integers is decimal128(38, 0). Raises ``MapFailed`` for rows
        that the map cannot take; what fails for want of memory or disk is the agent's trouble."""
        if rows.num_rows:
            self._check(rows.num_rows)
        try:
            return self._prepared().run(rows)
        except (duckdb.DataError, duckdb.ProgrammingError, duckdb.NotSupportedError) as error:
            raise MapFailed(f"the map fails: {error}", rows.num_rows, None) from error

    def prepare(self) -> None:
        """Raises ``MapFailed``."""
        self._check(0)
        self._prepared()

    def _check(self, rows: int) -> None:
        """A table that is not here is not one that has nothing."""
        if self._lookups and (why := LOOKUPS.lacking(self._lookups)):
            raise MapFailed(why, rows, None)

    def _prepared(self) -> Statement:
        if self._statement is None:
            others = {table.relation: decode(table.data, TABLE_BYTES_MAX) for table in self._tables}
            self._statement = Statement(self._sql, "rows", self.schema, others)
        return self._statement

    def close(self) -> None:
        if self._statement is not None:
            self._statement.close()


class Finisher(FinisherPort):
    """A plan's final fragment, its join of streams, if it has one, its stages, and the graphs before
    these."""

    def __init__(self, plan: Plan, whole: FinisherPort | None = None) -> None:
        """``whole``: the finisher of which it is a part, which says how it has failed."""
        self._whole = whole or self
        self._plan = plan
        self._final = _over(plan.final_sql, plan.sides)
        self._graphs = [(step, _over(step.sql, plan.sides)) for step in plan.graphs]
        self._join = OverGroups(plan.join.sql if plan.join is not None else "")
        self._stages = [OverGroups(stage.sql) for stage in plan.stages]
        self._staged = [[(step, OverGroups(step.sql)) for step in stage.graphs] for stage in plan.stages]
        self._beside = [Finisher(replace(side, beside=()), self._whole) for side in plan.beside]

    def run(self, groups: pa.Table, *beside: pa.Table) -> pa.Table:
        """The rows of the result, in its order. ``beside``: the groups of jobs that are joined; a table
        without columns is one without rows."""
        sides = zip(self._beside, self._plan.beside, beside, strict=True)
        beside = tuple(self._of_side(*one) for one in sides)
        return self._final.run(self._vertices(self._graphs, groups, *beside), *beside)

    def _of_side(self, finisher: Finisher, side: Plan, groups: pa.Table) -> pa.Table:
        """What a job that is joined has for the final fragment: its groups, or their vertices."""
        if not side.graphs:
            return groups
        groups = groups if groups.num_columns else no_groups(side)
        return self._vertices(finisher._graphs, groups)

    def _vertices(
        self, graphs: Sequence[tuple[GraphStep, OverGroups]], groups: pa.Table, *beside: pa.Table
    ) -> pa.Table:
        """What graphs make of groups. A window whose graph is refused has none."""
        if graphs:
            from agents.tasks.graphs import vertices  # scipy, which few need
        for step, edges in graphs:
            groups, refused, spans = vertices(step, edges.run(groups, *beside))
            if refused:
                self._whole.fail(refused, spans)
        return groups

    def join(self, groups: pa.Table) -> pa.Table:
        """Panes of joined rows, of the panes of both streams."""
        return self._join.run(groups)

    def stage(self, place: int, groups: pa.Table) -> pa.Table:
        """What larger windows are made of, of the groups of smaller ones."""
        return self._stages[place].run(self._vertices(self._staged[place], groups))

    def side(self, number: int) -> Finisher:
        """Join and stages of a job that is joined; the first side is the plan's own."""
        return self._beside[number - 1] if number else self

    def close(self) -> None:
        steps = [edges for graphs in (self._graphs, *self._staged) for _, edges in graphs]
        for one in (self._final, self._join, *self._stages, *steps):
            one.close()
        for side in self._beside:
            side.close()


class OverGroups:
    """A statement over ``groups``, whose columns may differ in type from one time to the next."""

    def __init__(self, sql: str) -> None:
        self._sql = sql
        self._statement: Statement | None = None
        self._schema: pa.Schema | None = None

    def run(self, groups: pa.Table, *beside: pa.Table) -> pa.Table:
        if self._statement is None or self._schema != groups.schema:
            self.close()
            self._statement = Statement(self._sql, "groups", groups.schema)
            self._schema = groups.schema
        try:
            return self._statement.run(groups)
        except duckdb.Error as error:
            raise UserError(f"DuckDB cannot make it of these groups: {error}") from error

    def close(self) -> None:
        if self._statement is not None:
            self._statement.close()
            self._statement = None


class _OverSides(OverGroups):
    """A statement over the groups of several jobs. It is planned each time: their types differ, and windows
    are few."""

    def __init__(self, sql: str, sides: Sequence[Plan]) -> None:
        super().__init__(sql)
        self._sides = sides

    def run(self, groups: pa.Table, *beside: pa.Table) -> pa.Table:
        connection = instance().cursor()
        try:
            for number, (side, table) in enumerate(zip(self._sides, (groups, *beside), strict=True)):
                known = table if table.num_columns else no_groups(side)
                connection.register(side_groups(number), known)
            return connection.execute(one_select(connection, self._sql)).to_arrow_table()
        except duckdb.Error as error:
            raise ElfBug(f"DuckDB does not take a statement of ours: {error}\n{self._sql}") from error
        finally:
            connection.close()


def _over(sql: str, sides: Sequence[Plan]) -> OverGroups:
    """A statement over the groups of these sides."""
    return _OverSides(sql, sides) if sides[1:] else OverGroups(sql)


def no_groups(plan: Plan) -> pa.Table:
    """The groups of no window, in their types."""
    finisher = Finisher(replace(plan, beside=()))
    try:
        made = no_panes(plan.fragment)
        if (ranges := plan.fragment.stage) is not None:
            made = normalise(OverGroups(ranges.sql).run(_windowed(made)), ranges.keys, ranges.states)
        if plan.join is not None:
            made = normalise(finisher.join(made), plan.join.keys, plan.join.states)
        for place, stage in enumerate(plan.stages):
            made = normalise(finisher.stage(place, _windowed(made)), stage.keys, stage.states)
        return _windowed(made)
    finally:
        finisher.close()


def _windowed(panes: pa.Table) -> pa.Table:
    bounds = [pa.array([], pa.timestamp("us")) for _ in range(2)]
    names = [name for name in panes.column_names if name != "_pane"]
    return pa.table([*bounds, *(panes[name] for name in names)], names=["window_start", "window_end", *names])
