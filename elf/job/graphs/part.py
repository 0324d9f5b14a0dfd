"""What one agent has of a graph: the vertices in a range of hashes, and all edges into them.

A vertex is a text; its *id* is the upper 63 bits of the text's hash (``elf.keys``), and its *slot* the upper
12 of these. Agents have ranges of slots. Everything is in the order of ids, and what is added up is added up
in that order, so that what comes of it is the same, to the last bit, however vertices are spread.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from elf.aggregates import canonical_key
from elf.batch import decode, encode
from elf.job.program.host import JobError
from elf.keys import hash_keys

SLOT_BITS: Final = 12
SLOTS: Final = 1 << SLOT_BITS
"""Ranges of hashes that are never cut."""
_SHIFT: Final = 63 - SLOT_BITS

Ids: TypeAlias = npt.NDArray[np.int64]
Doubles: TypeAlias = npt.NDArray[np.float64]
Places: TypeAlias = npt.NDArray[np.int32]
Values: TypeAlias = npt.NDArray[Any]
"""One for each vertex: doubles, or integers of 64 bits."""
Range = tuple[int, int]
"""Of slots."""

VERTICES: Final = pa.schema([("id", pa.int64()), ("name", pa.string()), ("out", pa.float64())])
"""Of vertices that are points: their numbers too, ``x0`` and so on."""
EDGES: Final = pa.schema([("source", pa.int64()), ("target", pa.int64()), ("weight", pa.float64())])
Pieces = dict[str, pa.Table]
"""``vertices`` and ``edges`` with these columns: what agents send each other of a graph."""


def ids_of(names: pa.Array | pa.ChunkedArray) -> Ids:
    return (hash_keys([names]) >> np.uint64(1)).astype(np.int64)


def slots_of(ids: Ids) -> Ids:
    return ids >> np.int64(_SHIFT)


def within(ids: Ids, slots: Range) -> tuple[int, int]:
    """Where the ids of a range stand, of ids that ascend."""
    low, high = slots[0] << _SHIFT, slots[1] << _SHIFT
    first = int(np.searchsorted(ids, low))
    last = len(ids) if slots[1] == SLOTS else int(np.searchsorted(ids, high))
    return first, last


def pieces_of(groups: pa.Table, *, weighted: bool, both_ways: bool) -> Pieces:
    """The edges of an agent's own rows. Their ends are the first two columns, and the third is the weight if
    they have one; without an end, or with a weight that is not above 0, it is no edge."""
    ends = [canonical_key(groups.column(place)).cast(pa.string()) for place in (0, 1)]
    weights = _doubles(groups.column(2)) if weighted else pa.chunked_array([np.ones(len(groups))])
    good = pc.and_(pc.is_valid(ends[0]), pc.is_valid(ends[1]))
    good = pc.and_(good, pc.fill_null(pc.and_(pc.greater(weights, 0), pc.is_finite(weights)), False))
    ends, weight = [one.filter(good) for one in ends], weights.filter(good).to_numpy()
    names = pa.chunked_array([*ends[0].chunks, *ends[1].chunks], pa.string()).unique()
    source, target = (ids_of(one) for one in ends)
    if both_ways:
        source, target = np.concatenate([source, target]), np.concatenate([target, source])
        weight = np.concatenate([weight, weight])
    vertices = {"id": ids_of(names), "name": names, "out": np.zeros(len(names))}
    edges = {"source": source, "target": target, "weight": weight}
    return {"vertices": pa.table(vertices, VERTICES), "edges": pa.table(edges, EDGES)}


def points_of(groups: pa.Table) -> Pieces:
    """Vertices without edges, of an agent's own rows: the first column is their name, and the others are
    numbers of theirs, which are added up where several agents have some. A NULL adds nothing."""
    name = canonical_key(groups.column(0)).cast(pa.string())
    good = pc.is_valid(name)
    names = name.filter(good)
    numbers = [_doubles(column).filter(good) for column in groups.columns[1:]]
    vertices = {"id": ids_of(names), "name": names, "out": np.zeros(len(names)), **_numbered(numbers)}
    return {"vertices": pa.table(vertices), "edges": EDGES.empty_table()}


def _doubles(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """The nearest ones: sums of integers may be greater than 2⁵³."""
    return column.cast(pa.float64(), safe=False)


def _numbered(numbers: Iterable[Any]) -> dict[str, Any]:
    return {f"x{place}": one for place, one in enumerate(numbers)}


def cut(pieces: Pieces, slots: Range) -> Pieces:
    """The vertices of a range, and the edges into them."""
    return {
        what: pieces[what].filter(pa.array(_has(slots, pieces[what][column].to_numpy())))
        for what, column in (("vertices", "id"), ("edges", "target"))
    }


def _has(slots: Range, ids: Ids) -> npt.NDArray[np.bool_]:
    where = slots_of(ids)
    return (where >= slots[0]) & (where < slots[1])


@dataclass(frozen=True)
class Part:
    """Columns, in the order of ``ids``. ``out``: the sum of the weights of the edges out of each vertex.
    Edges stand by the vertex that they go to, ``degrees`` to each, and then by that which they come from: its
    place in ``sources``. ``numbers``: of vertices that are points."""

    ids: Ids
    names: pa.Array
    out: Doubles
    sources: Ids
    degrees: Places
    places: Places
    weights: Doubles
    numbers: tuple[Doubles, ...] = ()

    @cached_property
    def image(self) -> bytes:
        """Of all of it, as ``of_image`` takes it."""
        edges = {"source": self.sources[self.places], "weight": self.weights}
        of = {"id": self.ids, "name": self.names, "out": self.out, "degree": self.degrees}
        of |= _numbered(self.numbers)
        return b"".join(_framed(encode(pa.table(one))) for one in (of, edges))

    @cached_property
    def targets(self) -> Places:
        """Of each edge, the place of the vertex that it goes to."""
        return np.repeat(np.arange(len(self.ids), dtype=np.int32), self.degrees)

    @cached_property
    def slots(self) -> Ids:
        return slots_of(self.ids)

    def weights_in(self) -> Doubles:
        """By source, the sum of the weights of its edges into this part."""
        return np.bincount(self.places, weights=self.weights, minlength=len(self.sources)).astype(np.float64)

    def cut(self, slots: Range) -> Pieces:
        first, last = within(self.ids, slots)
        edges = slice(*np.searchsorted(self.targets, [first, last]))
        own = slice(first, last)
        vertices = {"id": self.ids[own], "name": self.names[own], "out": self.out[own]}
        vertices |= _numbered(one[own] for one in self.numbers)
        into = [self.sources[self.places[edges]], self.ids[self.targets[edges]], self.weights[edges]]
        return {
            "vertices": pa.table(vertices),
            "edges": pa.table([pa.array(one) for one in into], schema=EDGES),
        }

    def published(self, wanted: Ids) -> Places:
        """Where these vertices stand here. Raises ``JobError`` if one is not here."""
        found = np.searchsorted(self.ids, wanted)
        if len(wanted) and (found[-1] >= len(self.ids) or (self.ids[found] != wanted).any()):
            raise JobError("an agent wants a vertex that is not here")
        return found.astype(np.int32)

    def heard(self, along: Values, combine: str) -> Values:
        """What vertices hear, of what comes along each edge: the sum of it, or the least."""
        if combine == "sum":
            return np.bincount(self.targets, weights=along, minlength=len(self.ids))
        none = np.inf if along.dtype == np.float64 else np.iinfo(np.int64).max
        found = np.full(len(self.ids), none, dtype=along.dtype)
        np.minimum.at(found, self.targets, along)
        return found


def _framed(data: bytes) -> bytes:
    return len(data).to_bytes(8, "little") + data


def of_image(image: bytes) -> Part:
    size = int.from_bytes(image[:8], "little")
    of, edges = decode(image[8 : 8 + size]), decode(image[16 + size :])
    sources, places = np.unique(edges["source"].to_numpy(), return_inverse=True)
    return Part(
        of["id"].to_numpy(),
        of["name"].combine_chunks(),
        of["out"].to_numpy(),
        sources,
        of["degree"].to_numpy(),
        places.astype(np.int32),
        edges["weight"].to_numpy(),
        tuple(of[name].to_numpy() for name in of.column_names[4:]),
    )


def part_of(found: Iterable[Pieces], *, weighted: bool) -> Part:
    """All that has come of it. Edges that several have sent are one, with the sum of their weights; without
    weights each weighs 1. So are points, with the sums of their numbers. Raises ``JobError`` if two vertices
    have the same id."""
    pieces = list(found)
    vertices = pa.concat_tables([one["vertices"] for one in pieces] or [VERTICES.empty_table()])
    edges = pa.concat_tables([EDGES.empty_table(), *(one["edges"] for one in pieces)])
    ids, names, out, numbers = _vertices(vertices)
    source, target, weight = (edges[name].to_numpy() for name in EDGES.names)
    order = np.lexsort((weight, source, target))
    source, target, weight = source[order], target[order], weight[order]
    new = np.ones(len(order), dtype=bool)
    new[1:] = (source[1:] != source[:-1]) | (target[1:] != target[:-1])
    weight = np.bincount(np.cumsum(new) - 1, weights=weight) if weighted else np.ones(int(new.sum()))
    source, target = source[new], target[new]
    sources, places = np.unique(source, return_inverse=True)
    degrees = np.bincount(np.searchsorted(ids, target), minlength=len(ids))
    ends = degrees.astype(np.int32), places.astype(np.int32)
    return Part(ids, names, out, sources, *ends, weight.astype(np.float64), numbers)


def _vertices(table: pa.Table) -> tuple[Ids, pa.Array, Doubles, tuple[Doubles, ...]]:
    ids = table["id"].to_numpy()
    order = np.argsort(ids, kind="stable")
    ids, names = ids[order], pa.concat_arrays(table["name"].take(pa.array(order)).chunks or [[]])
    again = np.flatnonzero(ids[1:] == ids[:-1]) + 1
    if len(again) and not pc.all(pc.equal(names.take(again), names.take(again - 1))).as_py():
        raise JobError("two vertices have the same hash of 63 bits, so neither can be told from the other")
    new = np.ones(len(ids), dtype=bool)
    new[again] = False
    numbers = tuple(_added(table["id"].to_numpy(), table[name]) for name in table.column_names[3:])
    return ids[new], names.filter(pa.array(new)), table["out"].to_numpy()[order][new], numbers


def _added(ids: Ids, numbers: pa.ChunkedArray) -> Doubles:
    """The sum of the numbers of each id, in the order of ids, from the least number on; NaN where all are
    NULL."""
    there, values = numbers.is_valid().to_numpy(), numbers.fill_null(0.0).to_numpy()
    order = np.lexsort((values, ids))
    _, places = np.unique(ids[order], return_inverse=True)
    sums = np.bincount(places, weights=values[order]).astype(np.float64)
    return np.where(np.bincount(places, weights=there[order]) > 0, sums, np.nan)


def overlap(one: Range, other: Sequence[int]) -> Range | None:
    low, high = max(one[0], other[0]), min(one[1], other[1])
    return (low, high) if low < high else None
