"""Later stages of a query at the roots of key ranges, where they cannot be made."""

from __future__ import annotations

import pyarrow as pa
import pytest

from agents.committing.panecommits import FAILURES_MAX, MadePanes, Makers, merged_panes
from agents.committing.staging import HALVED_MAX, RangeStages, Stages
from agents.disk.store import Store
from agents.tasks.engine import OverGroups
from elf.batch import encode
from elf.errors import UserError
from elf.job.contributions import Piece
from elf.job.effects import CommitPanes
from elf.job.spec import Flow
from elf.ql.plan import Fragment
from elf.ql.planner import plan_text
from tests.support.ql_table import SCHEMA

QUERY = (
    "SELECT store, SUM(k * k) AS most FROM (SELECT product, store, SUM(clicks) AS k FROM x "
    "GROUP BY product, store) AS s GROUP BY store WINDOWING 30 SECONDS TREES 3"
)


LARGE = 9 * 10**18
"""Its square is larger than any integer."""


@pytest.mark.parametrize(("clicks", "unreduced"), [(3, []), (LARGE, [4])])
def test_a_stage_that_fails_leaves_its_panes_without_groups(clicks: int, unreduced: list[int]) -> None:
    """The root goes on, and windows say it."""
    made = committed({4: clicks})
    assert (made.tables.groups is None) == bool(unreduced)
    end = " of the pane from 1970-01-01 00:02:00 to 1970-01-01 00:02:30"
    assert (made.unstaged.startswith("DuckDB cannot"), made.unstaged.endswith(end)) == (bool(unreduced),) * 2
    assert unreduced_of(made) == unreduced


@pytest.mark.parametrize("failing", [{4}, {5, 8}, {4, 5, 6, 7, 8}])
def test_a_pane_that_it_fails_on_takes_nothing_from_the_others(failing: set[int]) -> None:
    clicks = {pane: pane for pane in range(4, 9)}
    made = committed(clicks | dict.fromkeys(failing, LARGE))
    assert unreduced_of(made) == sorted(failing)
    alone = [committed({pane: n}) for pane, n in clicks.items() if pane not in failing]
    assert rows_of(made) == [row for one in alone for row in rows_of(one)]
    first = min(failing)
    assert f" of the pane from 1970-01-01 00:0{first // 2}:{first % 2 * 3}0 " in made.unstaged


def test_many_panes_that_it_fails_on_are_left_out_together() -> None:
    """Twice as many tries as panes would hold up the root."""
    real, failed = RangeStages(OverGroups), 0

    def stages(fragment: Fragment, groups: pa.Table) -> pa.Table:
        nonlocal failed
        if LARGE in groups[fragment.states[0].name].to_pylist():
            failed += 1
            raise UserError("too large")
        return real(fragment, groups)

    good, failing = range(4, 14), range(14, 314)
    made = committed(dict.fromkeys(good, 3) | dict.fromkeys(failing, LARGE), stages)
    assert unreduced_of(made) == list(failing)
    assert {row["_pane"] for row in rows_of(made)} == set(good)
    tries = FAILURES_MAX + 9  # and the halves that were still to come
    assert failed <= tries * (HALVED_MAX + 1)
    assert made.unstaged.startswith("too large of the pane from 1970-01-01 00:07:00 ")
    assert made.unstaged.endswith(" other panes were left out without a try of each")


def committed(clicks: dict[int, int], stages: Stages | None = None) -> MadePanes:
    """Panes of thirty groups each, of so many clicks."""
    fragment = plan_text(QUERY, SCHEMA).fragment
    groups = pa.table(
        {
            "_pane": pa.array([pane for pane in clicks for _ in range(30)]),
            "k0": [f"p{number}" for _ in clicks for number in range(30)],
            "k1": ["s"] * 30 * len(clicks),
            **{
                state.name: pa.array([n for n in clicks.values() for _ in range(30)])
                for state in fragment.states
            },
        }
    )
    store, start, end = Store(":memory:"), min(clicks), max(clicks) + 1
    work = CommitPanes(
        Flow("flow", fragment, bytes(16), ""),
        start,
        end,
        (Piece(start, end, 1, payload=encode(groups)),),
        0,
        1,
        1,
    )
    try:
        return merged_panes(work, store, makers=Makers(stages=stages or RangeStages(OverGroups)))
    finally:
        store.close()


def rows_of(made: MadePanes) -> list[dict[str, object]]:
    return [] if made.tables.groups is None else made.tables.groups.to_pylist()


def unreduced_of(made: MadePanes) -> list[int]:
    """The panes that say that they are not reduced."""
    counters = made.tables.counters
    rows = [] if counters is None else counters.to_pylist()
    return sorted(row["_pane"] for row in rows if row["unreduced"])
