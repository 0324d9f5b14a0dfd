"""Aggregates of a query as state columns and cells: which there are, their names, and how a value is made
from them.

States are numbered in the order of their own text, and equal ones are one (AVG(x) shares the states of SUM(x)
and COUNT(x)), so that queries with the same aggregates have the same states. The same holds for cells.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

from msgspec import Struct, field

from elf.aggregates import State
from elf.errors import ElfBug
from elf.fields import replace
from elf.paos.builtin import AGGREGATES, BY, StateRule
from elf.ql.cells import CELLED, Cell
from elf.ql.expressions import Aggregate, Call, Constant, Expr, Kind, Slot, rewrite, walk
from elf.ql.kinds import become
from elf.ql.own import OwnAggregate
from elf.ql.pairs import of_pair, pair
from elf.ql.render import render

_ONE_STATE = ("count_star", "count", "sum", "min", "max")
"""Aggregates whose value is their one state."""


class StateColumn(Struct, frozen=True):
    """A state, and how each engine computes it from raw rows (Spark sums integers as decimals: exactly)."""

    state: State
    rule: StateRule
    aggregate: Aggregate

    @property
    def duckdb(self) -> str:
        """Over raw rows."""
        return _duckdb(self.rule, self.aggregate)

    @property
    def spark(self) -> str:
        """Over raw rows."""
        return _spark(self.rule, self.aggregate)


class States(Struct, frozen=True):
    """All states of a query, and the values that they give.

    ``columns`` are those of a group's ordinary row; ``cells`` by the name of their key column; ``celled`` the
    aggregates over cells, by the name of their value, each with its cell's name.
    """

    columns: tuple[StateColumn, ...]
    values: dict[Aggregate, Expr]
    cells: dict[str, Cell]
    celled: dict[str, tuple[Aggregate, str]]
    beside: dict[int, tuple[str, ...]] = field(default_factory=dict)
    """For each window so many before (or after): the states and cells of it that the query needs."""

    @property
    def whole(self) -> States:
        """With those of other windows, which a group has beside its own (``elf.ql.lags``)."""
        if not self.beside:
            return self
        columns, cells = list(self.columns), dict(self.cells)
        for step, names in self.beside.items():
            for column in (one for one in self.columns if one.state.name in names):
                state = replace(column.state, name=beside_name(column.state.name, step))
                columns.append(replace(column, state=state))
            cells |= {beside_name(name, step): cell for name, cell in self.cells.items() if name in names}
        return replace(self, columns=tuple(columns), cells=cells, beside={})

    @property
    def owns(self) -> tuple[tuple[str, OwnAggregate], ...]:
        """The cells that are states of aggregates of people's own."""
        return tuple((name, cell.own) for name, cell in self.cells.items() if cell.own is not None)

    @property
    def cell_states(self) -> tuple[State, ...]:
        """What is kept of cells."""
        return tuple(dict.fromkeys(cell.state for cell in self.cells.values()))

    @property
    def kept(self) -> tuple[State, ...]:
        """All that is kept of a group, that of cells last."""
        return (*(column.state for column in self.columns), *self.cell_states)

    def state_of(self, aggregate: Aggregate) -> str:
        """The name of the one state of an aggregate that has just one."""
        value = self.values[aggregate]
        if isinstance(value, Call) and len(value.args) == 1 and isinstance(value.args[0], Slot):
            return value.args[0].name
        raise ElfBug(f"{aggregate.name} has more than one state")

    def column_of(self, value: Expr) -> str | None:
        """The key or the state that an expression after grouping is; None if it is not one by itself."""
        match self.resolve(value):
            case Slot(name=name) if name.startswith("k"):
                return name
            case Call(op=op, args=(Slot(name=name),)) if op.removeprefix("final ") in _ONE_STATE:
                return name
        return None

    def over(self, change: Callable[[Expr], Expr | None]) -> States:
        """The same states of other rows."""

        def changed(cell: Cell) -> Cell:
            key = cell.key if cell.rank is not None else rewrite(cell.key, change)
            args = tuple(rewrite(arg, change) for arg in cell.args)
            return replace(cell, given=rewrite(cell.given, change), key=key, args=args)

        columns = []
        for column in self.columns:
            args = tuple(rewrite(arg, change) for arg in column.aggregate.args)
            columns.append(replace(column, aggregate=replace(column.aggregate, args=args)))
        cells = {name: changed(cell) for name, cell in self.cells.items()}
        return replace(self, columns=tuple(columns), cells=cells)

    def resolve(self, expr: Expr) -> Expr:
        """``expr`` with every aggregate as its value over merged states."""
        return rewrite(expr, lambda part: self.values.get(part) if isinstance(part, Aggregate) else None)


def collect(expressions: Iterable[Expr]) -> States:
    """The states of all aggregates in ``expressions``. A query without any in columns counts its rows, so
    that no group is empty."""
    asked = {part: None for expr in expressions for part in walk(expr) if isinstance(part, Aggregate)}
    found = {replace(aggregate, offset=0): None for aggregate in asked}
    plain = [aggregate for aggregate in found if aggregate.name in AGGREGATES]
    rules: dict[str, tuple[StateRule, Aggregate]] = {}
    for aggregate in plain or [Aggregate("count_star", (), "bigint")]:
        for rule, text in _partials(aggregate):
            rules.setdefault(text, (rule, aggregate))
    names = {text: f"s{index}" for index, text in enumerate(sorted(rules))}
    columns = tuple(StateColumn(rules[text][0].state(names[text]), *rules[text]) for text in sorted(rules))
    by_text = {column.duckdb: column.state.name for column in columns}
    values: dict[Aggregate, Expr] = {
        aggregate: _value(aggregate, [by_text[text] for _, text in _partials(aggregate)])
        for aggregate in plain
    }
    over_cells = {aggregate: _cell(aggregate) for aggregate in asked if aggregate.name in CELLED}
    distinct = sorted(set(over_cells.values()), key=_text)
    cells = {f"c{index}": cell for index, cell in enumerate(distinct)}
    cell_names = {cell: name for name, cell in cells.items()}
    celled = {
        f"v{i}": (aggregate, beside_name(cell_names[cell], aggregate.offset))
        for i, (aggregate, cell) in enumerate(over_cells.items())
    }
    values |= {aggregate: Slot(name, aggregate.kind) for name, (aggregate, _) in celled.items()}
    beside: dict[int, set[str]] = {}
    for aggregate in (one for one in asked if one.offset):
        needed = beside.setdefault(aggregate.offset, set())
        if aggregate in over_cells:
            needed.add(cell_names[over_cells[aggregate]])
            continue
        value = values[replace(aggregate, offset=0)]
        needed |= {part.name for part in walk(value) if isinstance(part, Slot)}
        values[aggregate] = rewrite(value, partial(_beside, step=aggregate.offset))
    return States(
        columns, values, cells, celled, {step: tuple(sorted(some)) for step, some in beside.items()}
    )


def beside_name(name: str, step: int) -> str:
    """What a state or a cell of another window is called beside those of a group's own."""
    return f"{name}_{'b' if step > 0 else 'a'}{abs(step)}" if step else name


def _beside(part: Expr, step: int) -> Expr | None:
    return replace(part, name=beside_name(part.name, step)) if isinstance(part, Slot) else None


def _text(cell: Cell) -> tuple[str, ...]:
    own = () if cell.own is None else (cell.own.name, cell.own.hash)
    parts = (cell.given, cell.key, *cell.args)
    return (*(render(part, "duckdb") for part in parts), *own)


def _cell(aggregate: Aggregate) -> Cell:
    return CELLED[aggregate.name].cell(aggregate)


def _partials(aggregate: Aggregate) -> list[tuple[StateRule, str]]:
    """The rules of an aggregate with the DuckDB text of each."""
    return [(rule, _duckdb(rule, aggregate)) for rule in AGGREGATES[aggregate.name].states]


def _duckdb(rule: StateRule, aggregate: Aggregate) -> str:
    return rule.partial.format(**_arguments(*(render(arg, "duckdb") for arg in _given(aggregate))))


def _spark(rule: StateRule, aggregate: Aggregate) -> str:
    args = _given(aggregate)
    if rule.suffix == "sum" and args[0].kind == "bigint":
        args = (become(args[0], "hugeint"),)
    template = rule.partial if rule.spark is None else rule.spark
    return template.format(**_arguments(*(render(arg, "spark") for arg in args)))


def _given(aggregate: Aggregate) -> tuple[Expr, ...]:
    """What its states are of: for the greatest of two values by one of them, pairs."""
    if aggregate.name not in BY:
        return aggregate.args
    x, by = aggregate.args
    known = Call("not", (Call("is_null", (by,), "boolean"),), "boolean")
    return (pair(Call("case", (known, x, Constant(None, x.kind)), x.kind), by),)


def _arguments(x: str = "", t: str = "") -> dict[str, str]:
    return {"x": x, "t": t}


def _value(aggregate: Aggregate, names: list[str]) -> Expr:
    kind: Kind = "text" if aggregate.name in BY else aggregate.kind
    value = Call(f"final {aggregate.name}", tuple(Slot(name, kind) for name in names), kind)
    return of_pair(value, aggregate.kind) if aggregate.name in BY else value
