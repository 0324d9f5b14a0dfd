"""CREATE OUTPUT and DROP OUTPUT as they are read."""

from __future__ import annotations

import pytest

from elf.errors import QueryError
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
    ],
)
def test_what_is_wrong_is_said_with_its_place(text: str, why: str) -> None:
    with pytest.raises(QueryError) as refused:
        parse(text)
    assert why in str(refused.value)
