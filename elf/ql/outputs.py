"""Statements about outputs: CREATE OUTPUT and DROP OUTPUT, and of alerts, CREATE ALERT and DROP ALERT."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Struct
from sqlglot import TokenType

from elf.ql.alert import COLUMNS_MAX, WINDOWS_MAX, Alert

if TYPE_CHECKING:  # they are read by its parser
    from elf.ql.statements import Words

TABLE: Final = "table:"
"""The target of what stays in the fleet."""
_AFTER_WHEN: Final = frozenset({"BY", "FOR", "COVERAGE", "NOTIFY"})


class CreateOutput(Struct, frozen=True):
    """``CREATE OUTPUT name FROM JOB job TO 'target' [WITH (option = value, …)] [FROM BEGINNING | NOW]``.
    ``options``: in the order of their names, with their values as texts.

    Or ``CREATE ALERT name ON JOB job WHEN condition [BY column, …] [FOR n WINDOWS] [COVERAGE >= share] NOTIFY
    'target' [WITH (option = value, …)]``, which has an ``alert``.
    """

    sql: str
    name: str
    job: str
    target: str
    options: tuple[tuple[str, str], ...] = ()
    from_beginning: bool = False
    alert: Alert | None = None


class DropOutput(Struct, frozen=True):
    """``DROP OUTPUT name``, ``DROP ALERT name`` or ``DROP TABLE name``."""

    sql: str
    name: str
    alert: bool = False
    table: bool = False


def read_create_output(words: Words) -> CreateOutput:
    """The rest of a statement, after CREATE OUTPUT."""
    sql = words.text
    name = words.name("the output's name")
    words.expect("FROM", "JOB")
    job = words.name("the job's name")
    words.expect("TO")
    target = words.string("where to, in quotes ('https://…')")
    if target.lower().startswith(TABLE):
        words.index -= 1
        words.fail("expected a target outside of the fleet (a table is made by CREATE TABLE)")
    options = _options(words) if words.next_is("WITH") else {}
    from_beginning = False
    if words.next_is("FROM"):
        from_beginning = words.next_is("BEGINNING")
        if not from_beginning:
            words.expect("NOW")
    words.end()
    return CreateOutput(sql, name, job, target, tuple(sorted(options.items())), from_beginning)


def read_create_alert(words: Words) -> CreateOutput:
    """The rest of a statement, after CREATE ALERT."""
    sql = words.text
    name = words.name("the alert's name")
    words.expect("ON", "JOB")
    job = words.name("the job's name")
    words.expect("WHEN")
    when = _condition(words)
    by = _columns(words) if words.next_is("BY") else ()
    windows, coverage = 1, 1.0
    if words.next_is("FOR"):
        windows = words.whole(f"how many windows, from 1 to {WINDOWS_MAX}")
        if not 1 <= windows <= WINDOWS_MAX:
            words.index -= 1
            words.fail(f"expected how many windows, from 1 to {WINDOWS_MAX}")
        if not words.next_is("WINDOW"):
            words.expect("WINDOWS")
    if words.next_is("COVERAGE"):
        words.expect(">=")
        coverage = _share(words)
    words.expect("NOTIFY")
    target = words.string("where to, in quotes ('https://…')")
    options = _options(words) if words.next_is("WITH") else {}
    words.end()
    alert = Alert(when, windows, coverage, by)
    return CreateOutput(sql, name, job, target, tuple(sorted(options.items())), alert=alert)


def _condition(words: Words) -> str:
    """The text up to the next word that is no part of a condition, outside of brackets."""
    first, depth = words.index, 0
    while words.index < len(words.tokens):
        token = words.tokens[words.index]
        if not depth and token.text.upper() in _AFTER_WHEN and token.token_type != TokenType.STRING:
            break
        depth += (token.token_type == TokenType.L_PAREN) - (token.token_type == TokenType.R_PAREN)
        words.index += 1
    if words.index == first:
        words.fail("expected a condition over the columns of the job's rows")
    tokens = words.tokens[first : words.index]
    return words.source.text[tokens[0].start : tokens[-1].end + 1]


def _columns(words: Words) -> tuple[str, ...]:
    found = [words.name("a column of the job's rows")]
    while words.next_is(","):
        found.append(words.name("a column of the job's rows"))
    if len(found) > COLUMNS_MAX:
        words.fail(f"expected {COLUMNS_MAX} columns at most")
    return tuple(found)


def _share(words: Words) -> float:
    """From 0 to 1."""
    text = words.tokens[words.index].text if words.index < len(words.tokens) else ""
    try:
        share = float(text)
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        words.fail("expected a share of the agents, from 0 to 1")
    words.index += 1
    return share


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


def read_drop_output(words: Words, *, alert: bool = False) -> DropOutput:
    """The rest of a statement, after DROP OUTPUT or DROP ALERT."""
    sql = words.text
    name = words.name("the alert's name" if alert else "the output's name")
    words.end()
    return DropOutput(sql, name, alert)
