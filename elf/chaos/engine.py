"""What simulated agents compute with, not DuckDB: lines are ``"<ts µs>,<key>"``, a query counts by key."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from elf.aggregates import State
from elf.job.ports import Wanted
from elf.ql.plan import Fragment, Plan
from elf.schema import Column
from elf.windows import Kind, Sliding, pane_us_of

STREAM = "clicks"
SECOND = 1_000_000


@dataclass(frozen=True)
class Extracted:
    table: pa.Table
    accepted: np.ndarray
    rejected: np.ndarray
    uncast: int = 0
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


class PyMapper:
    """``keys``: the letters that the query's WHERE lets through; empty: all."""

    def __init__(self, keys: str = "") -> None:
        self._keys = keys

    def run(self, rows: pa.Table) -> pa.Table:
        pairs = zip(rows["_pane"].to_pylist(), rows["key"].to_pylist(), strict=True)
        counted = Counter(pair for pair in pairs if not self._keys or pair[1] in self._keys)
        panes, keys = [p for p, _ in counted], [k for _, k in counted]
        return pa.table(
            {
                "_pane": pa.array(panes, pa.int64()),
                "k0": pa.array(keys, pa.string()),
                "s0": list(counted.values()),
            }
        )

    def prepare(self) -> None: ...

    def close(self) -> None: ...


class PyEndsMapper:
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

    def mapper(self, fragment: Fragment) -> PyMapper | PyEndsMapper:
        where = fragment.map_sql.removeprefix("count by key ")
        return PyMapper(where) if len(fragment.states) == 1 else PyEndsMapper()


class PyFinisher:
    """``HAVING count >= n``, if the final fragment is the number n."""

    def __init__(self, final_sql: str) -> None:
        self._least = int(final_sql or 0)

    def run(self, groups: pa.Table) -> pa.Table:
        groups = groups.filter(pc.greater_equal(groups["s0"], self._least))
        return groups.sort_by([("window_start", "ascending"), ("k0", "ascending")])

    def close(self) -> None: ...


@dataclass(frozen=True)
class Source:
    id: str


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
    return Plan("SELECT …", first, window, final, ("key", "count"), "", more=tuple(more))


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
