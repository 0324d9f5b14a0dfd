"""``docs/elf-ql.md``: the reference of the language, made from the code: ``python -m lab.reference``
writes it.

Functions, their other names and aggregates come from the tables that the binder uses; the answers under the
examples from running each over ``SAMPLE``, as ``elf run`` does.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from elf.client.files import tables_of
from elf.client.values import cell
from elf.client.windows import Window, split
from elf.ql.bind_aggregates import AGGREGATES
from elf.ql.catalogue import Entry, What, catalogue
from elf.ql.functions_time import PARTS
from elf.ql.kinds import CAST_TYPES
from elf.ql.plan import COUNTED

PAGE: Final = Path(__file__).parents[1] / "docs" / "elf-ql.md"

SAMPLE: Final = """\
{"ts": "2026-01-01T00:00:01Z", "host": "web-1", "page": "/", "status": 200, "ms": 12.5, "user": {"name": "ada"}}
{"ts": "2026-01-01T00:00:04Z", "host": "web-2", "page": "/cart", "status": 200, "ms": 48.0, "user": {"name": "bob"}}
{"ts": "2026-01-01T00:00:09Z", "host": "web-1", "page": "/", "status": 304, "ms": 2.0, "user": {"name": "ada"}}
{"ts": "2026-01-01T00:00:12Z", "host": "web-1", "page": "/cart?id=7", "status": 500, "ms": 1250.0, "user": null}
{"ts": "2026-01-01T00:00:17Z", "host": "web-2", "page": "/", "status": 200, "ms": 9.5, "user": {"name": "eve"}}
{"ts": "2026-01-01T00:00:23Z", "host": "web-2", "page": "/help", "status": 404, "ms": 3.0, "user": {"name": "bob"}}
"""

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
        "SELECT host, MAX_BY(page, ms) AS slowest, ARRAY_AGG(page) AS pages, HISTOGRAM(ms, 25) AS times\nFROM log\nGROUP BY host",
    ),
    "Windows": (
        "SELECT COUNT(*) AS hits FROM log WINDOWING 10 SECONDS",
        "SELECT host, MAX(ms) AS slowest FROM log GROUP BY host ORDER BY slowest DESC LIMIT 1\nWINDOWING 10 SECONDS",
        "SELECT COUNT(*) AS hits FROM log WINDOWING 20 SECONDS SLIDE 10 SECONDS LATENESS 5 SECONDS",
        "SELECT COUNT(*) AS hits FROM log WINDOW TUMBLING (SIZE 15 SECONDS)",
        "SELECT host, COUNT(*) AS hits FROM log GROUP BY host WINDOWING SESSION 10 SECONDS",
        "SELECT COUNT(*) AS hits FROM log WINDOWING CUMULATE 30 SECONDS STEP 10 SECONDS, 15 SECONDS",
        "SELECT host, COUNT(*) AS hits, LAG(COUNT(*)) AS before, LEAD(COUNT(*), 1, 0) AS after\nFROM log\nGROUP BY host\n"
        "WINDOWING 10 SECONDS",
        "SELECT host, MAX(ms) AS slowest FROM log GROUP BY host WINDOWING 4 ROWS",
    ),
    "Joins": (
        "SELECT s.kind, COUNT(*) AS hits, MAX(s.meaning) AS for_instance\n"
        "FROM log LEFT JOIN 'examples/statuses.csv' AS s ON log.status = s.status\nGROUP BY s.kind",
        "SELECT a.host, COUNT(*) AS looks, COUNT(b.page) AS followed\n"
        "FROM log AS a LEFT JOIN log AS b\n  ON a.host = b.host AND b.ts > a.ts AND b.ts <= a.ts + INTERVAL 10 SECONDS\n"
        "GROUP BY a.host WINDOWING 30 SECONDS",
    ),
    "Jobs over jobs": (
        "CREATE JOB pages AS SELECT page, COUNT(*) AS hits FROM log GROUP BY page WINDOWING 10 SECONDS;\n"
        "SELECT page, hits FROM JOB pages WHERE hits > 1",
        "CREATE JOB pages AS SELECT page, COUNT(*) AS hits FROM log GROUP BY page WINDOWING 10 SECONDS;\n"
        "SELECT MAX(hits) AS most, COUNT(DISTINCT page) AS pages FROM JOB pages WINDOWING 30 SECONDS",
        "CREATE JOB pages AS SELECT page, COUNT(*) AS hits FROM log GROUP BY page WINDOWING 10 SECONDS;\n"
        "CREATE JOB slow AS SELECT page, MAX(ms) AS ms FROM log GROUP BY page WINDOWING 10 SECONDS;\n"
        "SELECT p.page, hits, ms FROM JOB pages AS p LEFT JOIN JOB slow AS s ON p.page = s.page AND s.ms > 10",
    ),
    "Several stages: map → partitioned reduce → partitioned reduce → master": (
        "SELECT host, COUNT(*) AS pages, MAX(hits) AS most\n"
        "FROM (SELECT host, page, COUNT(*) AS hits FROM log GROUP BY host, page) AS pages\nGROUP BY host\nTREES 4",
        "CREATE JOB pages AS\nSELECT host, page, COUNT(*) AS hits FROM log GROUP BY host, page WINDOWING 10 SECONDS TREES 4;\n"
        "SELECT host, COUNT(*) AS pages, MAX(hits) AS most FROM JOB pages GROUP BY host WINDOWING 1 MINUTE",
    ),
    "Beyond groups": (
        "SELECT host, status, COUNT(*) AS hits FROM log GROUP BY ROLLUP (host, status)",
        "SELECT host, page, COUNT(*) AS hits FROM log GROUP BY host, page ORDER BY hits DESC LIMIT 1 BY host",
        "SELECT page, COUNT(*) AS hits,\n       SUM(COUNT(*)) OVER (ORDER BY page ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) AS with_the_one_before\n"
        "FROM log\nWHERE page ~ '^/[a-z]*$'\nGROUP BY page",
        "SELECT MAX(hits) AS most, COUNT(*) AS pages FROM (SELECT page, COUNT(*) AS hits FROM log GROUP BY page) AS pages",
    ),
}  # fmt: skip

WINDOWS: Final = (
    ("WINDOWING 30 SECONDS", "tumbling; also `WINDOW TUMBLING (SIZE …)`"),
    ("WINDOWING 5 MINUTES SLIDE 30 SECONDS", "sliding; also `WINDOW HOPPING (SIZE …, ADVANCE BY …)`"),
    ("WINDOWING CUMULATE 1 DAY STEP 1 HOUR", "from the start of each day to each full hour"),
    ("WINDOWING LANDMARK EVERY 30 SECONDS", "all since the job began (`elf run`: since the first row), after each 30 s that brought a row"),
    ("WINDOWING SESSION 60 SECONDS MAX 1 HOUR", "rows of a key less than the gap apart, cut at multiples of half of MAX (one day without it); alone in a job"),
    ("WINDOWING 1000 ROWS", "1,000 rows each that WHERE lets through, of one file of an agent, in their order there; also `WINDOW TUMBLING (SIZE 1000 ROWS)`; alone in a job. `window_number` counts from 1 in each version of the job (RESUME makes one): version, source and number tell a window"),
    ("WINDOWING 10 MINUTES, 1 HOUR, 1 DAY", "several at once, of all kinds but sessions and rows"),
)  # fmt: skip
"""Usage and meaning of each kind of window."""

_INTRODUCTION: Final = """\
# ELF-QL

<!-- Made by `make docs` (python -m lab.reference) from the code; change it there. -->

A query is a SELECT over the records of streams. Its answer is a table a window, or one table where there is no window
clause (`elf run` only: a live stream needs one). In `elf run` any name after FROM means the inputs, unless `--stream name=path` gives several.

Units of time are MILLISECONDS, SECONDS, MINUTES, HOURS and DAYS. Statements around queries: `CREATE [OR REPLACE] JOB name AS
SELECT …`, `ALTER JOB name AS SELECT … | SET parameter = constant | SET TABLE name FROM 'file' | SET TABLE name FROM TABLE name | SET FUNCTION map FROM 'file' | SET
FUNCTION reduce FROM 'file' | SET FUNCTION final FROM 'file' | DROP FUNCTION map | DROP FUNCTION reduce | DROP FUNCTION final | TREES n [PREVIEW n WINDOWS] | SCALE OUT n | SCALE IN n | SCALE AUTO (least, most) | MOVE TO 'agent' | OFFLOAD 'agent' TO 'helper' | OFFLOAD 'agent' BACK`,
`PAUSE | RESUME | EMPTY | DROP JOB name`, `ROLLBACK JOB name TO VERSION n`, `SUBSCRIBE name`, `EXPLAIN [ANALYZE | OFFLINE] SELECT … | name`, `EXPLAIN LATENCY name`, `EXPLAIN ROUTES` (a job of that name: `EXPLAIN JOB routes`; [regions](regions.md)), `DESCRIBE [JOB | STREAM | TABLE] name`, `NOTIFY JOB name 'text'`, `CREATE OUTPUT name FROM JOB job TO 'target' [WITH (option = value, …)] [FROM BEGINNING | NOW]`,
`DROP OUTPUT name` ([outputs](outputs.md)), `CREATE ALERT name ON JOB job WHEN condition [BY column, …] [FOR n WINDOWS] [COVERAGE >= share] NOTIFY 'target'`,
`DROP ALERT name` ([alerts](alerts.md)), `CREATE TABLE name FROM JOB job KEY (column, …) [SHARDS m] [RETAIN n DAYS]`, `[EXPLAIN] ALTER TABLE name SET KEY (column, …)`, `ALTER TABLE name PAUSE | RESUME`, `DROP TABLE name`, `SELECT … FROM name [AS OF ANY] …` over a table ([tables](tables.md)), `CREATE [OR REPLACE] AGGREGATE name FROM 'file.py'`, `DROP AGGREGATE name` ([aggregates of one's own](aggregates.md)), `SHOW JOBS | OUTPUTS | ALERTS | TABLES | AGGREGATES | STREAMS | MEMBERS | ARCHIVES | DECISIONS | SCALE IN n`, `SELECT … FROM JOB name WINDOWS [SINCE 'time'] [UNTIL 'time'] [ALL REVISIONS] …` and
`ROWS OF name WINDOW 'start' [TO 'end'] [WHERE condition] [LIMIT n]` ([history](history.md)). A job is its creator's: nobody else changes,
drops or notifies it, and two creators may each have one of a name. Others read it, where it is the only one of its name.

Names are matched as written, else without regard to case; `"…"` or `` `…` `` around a name that is none. Columns of JSON
lines are paths (`user.name`): nested keys, or a key that is written with its dots; where a line has both, the nested one counts, and the
other is a column of its own, asked for as `"user.name"` in double quotes (`DESCRIBE` shows it so). Of a key that is twice in an object
the first counts. No expression fails on data: what overflows, divides by zero or does not cast
is NULL. `/` always gives a double, `%` takes the sign of the dividend.
"""


def page() -> str:
    """The whole text."""
    parts = [_clauses(), _windows(), _types(), _operators(), _functions(), _aggregates(), _examples()]
    return "\n".join([_INTRODUCTION, *(line for part in parts for line in part), *_limits(), *_differences()])


def _entries(what: What) -> list[Entry]:
    return [entry for entry in catalogue() if entry.what == what]


def _clauses() -> Iterator[str]:
    yield "## Clauses\n\nIn their order; `log` in the examples is an access log.\n"
    for entry in _entries("clause"):
        yield f"- **{entry.name}**: `{entry.usage}`. {entry.about}\n  `{entry.example}`"
    yield ""


def _windows() -> Iterator[str]:
    yield "## Windows\n"
    yield "| windows | what they are |\n|---|---|"
    yield from (f"| `{usage}` | {about} |" for usage, about in WINDOWS)
    yield "\nAligned to 1970-01-01 UTC, half open. HAVING, OVER, QUALIFY, DISTINCT, LIMIT, OFFSET and subqueries are all of one"
    yield "window: its `window_start` and `window_end`.\n"


def _operators() -> Iterator[str]:
    yield "## Operators\n"
    yield "| operator | what it gives | for instance |\n|---|---|---|"
    for entry in _entries("operator"):
        yield f"| `{_cell(entry.usage)}` | {_cell(entry.about)} | {_example(entry)} |"
    yield ""


def _example(entry: Entry) -> str:
    return f"`{_cell(entry.example)}` is `{_cell(entry.gives)}`"


_SAMPLED = """\
The columns of JSON lines have the types that are seen where the input is sampled: whole numbers and fractions make DOUBLE, other
conflicts TEXT (a key that is an object in some lines is its JSON there). A query keeps the types that it was planned with; a value that is none of its column's is NULL to it, and counted as
`uncast` in the window's status (`elf run` says how many they were). `elf run --column price=double` (may be repeated) and an agent's
`streams.NAME.columns` declare types, and a job that is altered or made anew sees those of then.
"""
_ORIGINS: Final = """\
Every stream has four kinds of columns more, all of them TEXT, which no `*` stands for:

| column | what it has |
|---|---|
| `_agent` | the name of the agent that has read the row (`agent.name`); in `elf run` that of the machine |
| `_source` | the path of the log that the row is in; also when rotation has given its file another name. Of lines that were sent: their type and the sender's address, `syslog:10.0.0.7` |
| `_labels.NAME` | what the agent's `agent.labels` have under that name; NULL where they have none |
| `_line` | the line as it is written |

`FROM access ON place = 'eu' AND role <> 'test'` is short for `WHERE _labels.place = 'eu' AND _labels.role <> 'test'`: the names in
ON are labels, and what else stands in WHERE must hold too. Only agents that may have such labels are asked: the others compute nothing,
and a window neither covers nor misses them. Where only SQL can tell (`LENGTH(place) = 2`), all are asked. An agent that is started again
with other labels is asked for what it was, too. `EXPLAIN` says how many agents are asked.

`SELECT _agent, COUNT(*) FROM clicks WHERE sc_status >= 500 GROUP BY _agent` says which server it was. A key of a JSON line with such
a name, or with `_labels.` before it, is not seen. Of two streams that are joined these columns are those of the left one. A job that
reads `_agent`, `_source` or labels runs on each agent for its own rows: with `STRAGGLERS MIRROR` no other agent runs it again.
"""
_TIMES: Final = """\
A timestamp has one grammar, whether the time of a line, a column, a `CAST`, `TIMESTAMP '…'` or a text constant beside a timestamp is
read: RFC 3339 (`2026-03-01T12:00:00.5Z`; `t`, `z`, a blank for the `T`, a comma before the fraction, no seconds, `+02:00`, `+0200`,
`+02`, `UTC`, `GMT` or no zone, which is UTC (in lines: the stream's `timezone`), will do), dates alone (`2026-03-01` is its midnight), dates of the common log format
(`01/Mar/2026:12:00:00 +0000`, also in brackets), and numbers since 1970: seconds below 10¹¹, milliseconds below 10¹⁴, microseconds
below 10¹⁷. Blanks around it are none of it, and digits below the microsecond are cut off. `24:00:00` is the end of the day; a leap
second, `23:59:60` in UTC, is the first second of the next day. What is no such text, or outside of the years 1 to 9999, is NULL:
counted as `uncast` of a column, refused as a constant, and, as of any `CAST`, not counted of a value in an expression:
`SUM(CASE WHEN raw IS NOT NULL AND CAST(raw AS TIMESTAMP) IS NULL THEN 1 ELSE 0 END)` does.

The time of a JSON line is the first of `ts`, `timestamp`, `@timestamp`, `time` and `created_at` that shows one, unless a
column is named (`elf run --timestamp`, `streams.NAME.timestamp`). Windows reject a line without a time, or
with one outside of the years 2 to 9998. Every query rejects
lines that are not of the stream's format, have a NUL byte, are not UTF-8 or are longer than `max_line_bytes`: they are counted,
and agents keep them in a reject file.

## Access logs

All formats, and their columns: [Formats](formats.md). `combined` is `client identity user [date] "request" status bytes "referer" "user agent"`, and `common` the same without the last
two. `-` is NULL, and backslash escapes stay as written. A line of which it is not certain who asked is rejected.

- In front may stand a virtual host: with its port (Apache's `vhost_combined`: `shop.example:443 192.0.2.1 - - […]`), or without
  one if the client is an address. It is in `cs_host` and `s_port`.
- Of a list of addresses (`198.51.100.7, 203.0.113.1 - - […]`, as in `X-Forwarded-For`) the client is the first; `_line` has the
  others. Two addresses without a comma are rejected.
- The user may have blanks where the identity is `-` (`192.0.2.1 - John Smith […]`); a lone `-` among more words is an empty field,
  and such a line is rejected.
- What follows the last field are the columns `extra_1`, `extra_2` and so on, with types told from samples; such lines are counted
  (`elf_rows_beyond_total`), and `elf run`, `validate` and the agent's log say so. `common` takes the lines of `combined` too, with
  referer and user agent as `extra_1` and `extra_2`. A line with a quote that has no fellow is rejected.
- Of the request the first word is the method, the last one the version if it is one (`HTTP/1.1`; of RTSP and SIP too), and what is
  between the target, with the blanks within it; without a version a target with blanks begins with `/`. Before its first `?` is
  `cs_uri_stem`, behind it `cs_uri_query`. Both are as written: `http://host/a` of a proxy's request (`url_path` takes the path out),
  `host:443` of CONNECT, `*` of OPTIONS, `//a/b` with both slashes (the URL functions would see the host `a` there). Of any other
  request (noise of TLS, `-`) the parts are NULL; the line counts.
"""


def _types() -> Iterator[str]:
    names = sorted({name.value for name in CAST_TYPES} | {kind.upper() for kind in CAST_TYPES.values()})
    yield "## Types\n"
    yield f"`CAST` and `TRY_CAST` know {', '.join(f'`{name}`' for name in names)}. Integers have 64 bits, sums of them 38"
    yield "digits; timestamps are in UTC, of microseconds; there is no FLOAT and no DECIMAL.\n"
    yield _SAMPLED
    yield _ORIGINS
    yield _TIMES


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _functions() -> Iterator[str]:
    yield "## Functions"
    group = ""
    for entry in _entries("function"):
        if entry.group != group:
            group = entry.group
            yield f"\n### {group[0].upper() + group[1:]}\n"
            yield "| function | what it gives | for instance |\n|---|---|---|"
        also = f" (also `{'`, `'.join(entry.aliases)}`)" if entry.aliases else ""
        yield f"| `{_cell(entry.usage)}` | {_cell(entry.about)}{also} | {_example(entry)} |"
    yield f"\n`EXTRACT(part FROM timestamp)` takes {', '.join(f'`{part}`' for part in PARTS)}.\n"


def _aggregates() -> Iterator[str]:
    yield "## Aggregates\n"
    yield "Each passes over NULLs and may be followed by `FILTER (WHERE condition)`. The examples are over the lines below.\n"
    yield "| aggregate | what it gives | for instance |\n|---|---|---|"
    entries = _entries("aggregate")
    calls = ", ".join(f"{entry.example} AS a{number}" for number, entry in enumerate(entries))
    (row,) = rows(f"SELECT {calls} FROM log")
    for entry, value in zip(entries, row.values(), strict=True):
        yield f"| `{_cell(entry.usage)}` | {_cell(entry.about)} | `{entry.example}` is `{_cell(_shown(value))}` |"
    distinct = ", ".join(
        f"`{name.upper()}(DISTINCT x)`" for name, rule in AGGREGATES.items() if rule.distinct
    )
    yield f"\nOver distinct values: {distinct}. What is not here may be [one's own](aggregates.md).\n"


def _examples() -> Iterator[str]:
    yield "## Examples\n"
    yield "Over these lines (`elf run --input sample.json -q …`):\n"
    yield from (f"    {line}" for line in SAMPLE.splitlines())
    for title, queries in EXAMPLES.items():
        yield f"\n### {title}"
        for sql in queries:
            yield f"\n```sql\n{sql}\n```\n"
            yield from answer(sql)
    yield ""


def rows(sql: str) -> list[dict[str, object]]:
    """The rows of a query over the sample, as ``elf run`` gives them. The sample has no folder."""
    from agents.run import run
    from agents.runinputs import Asked, RunRequest

    windows: list[Window] = []
    with tempfile.TemporaryDirectory(prefix="elf-docs-") as folder:
        path = Path(folder) / "sample.json"
        path.write_text(SAMPLE, encoding="utf-8")
        request = RunRequest(Asked(sql), {"log": (str(path),)}, tables=tables_of(sql))
        run(request, lambda result: windows.extend(split(result)))
    found: list[dict[str, object]] = [row for window in windows for row in window.table.to_pylist()]
    return [row | {one: Path(str(row[one])).name for one in COUNTED[:1] if one in row} for row in found]


def answer(sql: str) -> Iterator[str]:
    """The rows of a query over the sample as a table of Markdown."""
    found = rows(sql)
    names = list(found[0]) if found else []
    yield f"| {' | '.join(names)} |"
    yield f"|{'---|' * len(names)}"
    for row in found:
        yield f"| {' | '.join(_cell(_shown(value)) for value in row.values())} |"


def _shown(value: object) -> str:
    return "NULL" if value is None else cell(value)


def _limits() -> Iterator[str]:
    from elf.ql.fuel import CHARS_MAX, DEPTH_MAX, FUEL, STATEMENTS_MAX, TOKENS_MAX

    yield "## Limits\n"
    yield f"A text of statements has at most {CHARS_MAX:,} characters, {TOKENS_MAX:,} words and signs (constants and commas count half), and {STATEMENTS_MAX}"
    yield f"statements; brackets stand at most {DEPTH_MAX} deep in one another. Expressions that grow beyond {FUEL:,} parts when subqueries"
    yield "are put into one another are refused; a joined table counts a part for each 4 KiB that it comes to. Each refusal names"
    yield "the limit. For a long list of values join a file ([joins](joins.md)).\n"


def _differences() -> Iterator[str]:
    from lab.bench.differential.differences import DIFFERENCES

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
