"""Records to lines: what a structured protocol sends becomes a JSON object a line, or its text alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Final

import msgspec

from agents.receiving.intake import line
from agents.receiving.unpacking import TooLarge

TIME: Final = "@timestamp"
TEXTS: Final = ("log", "message", "MESSAGE", "msg", "body")
"""Where a record has its text, the first that is there."""
RECORDS_MAX: Final = 1 << 18
"""In a message: each takes time, however small it is."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_encode: Final = msgspec.json.Encoder(decimal_format="number").encode


def moment(ns: int) -> str:
    """RFC 3339, to the microsecond; empty where there is no such day."""
    try:
        found = _EPOCH + timedelta(microseconds=ns // 1_000)
    except OverflowError:
        return ""
    return found.isoformat(timespec="microseconds").replace("+00:00", "Z")


def rendered(record: Mapping[object, object], ns: int, more: Mapping[str, object], *, whole: bool) -> bytes:
    """A line. ``ns``: the record's time; ``more``: of it, where it has no such field itself. A record without
    a text is whole anyway."""
    if not whole:
        text = next((record[name] for name in TEXTS if name in record), None)
        if isinstance(text, str):
            return line(text.encode("utf-8", "surrogatepass"))
        if isinstance(text, bytes):
            return line(text)
    return _encode({TIME: moment(ns), **more, **record}) + b"\n"


def block(lines: Iterable[bytes], most: int) -> bytes:
    """Of a message: what it says once may be in each of them. Raises ``TooLarge`` as soon as it is known."""
    found = bytearray()
    for count, one in enumerate(lines):
        check_count(count + 1)
        found += one
        if len(found) > most:
            raise TooLarge(f"its lines come to more than {most} bytes; send fewer records at once")
    return bytes(found)


def check_count(records: int) -> None:
    """Raises ``TooLarge``."""
    if records > RECORDS_MAX:
        raise TooLarge(f"it has more than {RECORDS_MAX} records; send fewer at once")
