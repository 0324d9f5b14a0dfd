"""One text, one moment: a column, a CAST, a constant and Spark read it alike, and as a reader of characters
does that knows no pattern."""

from __future__ import annotations

import json
import math
from datetime import date
from itertools import pairwise

import duckdb
import pyarrow as pa
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from agents.formats import get_format
from agents.formats.dialect import SPARK
from agents.tasks.engine import EVENT_FIRST_US, EVENT_LAST_US
from agents.tasks.extracting import Extractor
from elf.job.ports import Wanted
from elf.ql.forms import FORMS
from elf.ql.kinds import read_text
from elf.schema import Column

FIRST = date(1, 1, 1).toordinal()
EPOCH = date(1970, 1, 1).toordinal()
DAY_US = 86_400_000_000
MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]


# -- the reference -------------------------------------------------------------------------------------------


class Wrong(Exception):
    """The text is no timestamp."""


class Rest:
    """What is left of a text."""

    def __init__(self, text: str) -> None:
        self.text = text

    def digits(self, count: int, least: int, most: int) -> int:
        taken, self.text = self.text[:count], self.text[count:]
        if len(taken) < count or not set(taken) <= set("0123456789") or not least <= int(taken) <= most:
            raise Wrong
        return int(taken)

    def one_of(self, *words: str) -> str:
        for word in words:
            if self.text.startswith(word):
                self.text = self.text[len(word) :]
                return word
        raise Wrong

    def clock(self, *, seconds: bool) -> tuple[int, int]:
        """µs since midnight, and the second of the minute."""
        hour = self.digits(2, 0, 23 if seconds else 24)
        self.one_of(":")
        minute, second, fraction = self.digits(2, 0, 59), 0, ""
        if seconds or self.text.startswith(":"):
            self.one_of(":")
            second = self.digits(2, 0, 60)
            if not seconds and self.text[:1] in (".", ","):
                fraction = self.text[1:]
                fraction = fraction[: len(fraction) - len(fraction.lstrip("0123456789"))]
                if not fraction:
                    raise Wrong
                self.text = self.text[1 + len(fraction) :]
        if hour == 24 and (minute or second or fraction.strip("0")):
            raise Wrong
        return ((hour * 60 + minute) * 60 + second) * 1_000_000 + int((fraction + "0" * 6)[:6]), second

    def offset(self, *, minutes: bool) -> int:
        """In µs."""
        sign = -1 if self.one_of("+", "-") == "-" else 1
        hours, more = self.digits(2, 0, 23), 0
        if self.text or minutes:
            if not minutes and self.text.startswith(":"):
                self.one_of(":")
            more = self.digits(2, 0, 59)
        return sign * (hours * 60 + more) * 60_000_000

    def end(self) -> None:
        if self.text:
            raise Wrong


def day_us(year: int, month: int, day: int) -> int:
    try:
        return (date(year, month, day).toordinal() - EPOCH) * DAY_US
    except ValueError:
        raise Wrong from None


def dated(text: str) -> tuple[int, int]:
    """(µs, the second of the minute)"""
    rest = Rest(text)
    year = rest.digits(4, 1, 9999)
    rest.one_of("-")
    month = rest.digits(2, 1, 12)
    rest.one_of("-")
    us = day_us(year, month, rest.digits(2, 1, 31))
    if not rest.text:
        return us, 0
    rest.one_of("T", "t", " ")
    clock, second = rest.clock(seconds=False)
    us += clock
    if rest.text:
        if rest.text.startswith(" "):
            rest.one_of(" ")
        if rest.text[:1] in ("+", "-"):
            us -= rest.offset(minutes=False)
        else:
            rest.one_of("Z", "z", "UTC", "GMT")
        rest.end()
    return us, second


def logged(text: str) -> tuple[int, int]:
    if text.startswith("["):
        if not text.endswith("]"):
            raise Wrong
        text = text[1:-1]
    rest = Rest(text)
    day = rest.digits(2, 1, 31)
    rest.one_of("/")
    month = MONTHS.index(rest.one_of(*MONTHS)) + 1
    rest.one_of("/")
    us = day_us(rest.digits(4, 1, 9999), month, day)
    rest.one_of(":")
    clock, second = rest.clock(seconds=True)
    rest.one_of(" ")
    us += clock - rest.offset(minutes=True)
    rest.end()
    return us, second


def number(text: str) -> int:
    try:
        if not set(text) <= set("0123456789+-.eE"):
            raise Wrong
        value: float = float(text)
    except ValueError:
        raise Wrong from None
    whole = text[text[:1] in ("+", "-") :]
    if whole.isdigit() and len(whole) <= 18:
        value = int(text)
    first = (FIRST - EPOCH) * 86_400
    for below, unit, least in (
        (1e11, 1_000_000, first),
        (1e14, 1_000, first * 1_000),
        (1e17, 1, first * 1_000_000),
    ):
        if least <= value < below:
            return value * unit if isinstance(value, int) else math.floor(value * float(unit) + 0.5)
    raise Wrong


def reference(text: str) -> int | None:
    text = text.strip(" \t\r\n")
    for read in (dated, logged):
        try:
            us, second = read(text)
        except Wrong:
            continue
        if second == 60 and (us % DAY_US) >= 1_000_000:
            return None
        return us if (FIRST - EPOCH) * DAY_US <= us < (date.max.toordinal() + 1 - EPOCH) * DAY_US else None
    try:
        us = number(text)
    except Wrong:
        return None
    return us if (FIRST - EPOCH) * DAY_US <= us < (date.max.toordinal() + 1 - EPOCH) * DAY_US else None


# -- texts ---------------------------------------------------------------------------------------------------

YEARS = st.sampled_from([1, 2, 99, 999, 1000, 1582, 1969, 1970, 2024, 2999, 3000, 9998, 9999]) | st.integers(
    1, 9999
)
CLOCKS = st.builds(
    "{:02}:{:02}:{:02}".format,
    st.integers(0, 24),
    st.sampled_from([0, 1, 29, 30, 59]),
    st.sampled_from([0, 1, 59, 60]),
) | st.sampled_from(["00:00:00", "23:59:59", "23:59:60", "24:00:00", "12:34", "24:00", "00:00"])
FRACTIONS = st.just("") | st.builds(
    "{}{}".format, st.sampled_from(".,"), st.text("0159", min_size=1, max_size=12)
)
OFFSETS = st.builds(
    "{}{:02}{}{:02}".format,
    st.sampled_from("+-"),
    st.integers(0, 23) | st.sampled_from([0, 14, 15, 18]),
    st.sampled_from(["", ":"]),
    st.sampled_from([0, 1, 30, 59]),
)
ZONES = (
    st.sampled_from(["", "Z", "z", " Z", " UTC", "UTC", "GMT", "+02", " -08"])
    | OFFSETS
    | OFFSETS.map(" {}".format)
)
DATED = st.builds(
    "{:04}-{:02}-{:02}{}{}{}{}".format, YEARS, st.integers(1, 12), st.integers(1, 31),
    st.sampled_from("TTt "), CLOCKS, FRACTIONS, ZONES,
)  # fmt: skip
DATES = st.builds("{:04}-{:02}-{:02}".format, YEARS, st.integers(1, 12), st.integers(1, 31))
LOGGED = st.builds(
    "{:02}/{}/{:04}:{} {}".format, st.integers(1, 31), st.sampled_from(MONTHS), YEARS, CLOCKS,
    OFFSETS.map(lambda offset: offset.replace(":", "")),
)  # fmt: skip
NUMBERS = st.integers(-(10**18), 10**18).map(str) | st.builds(
    "{}{}{}{}".format,
    st.sampled_from(["", "+", "-"]),
    st.integers(0, 10**19)
    | st.sampled_from([0, 62135596800, 62135596801, 10**11 - 1, 10**11, 10**14, 10**17 - 1, 10**17]),
    st.sampled_from(["", ".", ".5", ".4999995", ".123456789"]),
    st.sampled_from(["", "e0", "E2", "e-3", "e+5", "e400"]),
)
WRAPPED = LOGGED | LOGGED.map("[{}]".format) | LOGGED.map("[{}".format)
VALID = DATED | DATES | WRAPPED | NUMBERS
BLANKS = st.text(" \t\r\n", max_size=2)


@st.composite
def mutated(draw: st.DrawFn) -> str:
    """A text of the right form with some characters changed, taken out or put in."""
    text = draw(VALID)
    for _ in range(draw(st.integers(1, 2))):
        at = draw(st.integers(0, len(text)))
        text = (
            text[:at]
            + draw(st.text("0159-+:.,/TtZ []e\u2028\x0b\u0660", max_size=1))
            + text[at + draw(st.integers(0, 1)) :]
        )
    return text


TEXTS = (
    st.builds("{}{}{}".format, BLANKS, VALID, BLANKS)
    | VALID
    | mutated()
    | st.text(max_size=12).filter(lambda text: "\0" not in text)
)


# -- the ways ------------------------------------------------------------------------------------------------


def by_column(texts: list[str]) -> list[int | None]:
    """Of a declared column, which must be those of the line's own time too."""
    lines = pa.array([json.dumps({"at": text, "own": text}) for text in texts], pa.string())
    extractor = Extractor(get_format("json"), "own", Wanted((Column("at", "timestamp"),)))
    try:
        found = extractor.extract(lines)
    finally:
        extractor.close()
    read: list[int | None] = found.table["at"].cast(pa.int64()).to_pylist()
    times = [
        us if us is not None and EVENT_FIRST_US <= us <= EVENT_LAST_US else None  # windows can be around it
        for us in read
    ]
    assert found.table["_ts"].to_pylist() == times
    assert found.uncast == found.table["at"].null_count
    return read


def by_cast(texts: list[str]) -> list[int | None]:
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.register("texts", pa.table({"t": pa.array(texts, pa.string())}))
        cast = FORMS["text to timestamp"].duckdb.format("t")
        return [row[0] for row in connection.execute(f"SELECT epoch_us({cast}) FROM texts").fetchall()]


def by_constant(texts: list[str]) -> list[object]:
    return [
        None if found is None else found.value for found in (read_text(text, "timestamp") for text in texts)
    ]


def by_spark(spark: SparkSession, texts: list[str]) -> list[tuple[int | None, int | None]]:
    """(as a column, as a CAST)"""
    rows = [(number, json.dumps({"at": text}), text) for number, text in enumerate(texts)]
    spark.createDataFrame(rows, "n INT, line STRING, t STRING").createOrReplaceTempView("texts")
    selection = get_format("json").spark_select([Column("at", "timestamp")], None)
    spark.sql(selection.sql("texts", keep=["n", "t"])).createOrReplaceTempView("read")
    cast = FORMS["text to timestamp"].spark.format("t")
    found = spark.sql(f"SELECT unix_micros({SPARK.name('at')}), unix_micros({cast}) FROM read ORDER BY n")
    return [(row[0], row[1]) for row in found.collect()]


@given(st.lists(TEXTS, min_size=20, max_size=60))
@example(
    ["2025-10-10T23:59:60Z", "2025-10-10T18:59:60.5-05:00", "2025-10-10T18:59:60Z", "2025-10-10T24:00:00,0"]
)
@example(
    ["0001-01-01T00:00:00+00:01", "9999-12-31T23:59:60Z", "9999-12-31T24:00", "0000-12-31T23:59:00-01:00"]
)
@example(["01/Jan/0001:00:00:60 +0001", "0001-01-01T00:01:60+00:02", "9999-12-31T23:58:60-00:01"])
@example(["2025-10-10\u2028", "\u00a02025-10-10", "2025-10-10\x0b", "2025-10-10\x0c", "٢025-10-10"])
@settings(max_examples=80, phases=[Phase.explicit, Phase.reuse, Phase.generate])  # shrinking takes minutes
def test_columns_casts_and_constants_read_alike(texts: list[str]) -> None:
    expected = [reference(text) for text in texts]
    assert by_constant(texts) == expected
    assert by_column(texts) == expected
    assert by_cast(texts) == expected


@given(st.lists(TEXTS, min_size=40, max_size=100))
@settings(max_examples=20, phases=[Phase.explicit, Phase.generate])  # to shrink takes minutes
def test_spark_reads_the_same(spark: SparkSession, texts: list[str]) -> None:
    expected = [reference(text) for text in texts]
    assert by_spark(spark, texts) == [(us, us) for us in expected]


def test_the_reference_knows_right_from_wrong() -> None:
    """Pairs of what must be one moment."""
    same = ["2025-10-10T00:00:00Z", "2025-10-10", "2025-10-09T24:00:00Z", "2025-10-09T23:59:60Z",
            "1760054400", "1760054400000", "10/Oct/2025:02:00:00 +0200", "2025-10-10t02:00+02"]  # fmt: skip
    found = [reference(text) for text in same]
    assert found[0] == 1_760_054_400_000_000
    assert all(left == right for left, right in pairwise(found))
    assert {
        reference(text) for text in ["", "x", "2025-02-29", "2025-10-10T12:00:60Z", "2025-10-10T24:01"]
    } == {None}
