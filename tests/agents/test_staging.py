"""Later stages of a query at the roots of key ranges, where they cannot be made."""

from __future__ import annotations

import pyarrow as pa
import pytest

from agents.committing.panecommits import merged_panes
from agents.committing.staging import RangeStages
from agents.disk.store import Store
from agents.tasks.engine import OverGroups
from elf.batch import encode
from elf.job.contributions import Piece
from elf.job.effects import CommitPanes
from elf.job.spec import Flow
from elf.ql.planner import plan_text
from tests.support.ql_table import SCHEMA

QUERY = (
    "SELECT store, SUM(k * k) AS most FROM (SELECT product, store, SUM(clicks) AS k FROM x "
    "GROUP BY product, store) AS s GROUP BY store WINDOWING 30 SECONDS TREES 3"
)


@pytest.mark.parametrize(("clicks", "unreduced"), [(3, []), (9 * 10**18, [1])])
def test_a_stage_that_fails_leaves_its_panes_without_groups(clicks: int, unreduced: list[int]) -> None:
    """A sum that is larger than any integer; the root goes on, and windows say it."""
    fragment = plan_text(QUERY, SCHEMA).fragment
    groups = pa.table(
        {
            "_pane": pa.array([4] * 30),
            "k0": [f"p{number}" for number in range(30)],
            "k1": ["s"] * 30,
            **{state.name: pa.array([clicks] * 30) for state in fragment.states},
        }
    )
    store = Store(":memory:")
    piece = Piece(4, 5, 1, payload=encode(groups))
    made = merged_panes(
        CommitPanes(Flow("flow", fragment, bytes(16), ""), 4, 5, (piece,), 0, 1, 1),
        store,
        stages=RangeStages(OverGroups),
    )
    store.close()
    tables = made.tables
    assert (tables.groups is None) == bool(unreduced)
    end = " of the pane from 1970-01-01 00:02:00 to 1970-01-01 00:02:30"
    assert (made.unstaged.startswith("DuckDB cannot"), made.unstaged.endswith(end)) == (bool(unreduced),) * 2
    assert (
        [] if tables.counters is None else [n for n in tables.counters["unreduced"].to_pylist() if n]
    ) == unreduced
