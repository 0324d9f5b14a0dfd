"""Which levels of a query run together at the roots of key ranges: Enorm's Algorithm 1 (DEBS 2016, 4.4.1;
``elf.planning.fusion``).

An *operator* is a level: a GROUP BY, a window function, what is around them. It may be divided by any key of
the innermost level with which it agrees: whatever it puts together (a group, the rows of a PARTITION BY,
equal rows of DISTINCT) agrees in that key. A key is *carried* outwards by a column that is nothing but this
key (``SELECT host … GROUP BY host``). Operators with a key in common may be fused to a *component*; its keys
are all that they have in common.

The score is the rows that go from a level to the next one. A plan is a function of its text alone, before any
run, and must be the same everywhere: so all count alike, and of equal pairs the innermost comes first. What
leaves the roots are partial aggregates of the first level that is not theirs, so the further out that is the
fewer there are.

Only the component of the innermost level acts, and it is at the roots: rows are not parted anew between
roots, so what is in another one is the master's. What the other score of the paper gives, by the number of
common attributes, is told beside it; it may fuse levels further out that nobody can run in parts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

from elf.planning.fusion import SCORES, Graph, Score, fuse
from elf.ql.draft import Draft
from elf.ql.expressions import Expr, Over, Ref, Slot, walk
from elf.ql.fragments import after_grouping
from elf.ql.levels import Level

Carried = Mapping[str, frozenset[str]]
"""Of each key of the innermost level (``k0`` …) the keys of a level that are nothing but this key."""


class Together(Struct, frozen=True):
    """Levels, by their places, and the keys that they have in common; by which ``score``."""

    places: tuple[int, ...]
    keys: tuple[str, ...]
    score: Score


class Fused(Struct, frozen=True):
    """The ``components``, and what they would be by common attributes, if that differs (``otherwise``)."""

    components: tuple[Together, ...]
    otherwise: tuple[Together, ...] = ()

    @property
    def at_roots(self) -> tuple[tuple[str, ...], int]:
        """(The range keys, how many levels are aligned with them, from the innermost on)"""
        first = self.components[0]
        return first.keys, len(first.places) if first.keys else 0


def fuse_levels(levels: Sequence[Level]) -> Fused:
    """From the innermost on."""
    alike = _attributes([level.draft for level in levels])
    graph = Graph(alike, {(at, at + 1): 1.0 for at in range(len(levels) - 1)})
    found, other = (_together(fuse(graph, score).components, alike, score) for score in SCORES)
    same = [one.places for one in found] == [one.places for one in other]
    return Fused(found, () if same else other)


def _together(
    components: Sequence[Sequence[int]], alike: Sequence[frozenset[str]], score: Score
) -> tuple[Together, ...]:
    def common(places: Sequence[int]) -> tuple[str, ...]:
        keys = frozenset.intersection(*(alike[place] for place in places))
        return tuple(sorted(keys, key=lambda key: int(key[1:])))

    return tuple(Together(tuple(one), common(one), score) for one in components)


def _attributes(drafts: Sequence[Draft]) -> list[frozenset[str]]:
    """By what each level may be divided."""
    carried, found = innermost(drafts[0]), list[frozenset[str]]()
    for at, draft in enumerate(drafts):
        carried = carried if not at else carried_to(drafts[at - 1], draft, carried)
        found.append(_agreed(draft, carried, last=at + 1 == len(drafts)))
    return found


def innermost(draft: Draft) -> Carried:
    """The keys of the innermost level."""
    return {f"k{at}": frozenset([f"k{at}"]) for at in _in_all_sets(draft)}


def carried_to(below: Draft, draft: Draft, carried: Carried) -> Carried:
    """One level further out."""
    if draft.joins or draft.beside:
        return {}
    found: dict[str, frozenset[str]] = {}
    for key, slots in carried.items():
        names = outputs_of(below, slots)
        found[key] = frozenset(f"k{at}" for at in _in_all_sets(draft) if _is_column(draft.keys[at], names))
    return found


def outputs_of(draft: Draft, slots: frozenset[str]) -> frozenset[str]:
    """The columns of the SELECT list that are nothing but one of these keys."""
    return frozenset(
        one.name for one in draft.outputs if isinstance(one.value, Slot) and one.value.name in slots
    )


def overs_of(draft: Draft) -> list[Over]:
    """Its window functions."""
    found = (part for value in after_grouping(draft) for part in walk(value))
    return [part for part in found if isinstance(part, Over)]


def _in_all_sets(draft: Draft) -> list[int]:
    """The places of the keys that all rows of a level have."""
    return [at for at in range(len(draft.keys)) if all(at in one for one in draft.sets)]


def _is_column(key: Expr, names: frozenset[str]) -> bool:
    return isinstance(key, Ref) and not key.table and key.name in names


def _agreed(draft: Draft, carried: Carried, *, last: bool) -> frozenset[str]:
    """With which keys a level agrees; none: with no one."""
    if not last and (draft.limit is not None or draft.offset):
        return frozenset()
    keys = frozenset(key for key, slots in carried.items() if slots)
    for over in overs_of(draft):
        by = {part.name for part in over.partition if isinstance(part, Slot)}
        keys = frozenset(key for key in keys if carried[key] & by)
    if draft.distinct:
        keys = frozenset(key for key in keys if outputs_of(draft, carried[key]))
    return keys
