"""JSON lines: columns inferred from samples, values extracted by path, times in every accepted form."""

from __future__ import annotations

import datetime as dt
import json
import re

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from agents.formats import get_format
from agents.tasks.extracted import Extracted
from agents.tasks.extracting import Extractor
from elf.job.ports import Wanted
from elf.schema import Column, Schema
from tests.support.json_by_hand import NAMES, Pairs, by_hand, objects

JSON = get_format("json")


def schema(*lines: str, timestamp: str | None = None) -> Schema:
    return JSON.schema(pa.array(lines, pa.string()), timestamp)


def types(*lines: str) -> dict[str, str]:
    return {column.name: column.type for column in schema(*lines).columns}


def extract(columns: dict[str, str], *lines: str, event_time: str | None = None) -> Extracted:
    asked = tuple(Column(name, kind) for name, kind in columns.items())  # type: ignore[arg-type]
    extractor = Extractor(JSON, event_time, Wanted(asked))
    try:
        return extractor.extract(pa.array(lines, pa.string()))
    finally:
        extractor.close()


# -- inference -----------------------------------------------------------------------------------------------


def test_types_are_inferred_and_unified() -> None:
    lines = [
        '{"i": 1, "f": 1, "s": "x", "b": true, "n": null, "mixed": 1, "big": 9223372036854775808}',
        '{"i": 2, "f": 1.5, "s": null, "b": false, "mixed": "one", "new": [1], "late": {}}',
    ]
    assert types(*lines) == {
        "i": "bigint",
        "f": "double",
        "s": "text",
        "b": "boolean",
        "n": "text",
        "mixed": "text",
        "big": "text",
        "new": "text",
        "late": "text",
    }


def test_objects_become_dotted_paths_and_arrays_text() -> None:
    assert types('{"user": {"name": "x", "at": {"x": 1.5}}, "tags": [1, 2], "flat.key": true}') == {
        "user.name": "text",
        "user.at.x": "double",
        "tags": "text",
        "flat.key": "boolean",
    }


def test_lines_that_are_no_objects_say_nothing() -> None:
    assert types("[1]", "12", "", "{", '{"a": NaN}', '{"a": 1,}', '{"a": 1}') == {"a": "bigint"}


def test_names_that_sql_or_elf_cannot_have_are_not_seen() -> None:
    assert types('{"": 1, "_ts": 2, "_line": 3, "a\\u0000b": 4, "x": {"": 5}, "ok": 6}') == {
        "x.": "bigint",
        "ok": "bigint",
    }


def test_endless_keys_are_bounded() -> None:
    assert len(types(json.dumps({f"key{number}": number for number in range(5000)}))) == 1000


@pytest.mark.parametrize(
    ("line", "event_time"),
    [
        ('{"created_at": "2015-09-12T00:00:00Z", "time": 1441930018}', "time"),
        ('{"@timestamp": "2015-09-12T00:00:00Z", "ts": "soon"}', "@timestamp"),
        ('{"ts": true, "timestamp": [1], "time": null}', None),
        ('{"when": 1441930018}', None),
        ('{"ts": "10/Oct/2000:13:55:36 -0700"}', "ts"),
    ],
)
def test_the_event_time_is_the_first_known_name_that_holds_a_time(line: str, event_time: str | None) -> None:
    found = schema(line)
    assert found.event_time == event_time
    kinds = {column.name for column in found.columns if column.type == "timestamp"}
    assert kinds == ({event_time} if event_time else set())


def test_a_configured_event_time_is_believed() -> None:
    assert schema('{"ts": 1}', timestamp="meta.at").event_time == "meta.at"
    assert schema('{"ts": 1}', timestamp="meta.at").find("meta.at") == Column("meta.at", "timestamp")
    assert schema('{"a": 1, "b": 2}', timestamp="a").columns == (
        Column("a", "timestamp"),
        Column("b", "bigint"),
    )


# -- extraction ----------------------------------------------------------------------------------------------


def test_values_by_type() -> None:
    lines = [
        '{"i": 5, "d": 5, "t": 5, "b": true}',
        '{"i": "5", "d": "5e0", "t": "five", "b": "false"}',
        '{"i": 5.0, "d": "inf", "t": [1, {"a": "b"}], "b": 1}',
        '{"i": null, "t": {"x": 1}}',
    ]
    found = extract({"i": "bigint", "d": "double", "t": "text", "b": "boolean"}, *lines)
    assert found.table.drop_columns(["_ts"]).to_pylist() == [
        {"i": 5, "d": 5.0, "t": "5", "b": True},
        {"i": 5, "d": 5.0, "t": "five", "b": False},
        {"i": None, "d": None, "t": '[1,{"a":"b"}]', "b": None},
        {"i": None, "d": None, "t": '{"x":1}', "b": None},
    ]
    assert found.uncast == 3


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("7", 7),
        ("-7", -7),
        ("+7", 7),
        ("007", 7),
        ("9223372036854775807", 2**63 - 1),
        ("-9223372036854775808", -(2**63)),
        ("9223372036854775808", None),
        ("3.7", None),
        ("1e3", None),
        ("0x10", None),
        (" 3 ", None),
        ("", None),
        ("1_0", None),
    ],
)
def test_only_plain_digits_are_integers(text: str, number: int | None) -> None:
    found = extract({"i": "bigint"}, json.dumps({"i": text}))
    assert found.table["i"].to_pylist() == [number]
    assert found.uncast == (number is None)


@given(st.text(alphabet="0123456789+-.eE_x infa", max_size=8))
@settings(max_examples=60, deadline=None)
def test_numbers_are_what_the_rule_says(text: str) -> None:
    found = extract({"i": "bigint", "d": "double"}, json.dumps({"i": text, "d": text}))
    (row,) = found.table.to_pylist()
    assert row["i"] == (int(text) if re.fullmatch("[+-]?[0-9]+", text) else None)
    ordinary = re.fullmatch(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?", text)
    number = float(text) if ordinary else None
    assert row["d"] == (None if number is None or abs(number) == float("inf") else number)


def test_paths_nested_flat_and_in_between() -> None:
    lines = [
        '{"a":{"b":{"c":1}}}',
        '{"a":{"b.c":2}}',
        '{"a.b":{"c":3}}',
        '{"a.b.c":4}',
        '{"a":[{"b":{"c":5}}]}',
        '{"a":{}}',
    ]
    assert extract({"a.b.c": "bigint"}, *lines).table["a.b.c"].to_pylist() == [1, 2, 3, 4, None, None]


STRICT = [
    '{"a":1}',
    ' {"a" : 1 }\t',
    '{"a":"nan"}',
    '{"a":"x, inf"}',
    '{"a":",}"}',
    '{"a":[]}',
    '{"a":", ]"}',
    "{}",
]
BROKEN = [
    "",
    "x",
    "[1]",
    "12",
    '"a"',
    "null",
    '{"a":1',
    '{"a":1} x',
    '{"a":1}{"a":2}',
    "{'a':1}",
    '{"a":01}',
    '{"a":+1}',
    '{"a":1,}',
    '{"a":[1,]}',
    '{"a":1 , }',
    '{"a":1,\t\r ]}',
    '{"a":NaN}',
    '{"a":nan}',
    '{"a": -Infinity}',
    '{"a":[inf]}',
    '{"a":\tNAN}',
    '{"a":"\\ud800"}',
    '{/**/"a":1}',
    '{"a":"\t"}',
    '{"b":{"c":[1,2,]},"a":1}',
    "\ufeff{}",
]


@pytest.mark.parametrize("columns", [{"a": "text"}, {}])
def test_only_strict_json_objects_are_accepted(columns: dict[str, str]) -> None:
    lines = [line for pair in zip(BROKEN, STRICT * 4, strict=False) for line in pair]
    found = extract(columns, *lines)
    assert [lines[number] for number in found.rejected] == BROKEN
    assert found.table.num_rows == len(lines) - len(BROKEN)


JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(alphabet='naifNI ,]}{["\\é:', max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)


@given(
    st.dictionaries(st.sampled_from(["a", "b", ", ]", "inf"]), JSON_VALUES),
    st.sampled_from([None, 1]),
    st.data(),
)
@settings(max_examples=100, deadline=None)
def test_what_json_writes_is_accepted_and_what_breaks_it_is_not(
    record: dict[str, object], indent: int | None, data: st.DataObject
) -> None:
    line = json.dumps(record, indent=indent).replace("\n", " ")
    broken = line[: data.draw(st.integers(0, len(line) - 1))]
    comma = f"{line[:-1]},{line[-1]}"
    found = extract({"a": "text"}, line, broken, line, comma)
    assert found.accepted.tolist() == [0, 2]
    value = record.get("a")
    if isinstance(value, str):
        assert found.table["a"].to_pylist() == [value, value]


def test_huge_chunks_are_checked_across_block_boundaries() -> None:
    bad = '{"a":NaN}'
    for size in range(131060, 131085):
        filler = json.dumps({"a": "x" * (size - 9)})
        assert extract({}, filler, bad, filler).rejected.tolist() == [1]


def test_a_chunk_of_empty_lines_has_nothing_to_refuse() -> None:
    assert JSON.refused(pa.array(["", ""], pa.string())).tolist() == []


def test_two_chunks_in_a_row_are_not_mixed_up() -> None:
    columns = [Column("a", "bigint")]
    extractor = Extractor(JSON, None, Wanted(tuple(columns)))
    for count in (1, 3, 0, 2):
        lines = [f'{{"a":{count * 10 + number}}}' for number in range(count)]
        found = extractor.extract(pa.array(lines, pa.string()))
        assert found.table["a"].to_pylist() == [count * 10 + number for number in range(count)]
    sliced = pa.array(['{"a":1}', '{"a":NaN}', '{"a":3}', "x"]).slice(1, 2)
    assert extractor.extract(sliced).accepted.tolist() == [1]
    extractor.close()


def test_names_that_differ_by_case_only_are_columns_of_their_own() -> None:
    """Two jobs may each want one of them, of the lines that are read once for both."""
    found = extract(
        {"User": "text", "c0": "bigint", "user": "text"},
        '{"User":"A","user":"b","c0":1}',
        "nonsense",
        '{"user":"c"}',
        event_time="ts",
    )
    assert found.table.column_names == ["_ts", "User", "c0", "user"]
    assert [column.to_pylist() for column in found.table.columns[1:]] == [["A", None], [1, None], ["b", "c"]]


# -- keys ----------------------------------------------------------------------------------------------------


@given(st.lists(objects(), min_size=1, max_size=15))
@settings(max_examples=100)
def test_keys_again_with_dots_and_escapes_as_by_hand(lines: list[str]) -> None:
    found = extract(dict.fromkeys(NAMES, "text"), *lines).table
    for name in NAMES:
        assert found[name].to_pylist() == [by_hand(line, name) for line in lines], name


@given(st.lists(objects(), min_size=1, max_size=8))
@example(['{"a.b.a":"x","a":{"b.a":{"a":1}}}'])
@settings(max_examples=100)
def test_every_value_that_is_seen_can_be_asked_for_and_has_its_columns_type(lines: list[str]) -> None:
    """Of columns that no sample shows as text none has a value that does not fit."""
    seen = types(*lines)
    if len({name.lower() for name in seen}) < len(seen):
        return
    found = extract(seen, *lines)
    assert found.uncast == 0
    shown = {value for name in seen for value in found.table[name].to_pylist() if value is not None}
    for line in lines:
        for key, value in json.loads(line, object_pairs_hook=Pairs)[:1]:
            if isinstance(value, str) and key:
                assert value in shown


def test_a_dotted_key_that_is_hidden_in_one_line_and_an_object_in_another_is_text() -> None:
    one, other = '{"b":{"a.b":{"a":1}}}', '{"b":{"a":{"b":1},"a.b":1}}'
    assert types(one, other)['b."a.b"'] == types(other, one)['b."a.b"'] == "text"


def test_a_key_that_is_twice_has_the_type_and_the_value_of_the_first() -> None:
    assert types('{"a":"x","a":5}') == {"a": "text"}
    assert types('{"a":1,"a":{"b":2}}') == {"a": "bigint"}
    assert types('{"a":{"b":2,"b":"x"},"\\u0061":1}') == {"a.b": "bigint"}
    assert types('{"a":null,"a":1}') == {"a": "text"}


def test_a_key_that_is_a_scalar_here_and_an_object_there_is_text() -> None:
    lines = ['{"a":1}', '{"a":{"b":2}}']
    assert types(*lines) == {"a": "text", "a.b": "bigint"}
    assert extract({"a": "text"}, *lines).table["a"].to_pylist() == ["1", '{"b":2}']


def test_a_key_with_a_dot_beside_a_path_is_a_column_in_quotes() -> None:
    line = '{"http.status":200,"http":{"status":"500"}}'
    assert types(line) == {"http.status": "text", '"http.status"': "bigint"}
    assert types('{"http.status":200}', '{"http":{"status":500}}') == {"http.status": "bigint"}
    assert types('{"a":{"b.c":1},"a.b":{"c":true},"a.b.c":2.5}') == {
        "a.b.c": "bigint",
        '"a.b".c': "boolean",
        '"a.b.c"': "double",
    }


# -- times ---------------------------------------------------------------------------------------------------


def us(text: str) -> int:
    return int(dt.datetime.fromisoformat(text).replace(tzinfo=dt.UTC).timestamp() * 1_000_000)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0, 0),
        (-1, -1_000_000),
        (1441930018, 1441930018000000),
        (1441930018.25, 1441930018250000),
        (1441930018771, 1441930018771000),
        (1441930018771001, 1441930018771001),
        ("1441930018771", 1441930018771000),
        (10**17, None),
        ("2015-09-12T00:46:58.771Z", us("2015-09-12T00:46:58.771")),
        ("2015-09-12T00:46:58.1234569+05:30", us("2015-09-11T19:16:58.123456")),
        ("2015-09-12t00:46:58z", us("2015-09-12T00:46:58")),
        ("2015-09-12 00:46:58", us("2015-09-12T00:46:58")),
        ("2015-09-12 00:46:58,771", us("2015-09-12T00:46:58.771")),
        ("2015-09-12 00:46:58 UTC", us("2015-09-12T00:46:58")),
        ("2015-09-12 00:46:58 -0230", us("2015-09-12T03:16:58")),
        ("10/Oct/2000:13:55:36 -0700", us("2000-10-10T20:55:36")),
        ("[10/Oct/2000:13:55:36 -0700]", us("2000-10-10T20:55:36")),
        ("1969-12-31T23:59:59.999999Z", -1),
        ("2015-02-29T00:00:00Z", None),
        ("2015-09-12", us("2015-09-12")),
        ("2015-09-12T23:59:60Z", us("2015-09-13")),
        (" 2015-09-12T24:00 ", us("2015-09-13")),
        ("2015-09-12T23:58:60Z", None),
        (-62135596801, -62135596801000),
        ("yesterday", None),
        ("", None),
        (True, None),
        ([1], None),
        (None, None),
    ],
)
def test_times(value: object, expected: int | None) -> None:
    line = json.dumps({"at": value})
    found = extract({"at": "timestamp"}, line, event_time="at")
    assert found.table["_ts"].to_pylist() == [expected]
    assert found.table["at"].cast(pa.int64()).to_pylist() == [expected]
    assert found.uncast == (expected is None and value is not None)
    plain = extract({"at": "timestamp"}, line)
    assert plain.table["at"].equals(found.table["at"])
    assert plain.table["_ts"].null_count == 1


ZONES = st.integers(-14 * 60, 14 * 60).map(lambda minutes: dt.timezone(dt.timedelta(minutes=minutes)))


@given(st.datetimes(dt.datetime(1000, 1, 2), dt.datetime(2999, 12, 30), timezones=ZONES))
@settings(max_examples=60, deadline=None)
def test_any_rfc_3339_time(when: dt.datetime) -> None:
    expected = (when - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) // dt.timedelta(microseconds=1)
    found = extract({}, json.dumps({"at": when.isoformat()}), event_time="at")
    assert found.table["_ts"].to_pylist() == [expected]
