"""The messages of jobs as bytes: what a callback may send, and get.

None, bool, int, float, str, bytes, aware datetimes, lists, dicts, and Arrow tables and batches (which arrive
as tables), nested freely. Tuples and sets arrive as lists. Whole decimals, such as the sums of a query,
arrive as ints, others as floats.
"""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Any, Final, TypeAlias

import msgspec
import pyarrow as pa

from elf.batch import decode, encode
from elf.errors import PeerError
from elf.job.program.calls import VALUE_BYTES_MAX

Message: TypeAlias = (
    bool
    | int
    | float
    | Decimal
    | str
    | bytes
    | datetime
    | list[Any]
    | tuple[Any, ...]
    | set[Any]
    | frozenset[Any]
    | dict[Any, Any]
    | pa.Table
    | pa.RecordBatch
    | None
)
"""What a job may send, and what arrives: at most 4 MiB when it is packed. Containers hold messages again.
Datetimes are aware; one without a time zone arrives as ISO 8601 text. Tuples and sets arrive as lists,
batches as tables, decimals as int or float."""

_TABLE: Final = 1
_BIG: Final = 2
_BITS: Final = 63


class NoMessage(Exception):
    """A value that cannot be sent; the text says why."""


def pack_value(value: object, bytes_max: int = VALUE_BYTES_MAX) -> bytes:
    """Raises ``NoMessage``."""
    try:
        data = _encoder.encode(_plain(value))
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise NoMessage(f"this cannot be sent: {error}") from None
    if len(data) > bytes_max:
        raise NoMessage(f"a message of {len(data)} bytes; at most {bytes_max} can be sent")
    return data


def unpack_value(data: bytes) -> Message:
    """The value again. Raises ``PeerError`` for bytes that are none."""
    try:
        message: Message = _decoder.decode(data)
    except (ValueError, RecursionError) as error:
        raise PeerError(f"no message of a job: {error}") from None
    return message


def _plain(value: object) -> object:
    """Numbers that msgpack has no type for, as numbers that it has."""
    match value:
        case dict():
            return {_plain(key): _plain(item) for key, item in value.items()}
        case list() | tuple() | set() | frozenset():
            return [_plain(item) for item in value]
        case Decimal():
            return _plain(int(value)) if value == value.to_integral_value() else float(value)
        case int() if not isinstance(value, bool) and not -(1 << _BITS) <= value < 1 << _BITS + 1:
            return msgspec.msgpack.Ext(_BIG, str(value).encode())
    return value


def _to_extension(value: object) -> object:
    if isinstance(value, pa.RecordBatch):
        value = pa.Table.from_batches([value])
    if isinstance(value, pa.Table):
        return msgspec.msgpack.Ext(_TABLE, encode(value))
    if hasattr(value, "item") and hasattr(value, "dtype"):  # a number of numpy's
        return value.item()
    raise TypeError(
        f"a message may hold None, bool, int, float, str, bytes, datetime, list, dict and Arrow tables, "
        f"not {type(value).__name__}"
    )


def _from_extension(code: int, data: memoryview) -> object:
    if code == _TABLE:
        try:
            return decode(bytes(data))
        except PeerError as error:
            raise ValueError(str(error)) from None
    if code == _BIG:
        return int(bytes(data))
    raise ValueError(f"extension {code}")


_encoder: Final = msgspec.msgpack.Encoder(enc_hook=_to_extension)
_decoder: Final = msgspec.msgpack.Decoder(ext_hook=_from_extension)
