"""What samples tell of columns whose types no format knows: as of JSON, integers and floats make a double,
and whatever else is among them makes text. ``-`` and nothing tell nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from elf.ql.timestamps import NUMBER, read_timestamp
from elf.schema import EVENT_TIMES, ColumnType

_WHOLE: Final = r"^[+-]?[0-9]{1,18}$"
_NUMBER: Final = rf"^(?:{NUMBER})$"
_TRUTH: Final = "^(?:true|false)$"
_LOOKED_AT: Final = 200


def _there(texts: pa.StringArray) -> pa.StringArray:
    nothing = pc.is_in(texts, pa.array(["-", ""]))
    return texts.filter(pc.and_(pc.is_valid(texts), pc.invert(nothing)))


def type_of(texts: pa.StringArray) -> ColumnType | None:
    """The type of a column with these values; None: there are none."""
    there = _there(texts)
    if not len(there):
        return None
    for kind, pattern in (("bigint", _WHOLE), ("double", _NUMBER), ("boolean", _TRUTH)):
        if pc.all(pc.match_substring_regex(there, pattern)).as_py():
            return kind  # type: ignore[return-value]
    return "text"


def event_time_of(columns: Mapping[str, pa.StringArray]) -> str | None:
    """The column that a stream's windows go by: the first of ``EVENT_TIMES`` that holds times, else the first
    one that holds times with a clock, and no numbers."""
    for name in EVENT_TIMES:
        if name in columns and _are_times(columns[name]):
            return name
    return next(
        (name for name, texts in columns.items() if type_of(texts) == "text" and _are_times(texts)), None
    )


def _are_times(texts: pa.StringArray) -> bool:
    there = _there(texts)[:_LOOKED_AT].to_pylist()
    return bool(there) and all(read_timestamp(text) is not None for text in there)
