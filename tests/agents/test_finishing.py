"""Direct final fragments: the rows that Arrow makes of groups are those that DuckDB makes of them."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

from agents.tasks.engine import Finisher, Mapper
from agents.tasks.finishing import DirectFinisher, finisher_of
from elf.aggregates import normalise
from elf.errors import ElfBug
from elf.ql.plan import Plan
from elf.ql.planner import plan_text
from lab.bench.differential.bothways import FinishedBothWays, finished_both_ways
from tests.support.typed_rows import CONSTANTS, SCHEMA, SOME, rows_of

VALUES = ["COUNT(*)", "SUM(n)", "AVG(n)", "AVG(x)", "MIN(n)", "MAX(x)", "MIN(at)", "MAX(k)", "SUM(x)"]
VALUES += ["COUNT(x)"]
LEAST = {"COUNT(*)": "1", "SUM(n)": "100", "AVG(x)": "0.5", "MIN(n)": "0", "SUM(x)": "-1.5", "COUNT(x)": "2"}


def question(rng: random.Random, windowed: str = " WINDOWING 1 SECONDS") -> str:
    keys = rng.sample(list(SOME), rng.randrange(4))
    values = rng.sample(VALUES, rng.randint(1, 4))
    by = f" GROUP BY {', '.join(keys)}" if keys else ""
    tested = rng.sample(list(LEAST), 2)
    conditions = [f"{name} {rng.choice(['=', '<>', '<', '>='])} {LEAST[name]}" for name in tested]
    conditions += [f"{key} IS NOT NULL OR {key} = {CONSTANTS[key]}" for key in keys[:1]]
    having = f" HAVING {rng.choice([' AND ', ' OR ']).join(conditions)}" if rng.random() < 0.5 else ""
    ways = ["", " DESC", " NULLS FIRST", " DESC NULLS FIRST"]
    among = [*keys, *values]
    ordered = [f"{one}{rng.choice(ways)}" for one in rng.sample(among, rng.randint(0, min(3, len(among))))]
    order = f" ORDER BY {', '.join(ordered)}" if ordered else ""
    limit = f" LIMIT {rng.randint(0, 4)}" if rng.random() < 0.5 else ""
    limit += f" OFFSET {rng.randint(0, 2)}" if limit and rng.random() < 0.3 else ""
    return f"SELECT {', '.join([*keys, *values])} FROM rows{by}{having}{order}{limit}{windowed}"


def groups_of(plan: Plan, rows: pa.Table) -> pa.Table:
    """The merged groups of windows: each pane is one."""
    mapper = Mapper.of(plan.fragment)
    panes = normalise(mapper.run(rows), plan.fragment.keys, plan.fragment.states)
    mapper.close()
    if not plan.windows:
        return panes.drop_columns(["_pane"])
    seconds = [pa.compute.multiply(pa.compute.add(panes["_pane"], more), 1_000_000) for more in (0, 1)]
    bounds = [one.cast(pa.timestamp("us")) for one in seconds]
    return pa.table(
        [*bounds, *panes.columns[1:]], names=["window_start", "window_end", *panes.column_names[1:]]
    )


@pytest.mark.parametrize("seed", range(4))
def test_whatever_is_said_plainly_needs_no_sql_and_gives_the_same_rows(seed: int) -> None:
    rng = random.Random(seed)
    for number in range(30):
        plan = plan_text(question(rng, "" if number % 10 == 9 else " WINDOWING 1 SECONDS"), SCHEMA)
        finisher = finished_both_ways(plan)
        assert isinstance(finisher, FinishedBothWays), plan.sql
        for count in (1, rng.randrange(2, 60)):
            rows = rows_of(rng, count)
            if not plan.windows:
                rows = rows.set_column(rows.num_columns - 1, "_pane", pa.array([0] * count))
            groups = groups_of(plan, rows)
            finisher.run(pa.concat_tables([groups.slice(1), groups.slice(0, 1)]))
            finisher.run(groups.slice(0, 0))
        finisher.close()


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT k, SUM(n) / COUNT(*) AS a FROM rows GROUP BY k",
        "SELECT k, COUNT(DISTINCT n) FROM rows GROUP BY k",
        "SELECT k, STDDEV(n) FROM rows GROUP BY k",
        "SELECT k, upper(k), COUNT(*) FROM rows GROUP BY k",
        "SELECT k, COUNT(*) FROM rows GROUP BY k ORDER BY COUNT(*) / 2",
        "SELECT k, COUNT(*) FROM rows GROUP BY k HAVING SUM(n) % 2 = 1",
        "SELECT DISTINCT COUNT(*) AS n FROM rows GROUP BY k",
        "SELECT k, RANK() OVER (ORDER BY COUNT(*)) AS r FROM rows GROUP BY k",
        "SELECT k, b, COUNT(*) FROM rows GROUP BY CUBE (k, b)",
        "SELECT COUNT(*) AS n FROM rows GROUP BY k ORDER BY n DESC LIMIT 1 APPROXIMATE WINDOWING 1 SECONDS",
        "SELECT k, COUNT(*) FROM rows GROUP BY k WINDOWING 5 ROWS",
    ],
)
def test_the_rest_is_left_to_sql(sql: str) -> None:
    plan = plan_text(sql, SCHEMA)
    assert plan.direct is None
    assert isinstance(finisher_of(plan), Finisher)


def test_what_only_duckdb_knows_is_left_to_it() -> None:
    """Sums of which a double is not the same, and NaN in a condition."""
    plan = plan_text("SELECT AVG(n) AS a FROM rows WINDOWING 1 SECONDS", SCHEMA)
    finisher = finished_both_ways(plan)
    rows = {"n": [2**62 + 1, 2**62 + 3, -(2**55) - 1], "_pane": [0, 0, 1]}
    finisher.run(groups_of(plan, pa.table(rows)))
    plan = plan_text(
        "SELECT k, MAX(x) AS m FROM rows GROUP BY k HAVING MAX(x) > 1 WINDOWING 1 SECONDS", SCHEMA
    )
    finisher = finished_both_ways(plan)
    nan = {"k": ["a", "b", "c"], "x": [float("nan"), 2.0, None], "_pane": [0] * 3}
    assert finisher.run(groups_of(plan, pa.table(nan)))["k"].to_pylist() == ["a", "b"]
    ordered = plan_text("SELECT k, MAX(x) AS m FROM rows GROUP BY k ORDER BY m DESC LIMIT 1", SCHEMA)
    rows = pa.table({**nan, "_pane": [0] * 3})
    assert finished_both_ways(ordered).run(groups_of(ordered, rows))["k"].to_pylist() == ["a"]


def test_a_difference_is_seen() -> None:
    plan = plan_text("SELECT k, COUNT(*) AS n FROM rows GROUP BY k ORDER BY n WINDOWING 1 SECONDS", SCHEMA)

    class Wrong(DirectFinisher):
        def run(self, groups: pa.Table, *beside: pa.Table) -> pa.Table:
            found = super().run(groups)
            return found.take(list(reversed(range(found.num_rows))))

    assert plan.direct is not None
    groups = groups_of(plan, rows_of(random.Random(1), 50))
    with pytest.raises(ElfBug, match="DuckDB"):
        FinishedBothWays(plan, Wrong(plan, plan.direct), Finisher(plan)).run(groups)
