"""A map function in a fragment: what it gives is taken, or costs the rows of its batch; never the agent."""

from __future__ import annotations

import pyarrow as pa
import pytest

from agents.tasks.direct import mapper_of
from agents.tasks.mapping import FunctionMapper
from agents.tasks.streams import FunctionsAt
from elf.functions.sandbox import Limits, Sandboxes
from elf.job.ports import MapFailed
from elf.ql.plan import Fragment, Function
from elf.ql.planner import plan_text
from elf.ql.user_functions import with_function
from elf.schema import Column, Schema

SCHEMA = Schema((Column("ts", "timestamp"), Column("product", "text"), Column("n", "bigint")), "ts")
QUERY = "SELECT product, SUM(n) AS clicks FROM rows WHERE n > 0 GROUP BY product WINDOWING 1 SECONDS"
GIVEN = {
    "product": ["a", "b", "a", "c"],
    "n": [1, 2, 3, 0],
    "_pane": pa.array([0, 0, 1, 1], pa.int64()),
    "_offset": pa.array([0, 10, 20, 30], pa.int64()),
}


def mapping(sandboxes: Sandboxes, body: str, limits: Limits | None = None) -> tuple[Fragment, FunctionMapper]:
    text = f"import time\nimport pyarrow as pa\nimport pyarrow.compute as pc\ndef map(batch):\n    {body}\n"
    function = Function("map", text, "k.py")
    fragment = with_function(plan_text(QUERY, SCHEMA), function).fragment
    at = FunctionsAt(sandboxes, lambda _: None, limits=limits or Limits())
    return fragment, FunctionMapper(fragment, at.of(function), mapper_of(fragment))


def run(sandboxes: Sandboxes, body: str) -> list[tuple[int, str, int]]:
    fragment, mapper = mapping(sandboxes, body)
    try:
        made = mapper.run(pa.table(GIVEN))
    finally:
        mapper.close()
    names = ["_pane", *fragment.keys, fragment.states[-1].name]
    return sorted(zip(*(made[name].to_pylist() for name in names), strict=True))


@pytest.mark.parametrize(
    ("body", "wanted"),
    [
        ("return batch", [(0, "a", 1), (0, "b", 2), (1, "a", 3)]),
        ("return batch.filter(pc.equal(batch['product'], 'a'))", [(0, "a", 1), (1, "a", 3)]),
        ("return batch.slice(0, 0)", []),
        ("return batch.append_column('more', batch['n'])", [(0, "a", 1), (0, "b", 2), (1, "a", 3)]),
    ],
)
def test_what_it_gives_is_grouped(
    sandboxes: Sandboxes, body: str, wanted: list[tuple[int, str, int]]
) -> None:
    assert run(sandboxes, body) == wanted


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ("return batch.append_column('n', batch['n'])", "n must be among them, once"),
        ("return batch.drop_columns(['n'])", "n must be among them, once"),
        ("return batch.set_column(1, 'n', pa.array(['x'] * len(batch)))", "gives a column of another type"),
        (
            "return batch.set_column(2, '_pane', pa.array([7] * len(batch), pa.int64()))",
            "gives a row in a _pane that it was not given",
        ),
        ("raise ValueError('no')", "ValueError: no"),
    ],
)
def test_what_it_may_not_give_is_said_and_costs_its_rows(sandboxes: Sandboxes, body: str, text: str) -> None:
    with pytest.raises(MapFailed, match=text) as failed:
        run(sandboxes, body)
    assert failed.value.rows == 4


@pytest.mark.parametrize(("body", "calls"), [("time.sleep(60)", 1), ("raise ValueError", 3)])
def test_one_that_blocks_gets_no_more_batches(sandboxes: Sandboxes, body: str, calls: int) -> None:
    """Each would cost seconds in which other jobs wait; its rows are counted all the same."""
    _, mapper = mapping(sandboxes, body, Limits(call_secs=0.2))
    try:
        for _ in range(3):
            with pytest.raises(MapFailed) as failed:
                mapper.run(pa.table(GIVEN))
            assert failed.value.rows == 4
        assert mapper._function.failures == calls
    finally:
        mapper.close()
