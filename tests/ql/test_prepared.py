"""What a text of a known form says is what the parser says of it."""

from __future__ import annotations

import random

import pytest

from elf.ql.keyed import TableSelect, over_table
from elf.ql.prepared import FORMS_MAX, Prepared
from elf.ql.statements import Select, Statement, parse

TABLES = frozenset({"seen"})


def read(text: str) -> list[Statement]:
    return [
        (over_table(one.sql, one.query, TABLES) or one) if isinstance(one, Select) else one
        for one in parse(text)
    ]


def learned(*texts: str) -> Prepared:
    found = Prepared()
    for text in texts:
        found.learn(text, read(text), read)
    return found


SAME = [
    ("SELECT * FROM seen WHERE ip = '10.0.0.1'", "SELECT * FROM seen WHERE ip = 'it''s'"),
    ('SELECT * FROM seen WHERE "user" = 7', 'SELECT * FROM seen WHERE "user" = 000123'),
    (
        "SELECT n, ip AS who FROM seen AS OF ANY WHERE ip IN ('a', 'b') AND 4 = n;",
        "SELECT n, ip AS who FROM seen AS OF ANY WHERE ip IN ('', 'é  ''') AND 99999 = n;",
    ),
    ("  SELECT * FROM seen  WHERE `a 1` = 1 ", "  SELECT * FROM seen  WHERE `a 1` = 22 "),
    ("SELECT * FROM seen", "SELECT * FROM seen"),
]


@pytest.mark.parametrize(("first", "then"), SAME)
def test_a_text_of_the_same_form_is_not_parsed_again_and_says_what_it_says(first: str, then: str) -> None:
    forms = learned(first)
    for text in (first, then):
        found = forms.known(text, TABLES)
        assert isinstance(found, TableSelect)
        assert [found] == read(text)
    assert forms.known(then, frozenset({"other"})) is None


@pytest.mark.parametrize(
    "text",
    [
        "SELECT * FROM seen WHERE n = 1.5",
        "SELECT * FROM seen WHERE n = -1",
        "SELECT * FROM seen WHERE n = 1 LIMIT 5",
        "SELECT * FROM seen WHERE n > 1",
        "SELECT 1 AS one, n FROM seen WHERE n = 1",
        "SELECT * FROM seen WHERE n = 1 -- 2",
        "SELECT * FROM seen WHERE n = 1 /* 2 */",
        "SELECT * FROM seen WHERE n = 1 AND n = 2",
        "SELECT * FROM seen WHERE n = 1; SELECT * FROM seen WHERE n = 2",
        "SELECT * FROM other WHERE n = 1",
        "SHOW TABLES",
    ],
)
def test_a_constant_that_is_no_value_of_a_column_is_never_taken_for_one(text: str) -> None:
    assert learned(text).known(text, TABLES) is None


def test_what_cannot_be_read_is_of_no_form() -> None:
    forms = learned("SELECT * FROM seen WHERE ip = 'a'", "SELECT * FROM seen WHERE n = 7")
    for text in (
        "SELECT * FROM seen WHERE ip = '",
        "SELECT * FROM seen WHERE ip = N'a'",
        "SELECT * FROM seen WHERE n = 7a",
        "SELECT * FROM seen WHERE n = 7.5",
        f"SELECT * FROM seen WHERE n = {'9' * 19}",
        f"SELECT * FROM seen WHERE ip = '{'x' * 2_000}'",
    ):
        assert forms.known(text, TABLES) is None, text


def test_drawn_texts_say_what_the_parser_says() -> None:
    rng, forms, hits = random.Random(5), Prepared(), 0
    for _ in range(150):
        values = [rng.choice(["1", "23", "'a'", "'b''c'", "''", "-4", "5.0", "'1000'"]) for _ in range(3)]
        ends = [
            f"a = {values[0]}",
            f"a = {values[0]} AND {values[1]} = b",
            f"a IN ({', '.join(values)})",
            f"(a = {values[0]}) AND b < {values[1]}",
        ]
        said = rng.choice(["SELECT *", 'SELECT "b 2", a', "SELECT a, 3 AS x", "SELECT DISTINCT a"])
        text = f"{said} FROM seen{rng.choice(['', ' AS OF ANY'])} WHERE {rng.choice(ends)}"
        parsed = read(text)
        known = forms.known(text, TABLES)
        hits += known is not None
        assert known is None or [known] == parsed, text
        forms.learn(text, parsed, read)
    assert hits > 5


def test_so_many_forms_are_kept() -> None:
    forms = Prepared()
    for number in range(FORMS_MAX + 3):
        text = f"SELECT a{number} FROM seen"
        forms.learn(text, [TableSelect(text, "seen", text, (), (("a", "a"),))], read)
    assert forms.known("SELECT a2 FROM seen", TABLES) is None
    assert forms.known(f"SELECT a{FORMS_MAX} FROM seen", TABLES) is not None
