"""logfmt: ``key=value key2="a value with blanks" …`` (brandur.org/logfmt, and what Go's loggers write).
Columns are the keys, as samples have them, with types told from samples; the first of two equal keys counts.
A key without a value is NULL."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from agents.formats.dialect import Dialect, Format, Selection, Step, is_reserved
from agents.formats.fields import Cut, Field, Fielded
from agents.formats.telling import event_time_of, type_of
from elf.schema import LINE, Column, Schema

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
            firsts = dict(reversed(pairs))
            for key in dict(pairs):
                if key in seen or (len(seen) < _COLUMNS_MAX and not is_reserved(key)):
                    seen.setdefault(key, []).append(firsts[key].replace('"', ""))
        texts = {key: pa.array(values, pa.string()) for key, values in seen.items()}
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


class _Keyed(Fielded):
    """Some keys of such lines."""

    def cut(self, dialect: Dialect, wanted: Sequence[int], *, extras: bool) -> Cut:
        """See ``Fielded``. A key is looked for with the blank before it: first among the words in front of
        any quote, and where it is not there, among all, in which blanks within quotes are none by then."""
        quote, blank = dialect.literal('"'), dialect.literal(" ")
        within = f"{dialect.mark('v')} || replace(x, {blank}, {dialect.mark('s')})"
        pieces = dialect.split("_s", '"')
        joined = dialect.either(
            f"array_to_string(list_transform({pieces}, "
            f"lambda x, i: CASE WHEN i % 2 = 0 THEN {within} ELSE x END), '')",
            f"array_join(transform({pieces}, (x, i) -> CASE WHEN i % 2 = 1 THEN {within} ELSE x END), '')",
        )
        escaped = dialect.contains("line", dialect.literal("\\"))
        front = f"regexp_extract({dialect.part('line', chr(34), 1)}, '^.* ', 0)"
        keys = {number: dialect.literal(f" {self.fields[number].name}=") for number in wanted}
        near = tuple((f"_n{number}", _value("_front", key)) for number, key in keys.items())
        missing = " OR ".join([f"{name} = ''" for name, _ in near]) or "FALSE"
        steps: list[Step] = [
            (("_odd", dialect.contains("line", quote)),),
            (("_s", f"CASE WHEN _odd AND {escaped} THEN {dialect.masked('line')} ELSE line END"),),
            (("_front", f"CASE WHEN _odd THEN ' ' || {front} ELSE ' ' || line END"),),
            near,
            (("_m", f"CASE WHEN _odd AND ({missing}) THEN ' ' || {joined} END"),),
        ]
        texts = {}
        for number, key in keys.items():
            far = dialect.unmarked(_value("_m", key))
            texts[number] = f"CASE WHEN NOT _odd OR _n{number} <> '' THEN _n{number} ELSE {far} END"
        paired = f"(length(_s) - length(replace(_s, {quote}, ''))) % 2 = 0"
        valid = f"{dialect.begins('line', _BEGINS)} AND CASE WHEN _odd THEN {paired} ELSE TRUE END"
        return Cut([step for step in steps if step], f"coalesce({valid}, FALSE)", texts)


def _value(words: str, key: str) -> str:
    """What is behind the first such key, up to a blank; empty where there is none."""
    return f"split_part(split_part({words}, {key}, 2), ' ', 1)"


def pairs(line: str) -> list[tuple[str, str, bool]]:
    """Keys, their values without quotes, and whether they had some, in their order, as the SQL finds them;
    what is neither is left out."""
    marked = line.replace("\\\\", "\0b").replace('\\"', "\0q")
    pieces = [
        "\0v" + piece.replace(" ", "\0s") if place % 2 else piece
        for place, piece in enumerate(marked.split('"'))
    ]
    found = []
    for word in "".join(pieces).split(" "):
        key, equals, value = word.partition("=")
        if key and equals and "\0" not in key:
            bare = value.replace("\0v", "").replace("\0s", " ")
            found.append((key, bare.replace("\0q", '\\"').replace("\0b", "\\\\"), "\0v" in value))
    return found


def is_line(line: str) -> bool:
    """Whether a line is one of this format."""
    return re.match(_BEGINS, line) is not None and re.sub(r'\\[\\"]', "", line).count('"') % 2 == 0


LOGFMT: Final = Logfmt()
