"""A fragment's map with a user's function in it: WHERE, then ``map(batch)``, then the grouping.

The function gets the rows that WHERE lets through, with the query's columns and ``_pane``; it gives rows with
the same columns, as many as it likes, each in a pane that was given. What fails costs the rows of its batch.
Of a function that has blocked, or has died of its memory, each batch would cost seconds of the stream task,
in which other jobs wait, so it gets no more: its version is on its way out by then.
"""

from __future__ import annotations

import pyarrow as pa

from agents.tasks.engine import Statement
from elf.functions.function import Failed, UserFunction, conform
from elf.job.ports import MapFailed, MapperPort
from elf.job.worker.fitting import arrow_schema, as_schema
from elf.ql.plan import Fragment


class FunctionMapper(MapperPort):
    """Rows have the column ``_offset`` too, where their lines begin; ``mapper`` gets what the function
    gives."""

    def __init__(self, fragment: Fragment, function: UserFunction, mapper: MapperPort) -> None:
        self._schema = arrow_schema(fragment.columns).append(pa.field("_pane", pa.int64()))
        given = self._schema.append(pa.field("_offset", pa.int64()))
        self._given = given
        where = fragment.where_sql
        self._where = Statement(f"SELECT * FROM rows AS r WHERE {where}", "rows", given) if where else None
        self._mapper = mapper
        self._function = function
        self._given_up = ""

    def prepare(self) -> None:
        """Raises ``MapFailed``."""
        if why := self._function.refused():
            raise MapFailed(why, 0, None)
        self._mapper.prepare()

    def run(self, rows: pa.Table) -> pa.Table:
        """Raises ``MapFailed``."""
        if self._given_up:
            raise MapFailed(self._given_up, rows.num_rows, None)
        given = as_schema(self._given, rows)
        chosen = (given if self._where is None else self._where.run(given)).combine_chunks()
        offsets = chosen["_offset"].to_numpy()
        table = chosen.select(self._schema.names).cast(self._schema)
        made = [self._call(batch) for batch in table.to_batches()] if chosen.num_rows else []
        for failed in (one for one in made if isinstance(one, Failed)):
            offset = None if failed.row is None else int(offsets[failed.row])
            if failed.is_slow:
                self._given_up = str(failed)
                self._function.close()
            raise MapFailed(str(failed), rows.num_rows, offset)
        tables = [one for one in made if isinstance(one, pa.Table)]
        return self._mapper.run(pa.concat_tables([self._schema.empty_table(), *tables]))

    def _call(self, batch: pa.RecordBatch) -> pa.Table | Failed:
        result = self._function(batch)
        if isinstance(result, Failed):
            return result
        who = f"{self._function.spec.filename}: map()"
        table = conform(who, result.batch, self._schema)
        if isinstance(table, str):
            return Failed("output", table, 0)
        if not set(table["_pane"].unique().to_pylist()) <= set(batch["_pane"].unique().to_pylist()):
            return Failed("output", f"{who} gives a row in a _pane that it was not given", 0)
        return table

    def merged(self, groups: pa.Table) -> pa.Table:
        return self._mapper.merged(groups)

    def close(self) -> None:
        if self._where is not None:
            self._where.close()
        self._mapper.close()
        self._function.close()
