"""ALTER and its like: what is read, and what is said of what cannot be."""

from __future__ import annotations

import pytest

from elf.errors import QueryError
from elf.ql.changes import AlterJob, OffloadJob, PreviewJob, ReconfigureJob, ScaleJob
from elf.ql.statements import parse, parse_query

QUERY = "SELECT COUNT(*) AS n FROM access WHERE sc_bytes > :least WINDOWING 5 SECONDS WITH (least = 5)"


def one(text: str) -> AlterJob | ReconfigureJob:
    (found,) = parse(text)
    assert isinstance(found, AlterJob | ReconfigureJob)
    assert found.sql == text
    return found


def altered(text: str) -> AlterJob:
    found = one(text)
    assert isinstance(found, AlterJob)
    return found


def steered(text: str) -> ReconfigureJob:
    found = one(text)
    assert isinstance(found, ReconfigureJob)
    return found


def test_what_is_altered() -> None:
    found = altered(f"ALTER JOB busy AS {QUERY} IMMEDIATELY reset")
    assert found.query is not None
    assert found.query.sql == QUERY
    assert (found.reset, found.immediately) == (True, True)
    found = altered("alter job busy set least = -2.5, name = 'it''s', f = TRUE")
    assert found.settings == {"least": "-2.5", "name": "'it''s'", "f": "TRUE"}
    assert one("ALTER JOB busy SET FUNCTION map FROM 'a.py' RESET") == AlterJob(
        "ALTER JOB busy SET FUNCTION map FROM 'a.py' RESET", "busy", function=("map", "a.py"), reset=True
    )
    assert altered("ALTER JOB busy SET FUNCTION reduce FROM 'a.py'").function == ("reduce", "a.py")
    assert altered("ALTER JOB busy DROP FUNCTION Final").function == ("final", "")
    assert altered("ALTER JOB busy DROP FUNCTION map").function == ("map", "")
    assert altered("ALTER JOB busy TREES 4 IMMEDIATELY").trees == 4


@pytest.mark.parametrize(
    ("sql", "over_three"),
    [
        (
            "SELECT a, COUNT(*) AS n FROM x GROUP BY a WINDOWING 5 SECONDS",
            "SELECT a, COUNT(*) AS n FROM x GROUP BY a WINDOWING 5 SECONDS TREES 3",
        ),
        (
            "SELECT a, COUNT(*) AS trees FROM x GROUP BY a trees 12 WINDOWING 5 SECONDS -- TREES 9",
            "SELECT a, COUNT(*) AS trees FROM x GROUP BY a TREES 3 WINDOWING 5 SECONDS",
        ),
        (
            "SELECT a, COUNT(*) AS n FROM x WHERE b > :least GROUP BY a WINDOWING 5 SECONDS WITH (least = 4)",
            "SELECT a, COUNT(*) AS n FROM x WHERE b > :least GROUP BY a WINDOWING 5 SECONDS TREES 3 "
            "WITH (least = 4)",
        ),
    ],
)
def test_a_query_over_another_number_of_trees(sql: str, over_three: str) -> None:
    query = parse_query(sql)
    assert query is not None
    assert query.with_trees(3).sql == over_three
    assert query.with_trees(3).with_trees(1).sql == over_three.replace("TREES 3", "TREES 1")


def test_what_is_previewed() -> None:
    change = f"ALTER JOB busy AS {QUERY} RESET"
    (found,) = parse(f"{change} preview 3 windows;")
    assert found == PreviewJob(f"{change} preview 3 windows", altered(change), 3)
    assert found.name == "busy"
    (found,) = parse("ALTER JOB busy SET preview = 3 PREVIEW 1 WINDOW")
    assert isinstance(found, PreviewJob)
    assert found.change.settings == {"preview": "3"}


def test_what_is_steered() -> None:
    assert one("PAUSE JOB busy") == ReconfigureJob("PAUSE JOB busy", "busy", "pause")
    assert steered("RESUME JOB busy").verb == "resume"
    assert steered("EMPTY JOB busy").verb == "empty"
    text = "ROLLBACK JOB busy TO VERSION 3 IMMEDIATELY"
    assert one(text) == ReconfigureJob(text, "busy", "rollback", 3, immediately=True)


@pytest.mark.parametrize(("to", "helper"), [("TO 'helper-1'", "helper-1"), ("back", "")])
def test_who_maps_the_rows_of_an_agent(to: str, helper: str) -> None:
    text = f"alter job busy offload 'web-1' {to}"
    assert parse(text) == [OffloadJob(text, "busy", "web-1", helper)]


@pytest.mark.parametrize(
    ("text", "by", "bounds"),
    [
        ("ALTER JOB busy SCALE OUT 2", 2, None),
        ("alter job busy scale in 1", -1, None),
        ("ALTER JOB busy SCALE AUTO (1, 4)", 0, (1, 4)),
    ],
)
def test_how_a_job_scales(text: str, by: int, bounds: tuple[int, int] | None) -> None:
    assert parse(text) == [ScaleJob(text, "busy", by, bounds)]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "ALTER JOB busy",
            "SET, DROP FUNCTION, TREES, SCALE, MOVE TO or OFFLOAD, but the",
        ),
        ("ALTER JOB busy SET a = 1 PREVIEW 101 WINDOWS", "PREVIEW wants 1 to 100 WINDOWS"),
        ("ALTER JOB busy SET a = 1 PREVIEW x WINDOWS", "PREVIEW wants 1 to 100 WINDOWS"),
        ("ALTER JOB busy MOVE TO 'web-3' PREVIEW 1 WINDOWS", "there is nothing to PREVIEW"),
        (
            "ALTER JOB busy OFFLOAD 'a' BACK PREVIEW 1 WINDOWS",
            "OFFLOAD changes no window: there is nothing",
        ),
        (
            "ALTER JOB busy OFFLOAD web-1 TO 'b'",
            "expected the agent that reads the lines, in quotes",
        ),
        ("ALTER JOB busy OFFLOAD 'a'", "expected TO 'helper' or BACK, but"),
        ("ALTER JOB busy OFFLOAD 'a' TO 'b' BACK", 'unexpected "BACK"'),
        ("ALTER JOB busy SCALE IN 1 PREVIEW 1 WINDOWS", "SCALE changes no window: there is nothing to PREV"),
        ("ALTER JOB busy SCALE UP 1", 'expected OUT n, IN n or AUTO (least, most), not "UP"'),
        ("ALTER JOB busy SCALE OUT 0", "SCALE takes a whole number from 1 to 64"),
        ("ALTER JOB busy SCALE OUT -1", 'expected by how many trees, from 1, not "-"'),
        ("ALTER JOB busy SCALE OUT 1 IMMEDIATELY", 'unexpected "IMMEDIATELY"'),
        ("ALTER JOB busy SCALE AUTO (4, 1)", "two whole numbers from 1 to 64, the smaller first"),
        ("ALTER JOB busy SCALE AUTO (0, 1)", "two whole numbers from 1 to 64, the smaller first"),
        ("ALTER JOB busy SCALE AUTO 1, 4", 'expected (, not "1"'),
        ("ALTER JOB busy SET", "expected a parameter's name, but"),
        ("ALTER JOB busy TREES many", 'expected over how many trees, from 1, not "many"'),
        ("ALTER JOB busy SET k =", "expected a constant, but"),
        ("ALTER JOB busy SET FUNCTION fold FROM 'a.py'", 'expected map, reduce or final, not "fold"'),
        ("ALTER JOB busy SET FUNCTION map FROM a.py", "expected a file in quotes ('map.py'), not \"a\""),
        ("ROLLBACK JOB busy TO VERSION two", 'expected the number of a version, not "two"'),
        ("PAUSE busy", 'expected JOB, not "busy"'),
        ("EMPTY JOB busy now", 'unexpected "now"'),
    ],
)
def test_what_cannot_be(text: str, said: str) -> None:
    with pytest.raises(QueryError) as why:
        parse(text)
    assert said in str(why.value)
