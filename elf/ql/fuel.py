"""How large a statement may be, and how much work its plan may take: the same everywhere, so that no agent
refuses what another has taken, and nobody's text holds an agent up.

Tokens are counted before anything is parsed (``elf.ql.statements``). What is made of them may still grow
without bounds (a subquery that names a column twice doubles what it stands for), so planning has *fuel*: each
part of an expression that is made, visited or compared takes some, and a query that needs more is refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

from elf.errors import QueryError

CHARS_MAX: Final = 1 << 16
"""The longest text of statements."""
TOKENS_MAX: Final = 2_500
"""Of one text: names, operators, brackets, comments. Constants and commas, of which lists are made, count
half."""
STATEMENTS_MAX: Final = 64
DEPTH_MAX: Final = 64
"""Brackets and CASEs in one another; signs and NOTs before one operand."""
LEVELS_MAX: Final = 250
"""Of a query's tree, in which conditions joined by AND, or by OR, are one level."""
FRAMES_MAX: Final = 8_000
"""Python's frames that the deepest accepted text takes, and as many again (``sys.setrecursionlimit``): which
texts are accepted must not depend on who calls."""
DIGITS_MAX: Final = 400
"""Of a number: as many as the greatest double has, and some."""
FUEL: Final = 60_000
"""Parts of expressions, for one plan."""
PARTS_A_CHAR: Final = 4
"""Of another job's text, which is parsed again wherever the job is named."""
CHARS_A_PART: Final = 16
"""What a part comes to in an engine's SQL."""
BYTES_A_PART: Final = 4_096
"""Of a joined table, opened."""
KEYS_MAX: Final = 256
"""Values of a column by which rows of a table are looked up; with more, all of them are read."""
RING_PARTS: Final = 8
"""Of a table with a ring: its rows are divided by the hash of their key."""
RING_COPIES: Final = 3
"""Of each of these."""

_left: ContextVar[list[int] | None] = ContextVar("fuel", default=None)


@contextmanager
def fuelled() -> Iterator[None]:
    """Plan with so much; inside another one nothing is added."""
    if _left.get() is not None:
        yield
        return
    token = _left.set([FUEL])
    try:
        yield
    finally:
        _left.reset(token)


def burn(parts: int) -> None:
    """Raises ``QueryError`` when nothing is left."""
    left = _left.get()
    if left is None:
        return
    left[0] -= parts
    if left[0] < 0:
        raise QueryError(
            f"the query is too large: its plan takes more than {FUEL:,} steps; use fewer or shorter "
            "expressions, smaller tables, and fewer subqueries in one another"
        )
