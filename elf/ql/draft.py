"""A query on its way through the rules (``elf.ql.rules``).

The rules bind each expression in the scope of its clause: then every name is a column, every value has a
type, and every call is known. A node that is not in ``BINDERS`` is refused by name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import wraps
from types import MappingProxyType
from typing import Any, Final

from msgspec import Struct
from sqlglot import exp

from elf.fields import replace
from elf.ql.bind_aggregates import AGGREGATES, FILTERS
from elf.ql.bind_calls import CALLS
from elf.ql.bind_intervals import INTERVALS
from elf.ql.bind_names import NAMES
from elf.ql.bind_operators import OPERATORS
from elf.ql.bind_over import OVERS
from elf.ql.expressions import Expr
from elf.ql.graphs import Graph
from elf.ql.own import OwnAggregate
from elf.ql.plan import COUNTED, Function, Table
from elf.ql.scope import Scope
from elf.ql.source import Source
from elf.ql.tables import Joined
from elf.ql.unions import Branch
from elf.schema import Schema
from elf.windows import Counted, Kind

BINDERS: Final[Mapping[type[exp.Expr], Callable[..., Expr]]] = MappingProxyType(
    {**NAMES, **OPERATORS, **CALLS, **FILTERS, **OVERS, **INTERVALS}
)
"""Everything that an expression may consist of."""


class Output(Struct, frozen=True):
    """One column of the result: its name, and its value over keys and aggregates."""

    name: str
    value: Expr


class Order(Struct, frozen=True):
    """One item of ORDER BY. NULLs come last unless the query says otherwise."""

    value: Expr
    descending: bool
    nulls_first: bool


@dataclass(frozen=True)
class Draft:
    """A query on its way through the rules. Keys are bound expressions over ``rows``; later clauses refer to
    them as slots ``k0``, ``k1`` … in the order of GROUP BY."""

    source: Source
    tree: exp.Select
    schema: Schema
    streams: tuple[str, ...] = ()
    ctes: Mapping[str, exp.Expr] = field(default_factory=dict)
    """The queries of WITH, by name in lower case."""
    derived: Mapping[str, Expr] | None = None
    """A subquery's columns. For one without groups they are expressions over the stream's rows."""
    tables: Mapping[str, Table] = field(default_factory=dict)
    """The tables that came with the query, by their names in it, in lower case."""
    joins: tuple[Joined, ...] = ()
    schemas: Mapping[str, Schema] = field(default_factory=dict)
    """The columns of each stream."""
    members: Mapping[int, Expr] = field(default_factory=dict, repr=False, compare=False)
    """As of ``Scope``."""
    branches: tuple[Branch, ...] = ()
    """The branches of a UNION ALL in FROM, whose rows these are."""
    below: Draft | None = None
    """A subquery in FROM that groups: this query is over the rows of its windows."""
    graph: Graph | None = None
    """What is made of the rows of ``below``, whose result this query is over."""
    beside: tuple[Draft, ...] = ()
    """The jobs that are joined to ``below``, one for each of ``joins``."""
    owns: Mapping[str, OwnAggregate] = field(default_factory=dict)
    """The aggregates of people's own that it may call, by name in lower case."""
    functions: tuple[Function, ...] = ()
    """The functions of a job's query: applied to its stream's rows, and to its groups."""
    windows: tuple[Kind, ...] = ()
    pane_us: int | None = None
    """Length of its panes, where it is given: by the job that is read, or by a shared flow. None: as long as
    possible."""
    lateness_us: int | None = None
    revise_us: int | None = None
    changes_us: int | None = None
    wait_us: int | None = None
    leap: bool = False
    mirror: bool = False
    trees: int = 1
    approximate: bool = False
    where: tuple[Expr, ...] = ()
    keys: tuple[Expr, ...] = ()
    outputs: tuple[Output, ...] = ()
    plain: bool = False
    """Over the rows of ``below``, one by one: ``keys`` are their columns, and there are no groups."""
    sets: tuple[frozenset[int], ...] = ()
    """GROUPING SETS, as numbers of keys, each as often as the query has it; none: one, with all keys."""
    having: Expr | None = None
    qualify: Expr | None = None
    distinct: bool = False
    """SELECT DISTINCT over groups: equal rows of a window are one."""
    order: tuple[Order, ...] = ()
    limit: int | None = None
    offset: int = 0
    aliases: dict[str, exp.Expr] = field(default_factory=dict)

    @property
    def bounds(self) -> tuple[str, ...]:
        """The columns that distinguish result windows: none without windows."""
        counted = COUNTED if self.counts else ()
        return ("window_start", "window_end", *counted) if self.windows else ()

    @property
    def counts(self) -> int:
        """Rows of a window, where windows are of so many rows; else 0."""
        return next((kind.rows for kind in self.windows if isinstance(kind, Counted)), 0)

    def scope(
        self, clause: str, *, aggregates: bool, aliases_first: bool = False, aliased: bool = True
    ) -> Scope:
        aliases = self.aliases if aliased else {}
        keys = self.keys if aggregates else None
        return Scope(
            self.source,
            self.schema,
            clause,
            aggregates,
            streams=self.streams,
            derived=self.derived,
            joins=self.joins,
            aliases=aliases,
            aliases_first=aliases_first,
            ranks=clause in ("SELECT", "QUALIFY", "ORDER BY"),
            keys=keys,
            owns=self.owns,
            members=self.members,
            binders=BINDERS,
        )


Rule = Callable[[Draft], Draft]
"""A step in a draft's processing."""
_TIMING: Final = ("windows", "lateness_us", "revise_us", "changes_us", "wait_us", "leap", "mirror")


def about(clause: str) -> Callable[[Callable[[Draft, Any], Draft]], Rule]:
    """A rule about a clause, which it gets as argument; a query without the clause stays as it is."""

    def made(step: Callable[[Draft, Any], Draft]) -> Rule:
        @wraps(step)
        def rule(draft: Draft) -> Draft:
            found = draft.tree.args.get(clause)
            return draft if found is None else step(draft, found)

        return rule

    return made


def timed(draft: Draft, other: Draft | None) -> Draft:
    """With the windows, and related clauses, of another draft; None: without any."""
    one = Draft(draft.source, draft.tree, draft.schema) if other is None else other
    return replace(draft, **{name: getattr(one, name) for name in _TIMING})


def has_aggregates(draft: Draft) -> bool:
    """Whether the query makes one group of everything: an aggregate in SELECT, HAVING or ORDER BY."""
    nodes = [*draft.tree.expressions, draft.tree.args.get("having"), draft.tree.args.get("order")]
    calls = (call for node in nodes if node is not None for call in node.find_all(exp.Anonymous))
    known = {*AGGREGATES, *draft.owns}
    return any(call.name.lower() in known and not _before_over(call) for call in calls)


def _before_over(call: exp.Anonymous) -> bool:
    """Whether it is MAX(x) OVER (…): no aggregate, but of rows beside one another."""
    return isinstance(call.parent, exp.Window) and call.arg_key == "this"


def ordinal(draft: Draft, node: exp.Expr, clause: str) -> exp.Expr | None:
    """The item of the SELECT list that a number in GROUP BY or ORDER BY means; None for anything else."""
    if not (isinstance(node, exp.Literal) and not node.is_string):
        return None
    items = draft.tree.expressions
    if not node.name.isdigit() or not 1 <= int(node.name) <= len(items):
        raise draft.source.at(node, f"{clause} {node.name}: the SELECT list has items 1 to {len(items)}")
    item: exp.Expr = items[int(node.name) - 1]
    return item.this if isinstance(item, exp.Alias) else item
