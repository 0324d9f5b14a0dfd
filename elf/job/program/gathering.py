"""One answer of all masters of a job that has several trees (protocol 14.14).

    a query ─▶ the first master's agent ─▶ ``Routed`` ─▶ the masters of the other trees ─▶ ``Returned`` ─┐
                  ``Delivered`` with their parts ─▶ ``Job.together`` ─▶ the reply         ◀──────────────┘

The answer has the parts of all masters, or there is none: one that is not at work, or not in time, is told by
its tree's name.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, NamedTuple

from elf.fields import replace
from elf.job.program.asking import Asking
from elf.job.program.calls import VALUE_BYTES_MAX
from elf.job.program.messages import Returned, Routed

WAIT_MS: Final = 3_000
"""So long for the others' parts."""
QUERIES_MAX: Final = 200
PARTS_BYTES_MAX: Final = 2 * VALUE_BYTES_MAX
"""Of the others' parts of one answer."""


class Gathered(NamedTuple):
    """A query whose parts are all there, or that has an ``error``."""

    routed: Routed
    parts: tuple[bytes, ...] = ()
    error: str = ""


@dataclass
class _Query:
    """``trees``: their names; ``parts``: by tree, those that are there."""

    routed: Routed
    trees: tuple[str, ...]
    until_ms: int
    parts: dict[int, bytes] = field(default_factory=dict)

    def missing(self) -> list[int]:
        return [tree for tree in range(1, len(self.trees)) if tree not in self.parts]


class Gathering:
    """One node's part."""

    def __init__(self, address: str, asking: Asking) -> None:
        self._address = address
        self._asking = asking
        self._queries: dict[int, _Query] = {}
        self._of: dict[int, tuple[int, int]] = {}
        """By the number of a question to another master: of which query, and tree."""

    def ask(self, routed: Routed, trees: tuple[str, ...], now_ms: int) -> list[Routed]:
        """The questions for the other masters; none: too many queries wait."""
        if len(self._queries) >= QUERIES_MAX:
            return []
        query = self._asking.number()
        self._queries[query] = _Query(routed, trees, now_ms + WAIT_MS)
        found: list[Routed] = []
        for tree in range(1, len(trees)):
            number = self._asking.number()
            self._of[number] = query, tree
            found.append(replace(routed, origin=self._address, query=number, tree=tree))
        return found

    def returned(self, reply: Returned) -> Gathered | None:
        """A master has answered; None: others have not yet, or it is of no query here."""
        number, tree = self._of.pop(reply.query, (0, 0))
        query = self._queries.get(number)
        if query is None:
            return None
        query.parts[tree] = reply.value
        if reply.error:
            return self._end(number, f"tree {query.trees[tree]}: {reply.error}")
        if sum(map(len, query.parts.values())) > PARTS_BYTES_MAX:
            return self._end(number, f"its masters answer more than {PARTS_BYTES_MAX} bytes together")
        return None if query.missing() else self._end(number)

    def _end(self, number: int, error: str = "") -> Gathered:
        query = self._queries.pop(number)
        self._of = {asked: of for asked, of in self._of.items() if of[0] != number}
        parts = () if error else tuple(query.parts[tree] for tree in range(1, len(query.trees)))
        return Gathered(query.routed, parts, error)

    def deadline(self) -> int | None:
        return min((query.until_ms for query in self._queries.values()), default=None)

    def tick(self, now_ms: int) -> list[Gathered]:
        """Those that have waited for too long."""
        late = {n: query for n, query in self._queries.items() if now_ms >= query.until_ms}
        return [
            self._end(n, f"the master of tree {query.trees[query.missing()[0]]} does not answer: ask again")
            for n, query in late.items()
        ]
