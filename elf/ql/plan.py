"""The plan of a query: the values that agents, trees, masters and Spark all work from. What travels
is not the plan but its definition (``elf.ql.definition``), and of what is here ``Top`` and ``Function``.

One syntax tree has three renderings. With ``rows`` the extracted, typed rows of a chunk:

- *map*, DuckDB, in the agents: ``rows`` (the fragment's columns, and ``_pane`` BIGINT) to partial aggregates:
  the columns ``_pane``, then ``keys``, then ``states``, one row for each distinct (pane, keys). Aggregates
  such as COUNT(DISTINCT x) make several rows of a group, with more keys (``elf.ql.cells``);
- *final*, DuckDB, at the master: ``groups`` (``window_start`` and ``window_end`` TIMESTAMP, keys, merged
  states) to result rows;
- *spark*: the whole query over a view ``rows`` (the columns, and ``_ts`` BIGINT, event time in µs); and the
  map over the same view (``Fragment.spark_sql``), whose partial aggregates merge with those of agents.

Where two streams are joined there is one more, *joining*, DuckDB, at the master: from panes of the rows of
both sides to panes of partial aggregates, which all later steps use (``elf.ql.streamjoins``).
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass, field
from typing import Annotated, Final, Literal

from msgspec import Meta, Struct

from elf.aggregates import State
from elf.fields import Code, Label, Micros, Serial, replace
from elf.fields import Count as Rows
from elf.ql.graphs import GraphStep
from elf.ql.own import OwnAggregate
from elf.ql.promises import LATENESS_US, Chosen, Promise
from elf.schema import Column, ColumnType
from elf.windows import Kind, Sliding
from elf.windows.sharing import Choice

COUNTED = ("window_source", "window_number")
"""The keys that distinguish windows of rows."""
PLACES = ("_place", "_seen")
"""The columns by which the map numbers rows where windows are of rows (``elf.job.worker.counted``)."""
CREDIT = "credit"
"""The state that gives the error of an approximate row (``elf.job.approximate``)."""
ValueType = ColumnType | Literal["hugeint"]
"""The types of what is compared and sorted without SQL: those of columns, and of a sum of integers."""
Kinds = ValueType | Literal["null"]
"""With that of NULL, where nothing says another one."""
FunctionKind = Annotated[str, Meta(pattern=r"\A(map|reduce|final)\Z")]


def side_groups(number: int) -> str:
    """What the groups of a plan's sides are called in its final fragment, the first being 0."""
    return f"groups_{number}" if number else "groups"


@dataclass(frozen=True)
class Top:
    """A window's result is its first ``rows`` rows, ordered before all else by this state."""

    state: Label
    descending: bool
    nulls_first: bool
    rows: Rows


@dataclass(frozen=True)
class Function:
    """A user's function, as the text of a file with ``def <kind>(batch)``."""

    kind: FunctionKind
    text: Code
    filename: Label

    @property
    def hash(self) -> str:
        """Names the text, for people and in a flow's uid."""
        return hashlib.sha256(self.text.encode()).hexdigest()[:12]


class Reduce(Struct, frozen=True):
    """What a flow's root does to the groups of a pane, before they are committed
    (``agents.committing.reducing``)."""

    function: Function
    columns: tuple[tuple[str, str], ...]
    """The fragment's keys and states, each with what the function calls it."""


Where = Literal["agents", "roots", "master"]


class Step(Struct, frozen=True):
    """A step of a query, for people and for planners: what it does, at which end of the trees, and by which
    attributes its input is parted there (none: it is not)."""

    what: str
    by: tuple[str, ...]
    at: Where


class Component(Struct, frozen=True):
    """Steps of a query that run together (``elf.ql.components``): in words, the keys that all of them may be
    divided by (none: it is one step that may not), where that is, and by which score it was found: ``comm``
    is what is done, ``attributes`` what would be."""

    steps: tuple[str, ...]
    keys: tuple[str, ...]
    at: Where
    score: Literal["comm", "attributes"]


@dataclass(frozen=True)
class RangeStage:
    """What the root of a key range makes of the groups of each pane, before they are committed
    (``elf.ql.partitions``)."""

    sql: str
    """DuckDB, over ``groups`` as of the final fragment: a pane is a window. Gives ``_pane``, keys, states."""
    keys: tuple[str, ...]
    states: tuple[State, ...]
    cells: tuple[str, ...] = ()
    ordered: bool = False
    """Whether the last bits of a sum depend on the order of the groups: then they come in that of their
    keys, so that a pane is the same whoever makes it."""
    disjoint: bool = False
    """Whether no two ranges have rows with the same keys."""
    by: tuple[str, ...] = field(default=(), compare=False)
    """What people call the range keys."""


class TableMoment(Struct, frozen=True, array_like=True):
    """Where the rows of a table of a job stood when they were read. ``table``: what the uids of all tables of
    that name and creator begin with; ``number``: of the last result of the job that is in them, in the
    portion or shard that was furthest behind; ``as_of_us``: the end of the newest window in that."""

    table: Label
    number: Serial
    as_of_us: Micros | None = None


TABLE_OF: Final = "TABLE "
"""What stands before the name of a table of a job, where a file might stand."""


@dataclass(frozen=True)
class Table:
    """A table that is joined to a stream, with its contents: it travels in the fragment.

    Two tables of the same contents are equal, whatever files they come from.
    """

    columns: tuple[Column, ...]
    data: bytes = field(repr=False, compare=False)
    """An Arrow table of these columns (``elf.batch``); empty where only ``digest`` is known."""
    name: str = field(default="", compare=False)
    """What the query calls it, and the file that it was read from."""
    file: str = field(default="", compare=False)
    rows: int = field(default=0, compare=False)
    digest: str = ""
    """Names the contents."""
    moment: TableMoment | None = field(default=None, compare=False)
    """Of rows of a table of a job, which its leader reads anew."""

    @property
    def relation(self) -> str:
        """What it is called in SQL."""
        return f"table_{self.digest}"


class Count(Struct, frozen=True):
    """Windows of ``rows`` rows of a source; ``state`` says how many of them a group has. ``before``: a prefix
    for the names of sources, where those of several streams meet."""

    rows: int
    state: str
    before: str = ""


class Condition(Struct, frozen=True):
    """A part of WHERE or HAVING without SQL: ``op`` of its ``parts``; ``column``, the one of that ``name``;
    or ``constant``, the ``value`` of that ``kind`` (a timestamp is an int, µs since the epoch)."""

    op: Label
    parts: tuple[Condition, ...] = ()
    name: str = ""
    value: int | float | str | bool | None = None
    kind: ValueType = "boolean"


class Direct(Struct, frozen=True):
    """A map that needs no SQL (``elf.ql.direct``): of the rows for which all of ``where`` is true the columns
    ``keys`` are the groups (``k0``, ``k1`` …). For each state that the map makes ``states`` has its column,
    or "" where each row counts.
    """

    where: tuple[Condition, ...]
    keys: tuple[str, ...]
    states: tuple[str, ...]


class Value(Struct, frozen=True):
    """A value of a merged group without SQL: its column ``name``, which is of that ``kind``; or, with
    ``count``, that column divided by this one, as AVG is."""

    name: str
    kind: ValueType
    count: str = ""


class Sorted(Struct, frozen=True):
    """An item of ORDER BY."""

    value: Value
    descending: bool
    nulls_first: bool


class DirectFinal(Struct, frozen=True):
    """A final fragment that needs no SQL (``elf.ql.direct``): of the groups of which all of ``having`` (over
    values by their names) is true, the ``outputs``, ordered in each window. Of a window the first ``offset``
    rows are left out, and there are ``limit`` at most."""

    bounds: tuple[str, ...]
    outputs: tuple[Value, ...]
    order: tuple[Sorted, ...]
    having: tuple[Condition, ...] = ()
    tested: tuple[tuple[str, Value], ...] = ()
    """The values that ``having`` is about, each with its name there."""
    limit: int | None = None
    offset: int = 0


@dataclass(frozen=True)
class Fragment:
    """What a flow is made of: everything that decides the contents of its snapshots."""

    stream: str
    columns: tuple[Column, ...]
    map_sql: str
    keys: tuple[str, ...]
    states: tuple[State, ...]
    pane_us: int
    """Length of a pane; 0 without a window (everything is pane 0)."""
    lateness_us: int | None
    """None: the stream's default in a fleet, and never late on finite inputs."""
    where_sql: str = ""
    """The map's WHERE, over ``rows AS r``: rows for which it is not true add nothing. Empty: none. It does
    not contain conditions on joined tables."""
    cells: tuple[str, ...] = ()
    """The last of ``keys``, which distinguish the rows of one group (``elf.ql.cells``)."""
    revise_us: int | None = None
    """Rows that are later than ``lateness_us`` by no more than this are kept and become parts
    (``elf.job.parts``). None: no row is."""
    changes_us: int | None = None
    """How often the state of open panes is sent up. None: never."""
    wait_us: int | None = None
    """STRAGGLERS WAIT: how long a pane waits for agents that are behind, dead ones too
    (``elf.job.stragglers``). None: as long as the settings of its root say, and not for the dead."""
    leap: bool = False
    """STRAGGLERS LEAP: an agent's part of panes that were committed without it is left out for good."""
    mirror: bool = False
    """STRAGGLERS MIRROR: neighbours have replicas of snapshots at once, and answer for an agent that is
    behind (``elf.job.rollup.replication``)."""
    late_of: str = ""
    """Uid of a flow of the same stream: the rows are those that it counts as late."""
    range: tuple[int, int] = (0, 1)
    """(i, m): the groups whose keys' hash is in the i-th of m equal ranges (``elf.aggregates``)."""
    keep: Top | None = None
    """APPROXIMATE: what every sender keeps of a pane. The last state is then ``CREDIT``."""
    first: Top | None = None
    """The rows of a pane that its commit has; agents may leave groups out (``elf.job.thresholds``)."""
    function: Function | None = None
    """The function over the rows after WHERE and before the map, which then has no WHERE."""
    tables: tuple[Table, ...] = ()
    """The tables that the map joins to the rows, in the order of the query. ``columns`` are the stream's
    alone."""
    count: Count | None = None
    """The windows are of so many rows of a source: ``keys`` begin with ``COUNTED``. The map makes only the
    number of these, from ``PLACES``: the order of the rows, and how many of their source came before."""
    reduce: Reduce | None = None
    """The function over the merged groups of each pane of its key range."""
    range_keys: tuple[str, ...] = ()
    """The keys whose hash says in which range a group is; none: all of ``group_keys``."""
    stage: RangeStage | None = None
    """What the root makes of the groups of each pane of its key range, after ``reduce``."""
    owns: tuple[tuple[str, OwnAggregate], ...] = ()
    """The cells that are states of aggregates of people's own, each with its aggregate."""
    since_us: int | None = None
    """SINCE: the event time from which on the rows are wanted, of agents' archives too (``elf.job.past``).
    None: from when the flow begins."""
    direct: Direct | None = field(default=None, compare=False, repr=False)
    """How the map is done without its SQL, where it can be."""
    where: tuple[Condition, ...] = field(default=(), compare=False, repr=False)
    """Parts of WHERE that need no SQL: a row for which one of them is not true adds nothing. Who reads files
    passes over those in which no such row can be (``agents.archive.summaries``)."""
    spark_sql: str = field(default="", compare=False, repr=False)
    """The map for Spark, over its ``rows``. Empty: Spark has none (windows of rows, a function)."""

    @property
    def task_states(self) -> tuple[State, ...]:
        """The states that the map makes."""
        return self.states if self.keep is None else self.states[:-1]

    @property
    def has_code(self) -> bool:
        """Whether its map runs people's code."""
        return self.function is not None or bool(self.owns)

    @property
    def group_keys(self) -> tuple[str, ...]:
        """The keys that distinguish groups: those that are no cells."""
        return self.keys[: len(self.keys) - len(self.cells)]

    @property
    def ranged_by(self) -> tuple[str, ...]:
        """The keys whose hash says in which range a group is."""
        return self.range_keys or self.group_keys

    @property
    def changes_panes(self) -> bool:
        """Whether its root commits something else than merged groups, and keeps these beside it."""
        return self.reduce is not None or self.stage is not None


class StreamJoin(Struct, frozen=True):
    """How the panes of windows are made from others beside them: panes of joined rows from the panes of both
    streams (``elf.ql.streamjoins``), or panes with what groups were in other windows (``elf.ql.lags``).
    ``keys``, ``states`` and ``cells`` are those of the result, as a fragment has them for the result of a
    map."""

    sql: str
    """Over ``groups``, the flows' panes."""
    keys: tuple[str, ...]
    states: tuple[State, ...]
    cells: tuple[str, ...]
    side: str
    """The key of the flows that is 0 in the rows of the left stream, 1 in those of the right one. Empty:
    there are no sides, and the panes of the result are not merged yet."""
    before_us: int
    """How far before a left row's pane the panes of its partners begin; whole panes, as ``after_us``."""
    after_us: int
    """How far after a window's end the panes of its partners end."""
    about: str
    """For people: which rows are partners."""


class Stage(Struct, frozen=True):
    """What the master makes from the rows of smaller windows, as material for larger ones
    (``elf.ql.levels``)."""

    window: Sliding
    """The smaller windows, which are tumbling."""
    sql: str
    """DuckDB, from their ``groups`` to partial aggregates: ``_pane`` (the fragment's, where a window begins),
    keys, states."""
    keys: tuple[str, ...]
    states: tuple[State, ...]
    cells: tuple[str, ...] = ()
    graphs: tuple[GraphStep, ...] = ()
    """What comes before ``sql``, in this order: its ``groups`` are then the vertices of the last one."""


@dataclass(frozen=True)
class Plan:
    """A planned query. ``outputs`` are the names of the SELECT list, each once."""

    sql: str
    fragment: Fragment
    windows: tuple[Kind, ...]
    """Empty: one result over everything. A session is alone, and so are windows of rows."""
    final_sql: str
    outputs: tuple[str, ...]
    spark_sql: str
    top: Top | None = None
    session_states: tuple[str, str] | None = None
    """Where windows are sessions: the states with a group's first and last event time in a pane."""
    more: tuple[Fragment, ...] = ()
    """The fragments over the query's other streams, if it has several. They differ from ``fragment`` only in
    what they read: keys, states, cells and panes are the same, so that panes of all of them merge into one.
    Spark's ``rows`` are then those of all streams."""
    limit: int | None = None
    """Rows of a window that the query asks for."""
    reads: tuple[str, ...] = ()
    """Uids of the jobs that the query reads (FROM JOB)."""
    apart: bool = False
    """Whether Spark has a view for each stream (``elf.ql.unions``), not one for the rows of all."""
    trees: int = 1
    """The number of key ranges of the groups, each a flow with a tree and a root of its own."""
    join: StreamJoin | None = None
    """For a query over two joined streams, whose ``fragments`` bring its rows, not groups; or with LAG."""
    stages: tuple[Stage, ...] = ()
    """Where windows are made from another job's: the steps, innermost first. ``top`` is theirs."""

    beside: tuple[Plan, ...] = ()
    """JOIN JOB: the plans of the jobs that are joined, whose windows are the same. Their ``groups`` are
    ``groups_1``, ``groups_2`` … of the one final fragment."""
    since: tuple[int, int] | None = field(default=None, compare=False)
    """Where windows are those of another job's landmark: that landmark, and the end of those that are over
    (event time, µs)."""
    graphs: tuple[GraphStep, ...] = ()
    """WITH GRAPH: what comes before the final fragment, in this order. The first is over ``groups``, each
    other one, and the final fragment, over the vertices that the one before has made (as ``groups``)."""
    spark_graphs: tuple[GraphStep, ...] = ()
    """The same for Spark: each is a view that later ones, and ``spark_sql``, read."""
    final: Function | None = None
    """The function that the master applies to the rows of each window, after the final fragment
    (``agents.committing.finals``)."""
    named: tuple[tuple[str, str], ...] = field(default=(), compare=False)
    """The fragment's keys and states that stand by themselves in the (innermost) SELECT list, each with its
    name there, in that order."""
    kinds: tuple[Kinds, ...] = field(default=(), compare=False, repr=False)
    """The types of these, where the plan was made of a text."""
    read_as: tuple[str, ...] = ()
    """The ``identity`` of each job in ``reads`` when this was planned."""
    choice: Choice | None = field(default=None, compare=False)
    """The choice of its panes, where a flow with shorter ones ran when this was planned."""
    direct: DirectFinal | None = field(default=None, compare=False, repr=False)
    """How the final fragment is done without its SQL, where it can be."""
    steps: tuple[Step, ...] = field(default=(), compare=False)
    """Of a query that puts groups together again: where each GROUP BY and OVER is done."""
    components: tuple[Component, ...] = field(default=(), compare=False)
    """Which of them run together."""
    not_at_roots: str = field(default="", compare=False)
    """Why none but the first of these is done at the roots; empty: some are."""
    promise: Promise | None = None
    """WITHIN: how late its windows may be."""
    chosen: Chosen | None = field(default=None, compare=False)
    """What was worked out for that, when this was planned."""
    gives_way: bool = False
    """PRIORITY RESEARCH: its rows are left out before those of others, also for what others promise."""

    def __post_init__(self) -> None:
        if (self.windows or self.stages) and not self.fragment.pane_us:
            raise ValueError("windows of no panes")

    @property
    def identity(self) -> str:
        """Distinguishes plans of a job that give different rows, whatever else differs."""
        told: list[object] = [self.sql, self.final_sql, self.final]
        for one in self.unranged:
            told += [one.map_sql, one.pane_us, one.function, one.reduce, *(t.digest for t in one.tables)]
            told += [one.range_keys, one.stage] if one.stage is not None else []
            told += one.owns
        return hashlib.sha256("\0".join(map(str, told)).encode()).hexdigest()[:16]

    @property
    def made(self) -> Fragment | RangeStage | StreamJoin | Stage:
        """The ``keys``, ``states`` and ``cells`` from which windows are made."""
        if self.stages:
            return self.stages[-1]
        return self.committed if self.join is None else self.join

    @property
    def committed(self) -> Fragment | RangeStage:
        """The ``keys``, ``states`` and ``cells`` of committed panes."""
        return self.fragment if self.fragment.stage is None else self.fragment.stage

    def before(self, stage: int) -> Plan:
        """The plan of the windows that a stage is over."""
        return replace(self, stages=self.stages[:stage], top=None, graphs=())

    @property
    def reach(self) -> tuple[int, int]:
        """(before, after): how far beyond its own bounds a window needs panes, in µs; whole panes."""
        joins = [side.join for side in self.sides if side.join is not None]
        before, after = ([join.before_us for join in joins], [join.after_us for join in joins])
        return max(before, default=0), max(after, default=0)

    def does_as(self, other: Plan) -> bool:
        """Whether another plan makes the same windows, by the same settings."""
        ours, theirs = (None if one is None else one.settings for one in (self.chosen, other.chosen))
        return self == other and ours == theirs

    @property
    def lateness_us(self) -> int:
        """How long after its end a pane may be sealed, as far as the query, or who planned it, knows."""
        said = [one.lateness_us for one in self.unranged if one.lateness_us is not None]
        if len(said) < len(self.unranged):
            said.append(LATENESS_US if self.chosen is None else self.chosen.lateness_us)
        return max(said)

    @property
    def within_ms(self) -> float:
        """How long its windows may take before rows are left out for it, by the model: what it promises, or
        the best that can be where that is more (BEST EFFORT). 0: it promises nothing."""
        promised_us = 0 if self.promise is None else self.promise.within_us
        best_ms = 0 if self.chosen is None or self.chosen.keeps else self.chosen.reached_ms
        return max(promised_us / 1_000, best_ms)

    def due_us(self, end_us: int) -> int:
        """When the panes of a window that ends then can all be sealed, at the earliest: its end, or that of
        its last pane, and LATENESS."""
        pane_us = self.fragment.pane_us
        return -(-(end_us + self.reach[1]) // pane_us) * pane_us + self.lateness_us

    @property
    def all_graphs(self) -> tuple[GraphStep, ...]:
        """Everything that masters make of WITH GRAPH."""
        staged = (step for side in self.sides for stage in side.stages for step in stage.graphs)
        return (*staged, *(step for side in self.sides for step in side.graphs))

    @property
    def all_spark_graphs(self) -> tuple[GraphStep, ...]:
        """The views that ``spark_sql`` reads, in the order in which they are made."""
        return (*(step for side in self.beside for step in side.spark_graphs), *self.spark_graphs)

    @property
    def spark_text(self) -> str:
        """``spark_sql`` for people: after what its views are."""
        views = (
            f"-- {one.view}: WITH GRAPH {one.graph.text} of\n{one.sql}\n" for one in self.all_spark_graphs
        )
        return "\n".join([*views, self.spark_sql]) if self.spark_sql else ""

    @property
    def grain_us(self) -> int:
        """Windows are a number of whole stretches of this length: panes, or windows that are read."""
        own = self.stages[-1].window.size_us if self.stages else self.fragment.pane_us
        return math.lcm(own, *(side.grain_us for side in self.beside)) if self.beside else own

    @property
    def sides(self) -> tuple[Plan, ...]:
        """What the final fragment is over: ``groups``, ``groups_1`` …"""
        return (self, *self.beside)

    @property
    def own_fragments(self) -> tuple[Fragment, ...]:
        """The fragments of ``groups``: one for each stream and key range."""
        whole = (self.fragment, *self.more)
        if self.trees == 1:
            return whole
        return tuple(replace(one, range=(i, self.trees)) for one in whole for i in range(self.trees))

    @property
    def fragments(self) -> tuple[Fragment, ...]:
        """All of them, each once; a job has a flow for each."""
        return tuple(dict.fromkeys(one for side in self.sides for one in side.own_fragments))

    @property
    def unranged(self) -> tuple[Fragment, ...]:
        """The same, whatever the key ranges."""
        return tuple(dict.fromkeys(one for side in self.sides for one in (side.fragment, *side.more)))

    @property
    def streams(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(fragment.stream for fragment in self.unranged))


def cut_of(plan: Plan) -> Top | None:
    """What a root may leave out of each pane that it passes to the master on another node, exactly: a window
    is one pane, and the root has the complete sums of its groups (one stream; key ranges share no group)."""
    plain = plan.made is plan.fragment and not plan.more and not plan.beside
    if plan.top is None or not plain or len(plan.windows) != 1:
        return None
    (window,) = plan.windows
    whole = isinstance(window, Sliding) and window.is_tumbling and window.size_us == plan.fragment.pane_us
    return plan.top if whole else None


def with_first(plan: Plan) -> Plan:
    """The same plan, with agents sending only what may be among the first rows (``elf.job.thresholds``), if
    these are the greatest COUNTs or SUMs."""
    top, fragment = cut_of(plan), plan.fragment
    if top is None or not top.descending or top.nulls_first or fragment.keep is not None or plan.trees > 1:
        return plan
    state = next(state for state in fragment.states if state.name == top.state)
    return plan if state.merge != "sum" else replace(plan, fragment=replace(fragment, first=top))
