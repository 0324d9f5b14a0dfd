"""W3C's extended log file format (w3.org, WD-logfile), as IIS, CloudFront and others write it: fields between
blanks or tabs, in an order that the file's own ``#Fields:`` line says; lines that begin with ``#`` are no
records.

Names are those of the header in lower case, with ``_`` for what is no letter or digit: ``cs(User-Agent)`` is
``cs_user_agent``. ``date`` and ``time`` side by side are the event time ``ts``. ``time-taken`` is
``request_time``: CloudFront's is of seconds, any other of ms, as IIS has it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from agents.formats.dialect import Mask
from agents.formats.fields import Field
from agents.formats.layout import GAP, Layout, Piece
from agents.formats.saying import cannot

_FIELDS: Final = re.compile(r"#Fields:[ \t]*(.*\S)")
_WHOLE: Final = re.compile(
    r"(sc|cs|s|c|rs|sr)-(status|substatus|win32-status|bytes|port|content-len|range-start|range-end)"
)
_FIELD: Final = re.compile(r"[A-Za-z0-9_-]+(?:\([^()\s]+\))?")


class W3C(Layout):
    """``fields``: as the header has them."""

    def __init__(self, name: str, fields: str) -> None:
        super().__init__(name, _pieces(fields.split()))

    def headings(self, lines: pa.StringArray) -> Mask | None:
        """See ``Format``."""
        found: Mask = pc.starts_with(lines, "#").to_numpy(zero_copy_only=False)
        return found


def fields_in(lines: Sequence[str]) -> str | None:
    """What the first header among these lines says."""
    found = (_FIELDS.match(line) for line in lines)
    return next((" ".join(one[1].split()) for one in found if one is not None), None)


def of_fields(text: str) -> W3C:
    """``w3c:FIELDS``. Raises ``ConfigError``."""
    fields = text.removeprefix("w3c:")
    for field in fields.split():
        if not _FIELD.fullmatch(field):
            raise cannot(
                text, text.find(field, 4), f"{field} is no field, such as cs-uri-stem or cs(Referer)"
            )
    if not fields.strip():
        raise cannot(text, 4, "w3c: is followed by the fields of the log, as its line #Fields: has them")
    return W3C(f"w3c:{' '.join(fields.split())}", fields)


def _pieces(fields: Sequence[str]) -> list[Piece]:
    seconds = "x-edge-location" in fields
    found: list[Piece] = []
    names = list(fields)
    while names:
        name = names.pop(0)
        if found:
            found.append(GAP)
        if name == "date" and names[:1] == ["time"]:
            names.pop(0)
            found.append(Field("ts", "split_date"))
        else:
            found.append(_field(name, seconds=seconds))
    return found


def _field(name: str, *, seconds: bool) -> Field:
    if name == "time-taken":
        return Field("request_time", "real" if seconds else "ms")
    column = re.sub(r"\W+", "_", name.lower()).strip("_").replace("-", "_")
    if name == "time-to-first-byte":
        return Field(column, "real")
    return Field(column, "whole" if _WHOLE.fullmatch(name) else "word")
