"""Groups are those that ``pa.Table.group_by`` makes."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

from elf.grouping import grouped

HOWS = ("sum", "min", "max", "count", "list")


def drawn(seed: int, rows: int) -> pa.Table:
    rng = random.Random(seed)
    columns = {
        "k": pa.array([rng.choice(["a", "b", "", None]) for _ in range(rows)], pa.string()),
        "d": pa.array([rng.choice([0.5, float("nan"), None]) for _ in range(rows)], pa.float64()),
        "n": pa.array([rng.choice([1, -7, 1 << 40, None]) for _ in range(rows)], pa.int64()),
    }
    table = pa.table(columns)
    return pa.concat_tables([table.slice(0, rows // 3), table.slice(rows // 3)])


@pytest.mark.parametrize("rows", [0, 1, 200])
@pytest.mark.parametrize("keys", [[], ["k"], ["k", "d"]])
def test_groups_are_those_of_arrow(keys: list[str], rows: int) -> None:
    table = drawn(rows, rows)
    hows = [how for how in HOWS if keys or how != "list"]
    names = [*keys, *hows, "rows"]
    expected = table.group_by(keys, use_threads=False).aggregate(
        [*(("n", how) for how in hows), ([], "count_all")]
    )
    found = grouped(table, keys, {**{how: ("n", how) for how in hows}, "rows": (None, "count_all")})
    assert found.column_names == names
    assert str(found.to_pylist()) == str(
        expected.rename_columns(names).to_pylist()
    )  # NaN is not equal to itself
    assert found.schema.types == expected.schema.types


def test_groups_without_values_are_the_different_keys() -> None:
    table = pa.table({"k": ["a", "b", "a"], "v": [1, 2, 3]})
    assert grouped(table, ["k"]).to_pylist() == [{"k": "a"}, {"k": "b"}]
