"""What a stream's worker computes for jobs in Python: partial aggregates, or rows, of each chunk as it comes.

Taps promise nothing beyond the chunk: no panes, no checkpoint, no lateness; rows beyond the future bound or
outside the roster are left out as everywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
import pyarrow as pa

from elf.batch import encode
from elf.job.ports import MapperPort
from elf.job.program.spec import Tap, Tapped
from elf.job.worker.assigning import View
from elf.ql.plan import Fragment


class Taps:
    """The taps of one stream, by job."""

    def __init__(self, mapper: Callable[[Fragment], MapperPort]) -> None:
        self._mapper = mapper
        self._taps: dict[str, list[tuple[Tap, MapperPort]]] = {}

    def put(self, uid: str, taps: Iterable[Tap]) -> None:
        """The taps of a job are these from now on; an empty set ends them."""
        for _, mapper in self._taps.pop(uid, ()):
            mapper.close()
        made = [(tap, self._mapper(tap.fragment)) for tap in taps]
        for _, mapper in made:
            mapper.prepare()
        if made:
            self._taps[uid] = made

    def fragments(self) -> list[Fragment]:
        return [tap.fragment for taps in self._taps.values() for tap, _ in taps]

    def feed(self, view: View) -> tuple[Tapped, ...]:
        """What a chunk comes to for each tap; nothing for taps without rows."""
        if not self._taps:
            return ()
        mask = ~view.future if view.wanted is None else ~view.future & view.wanted
        whole = bool(mask.all())
        rows = view.rows if whole else view.rows.filter(pa.array(mask))
        rows = rows.append_column("_pane", pa.array(np.zeros(rows.num_rows, dtype=np.int64)))
        found: list[Tapped] = []
        if rows.num_rows:
            for uid, taps in self._taps.items():
                for tap, mapper in taps:
                    table = mapper.run(rows)
                    if table.num_rows:
                        found.append(Tapped(uid, tap.name, encode(table)))
        return tuple(found)

    def close(self) -> None:
        for uid in list(self._taps):
            self.put(uid, ())
