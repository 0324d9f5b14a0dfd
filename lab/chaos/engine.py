"""What simulated agents compute with instead of DuckDB: lines are ``"<ts µs>,<key>"``, a query counts by
key."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from agents.answering.asks import Ask
from agents.tasks.aggregating import OwnMapper, valued
from agents.tasks.streams import FunctionsAt
from elf.aggregates import State, normalise
from elf.errors import ElfBug
from elf.fields import replace
from elf.functions import wire
from elf.functions.child import batch_of, code_of
from elf.functions.function import Done, Failed, UserFunction
from elf.functions.sandbox import Sandboxes
from elf.job.ports import FinisherPort, MapFailed, MapperPort, Wanted
from elf.job.program.runner import failure_of
from elf.job.program.spec import Tap
from elf.job.spec import Flow, JobSpec
from elf.ql.cells import COUNT
from elf.ql.definition import Contents, Definition, TapDefinition
from elf.ql.groups import Groups
from elf.ql.memo import Made, remember
from elf.ql.own import OwnAggregate
from elf.ql.plan import Fragment, Function, Plan, RangeStage, Stage, StreamJoin
from elf.schema import Column, Schema
from elf.windows import Kind, Sliding, pane_us_of
from elf.wire.base import Answer
from elf.wire.clients import Execute
from lab.chaos.partners import PyJoinMapper

STREAM, BUYS = "clicks", "buys"
GONE: Final = "gone for good"
"""Of an agent: with its disk."""
SECOND = 1_000_000
APART_US = (-1_200_000, 700_000)
"""Event time of a right row less that of its left partner, in a join."""
Side = tuple[int, str, int, int]
"""Pane, key, event time and count of rows of one side."""


@dataclass(frozen=True)
class Extracted:
    table: pa.Table
    accepted: np.ndarray
    rejected: np.ndarray
    uncast: int = 0
    beyond: int = 0
    wanted: np.ndarray | None = None


class PyExtractor:
    def extract(self, lines: pa.StringArray) -> Extracted:
        rows = [line.split(",") for line in lines.to_pylist()]
        table = pa.table(
            {"_ts": pa.array([int(r[0]) for r in rows], pa.int64()), "key": [r[1] for r in rows]}
        )
        return Extracted(table, np.arange(len(rows)), np.empty(0, np.int64))

    def prepare(self) -> None: ...

    def close(self) -> None: ...


CLASSED: Final = "and class "
"""In the map of a query that groups by the class of a key beside it."""

BUT: Final = " but those of "
"""Behind the map of a query that joins a table, before that: another map where the table is another one."""


def class_of(key: str) -> str:
    return "xyz"[ord(key[0]) % 3]


def where_of(fragment: Fragment) -> str:
    """The letters that the query's WHERE accepts; empty: all."""
    return fragment.map_sql.partition(BUT)[0].removeprefix("count by key ").removeprefix(CLASSED).strip()


class PyMapper(MapperPort):
    """``keys``: the letters that the query's WHERE accepts; empty: all. ``classed``: by class too."""

    def __init__(self, keys: str = "", *, classed: bool = False) -> None:
        self._keys = keys
        self._classed = classed

    def run(self, rows: pa.Table) -> pa.Table:
        pairs = zip(rows["_pane"].to_pylist(), rows["key"].to_pylist(), strict=True)
        counted = Counter(pair for pair in pairs if not self._keys or pair[1] in self._keys)
        panes, keys = [p for p, _ in counted], [k for _, k in counted]
        by = {"k1": pa.array(map(class_of, keys), pa.string())} if self._classed else {}
        return pa.table(
            {
                "_pane": pa.array(panes, pa.int64()),
                "k0": pa.array(keys, pa.string()),
                **by,
                "s0": pa.array(list(counted.values()), pa.int64()),
            }
        )

    def prepare(self) -> None: ...

    def close(self) -> None: ...


class PyEndsMapper(MapperPort):
    """The same with the first and the last event time, for sessions."""

    def run(self, rows: pa.Table) -> pa.Table:
        aggregates = [("_ts", "count"), ("_ts", "min"), ("_ts", "max")]
        found = rows.group_by(["_pane", "key"], use_threads=False).aggregate(aggregates)
        ends = [found[name].cast(pa.timestamp("us")) for name in ("_ts_min", "_ts_max")]
        names = ["_pane", "k0", "s0", "s1", "s2"]
        return pa.table([found["_pane"], found["key"], found["_ts_count"], *ends], names=names)

    def prepare(self) -> None: ...

    def close(self) -> None: ...


class PyEngine:
    def extractor(self, wanted: Wanted) -> PyExtractor:
        return PyExtractor()

    def mapper(self, fragment: Fragment) -> MapperPort:
        if fragment.tables:
            return PyJoinMapper(fragment.tables, self.mapper(replace(fragment, tables=())))
        if fragment.function is not None:
            return PyFunctionMapper(fragment.function, self.mapper(replace(fragment, function=None)))
        if fragment.owns:
            return OwnMapper(fragment, PyArgumentsMapper(self.mapper(unowned(fragment))), HERE)
        if fragment.cells:
            return PySideMapper(int(fragment.stream != STREAM))
        if len(fragment.states) > 1:
            return PyEndsMapper()
        return PyMapper(where_of(fragment), classed=len(fragment.keys) > 1)


@lru_cache
def py_types(fragment: Fragment) -> pa.Schema:
    """The columns that a fragment's map makes, as they are merged."""
    rows = pa.schema([("_ts", pa.int64()), ("key", pa.string()), ("_pane", pa.int64())]).empty_table()
    made = PyEngine().mapper(replace(fragment, function=None)).run(rows)
    return normalise(made, fragment.keys, fragment.states).schema


class PyFunctionMapper(MapperPort):
    """A map function before another mapper: it runs here, without a process or limits."""

    def __init__(self, function: Function, mapper: MapperPort) -> None:
        self._call = here(function)
        self._mapper = mapper

    def run(self, rows: pa.Table) -> pa.Table:
        """Raises ``MapFailed``, with the first row that fails by itself."""
        made = self._call(wire.one_batch(rows))
        if isinstance(made, Done):
            return self._mapper.run(pa.Table.from_batches([made.batch]))
        alone = (self._call(wire.one_batch(rows.slice(n, 1))) for n in range(rows.num_rows))
        row = next((n for n, one in enumerate(alone) if isinstance(one, Failed)), None)
        offset = rows["_offset"][row].as_py() if row is not None else None
        raise MapFailed(str(replace(made, row=row)), rows.num_rows, offset)

    def prepare(self) -> None: ...

    def close(self) -> None: ...


class PyArgumentsMapper(MapperPort):
    """The groups of another mapper, and beside each one row of arguments for each row that it counts."""

    def __init__(self, mapper: MapperPort) -> None:
        self._mapper = mapper

    def run(self, rows: pa.Table) -> pa.Table:
        groups = self._mapper.run(rows)
        again = np.repeat(np.arange(groups.num_rows), groups["s0"].to_numpy())
        given = groups.take(pa.array(again)).set_column(2, "s0", pa.array(np.zeros(len(again), np.int64)))
        ones = pa.StructArray.from_arrays([pa.array(np.ones(len(again), np.int64))], ["x0"])
        beside = ((groups, pa.nulls(groups.num_rows, ones.type), 0), (given, ones, 1))
        made = [
            table.add_column(2, "c0", cells).append_column(
                COUNT.name, pa.array(np.full(table.num_rows, count, np.int64))
            )
            for table, cells, count in beside
        ]
        return pa.concat_tables(made)

    def prepare(self) -> None: ...

    def close(self) -> None: ...


class PySideMapper(MapperPort):
    """The rows of one side of a join: by key, side and time."""

    def __init__(self, side: int) -> None:
        self._side = side

    def run(self, rows: pa.Table) -> pa.Table:
        found = rows.group_by(["_pane", "key", "_ts"], use_threads=False).aggregate([("_ts", "count")])
        sides = pa.array([self._side] * found.num_rows, pa.int64())
        columns = [found["_pane"], found["key"], sides, found["_ts"], found["_ts_count"]]
        return pa.table(columns, names=["_pane", "k0", "k1", "k2", "s0"])

    def prepare(self) -> None: ...

    def close(self) -> None: ...


def here(function: Function) -> Callable[[pa.RecordBatch], Done | Failed]:
    """A user's function, which runs here: no process, no limits."""
    filename = function.filename
    body = code_of(function.text, function.kind, filename)

    def call(batch: pa.RecordBatch) -> Done | Failed:
        try:
            return Done(batch_of(body(batch)))
        except Exception as error:
            failure = failure_of(error, filename)
            return Failed("raised", f"{filename}:{failure.line}: {failure.text}", failure.line)

    return call


class HereFunction(UserFunction):
    """A user's code, which runs here."""

    def __init__(self, function: Function) -> None:
        self.spec = function
        self._here = here(function)

    def __call__(self, batch: pa.RecordBatch, origin: object = None) -> Done | Failed:
        return self._here(batch)

    def refused(self) -> str:
        return ""

    def close(self) -> None: ...


class HereAt(FunctionsAt):
    """All users' code runs here."""

    def of(self, function: Function, version: int = 1) -> UserFunction:
        return HereFunction(function)


HERE: Final = HereAt(Sandboxes(), lambda _: None)
COUNTING: Final = OwnAggregate(
    "counted",
    """\
from elf.paos import PAO

class Counted(PAO):
    arguments = ("bigint",)
    state = {"n": "bigint"}
    returns = "bigint"

    def create(self, groups, x):
        return {"n": groups.sum(x)}

    def merge(self, groups, states):
        return {"n": groups.sum(states["n"])}

    def finalize(self, states):
        return states["n"]
""",
    "counted.py",
)
"""What the rows of a key are by an aggregate of one's own: then a window has this in place of its count."""


def owning(query: Plan) -> Plan:
    """The same query, which counts by an aggregate of one's own."""
    first, *more = (
        replace(
            one,
            map_sql=f"{one.map_sql} ",  # another map, for the same keys
            keys=(*one.keys, "c0"),
            cells=("c0",),
            states=(*one.states, COUNT),
            owns=(("c0", COUNTING),),
        )
        for one in (query.fragment, *query.more)
    )
    return replace(query, fragment=first, more=tuple(more))


def unowned(fragment: Fragment) -> Fragment:
    """The fragment as it was."""
    return replace(fragment, keys=fragment.keys[:-1], cells=(), states=fragment.states[:-1], owns=())


class PyFinisher(FinisherPort):
    """``HAVING count >= n``, if the final fragment is the number n; of joined jobs the keys that all of them
    have, with the sum of their counts. A stage is such a number too.
    """

    def __init__(self, plan: Plan) -> None:
        self._plan = plan

    def run(self, groups: pa.Table, *beside: pa.Table) -> pa.Table:
        bounds = ["window_start", "window_end", "k0"]
        if self._plan.fragment.owns:
            groups, failure = valued(self._plan, groups, HERE)
            if failure:
                raise ElfBug(f"an aggregate has no value: {failure}")
            values = groups.filter(groups["c0"].is_valid())
            groups = values.select([*bounds, "c0"]).rename_columns([*bounds, "s0"])
        for other in beside:
            if not groups.num_rows or not other.num_rows:
                return pa.table({})
            both = groups.join(other, bounds, right_suffix="_other", join_type="inner")
            summed = pc.add(both["s0"], both["s0_other"])
            groups = both.select(bounds).append_column("s0", summed)
        return _having(groups, self._plan.final_sql).sort_by([(name, "ascending") for name in bounds])

    def side(self, number: int) -> PyFinisher:
        return PyFinisher(self._plan.sides[number])

    def stage(self, place: int, groups: pa.Table) -> pa.Table:
        groups = _having(groups, self._plan.stages[place].sql)
        panes = pc.divide(groups["window_start"].cast(pa.int64()), self._plan.fragment.pane_us)
        return pa.table([panes, groups["k0"], groups["s0"]], names=["_pane", "k0", "s0"])

    def join(self, groups: pa.Table) -> pa.Table:
        """Pairs by pane and key of the left row, of rows that are ``APART_US`` apart."""
        sides: tuple[list[Side], list[Side]] = ([], [])
        names = ("_pane", "k0", "k1", "k2", "s0")
        for pane, key, side, ts, n in zip(*(groups[name].to_pylist() for name in names), strict=True):
            sides[side].append((pane, key, ts, n))
        counted: Counter[tuple[int, str]] = Counter()
        for pane, key, ts, n in sides[0]:
            near = (m for _, k, t, m in sides[1] if k == key and APART_US[0] <= t - ts <= APART_US[1])
            counted[pane, key] += n * sum(near)
        pairs = [(*group, n) for group, n in counted.items() if n]
        columns = [[row[place] for row in pairs] for place in range(3)]
        types = (pa.int64(), pa.string(), pa.int64())
        arrays = [pa.array(*both) for both in zip(columns, types, strict=True)]
        return pa.table(arrays, names=["_pane", "k0", "s0"])

    def close(self) -> None: ...


def py_stage(fragment: Fragment, groups: pa.Table) -> pa.Table:
    """What the toy queries' roots do: the keys with ``MOST`` of their class, or how many keys ``EACH`` class
    has. A pane's groups are in the ranges of their classes, or in those of their keys."""
    if fragment.stage is None:
        raise ElfBug("a flow without a stage")
    rows = list(zip(*(groups[n].to_pylist() for n in ("window_start", "k0", "k1", "s0")), strict=True))
    found: Counter[tuple[object, str]] = Counter()
    if fragment.stage.sql == MOST:
        most: Counter[tuple[object, str]] = Counter()
        for start, _, kind, count in rows:
            most[start, kind] = max(most[start, kind], count)
        found.update({(start, key): n for start, key, kind, n in rows if n == most[start, kind]})
    else:
        found.update((start, kind) for start, _, kind, _ in rows)
    starts = pa.array([start for start, _ in found], pa.timestamp("us")).cast(pa.int64())
    panes = pc.divide(starts, fragment.pane_us)
    keys = pa.array([key for _, key in found], pa.string())
    return pa.table([panes, keys, pa.array(found.values(), pa.int64())], names=["_pane", "k0", "s0"])


def _having(groups: pa.Table, least: str) -> pa.Table:
    return groups.filter(pc.greater_equal(groups["s0"], int(least or 0)))


@dataclass(frozen=True)
class Source:
    id: str

    @property
    def log(self) -> str:
        return self.id


@dataclass(frozen=True, eq=False)
class Chunk:
    source: Source
    start: int
    end: int
    lines: pa.StringArray
    offsets: np.ndarray
    rejects: tuple[object, ...] = ()


def plan(
    size_s: int = 2,
    slide_s: int | None = None,
    lateness_us: int | None = 500_000,
    *,
    streams: Sequence[str] = (STREAM,),
    least: int = 0,
    where: str = "",
) -> Plan:
    """A count by key over streams, in windows; ``where`` makes it another fragment."""
    slide_s = slide_s or size_s
    pane = int(np.gcd(size_s, slide_s)) * SECOND
    first, *more = (
        Fragment(
            stream,
            (Column("key", "text"),),
            f"count by key {where}",
            ("k0",),
            (State("s0", "sum", True),),
            pane,
            lateness_us,
        )
        for stream in streams
    )
    window = (Sliding(size_s * SECOND, slide_s * SECOND),)
    final = str(least) if least else ""
    named = (("k0", "k0"),)
    return Plan("SELECT …", first, window, final, ("key", "count"), "", more=tuple(more), named=named)


def united(size_s: int, panes: int) -> Plan:
    """The same in windows of so many panes of a second, which heads may merge (``elf.job.units``)."""
    query = plan(size_s)
    return replace(query, fragment=replace(query.fragment, pane_us=size_s * SECOND // panes))


_TOYS: Final[dict[Definition | TapDefinition, Made[Any]]] = {}


def defined(plan: Plan) -> Definition:
    """What stands for a plan where it travels, as the plans here are not made of a text: equal ones have
    equal ones."""
    told = (plan, plan.since, plan.choice, plan.named, *plan.kinds)
    text = f"SELECT {hashlib.sha256(repr(told).encode()).hexdigest()}"
    tables = tuple(Contents.of(table) for one in plan.unranged for table in one.tables)
    functions = () if plan.final is None else (plan.final,)
    found = Definition(text, (), tables, functions=functions, chosen=plan.chosen)
    for made in {plan, replace(plan, final=None)}:
        stands_for(found if made.final is not None else found.without("final"), made)
    return found


def stands_for(definition: Definition, plan: Plan) -> None:
    """That is the plan of it."""
    if definition not in _TOYS:
        _TOYS[definition] = remember(definition, plan)


def with_trees(asked: Execute, spec: JobSpec, trees: int) -> Generator[list[Ask], list[Answer], Definition]:
    """As ``agents.answering.scaling`` plans it of a text."""
    yield from ()
    return defined(replace(spec.plan, trees=trees))


def spec_of(
    name: str,
    creator: str,
    generation: int,
    plan: Plan,
    flows: Iterable[Flow] = (),
    *,
    master: str = "",
    roots: tuple[str, ...] = (),
) -> JobSpec:
    """A job with this plan, however that was made."""
    spec = JobSpec(name, creator, generation, defined(plan), master=master, roots=roots)
    return spec.with_flows(flows)


def planned(spec: JobSpec, plan: Plan, **changes: Any) -> JobSpec:
    """The same job with another plan; its flows stay where there are as many fragments."""
    kept = spec.places if len(plan.fragments) == len(spec.places) else ()
    return replace(spec, definition=defined(plan), places=kept, **changes)


def tapped(tap: Tap) -> TapDefinition:
    """What stands for a tap where it travels."""
    found = TapDefinition(tap.name, hashlib.sha256(repr(tap).encode()).hexdigest(), Schema(()))
    if found not in _TOYS:
        _TOYS[found] = remember(found, Groups(tap.fragment, tap.keys, tap.states, tap.panes))
    return found


def staged(query: Plan, size_s: int, slide_s: int) -> Plan:
    """Counts in larger windows over the windows of a query, which are tumbling and have its HAVING."""
    (smaller,), fragment = query.windows, query.fragment
    if not isinstance(smaller, Sliding):
        raise ElfBug(f"windows over {smaller}")
    stage = Stage(smaller, query.final_sql, fragment.keys, fragment.states)
    windows = (Sliding(size_s * SECOND, slide_s * SECOND),)
    return replace(query, windows=windows, final_sql="", stages=(stage,))


MOST: Final = "the keys with the most rows of their class"
EACH: Final = "how many keys each class has"


def ranged(query: Plan, stage: str, trees: int) -> Plan:
    """A query whose roots do that with the groups of each pane, which is a window: those of a class are in
    one range for ``MOST``, and each root counts its own for ``EACH``."""
    fragment = query.fragment
    counted = (State("s0", "sum", True),)
    by = ("k1",) if stage == MOST else ()
    classed = replace(
        fragment,
        keys=("k0", "k1"),
        map_sql=f"count by key {CLASSED}{where_of(fragment)}",
        range_keys=by,
        stage=RangeStage(stage, ("k0",), counted, disjoint=stage == MOST, by=("class",)),
    )
    return replace(query, fragment=classed, trees=trees)


def plan_of(kinds: tuple[Kind, ...]) -> Plan:
    """The same count in windows of these kinds."""
    ends = (State("s1", "min"), State("s2", "max"))
    fragment = replace(
        plan().fragment,
        columns=(Column("_ts", "bigint"), Column("key", "text")),
        map_sql="count by key, with ends",
        states=(State("s0", "sum", True), *ends),
        pane_us=pane_us_of(kinds),
    )
    return replace(plan(), fragment=fragment, windows=kinds, session_states=("s1", "s2"))


def joined_plan(kinds: tuple[Kind, ...], other: str) -> Plan:
    """A count by key of clicks with a row of the other stream near them, in windows of these kinds."""
    counted = (State("s0", "sum", True),)
    columns, keys = (Column("_ts", "bigint"), Column("key", "text")), ("k0", "k1", "k2")
    left, right = (
        Fragment(stream, columns, "rows", keys, counted, SECOND, 500_000, cells=("k1", "k2"))
        for stream in (STREAM, other)
    )
    before, after = (-(-us // SECOND) * SECOND for us in (-APART_US[0], APART_US[1]))
    join = StreamJoin("", ("k0",), counted, (), "k1", before, after, "near")
    return Plan("SELECT …", left, kinds, "", ("key", "count"), "", more=(right,), join=join)
