"""Looks at the rows of a stream: what they get, what they never get, and that all of it is counted."""

from __future__ import annotations

import json
from collections.abc import Iterable

import msgspec
import pyarrow as pa
import pytest

from agents.answering.looking import _last_rows
from agents.answering.tapping import _Tap, _told
from agents.formats import get_format
from agents.tasks.rowsamples import LEASE_MS, ROW_SAMPLES_MAX, PerSecond, RowSamples
from elf.batch import decode, encode
from elf.errors import UserError
from elf.job.catalog.members import Member
from elf.job.messages.inquiries import SampledRows, SampleRows
from elf.job.worker.stream import WorkerSettings
from elf.ql.looks import look_of
from elf.ql.statements import parse_query
from elf.schema import Column, Schema
from elf.wire.base import Answer
from elf.wire.clients import TapReply

JSON = get_format("json")
COLUMNS = (Column("ts", "timestamp"), Column("n", "bigint"))


def proposal(
    row_sample: str = "mine", where: str = "", rows: int = 100, lines: int = 100, size: int = 1 << 20
) -> SampleRows:
    return SampleRows(
        id=1,
        origin="",
        stream="s",
        row_sample=row_sample,
        columns=COLUMNS,
        where=where,
        rows_max=rows,
        lines_max=lines,
        bytes_max=size,
    )


LOG = "/log/a"


def lines(numbers: Iterable[int]) -> pa.StringArray:
    made = [json.dumps({"ts": f"2026-01-01T00:00:{n % 60:02}Z", "n": n}) for n in numbers]
    return pa.array(made, pa.string())


def numbers(sampled: SampledRows) -> list[int]:
    found: list[int] = decode(sampled.rows)["n"].to_pylist() if sampled.rows else []
    return found


class Looking:
    """One stream, and who looks at it."""

    def __init__(self, event_time: str | None = "ts") -> None:
        self.row_samples = RowSamples("s", WorkerSettings(name="web-1", labels=(("role", "shop"),)))
        self._event_time = event_time

    def look(self, request: SampleRows, now_ms: int = 0) -> SampledRows:
        return self.row_samples.look(request, JSON, self._event_time, now_ms)


def test_a_condition_that_all_rows_meet_is_none() -> None:
    looking = Looking()
    for where in ("true", "n = n OR 1 = 1"):
        looking.look(proposal(where, where))
        looking.row_samples.see(lines(range(3)), LOG, 1_000)
        assert numbers(looking.look(proposal(where, where), 2_000)) == [0, 1, 2]


def test_a_look_gets_the_rows_since_the_last_one() -> None:
    looking = Looking()
    looking.row_samples.see(lines(range(3)), LOG, 0)
    assert looking.look(proposal()) == SampledRows(b"", 0, 0)  # it begins
    looking.row_samples.see(lines(range(3, 5)), LOG, 10)
    looking.row_samples.see(lines([5]), LOG, 20)
    sampled = looking.look(proposal())
    assert (numbers(sampled), sampled.hidden, sampled.unseen) == ([3, 4, 5], 0, 0)
    assert decode(sampled.rows)["_ts"].to_pylist() == [
        1_767_225_600_000_000 + n * 1_000_000 for n in (3, 4, 5)
    ]
    assert looking.look(proposal()) == SampledRows(b"", 0, 0)
    looking.row_samples.close()


def test_lines_that_are_no_rows_are_not_shown() -> None:
    looking = Looking()
    looking.look(proposal())
    looking.row_samples.see(pa.array(["no json", *lines([1]).to_pylist(), "{"], pa.string()), LOG, 0)
    assert numbers(looking.look(proposal())) == [1]


def test_of_a_stream_without_event_time_the_time_is_when_a_line_was_read() -> None:
    looking = Looking(None)
    looking.look(proposal())
    looking.row_samples.see(lines([1]), LOG, 7_000)
    looking.row_samples.see(lines([2]), LOG, 8_000)
    assert decode(looking.look(proposal(), 8_000).rows)["_ts"].to_pylist() == [7_000_000, 8_000_000]


def test_rows_have_the_columns_of_where_they_come_from() -> None:
    origins = tuple(Column(name, "text") for name in ("_agent", "_source", "_labels.role", "_labels.rack"))
    for where, wanted in (
        ("", [1, 2, 3, 4]),
        ("_source = '/log/b' AND n < 4", [3]),
        ("_agent = 'web-2'", []),
    ):
        looking = Looking()
        request = msgspec.structs.replace(proposal(where, where), columns=(*COLUMNS, *origins))
        looking.look(request)
        looking.row_samples.see(lines([1, 2]), "/log/a", 0)
        looking.row_samples.see(lines([3, 4]), "/log/b", 0)
        sampled = looking.look(request)
        assert numbers(sampled) == wanted
        rows = decode(sampled.rows).to_pylist() if sampled.rows else []
        for row in rows:
            log = "/log/a" if row["n"] < 3 else "/log/b"
            found = [row[column.name] for column in origins]
            assert found == ["web-1", log, "shop", None]


def test_more_lines_than_may_be_held_are_counted_and_the_next_second_has_room_again() -> None:
    looking, asked = Looking(), proposal(rows=4, lines=4)
    looking.look(asked)
    looking.row_samples.see(lines(range(3)), LOG, 100)
    assert numbers(looking.look(asked, 200)) == [0, 1, 2]
    looking.row_samples.see(lines(range(3, 10)), LOG, 300)
    sampled = looking.look(asked, 400)
    assert (numbers(sampled), sampled.unseen) == ([3], 6)
    looking.row_samples.see(lines(range(10, 12)), LOG, 1_000)
    assert numbers(looking.look(asked, 1_100)) == [10, 11]
    for second in range(2, 6):  # nobody asks: no more is held than a second's
        looking.row_samples.see(lines(range(3)), LOG, second * 1_000)
    sampled = looking.look(asked, 6_000)
    assert (len(numbers(sampled)), sampled.unseen) == (4, 8)


def test_what_is_held_has_a_limit_in_bytes() -> None:
    looking, line = Looking(), len(lines([1])[0].as_py())
    asked = proposal(size=2 * line)
    looking.look(asked)
    looking.row_samples.see(lines(range(1, 6)), LOG, 0)
    sampled = looking.look(asked)
    assert (numbers(sampled), sampled.unseen) == ([1, 2], 3)


def test_a_condition_chooses_rows_and_those_beyond_the_limit_are_hidden() -> None:
    looking, asked = Looking(), proposal(where="n % 2 = 0", rows=3)
    looking.look(asked)
    looking.row_samples.see(lines(range(10)), LOG, 0)
    sampled = looking.look(asked)
    assert (numbers(sampled), sampled.hidden, sampled.unseen) == ([0, 2, 4], 2, 0)


def test_a_look_that_nobody_asks_for_is_over() -> None:
    looking = Looking()
    looking.look(proposal())
    looking.row_samples.see(lines([1]), LOG, LEASE_MS + 1)
    assert looking.look(proposal(), LEASE_MS + 1) == SampledRows(b"", 0, 0)  # begins again


def test_few_look_at_once_and_a_place_is_free_when_one_has_gone() -> None:
    looking = Looking()
    for one in range(ROW_SAMPLES_MAX):
        looking.look(proposal(f"{one}"))
    with pytest.raises(UserError, match="8 others look at stream s there already"):
        looking.look(proposal("late"))
    looking.look(proposal("late"), LEASE_MS + 1)


def test_an_allowance_is_for_a_second_of_the_clock() -> None:
    allowance = PerSecond(5)
    assert [allowance.take(*one) for one in ((3, 0), (3, 999), (3, 999), (9, 1_000))] == [3, 2, 0, 5]


def test_a_member_that_answers_something_else_is_named_and_the_others_are_shown() -> None:
    query = parse_query("SELECT n, n * 99999999999999999999 AS m, NULL AS none FROM s LIMIT 3")
    assert query is not None
    look = look_of(query, Schema(COLUMNS, "ts"))
    rows = {"_ts": [1, None, 3, 2], "n": [1, 0, 3, 2], "m": [1, 0, 3, 2], "none": [None] * 4}
    kinds = zip(rows, (pa.int64(), pa.int64(), pa.decimal128(38, 0), pa.int32()), strict=True)
    right = pa.table(rows, pa.schema(list(kinds)))
    texts = right.set_column(0, "_ts", pa.array(["now"] * 4))
    told = [right, right.drop_columns(["_ts"]), texts, right.append_column("n", right["n"])]
    bodies = [msgspec.msgpack.encode(SampledRows(encode(table), 0, 9)) for table in told]
    members = [Member(number, "", f"web-{number}", 1, f"10.0.0.{number}:1", 0) for number in range(5)]
    answers = [Answer(id=1, body=body) for body in (*bodies, b"what")]
    last, silent, kept, _ = _last_rows(look, members, answers)
    assert last is not None
    assert last["n"].to_pylist() == [1, 2, 3], "a row without an event time is none of the last"
    assert ([one.split(":")[0] for one in silent], kept) == (["web-1", "web-2", "web-3", "web-4"], 9)

    tap = _Tap(proposal(), "ts", ("ts", "n"))
    right = pa.table({"_ts": [1], "ts": pa.array([1], pa.timestamp("us")), "n": [1]})
    told = [right, right.drop_columns(["n"]), right.set_column(2, "n", pa.array(["x"]))]
    bodies = [msgspec.msgpack.encode(SampledRows(encode(table), 0, 9)) for table in told]
    answers = [Answer(id=1, body=body) for body in (*bodies, b"what")]
    reply = _told(1, tap, proposal(), 4, members[:4], answers)
    assert decode(reply.payload)["_agent"].to_pylist() == ["web-0"]
    assert list(msgspec.json.decode(reply.body, type=TapReply).silent) == ["web-1", "web-2", "web-3"]
