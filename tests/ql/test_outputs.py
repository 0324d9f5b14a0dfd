"""CREATE OUTPUT and DROP OUTPUT as they are read."""

from __future__ import annotations

import pytest

from elf.errors import QueryError
from elf.ql.alert import Alert
from elf.ql.outputs import CreateOutput, DropOutput
from elf.ql.statements import Show, parse


def test_an_output_says_of_which_job_it_is_and_where_it_goes() -> None:
    text = "CREATE OUTPUT o FROM JOB busy TO 'https://x/y' WITH (secret = 'k', port = 9) FROM BEGINNING"
    plain, drop, show = "create output o from job busy to 'file:/x' from now", "DROP OUTPUT o", "SHOW OUTPUTS"
    assert parse(f"{text}; {plain}; {drop}; {show}") == [
        CreateOutput(text, "o", "busy", "https://x/y", (("port", "9"), ("secret", "k")), from_beginning=True),
        CreateOutput(plain, "o", "busy", "file:/x"),
        DropOutput(drop, "o"),
        Show(show, "outputs"),
    ]


def test_an_alert_is_a_condition_over_the_windows_of_a_job() -> None:
    when = "errors * 100 / (n FOR 1) > 5 AND NOT host LIKE '%FOR%'"
    rest = "BY host, page FOR 3 WINDOWS COVERAGE >= 0.95 NOTIFY 'https://x' WITH (secret = 'k')"
    text = f"CREATE ALERT a ON JOB busy WHEN {when} {rest}"
    plain, drop, show = (
        "create alert a on job busy when n > 1 notify 'https://x'",
        "DROP ALERT a",
        "SHOW ALERTS",
    )
    assert parse(f"{text}; {plain}; {drop}; {show}") == [
        CreateOutput(
            text, "a", "busy", "https://x", (("secret", "k"),), alert=Alert(when, 3, 0.95, ("host", "page"))
        ),
        CreateOutput(plain, "a", "busy", "https://x", alert=Alert("n > 1")),
        DropOutput(drop, "a", alert=True),
        Show(show, "alerts"),
    ]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("CREATE OUTPUT o FROM busy TO 'x'", 'expected JOB, not "busy"'),
        ("CREATE OUTPUT o FROM JOB busy", "expected TO, but the statement ends here"),
        ("CREATE OUTPUT o FROM JOB busy TO x", "expected where to, in quotes"),
        ("CREATE OUTPUT o FROM JOB busy TO 'x' WITH (a = 1, a = 2)", "a is said twice"),
        ("CREATE OUTPUT o FROM JOB busy TO 'x' WITH (a)", 'expected =, not ")"'),
        ("CREATE OUTPUT o FROM JOB busy TO 'x' FROM HERE", 'expected NOW, not "HERE"'),
        ("CREATE OUTPUT o FROM JOB busy TO 'x' NOW", 'unexpected "NOW"'),
        ("DROP OUTPUT", "expected the output's name"),
        ("CREATE ALERT a FROM JOB busy", 'expected ON, not "FROM"'),
        (
            "CREATE ALERT a ON JOB busy WHEN NOTIFY 'x'",
            "expected a condition over the columns of the job's rows",
        ),
        ("CREATE ALERT a ON JOB busy WHEN n > 1", "expected NOTIFY, but the statement ends here"),
        ("CREATE ALERT a ON JOB busy WHEN n > 1 FOR 0 WINDOWS NOTIFY 'x'", "from 1 to 60"),
        ("CREATE ALERT a ON JOB busy WHEN n > 1 FOR 61 WINDOWS NOTIFY 'x'", "from 1 to 60"),
        ("CREATE ALERT a ON JOB busy WHEN n > 1 COVERAGE >= 1.5 NOTIFY 'x'", "from 0 to 1"),
        ("CREATE ALERT a ON JOB busy WHEN n > 1 COVERAGE 1 NOTIFY 'x'", "expected >="),
    ],
)
def test_what_is_wrong_is_said_with_its_place(text: str, why: str) -> None:
    with pytest.raises(QueryError) as refused:
        parse(text)
    assert why in str(refused.value)
