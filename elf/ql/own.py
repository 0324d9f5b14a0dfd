"""Aggregates of one's own (``elf.paos``) in queries: what a query knows of them, and how each engine asks for
their cells.

A query knows the text of the class, of which it reads the types; it runs nothing. Its map gives the arguments
of each row in a column of the cell, a struct, and the agent makes one state of those of a group
(``agents.tasks.aggregating``); at the master the state becomes the value before the final fragment. Spark
calls functions that ``spark_backend.aggregates`` registers, and has the state, or the value, at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Final, Literal

from msgspec import Meta

from elf.fields import Code, Label
from elf.paos.texts import Signature, signature_of

if TYPE_CHECKING:
    from elf.ql.plan import Fragment, Function, Plan, RangeStage, Stage, StreamJoin
    from elf.ql.templates import Engine

KIND: Final = "aggregate"
"""The kind of the function that is its text."""
Wanted = Literal["state", "value"]
"""What Spark makes of the rows of a group."""
OwnName = Annotated[str, Meta(pattern=r"\A[a-z_][a-z0-9_]{0,63}\Z")]


@dataclass(frozen=True)
class OwnAggregate:
    """An aggregate of somebody's own, as a query names it: in lower case."""

    name: OwnName
    text: Code
    filename: Label

    @property
    def hash(self) -> str:
        """Names the text."""
        return self.function.hash

    @property
    def function(self) -> Function:
        """It, as what a sandbox runs."""
        from elf.ql.plan import Function

        return Function(KIND, self.text, self.filename)

    @property
    def signature(self) -> Signature:
        """What it takes and gives. Raises ``UserError`` for a text that is no aggregate."""
        return signature_of(self.text, self.filename)

    def called(self, wanted: Wanted) -> str:
        """What Spark calls it."""
        return f"elf_{wanted}_{self.hash}"


def struct(own: OwnAggregate, args: Sequence[str]) -> str:
    """The arguments of a row, in DuckDB. The comment tells apart the maps of two aggregates."""
    fields = ", ".join(f"x{place} := {arg}" for place, arg in enumerate(args))
    return f"struct_pack({fields}) /* {own.name} {own.hash} */"


def type_of_cell(own: OwnAggregate, engine: Engine, wanted: Wanted) -> str:
    """The type of its column in the map of either engine."""
    from elf.ql.render import TYPES

    types = TYPES[engine]
    if engine == "spark":
        return "BINARY" if wanted == "state" else types[own.signature.returns]
    fields = ", ".join(f"x{place} {types[kind]}" for place, kind in enumerate(own.signature.arguments))
    return f"STRUCT({fields})"


def owns_of(fragments: Iterable[Fragment]) -> tuple[OwnAggregate, ...]:
    """Those of fragments, each once."""
    return tuple(dict.fromkeys(own for one in fragments for _, own in one.owns))


def valued_cells(plan: Plan, made: Fragment | RangeStage | StreamJoin | Stage) -> dict[str, OwnAggregate]:
    """The cells of what windows are made of that are states; those of windows beside it too
    (``elf.ql.lags``)."""
    owns = dict(plan.fragment.owns)
    named = ((cell, owns.get(cell.partition("_")[0])) for cell in made.cells)
    return {cell: own for cell, own in named if own is not None}
