"""The panels: the queries of ``queries``, each over any stream, in windows of any size, with filters.

A file begins with a comment, ``-- Title: what it shows. Log: what it needs.`` Then come SELECT, FROM, and
perhaps WHERE and GROUP BY, each at the beginning of a line, and WINDOWING at the end. What is put into a
query is a name, a number or a literal; the agent that plans it looks at the whole.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from elf.errors import UserError
from elf.page.asked import Composed, Filter

_FOLDER: Final = Path(__file__).with_name("queries")
_FIRST: Final = ("visitors", "requested_files", "status_codes", "hosts", "not_found", "browsers")
"""Those that most look for, in the order of the page; the others follow by name."""
_PARTS: Final = re.compile(
    r"SELECT\s+(?P<items>.*?)\nFROM access\n(?:WHERE\s+(?P<where>.*?)\n(?=[GOLW]))?"
    r"(?:GROUP BY\s+(?P<keys>[^\n]*)\n)?(?P<rest>.*?)WINDOWING [^\n]*\n?\Z",
    re.DOTALL,
)
_HOUR_SECS: Final = 3_600
_A_SECOND: Final = re.compile(r"\s*/ 60\b")


@dataclass(frozen=True)
class Panel:
    """``columns``: of each key its expression in the query; by these rows are filtered. ``needs``: columns of
    a log of JSON lines, or of the combined format."""

    name: str
    title: str
    about: str
    needs: str
    sql: str
    columns: dict[str, str]


@cache
def panels() -> tuple[Panel, ...]:
    """All of them."""
    names = [path.stem for path in sorted(_FOLDER.glob("*.sql"))]
    return tuple(map(_read, sorted(names, key=lambda one: (one not in _FIRST, _place(one), one))))


def queries(asked: Composed) -> dict[str, str]:
    """The query of each panel. Raises ``UserError`` for a filter of a column that no panel has."""
    return {panel.name: query(panel, asked) for panel in panels()}


def query(panel: Panel, asked: Composed) -> str:
    """One of them."""
    if not re.fullmatch(r"[A-Za-z_]\w*", asked.stream):
        raise UserError(f"{asked.stream!r} is no name of a stream")
    secs, every = asked.window_secs, asked.every_secs
    lines = [
        over_all(panel, asked.stream, asked.filters, secs),
        f"WINDOWING LANDMARK EVERY {every} SECONDS" if secs is None else f"WINDOWING {secs} SECONDS",
        *([] if secs is None else [f"EMIT CHANGES EVERY {every} SECONDS"]),
    ]
    return "\n".join(lines)


def over_all(panel: Panel, stream: str, filters: Sequence[Filter] = (), secs: int | None = None) -> str:
    """A panel without windows, over all there is; ``secs``: how long that is, None: nobody knows."""
    found = _PARTS.search(panel.sql)
    assert found is not None, panel.name
    where = [found["where"]] if found["where"] else []
    where += [_condition(one) for one in filters]
    items = found["items"]
    if secs is None:
        items = ",".join(one for one in _split(items) if not _A_SECOND.search(one))
    else:
        items = _A_SECOND.sub(f" / {secs}", items)
    lines = [
        f"SELECT {items}",
        f"FROM {stream}",
        *(["WHERE " + "\n  AND ".join(f"({one})" for one in where)] if where else []),
        *([f"GROUP BY {found['keys']}"] if found["keys"] else []),
        *([found["rest"].strip()] if found["rest"].strip() else []),
    ]
    return "\n".join(lines)


def _place(name: str) -> int:
    return _FIRST.index(name) if name in _FIRST else len(_FIRST)


def _read(name: str) -> Panel:
    text = (_FOLDER / f"{name}.sql").read_text(encoding="utf-8")
    lines = text.splitlines()
    comment = " ".join(line[2:].strip() for line in lines if line.startswith("--"))
    title, _, about = comment.partition(": ")
    about, _, needs = about.partition(" Log: ")
    sql = "\n".join(line for line in lines if not line.startswith("--")) + "\n"
    found = _PARTS.search(sql)
    assert found is not None, f"{name}.sql has another form"
    keys = [key.strip() for key in found["keys"].split(",")] if found["keys"] else []
    named = dict(map(_item, _split(found["items"])))
    return Panel(
        name,
        title,
        about,
        needs,
        sql,
        {column: expression for column, expression in named.items() if column in keys or expression in keys},
    )


def _item(text: str) -> tuple[str, str]:
    """Name and expression of a column."""
    expression, _, name = text.rpartition(" AS ")
    return (name.strip(), expression.strip()) if expression else (text.strip(), text.strip())


def _split(items: str) -> list[str]:
    """At the commas that are in no brackets and no text."""
    found, depth, quoted, start = [], 0, False, 0
    for place, char in enumerate(items):
        quoted ^= char == "'"
        if quoted:
            continue
        depth += (char == "(") - (char == ")")
        if char == "," and not depth:
            found.append(items[start:place])
            start = place + 1
    return [*found, items[start:]]


def _condition(one: Filter) -> str:
    panel = next((panel for panel in panels() if panel.name == one.panel), None)
    if panel is None or one.column not in panel.columns:
        raise UserError(f"no panel {one.panel} has a column {one.column} to filter by")
    expression = panel.columns[one.column]
    return f"({expression}) IS NULL" if one.value is None else f"({expression}) = {_literal(one.value)}"


def _literal(value: str | float | bool) -> str:
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    return str(value).upper() if isinstance(value, bool) else repr(value)
