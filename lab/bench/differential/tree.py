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
    parameters and their values. ``joins``: each as written behind what is in FROM; ``others``: of a subquery,
    what UNION ALL puts behind it; ``approximate``: LIMIT is. Of what another query is over, ``job`` is the
    name that it is created under, if it is a job, and with ``letters`` begin its columns. ``beside``: the
    jobs that are joined to ``under``, each with what stands before JOIN and after ON.
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
    joins: tuple[str, ...] = ()
    others: tuple[Query, ...] = ()
    approximate: bool = False
    job: str = ""
    letters: str = "ij"
    beside: tuple[tuple[str, Query, str], ...] = ()

    def __str__(self) -> str:
        """As ELF-QL. Keys come first in the SELECT list and are grouped by their number."""
        created = {one.job: one for one in self.jobs()}.values()
        texts = [f"CREATE JOB {one.job} AS {one.with_values(one.letters)}" for one in created]
        return "; ".join([*texts, self.with_values("ka")])

    def jobs(self) -> Iterator[Query]:
        """Those that it reads, each after those that it reads itself."""
        for one in (self.under, *(query for _, query, _ in self.beside)):
            if one is not None:
                yield from one.jobs()
                if one.job:
                    yield one

    def with_values(self, names: str) -> str:
        """``text`` and the values of parameters."""
        text = self.text(names)
        if self.given:
            text += (
                " WITH (" + ", ".join(f"{node.template[1:]} = {value}" for node, value in self.given) + ")"
            )
        return text

    def text(self, names: str) -> str:
        """As ELF-QL. ``names``: the first letters of what keys and outputs are called."""
        items = [f"{node} AS {names[0]}{i}" for i, node in enumerate(self.keys)]
        items += [f"{node} AS {names[1]}{i}" for i, node in enumerate(self.outputs)]
        inner = ""
        if self.under is not None and not self.under.job:
            inner = " UNION ALL ".join(
                one.text(self.under.letters) for one in (self.under, *self.under.others)
            )
        source = f"({inner}) AS s" if inner else self.stream
        parts = []
        if self.named and inner:
            parts, source = [f"WITH s AS ({inner})"], "s"
        if self.under is not None and self.under.job:
            source = f"JOB {self.under.job} AS s"
        beside = [
            f"{how}JOIN JOB {query.job} AS u{place} ON {on}"
            for place, (how, query, on) in enumerate(self.beside)
        ]
        source = " ".join([source, *self.joins, *beside])
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
            parts.append(f"LIMIT {self.limit}{' APPROXIMATE' if self.approximate else ''}")
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
        for index in range(len(self.joins)):
            yield replace(self, joins=self.joins[:index] + self.joins[index + 1 :])
        for index, (how, query, on) in enumerate(self.beside):
            rest = self.beside[index + 1 :]
            yield replace(self, beside=self.beside[:index])
            if how:
                yield replace(self, beside=(*self.beside[:index], ("", query, on), *rest))
            for other in query.variants():
                yield replace(self, beside=(*self.beside[:index], (how, other, on), *rest))
        if self.joins:
            yield replace(self, joins=tuple(one.removeprefix("LEFT ") for one in self.joins))
        if self.approximate:
            yield replace(self, approximate=False)
        if self.limit is not None and not self.approximate:
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
            if self.under.others:
                yield replace(self, under=replace(self.under, others=()))
                for other in self.under.others:
                    yield replace(self, under=other)
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
