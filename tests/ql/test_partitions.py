"""Later stages at the roots of key ranges (``elf.ql.partitions``): with ``TREES m`` the answer is that of one
tree, and what agrees in the range keys is done at the roots."""

from __future__ import annotations

import random
from collections.abc import Iterator

import duckdb
import pytest

from elf.errors import QueryError
from elf.fields import replace
from elf.job.tops import strategy
from elf.ql.plan import Fragment, Plan
from elf.ql.planner import plan, plan_text
from tests.support.long import cases
from tests.support.ql_cases import prepare, queries
from tests.support.ql_jobs import planned as read_by
from tests.support.ql_jobs import query
from tests.support.ql_pipeline import difference, run_by_hand, run_live
from tests.support.ql_table import SCHEMA, rows

TABLE = rows()
BY_TWO = "SELECT product, store, COUNT(*) AS n, SUM(clicks) AS k FROM x GROUP BY product, store"
WINDOW = " WINDOWING 30 SECONDS"


@pytest.fixture(scope="module")
def con() -> Iterator[duckdb.DuckDBPyConnection]:
    connection = duckdb.connect()
    connection.execute("SET threads = 1")
    prepare(connection, TABLE)
    yield connection
    connection.close()


def planned(sql: str, trees: int = 3) -> Plan:
    return plan_text(f"{sql} TREES {trees}", SCHEMA)


def done(plan: Plan) -> list[tuple[str, tuple[str, ...], str]]:
    return [(step.what, step.by, step.at) for step in plan.steps]


# -- which levels are where ----------------------------------------------------------------------------------

AT_ROOTS = {
    f"SELECT store, MAX(n) AS most FROM ({BY_TWO}) AS s GROUP BY store": ("store",),
    f"SELECT n, MAX(k) AS most FROM ({BY_TWO}) AS s GROUP BY n": ("product", "store"),
    f"SELECT MAX(n) AS most FROM ({BY_TWO}) AS s": ("product", "store"),
    f"{BY_TWO} QUALIFY RANK() OVER (PARTITION BY store ORDER BY COUNT(*) DESC) <= 2": ("store",),
    f"{BY_TWO} LIMIT 2 BY product": ("product",),
    "SELECT n, COUNT(*) AS c FROM (SELECT store, n FROM (SELECT store, MAX(n) AS n FROM "
    f"({BY_TWO}) AS a GROUP BY store) AS b) AS c GROUP BY n": ("store",),
    "SELECT s, RANK() OVER (PARTITION BY s ORDER BY n) AS r FROM "
    f"(SELECT store AS s, n FROM ({BY_TWO}) AS a) AS b": ("store",),
    f"SELECT DISTINCT store FROM ({BY_TWO}) AS a": ("store",),
    f"SELECT store, product, COUNT(*) AS c FROM ({BY_TWO}) AS a GROUP BY GROUPING SETS "
    "((store, product), (store))": ("store",),
}
AT_THE_MASTER = {
    f"SELECT MAX(n) AS most FROM ({BY_TWO} ORDER BY n DESC LIMIT 3) AS s": "a LIMIT inside FROM",
    f"{BY_TWO} QUALIFY RANK() OVER (ORDER BY COUNT(*) DESC) <= 2": "no key in PARTITION BY",
    "SELECT MAX(n) AS most FROM (SELECT product, store, COUNT(*) AS n FROM x "
    "GROUP BY ROLLUP (product, store)) AS s": "no key is in all grouping sets",
    f"SELECT MAX(n) AS most FROM ({BY_TWO}) AS s{WINDOW} SLIDE 10 SECONDS": "tumbling windows",
    f"SELECT MAX(n) AS most FROM ({BY_TWO}) AS s WINDOWING SESSION 5 SECONDS": "tumbling windows",
}


@pytest.mark.parametrize("sql", AT_ROOTS)
def test_the_range_keys_are_the_most_in_which_all_levels_agree(sql: str) -> None:
    for window in ("", WINDOW):
        plan = planned(sql + window)
        assert plan.fragment.stage is not None
        assert not plan.not_at_roots
        assert strategy(replace(plan, limit=3))[0] == "later stages at the roots"
        assert plan.fragment.stage.by == AT_ROOTS[sql]
        assert {step.by for step in plan.steps if step.at == "roots"} == {AT_ROOTS[sql]}
        assert planned(sql + window, 1).fragment == replace(plan.fragment, stage=None, range_keys=())


@pytest.mark.parametrize("sql", AT_THE_MASTER)
def test_what_puts_groups_of_all_ranges_together_is_at_the_master(sql: str) -> None:
    plan = planned(sql)
    assert plan.fragment.stage is None
    assert AT_THE_MASTER[sql] in plan.not_at_roots
    assert [step.at for step in plan.steps][-1] == "master"


def test_a_query_without_a_later_stage_shares_its_flows_as_before() -> None:
    assert planned(f"SELECT n FROM ({BY_TWO}{WINDOW}) AS s").fragments == planned(BY_TWO + WINDOW).fragments
    plan, other = planned(BY_TWO + WINDOW), planned(f"SELECT store, product, SUM(clicks) AS k, COUNT(*) AS n "
        f"FROM x GROUP BY store, product ORDER BY n LIMIT 3{WINDOW}")  # fmt: skip
    assert (plan.fragment.stage, plan.steps, plan.not_at_roots) == (None, (), "")
    assert plan.fragments == other.fragments


def test_who_reads_a_job_reads_its_flows_with_its_stages(con: duckdb.DuckDBPyConnection) -> None:
    """A later stage of its own is the master's; also where the job has none."""
    top = f"{BY_TWO} QUALIFY RANK() OVER (PARTITION BY store ORDER BY COUNT(*) DESC) <= 2{WINDOW} TREES 3"
    texts = {"top": top, "all": f"{BY_TWO}{WINDOW} TREES 3"}
    jobs = {name: plan(query(text), SCHEMA, stream="x") for name, text in texts.items()}
    for name in jobs:
        read = read_by(f"SELECT store, MAX(k) AS most FROM JOB {name} AS j GROUP BY store", jobs)
        assert read.fragments == jobs[name].fragments
        assert [step.at for step in read.steps][-1] == "master"
    assert "shares the flows of the job" in read.not_at_roots
    by_hand = (
        "SELECT w, w + INTERVAL 30 SECONDS, store, MAX(k) FROM (SELECT time_bucket(INTERVAL 30 SECONDS, ts) "
        "AS w, product, store, SUM(clicks) AS k, COUNT(*) AS n FROM t WHERE ts IS NOT NULL GROUP BY 1, 2, 3 "
        "QUALIFY RANK() OVER (PARTITION BY w, store ORDER BY n DESC) <= 2) GROUP BY ALL ORDER BY 1, 3"
    )
    read = read_by("SELECT store, MAX(k) AS most FROM JOB top AS j GROUP BY store", jobs)
    assert run_live(con, read, TABLE, parts=2, seed=1)[1] == run_by_hand(con, by_hand)[1]


def test_steps_are_told_with_the_attributes_that_part_them() -> None:
    assert done(planned(next(iter(AT_ROOTS)) + " ORDER BY most LIMIT 2")) == [
        ("GROUP BY product, store", ("store",), "roots"),
        ("GROUP BY store", ("store",), "roots"),
        ("rows of all ranges together, ORDER BY and LIMIT", (), "master"),
    ]


WHERE_SCORES_DIFFER = (
    "SELECT k, RANK() OVER (PARTITION BY k, store ORDER BY product) AS r FROM "
    "(SELECT DISTINCT product, store, k FROM (SELECT product, store, clicks AS k, "
    "RANK() OVER (PARTITION BY product ORDER BY COUNT(*)) AS r FROM x "
    "GROUP BY product, store, clicks) AS a) AS b"
)
"""The first level agrees in product alone, the last one in store and k, the one between in all three."""


def together(plan: Plan, score: str) -> list[tuple[int, tuple[str, ...], str]]:
    return [(len(one.steps), one.keys, one.at) for one in plan.components if one.score == score]


def test_levels_are_fused_from_the_inside_out_and_the_other_score_is_told() -> None:
    plan = planned(WHERE_SCORES_DIFFER)
    assert together(plan, "comm") == [(2, ("product",), "roots"), (1, ("clicks", "store"), "master")]
    assert together(plan, "attributes") == [(1, ("product",), "roots"), (2, ("clicks", "store"), "master")]
    assert plan.fragment.stage is not None
    assert plan.fragment.stage.by == ("product",)
    alone = planned(next(iter(AT_ROOTS)), 1)
    assert together(alone, "comm") == [(2, ("store",), "master")], "as they would be with several trees"
    assert together(alone, "attributes") == []
    assert planned(BY_TWO).components == ()


def test_what_agrees_with_nothing_is_a_component_of_its_own() -> None:
    plan = planned(f"SELECT MAX(n) AS most FROM ({BY_TWO}) AS s")
    assert together(plan, "comm") == [(1, ("product", "store"), "roots"), (1, (), "master")]


def test_over_in_a_subquery_is_of_groups() -> None:
    sql = "SELECT COUNT(*) AS n FROM (SELECT store, RANK() OVER (ORDER BY clicks) AS r FROM x) AS a"
    with pytest.raises(QueryError, match="OVER is over groups"):
        plan_text(sql, SCHEMA)


# -- the answer is that of one tree --------------------------------------------------------------------------


def test_trees_do_not_change_any_answer(con: duckdb.DuckDBPyConnection) -> None:
    """Of the cases that are compared with DuckDB by hand."""
    count = 0
    for case in queries():
        try:
            plan = plan_text(f"{case.elf} TREES 3", SCHEMA)
        except QueryError:
            continue
        if plan.fragment.stage is not None:
            count += 1
            wanted = run_by_hand(con, case.by_hand)
            assert difference(run_live(con, plan, TABLE, parts=3, seed=count), wanted) is None, case.elf
    assert count >= 3


def test_random_queries_of_several_stages(con: duckdb.DuckDBPyConnection) -> None:
    rng, staged = random.Random(5), 0
    for number in range(cases(10, 600)):
        sql = several_stages(rng)
        trees, parts = rng.choice([2, 3, 5]), rng.choice([1, 3])
        many = planned(sql, trees)
        staged += many.fragment.stage is not None
        wanted = run_live(con, planned(sql, 1), TABLE, parts=parts, seed=number)
        assert difference(run_live(con, many, TABLE, parts=parts, seed=number), wanted) is None, (sql, trees)
    assert staged > number // 2


def test_the_comparison_sees_groups_in_ranges_of_all_keys(
    con: duckdb.DuckDBPyConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    sql = f"{BY_TWO} QUALIFY ROW_NUMBER() OVER (PARTITION BY store ORDER BY COUNT(*) DESC) = 1"
    one = run_live(con, planned(sql, 1), TABLE, parts=2, seed=1)
    assert difference(run_live(con, planned(sql), TABLE, parts=2, seed=1), one) is None
    monkeypatch.setattr(Fragment, "ranged_by", property(lambda fragment: fragment.group_keys))
    assert difference(run_live(con, planned(sql), TABLE, parts=2, seed=1), one) is not None


KEYS = ("product", "store", "ok", "clicks % 3", "price")
VALUES = ("COUNT(*)", "SUM(clicks)", "MAX(price)", "COUNT(DISTINCT raw)", "AVG(clicks)", "SUM(big)")
MORE = (
    "COUNT(*)",
    "MAX({0})",
    "MIN({1})",
    "COUNT(DISTINCT {0})",
    "MEDIAN({2})",
    "SUM({2})",
    "MAX({1})",
)
RANKS = ("RANK()", "ROW_NUMBER()", "DENSE_RANK()", "COUNT(*)", "MAX({0})", "FIRST_VALUE({1})")


def several_stages(rng: random.Random) -> str:
    """A query with one to three levels above its groups; the third value is a whole number."""
    keys = rng.sample(KEYS, rng.choice([1, 2, 2, 3]))
    values = [*rng.sample(VALUES, 2), "COUNT(*)"]
    names = [f"k{at}" for at in range(len(keys))]
    items = [f"{key} AS {name}" for key, name in zip(keys, names, strict=True)]
    items += [f"{value} AS v{at}" for at, value in enumerate(values)]
    by = ", ".join(str(at + 1) for at in range(len(keys)))
    sql = f"SELECT {', '.join(items)} FROM x GROUP BY {by}"
    sql += rng.choice(["", "", " HAVING COUNT(*) > 1"])
    for level in range(rng.choice([1, 1, 2])):
        sql, names = _over(rng, sql, names, level)
    return sql + rng.choice(["", WINDOW, WINDOW, " WINDOWING 1 MINUTE"])


def _over(rng: random.Random, under: str, names: list[str], level: int) -> tuple[str, list[str]]:
    kept = rng.sample(names, rng.randrange(len(names) + 1))
    has = ["v0", "v1", "v2"]
    source = f"FROM ({under}) AS s{level}" + rng.choice(["", "", " WHERE v2 > 1"])
    if rng.random() < 0.6:
        values = [one.format(*has) for one in rng.sample(MORE, 2)] + ["COUNT(*)"]
        items = [*kept, *(f"{value} AS v{at}" for at, value in enumerate(values))]
        sql = f"SELECT {', '.join(items)} {source}"
        sql += f" GROUP BY {', '.join(kept)}" if kept else ""
        return sql + rng.choice(["", "", " HAVING COUNT(*) > 1"]) + (_ordered(rng) if kept else ""), kept
    within = f"PARTITION BY {', '.join(kept)} " if kept else ""
    over = f"{rng.choice(RANKS).format(*has)} OVER ({within}ORDER BY {', '.join([*has, *names])})"
    if rng.random() < 0.5:
        items = [*names, "v0", "v1", "v2"]
        return f"SELECT {', '.join(items)} {source} QUALIFY {over} IS NOT NULL" + _ordered(rng), names
    shown = rng.sample(names, rng.randrange(len(names) + 1))
    return f"SELECT {', '.join([*shown, f'{over} AS v0', 'v1', 'v2'])} {source}" + _ordered(rng), shown


def _ordered(rng: random.Random) -> str:
    return rng.choice(
        ["", "", " ORDER BY v2 DESC", " ORDER BY v0 NULLS FIRST LIMIT 3", " ORDER BY 1 LIMIT 4 OFFSET 1"]
    )
