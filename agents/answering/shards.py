"""Which parts of a table a question is for, and what their answers come to (``elf.job.tables``): pure
functions, as ``agents.answering.tables`` needs them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod

import pyarrow as pa

from elf.aggregates import split_by_range
from elf.batch import ARROW_TYPES, NO_CAST
from elf.errors import UserError
from elf.fields import replace
from elf.job.output import OutputSpec
from elf.job.tables import Asked, TableRows, is_shard, shard_uid, shards_of
from elf.ql.fuel import KEYS_MAX

Kinds = Mapping[str, str]
"""By column, its type in ELF-QL."""


@dataclass(frozen=True)
class Part:
    """A table, or a shard of it: in which group it is, and what it is called there. ``of``: what is read
    until it has all rows."""

    spec: OutputSpec
    group: str
    uid: str

    @property
    def of(self) -> str:
        return "" if is_shard(self.uid) else self.spec.option("of")

    @property
    def lineage(self) -> str:
        """It, and all tables of that name and job before and after it: their numbers are the job's."""
        return f"{self.spec.app.hex()} {self.spec.job}#{self.uid.partition('#')[2]}"


def merged(found: Sequence[TableRows], spec: OutputSpec) -> TableRows:
    """What all portions and shards say of a table: it is as far as the last of them."""
    last = {one.kept.table: one for one in found}
    if len(last) == 1 or not is_shard(found[-1].kept.table):  # its key may have changed in between
        return found[-1]
    shards = list(last.values())
    number = min(one.number for one in shards)
    ends = [one.newest_us for one in shards]
    newest = None if None in ends else min(end for end in ends if end is not None)
    return replace(
        shards[-1],
        kept=replace(shards[-1].kept, table=spec.uid),
        number=number,
        newest_us=newest,
        count=sum(one.count for one in shards),
        size=sum(one.size for one in shards),
        evicted=sum(one.evicted for one in shards),
        unfit=sum(one.unfit for one in shards),
        found=all(one.found for one in shards),
    )


def parts_of(spec: OutputSpec, homes: Sequence[str], equals: Sequence[Asked], kinds: Kinds) -> list[Part]:
    """What a table whose shards are in the groups ``homes`` (none: it has no shards) is read from, for a
    question that may name a key. Raises ``UserError``."""
    if not homes:
        return [Part(spec, spec.job, spec.uid)]
    places = _places_of(spec, equals, kinds) or range(len(homes))
    return [Part(spec, homes[place], shard_uid(spec.uid, place)) for place in places]


def _places_of(spec: OutputSpec, equals: Sequence[Asked], kinds: Kinds) -> list[int]:
    """The shards that may have the rows of a key; none: the question names no key. Raises ``UserError``."""
    wanted = {name.lower(): values for name, values in equals}
    known = {name.lower(): name for name in kinds}
    key = [known.get(name.lower(), name) for name in spec.option("key").split(",")]
    if not all(name.lower() in wanted for name in key):
        return []
    if prod(len(wanted[name.lower()]) for name in key) > KEYS_MAX:
        raise UserError(f"table {spec.name}: its key has {KEYS_MAX} values at most in one question")
    known_types = {str(kind): arrow for kind, arrow in ARROW_TYPES.items()}
    types = [known_types.get(kinds.get(name, ""), pa.string()) for name in key]
    try:
        columns = [
            pa.concat_arrays([pa.array([value]).cast(kind) for value in wanted[name.lower()]]).to_pylist()
            for name, kind in zip(key, types, strict=True)
        ]
    except (*NO_CAST, OverflowError) as error:
        raise UserError(f"table {spec.name}: its key cannot have this value: {error}") from None
    values = zip(*product(*columns), strict=True)
    rows = pa.table([pa.array(some, kind) for some, kind in zip(values, types, strict=True)], key)
    parts = split_by_range(rows, key, shards_of(spec))
    return [place for place, part in enumerate(parts) if part.num_rows]
