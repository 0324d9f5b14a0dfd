"""The plan of a query: the values that agents, trees, masters and Spark all work from.

One syntax tree, three renderings (DESIGN section 1). With ``rows`` the extracted, typed rows of a chunk:

- *map*, DuckDB, in the agents: ``rows`` (the fragment's columns, and ``_pane`` BIGINT) to partial
  aggregates: the columns ``_pane``, then ``keys``, then ``states``, one row for each distinct (pane, keys).
  Aggregates such as COUNT(DISTINCT x) make several rows of a group, with more keys (``elf.ql.cells``);
- *final*, DuckDB, at the master: ``groups`` (``window_start`` and ``window_end`` TIMESTAMP, keys, merged
  states) to result rows;
- *spark*: the whole query over a view ``rows`` (the columns, and ``_ts`` BIGINT, event time in µs).
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace

from elf.aggregates import State
from elf.schema import Column
from elf.windows import Kind

CREDIT = "credit"
"""The state by which the error of an approximate row is known (``elf.job.approximate``)."""


@dataclass(frozen=True)
class Top:
    """A window's result is its first ``rows`` rows, ordered before all else by this state."""

    state: str
    descending: bool
    nulls_first: bool
    rows: int


@dataclass(frozen=True)
class Function:
    """A user's function, as the text of a file with ``def <kind>(batch)``."""

    kind: str
    text: str
    filename: str

    @property
    def hash(self) -> str:
        """Names the text, for people and in a flow's uid."""
        return hashlib.sha256(self.text.encode()).hexdigest()[:12]


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

    @property
    def relation(self) -> str:
        """What it is called in SQL."""
        return f"table_{self.digest}"


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
    """The map's WHERE, over ``rows AS r``: rows for which it is not true add nothing. Empty: none. Conditions
    on joined tables are not in it."""
    cells: tuple[str, ...] = ()
    """The last of ``keys``, which tell the rows of one group apart (``elf.ql.cells``)."""
    revise_us: int | None = None
    """Rows so much later than ``lateness_us`` are kept and become parts (``elf.job.parts``). None: no row
    is."""
    changes_us: int | None = None
    """How often the state of open panes goes up. None: never."""
    late_of: str = ""
    """Uid of a flow of the same stream: the rows are those that it counts as late."""
    range: tuple[int, int] = (0, 1)
    """(i, m): the groups whose keys' hash is in the i-th of m equal ranges (``elf.job.ranges``)."""
    keep: Top | None = None
    """APPROXIMATE: what every sender keeps of a pane. The last state is then ``CREDIT``."""
    function: Function | None = None
    """What is done to the rows after WHERE and before the map, which then has no WHERE."""
    tables: tuple[Table, ...] = ()
    """What the map joins to the rows, in the order of the query. ``columns`` are the stream's alone."""

    @property
    def lane_states(self) -> tuple[State, ...]:
        """The states that the map makes."""
        return self.states if self.keep is None else self.states[:-1]

    @property
    def group_keys(self) -> tuple[str, ...]:
        """The keys that tell groups apart: those that are no cells."""
        return self.keys[: len(self.keys) - len(self.cells)]


@dataclass(frozen=True)
class Plan:
    """A planned query. ``outputs`` are the names of the SELECT list, each once."""

    sql: str
    fragment: Fragment
    windows: tuple[Kind, ...]
    """Empty: one result over everything. A session is alone."""
    final_sql: str
    outputs: tuple[str, ...]
    spark_sql: str
    top: Top | None = None
    session_states: tuple[str, str] | None = None
    """Where windows are sessions: the states with a group's first and last event time in a pane."""
    more: tuple[Fragment, ...] = ()
    """The fragments over the query's other streams, if it has several. They differ from ``fragment`` in what
    they read only: keys, states, cells and panes are the same, so that panes of all of them merge into one.
    Spark's ``rows`` are then those of all streams.
    """
    limit: int | None = None
    """Rows of a window that the query asks for."""
    reads: tuple[str, ...] = ()
    """Uids of the jobs that the query reads (FROM JOB)."""
    apart: bool = False
    """Whether Spark has a view for each stream (``elf.ql.unions``), not one for the rows of all."""
    trees: int = 1
    """In how many key ranges the groups are split, each a flow with a tree and a root of its own."""
    one_over_all: bool = False
    """Without windows: whether the outermost level, over a subquery's groups, is one group: it has a row over
    no rows too.
    """

    @property
    def fragments(self) -> tuple[Fragment, ...]:
        """One a stream and key range; a job has a flow for each."""
        whole = (self.fragment, *self.more)
        if self.trees == 1:
            return whole
        return tuple(replace(one, range=(i, self.trees)) for one in whole for i in range(self.trees))

    @property
    def streams(self) -> tuple[str, ...]:
        return tuple(fragment.stream for fragment in (self.fragment, *self.more))
