"""FROM JOB: a job's query in the place of its name, with its windows, tables and function."""

from __future__ import annotations

from collections.abc import Mapping

import duckdb
import pytest

from elf.errors import QueryError, UserError
from elf.ql.files import tables_of
from elf.ql.jobs import Expanded, Read, expand
from elf.ql.plan import Function, Plan
from elf.ql.planner import plan
from elf.ql.statements import Query, Select, parse
from elf.ql.user_functions import with_function
from tests.ql.cases import prepare
from tests.ql.pipeline import difference, run_by_hand, run_live
from tests.ql.table import SCHEMA, rows

HITS = "SELECT product, store, COUNT(*), SUM(clicks) AS k FROM x GROUP BY product, store WINDOWING 30 SECONDS"


def query(text: str) -> Query:
    (statement,) = parse(text)
    assert isinstance(statement, Select)
    return statement.query


def expanded(text: str, jobs: Mapping[str, Plan], within: tuple[str, ...] = ()) -> Expanded:
    def find(name: str) -> Read:
        if name not in jobs:
            raise UserError(f"there is no job {name}")
        return Read(f"uid of {name}", name, jobs[name])

    return expand(query(text), find, within)


def planned(text: str, jobs: Mapping[str, Plan]) -> Plan:
    made = expanded(text, jobs)
    tables = tables_of(made.query, {}, {table.name.lower(): table for table in made.tables})
    return made.finish(plan(made.query, SCHEMA, stream="x", tables=tables))


@pytest.fixture(scope="module")
def jobs() -> dict[str, Plan]:
    found = {"hits": plan(query(HITS), SCHEMA, stream="x")}
    found["most"] = planned(
        "SELECT store, MAX(k) AS most FROM JOB hits AS h WHERE h.product <> '' GROUP BY 1", found
    )
    return found


@pytest.mark.parametrize(
    ("asked", "by_hand"),
    [
        (
            "SELECT store, product, k FROM JOB hits WHERE k > 2 ORDER BY k DESC LIMIT 3",
            "SELECT window_start, window_end, store, product, k FROM (SELECT window_start, window_end, "
            "store, product, SUM(clicks) AS k FROM by_30s GROUP BY ALL) WHERE k > 2 QUALIFY ROW_NUMBER() "
            "OVER (PARTITION BY window_start ORDER BY k DESC, product NULLS LAST, store NULLS LAST) <= 3",
        ),
        (
            'SELECT "COUNT(*)" AS n, COUNT(*) AS times FROM JOB hits GROUP BY n WINDOWING 30 SECONDS',
            "SELECT window_start, window_end, n, COUNT(*) AS times FROM (SELECT window_start, window_end, "
            "COUNT(*) AS n FROM by_30s GROUP BY window_start, window_end, product, store) GROUP BY ALL "
            "ORDER BY 1, 2, 3",
        ),
        (
            "SELECT upper(store) AS s, most FROM JOB most WHERE most IS NOT NULL",
            "SELECT window_start, window_end, upper(store) AS s, MAX(k) AS most FROM (SELECT window_start, "
            "window_end, product, store, SUM(clicks) AS k FROM by_30s GROUP BY ALL) WHERE product <> '' "
            "GROUP BY window_start, window_end, store HAVING most IS NOT NULL ORDER BY 1, 2, 4, 3 NULLS LAST",
        ),
    ],
)
def test_the_rows_of_a_jobs_windows(jobs: dict[str, Plan], asked: str, by_hand: str) -> None:
    made, table = planned(asked, jobs), rows()
    assert made.fragment == jobs["hits"].fragment
    assert made.windows == jobs["hits"].windows
    con = duckdb.connect()
    prepare(con, table)
    got, wanted = run_live(con, made, table, parts=3, seed=1), run_by_hand(con, by_hand)
    assert wanted[1]
    assert difference((got[0], sorted(got[1], key=repr)), (wanted[0], sorted(wanted[1], key=repr))) is None
    con.close()


def test_what_comes_with_a_job(jobs: dict[str, Plan]) -> None:
    worked = {"hits": with_function(jobs["hits"], Function("map", "def map(batch): return batch", "m.py"))}
    made = planned("SELECT MAX(k) FROM JOB hits", worked)
    assert made.fragment == worked["hits"].fragment
    assert made.reads == ("uid of hits",)
    assert planned("SELECT MAX(most) FROM JOB most", jobs).reads == ("uid of most",)


def test_what_is_refused(jobs: dict[str, Plan]) -> None:
    for text, within, said in (
        ("SELECT COUNT(*) FROM JOB hits", ("hits",), r"in a circle: hits → hits \(line 1, column 22\)"),
        ("SELECT COUNT(*) FROM JOB most", ("a", "hits"), "in a circle: hits → most → hits"),
        ("SELECT COUNT(*) FROM JOB hits, JOB most", (), "JOB stands alone.*column 32"),
        ("SELECT COUNT(*) FROM x JOIN JOB hits ON x.store = hits.store", (), "JOIN JOB is not.*column 29"),
        ("SELECT COUNT(*) FROM x, JOB hits", (), "JOB stands alone.*column 25"),
        ("SELECT COUNT(*) FROM JOB hits WINDOWING 1 MINUTE", (), "has the windows of the job.*column 31"),
        ("SELECT COUNT(*) FROM JOB hits WHERE l = 1", (), 'unknown column "l"'),
    ):
        with pytest.raises(QueryError, match=said):
            plan(expanded(text, jobs, within).query, SCHEMA, stream="x")
    with pytest.raises(UserError, match="there is no job gone"):
        expanded("SELECT COUNT(*) FROM JOB gone", jobs)
    ever = {
        "ever": plan(query("SELECT COUNT(*) FROM x WINDOWING LANDMARK EVERY 1 MINUTE"), SCHEMA, stream="x")
    }
    with pytest.raises(QueryError, match="landmark windows of job ever"):
        expanded("SELECT COUNT(*) FROM JOB ever", ever)
    with pytest.raises(QueryError, match="there are no jobs here"):
        plan(query("SELECT COUNT(*) FROM JOB hits"), SCHEMA, stream="x")
