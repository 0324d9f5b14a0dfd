"""Statements about outputs: CREATE OUTPUT and DROP OUTPUT."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlglot import TokenType

if TYPE_CHECKING:  # they are read by its parser
    from elf.ql.statements import Words


@dataclass(frozen=True)
class CreateOutput:
    """``CREATE OUTPUT name FROM JOB job TO 'target' [WITH (option = value, …)] [FROM BEGINNING | NOW]``.
    ``options``: in the order of their names, with their values as texts."""

    sql: str
    name: str
    job: str
    target: str
    options: tuple[tuple[str, str], ...] = ()
    from_beginning: bool = False


@dataclass(frozen=True)
class DropOutput:
    """``DROP OUTPUT name``"""

    sql: str
    name: str


def read_create_output(words: Words) -> CreateOutput:
    """The rest of a statement, after CREATE OUTPUT."""
    sql = words.text
    name = words.name("the output's name")
    words.expect("FROM", "JOB")
    job = words.name("the job's name")
    words.expect("TO")
    target = words.string("where to, in quotes ('https://…')")
    options = _options(words) if words.next_is("WITH") else {}
    from_beginning = False
    if words.next_is("FROM"):
        from_beginning = words.next_is("BEGINNING")
        if not from_beginning:
            words.expect("NOW")
    words.end()
    return CreateOutput(sql, name, job, target, tuple(sorted(options.items())), from_beginning)


def _options(words: Words) -> dict[str, str]:
    found: dict[str, str] = {}
    words.expect("(")
    while True:
        name = words.name("an option's name").lower()
        if name in found:
            words.index -= 1
            words.fail(f"{name} is said twice: expected another option")
        words.expect("=")
        found[name] = _value(words)
        if words.next_is(")"):
            return found
        words.expect(",")


def _value(words: Words) -> str:
    if words.index < len(words.tokens) and words.tokens[words.index].token_type == TokenType.STRING:
        return words.string("a value")
    return str(words.whole("a value: a text in quotes, or a whole number"))


def read_drop_output(words: Words) -> DropOutput:
    """The rest of a statement, after DROP OUTPUT."""
    sql = words.text
    name = words.name("the output's name")
    words.end()
    return DropOutput(sql, name)
