"""What names and nodes mean in one clause of one query, and what is refused there."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, NoReturn

from sqlglot import exp

from elf.ql.expressions import Expr
from elf.ql.kinds import become, common
from elf.ql.own import OwnAggregate
from elf.ql.source import Source
from elf.ql.tables import Joined
from elf.schema import Schema

_FEATURES: dict[type[exp.Expr], str] = {
    exp.Distinct: "DISTINCT in an aggregate",
    exp.Subquery: "a subquery",
    exp.Select: "a subquery",
    exp.Exists: "a subquery (EXISTS)",
    exp.Star: "* here",
    exp.Tuple: "a tuple",
    exp.Array: "an array",
    exp.Lambda: "a lambda",
    exp.WithinGroup: "WITHIN GROUP",
    exp.IgnoreNulls: "IGNORE NULLS",
    exp.Placeholder: "a placeholder",
    exp.JSONExtract: "->",
    exp.Any: "ANY",
}


_OPERANDS: Final = frozenset({"this", "expression", "expressions"})
_PARTS: Final[Mapping[type[exp.Expr], frozenset[str]]] = {
    exp.Window: frozenset({"this", "partition_by", "order", "spec", "over"}),
    exp.In: frozenset({"this", "expressions", "query"}),
    exp.Column: frozenset({"this", "table", "db", "catalog"}),
    exp.Literal: frozenset({"this", "is_string"}),
    exp.Like: frozenset({"this", "expression", "negate"}),
    exp.ILike: frozenset({"this", "expression", "negate"}),
    exp.Between: frozenset({"this", "low", "high"}),
    exp.DPipe: frozenset({"this", "expression", "safe"}),
    exp.Case: frozenset({"this", "ifs", "default"}),
    exp.Cast: frozenset({"this", "to"}),
    exp.TryCast: frozenset({"this", "to", "safe"}),
    exp.Trim: frozenset({"this", "expression", "position"}),
    exp.Substring: frozenset({"this", "start", "length"}),
    exp.StrPosition: frozenset({"this", "substr"}),
    exp.AtTimeZone: frozenset({"this", "zone"}),
    exp.Interval: frozenset({"this", "unit"}),
    exp.JSONExtractScalar: frozenset({"this", "expression", "only_json_types", "scalar_only"}),
}
"""The allowed parts of each node; anything else that the grammar found is refused, never overlooked."""


def _feature(node: exp.Expr) -> str:
    return _FEATURES.get(type(node), node.key.upper())


@dataclass(frozen=True)
class Scope:
    """What names mean, and what is allowed, in one clause of one query."""

    source: Source
    schema: Schema
    clause: str
    aggregates: bool
    streams: tuple[str, ...] = ()
    """Names that may stand before a column: the stream's, or its alias."""
    derived: Mapping[str, Expr] | None = None
    """For a subquery in FROM: its columns by name; then the schema's names mean nothing."""
    joins: tuple[Joined, ...] = ()
    """Tables whose columns have a meaning too."""
    aliases: Mapping[str, exp.Expr] = field(default_factory=dict)
    """Expressions of the SELECT list by alias, in lower case."""
    aliases_first: bool = False
    keys: tuple[Expr, ...] | None = None
    """After grouping: the keys, the only columns that have a value outside of aggregates."""
    ranks: bool = False
    """Whether window functions (OVER) may stand here."""
    within: str | None = None
    """The aggregate whose argument is being bound."""

    owns: Mapping[str, OwnAggregate] = field(default_factory=dict)
    """The aggregates of people's own that it may call, by name in lower case."""

    members: Mapping[int, Expr] = field(default_factory=dict, repr=False)
    """What each IN (SELECT …) means, by the identity of its node (``elf.ql.rules_members``)."""

    binders: Mapping[type[exp.Expr], Callable[..., Expr]] = field(default_factory=dict, repr=False)
    """How each kind of node is bound (``elf.ql.draft.BINDERS``)."""

    @property
    def place(self) -> str:
        """The clause or aggregate that is being bound, for messages."""
        return f"the argument of {self.within}" if self.within else self.clause

    def bind(self, node: exp.Expr) -> Expr:
        """The bound expression. Raises ``QueryError`` at the place of what is wrong."""
        binder = self.binders.get(type(node))
        if binder is None:
            self.fail(node, f"{_feature(node)} is not supported yet")
        known = _PARTS.get(type(node), _OPERANDS)
        for part, value in node.args.items():
            if isinstance(value, exp.Query) and not isinstance(node, exp.In):
                self.fail(node, "a subquery is not supported yet")
            if value and part not in known:
                self.fail(node, f"{_feature(node)} with {part.upper()} is not supported yet")
        return binder(node, self)

    def condition(self, node: exp.Expr, what: str) -> Expr:
        """A bound boolean; ``what`` is the clause or operator that needs it."""
        expr = self.bind(node)
        if common((expr.kind, "boolean")) != "boolean":
            self.fail(node, f"{what} needs a condition, this is {expr.kind}")
        return become(expr, "boolean")

    def fail(self, node: exp.Expr, message: str) -> NoReturn:
        raise self.source.at(node, message)
