"""Where statements end, and what is left of a text that is still being typed."""

from __future__ import annotations

import pytest

from elf.cli.ask import split, statements
from elf.cli.options import one_text, spread
from elf.errors import UserError


@pytest.mark.parametrize(
    ("text", "complete", "rest"),
    [
        ("", (), ""),
        ("SHOW JOBS", (), "SHOW JOBS"),
        ("SHOW JOBS;", ("SHOW JOBS;",), ""),
        ("a;b", ("a;",), "  b"),
        (";;  ; -- nothing\n;", (), ""),
        ("SELECT ';' AS x;", ("SELECT ';' AS x;",), ""),
        ("SELECT 'it''s;", (), "SELECT 'it''s;"),
        ('SELECT ";" ;', ('SELECT ";" ;',), ""),
        ("WHERE store == `video_games' ;", ("WHERE store == `video_games' ;",), ""),
        ("a -- it's; not\n;", ("a -- it's; not\n;",), ""),
        ("a /* ; */ b;", ("a /* ; */ b;",), ""),
        ("/* open ;", (), "/* open ;"),
        ("a;\n  b;", ("a;", "\n  b;"), ""),
        ("a; -- the end", ("a;",), ""),
        ("1 - 2 / 3;", ("1 - 2 / 3;",), ""),
    ],
)
def test_split(text: str, complete: tuple[str, ...], rest: str) -> None:
    found = split(text)
    assert [s.lstrip(" ") for s in found.complete] == [s.lstrip(" ") for s in complete]
    assert found.rest == rest


def test_a_statement_keeps_its_line_and_column() -> None:
    text = "SHOW JOBS;\n\nDROP JOB a; SELEC x"
    *_, last = statements(text)
    lines = last.split("\n")
    assert len(lines) == 3
    assert lines[2].index("SELEC") == text.split("\n")[2].index("SELEC")


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("--input a b c", "--input a --input b --input c"),
        ("--input a b --agents 3 --input c", "--input a --input b --agents 3 --input c"),
        ("--input=a b -q x", "--input a --input b -q x"),
        ("-q x --stream s=a b t=c", "-q x --stream s=a --stream s=b --stream t=c"),
        ("--stream s=a --stream t=b c", "--stream s=a --stream t=b --stream t=c"),
        ("--input - --status", "--input - --status"),
    ],
)
def test_options_with_several_values(typed: str, meant: str) -> None:
    assert spread(typed.split(), ("--input", "--stream")) == meant.split()


@pytest.mark.parametrize("typed", ["--input", "--input --status", "-q x --stream"])
def test_an_option_without_any_value_is_an_error(typed: str) -> None:
    with pytest.raises(UserError, match="needs at least one value"):
        spread(typed.split(), ("--input", "--stream"))


def test_one_of_two_texts() -> None:
    assert one_text("x", None, "") == "x"
    with pytest.raises(UserError, match="exactly one of -q and -f"):
        one_text(None, None, "-q and -f")
