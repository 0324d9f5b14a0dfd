"""Direct maps: what Arrow makes of rows is what DuckDB makes of them."""

from __future__ import annotations

import random
from decimal import Decimal

import pyarrow as pa
import pytest

from agents.tasks.direct import DirectMapper, mapper_of, no_panes
from agents.tasks.engine import Mapper
from elf.fields import replace
from elf.ql.plan import Fragment
from elf.ql.planner import plan_text
from lab.bench.differential.bothways import BothWays, both_ways
from tests.support.typed_rows import CONSTANTS, SCHEMA, SOME, rows_of

STATES = ["COUNT(*)", "SUM(n)", "AVG(n)", "AVG(x)", "MIN(n)", "MAX(x)", "MIN(at)", "MAX(at)", "SUM(x)"]
STATES += [f"COUNT({name})" for name in SOME]


def fragment_of(sql: str) -> Fragment:
    return plan_text(sql, SCHEMA).fragment


def condition(rng: random.Random, depth: int = 0) -> str:
    name = rng.choice(list(SOME))
    match rng.randrange(7 if depth < 3 else 4):
        case 0:
            return f"{name} IS {rng.choice(['', 'NOT '])}NULL"
        case 1 if name in ("k", "n"):
            items = ("'b', ''", "'a'") if name == "k" else ("200, -7, 1", "0")
            return f"{name} {rng.choice(['', 'NOT '])}IN ({rng.choice(items)})"
        case 0 | 1 | 2 | 3:
            return f"{name} {rng.choice(['=', '<>', '<', '<=', '>', '>='])} {CONSTANTS[name]}"
        case 4:
            return f"NOT ({condition(rng, depth + 1)})"
    parts = [condition(rng, depth + 1) for _ in range(rng.randint(2, 3))]
    return f"({rng.choice([' AND ', ' OR ']).join(parts)})"


def question(rng: random.Random) -> str:
    keys = rng.sample(list(SOME), rng.randrange(4))
    states = rng.sample(STATES, rng.randint(1, 4))
    where = f" WHERE {condition(rng)}" if rng.random() < 0.7 else ""
    by = f" GROUP BY {', '.join(keys)}" if keys else ""
    return f"SELECT {', '.join([*keys, *states])} FROM rows{where}{by} WINDOWING 1 SECONDS"


@pytest.mark.parametrize("seed", range(4))
def test_whatever_is_asked_plainly_needs_no_sql_and_says_the_same(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(40):
        fragment = fragment_of(question(rng))
        mapper = both_ways(fragment)
        assert isinstance(mapper, BothWays), fragment.map_sql
        for count in (0, 1, rng.randrange(200)):
            rows = rows_of(rng, count)
            mapper.run(pa.concat_tables([rows.slice(0, count // 2), rows.slice(count // 2)]))
        mapper.close()
        assert no_panes(fragment).schema == no_panes(replace(fragment, direct=None)).schema


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT n // 2, COUNT(*) FROM rows GROUP BY n // 2",
        "SELECT k, COUNT(DISTINCT n) FROM rows GROUP BY k",
        "SELECT k, MAX(k) FROM rows GROUP BY k",
        "SELECT k, SUM(n + 1) FROM rows GROUP BY k",
        "SELECT k, STDDEV(n) FROM rows GROUP BY k",
        "SELECT k, LAST(n) FROM rows GROUP BY k",
        "SELECT COUNT(*) FROM rows WHERE k LIKE 'a%'",
        "SELECT COUNT(*) FROM rows WHERE n + 1 > 2",
        "SELECT COUNT(*) FROM rows WHERE n < 0.5",
        "SELECT COUNT(*) FROM rows WHERE FALSE",
        "SELECT k, COUNT(*) FROM rows GROUP BY k WINDOWING 5 ROWS",
    ],
)
def test_the_rest_is_left_to_sql(sql: str) -> None:
    fragment = fragment_of(sql)
    assert fragment.direct is None
    assert isinstance(mapper_of(fragment), Mapper)


def test_sums_that_do_not_fit_64_bits_are_exact() -> None:
    mapper = mapper_of(fragment_of("SELECT SUM(n) FROM rows"))
    assert isinstance(mapper, DirectMapper)
    big = 2**63 - 1
    for values in ([big, big, 1], [-big, -big], [5]):
        (found,) = mapper.run(pa.table({"n": values, "_pane": [0] * len(values)}))["s0_sum"].to_pylist()
        assert found == Decimal(sum(values))
    mapper.close()


def test_a_function_may_give_what_no_log_has() -> None:
    mapper = both_ways(fragment_of("SELECT x, COUNT(*), MIN(x), MAX(x), SUM(x) FROM rows GROUP BY x"))
    values = [float("nan"), float("inf"), float("-inf"), -0.0, 0.0, None, -float("nan"), 1e308, 1e308]
    mapper.run(pa.table({"x": pa.array(values, pa.float64()), "_pane": [0] * len(values)}))
    mapper.close()
    mapper = both_ways(fragment_of("SELECT COUNT(*), MIN(x), MAX(x) FROM rows"))
    mapper.run(pa.table({"x": pa.array(values, pa.float64()), "_pane": [0, 1, 2] * 3}))
    mapper.close()


def test_a_difference_is_seen() -> None:
    fragment = fragment_of("SELECT k, COUNT(*), SUM(x) FROM rows GROUP BY k")
    rows = rows_of(random.Random(1), 50)

    class Wrong(DirectMapper):
        def run(self, rows: pa.Table) -> pa.Table:
            return super().run(rows.slice(1))

    assert fragment.direct is not None
    with pytest.raises(Exception, match="DuckDB"):
        BothWays(fragment, Wrong(fragment, fragment.direct), Mapper.of(fragment)).run(rows)
