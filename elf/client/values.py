"""How values of a result are written: as JSON text, and as cells for people and CSV.

Times are RFC 3339 in UTC with milliseconds (microseconds when there are any). Whole decimals (sums of
integers) are JSON integers of any size, other decimals JSON numbers with their digits as they are. JSON has
no number for them, so not-a-number and the infinities are the strings "NaN", "Infinity" and "-Infinity": null
always means NULL.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.types as pat

_text = msgspec.json.Encoder().encode


def rfc3339(moment: datetime) -> str:
    """A UTC time (naive ones are UTC): ``2026-11-21T02:00:00.000Z``."""
    if moment.tzinfo is not None:
        moment = moment.astimezone(UTC).replace(tzinfo=None)
    digits = "microseconds" if moment.microsecond % 1000 else "milliseconds"
    return f"{moment.isoformat(timespec=digits)}Z"


def json_column(column: pa.ChunkedArray) -> list[str]:
    """The JSON text of every value of a column."""
    return [*map(_json_writer(column.type), column.to_pylist())]


def cell(value: object) -> str:
    """A value as people and CSV get it; NULL is the empty string, unless who asks tells it apart."""
    if value is None:
        return ""
    if isinstance(value, datetime):
        return rfc3339(value)
    if isinstance(value, bool):
        return _boolean(value)
    if isinstance(value, float):
        return _float(value).strip('"')
    if isinstance(value, Decimal):
        return _decimal(value)
    if isinstance(value, list | tuple):
        return ", ".join(map(cell, value))
    return json.dumps(plain(value), ensure_ascii=False) if isinstance(value, dict) else str(value)


def for_terminal(value: object) -> str:
    """A value as a terminal gets it: whoever can send a request can write to a log, but not steer the
    terminal of who reads it. Lines stay lines."""
    text = cell(value)
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() or char == "\n" else ascii(char)[1:-1] for char in text)


def plain(value: object) -> object:
    """A value of a status, of a row or of an answer, ready for a JSON encoder."""
    if isinstance(value, datetime):
        return rfc3339(value)
    if isinstance(value, float) and not math.isfinite(value):
        return _float(value).strip('"')
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {str(name): plain(item) for name, item in value.items()}
    return value


def _json_writer(kind: pa.DataType) -> Callable[[Any], str]:
    """What writes one value of a column of that type; Arrow promises which Python type the value has."""
    write: Callable[[Any], str] = _other
    if pat.is_integer(kind):
        write = str
    elif pat.is_floating(kind):
        write = _float
    elif pat.is_decimal(kind):
        write = _decimal
    elif pat.is_boolean(kind):
        write = _boolean
    elif pat.is_timestamp(kind):
        write = _timestamp
    return lambda value: "null" if value is None else write(value)


def _boolean(value: bool) -> str:
    return "true" if value else "false"


def _timestamp(value: datetime) -> str:
    return f'"{rfc3339(value)}"'


def _float(value: float) -> str:
    if math.isfinite(value):
        return repr(value)
    if math.isnan(value):
        return '"NaN"'
    return '"Infinity"' if value > 0 else '"-Infinity"'


def _decimal(value: Decimal) -> str:
    return format(value, "f")


def _other(value: object) -> str:
    if isinstance(value, date):
        return f'"{value.isoformat()}"'
    return _text(plain(value)).decode()
