"""Which parts of a table a question is for, and what their answers come to (``elf.job.tables``): pure
functions, as ``agents.answering.tablereads`` needs them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Final

import pyarrow as pa

from elf.aggregates import split_by_range
from elf.batch import NO_CAST
from elf.errors import UserError
from elf.fields import replace
from elf.job.catalog.rings import Rings
from elf.job.output import OutputSpec
from elf.job.ring import PARTS, ring_uid
from elf.job.tables import (
    TOO_MANY_KEYS,
    Asked,
    TableRows,
    asked_values,
    is_shard,
    shard_uid,
    shards_of,
    table_of,
)
from elf.paos.states import NAMED
from elf.ql.fuel import KEYS_MAX

REMEMBERED_MAX: Final = 1_024
"""Tables of which it is remembered how far they were."""
Kinds = Mapping[str, str]
"""By column, its type in ELF-QL."""


@dataclass(frozen=True)
class Part:
    """A table, or a shard of it: in which group it is, and what it is called there. ``of``: what is read
    until it has all rows."""

    spec: OutputSpec
    group: str
    uid: str
    replicas: tuple[str, ...] = ()
    """Of a table with a ring: who has it."""

    @property
    def of(self) -> str:
        return "" if is_shard(self.uid) else self.spec.option("of")

    @property
    def lineage(self) -> str:
        """It, and all tables of that name and job before and after it: their numbers are the job's."""
        return f"{self.spec.app.hex()} {self.spec.job}"

    @property
    def table(self) -> str:
        """The uid of the table."""
        return table_of(self.uid)

    @property
    def lacks(self) -> bool:
        """Whether another table is read where this one is not there, or has not got all rows."""
        return is_shard(self.uid) and not self.replicas and bool(self.spec.option("was"))


class Lacks(UserError):
    """A shard has not got all rows of the table whose place its own takes, or has no rows any more."""


class Told:
    """How far tables were that were told of. Each shard has its own number, until another table takes the
    place of its own: a key is in another shard of that, which must not be behind what any one was."""

    def __init__(self) -> None:
        self._last: OrderedDict[str, tuple[str, int, dict[str, int]]] = OrderedDict()
        """By lineage the table that was told of last, the highest number of those before, and those of its
        shards."""

    def least(self, part: Part) -> int:
        """The number which an answer has to have."""
        table, before, told = self._last.get(part.lineage, ("", 0, {}))
        if table == part.table:
            return max(before, told.get(part.uid, 0))
        return max((before, *told.values()))

    def take(self, part: Part, number: int) -> None:
        """An answer had this number."""
        table, before, told = self._last.pop(part.lineage, ("", 0, {}))
        if table != part.table:
            before, told = max((before, *told.values())), {}
        told[part.uid] = max(told.get(part.uid, 0), number)
        self._last[part.lineage] = part.table, before, told
        if len(self._last) > REMEMBERED_MAX:
            self._last.popitem(last=False)


def merged(found: Sequence[TableRows]) -> TableRows:
    """What all portions and shards say of a table: it is as far as the last of them."""
    last = {one.kept.table: one for one in found}
    if not is_shard(found[-1].kept.table):  # its key may have changed in between
        return found[-1]
    shards = list(last.values())
    number = min(one.number for one in shards)
    ends = [one.newest_us for one in shards]
    newest = None if None in ends else min(end for end in ends if end is not None)
    return replace(
        shards[-1],
        kept=replace(shards[-1].kept, table=table_of(shards[-1].kept.table)),
        number=number,
        newest_us=newest,
        count=sum(one.count for one in shards),
        size=sum(one.size for one in shards),
        evicted=sum(one.evicted for one in shards),
        unfit=sum(one.unfit for one in shards),
        found=all(one.found for one in shards),
    )


def parts_of(
    spec: OutputSpec, homes: Sequence[str], equals: Sequence[Asked], kinds: Kinds, *, before: bool = False
) -> list[Part]:
    """What a table whose shards are in the groups ``homes`` (none: it has no shards) is read from, for a
    question that may name a key; ``before``: what the one is read from whose place it takes (none: from
    nothing). Raises ``UserError``."""
    if not homes:
        return [] if before else [Part(spec, spec.job, spec.uid)]
    key, uid = (spec.option("was"), spec.option("of")) if before else (spec.option("key"), spec.uid)
    if not key:
        return []
    places = _places_of(spec, key.split(","), equals, kinds) or range(len(homes))
    return [Part(spec, homes[place], shard_uid(uid, place)) for place in places]


def ring_parts(spec: OutputSpec, rings: Rings, equals: Sequence[Asked], kinds: Kinds) -> list[Part]:
    """The same of a table with a ring. Raises ``UserError``."""
    key, uid = spec.option("key"), spec.uid
    if rings.is_changing(uid):
        key, uid = spec.option("was"), spec.option("of")
    places = _places_of(spec, key.split(","), equals, kinds) or range(PARTS)
    group = ring_uid(spec.job)
    return [Part(spec, group, shard_uid(uid, place), rings.replicas(place)) for place in places]


def _places_of(spec: OutputSpec, names: Sequence[str], equals: Sequence[Asked], kinds: Kinds) -> list[int]:
    """The shards that may have the rows of a key; none: the question names no key. Raises ``UserError``."""
    known = {name.lower(): name for name in kinds}
    key = list(dict.fromkeys(known.get(name.lower(), name) for name in names))
    wanted = asked_values(key, equals)
    if not wanted:
        return []
    if prod(map(len, wanted)) > KEYS_MAX:
        raise UserError(f"table {spec.name}: {TOO_MANY_KEYS}")
    types = [NAMED.get(kinds.get(name, ""), pa.string()) for name in key]
    try:
        columns = [
            pa.concat_arrays([pa.array([value]).cast(kind) for value in values]).to_pylist()
            for values, kind in zip(wanted, types, strict=True)
        ]
    except (*NO_CAST, OverflowError) as error:
        raise UserError(f"table {spec.name}: its key cannot have this value: {error}") from None
    values = zip(*product(*columns), strict=True)
    rows = pa.table([pa.array(some, kind) for some, kind in zip(values, types, strict=True)], key)
    parts = split_by_range(rows, key, shards_of(spec))
    return [place for place, part in enumerate(parts) if part.num_rows]
