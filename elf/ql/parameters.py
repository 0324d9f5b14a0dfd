"""Parameters: ``… WHERE sc_bytes > :least … WITH (least = 1000)``.

The values stand at the end of a query, in its text, and are substituted before anything else is read: a plan
has no parameters. To change one is to plan the changed text (``with_values``).
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from msgspec import Struct
from sqlglot import Token, TokenType, exp

from elf.errors import QueryError
from elf.ql.source import Source, did_you_mean

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_WORDS: Mapping[str, exp.Expr] = {
    "TRUE": exp.Boolean(this=True),
    "FALSE": exp.Boolean(this=False),
    "NULL": exp.Null(),
}


class Parameter(Struct, frozen=True):
    """A constant with a name; ``at`` and ``end``: the place of its value in the whole text."""

    name: str
    value: exp.Expr
    at: int
    end: int


def split(source: Source, tokens: list[Token]) -> tuple[list[Token], dict[str, Parameter]]:
    """The tokens of the query, and the parameters of the WITH after it, by name in lower case."""
    depth, start = 0, None
    for index, token in enumerate(tokens):
        if depth == 0 and index and token.text.upper() == "WITH" and _opens(tokens, index + 1):
            start = index
        depth += {TokenType.L_PAREN: 1, TokenType.R_PAREN: -1}.get(token.token_type, 0)
    if start is None:
        return tokens, {}
    found: dict[str, Parameter] = {}
    rest = tokens[start + 2 :]
    while True:
        name, equals, *rest = [*rest, *[tokens[-1]] * 3]
        if not _NAME.fullmatch(name.text) or equals.token_type != TokenType.EQ:
            raise source.error("WITH takes names and constants, as in WITH (least = 5)", name.start)
        if name.text.lower() in found:
            raise source.error(f"the parameter {name.text} has two values", name.start)
        sign = rest.pop(0) if rest[0].token_type == TokenType.DASH else None
        token = rest.pop(0)
        value = _value(source, token, negative=sign is not None)
        found[name.text.lower()] = Parameter(name.text, value, (sign or token).start, token.end + 1)
        after = rest.pop(0)
        if after.token_type == TokenType.R_PAREN:
            break
        if after.token_type != TokenType.COMMA:
            raise source.error("expected a comma or ) in WITH", after.start)
    if after is not tokens[-1]:
        raise source.error("nothing may stand after WITH (…), which ends the query", after.end + 1)
    return tokens[:start], found


def _opens(tokens: list[Token], index: int) -> bool:
    return index < len(tokens) and tokens[index].token_type == TokenType.L_PAREN


def _value(source: Source, token: Token, *, negative: bool) -> exp.Expr:
    if token.token_type == TokenType.NUMBER:
        number = exp.Literal.number(token.text)
        return exp.Neg(this=number) if negative else number
    if token.token_type == TokenType.STRING and not negative:
        return exp.Literal.string(token.text)
    if token.text.upper() in _WORDS and not negative:
        return _WORDS[token.text.upper()].copy()
    raise source.error("a parameter is a number, a text in quotes, TRUE, FALSE or NULL", token.start)


def substitute(source: Source, tree: exp.Expr, parameters: Mapping[str, Parameter]) -> exp.Expr:
    """The query with values in place of ``:name``; what is missing or not used is an error."""
    used = set()
    for place in list(tree.find_all(exp.Placeholder)):
        name = place.name
        if name in ("", "?"):
            raise source.at(place, "? is not supported; a parameter has a name, as in :least")
        parameter = parameters.get(name.lower())
        if parameter is None:
            near = did_you_mean(name, [one.name for one in parameters.values()])
            raise source.at(
                place, f"the parameter :{name} has no value{near or f'; end with WITH ({name} = …)'}"
            )
        used.add(name.lower())
        value = parameter.value.copy()
        value.meta.update(place.meta)
        place.replace(value)
    for name, parameter in parameters.items():
        if name not in used:
            raise source.error(f"the query does not use the parameter {parameter.name}", parameter.at)
    return tree


def with_values(sql: str, parameters: Mapping[str, Parameter], changes: Mapping[str, str]) -> str:
    """The text of a query with other values, each as it is written in SQL. ``parameters`` are those of this
    text. Raises ``QueryError`` for a name that it does not have.
    """
    for name in changes:
        if name.lower() not in parameters:
            known = ", ".join(one.name for one in parameters.values()) or "none"
            near = did_you_mean(name, [one.name for one in parameters.values()])
            raise QueryError(f"there is no parameter {name}; there are: {known}{near}")
    new = {name.lower(): value for name, value in changes.items()}
    for name, parameter in sorted(parameters.items(), key=lambda item: -item[1].at):
        if name in new:
            sql = sql[: parameter.at] + new[name] + sql[parameter.end :]
    return sql
