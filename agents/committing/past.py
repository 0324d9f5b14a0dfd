"""A SELECT over past windows (``elf.client.past``), evaluated by DuckDB, with bounds on time, rows and bytes.

DuckDB sees the one table, and nothing else of the host (``agents.tasks.engine``). What is wrong with the
SELECT is told as DuckDB says it.
"""

from __future__ import annotations

import threading
from typing import Final

import duckdb
import pyarrow as pa

from agents.tasks.engine import instance, one_select
from elf.batch import encode
from elf.client.past import table_of, windows_of
from elf.errors import ElfBug, UserError
from elf.job.effects import PastAnswer, PastQuestion

SECS_MAX: Final = 8.0
ROWS_MAX: Final = 1_000_000
BYTES_MAX: Final = 64 << 20
"""Of rows, uncompressed."""
PORTION_BYTES: Final = 4 << 20
_BATCH_ROWS: Final = 16_384


def evaluate(question: PastQuestion) -> PastAnswer:
    """Raises ``UserError``: for what DuckDB says against the SELECT, and for more than it may come to."""
    bounds = question.since_us, question.until_us
    windows = windows_of(question.windows, *bounds, all_revisions=question.all_revisions)
    empty = sum(not window.table.num_rows for window in windows)
    table = table_of(windows)
    if not table.num_columns:
        return PastAnswer((), 0, len(windows), empty)
    batches = _selected(question, table)
    portions, waiting = [], list[pa.RecordBatch]()
    for batch in batches:
        waiting.append(batch)
        if sum(one.nbytes for one in waiting) >= PORTION_BYTES:
            portions.append(encode(pa.Table.from_batches(waiting)))
            waiting = []
    if waiting:
        portions.append(encode(pa.Table.from_batches(waiting)))
    return PastAnswer(tuple(portions), sum(batch.num_rows for batch in batches), len(windows), empty)


def _selected(question: PastQuestion, table: pa.Table) -> list[pa.RecordBatch]:
    """At least one, which may have no rows."""
    connection = instance().cursor()
    timer = threading.Timer(SECS_MAX, connection.interrupt)
    timer.start()
    try:
        connection.register(question.name, table)
        connection.execute(one_select(connection, question.select))
        reader: pa.RecordBatchReader = connection.to_arrow_reader(_BATCH_ROWS)
        found, rows, size = list[pa.RecordBatch](), 0, 0
        for batch in reader:
            found.append(batch)
            rows, size = rows + batch.num_rows, size + batch.nbytes
            if rows > ROWS_MAX or size > BYTES_MAX:
                most = f"{ROWS_MAX:,} rows and {BYTES_MAX >> 20} MiB"
                raise UserError(
                    f"the SELECT comes to more than {most}: add LIMIT, or let elf offline export write the "
                    "windows to a file"
                )
        return found or [pa.RecordBatch.from_pylist([], reader.schema)]
    except ElfBug:
        raise UserError("over past windows one SELECT is wanted") from None
    except duckdb.InterruptException:
        raise UserError(
            f"the SELECT over past windows takes more than {SECS_MAX:g} s: choose a shorter time with SINCE "
            "and UNTIL"
        ) from None
    except duckdb.Error as error:
        raise UserError(f"over past windows DuckDB says: {_one_line(str(error))}") from None
    finally:
        timer.cancel()
        connection.close()


def _one_line(text: str) -> str:
    """Without the excerpt of the text, in which the name of the job is in other words."""
    return " ".join(line.strip() for line in text.partition("\n\nLINE")[0].splitlines() if line.strip())
