"""``FROM (SELECT … FROM a UNION ALL SELECT … FROM b)``: rows of several streams, each made in its own way.

Every branch reads one stream. The fragment over a stream has its branches in place of ``rows``; to all
clauses after FROM the rows have the union's columns. Spark has a view for each of several streams,
``rows_a``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import chain
from typing import Final

from msgspec import Struct

from elf.fields import replace
from elf.ql.expressions import TRUE, Expr, Ref, connect, walk
from elf.ql.render import render
from elf.ql.tables import Joined, needed, source_rows
from elf.ql.templates import Engine, name

EVENT_TIME: Final = "_event_time"
"""The column of a union that has the event time of its rows."""


class Branch(Struct, frozen=True):
    """``columns`` of the union as this branch makes them, in their order; ``joins``: its own."""

    stream: str
    columns: tuple[tuple[str, Expr], ...]
    where: tuple[Expr, ...] = ()
    joins: tuple[Joined, ...] = ()
    view: str = "rows"
    """The name of the stream's rows in Spark."""

    def references(self) -> Iterator[Ref]:
        """Every column of the stream, and of the tables, that it reads."""
        on = chain.from_iterable(joined.on for joined in self.joins)
        for expr in (*(value for _, value in self.columns), *self.where, *on):
            yield from (part for part in walk(expr) if isinstance(part, Ref))

    def narrowed(self, names: Collection[str]) -> Branch:
        """With these columns alone."""
        left = replace(self, columns=tuple(one for one in self.columns if one[0] in names))
        return replace(left, joins=needed(left.joins, left.references()))


def view_of(stream: str) -> str:
    """The name of Spark's view of a stream's rows, where a query reads several."""
    name = f"rows_{stream}"
    return name if name.isidentifier() and name.isascii() else f"rows_x_{stream.encode().hex()}"


def side_view(number: int, view: str) -> str:
    """The name of Spark's view for the ``number``-th joined job; the first being 0."""
    return f"side_{number}_{view}" if number else view


def base_rows(branches: Sequence[Branch], joins: Sequence[Joined], engine: Engine) -> str:
    """What stands after FROM: ``rows AS r``, or branches, or either joined with tables."""
    if not branches:
        return source_rows(joins, engine)
    base = f"({' UNION ALL '.join(_select(branch, engine) for branch in branches)}) AS r"
    return source_rows(joins, engine, base)


def _select(branch: Branch, engine: Engine) -> str:
    items = ["r._pane" if engine == "duckdb" else "r._ts"]
    items += [f"{render(value, engine)} AS {name(column, engine)}" for column, value in branch.columns]
    rows = f"{'rows' if engine == 'duckdb' else branch.view} AS r"
    wanted = tuple(condition for condition in branch.where if condition != TRUE)
    where = f" WHERE {render(connect('and', wanted), engine)}" if wanted else ""
    return f"SELECT {', '.join(items)} FROM {source_rows(branch.joins, engine, rows)}{where}"
