"""What simulated agents have in place of JOIN TABLE: rows are counted but those of keys that have an odd
count in the table."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from elf.batch import decode
from elf.job.ports import MapperPort

if TYPE_CHECKING:
    from elf.ql.definition import Contents
    from elf.ql.plan import Table


def counts_in(table: Table | Contents) -> Mapping[str, int]:
    """Its rows."""
    rows = decode(table.data)
    return dict(zip(rows["k0"].to_pylist(), rows["s0"].to_pylist(), strict=True))


@lru_cache
def dropped_by(tables: tuple[Table, ...]) -> frozenset[str]:
    """The keys whose rows are not counted."""
    return frozenset(key for table in tables for key, n in counts_in(table).items() if n % 2)


class PyJoinMapper(MapperPort):
    """Joins tables, before another mapper."""

    def __init__(self, tables: tuple[Table, ...], mapper: MapperPort) -> None:
        self._dropped = pa.array(sorted(dropped_by(tables)), pa.string())
        self._mapper = mapper

    def run(self, rows: pa.Table) -> pa.Table:
        return self._mapper.run(rows.filter(pc.invert(pc.is_in(rows["key"], self._dropped))))

    def prepare(self) -> None: ...

    def close(self) -> None: ...
