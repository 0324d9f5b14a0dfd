"""logfmt: ``key=value key2="a value with blanks" …`` (brandur.org/logfmt, and what Go's loggers write).
Columns are the keys, as samples have them, with types told from samples; the first of two equal keys counts.
A key without a value is NULL."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from agents.formats.dialect import LINE, Dialect, Format, Selection, Step
from agents.formats.fields import Cut, Field, Fielded
from agents.formats.json import RESERVED
from agents.formats.telling import event_time_of, type_of
from elf.schema import Column, Schema

_PAIR: Final = re.compile(r'(?:^| )([^\s="]+)=((?:"(?:[^"\\]|\\.)*"|[^ "])*)')
_BEGINS: Final = "^ *[A-Za-z_@][A-Za-z0-9_.@/-]*="
_COLUMNS_MAX: Final = 1000


class Logfmt(Format):
    """See the module's docstring."""

    name = "logfmt"

    def schema(self, samples: pa.StringArray, timestamp: str | None) -> Schema:
        """See ``Format``: the keys in order of first sight."""
        seen: dict[str, list[str]] = {}
        for text in samples.to_pylist():
            pairs = _PAIR.findall(text) if text is not None and re.match(_BEGINS, text) else []
            for key, value in reversed(pairs):
                if key in seen or (len(seen) < _COLUMNS_MAX and key not in RESERVED):
                    seen.setdefault(key, []).append(value.replace('"', ""))
        names = [key for key in _in_order(samples) if key in seen]
        texts = {key: pa.array(seen[key], pa.string()) for key in names}
        types = {key: type_of(one) for key, one in texts.items()}
        event_time = timestamp or event_time_of(texts)
        columns = [
            Column(key, "timestamp" if key == event_time else kind or "text") for key, kind in types.items()
        ]
        if event_time is not None and event_time not in types:
            columns.append(Column(event_time, "timestamp"))
        unsure = tuple(key for key, kind in types.items() if kind is None and key != event_time)
        return Schema(tuple(columns), event_time, unsure)

    def matching(self, lines: pa.StringArray) -> int | None:
        """See ``Format``."""
        begins = pc.match_substring_regex(lines, _BEGINS)
        unescaped = pc.replace_substring_regex(lines, r'\\[\\"]', "")
        paired = pc.equal(pc.bit_wise_and(pc.count_substring(unescaped, '"'), 1), 0)
        return int(pc.sum(pc.and_(begins, paired)).as_py() or 0)

    def select(self, dialect: Dialect, columns: Sequence[Column], event_time: str | None) -> Selection:
        """See ``Format``. Any key may be asked for."""
        names = dict.fromkeys([*(c.name for c in columns), *([event_time] if event_time else [])])
        keyed = _Keyed("logfmt", [Field(name, "untold") for name in names if name != LINE])
        return keyed.select(dialect, columns, event_time)


def _in_order(samples: pa.StringArray) -> list[str]:
    found: dict[str, None] = {}
    for text in samples.to_pylist():
        found.update(dict.fromkeys(key for key, _ in _PAIR.findall(text or "")))
    return list(found)


class _Keyed(Fielded):
    """Some keys of such lines."""

    def cut(self, dialect: Dialect, wanted: Sequence[int], *, extras: bool) -> Cut:
        """See ``Fielded``. A key is looked for with the blank before it: those within quotes are no blanks by
        then."""
        quote, blank = dialect.literal('"'), dialect.literal(" ")
        begins, within = dialect.mark("v"), dialect.mark("s")
        masked = f"{begins} || replace(x, {blank}, {within})"
        each = dialect.either(
            f"list_transform(_p, lambda x, i: CASE WHEN i % 2 = 0 THEN {masked} ELSE x END)",
            f"transform(_p, (x, i) -> CASE WHEN i % 2 = 1 THEN {masked} ELSE x END)",
        )
        joined = dialect.either(f"array_to_string({each}, '')", f"array_join({each}, '')")
        steps: list[Step] = [
            (("_odd", dialect.contains("line", quote)),),
            (("_p", f"CASE WHEN _odd THEN {dialect.split(dialect.masked('line'), chr(34))} END"),),
            (("_m", f"CASE WHEN _odd THEN ' ' || {joined} ELSE ' ' || line END"),),
        ]
        texts = {}
        for number in wanted:
            key = dialect.literal(f" {self.fields[number].name}=")
            found = f"split_part(split_part(_m, {key}, 2), ' ', 1)"
            texts[number] = f"CASE WHEN _odd THEN {dialect.unmarked(found)} ELSE {found} END"
        paired = f"CASE WHEN _odd THEN {dialect.items('_p')} % 2 = 1 ELSE TRUE END"
        valid = f"coalesce({dialect.begins('line', _BEGINS)} AND {paired}, FALSE)"
        return Cut(steps, valid, texts)


LOGFMT: Final = Logfmt()
