"""How things are spelled in DuckDB and in Spark, so that both mean the same: names, texts, and the form of an
operation.

Templates: ``{0}``, ``{1}`` … are the operands, rendered (every compound operand comes in parentheses or as a
call, so templates need none of their own around them); ``{args}`` is all of them with commas.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

Engine = Literal["duckdb", "spark"]


class Form(Struct, frozen=True):
    """The templates of one operation."""

    duckdb: str
    spark: str

    def template(self, engine: Engine) -> str:
        return self.duckdb if engine == "duckdb" else self.spark


def same(template: str) -> Form:
    """One template for both engines."""
    return Form(template, template)


def braced(text: str) -> str:
    """A text that holds no places, for a template."""
    return text.replace("{", "{{").replace("}", "}}")


def escaped(pattern: str) -> str:
    """A regular expression within a Spark text."""
    return pattern.replace("\\", "\\\\")


def matched(pattern: str) -> Form:
    """The operand's first group where it has the form of ``pattern``, else the empty text."""
    return Form(
        f"regexp_extract({{0}}, '{braced(pattern)}', 1)",
        f"regexp_extract({{0}}, '{escaped(braced(pattern))}', 1)",
    )


def name(text: str, engine: Engine) -> str:
    """A quoted identifier."""
    return '"' + text.replace('"', '""') + '"' if engine == "duckdb" else "`" + text.replace("`", "``") + "`"


def text_literal(text: str, engine: Engine) -> str:
    """A quoted text. Spark reads backslash escapes, and substitutes ``${…}`` even inside quotes."""
    if engine == "duckdb":
        return "'" + text.replace("'", "''") + "'"
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'").replace("${", "\\u0024{") + "'"
