"""What the page is told, as values for a JSON encoder: tables, windows and results.

A table has its columns, with their kinds, and rows as lists. Numbers that JSON has no number for are texts
(``elf.client.values``).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final, Literal

import msgspec
import pyarrow as pa
import pyarrow.types as pat

from elf.client.previews import Costs, Previewed
from elf.client.results import Result
from elf.client.values import plain
from elf.client.windows import WINDOW_COLUMNS, Window

ROWS_MAX: Final = 500
"""Of a table; of the rest the number is told."""
Fact = dict[str, object]
Kind = Literal["number", "time", "boolean", "text"]

encode: Final = msgspec.json.Encoder(decimal_format="number").encode


def table_of(table: pa.Table) -> Fact:
    """``columns`` (``name``, ``kind``), ``rows``, and how many ``more`` rows there are."""
    columns = [
        {"name": field.name, "kind": kind_of(field.type)} for field in table.schema if field is not None
    ]
    shown = table.slice(0, ROWS_MAX)
    values = [[plain(value) for value in column.to_pylist()] for column in shown.columns]
    rows = [list(row) for row in zip(*values, strict=True)] if values else []
    return {"columns": columns, "rows": rows, "more": max(table.num_rows - ROWS_MAX, 0)}


def kind_of(kind: pa.DataType) -> Kind:
    """As the page shows it."""
    if pat.is_boolean(kind):
        return "boolean"
    if pat.is_integer(kind) or pat.is_floating(kind) or pat.is_decimal(kind):
        return "number"
    return "time" if pat.is_timestamp(kind) else "text"


def window_of(window: Window) -> Fact:
    """A window with its rows, which do not repeat its bounds, and its coverage as a text."""
    own = [name for name in window.table.column_names if name not in WINDOW_COLUMNS]
    bounded = tuple(window.table.column_names[:2]) == WINDOW_COLUMNS
    table = window.table.select(own) if bounded else window.table
    return {
        "job": window.name,
        "version": window.version,
        "master": window.master,
        "start": plain(window.start),
        "end": plain(window.end),
        "revision": window.revision,
        "early": window.early,
        "coverage": window.coverage,
        "whole": window.whole,
        "status": plain(window.status),
        **table_of(table),
    }


def pair_of(one: Previewed) -> Fact:
    """A window of a version that is previewed: the rows that differ from the job's, with ``_op`` (``-``: only
    the job has them), or all of them where the job has no such window (``fellow``)."""
    window = one.window if one.window.changes is None else replace(one.window, table=one.window.changes)
    told = window_of(window)
    return told | {"fellow": one.before is not None, "alike": one.alike, "gone": one.gone, "come": one.come}


def costs_of(costs: Costs) -> Fact:
    """What both versions have cost, as a table; ``shared`` flows are in both."""
    lacking = {"gone": costs.columns_gone, "come": costs.columns_come}
    return {
        **table_of(costs.table),
        "shared": costs.shared,
        "only": lacking,
        "readers": costs.preview.readers,
    }


def result_of(result: Result) -> Fact:
    """What a statement came to: ``text``, ``table`` or null, ``data`` or null."""
    table = None if result.table is None else table_of(result.table)
    return {"text": result.text, "table": table, "data": plain(result.data)}
