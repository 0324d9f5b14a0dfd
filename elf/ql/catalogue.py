"""All that the language has, for people: the reference page is made of it, and its examples are tests.

Functions, aggregates, operators, clauses and statements, each described where it is implemented; here they
are brought into one form.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from elf.ql.bind_aggregates import AGGREGATES
from elf.ql.clauses import CLAUSES, OPERATORS
from elf.ql.functions import GROUPS

What = Literal["clause", "operator", "function", "aggregate"]


@dataclass(frozen=True)
class Entry:
    """One thing of the language.

    ``example``: of a clause a whole query over an access log (``elf.ql.clauses``), of an operator or function
    an expression, and what it ``gives``; of an aggregate a call over the sample of ``elf.cli.reference``.
    """

    what: What
    group: str
    name: str
    usage: str
    about: str
    example: str = ""
    gives: str = ""
    aliases: tuple[str, ...] = ()


def catalogue() -> Iterator[Entry]:
    """Every entry, in the order of the reference."""
    for clause in CLAUSES:
        yield Entry("clause", "clauses", clause.name, clause.usage, clause.about, clause.example)
    for name, rule in AGGREGATES.items():
        yield Entry("aggregate", "aggregates", name.upper(), rule.usage, rule.about, rule.example)
    for operator in OPERATORS:
        yield Entry(
            "operator",
            "operators",
            operator.name,
            operator.usage,
            operator.about,
            operator.example,
            operator.gives,
        )
    for group, functions in GROUPS.items():
        for one in functions:
            yield Entry(
                "function", group, one.name, one.usage, one.about, one.example, one.gives, one.aliases
            )
