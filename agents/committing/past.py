"""A SELECT over past windows (``elf.client.past``) or over rows of a table, evaluated by DuckDB, with bounds
on time, rows and bytes.

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
from elf.batch import decode, encode
from elf.client.past import joined, past_of
from elf.errors import ElfBug, UserError
from elf.job.effects import PastAnswer, PastQuestion, TableQuestion

SECS_MAX: Final = 8.0
AGAIN_SECS: Final = 0.1
ROWS_MAX: Final = 1_000_000
BYTES_MAX: Final = 64 << 20
"""Of rows, uncompressed."""
MEMORY_BYTES: Final = 256 << 20
PORTION_BYTES: Final = 4 << 20
_BATCH_ROWS: Final = 16_384


def evaluate(question: PastQuestion | TableQuestion) -> PastAnswer:
    """Raises ``UserError``: for what DuckDB says against the SELECT, and for more than it may come to."""
    if isinstance(question, TableQuestion):
        return _answer(question, joined([decode(one) for one in question.rows]))
    bounds = question.since_us, question.until_us
    found = past_of(question.windows, bounds, all_revisions=question.all_revisions)
    return _answer(question, found.table, found.windows, found.empty)


def _answer(
    question: PastQuestion | TableQuestion, table: pa.Table, windows: int = 0, empty: int = 0
) -> PastAnswer:
    if not table.num_columns:
        return PastAnswer((), 0, windows, empty)
    batches = _selected(question, table)
    portions, waiting = [], list[pa.RecordBatch]()
    for batch in batches:
        waiting.append(batch)
        if sum(one.nbytes for one in waiting) >= PORTION_BYTES:
            portions.append(encode(pa.Table.from_batches(waiting)))
            waiting = []
    if waiting:
        portions.append(encode(pa.Table.from_batches(waiting)))
    rows = sum(batch.num_rows for batch in batches)
    return PastAnswer(tuple(portions), rows, windows, empty)


def _selected(question: PastQuestion | TableQuestion, table: pa.Table) -> list[pa.RecordBatch]:
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
                    more = ", or let elf offline export write the windows to a file"
                    more = more if isinstance(question, PastQuestion) else ""
                    raise UserError(f"the SELECT comes to more than {most}: add LIMIT{more}")
            return found or [pa.RecordBatch.from_pylist([], reader.schema)]
    except ElfBug:
        raise UserError(f"over {_over(question)[0]} one SELECT is wanted") from None
    except (
        duckdb.Error,
        pa.ArrowException,
        RuntimeError,
    ) as error:  # of a reader they are Arrow's, or none's
        raise UserError(_refused(str(error), question)) from None
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


def _over(question: PastQuestion | TableQuestion) -> tuple[str, str]:
    """What a SELECT is over, and how it is made shorter."""
    if isinstance(question, TableQuestion):
        return "a table", "ask for fewer rows, by their key"
    return "past windows", "choose a shorter time with SINCE and UNTIL"


def _refused(said: str, question: PastQuestion | TableQuestion) -> str:
    what, shorter = _over(question)
    if "interrupt" in said.lower():
        return f"the SELECT over {what} takes more than {SECS_MAX:g} s: {shorter}"
    if "out of memory" in said.lower():
        memory = f"{MEMORY_BYTES >> 20} MiB of memory"
        return f"the SELECT over {what} needs more than {memory}: {shorter}"
    return f"over {what} DuckDB says: {_one_line(said)}"


def _one_line(text: str) -> str:
    """Without the excerpt of the text, in which the name of the job is in other words."""
    return " ".join(line.strip() for line in text.partition("\n\nLINE")[0].splitlines() if line.strip())
