"""Masks JSON lines: values by their paths, whatever the case of the keys, as queries name them; all others
stay as they are written. A path is looked for nested, flat and in between, as ``agents.formats.json`` reads
it, and within the items of arrays. Of keys that are twice in an object the last one stays.

Of the lines of a server whose keys are known (``agents.formats.nested``) a column is masked wherever that
server has its value: the client's address also in the headers that proxies add.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import msgspec
import pyarrow as pa

from agents.formats.nested import Named, Nested
from agents.masks import WITHHELD, masked

Rewrite = Callable[[msgspec.Raw], msgspec.Raw]
"""From the text of a value to what is left of it."""
_NULL: Final = msgspec.Raw(b"null")
_record: Final = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_items: Final = msgspec.json.Decoder(list[msgspec.Raw]).decode


class JsonMask:
    """Of lines with any keys, or those of ``fmt``."""

    def __init__(self, mask: Mapping[str, str], key: bytes, fmt: Nested | None = None) -> None:
        self._key = key
        self._rules: dict[str, Rewrite] = {}
        for name, how in mask.items():
            named = fmt.names.get(name.lower()) if fmt is not None else None
            if named is None:
                self._rules[name.lower()] = self._whole(how)
                continue
            self._rules.setdefault(named.path.lower(), self._part(named, how))
            for path in named.also:
                self._rules.setdefault(path.lower(), self._whole(how))
        keys = [path.split(".") for path in self._rules]
        self._above = {".".join(path[:size]) for path in keys for size in range(1, len(path))}

    def mask(self, lines: pa.StringArray) -> pa.StringArray:
        """See ``agents.tasks.masking.Lines``."""
        return pa.array([self._line(line) for line in lines.to_pylist()], pa.string())

    def _line(self, line: str) -> str:
        try:
            return bytes(self._object(line, "")).decode()
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            return WITHHELD

    def _object(self, text: str | msgspec.Raw, above: str) -> msgspec.Raw:
        record = _record(text)
        for name, value in record.items():
            path = f"{above}{name.lower()}"
            if (rule := self._rules.get(path)) is not None:
                record[name] = rule(value)
            elif path in self._above:
                record[name] = self._within(value, f"{path}.")
        return msgspec.Raw(msgspec.json.encode(record))

    def _within(self, value: msgspec.Raw, above: str) -> msgspec.Raw:
        match bytes(value)[:1]:
            case b"{":
                return self._object(value, above)
            case b"[":
                return msgspec.Raw(msgspec.json.encode([self._within(one, above) for one in _items(value)]))
            case _:
                return value

    def _part(self, named: Named, how: str) -> Rewrite:
        match named.part:
            case "query":
                return self._query(how)
            case "first" if how != "drop":
                return self._each(how)
            case _:
                return self._whole(how)

    def _whole(self, how: str) -> Rewrite:
        def rewrite(raw: msgspec.Raw) -> msgspec.Raw:
            value = msgspec.json.decode(raw)
            text = value if isinstance(value, str) else bytes(raw).decode()
            if value is None or (how == "truncate" and not isinstance(value, str)):
                return _NULL
            return msgspec.Raw(msgspec.json.encode(masked(how, text, self._key)))

        return rewrite

    def _each(self, how: str) -> Rewrite:
        """Of the values of a header."""
        whole = self._whole(how)

        def rewrite(raw: msgspec.Raw) -> msgspec.Raw:
            if bytes(raw)[:1] != b"[":
                return whole(raw)
            return msgspec.Raw(msgspec.json.encode([whole(one) for one in _items(raw)]))

        return rewrite

    def _query(self, how: str) -> Rewrite:
        """Of a URI what is behind the question mark."""

        def rewrite(raw: msgspec.Raw) -> msgspec.Raw:
            value = msgspec.json.decode(raw)
            if not isinstance(value, str):
                return _NULL
            stem, mark, query = value.partition("?")
            left = masked(how, query, self._key) if mark else None
            return msgspec.Raw(msgspec.json.encode(stem if left is None else f"{stem}?{left}"))

        return rewrite

    def close(self) -> None:
        pass
