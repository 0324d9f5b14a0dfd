"""A SELECT over past windows (``elf.client.past``), evaluated by DuckDB, with bounds on time, rows and bytes.

A DuckDB of its own sees the one table, and nothing else of the host (``agents.tasks.engine``). What is wrong
with the SELECT is told as DuckDB says it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import duckdb
import pyarrow as pa

from agents.tasks.engine import apart, one_select
from elf.batch import encode
from elf.client.past import past_of
from elf.errors import ElfBug, UserError
from elf.job.effects import PastAnswer, PastQuestion

SECS_MAX: Final = 8.0
AGAIN_SECS: Final = 0.1
ROWS_MAX: Final = 1_000_000
BYTES_MAX: Final = 64 << 20
"""Of rows, uncompressed."""
MEMORY_BYTES: Final = 256 << 20
PORTION_BYTES: Final = 4 << 20
_BATCH_ROWS: Final = 16_384


def evaluate(question: PastQuestion) -> PastAnswer:
    """Raises ``UserError``: for what DuckDB says against the SELECT, and for more than it may come to."""
    bounds = question.since_us, question.until_us
    found = past_of(question.windows, bounds, all_revisions=question.all_revisions)
    if not found.table.num_columns:
        return PastAnswer((), 0, found.windows, found.empty)
    batches = _selected(question, found.table)
    portions, waiting = [], list[pa.RecordBatch]()
    for batch in batches:
        waiting.append(batch)
        if sum(one.nbytes for one in waiting) >= PORTION_BYTES:
            portions.append(encode(pa.Table.from_batches(waiting)))
            waiting = []
    if waiting:
        portions.append(encode(pa.Table.from_batches(waiting)))
    rows = sum(batch.num_rows for batch in batches)
    return PastAnswer(tuple(portions), rows, found.windows, found.empty)


def _selected(question: PastQuestion, table: pa.Table) -> list[pa.RecordBatch]:
    """At least one, which may have no rows."""
    connection = apart(MEMORY_BYTES)
    try:
        with _interrupted(connection, SECS_MAX):
            connection.register(question.name, table)
            reader = connection.sql(one_select(connection, question.select)).to_arrow_reader(_BATCH_ROWS)
            found, rows, size = list[pa.RecordBatch](), 0, 0
            for batch in reader:
                found.append(batch)
                rows, size = rows + batch.num_rows, size + batch.nbytes
                if rows > ROWS_MAX or size > BYTES_MAX:
                    most = f"{ROWS_MAX:,} rows and {BYTES_MAX >> 20} MiB"
                    raise UserError(
                        f"the SELECT comes to more than {most}: add LIMIT, or let elf offline export write "
                        "the windows to a file"
                    )
            return found or [pa.RecordBatch.from_pylist([], reader.schema)]
    except ElfBug:
        raise UserError("over past windows one SELECT is wanted") from None
    except (
        duckdb.Error,
        pa.ArrowException,
        RuntimeError,
    ) as error:  # of a reader they are Arrow's, or none's
        raise UserError(_refused(str(error))) from None
    finally:
        connection.close()


@contextmanager
def _interrupted(connection: duckdb.DuckDBPyConnection, secs: float) -> Iterator[None]:
    """After so long whatever runs in the block is interrupted, until it ends: between two statements nothing
    is."""
    done = threading.Event()

    def interrupt() -> None:
        wait = secs
        while not done.wait(wait):
            connection.interrupt()
            wait = AGAIN_SECS

    thread = threading.Thread(target=interrupt, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def _refused(said: str) -> str:
    shorter = "choose a shorter time with SINCE and UNTIL"
    if "interrupt" in said.lower():
        return f"the SELECT over past windows takes more than {SECS_MAX:g} s: {shorter}"
    if "out of memory" in said.lower():
        memory = f"{MEMORY_BYTES >> 20} MiB of memory"
        return f"the SELECT over past windows needs more than {memory}: {shorter}"
    return f"over past windows DuckDB says: {_one_line(said)}"


def _one_line(text: str) -> str:
    """Without the excerpt of the text, in which the name of the job is in other words."""
    return " ".join(line.strip() for line in text.partition("\n\nLINE")[0].splitlines() if line.strip())
