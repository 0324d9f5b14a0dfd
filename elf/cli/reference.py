"""``docs/elf-ql.md``: the reference of the language, made from the code: ``python -m elf.cli.reference`` writes it.

Functions, their other names and aggregates come from the tables that the binder uses; the answers under the
examples from running each over ``SAMPLE``, as ``elf run`` does.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from elf.bench.differential.differences import DIFFERENCES
from elf.cli.values import cell
from elf.client.windows import Window, split
from elf.ql.bind_aggregates import AGGREGATES
from elf.ql.functions import ALIASES, FUNCTIONS, PARTS
from elf.ql.kinds import CAST_TYPES

PAGE: Final = Path(__file__).parents[2] / "docs" / "elf-ql.md"

SAMPLE: Final = """\
{"ts": "2026-01-01T00:00:01Z", "host": "web-1", "page": "/", "status": 200, "ms": 12.5, "user": {"name": "ada"}}
{"ts": "2026-01-01T00:00:04Z", "host": "web-2", "page": "/cart", "status": 200, "ms": 48.0, "user": {"name": "bob"}}
{"ts": "2026-01-01T00:00:09Z", "host": "web-1", "page": "/", "status": 304, "ms": 2.0, "user": {"name": "ada"}}
{"ts": "2026-01-01T00:00:12Z", "host": "web-1", "page": "/cart?id=7", "status": 500, "ms": 1250.0, "user": null}
{"ts": "2026-01-01T00:00:17Z", "host": "web-2", "page": "/", "status": 200, "ms": 9.5, "user": {"name": "eve"}}
{"ts": "2026-01-01T00:00:23Z", "host": "web-2", "page": "/help", "status": 404, "ms": 3.0, "user": {"name": "bob"}}
"""

AGGREGATE_TEXTS: Final = {
    "count": ("COUNT(*), COUNT(x)", "how many rows, or how many with a value"),
    "sum": ("SUM(number)", "of integers exact, of 38 digits"),
    "avg": ("AVG(number)", "the mean, a double"),
    "min": ("MIN(x)", "the least"),
    "max": ("MAX(x)", "the greatest"),
    "bool_and": ("BOOL_AND(condition)", "whether it holds for all"),
    "every": ("EVERY(condition)", "the same"),
    "bool_or": ("BOOL_OR(condition)", "whether it holds for any"),
    "stddev": ("STDDEV(number)", "STDDEV_SAMP"),
    "stddev_samp": ("STDDEV_SAMP(number)", "the deviation of a sample; NULL for one row"),
    "stddev_pop": ("STDDEV_POP(number)", "the deviation of a population"),
    "variance": ("VARIANCE(number)", "VAR_SAMP"),
    "var_samp": ("VAR_SAMP(number)", "the variance of a sample; of integers exact"),
    "var_pop": ("VAR_POP(number)", "the variance of a population; of integers exact"),
    "first": ("FIRST(x)", "by event time; of several at one time the least"),
    "last": ("LAST(x)", "by event time; of several at one time the greatest"),
    "approx_count_distinct": ("APPROX_COUNT_DISTINCT(x)", "HyperLogLog, standard error 1.6 %"),
    "median": ("MEDIAN(number)", "exact, between two values where need be"),
    "percentile": ("PERCENTILE(number, p)", "exact; p from 0 to 1"),
    "approx_percentile": ("APPROX_PERCENTILE(number, p)", "the value of that rank, to 0.79 %"),
    "approx_top_k": ("APPROX_TOP_K(x, k)", "the k most frequent values and how often, as JSON text; exact"),
}
"""Usage and meaning of each aggregate."""

EXAMPLES: Final[dict[str, tuple[str, ...]]] = {
    "Groups": (
        "SELECT status, COUNT(*) AS hits FROM log GROUP BY status",
        "SELECT split_part(page, '?', 1) AS page, COUNT(*) AS hits, AVG(ms) AS mean\nFROM log\n"
        "WHERE status < 500\nGROUP BY page\nHAVING COUNT(*) > 1\nORDER BY mean DESC",
        "SELECT host, page, COUNT(*) AS hits FROM log GROUP BY host, page ORDER BY hits DESC LIMIT 2",
    ),
    "Expressions": (
        "SELECT CASE WHEN status >= 500 THEN 'broken' WHEN status >= 400 THEN 'lost' ELSE 'fine' END AS how,\n"
        "       COUNT(*) AS hits\nFROM log\nGROUP BY how\nORDER BY hits DESC",
        "SELECT user.name AS name, MAX(ms) / 1000 AS seconds FROM log GROUP BY name ORDER BY 2 DESC",
        "SELECT COUNT(*) AS hits, SUM(status) / 0 AS nothing FROM log WHERE page LIKE '/c%' OR user.name IS NULL",
    ),
    "Aggregates": (
        "SELECT host, COUNT(*) AS hits, COUNT(*) FILTER (WHERE status >= 400) AS failed,\n"
        "       COUNT(DISTINCT user.name) AS users\nFROM log\nGROUP BY host",
        "SELECT MEDIAN(ms) AS median, PERCENTILE(ms, 0.9) AS p90, FIRST(page) AS first, LAST(page) AS last FROM log",
        "SELECT APPROX_TOP_K(host, 2) AS hosts, BOOL_OR(status = 500) AS broken FROM log",
    ),
    "Windows": (
        "SELECT COUNT(*) AS hits FROM log WINDOWING 10 SECONDS",
        "SELECT host, MAX(ms) AS slowest FROM log GROUP BY host ORDER BY slowest DESC LIMIT 1\nWINDOWING 10 SECONDS",
        "SELECT COUNT(*) AS hits FROM log WINDOWING 20 SECONDS SLIDE 10 SECONDS LATENESS 5 SECONDS",
        "SELECT COUNT(*) AS hits FROM log WINDOW TUMBLING (SIZE 15 SECONDS)",
    ),
}  # fmt: skip

_INTRODUCTION: Final = """\
# ELF-QL

<!-- Made by `make docs` (python -m elf.cli.reference) from the code; change it there. -->

A query is a SELECT over one stream of log records. Its answer is a table a window, or one table where there is no
window clause (`elf run` only: a live stream needs one).

    SELECT expression [AS name], …  FROM stream | *
    [WHERE condition] [GROUP BY expression | name | number, …] [HAVING condition]
    [ORDER BY expression [ASC | DESC] [NULLS FIRST | LAST], …] [LIMIT n]
    [WINDOWING length [SLIDE length]] [LATENESS length]

| clause | what it means |
|---|---|
| `FROM name`, `FROM *` | the stream; in `elf run` any name means the given inputs |
| `WHERE` | rows for which it is not true are left out, before grouping |
| `GROUP BY` | columns, expressions, names or numbers of the SELECT list; NULL is a group of its own |
| `HAVING` | of groups, over keys and aggregates |
| `ORDER BY`, `SORT BY` | in each window; NULLs last unless said otherwise; ties by the group keys, ascending, NULLs last |
| `LIMIT` | so many rows of each window |
| `WINDOWING 30 SECONDS` | tumbling windows, aligned to 1970-01-01 UTC, half open; also `WINDOW TUMBLING (SIZE …)` |
| `WINDOWING 5 MINUTES SLIDE 30 SECONDS` | one that long, that often; also `WINDOW HOPPING (SIZE …, ADVANCE BY …)` |
| `LATENESS 2 SECONDS` | how long after its end a window waits for rows of its time; later ones are counted as late |

Units are MILLISECONDS, SECONDS, MINUTES, HOURS and DAYS. Statements around queries: `CREATE [OR REPLACE] JOB name AS
SELECT …`, `DROP JOB name`, `SUBSCRIBE name`, `EXPLAIN SELECT … | name`, `DESCRIBE name`, `SHOW JOBS | STREAMS | MEMBERS`.

Names are matched as written, else without regard to case; `"…"` or `` `…` `` around a name that is none. Columns of JSON
lines are paths (`user.name`). Operators: `+ - * / %`, `||`, `= == <> != < <= > >=`, `IS [NOT] DISTINCT FROM`,
`IS [NOT] NULL | TRUE | FALSE`, `[NOT] IN (…)`, `[NOT] BETWEEN … AND …`, `[NOT] LIKE`, `ILIKE`, `NOT`, `AND`, `OR`,
`CASE … END`, `CAST(x AS type)`, `TRY_CAST`. No expression fails on data: what overflows, divides by zero or does not cast
is NULL. `/` always gives a double, `%` takes the sign of the dividend.
"""


def page() -> str:
    """The whole text."""
    return "\n".join([_INTRODUCTION, *_types(), *_functions(), *_aggregates(), *_examples(), *_differences()])


def _types() -> Iterator[str]:
    names = sorted({name.value for name in CAST_TYPES} | {kind.upper() for kind in CAST_TYPES.values()})
    yield "## Types\n"
    yield f"`CAST` and `TRY_CAST` know {', '.join(f'`{name}`' for name in names)}. Integers have 64 bits, sums of them 38"
    yield "digits; timestamps are in UTC, of microseconds; there is no FLOAT and no DECIMAL.\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _functions() -> Iterator[str]:
    others: dict[str, list[str]] = {}
    for alias, name in ALIASES.items():
        others.setdefault(name, []).append(alias)
    yield "## Functions\n"
    yield "| function | what it gives |\n|---|---|"
    for function in FUNCTIONS.values():
        also = f" (also `{'`, `'.join(others[function.name])}`)" if function.name in others else ""
        yield f"| `{_cell(function.usage)}` | {_cell(function.about)}{also} |"
    yield f"\n`EXTRACT(part FROM timestamp)` takes {', '.join(f'`{part}`' for part in PARTS)}.\n"


def _aggregates() -> Iterator[str]:
    yield "## Aggregates\n"
    yield "Each passes over NULLs and may be followed by `FILTER (WHERE condition)`.\n"
    yield "| aggregate | what it gives |\n|---|---|"
    for name in AGGREGATES:
        usage, about = AGGREGATE_TEXTS[name]
        yield f"| `{usage}` | {about} |"
    distinct = ", ".join(
        f"`{name.upper()}(DISTINCT x)`" for name, rule in AGGREGATES.items() if rule.distinct
    )
    yield f"\nOver distinct values: {distinct}.\n"


def _examples() -> Iterator[str]:
    yield "## Examples\n"
    yield "Over these lines (`elf run --input sample.json -q …`):\n"
    yield from (f"    {line}" for line in SAMPLE.splitlines())
    with tempfile.TemporaryDirectory(prefix="elf-docs-") as folder:
        path = Path(folder) / "sample.json"
        path.write_text(SAMPLE, encoding="utf-8")
        for title, queries in EXAMPLES.items():
            yield f"\n### {title}"
            for sql in queries:
                yield f"\n```sql\n{sql}\n```\n"
                yield from answer(sql, path)
    yield ""


def answer(sql: str, path: Path) -> Iterator[str]:
    """The rows of a query over a file as a table of Markdown."""
    from agents.run import RunRequest, run

    windows: list[Window] = []
    run(RunRequest(sql, {"log": (str(path),)}), lambda result: windows.extend(split(result)))
    rows = [row for window in windows for row in window.table.to_pylist()]
    names = list(rows[0]) if rows else []
    yield f"| {' | '.join(names)} |"
    yield f"|{'---|' * len(names)}"
    for row in rows:
        yield f"| {' | '.join(_cell(_shown(value)) for value in row.values())} |"


def _shown(value: object) -> str:
    return "NULL" if value is None else cell(value)


def _differences() -> Iterator[str]:
    yield "## Where engines differ\n"
    yield "Agents and masters run DuckDB, offline checks run Spark. What is known to differ between them, and what is done"
    yield "about it (`elf bench differential` compares random queries):\n"
    yield "| what | the difference | how it is handled |\n|---|---|---|"
    for known in DIFFERENCES:
        yield f"| {known.name} | {_cell(known.what)} | {_cell(known.handled)} |"


def main() -> None:
    """Write the page; with ``-`` to standard output."""
    if sys.argv[1:] == ["-"]:
        sys.stdout.write(page() + "\n")
    else:
        PAGE.write_text(page() + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
