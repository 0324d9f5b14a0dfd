"""Two hundred small inputs and questions: each is answered rightly, or refused in a line.

Never a traceback, a bug, a hang or lines that are lost without a word. An ``Answer`` is what ``--output
json`` prints; ``Refused`` a part of the one message, of a run that fails.
"""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import math
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.files import zstd
from tests.support.run_command import elf_run

T = '"ts":"2025-10-10T00:00:00Z"'
COUNT = "SELECT COUNT(*) AS n FROM log"


@dataclass(frozen=True)
class Answer:
    rows: tuple[dict[str, object], ...]
    noted: str = ""
    """A part of what is said on standard error; empty: nothing is."""


@dataclass(frozen=True)
class Refused:
    part: str


Expected = Answer | Refused


def rows(*given: dict[str, object], noted: str = "") -> Answer:
    return Answer(given, noted)


def n(count: object, noted: str = "") -> Answer:
    return rows({"n": count}, noted=noted)


def a(values: str) -> bytes:
    """JSON lines with a column a of these values."""
    return "".join(f'{{{T},"a":{value}}}\n' for value in values.split("|")).encode()


LINE = f'{{{T},"a":1}}\n'.encode()
TWO = LINE + b'{"ts":"2025-10-10T00:00:01Z","a":2}\n'
ACCESS = b'10.0.0.1 - - [10/Oct/2025:00:00:00 +0000] "GET /x HTTP/1.1" 200 5\n'
REJECTED = "lines rejected: they do not parse"

# What a file has, and how many lines of it count.
CONTENTS: dict[str, tuple[bytes, Expected]] = {
    "empty": (b"", n(0)),
    "a newline": (b"\n", n(0, REJECTED)),
    "blank lines": (b"\n \n\t\n", n(0, REJECTED)),
    "blank lines between": (LINE + b"\n\n" + LINE, n(2, "2 of 4 lines rejected")),
    "no newline at the end": (TWO[:-1], n(2)),
    "CRLF": (TWO.replace(b"\n", b"\r\n"), n(2)),
    "CR only": (TWO.replace(b"\n", b"\r"), Refused("")),
    "BOM": (b"\xef\xbb\xbf" + TWO, n(2)),
    "BOM alone": (b"\xef\xbb\xbf", n(0, REJECTED)),
    "BOM in the middle": (LINE + b"\xef\xbb\xbf" + LINE + LINE * 8, n(9, "1 of 10 lines rejected")),
    "UTF-16": (TWO.decode().encode("utf-16"), Refused("cannot read the input")),
    "NULs": (b"\0" * 300, Refused("cannot read the input")),
    "a NUL in a line": (LINE * 8 + b'{"a":"\0"}\n', n(8, "1 of 9 lines rejected")),
    "random bytes": (bytes(range(128, 256)) * 9, Refused("cannot read the input")),
    "bad UTF-8 in a line": (LINE * 8 + b'{"a":"\xff"}\n', n(8, "1 of 9 lines rejected")),
    "an image": (b"\x89PNG\r\n\x1a\n" + bytes(200), Refused("")),
    "an ELF file": (b"\x7fELF\x02\x01\x01" + bytes(200), Refused("")),
    "xz": (lzma.compress(TWO), n(2)),
    "bzip2": (bz2.compress(TWO) + bz2.compress(LINE), n(3)),
    "zstd": (zstd(TWO) + zstd(LINE), n(3)),
    "xz that is none": (b"\xfd7zXZ\0" + bytes(40), Refused("not read to the end")),
    "bzip2 that is none": (b"BZh9" + bytes(40), Refused("not read to the end")),
    "zstd that is none": (b"\x28\xb5\x2f\xfd" + bytes(40), Refused("not read to the end")),
    "zstd that is cut": (zstd(TWO * 400)[:-9], Refused("not read to the end")),
    "zip": (b"PK\x03\x04" + bytes(40), Refused("unzip -p")),
    "gz": (gzip.compress(TWO), n(2)),
    "two gz": (gzip.compress(LINE) + gzip.compress(LINE), n(2)),
    "gz of nothing": (gzip.compress(b""), n(0)),
    "gz with garbage behind": (gzip.compress(TWO) + b"garbage", Refused("not read to the end")),
    "gz with zeros behind": (gzip.compress(TWO) + bytes(20), n(2)),
    "gz that is cut": (gzip.compress(TWO * 400)[:-9], Refused("not read to the end")),
    "gz head only": (b"\x1f\x8b", Refused("not read to the end")),
    "gz of gz": (gzip.compress(gzip.compress(TWO)), Refused("cannot read the input")),
    "prose": (b"Dear all,\nnothing here is a log.\nYours\n", Refused("cannot tell the format")),
    "CSV": (b"ts,a\n2025-10-10,1\n", n(1)),
    "CSV without a header": (b"2025-10-10,1\n2025-10-10,2\n", Refused("cannot tell the format")),
    "XML": (b"<a>\n<b/>\n</a>\n", Refused("cannot tell the format")),
    "YAML": (b"a: 1\nb: 2\n", Refused("cannot tell the format")),
    "SQL": (b"SELECT 1;\n", Refused("cannot tell the format")),
    "a JSON number a line": (b"1\n2\n", Refused("cannot tell the format")),
    "a JSON text a line": (b'"a"\n"b"\n', Refused("cannot tell the format")),
    "null": (b"null\n", Refused("cannot tell the format")),
    "true": (b"true\n", Refused("cannot tell the format")),
    "an array of numbers": (b"[1,2]\n", Refused("cannot tell the format")),
    "an array": (b"[" + LINE.strip() + b"," + LINE.strip() + b"]\n", Refused("jq -c '.[]' FILE")),
    "pretty JSON": (json.dumps({"a": {"b": 1}}, indent=2).encode(), Refused("jq -c . FILE")),
    "an empty object": (b"{}\n", Refused("no line of the input is of format json")),
    "objects without a time": (b'{"a":1}\n{"a":2}\n', n(2)),
    "single quotes": (b"{'a':1}\n", Refused("cannot tell the format")),
    "bare keys": (b"{a:1}\n", Refused("cannot tell the format")),
    "a comma at the end": (b'{"a":1,}\n', Refused("cannot tell the format")),
    "comments": (b'// a\n{"a":1}\n{"a":2}\n', n(2, "1 of 3 lines rejected")),
    "NaN": (LINE * 8 + b'{"a":NaN}\n', n(8, "1 of 9 lines rejected")),
    "Infinity": (LINE * 8 + b'{"a":-Infinity}\n', n(8, "1 of 9 lines rejected")),
    "a cut line": (LINE * 8 + b'{"a":1', n(8, "1 of 9 lines rejected")),
    "two objects a line": (LINE * 8 + b'{"a":1}{"a":2}\n', n(8, "1 of 9 lines rejected")),
    "a comma between lines": (LINE * 8 + b'{"a":1},\n', n(8, "1 of 9 lines rejected")),
    "leading zeros": (LINE * 8 + b'{"a":01}\n', n(8, "1 of 9 lines rejected")),
    "a plus": (LINE * 8 + b'{"a":+1}\n', n(8, "1 of 9 lines rejected")),
    "a bare point": (LINE * 8 + b'{"a":.5}\n', n(8, "1 of 9 lines rejected")),
    "a bad escape": (LINE * 8 + b'{"a":"\\x"}\n', n(8, "1 of 9 lines rejected")),
    "a tab in a text": (LINE * 8 + b'{"a":"\t"}\n', n(8, "1 of 9 lines rejected")),
    "spaces around": (b"  " + TWO.replace(b"\n", b"  \n"), n(2)),
    "an access log": (ACCESS * 3, n(3)),
    "an access log with prose": (ACCESS * 3 + b"hello\n", n(3, "1 of 4 lines rejected")),
    "both formats": (ACCESS * 3 + LINE, n(3, "1 of 4 lines rejected")),
    "a line of a megabyte": (LINE + b'{"a":"' + b"x" * (1 << 20) + b'"}\n' + LINE, n(2, "1 of 3 lines rejected")),
    "a long line": (LINE + b'{"b":"' + b"x" * 100_000 + b'"}\n', n(2)),
}  # fmt: skip

# Values of a column a, a question about it, and the answer.
VALUES: dict[str, tuple[str, str, Expected]] = {
    "whole numbers": ("1|2|-3", "SUM(a)", n(0)),
    "a number of 19 digits": ("9223372036854775807|1", "SUM(a)", n(9223372036854775808)),
    "a number of 20 digits": ("9223372036854775808", "MAX(a)", n("9223372036854775808")),
    "a huge number": ("1e300|1e300", "MAX(a)", n(1e300)),
    "a number beyond double": ("1e999", "COUNT(a)", Refused("no line of the input is of format json")),
    "a tiny number": ("1e-999", "MAX(a)", n(0.0)),
    "minus zero": ("-0.0", "MAX(a)", n(0.0)),
    "fractions": ("0.1|0.2", "SUM(a)", n(0.3)),
    "a fraction among whole numbers": ("1|2.5", "SUM(a)", n(3.5)),
    "texts": ('"x"|"y"', "MAX(a)", n("y")),
    "an empty text": ('""', "MAX(a)", n("")),
    "a text among numbers": ('1|"x"', "MAX(a)", n("x")),
    "null": ("null|1", "COUNT(a)", n(1)),
    "nulls only": ("null|null", "COUNT(a)", n(0)),
    "booleans": ("true|false|true", "BOOL_AND(a)", n(False)),
    "a boolean among numbers": ("true|1", "MAX(a)", n("true")),
    "escapes": ('"\\u00e4\\n\\"\\\\"', "MAX(a)", n('ä\n"\\')),
    "a surrogate pair": ('"\\ud83d\\ude00"', "MAX(a)", n("😀")),
    "emoji": ('"😀"', "LENGTH(MAX(a))", n(1)),
    "a date": ('"2025-10-10"', "MAX(a)", n("2025-10-10")),
    "arrays": ("[1,2]|[]", "MIN(a)", n("[1,2]")),
    "an object": ('{"b":1}', "MAX(a.b)", n(1)),
    "a deep object": ('{"b":{"c":{"d":{"e":5}}}}', "MAX(a.b.c.d.e)", n(5)),
    "sum of texts": ('"1"|"2"', "SUM(a)", Refused("SUM")),
    "sum of booleans": ("true", "SUM(a)", Refused("SUM")),
    "a cast": ('"1"|"x"', "SUM(CAST(a AS BIGINT))", n(1)),
    "division by zero": ("0|2", "SUM(1 / a)", n(0.5)),
    "overflow": ("9223372036854775807", "MAX(a + 1)", n(None)),
    "a modulus of zero": ("0", "MAX(5 % a)", n(None)),
    "the root of less than nothing": ("-1", "MAX(SQRT(a))", n(None)),
    "the logarithm of nothing": ("0", "MAX(LN(a))", n(None)),
    "an average of nothing": ("null", "AVG(a)", Refused("")),
    "a quantile": ("1|2|3", "MEDIAN(a)", n(2.0)),
    "distinct": ("1|1|2", "COUNT(DISTINCT a)", n(2)),
}

# A question over two lines with a = 1 and 2, and the answer.
QUESTIONS: dict[str, Expected] = {
    "": Refused(""),
    " ": Refused(""),
    ";": Refused(""),
    "-- nothing": Refused(""),
    "hello": Refused(""),
    "SELECT": Refused(""),
    "SELECT COUNT(*)": Refused(""),
    "SELECT * FROM log": Refused("raw rows"),
    "SELECT a FROM log": Refused("raw rows"),
    "SELECT 1 FROM log": Refused("raw rows"),
    "SELECT COUNT(*) AS n FROM": Refused(""),
    "SELECT COUNT(* AS n FROM log": Refused(""),
    "SELECT COUNT(*) AS n FROM log WHERE": Refused(""),
    "SELECT COUNT(*) AS n FROM log WHERE a": Refused("condition"),
    "SELECT COUNT(*) AS n FROM log WHERE a = ": Refused(""),
    "SELECT COUNT(*) AS n FROM log WHERE a = 'x'": Refused("not a bigint"),
    "SELECT COUNT(*) AS n FROM log WHERE a = '1'": n(1),
    "SELECT COUNT(*) AS n FROM log WHERE ts = '2025-10-10T00:00:01Z'": n(1),
    "SELECT COUNT(*) AS n FROM log WHERE ts > 5": Refused("cannot compare"),
    "SELECT COUNT(*) AS n FROM log WHERE b = 1": Refused("--column b=TYPE"),
    "SELECT COUNT(*) AS n FROM log WHERE COUNT(*) > 1": Refused("WHERE"),
    "SELECT COUNT(*) AS n FROM log WHERE a IN (1, 2, NULL)": n(2),
    "SELECT COUNT(*) AS n FROM log WHERE a NOT IN (1, NULL)": n(0),
    "SELECT COUNT(*) AS n FROM log WHERE NULL": n(0),
    "SELECT COUNT(*) AS n FROM log WHERE a = NULL": n(0),
    "SELECT COUNT(*) AS n FROM log WHERE a IS NOT NULL": n(2),
    "SELECT COUNT(*) AS n FROM log WHERE a BETWEEN 2 AND 1": n(0),
    "SELECT COUNT(*) AS n FROM log WHERE a == 1": n(1),
    "SELECT COUNT(*) AS n FROM log WHERE TRUE": n(2),
    "SELECT COUNT(*) AS n FROM log WHERE 1": Refused("condition"),
    "SELECT COUNT(*) AS n FROM log HAVING COUNT(*) > 5": rows(),
    "SELECT COUNT(*) AS n FROM log HAVING a > 5": Refused(""),
    "SELECT COUNT(*) AS n FROM log GROUP BY 5": Refused(""),
    "SELECT COUNT(*) AS n FROM log GROUP BY b": Refused("--column b=TYPE"),
    "SELECT COUNT(*) AS n FROM log GROUP BY COUNT(*)": Refused("GROUP BY"),
    "SELECT a, COUNT(*) AS n FROM log": Refused("GROUP BY"),
    "SELECT COUNT(*) AS n FROM log GROUP BY ALL": Refused("GROUP BY ALL"),
    "SELECT COUNT(*) AS n FROM log ORDER BY b": Refused("--column b=TYPE"),
    "SELECT COUNT(*) AS n FROM log LIMIT 0": rows(),
    "SELECT COUNT(*) AS n FROM log LIMIT -1": Refused(""),
    "SELECT COUNT(*) AS n FROM log LIMIT x": Refused(""),
    "SELECT COUNT(*) AS n FROM log LIMIT 1.5": Refused(""),
    "SELECT COUNT(*) AS n FROM log OFFSET 1": rows(),
    "SELECT COUNT(*) AS n FROM log WINDOWING": Refused(""),
    "SELECT COUNT(*) AS n FROM log WINDOWING 0 SECONDS": Refused("more than 0"),
    "SELECT COUNT(*) AS n FROM log WINDOWING -5 SECONDS": Refused(""),
    "SELECT COUNT(*) AS n FROM log WINDOWING 5": Refused(""),
    "SELECT COUNT(*) AS n FROM log WINDOWING 5 PARSECS": Refused(""),
    "SELECT COUNT(*) AS n FROM log WINDOWING 0.0001 SECONDS": Refused("milliseconds"),
    "SELECT COUNT(*) AS n FROM log WINDOWING 99999999 DAYS": Refused("1000000 DAYS"),
    "SELECT COUNT(*) AS n FROM log WINDOWING 1 DAY SLIDE 1 MILLISECOND": Refused("panes"),
    "SELECT COUNT(*) AS n FROM log WINDOWING 5 SECONDS SLIDE 10 SECONDS": Refused("slide"),
    "SELECT COUNT(*) AS n FROM log WINDOWING 0 ROWS": Refused("rows"),
    "SELECT COUNT(*) AS n FROM log WINDOWING LANDMARK": Refused(""),
    "SELECT COUNT(*) AS n FROM log LATENESS 5 SECONDS": Refused("needs a window"),
    "SELECT COUNT(*) AS n FROM log EMIT CHANGES": Refused("needs a window"),
    "SELECT COUNT(*) AS n FROM log TREES 0": Refused(""),
    "SELECT COUNT(*) AS n FROM log TREES 9999": Refused(""),
    "SELECT COUNT(*) AS n FROM log; SELECT COUNT(*) AS n FROM log": Refused("elf run answers one SELECT"),
    "SELECT COUNT(*) AS n FROM log;": n(2),
    "SELECT COUNT(*) AS n FROM log -- all": n(2),
    "SELECT /* how many */ COUNT(*) AS n FROM log": n(2),
    "select count(*) as n from log": n(2),
    "SELECT COUNT(*) AS n FROM *": n(2),
    'SELECT COUNT(*) AS n FROM "log"': n(2),
    "SELECT COUNT(*) AS n FROM a.b.c": Refused(""),
    "SELECT COUNT(*) AS n FROM log, other": Refused("no stream"),
    "SELECT COUNT(*) AS n FROM (SELECT a FROM log GROUP BY a)": n(2),
    "SELECT COUNT(*) AS n FROM (SELECT a FROM log": Refused(""),
    "SELECT COUNT(*) AS n FROM log WHERE a IN (SELECT 1)": Refused("it takes a column of a file"),
    "SELECT COUNT(*) AS n FROM log UNION ALL SELECT 1": Refused("UNION ALL"),
    "SELECT COUNT(*) AS n FROM log JOIN 'nowhere.csv' USING (a)": Refused("nowhere.csv"),
    "SELECT NOSUCH(a) AS n FROM log GROUP BY a": Refused("NOSUCH"),
    "SELECT COUNT(a, a) AS n FROM log": Refused("COUNT"),
    "SELECT SUM() AS n FROM log": Refused("SUM"),
    "SELECT SUM(SUM(a)) AS n FROM log": Refused("SUM"),
    "SELECT SUM(a) OVER () AS n FROM log": Refused(""),
    "SELECT MAX(a) + 'x' AS n FROM log": Refused(""),
    "SELECT MAX(CAST(a AS BLOB)) AS n FROM log": Refused(""),
    "SELECT PERCENTILE(a, 2) AS n FROM log": Refused(""),
    "SELECT APPROX_TOP_K(a, 0) AS n FROM log": Refused(""),
    "SELECT MAX(a) AS n, MIN(a) AS n FROM log": rows({"n": 2, "n_1": 1}),
    "SELECT COUNT(*) AS n FROM log WHERE a > :least": Refused("least"),
    "SELECT COUNT(*) AS n FROM log WHERE a > :least WITH (least = 1)": n(1),
    "SELECT COUNT(*) AS n FROM log WHERE a > 1 WITH (least = 1)": Refused("least"),
    "SELECT COUNT(*) AS n FROM log WHERE REGEXP_MATCHES(CAST(a AS TEXT), '(')": Refused(""),
    "SELECT MAX(99999999999999999999999999999999999999999) AS n FROM log": Refused("number"),
    "SELECT MAX(a * 9223372036854775807) AS n FROM log": n(9223372036854775807),
    "SELECT 'it''s' || MAX(CAST(a AS TEXT)) AS n FROM log": n("it's2"),
    "INSERT INTO log VALUES (1)": Refused(""),
    "DROP TABLE log": Refused(""),
    "DELETE FROM log": Refused(""),
    "UPDATE log SET a = 1": Refused(""),
    "PRAGMA version": Refused(""),
    "DROP JOB x": Refused("for a fleet"),
    "SHOW JOBS": Refused("for a fleet"),
    "EXPLAIN": Refused(""),
    "SELECT COUNT(*) AS n FROM log WHERE " + "(" * 400 + "a = 1" + ")" * 400: Refused(""),
    "SELECT COUNT(*) AS n FROM log WHERE " + " AND ".join(["a = 1"] * 300): n(1),
    "SELECT COUNT(*) AS n FROM log WHERE a IN (" + ", ".join(map(str, range(1, 2000))) + ")": n(2),
    "\ufeffSELECT COUNT(*) AS n FROM log": Refused("unknown statement"),
    "SELECT COUNT(*) AS n\u00a0FROM log": n(2),
    "SELECT COUNT(*) AS n FROM log WHERE a = 1\0": Refused(""),
    "SELECT “a” FROM log": Refused(""),
}

OPTIONS: dict[str, tuple[tuple[str, ...], Expected]] = {
    "no such format": (("--format", "csv"), Refused("csv")),
    "another format": (("--format", "combined"), Refused("--format json")),
    "no such type": (("--column", "a=int"), Refused("there is no type 'int'")),
    "no type": (("--column", "a"), Refused("NAME=TYPE")),
    "no column": (("--column", "=text"), Refused("NAME=TYPE")),
    "as text": (("--column", "a=text"), n(2)),
    "as time": (("--column", "a=timestamp"), n(2)),
    "as boolean": (("--column", "a=boolean"), n(2)),
    "time as text": (("--column", "ts=text"), Refused("--timestamp COLUMN")),
    "no such time": (("--timestamp", "when"), Refused("no column when")),
    "a number for a time": (("--timestamp", "a"), n(2)),
    "no agents": (("--agents", "0"), Refused("agents")),
    "many agents": (("--agents", "9"), n(2)),
}


def check(capsys: pytest.CaptureFixture[str], path: Path, sql: str, expected: Expected, *more: str) -> None:
    status, out, err = elf_run(capsys, "--input", str(path), "--output", "json", "-q", sql, *more)
    assert "Traceback" not in err
    assert "bug" not in err
    if isinstance(expected, Refused):
        assert status in (1, 2, 78), (out, err)
        assert err.startswith("elf: ")
        assert expected.part in err
        assert err.count("elf: ") == 1 or "not read to the end" in err
        return
    got = [json.loads(line) for line in out.splitlines()]
    assert status == 0, err
    assert len(got) == len(expected.rows), got
    assert all(same(mine, row) for mine, row in zip(got, expected.rows, strict=True)), got
    assert expected.noted in err
    assert bool(err) == bool(expected.noted), err


def same(mine: dict[str, object], other: dict[str, object]) -> bool:
    def equal(a: object, b: object) -> bool:
        return math.isclose(a, b) if isinstance(a, float) and isinstance(b, float) else a == b

    return mine.keys() == other.keys() and all(equal(mine[name], other[name]) for name in mine)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "input"


@pytest.mark.parametrize("name", CONTENTS)
def test_contents(name: str, path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data, expected = CONTENTS[name]
    path.write_bytes(data)
    check(capsys, path, COUNT, expected)


@pytest.mark.parametrize("name", VALUES)
def test_values(name: str, path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    values, asked, expected = VALUES[name]
    path.write_bytes(a(values))
    check(capsys, path, f"SELECT {asked} AS n FROM log", expected)


@pytest.mark.parametrize("sql", QUESTIONS, ids=range(len(QUESTIONS)))
def test_questions(sql: str, path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path.write_bytes(TWO)
    check(capsys, path, sql, QUESTIONS[sql])


@pytest.mark.parametrize("name", OPTIONS)
def test_options(name: str, path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path.write_bytes(TWO)
    more, expected = OPTIONS[name]
    check(capsys, path, COUNT, expected, *more)


def test_a_query_in_a_file_of_windows(path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path.write_bytes(TWO)
    (tmp_path / "count.sql").write_bytes(b"\xef\xbb\xbf" + COUNT.replace(" FROM", "\r\nFROM").encode())
    asked = ("--input", str(path), "--output", "json", "-f", str(tmp_path / "count.sql"))
    assert elf_run(capsys, *asked) == (0, '{"n":2}\n', "")
