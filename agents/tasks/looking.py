"""The rows that a SELECT without groups asks for (``elf.ql.looks``), of some lines."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from agents.formats import Format
from agents.inputs.values import Int64s
from agents.lookups import LOOKUPS
from agents.tasks.engine import Mapper, SqlExtractor
from elf.errors import UserError
from elf.job.ports import Wanted
from elf.job.worker.fitting import with_origins
from elf.job.worker.stream import WorkerSettings
from elf.ql.looks import TIME, Look
from elf.ql.lookups import lookups_in
from elf.schema import Column, is_origin


class Looking:
    """One look; of one thread."""

    def __init__(self, look: Look, fmt: Format, event_time: str | None, settings: WorkerSettings) -> None:
        self._settings = settings
        self._origins = tuple(column.name for column in look.columns if is_origin(column.name))
        read = tuple(column for column in look.columns if column.name not in self._origins)
        self._extractor = SqlExtractor(fmt, event_time, Wanted(read, ()))
        if why := LOOKUPS.lacking(lookups_in(look.sql)):
            raise UserError(why)
        self._mapper = Mapper(look.sql, (Column(TIME, "bigint"), *look.columns))
        self.rejected = 0
        """Lines that did not parse."""
        self.refused: Int64s = np.empty(0, np.int64)
        """Which of those that were looked at last."""

    def rows(self, lines: pa.StringArray, logs: pa.StringArray) -> pa.Table:
        """``TIME`` and the columns of the look, in the order of the lines. ``logs``: the log of each."""
        found = self._extractor.extract(lines)
        self.refused = found.rejected
        self.rejected += len(self.refused)
        rows = with_origins(
            found.table,
            self._origins,
            self._settings.name,
            logs.take(pa.array(found.accepted)),
            self._settings.labels,
        )
        return self._mapper.run(rows.append_column("_pane", pa.array(np.zeros(len(rows), np.int64))))

    def close(self) -> None:
        self._extractor.close()
        self._mapper.close()
