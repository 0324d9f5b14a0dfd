"""A run's work in Spark: an archive file's partial states, and the rows that all of them make.

A query that is *divisible* is mapped file by file; what the files have made is merged in the order of the
files, however they were shared out among attempts, so the answer is the same to the bit whatever happened on
the way. Other queries (joins of streams, jobs over jobs, aggregates of one's own) are one input: they give
way only before they begin.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from typing import Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

from agents.archive.manifest import File
from agents.archive.partitions import Target
from agents.tasks.engine import Finisher
from elf.aggregates import identity_row, merge_tables
from elf.errors import UserError
from elf.job.assembly.windows import Assembly
from elf.job.spec import END_OF_TIME, START_OF_TIME
from elf.ql.own import owns_of
from elf.ql.plan import Fragment, Plan
from elf.windows import Calendar
from spark_backend import offline
from spark_backend.offline import Archived
from spark_backend.partials import partials
from spark_backend.queries import question
from spark_backend.queue.store import Spec
from spark_backend.session import SparkFailed

MERGED_AT_ONCE: Final = 64
"""Inputs; the same ones whatever happened."""
_BOUNDS: Final = ("window_start", "window_end")
_UTC: Final = pa.timestamp("us", "UTC")


class Input(msgspec.Struct, frozen=True):
    """What is done at a time. Without a file: all of a query that is not divisible.

    Attributes:
        archived (int): its place in ``Question.archived``.
        file (File | None): which file of it.

    Example:
        >>> Input(0).file is None
        True
    """

    archived: int
    file: File | None = None


class Work:
    """The work of one run. Any thread may do some of it; each has a session of its own.

    Args:
        spark (SparkSession): of the daemon.
        spec (Spec): what the run is to answer.

    Raises:
        UserError: for a query that cannot be planned any more: its archive has gone.

    Example:
        >>> work = Work(spark, spec)
        >>> work.result(work.partial(one) for one in work.inputs())["n"].to_pylist()
        [2]
    """

    def __init__(self, spark: SparkSession, spec: Spec) -> None:
        asked = question(
            spec.text,
            spec.archives,
            spec.span,
            tables=spec.tables,
            schemas=spec.schemas,
            texts=spec.texts,
        )
        self._spark = spark
        self._plan, self._archived, self._span = asked.plan, asked.archived, spec.span
        self._mine = threading.local()
        self.divisible = is_divisible(asked.plan)
        """Whether it has safe points."""

    def inputs(self) -> list[bytes]:
        """All of them, encoded, in the order in which they are merged. Raises ``UserError``."""
        if not self.divisible:
            return [msgspec.msgpack.encode(Input(0))]
        return [
            msgspec.msgpack.encode(Input(place, file))
            for place, one in enumerate(self._archived)
            for file in offline.files_of(one, self._reached, self._fragment(one))
        ]

    def partial(self, encoded: bytes) -> pa.Table:
        """What one input makes, its rows in an order of their own. Raises ``UserError``."""
        one = msgspec.msgpack.decode(encoded, type=Input)
        spark = self._session()
        if one.file is None:
            return offline.collected(offline.answer(spark, self._plan, self._archived, self._span))
        archived = self._archived[one.archived]
        fragment = self._fragment(archived)
        target = Target(archived.path)
        path = f"{target.stream_folder(archived.stream)}/{one.file.path}"
        try:
            table = partials(spark, fragment, [archived], self._reached, None, files=[one.file])
        except SparkFailed as error:
            if why := target.damage(path):
                raise UserError(
                    f"{path} is damaged, or was replaced since the run was submitted ({why}): put a copy "
                    "of it back and resume the run, or submit it again"
                ) from error
            raise
        return table.sort_by([(name, "ascending") for name in ("_pane", *fragment.keys)])

    def result(self, tables: Iterable[pa.Table]) -> pa.Table:
        """The rows, of what all inputs have made, in their order. Raises ``UserError``."""
        if not self.divisible:
            return next(iter(tables))
        fragment = self._plan.fragment
        keys = ("_pane", *fragment.keys)
        merged: pa.Table | None = None
        for some in _chunks(tables):
            parts = some if merged is None else [merged, *some]
            merged = merge_tables(parts, keys, fragment.task_states)
        if merged is None:
            return offline.collected(offline.answer(self._session(), self._plan, self._archived, self._span))
        return finished(self._plan, merged, self._span)

    @property
    def _reached(self) -> tuple[int, int] | None:
        return None if self._span is None else offline.reached(self._plan, self._span)

    def _fragment(self, one: Archived) -> Fragment:
        whole = (self._plan.fragment, *self._plan.more)
        return next((f for f in whole if f.stream == one.stream), self._plan.fragment)

    def _session(self) -> SparkSession:
        """Views have fixed names: each thread has its own."""
        if not hasattr(self._mine, "spark"):
            self._mine.spark = self._spark.newSession()
        found: SparkSession = self._mine.spark
        return found


def is_divisible(plan: Plan) -> bool:
    """Whether the files of an archive can be mapped one by one, and what they make be merged: groups of one
    or more streams, without rows of two that meet."""
    plain = plan.join is None and not plan.beside and not plan.stages and plan.final is None
    plain = plain and not owns_of(plan.unranged)  # their values are made by Spark, or by an agent's sandbox
    return plain and plan.trees == 1 and plan.since is None and plan.fragment.keep is None


def finished(plan: Plan, panes: pa.Table, span: tuple[int, int] | None) -> pa.Table:
    """The rows of a query, of its merged partial states.

    Args:
        plan (Plan): a divisible one.
        panes (pyarrow.Table): ``_pane``, keys and states, each group once.
        span (tuple[int, int] | None): event times in µs; windows lie wholly within it.

    Returns:
        pyarrow.Table: as ``spark_backend.offline.answer`` gives them.

    Example:
        >>> finished(plan, panes, None).column_names
        ['window_start', 'window_end', 'product', 'n']
    """
    finisher = Finisher(plan)
    try:
        if not plan.windows:
            keys, states = plan.fragment.keys, plan.fragment.task_states
            whole = merge_tables([panes.drop_columns("_pane")], keys, states)
            if not whole.num_rows and not keys:
                whole = identity_row(whole.schema, states)
            return finisher.run(whole)
        made = Assembly(plan, Calendar(plan.windows, plan.fragment.pane_us))
        groups = [one for one in made.windows(START_OF_TIME, END_OF_TIME, panes) if one.num_rows]
        rows = pa.concat_tables([finisher.run(one) for one in groups or [_none(panes)]])
    finally:
        finisher.close()
    for place, name in enumerate(_BOUNDS):
        rows = rows.set_column(rows.schema.get_field_index(name), name, rows[name].cast(_UTC))
        if span is not None:
            bound = pa.scalar(span[place], pa.int64())
            inside = (pc.greater_equal, pc.less_equal)[place](rows[name].cast(pa.int64()), bound)
            rows = rows.filter(inside)
    return rows


def _none(panes: pa.Table) -> pa.Table:
    empty = panes.slice(0, 0).drop_columns("_pane")
    for name in _BOUNDS:
        empty = empty.append_column(name, pa.array([], pa.timestamp("us")))
    return empty


def _chunks(tables: Iterable[pa.Table]) -> Iterator[list[pa.Table]]:
    some: list[pa.Table] = []
    for table in tables:
        some.append(table)
        if len(some) == MERGED_AT_ONCE:
            yield some
            some = []
    if some:
        yield some
