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
    """A time as RFC 3339 text in UTC, with milliseconds, or microseconds when there are any.

    Args:
        moment (datetime): aware, or naive in UTC.

    Returns:
        str: such as ``2026-11-21T02:00:00.000Z``.

    Raises:
        Nothing.

    Example:
        >>> rfc3339(datetime(2026, 11, 21, 2, tzinfo=UTC))
        '2026-11-21T02:00:00.000Z'
    """
    if moment.tzinfo is not None:
        moment = moment.astimezone(UTC).replace(tzinfo=None)
    digits = "microseconds" if moment.microsecond % 1000 else "milliseconds"
    return f"{moment.isoformat(timespec=digits)}Z"


def json_column(column: pa.ChunkedArray) -> list[str]:
    """The JSON text of every value of a column.

    Args:
        column (pyarrow.ChunkedArray): values of one type.

    Returns:
        list[str]: as many texts; ``null`` for NULL.

    Raises:
        Nothing.

    Example:
        >>> json_column(pa.chunked_array([[1.5, None, math.inf]]))
        ['1.5', 'null', '"Infinity"']
    """
    return [*map(_json_writer(column.type), column.to_pylist())]


def json_rows(table: pa.Table) -> list[str]:
    """The rows of a table as JSON objects with the columns in their order.

    Args:
        table (pyarrow.Table): of any types.

    Returns:
        list[str]: a text a row.

    Raises:
        Nothing.

    Example:
        >>> json_rows(pa.table({"page": ["/"], "n": [2]}))
        ['{"page":"/","n":2}']
    """
    if not table.num_rows:
        return []
    names = [msgspec.json.encode(name).decode() for name in table.column_names]
    columns = [
        [f"{name}:{value}" for value in json_column(column)]
        for name, column in zip(names, table.columns, strict=True)
    ]
    return ["{" + ",".join(row) + "}" for row in zip(*columns, strict=True)]


def cell(value: object) -> str:
    """A value as people and CSV get it. NULL is the empty string, unless who asks tells it apart.

    Args:
        value (object): a value of a row or of a status.

    Returns:
        str: one text; lists with commas, dicts as JSON.

    Raises:
        Nothing.

    Example:
        >>> [cell(value) for value in (None, True, Decimal(12), ["a", "b"])]
        ['', 'true', '12', 'a, b']
    """
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
    """A value as a terminal gets it. Lines stay lines.

    Whoever can send a request can write to a log, but not steer the terminal of who reads it.

    Args:
        value (object): as of ``cell``.

    Returns:
        str: its text, with what does not print escaped.

    Raises:
        Nothing.

    Example:
        >>> print(for_terminal(chr(27) + "[2J"))
        \\x1b[2J
    """
    text = cell(value)
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() or char == "\n" else ascii(char)[1:-1] for char in text)


def printable_json(text: str) -> str:
    """JSON text as a terminal gets it. JSON itself escapes only some of what steers one.

    Args:
        text (str): JSON, or lines of it.

    Returns:
        str: the same values, with what does not print escaped (``\\u009b``). Lines stay lines.

    Raises:
        Nothing.

    Example:
        >>> print(printable_json('"' + chr(0x9b) + '31m"'))
        "\\u009b31m"
    """
    if text.isascii() and "\x7f" not in text:
        return text
    return "".join(char if char.isprintable() or char == "\n" else _escaped(char) for char in text)


def _escaped(char: str) -> str:
    """As JSON does it, in UTF-16."""
    units = char.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))


def plain(value: object) -> object:
    """A value of a status, of a row or of an answer, ready for a JSON encoder.

    Args:
        value (object): times, decimals, lists and dicts, nested as one likes.

    Returns:
        object: the same with times as RFC 3339 text, whole decimals as int, others as float, and tuples as
        lists. Not-a-number and the infinities are ``"NaN"``, ``"Infinity"`` and ``"-Infinity"``.

    Raises:
        Nothing.

    Example:
        >>> plain({"sum": Decimal(12), "at": datetime(2026, 1, 1), "rate": math.nan})
        {'sum': 12, 'at': '2026-01-01T00:00:00.000Z', 'rate': 'NaN'}
    """
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
