"""Lines that are usual, odd and wrong, and the columns that are asked of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from random import Random
from typing import Final

from agents.formats.access import COLUMNS, DATE, EXTRA_TEXT
from elf.schema import LINE, Column, ColumnType

FORMATS: Final = ("combined", "common", "json")
"""Those that are read natively."""
TYPES: Final[tuple[ColumnType, ...]] = ("text", "bigint", "double", "boolean", "timestamp")
ODD: Final = 0.05
"""So many pieces of an access log are odd."""
TIMES: Final = (
    "2026-01-01T00:00:00Z", "2026-12-31T23:59:59.5Z", "2024-02-29T12:00:00.123456Z", "2023-02-29T12:00:00Z",
    "2026-01-01T00:00:00.123456789Z", "2026-01-01T00:00:00.1234567891Z", "2026-01-01 00:00:00", "2026-01-01",
    "2026-01-01T00:00:00+02:00", "2026-01-01T00:00:00.25-14:59", "2026-01-01T00:00:00+15:00",
    "2026-01-01T00:00:00+00:00", "1000-01-01T00:00:00Z", "2999-12-31T23:59:59.999999999-14:00",
    "3000-01-01T00:00:00Z", "0999-01-01T00:00:00Z", "2026-06-30T23:59:60Z", "2026-01-01T24:00:00Z",
    "2026-13-01T00:00:00Z", "2026-00-10T00:00:00Z", "2026-01-00T00:00:00Z", "1900-02-29T00:00:00Z",
    "2000-02-29T00:00:00Z", "10/Oct/2000:13:55:36 -0700", "[10/Oct/2000:13:55:36 -0700]",
    "31/Dec/2026:23:59:59 +0000", "31/Apr/2026:00:00:00 +0000", "29/Feb/2016:00:00:00 +0130",
    "01/Jan/1000:00:00:00 +1459", "10/oct/2000:13:55:36 -0700", "2026-01-01T00:00:00,5Z", "2026-01-01t00:00:00z",
    "2026-01-01T00:00:00 +02", "2026-01-01T00:00Z", " 2026-01-01T00:00:00Z", "1441930018", "1441930018123",
    "1441930018123456", "-5", "2026-01-01T00:00:00.Z", "2026-01-01T00:00:00-00:00", "1969-12-31T23:59:59.999999Z",
)  # fmt: skip
NUMBERS: Final = (
    "0", "-0", "1", "-1", "42", "007", "12345678901234567", "123456789012345678", "1234567890123456789",
    "-123456789012345678", "9223372036854775807", "9223372036854775808", "18446744073709551616", "1.5", "-1.5",
    "0.0", "-0.0", "0.1", "0.001", "0.0001", "1e3", "1E3", "1e-7", "1.0", "100.0", "1e22", "1e23", "1e400",
    "-1e400", "1e-400", "5e-324", "2.2250738585072014e-308", "0.30000000000000004", "123456789.123456789",
    "3.141592653589793238462643383279", "9007199254740993", "9007199254740993.0", "1441930018", "1441930018123",
    "1441930018123456", "99999999999", "100000000000", "99999999999999", "100000000000000", "99999999999999999",
    "100000000000000000", "1441930018.123", "1441930018.1234567", "99999999999.99999", "1e11", "123456789012345.678",
    "+1", "1.", ".5", "01", "1e", "1e+", "0x10", "NaN", "nan", "Infinity", "-Infinity", "inf", "1_000", "--1",
)  # fmt: skip
STRINGS: Final = (
    "", "a", "video_games", "-", "true", "false", "null", "TRUE", "é", "日本語", "😀", "a b", "a\tb", "5", "+5",
    "5.5", "1e5", "x" * 31, "x" * 32, "x" * 33, "y" * 100, "\\", '"', "/", "a\\nb", "{}", "[1]", "\u007f", "\u0080",
    "\u2028", "\ufeff", "nan", "9" * 18, "9" * 19, "-" + "9" * 18, "0" * 30, " 5", "5 ", ":,}", '","a":1',
)  # fmt: skip
RAW_STRINGS: Final = (
    r'"a\nb"', r'"\u00e9"', r'"\u0041"', r'"\ud83d\ude00"', r'"\ud800"', r'"\u0000"', r'"\/"', r'"\x"', r'"\u12"',
    r'"\\"', r'"\""', r'"\\\""', r'"tab\there"', '"raw\ttab"', '"raw\x01"', r'"\u007F"', r'"\uFFFF"', r'"\u07ff"',
    r'"\u0800"', r'"5\u0030"', r'"tru\u0065"', r'"\b\f\r"', '"open', r'"\"',
)  # fmt: skip
KEYS: Final = (
    "a", "b", "a.b", "b.a", "a.b.a", "ts", "store", "clicks_count", "é", "A", "c d", "x" * 40, "a.b.c.d", "$", "[0]",
    "'", "?", '"', '"a.b"', "0", "n", "inf",
)  # fmt: skip
RAW_KEYS: Final = (r'"\u0061"', r'"a\u002eb"', r'"\""', '""', '"*"')
NAMES: Final = (
    "a", "b", "a.b", "b.a", "a.b.a", '"a.b"', "ts", "store", "clicks_count", "é", "A", "a.c d", "x" * 40, "a.b.c.d",
    "a.$", "[0]", "a.?", '"', "'", "zzz", '"""a.b"""', "a.0", "n", "inf",
)  # fmt: skip
BLANKS: Final = ("", "", "", "", " ", "  ", "\t", "\r", "\x0b", "\u00a0")
WORDS: Final = ("true", "false", "null", "True", "nul", "tru", "undefined", "")


class JsonLines:
    """Draws JSON lines."""

    def __init__(self, rng: Random) -> None:
        self._rng = rng

    def columns(self) -> tuple[tuple[Column, ...], str | None]:
        """What is asked: columns, and the event time."""
        rng = self._rng
        names = rng.sample(NAMES, rng.randint(0, 6))
        event_time = rng.choice([None, "ts", "ts", "a", "a.b"])
        columns = [
            Column(name, "timestamp" if name == event_time and rng.random() < 0.9 else rng.choice(TYPES))
            for name in names
        ]
        if rng.random() < 0.2:
            columns.append(Column(LINE, "text"))
        return tuple(columns), event_time

    def line(self) -> str:
        """A line: half of them are as logs have them."""
        if self._rng.random() < 0.5:
            return self._usual()
        blanks = self._rng.choice(BLANKS), self._rng.choice(BLANKS)
        return blanks[0] + self._object(3) + blanks[1]

    def _usual(self) -> str:
        rng = self._rng
        record = {
            "ts": rng.choice(TIMES),
            "store": rng.choice(STRINGS),
            "a": rng.choice(
                [rng.randint(-5, 10 ** rng.randint(1, 18)), rng.choice(STRINGS), rng.random() * 1e6, None]
            ),
            "b": rng.choice([{"a": rng.choice([1, "x", True, None, 0.5])}, [1, "x", {}], True]),
            "clicks_count": rng.randint(0, 1000),
        }
        separators = rng.choice([(",", ":"), (", ", ": ")])
        return json.dumps(record, ensure_ascii=rng.random() < 0.3, separators=separators)

    def _object(self, depth: int) -> str:
        pairs = [self._pair(depth) for _ in range(self._rng.randint(0, 5))]
        return "{" + self._blank().join([",".join(pairs), ""]) + "}"

    def _pair(self, depth: int) -> str:
        rng = self._rng
        key = (
            json.dumps(rng.choice(KEYS), ensure_ascii=False) if rng.random() < 0.95 else rng.choice(RAW_KEYS)
        )
        return f"{self._blank()}{key}{self._blank()}:{self._blank()}{self._value(depth)}{self._blank()}"

    def _value(self, depth: int) -> str:
        rng, kind = self._rng, self._rng.random()
        if depth and kind < 0.2:
            return self._object(depth - 1)
        if depth and kind < 0.3:
            return "[" + ",".join(self._value(depth - 1) for _ in range(rng.randint(0, 3))) + "]"
        if kind < 0.5:
            return rng.choice(NUMBERS[:42]) if rng.random() < 0.9 else rng.choice(NUMBERS)
        if kind < 0.6:
            return json.dumps(rng.choice(TIMES), ensure_ascii=False)
        if kind < 0.7:
            return json.dumps(rng.choice(NUMBERS), ensure_ascii=False)
        if kind < 0.75:
            return rng.choice(RAW_STRINGS)
        if kind < 0.85:
            return rng.choice(WORDS[:3]) if rng.random() < 0.9 else rng.choice(WORDS)
        return json.dumps(rng.choice(STRINGS), ensure_ascii=False)

    def _blank(self) -> str:
        return self._rng.choice(BLANKS[:8]) if self._rng.random() < 0.1 else ""


PIECES: Final[dict[str, tuple[Sequence[str], Sequence[str]]]] = {
    "front": (("",), ("h.example:80 ", "h ", "5.6.7.8 ", "5.6.7.8, ", "\ufeff", " ", "a b ")),
    "client": (("1.2.3.4", "::1"), ("::1", "2001:db8::1", "-", "localhost", "1.2.3.4:80", "unix:", "a:b", "a:b:c", "a,b", "é", "", "\ufeffa")),
    "identity": (("-",), ("ident", "a.b", "a:b", "", "é", "[x]")),
    "user": (("-", "frank"), ("frank", "a b", "é", "[x]", "- bob", "a -", "-x", "--", '""', "", " a")),
    "date": (("10/Oct/2000:13:55:36 -0700", "29/Feb/2016:00:00:00 +0130", "01/Jan/2026:00:00:00 +0000"),
    ("30/Feb/2016:00:00:00 +0000", "10/oct/2000", "-", "01/Jan/0999:00:00:00 +0000", "31/Dec/2999:23:59:59 -1459",
       "30/Jun/2026:23:59:60 +0000", "01/Jan/2026:24:00:00 +0000", "01/Jan/2026:00:00:00 +1500",
       "1/Jan/2026:00:00:00 +0000", "01/Jan/2026:00:00:00 +0060", "00/Jan/2026:00:00:00 +0000")),
    "request": (("GET / HTTP/1.1", "POST /a?b=c HTTP/2.0", "GET /x.html?", "HEAD /-?a?b HTTP/1.0"),
    ("GET /é?b HTTP/1.1", "GET", "-", "", r"\x16\x03", r"A /\"\\ X/1", "GET / HTTP/1.1 ", "A  B", "GET - HTTP/1.1",
       "GET /a b?c d HTTP/1.1", "GET /a b/2.0", "GET a b", "GET / HTTP/1.1 x", "- / rtsp/1.0", r"\\", "get / http/1.1",
       "GET /a HTTP/2", "GET /a HTTP/11", "GET /a SIP/2.0", "GET /a sip/2", "GET a HTTP/1.1", "GET a", " GET / HTTP/1.1",
       "G\u00c9T / HTTP/1.1", "GET / HTTP/1.", "GET / \u017fip/1", "GET http/1.1", "GET x http/ y", "GET /x hTTp/ y", "GET  /a  b  HTTP/1.1  ",
       "GET /a HTTP/1.1 HTTP/1.1", "  GET  /a  ", "GET x y HTTP/1.1", "GET /a  b", "GET HTTP/1.1 x", "GET /x é HTTP/9", "GET /\t HTTP/1.1", "GET ? HTTP/1.1", "~ * HTTP/1.1",
       "GET -?- HTTP/1.1", "GET / ", "GET ", " ", "GET  / HTTP/1.1", "[x] / HTTP/1.1", "GET / H@TP/1.1")),
    "mid": (("200 1", "404 123456", "304 -"),
    ("- -", "20 1", "200", "200 1.0", "200  1", "2000 1", "200 " + "9" * 18, "200 " + "9" * 19, "200 -1", "999 00",
       "- 5", "200 1 ", "20x 1")),
    "quoted": (("-", "Mozilla/5.0 (X11)", "https://e.org/?q=1"),
    ("", "x y", r"\"", r"\\", r"\\\"", "]", "é😀", r"a\b", "-- ", "[", r"\x22", "a" * 40)),
    "tail": (("", " more", " [x]", ' "a" "b" 0.5'), (" ", " more", "x", ' "q"', ' "a" "b" 0.5', ' "', '""', ' "" [x] "', "  0.003  ", r' \"', " \t")),
}  # fmt: skip
"""Of each piece of a line the usual ones, and others."""


class AccessLines:
    """Draws lines of access logs. ``combined``: most have referer and user agent."""

    def __init__(self, rng: Random, *, combined: bool) -> None:
        self._rng = rng
        self._combined = combined

    def columns(self) -> tuple[tuple[Column, ...], str | None]:
        """What is asked: columns, and the event time."""
        rng = self._rng
        chosen = rng.sample(COLUMNS, rng.randint(0, 8))
        columns = [
            column
            if column.name == "ts" or rng.random() < 0.8
            else Column(column.name, rng.choice(TYPES[:4]))
            for column in chosen
        ]
        columns += [Column(name, "text") for name in (DATE, EXTRA_TEXT, LINE) if rng.random() < 0.2]
        return tuple(columns), rng.choice([None, "ts", "ts"])

    def line(self) -> str:
        """A line, most of whose pieces are usual."""
        pick = {name: self._piece(name) for name in PIECES}
        referer, agent = pick["quoted"], self._piece("quoted")
        line = '{front}{client} {identity} {user} [{date}] "{request}" {mid}'.format(**pick)
        if self._combined == (self._rng.random() < 0.9):
            line += f' "{referer}" "{agent}"'
        return line + pick["tail"]

    def _piece(self, name: str) -> str:
        return self._rng.choice(PIECES[name][self._rng.random() < ODD])


def spoilt(rng: Random, line: str) -> str:
    """A line in which something was changed by chance."""
    at, other = rng.randint(0, len(line)), rng.randint(0, len(line))
    low, high = sorted((at, min(other, at + 8)))
    changes: Sequence[Callable[[], str]] = (
        lambda: line[:low] + line[high:],
        lambda: line[:at] + rng.choice('"\\,:{}[] -0123456789eE.tfn\t\r\x01é\u00a0/+?') + line[at:],
        lambda: line[:at] + rng.choice('"\\,:{}[] -0e.') + line[at + 1 :],
        lambda: line[:at] + line[low:high] + line[at:],
        lambda: line[:at],
        lambda: line[:low] + line[low:high][::-1] + line[high:],
    )
    return rng.choice(changes)().replace("\n", " ").replace("\0", " ")
