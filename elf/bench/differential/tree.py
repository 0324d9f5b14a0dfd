"""Random queries as trees of text: what is written, of which type, and how much of it the engines promise.

A node is a template over other nodes. ``exact``: every engine gives the same bits for it (sums of doubles
depend on the order of the rows); ``steady``: its values are integers or multiples of 1/8 below 2**40, so that
summing them in any order gives the same bits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from elf.ql.expressions import Kind


@dataclass(frozen=True)
class Node:
    """An expression: ``template`` has ``{0}``, ``{1}`` … for ``args``."""

    template: str
    kind: Kind
    args: tuple[Node, ...] = ()
    exact: bool = True
    steady: bool = False
    aggregated: bool = False
    """Whether it may only stand after grouping."""

    def __str__(self) -> str:
        return self.template.format(*map(str, self.args)) if self.args else self.template

    def walk(self) -> Iterator[Node]:
        yield self
        for arg in self.args:
            yield from arg.walk()

    def changed(self, change: Callable[[Node], Node]) -> Node:
        """With its parts, then itself, as ``change`` makes them."""
        return change(replace(self, args=tuple(arg.changed(change) for arg in self.args)))

    def variants(self) -> Iterator[Node]:
        """Simpler nodes of the same type: its parts, then itself with simpler parts."""
        for part in self.walk():
            if part is not self and part.kind == self.kind:
                yield part
        for index, arg in enumerate(self.args):
            for simpler in arg.variants():
                yield replace(self, args=(*self.args[:index], simpler, *self.args[index + 1 :]))


def leaf(text: str, kind: Kind, *, steady: bool = False, aggregated: bool = False) -> Node:
    """A column or a constant."""
    return Node(text, kind, (), True, steady, aggregated)


@dataclass(frozen=True)
class Query:
    """A SELECT in parts. ``order``: (expression, what follows it); ``window``: the clause as written, as are
    ``lateness``, ``emit`` and ``trees``. ``sets``: ROLLUP, CUBE, the lists of GROUPING SETS, or nothing;
    ``by``: LIMIT n BY these; ``under``: the subquery that it is over, in a WITH if ``named``; ``given``:
    parameters and their values.
    """

    keys: tuple[Node, ...] = ()
    outputs: tuple[Node, ...] = ()
    where: tuple[Node, ...] = ()
    having: tuple[Node, ...] = ()
    order: tuple[tuple[Node, str], ...] = ()
    qualify: tuple[Node, ...] = ()
    by: tuple[int, tuple[Node, ...]] | None = None
    limit: int | None = None
    offset: int = 0
    distinct: bool = False
    sets: str = ""
    under: Query | None = None
    window: str = ""
    lateness: str = ""
    emit: str = ""
    trees: str = ""
    named: bool = False
    stream: str = "log"
    given: tuple[tuple[Node, str], ...] = ()

    def __str__(self) -> str:
        """As ELF-QL. Keys come first in the SELECT list and are grouped by their number."""
        text = self.text("ka")
        if self.given:
            text += (
                " WITH (" + ", ".join(f"{node.template[1:]} = {value}" for node, value in self.given) + ")"
            )
        return text

    def text(self, names: str) -> str:
        """As ELF-QL. ``names``: the first letters of what keys and outputs are called."""
        items = [f"{node} AS {names[0]}{i}" for i, node in enumerate(self.keys)]
        items += [f"{node} AS {names[1]}{i}" for i, node in enumerate(self.outputs)]
        source = self.stream if self.under is None else f"({self.under.text('ij')}) AS s"
        parts = []
        if self.named and self.under is not None:
            parts, source = [f"WITH s AS ({self.under.text('ij')})"], "s"
        parts.append(f"SELECT {'DISTINCT ' if self.distinct else ''}{', '.join(items)} FROM {source}")
        if self.where:
            parts.append("WHERE " + " AND ".join(f"({node})" for node in self.where))
        if self.keys:
            numbers = ", ".join(str(i + 1) for i in range(len(self.keys)))
            word = "GROUPING SETS " if self.sets.startswith("(") else ""
            sets = f"{word}{self.sets}" if word else f"{self.sets} ({numbers})"
            parts.append(f"GROUP BY {sets if self.sets else numbers}")
        if self.having:
            parts.append("HAVING " + " AND ".join(f"({node})" for node in self.having))
        if self.qualify:
            parts.append("QUALIFY " + " AND ".join(f"({node})" for node in self.qualify))
        if self.order:
            parts.append("ORDER BY " + ", ".join(f"{node}{how}" for node, how in self.order))
        if self.limit is not None:
            parts.append(f"LIMIT {self.limit}")
        if self.by is not None:
            parts.append(f"LIMIT {self.by[0]} BY {', '.join(map(str, self.by[1]))}")
        if self.offset:
            parts.append(f"OFFSET {self.offset}")
        return " ".join([*parts, *filter(None, [self.window, self.lateness, self.emit, self.trees])])

    def variants(self) -> Iterator[Query]:
        """Simpler queries, the boldest first."""
        if self.window:
            yield replace(self, window="", lateness="", emit="")
        if self.lateness:
            yield replace(self, lateness="", emit="")
        if self.emit:
            yield replace(self, emit="")
        if self.trees:
            yield replace(self, trees="")
        if self.named:
            yield replace(self, named=False)
        if self.given:
            yield self.inlined()
        if self.limit is not None:
            yield replace(self, limit=None)
        if self.offset:
            yield replace(self, offset=0)
        if self.by is not None:
            yield replace(self, by=None)
        if self.distinct:
            yield replace(self, distinct=False)
        if self.sets:
            yield replace(self, sets="")
        if self.under is not None:
            for under in self.under.variants():
                yield replace(self, under=under)
        for qualify in _fewer(self.qualify):
            yield replace(self, qualify=qualify)
        for having in _fewer(self.having):
            yield replace(self, having=having)
        for where in _fewer(self.where):
            yield replace(self, where=where)
        for index in range(len(self.order)):
            yield replace(self, order=self.order[:index] + self.order[index + 1 :])
        for outputs in _fewer(self.outputs):
            yield replace(self, outputs=outputs)
        for keys in _fewer(self.keys):
            yield replace(self, keys=keys)

    def changed(self, change: Callable[[Node], Node]) -> Query:
        """With each node of this level as ``change`` makes it; leaves first."""

        def all_of(nodes: tuple[Node, ...]) -> tuple[Node, ...]:
            return tuple(node.changed(change) for node in nodes)

        return replace(
            self,
            keys=all_of(self.keys),
            outputs=all_of(self.outputs),
            where=all_of(self.where),
            having=all_of(self.having),
            qualify=all_of(self.qualify),
            order=tuple((node.changed(change), how) for node, how in self.order),
            by=None if self.by is None else (self.by[0], all_of(self.by[1])),
        )

    def inlined(self) -> Query:
        """With values in the places of parameters."""
        values = dict(self.given)
        found = self.changed(lambda node: replace(node, template=values[node]) if node in values else node)
        return replace(found, given=())


def _fewer(nodes: tuple[Node, ...]) -> Iterator[tuple[Node, ...]]:
    """Without all, without each, with a simpler one in the place of each."""
    if len(nodes) > 1:
        yield ()
    for index in range(len(nodes)):
        yield nodes[:index] + nodes[index + 1 :]
    for index, node in enumerate(nodes):
        for simpler in node.variants():
            yield (*nodes[:index], simpler, *nodes[index + 1 :])
