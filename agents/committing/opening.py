"""What peers have sent of a flow, opened and merged: tables of the flow's fragment, or *unusable*.

A piece is unusable that is no Arrow table, lacks columns of its fragment, has them in other types than the
fragment's map gives them, takes a sum beyond its type, or cannot be merged for what else is in it.

All pieces are opened at once, since what is alike is one table (``elf.batch.decode_all``). Only when that
fails they are opened one by one, to find out whose they are (``PiecesUnusable``).

    combiner (``combine``)       merges the others. The root misses who was left out, and asks for it itself.
    root (``merged_panes``)   commits nothing. It takes the others again, and that member's snapshot no more
                              (``elf.job.rollup.collect``): so it is missing, as any other that is not there.

Inner nodes look at types only where pieces differ in them: a root sees whether all of them are wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import pyarrow as pa

from agents.committing.panetables import (
    Merged,
    counter_states,
    in_units,
    merged,
    merged_counters,
    opened_counters,
    opened_groups,
)
from elf.aggregates import SumOverflow, normalise
from elf.batch import WRONG
from elf.errors import ElfError, PeerError
from elf.job.approximate import CUT, keep_best
from elf.job.contributions import Piece
from elf.job.counters import COUNTER_SCHEMA, with_the_first
from elf.job.gaps import GAPS
from elf.job.spec import START_OF_TIME
from elf.job.thresholds import HIGHEST, LEFT, LEFT_STATES, LOWEST, SEEN, SEEN_STATE, left, seen
from elf.ql.plan import Fragment, Top

Types = Callable[[Fragment], pa.Schema]
"""The columns that a fragment's map makes, in the types in which they are merged."""

_COUNTER_TYPES: Final = {name: COUNTER_SCHEMA.field(name).type for name in COUNTER_SCHEMA.names} | {
    CUT: pa.float64(),
    LEFT: pa.int64(),
    LOWEST: pa.int64(),
    HIGHEST: pa.int64(),
    GAPS: pa.binary(),
}
_SEEN_TYPE: Final = {SEEN: pa.int64()}
NOT_MERGED: Final = (PeerError, SumOverflow, *WRONG)
"""What opening and merging of pieces raises for what is in them."""


class PiecesUnusable(ElfError):
    """Pieces that cannot be used, each with the reason."""

    def __init__(self, pieces: Sequence[tuple[Piece, str]]) -> None:
        super().__init__("; ".join(dict.fromkeys(why for _, why in pieces)))
        self.pieces = tuple(pieces)


def merge(
    fragment: Fragment,
    pieces: Sequence[Piece],
    keep: Top | None = None,
    types: Types | None = None,
    *,
    below: Sequence[Piece] = (),
    last: bool = True,
    unit: int = 1,
) -> Merged:
    """Pieces of peers, and what is committed ``below`` them. Raises ``PiecesUnusable``.

    ``keep``: of an approximate fragment the best groups only; ``types``: how columns are to be, None: as they
    are; ``last``: nobody looks at them after us; ``unit``: so many panes become one (``elf.job.units``).
    """
    try:
        return _merged(fragment, [*pieces, *below], keep, types, last, unit)
    except NOT_MERGED as error:
        raise PiecesUnusable(_unusable(fragment, pieces, types, below, str(error))) from error


def _unusable(
    fragment: Fragment, pieces: Sequence[Piece], types: Types | None, below: Sequence[Piece], why: str
) -> list[tuple[Piece, str]]:
    """Who they are. Each is merged with all that came before it."""
    found: list[tuple[Piece, str]] = []
    good = [_alone(fragment, below, None)] if below else []
    for piece in pieces:
        try:
            good = [_alone(fragment, [piece, *good], types)]
        except NOT_MERGED as error:
            found.append((piece, str(error)))
    return found or [(piece, why) for piece in pieces]


def _alone(fragment: Fragment, pieces: Sequence[Piece], types: Types | None) -> Piece:
    start, end = min(piece.start for piece in pieces), max(piece.end for piece in pieces)
    counters, payload = _merged(fragment, pieces, None, types, last=True).encoded()
    return Piece(start, end, 0, counters, payload, excerpt=any(piece.excerpt for piece in pieces))


def _merged(
    fragment: Fragment,
    pieces: Sequence[Piece],
    keep: Top | None,
    types: Types | None,
    last: bool,
    unit: int = 1,
) -> Merged:
    """Raises ``PeerError`` and ``SumOverflow``."""
    if len(pieces) == 1 and not pieces[0].counters and not pieces[0].payload:
        return Merged(None, None)
    keys = ("_pane", *fragment.keys)
    counts, states = counter_states(fragment), fragment.states
    counter_tables, payloads = opened(fragment, pieces, types, last=last)
    if unit > 1:
        counter_tables = [in_units(table, unit) for table in counter_tables]
        payloads = [in_units(table, unit) for table in payloads]
    if last and any(piece.start <= START_OF_TIME for piece in pieces):
        counter_tables = with_the_first(counter_tables)
    if any(piece.excerpt for piece in pieces):
        counter_tables, payloads = [left(one) for one in counter_tables], [seen(one) for one in payloads]
        counts, states = (*counts, *LEFT_STATES), (*states, SEEN_STATE)
    counters, groups = merged_counters(counter_tables, counts), merged(payloads, keys, states)
    if keep is not None and groups is not None:
        groups, counters = keep_best(groups, counters, keep)
    return Merged(counters, groups)


def opened(
    fragment: Fragment, pieces: Sequence[Piece], types: Types | None, *, last: bool = True
) -> tuple[list[pa.Table], list[pa.Table]]:
    """(counters, groups) of pieces; raises ``PeerError``."""
    counter_tables, payloads = opened_counters(pieces), opened_groups(pieces)
    counted = [state.name for state in counter_states(fragment)]
    for table in counter_tables:
        _check(table, counted, _COUNTER_TYPES)
    for table in payloads:
        _check(table, ["_pane", *fragment.keys, *(state.name for state in fragment.states)], _SEEN_TYPE)
    if types is not None and payloads and (last or _differ(payloads)):
        wanted = types(fragment)
        for table in payloads:
            _check_types(table, fragment, wanted)
    return counter_tables, payloads


def opens(fragment: Fragment, piece: Piece, types: Types | None) -> bool:
    """Whether a piece can be used."""
    try:
        opened(fragment, [piece], types)
    except (PeerError, *WRONG):
        return False
    return True


def _check(table: pa.Table, needed: Sequence[str], kinds: Mapping[str, pa.DataType]) -> None:
    """All columns that are ``needed`` are there, once, and those of known ``kinds`` are of them."""
    schema = table.schema
    names = schema.names
    if len(set(names)) < len(names):
        raise PeerError("a column is there twice")
    missing = [name for name in needed if name not in names]
    if missing:
        raise PeerError(f"column {missing[0]} is missing")
    for name in names:
        if name in kinds and (kind := schema.field(name).type) != kinds[name]:
            raise PeerError(f"column {name} is of type {kind}, not {kinds[name]}")


def _differ(tables: Sequence[pa.Table]) -> bool:
    return any(table.schema != tables[0].schema for table in tables[1:])


def _check_types(table: pa.Table, fragment: Fragment, wanted: pa.Schema) -> None:
    """Its columns are of the types that are wanted, or become so when they are merged."""
    if all(table.schema.field(one.name).type == one.type for one in wanted):
        return
    plain = normalise(table.slice(0, 0), fragment.keys, fragment.states).schema
    for one in wanted:
        kind = plain.field(one.name).type
        if not (pa.types.is_null(one.type) or _becomes(kind, one.type)):
            raise PeerError(f"column {one.name} is of type {kind}, not {one.type}")


def _becomes(kind: pa.DataType, wanted: pa.DataType) -> bool:
    both = [pa.schema([pa.field("", one)]) for one in (kind, wanted)]
    try:
        return bool(pa.unify_schemas(both, promote_options="permissive").types == [wanted])
    except pa.ArrowException:
        return False
