"""FROM JOB: a job's query in the place of its name, with its windows, tables and function."""

from __future__ import annotations

import duckdb
import pytest
from sqlglot import exp

from elf.errors import QueryError, UserError
from elf.fields import replace
from elf.ql.plan import Function, Plan
from elf.ql.planner import late_of, plan, plan_streams
from elf.ql.user_functions import with_function
from elf.schema import Schema
from tests.support.ql_cases import prepare
from tests.support.ql_jobs import expanded, planned, query
from tests.support.ql_pipeline import difference, run_by_hand, run_live
from tests.support.ql_table import SCHEMA, rows

HITS = "SELECT product, store, COUNT(*), SUM(clicks) AS k FROM x GROUP BY product, store WINDOWING 30 SECONDS"


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


@pytest.mark.parametrize("name", ["long", "date", "text", "first", "end", "row", '"window"'])
@pytest.mark.parametrize("word", ["JOB", "LATE"])
def test_a_job_may_be_called_like_a_type_or_a_word_of_sql(word: str, name: str) -> None:
    asked = query(f"SELECT * FROM {word} {name} WINDOWING 1 MINUTE")
    (table,) = asked.tree.find_all(exp.Table)
    assert (table.name, bool(table.meta.get("job"))) == (name.strip('"'), word == "JOB")
    assert late_of(asked) == (name.strip('"') if word == "LATE" else None)


def test_what_comes_with_a_job(jobs: dict[str, Plan]) -> None:
    worked = {"hits": with_function(jobs["hits"], Function("map", "def map(batch): return batch", "m.py"))}
    made = planned("SELECT MAX(k) FROM JOB hits", worked)
    assert made.fragment == worked["hits"].fragment
    assert made.reads == ("uid of hits",)
    assert planned("SELECT MAX(most) FROM JOB most", jobs).reads == ("uid of most",)
    reduces = Function("reduce", "def reduce(batch): return batch", "r.py")
    reduced = {"hits": with_function(worked["hits"], reduces)}
    made = planned("SELECT MAX(k) FROM JOB hits", reduced)
    assert made.fragment == reduced["hits"].fragment, "it reads what the function makes, from the same flow"
    assert with_function(made, reduces) == made, "as when something else of the reader is altered"
    with pytest.raises(UserError, match="the groups are those of a job that it reads: SET FUNCTION reduce"):
        with_function(made, replace(reduces, text="def reduce(batch): return batch.slice(1)"))
    with pytest.raises(UserError, match="JOIN JOB over a job with a reduce function is not supported yet"):
        planned("SELECT MAX(a.k) FROM JOB hits AS a JOIN JOB hits AS b ON a.store = b.store", reduced)
    ended = {"hits": with_function(jobs["hits"], Function("final", "def final(batch): return batch", "f.py"))}
    with pytest.raises(QueryError, match="job hits has a final function, and the rows that it gives cannot"):
        planned("SELECT MAX(k) FROM JOB hits", ended)


@pytest.mark.parametrize(
    "asked",
    [
        "SELECT store, product, k FROM JOB hits WHERE k > 2 ORDER BY k DESC LIMIT 3",
        "SELECT store, SUM(k) AS k FROM JOB hits GROUP BY store WINDOWING 1 MINUTE",
        "SELECT MAX(a.k) AS k FROM JOB hits AS a JOIN JOB hits AS b ON a.store = b.store",
        "SELECT MAX(most) AS k FROM JOB most",
    ],
)
def test_a_reader_has_the_panes_of_the_job(asked: str) -> None:
    """Which may be shorter than its windows need (``elf.windows.sharing``)."""
    made = {
        us: {"hits": plan_streams(query(HITS), {"x": SCHEMA}, pane_us=us)} for us in (30_000_000, 5_000_000)
    }
    for jobs in made.values():
        jobs["most"] = planned("SELECT store, MAX(k) AS most FROM JOB hits GROUP BY 1", jobs)
    own, short = (planned(asked, jobs) for jobs in made.values())
    assert [f.pane_us for f in own.fragments] == [30_000_000]
    assert short.fragments == made[5_000_000]["hits"].fragments, "the very flows of the job"
    assert short.windows == own.windows
    assert short.read_as != own.read_as
    if not short.stages and not short.beside:
        con, table = duckdb.connect(), rows()
        prepare(con, table)
        of_own, of_short = (run_live(con, one, table, parts=2, seed=3) for one in (own, short))
        assert difference(of_short, of_own) is None
        con.close()


def test_jobs_of_unequal_panes_are_not_joined() -> None:
    plans = [plan_streams(query(HITS), {"x": SCHEMA}, pane_us=us) for us in (None, 5_000_000)]
    jobs = dict(zip("ab", plans, strict=True))
    with pytest.raises(QueryError, match=r"of 5 s and of 30 s: .* shares a flow with shorter panes"):
        planned("SELECT MAX(p.k) AS k FROM JOB a AS p JOIN JOB b AS q ON p.store = q.store", jobs)


def test_larger_windows_share_the_flow_whatever_has_been_seen_since(jobs: dict[str, Plan]) -> None:
    seen = Schema(
        tuple(replace(one, type="text") if one.name == "clicks" else one for one in SCHEMA.columns[::-1]),
        SCHEMA.event_time,
    )
    asked = expanded("SELECT store, SUM(k) AS k FROM JOB hits GROUP BY store WINDOWING 1 MINUTE", jobs)
    made = asked.finish(plan(asked.query, seen, stream="x"))
    assert made.fragment == jobs["hits"].fragment
    assert (made.grain_us, made.made.keys) == (30_000_000, ("k0",))
    assert [kind.text for kind in made.windows] == ["1 min"]


def test_what_is_wrong_in_a_job_that_is_read_is_shown_where_that_is_read(jobs: dict[str, Plan]) -> None:
    with pytest.raises(QueryError) as caught:
        expanded("SELECT   COUNT(*)\nFROM JOB most", jobs, ("hits",))
    assert (caught.value.line, caught.value.column) == (2, 6)
    assert str(caught.value).endswith("(line 2, column 6)\n  FROM JOB most\n       ^")


def test_what_is_refused(jobs: dict[str, Plan]) -> None:
    often = query("SELECT COUNT(*) AS n FROM x WINDOWING 30 SECONDS SLIDE 10 SECONDS")
    ever = query("SELECT COUNT(*) AS n FROM x WINDOWING LANDMARK EVERY 1 MINUTE")
    early = query("SELECT store, MIN(clicks) FROM x GROUP BY store WINDOWING 30 SECONDS EMIT CHANGES")
    others = {"often": often, "ever": ever, "early": early}
    jobs = {**jobs, **{name: plan(asked, SCHEMA, stream="x") for name, asked in others.items()}}
    for text, within, said in (
        ("SELECT COUNT(*) FROM JOB hits", ("hits",), r"in a circle: hits → hits \(line 1, column 22\)"),
        ("SELECT COUNT(*) FROM JOB most", ("a", "hits"), "in a circle: hits → most → hits"),
        ("SELECT COUNT(*) FROM JOB hits, JOB most", (), "JOB stands alone.*column 32"),
        (
            "SELECT COUNT(*) FROM x JOIN JOB hits ON x.store = hits.store",
            (),
            "FROM JOB a JOIN JOB b.*column 29",
        ),
        (
            "SELECT COUNT(*) FROM JOB hits RIGHT JOIN JOB most USING (store)",
            (),
            "RIGHT JOIN of jobs.*column 42",
        ),
        (
            "SELECT COUNT(*) FROM JOB hits JOIN JOB most ON k > 1",
            (),
            "compare a column of hits with one of most",
        ),
        ("SELECT COUNT(*) FROM JOB hits JOIN JOB hits USING (store)", (), "hits stands for something else"),
        ("SELECT COUNT(*) FROM JOB hits JOIN JOB most ON hits.store = most.stor", (), 'mean "most.store"'),
        ("SELECT store FROM JOB hits JOIN JOB most ON hits.store = most.store", (), "in hits and in most.*8"),
        (
            "SELECT COUNT(*) FROM JOB hits JOIN JOB often ON k = n",
            (),
            "of 30 s are.*often has.*every 10 s.*36",
        ),
        ("SELECT COUNT(*) FROM JOB ever JOIN JOB ever AS e USING (n)", (), "begin with their job or key"),
        (
            "SELECT SUM(k) FROM JOB hits JOIN JOB most USING (store) WINDOWING 1 MINUTE",
            (),
            "own windows.*column 5",
        ),
        ("SELECT SUM(k) FROM JOB hits JOIN JOB early USING (store)", (), "leave EMIT CHANGES out"),
        ("SELECT SUM(k) FROM JOB hits JOIN 'a.csv' AS a ON k = a.k", (), "move the JOIN into the subquery"),
        ("SELECT COUNT(*) FROM x, JOB hits", (), "JOB stands alone.*column 25"),
        ("SELECT COUNT(*) FROM JOB hits WINDOWING 45 SECONDS", (), "whole windows of job hits.*column 31"),
        ("SELECT COUNT(*) FROM JOB hits WINDOWING 2 MINUTES SLIDE 10 SECONDS", (), "of 30 s; these .* not"),
        ("SELECT COUNT(*) FROM JOB hits WINDOWING SESSION 1 MINUTE", (), "sessions are of single rows.*31"),
        ("SELECT COUNT(*) FROM JOB hits WINDOWING 9 ROWS", (), "windows of rows are of single rows.*31"),
        ("SELECT COUNT(*) FROM JOB hits WINDOWING 9 ROWS", (), "windows of rows are of single rows.*31"),
        (
            "SELECT k FROM JOB hits WINDOWING 1 MINUTE",
            (),
            "a row of a smaller window.*add GROUP BY.*column 24",
        ),
        (
            "SELECT COUNT(*) FROM JOB often WINDOWING 1 MINUTE",
            (),
            "made of tumbling ones.*often are.*every 10 s",
        ),
        ("SELECT COUNT(*) FROM JOB hits WINDOWING 30 SECONDS LATENESS 1 SECONDS", (), "has the LATENESS.*52"),
        (
            "SELECT COUNT(*) FROM JOB hits WINDOWING 30 SECONDS EMIT CHANGES",
            (),
            "has the EMIT of the job.*52",
        ),
        ("SELECT COUNT(*) FROM JOB hits WHERE l = 1", (), 'unknown column "l"'),
    ):
        with pytest.raises(QueryError, match=said):
            plan(expanded(text, jobs, within).query, SCHEMA, stream="x")
    with pytest.raises(UserError, match="there is no job gone"):
        expanded("SELECT COUNT(*) FROM JOB gone", jobs)
    with pytest.raises(QueryError, match="there are no jobs here"):
        plan(query("SELECT COUNT(*) FROM JOB hits"), SCHEMA, stream="x")
