"""Aggregates of a query as state columns: which there are, what they are called, how a value is made of them.

States are numbered in the order of their own text, and equal ones are one (AVG(x) shares the states of
SUM(x) and COUNT(x)), so that queries which aggregate the same have the same states.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from elf.aggregates import AGGREGATES, State, StateRule
from elf.ql.expressions import Aggregate, Call, Expr, Kind, Slot, rewrite, walk
from elf.ql.kinds import become
from elf.ql.render import render


@dataclass(frozen=True)
class StateColumn:
    """A state, and how each engine computes it from raw rows (Spark sums integers as decimals: exactly)."""

    state: State
    duckdb: str
    spark: str


@dataclass(frozen=True)
class States:
    """All state columns of a query, and the values that they give."""

    columns: tuple[StateColumn, ...]
    values: dict[Aggregate, Expr]

    def resolve(self, expr: Expr) -> Expr:
        """``expr`` with every aggregate as its value over merged states."""
        return rewrite(expr, lambda part: self.values.get(part) if isinstance(part, Aggregate) else None)


def collect(expressions: Iterable[Expr]) -> States:
    """The states of all aggregates in ``expressions``. A query without any counts its rows, so that no group
    is empty.
    """
    found = {part: None for expr in expressions for part in walk(expr) if isinstance(part, Aggregate)}
    aggregates = list(found) or [Aggregate("count", None, "bigint")]
    rules: dict[str, tuple[StateRule, str]] = {}
    for aggregate in aggregates:
        for rule, text in _partials(aggregate):
            rules.setdefault(text, (rule, _spark(rule, aggregate)))
    names = {text: f"s{index}" for index, text in enumerate(sorted(rules))}
    columns = tuple(
        StateColumn(rules[text][0].state(names[text]), text, rules[text][1]) for text in sorted(rules)
    )
    by_text = {column.duckdb: column.state.name for column in columns}
    values = {
        aggregate: _value(aggregate, [by_text[text] for _, text in _partials(aggregate)])
        for aggregate in found
    }
    return States(columns, values)


def _key(aggregate: Aggregate) -> str:
    return "count_star" if aggregate.arg is None else aggregate.name


def _partials(aggregate: Aggregate) -> list[tuple[StateRule, str]]:
    """The rules of an aggregate with the DuckDB text of each."""
    pao = AGGREGATES[_key(aggregate)]
    argument = "" if aggregate.arg is None else render(aggregate.arg, "duckdb")
    return list(zip(pao.states, pao.partial_sql(argument), strict=True))


def _spark(rule: StateRule, aggregate: Aggregate) -> str:
    arg = aggregate.arg
    if arg is None:
        return rule.partial
    if rule.suffix == "sum" and arg.kind == "bigint":
        arg = become(arg, "hugeint")
    return rule.partial.format(x=render(arg, "spark"))


def _value(aggregate: Aggregate, names: list[str]) -> Expr:
    kind: Kind = aggregate.kind
    return Call(f"final {_key(aggregate)}", tuple(Slot(name, kind) for name in names), kind)
