"""What several agents have seen of one stream, put together."""

from __future__ import annotations

import pyarrow as pa

from agents.formats import get_format
from elf.schema import Column, Schema, declare, merge_schemas


def seen(*lines: str) -> Schema:
    return get_format("json").schema(pa.array(lines), None)


def test_types_of_all_agents_meet() -> None:
    merged = merge_schemas([seen('{"a": 1, "b": 1, "c": "x"}'), seen('{"a": 2, "b": 1.5, "c": 3}')])
    assert merged.columns == (Column("a", "bigint"), Column("b", "double"), Column("c", "text"))


def test_null_says_nothing_about_a_type() -> None:
    merged = merge_schemas([seen('{"a": null}'), seen('{"a": 1}'), seen('{"a": null, "z": null}')])
    assert merged.find("a") == Column("a", "bigint")
    assert merged.find("z") == Column("z", "text")
    assert merged.unsure == ("z",)


def test_event_time_is_a_timestamp_wherever_it_was_found() -> None:
    merged = merge_schemas([seen('{"x": 1}'), seen('{"time": "2026-01-01T00:00:00Z", "x": 1}')])
    assert merged.event_time == "time"
    assert merged.find("time") == Column("time", "timestamp")


def test_declared_types_win_and_add_columns() -> None:
    found = declare(seen('{"a": "1", "n": null}'), {"a": "bigint", "b": "boolean"})
    assert found.columns == (Column("a", "bigint"), Column("n", "text"), Column("b", "boolean"))


def test_a_column_is_found_without_regard_to_case_when_it_is_the_only_one() -> None:
    schema = Schema((Column("User", "text"), Column("x", "text"), Column("X", "text")))
    assert schema.find("user") == Column("User", "text")
    assert schema.find("X") == Column("X", "text")
