"""Names: columns by their paths, aliases of the SELECT list, and back-quoted texts.

A name is a column by its path (``user.location``, ``user['location']``, ``clicks.product``), without regard
to case where that is unambiguous; otherwise an alias of the SELECT list (in ORDER BY, and where a column has
no value, the alias comes first). A back-quoted name that is neither is a text constant, so that the paper's
Figure 4 runs as printed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from sqlglot import exp

from elf.errors import ColumnError
from elf.fields import replace
from elf.ql.expressions import Aggregate, Call, Constant, Expr, Over, Ref, walk
from elf.ql.scope import Scope
from elf.ql.source import did_you_mean, start_of
from elf.schema import LABELS, as_written


def _path(node: exp.Expr) -> list[str] | None:
    """The parts of a column's name; None when the node is no name."""
    if isinstance(node, exp.Column):
        return [part.name for part in node.parts]
    if isinstance(node, exp.Parameter):
        return ["@" + node.name]
    if isinstance(node, exp.Dot) and isinstance(node.expression, exp.Identifier):
        parts = _path(node.this)
        return None if parts is None else [*parts, node.expression.name]
    if isinstance(node, exp.Bracket) and len(node.expressions) == 1:
        parts, key = _path(node.this), node.expressions[0]
        if parts is not None and isinstance(key, exp.Literal) and key.is_string:
            return [*parts, key.name]
    return None


def name_in_subquery(node: exp.Expr, scope: Scope) -> str | None:
    """What a subquery in FROM calls the column that a name means; None if it means anything else."""
    parts = _path(node)
    if parts is None or scope.derived is None:
        return None
    found = _as_column(node, parts, scope)
    called = _called(node, parts, scope, scope.derived)
    return called if called is not None and scope.derived[called] == found else None


def _bind_name(node: exp.Expr, scope: Scope) -> Expr:
    parts = _path(node)
    if parts is None:
        scope.fail(
            node, "only a name or a text may stand after a column, as in user.location or user['location']"
        )
    found = _resolve(node, parts, scope)
    if found is not None:
        return found
    quote = _quote(node, scope)
    if quote == "`":
        return Constant(parts[0], "text")
    hint = "; a text is written in single quotes" if quote == '"' else ""
    name = ".".join(parts)
    if name.lower().startswith(LABELS):
        known = ", ".join(scope.schema.labels) or "none"
        scope.fail(node, f"no agent of the stream has label {name[len(LABELS) :]}; labels: {known}")
    error = scope.source.at(node, f'unknown column "{name}"{_nearest(name, scope)}{hint}')
    raise error if scope.derived is not None else ColumnError(error, name)


def _resolve(node: exp.Expr, parts: list[str], scope: Scope) -> Expr | None:
    """Columns before aliases; in ORDER BY, and where only an alias can be meant, aliases before columns."""
    alias = _as_alias(node, parts, scope) if scope.aliases_first else None
    if alias is not None:
        return alias
    column = _as_column(node, parts, scope)
    hidden = scope.keys is not None and scope.within is None and column not in scope.keys
    if column is None or hidden:
        return _as_alias(node, parts, scope) or column
    return column


def _as_column(node: exp.Expr, parts: list[str], scope: Scope) -> Expr | None:
    """A column of the stream or of a joined table."""
    for joined in scope.joins:
        named = len(parts) > 1 and joined.name and parts[0].lower() == joined.name.lower()
        column = joined.find(".".join(parts[1:])) if named else None
        if column is not None:
            return Ref(column.name, column.type, start_of(node) or 0, joined.place)
    found = _of_rows(node, parts, scope)
    name = ".".join(parts)
    for joined in scope.joins:
        column = joined.find(name) if joined.name and name.lower() not in joined.merged else None
        if column is None:
            continue
        if found is not None:
            place = found.table if isinstance(found, Ref) else ""
            other = next((one.name for one in scope.joins if one.place == place), "")
            left = other or next(iter(scope.streams), "stream")
            where = f"{other or (left if scope.derived is not None else 'the stream')} and in {joined.name}"
            first = f"{left}.{name}"
            scope.fail(
                node, f'column "{name}" is ambiguous: it is in {where}; write {first} or {joined.name}.{name}'
            )
        found = Ref(column.name, column.type, start_of(node) or 0, joined.place)
    return found


def _names(parts: list[str], scope: Scope) -> list[str]:
    """What a name may mean: with what stands before the dot, or without; keys as written, or a path."""
    named = len(parts) > 1 and parts[0].lower() in {stream.lower() for stream in scope.streams}
    every = [parts, *([parts[1:]] if named else [])]
    return list(dict.fromkeys(name for each in every for name in (as_written(each), ".".join(each))))


def _called(node: exp.Expr, parts: list[str], scope: Scope, derived: Mapping[str, Expr]) -> str | None:
    """The column of a subquery with that name."""
    for name in _names(parts, scope):
        found = [name] if name in derived else []
        found += [other for other in derived if other.lower() == name.lower() and other != name]
        if len(found) == 1 or name in found:
            return found[0]
        if found:
            scope.fail(node, f'column "{name}" is ambiguous: columns differ only in case')
    return None


def _of_rows(node: exp.Expr, parts: list[str], scope: Scope) -> Expr | None:
    if scope.derived is not None:
        called = _called(node, parts, scope, scope.derived)
        return None if called is None else scope.derived[called]
    for name in _names(parts, scope):
        column = scope.schema.find(name)
        if column is not None:
            return Ref(column.name, column.type, start_of(node) or 0)
        if sum(other.lower() == name.lower() for other in scope.schema.names()) > 1:
            scope.fail(node, f'column "{name}" is ambiguous: columns differ only in case')
    return None


def _as_alias(node: exp.Expr, parts: list[str], scope: Scope) -> Expr | None:
    aliased = scope.aliases.get(parts[0].lower()) if len(parts) == 1 else None
    if aliased is None:
        return None
    if scope.within or not scope.aggregates:
        inner = replace(scope, aliases={}, aliases_first=False, aggregates=True, within=None).bind(aliased)
        if any(isinstance(part, Aggregate | Over) or _is_grouping(part) for part in walk(inner)):
            scope.fail(node, f'"{parts[0]}" is an aggregate, which cannot be in {scope.place}')
        return inner
    return replace(scope, aliases={}, aliases_first=False).bind(aliased)


def _is_grouping(part: Expr) -> bool:
    return isinstance(part, Call) and part.op == "grouping"


def _quote(node: exp.Expr, scope: Scope) -> str:
    """The quotation mark that a name of one part was written with, if any."""
    start = start_of(node)
    if not isinstance(node, exp.Column) or len(node.parts) > 1 or start is None:
        return ""
    first = scope.source.text[start : start + 1]
    return first if first in ("`", '"') else ""


def _nearest(name: str, scope: Scope) -> str:
    known = (column.name for column in scope.schema.everything())
    columns = known if scope.derived is None else scope.derived
    joined = [
        spelled
        for one in scope.joins
        if one.name
        for column in one.table.columns
        for spelled in (column.name, f"{one.name}.{column.name}")
    ]
    return did_you_mean(name, [*columns, *joined, *scope.aliases])


NAMES: Final[Mapping[type[exp.Expr], Callable[..., Expr]]] = dict.fromkeys(
    (exp.Column, exp.Dot, exp.Bracket, exp.Parameter), _bind_name
)
"""The nodes that are names."""
