"""What differs between a window of a preview and the job's, whatever types their columns have."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal

import pyarrow as pa
import pytest

from elf.cli.previewing import Pending
from elf.client import Client, Window, connect
from elf.client.previews import _COSTS, _CPU, _costs, _pair, _Pairs
from elf.client.results import Result
from elf.errors import UserError
from elf.wire.clients import Preview

START, END = datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 1, 0, 1, tzinfo=UTC)
SUM = pa.decimal128(38, 0)


def window(**columns: pa.Array | list[object]) -> Window:
    count = len(next(iter(columns.values()), []))
    bounds = {"window_start": pa.array([START] * count), "window_end": pa.array([END] * count)}
    table = pa.table({**bounds, **columns} if columns else {})
    return Window("00.1", "busy", 1, "", START, END, 0, {}, table)


def test_numbers_of_other_types_are_alike_and_rows_that_differ_stand_together() -> None:
    old = window(page=["/", "/a", "/b"], n=pa.array([4, 5, 6], pa.int64()).cast(SUM), only=[1, 2, 3])
    new = window(page=["/b", "/a", "/"], n=[6, 7, 4], avg=[0.5, 0.5, 0.5])
    found = _pair(new, old)
    assert (found.alike, found.gone, found.come) == (2, 1, 1)
    changes = found.window.changes
    assert changes is not None
    assert changes.column_names == ["window_start", "window_end", "_op", "page", "n"]
    assert [(row["_op"], row["page"], row["n"]) for row in changes.to_pylist()] == [
        ("-", "/a", 5),
        ("+", "/a", 7),
    ]


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        ([Decimal(10) ** 30], [1], [str(10**30), "1"]),
        (["a"], [1], ["a", "1"]),
        ([1.5], [1], [1.5, 1.0]),
        ([None], [1], [None, 1]),
    ],
)
def test_columns_of_other_types_are_shown(
    before: list[object], after: list[object], told: list[object]
) -> None:
    found = _pair(window(n=after), window(n=before))
    assert found.window.changes is not None
    assert sorted(found.window.changes["n"].to_pylist(), key=str) == sorted(told, key=str)


def test_a_window_without_rows_has_perhaps_no_columns() -> None:
    full, empty = window(page=["/", "/a"]), window()
    gone, come, same = _pair(empty, full), _pair(full, empty), _pair(empty, empty)
    assert [(one.alike, one.gone, one.come) for one in (gone, come, same)] == [
        (0, 2, 0),
        (0, 0, 2),
        (0, 0, 0),
    ]
    assert come.window.changes is not None
    assert come.window.changes["_op"].to_pylist() == ["+", "+"]
    alone = _pair(full, None)
    assert (alone.before, alone.come, alone.window.changes) == (None, 2, None)


async def test_commit_is_of_the_last_preview_alone() -> None:
    nobody = connect("127.0.0.1:1")
    pending = Pending()
    with pytest.raises(UserError, match="nothing was previewed"):
        await pending.statement("COMMIT;", nobody)
    pending.preview = preview = Preview("busy", "beside", 1, 1, "ALTER JOB busy SET a = 1")
    assert await pending.statement("SHOW JOBS", nobody) == "SHOW JOBS"
    assert pending.preview is preview
    await pending.statement("DROP JOB busy", nobody)
    with pytest.raises(UserError, match="nothing was previewed"):
        await pending.statement("COMMIT", nobody)


async def test_a_flow_counts_from_the_beginning_of_a_preview_though_the_job_has_left_it() -> None:
    preview = Preview("steered", "beside", 1, 1, "")
    told = {"steered": {"other": 5}, "beside": {"first": 1_030}}
    before = {
        "first": dict.fromkeys(_COSTS, 0.0) | {"rows": 1_000.0},
        "": dict.fromkeys(_COSTS, 0.0) | {"CPU ms": 9.0},
    }

    class Told(Client):
        def __init__(self) -> None:
            pass

        async def sql(self, text: str) -> Result:
            level = dict.fromkeys((*_CPU, "groups", "messages", "sent_bytes"), 0)
            flows = [
                {"flow": flow, "levels": [level | {"rows": rows}]}
                for flow, rows in told[text.split()[-1]].items()
            ]
            return Result("", None, False, {"live": {"flows": flows}})

    costs = await _costs(Told(), preview, before, _Pairs(preview))
    rows = costs.table["cost"].to_pylist().index("rows")
    assert (costs.table["now"][rows].as_py(), costs.table["new"][rows].as_py()) == (5, 30)
