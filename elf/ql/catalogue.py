"""All that the language has, for people: the reference page is made from it, and its examples are tests.

Functions and aggregates are described where they are implemented, clauses and operators here; ``catalogue``
brings them into one form. The examples of clauses are queries over a stream ``log`` with the columns of an
access log.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Final, Literal

from msgspec import Struct

from elf.ql.bind_aggregates import AGGREGATES
from elf.ql.functions import GROUPS

What = Literal["clause", "operator", "function", "aggregate"]


class Entry(Struct, frozen=True):
    """One element of the language.

    ``example``: for a clause a whole query over an access log, for an operator or function an expression, and
    what it ``gives``; for an aggregate a call over the sample of ``lab.reference``.
    """

    what: What
    group: str
    name: str
    usage: str
    about: str
    example: str = ""
    gives: str = ""
    aliases: tuple[str, ...] = ()


Clause: Final = partial(Entry, "clause", "clauses")
Operator: Final = partial(Entry, "operator", "operators")

CLAUSES: Final[tuple[Entry, ...]] = (
    Clause("SELECT", "SELECT expression [AS name], …",
           "What each row of the result holds, over the keys of GROUP BY and aggregates. Without GROUP BY "
           "all rows are one group.",
           "SELECT COUNT(*) AS hits, SUM(sc_bytes) AS bytes FROM log"),
    Clause("FROM", "FROM stream, … | * | LATE job | JOB job [[AS] name] [[LEFT] JOIN JOB job [[AS] name] ON "
           "condition | USING (column, …)] …",
           "The streams whose rows are read, those of several together (no product); * means all that there "
           "are. LATE job: the rows that came too late for a job's windows. JOB job: the rows of a job's "
           "windows, each window by itself; the two read one flow, and the job is not changed or dropped "
           "while it is read. A WINDOWING of its own makes larger windows, each of whole tumbling windows of "
           "the job: a row is in those that hold its window. JOIN JOB puts the rows of jobs with the same "
           "windows beside each other, in each window (LEFT keeps those of the first job without a match). "
           "elf run creates the jobs first: CREATE JOB a AS …; SELECT … FROM JOB a.",
           "SELECT COUNT(*) FROM *"),
    Clause("JOIN", "[LEFT] JOIN 'file' | TABLE name [AS name] ON condition | USING (column, …)",
           "Each row beside those of a table that match; LEFT keeps rows without a match. The file (.csv, "
           ".tsv, .json, .parquet or SQLite, there with 'shop.db:table') is read where the query is sent "
           "from, with its first line as names if it is a CSV, and goes with the job: 256 KiB of what is "
           "needed of it, compressed. ALTER JOB j SET TABLE name FROM 'file' takes a new one. TABLE: the "
           "rows of a job's table, in a fleet; they are read again while the job runs, and all rows of a "
           "window meet the same. A name before a column (the file's without its ending, or that "
           "of AS) tells columns of one name apart.",
           "SELECT s.kind, COUNT(*) AS hits FROM log LEFT JOIN 'examples/statuses.csv' AS s "
           "ON sc_status = s.status GROUP BY s.kind"),
    Clause("IN (SELECT …)", "WHERE x [NOT] IN (SELECT column FROM 'file' | TABLE name [AS name])",
           "Whether x is among the values of a column of a table, which goes with the job as with JOIN; rows "
           "stay single however often a value is there. Unknown, as in SQL, where it is not found and x or a "
           "value of the table is NULL. Of a stream or a job there is no such list: write HAVING COUNT(*) "
           "FILTER (WHERE …) > 0, or a JOIN.",
           "SELECT COUNT(*) AS n FROM log WHERE sc_status IN (SELECT status FROM 'examples/statuses.csv')"),
    Clause("JOIN of streams",
           "FROM stream [[AS] a] [LEFT] JOIN stream [[AS] b] ON condition | USING (column, …)",
           "Rows of two streams side by side, or of one stream with itself. There must be an equality of "
           "the two and, for their event times, a bound both ways, of a day at most (in ON, or in WHERE if "
           "it is no LEFT JOIN): rows are kept for so long. A row is in the window of the left one's event "
           "time, which is complete when both streams have come as far as the interval goes beyond its end; "
           "LEFT keeps left rows without a partner. A new job's first window begins when the interval before "
           "it has been read. Not with sessions, landmarks, EMIT CHANGES or APPROXIMATE.",
           "SELECT a.cs_uri_stem, COUNT(*) AS again FROM log AS a JOIN log AS b ON a.c_ip = b.c_ip AND "
           "a.cs_uri_stem = b.cs_uri_stem AND b.ts > a.ts AND b.ts <= a.ts + INTERVAL 10 SECONDS "
           "GROUP BY a.cs_uri_stem WINDOWING 1 MINUTE"),
    Clause("WHERE", "WHERE condition",
           "Rows for which the condition is not true are left out, on the agents.",
           "SELECT COUNT(*) AS missing FROM log WHERE sc_status = 404"),
    Clause("GROUP BY", "GROUP BY expression | alias | ordinal, …",
           "A row of the result for each distinct key.",
           "SELECT url_path(cs_uri_stem) AS path, COUNT(*) AS hits FROM log GROUP BY path"),
    Clause("HAVING", "HAVING condition", "Groups for which the condition is not true are left out.",
           "SELECT c_ip, COUNT(*) AS hits FROM log GROUP BY c_ip HAVING hits > 100"),
    Clause("ORDER BY", "ORDER BY expression [ASC | DESC] [NULLS FIRST | LAST], …",
           "The order of the rows of a window; SORT BY is the same. NULLs are last unless the query says "
           "otherwise, ties go by the keys, ascending.",
           "SELECT c_ip, COUNT(*) AS hits FROM log GROUP BY c_ip ORDER BY hits DESC, c_ip"),
    Clause("SELECT DISTINCT", "SELECT DISTINCT expression, …", "Each row of a window once.",
           "SELECT DISTINCT cs_method, sc_status FROM log"),
    Clause("GROUPING SETS", "GROUP BY ROLLUP (a, b) | CUBE (a, b) | GROUPING SETS ((a, b), (a), ())",
           "Totals and subtotals in one result; GROUPING(a) is 1 in rows that are not grouped by a. Without "
           "windows the grand total is there over no rows too; a set that is there twice has its rows twice.",
           "SELECT sc_status, cs_method, COUNT(*) AS hits FROM log GROUP BY ROLLUP (sc_status, cs_method)"),
    Clause("OVER",
           "ROW_NUMBER() | RANK() | DENSE_RANK() | LAG(x[, n]) | LEAD(x[, n]) OVER ([PARTITION BY a, …] "
           "ORDER BY b, …), COUNT | SUM | AVG | MIN | MAX | FIRST_VALUE | LAST_VALUE (…) OVER "
           "([PARTITION BY a, …] [ORDER BY b, … [ROWS | RANGE BETWEEN start AND end]])",
           "A group's place, a total or another group's value, among the groups of its window. A frame "
           "begins and ends at UNBOUNDED PRECEDING, n PRECEDING, CURRENT ROW, n FOLLOWING or UNBOUNDED "
           "FOLLOWING (n with ROWS only); with ORDER BY alone it goes from the first row to the last that is "
           "equal. Equal rows are in the order of the keys.",
           "SELECT sc_status, 100 * COUNT(*) / SUM(COUNT(*)) OVER () AS percent FROM log GROUP BY sc_status"),
    Clause("LAG", "LAG(x[, n[, default]]), LEAD(x[, n[, default]])",
           "What x, of aggregates, is for the same group in the window before (LEAD: after), or n before; "
           "NULL, or the default, where the group is not in that window. Before a sliding window is the one "
           "that began a SLIDE earlier. As OVER (PARTITION BY all keys ORDER BY window_start). A job's first "
           "window is the first that has all before it; LEAD waits for what comes after; what revises a "
           "window revises those that look at it. Windows of one size, not with EMIT CHANGES; from the first "
           "window to the last it is 100,000 panes at most, and ten years.",
           "SELECT sc_status, COUNT(*) - LAG(COUNT(*), 1, 0) AS more FROM log GROUP BY sc_status "
           "WINDOWING 1 MINUTE"),
    Clause("QUALIFY", "QUALIFY condition",
           "Which groups stay, by window functions: the top of each of something.",
           "SELECT sc_status, c_ip, COUNT(*) AS hits FROM log GROUP BY sc_status, c_ip "
           "QUALIFY ROW_NUMBER() OVER (PARTITION BY sc_status ORDER BY hits DESC) <= 3"),
    Clause("LIMIT BY", "LIMIT n BY a, …", "The first n rows of each a, in each window.",
           "SELECT sc_status, c_ip, COUNT(*) AS hits FROM log GROUP BY sc_status, c_ip "
           "ORDER BY hits DESC LIMIT 3 BY sc_status"),
    Clause("OFFSET", "OFFSET n", "Leaves the first n rows of each window out.",
           "SELECT c_ip, COUNT(*) AS hits FROM log GROUP BY c_ip ORDER BY hits DESC LIMIT 10 OFFSET 10"),
    Clause("LIMIT", "LIMIT n", "The first n rows of each window.",
           "SELECT c_ip, COUNT(*) AS hits FROM log GROUP BY c_ip ORDER BY hits DESC LIMIT 10"),
    Clause("LIMIT without groups", "SELECT * | expression [AS name], … FROM stream [WHERE condition] LIMIT n",
           "A look at n rows, 1,000 at most, at once. In a fleet it is a sample: the last rows among the "
           "1,000 lines of the stream that each agent keeps (20 of a chunk), of 64 agents at most; it needs "
           "the role tap. In elf run they are the first rows of the inputs. What was looked at is said.",
           "SELECT *, _source FROM log WHERE sc_status >= 500 LIMIT 10"),
    Clause("WINDOWING", "WINDOWING size [SLIDE slide] | CUMULATE size STEP step | LANDMARK EVERY step | "
           "SESSION gap [MAX length] | n ROWS, …",
           "Windows of event time, or of rows, of the kinds below: a result each. WINDOW TUMBLING (SIZE …), "
           "HOPPING (SIZE …, ADVANCE BY …) and SESSION (gap) are the same. Windows are made of panes as long "
           "as all of them allow, or of the shorter ones of a flow that runs, where that costs less; EXPLAIN "
           "says which, and why. One has 100,000 panes at most.",
           "SELECT COUNT(*) AS hits FROM log WINDOWING 5 MINUTES SLIDE 30 SECONDS"),
    Clause("LATENESS", "LATENESS duration",
           "How long a window waits for rows that come out of order; what is later is counted and left out. "
           "It is the end of a row's pane that counts: where a window is several panes, also those of a flow "
           "with shorter ones that is shared (EXPLAIN), a row may be late while its window is open.",
           "SELECT COUNT(*) AS hits FROM log WINDOWING 30 SECONDS LATENESS 2 SECONDS"),
    Clause("WITHIN", "WITHIN duration FOR n PERCENT | ON AVERAGE [BEST EFFORT]",
           "Of a statement to a fleet: how soon a window is to be committed, counted from its end and "
           "LATENESS (that of its last pane): so many of the windows in a hundred, or their mean. What a "
           "model says cannot be kept is refused, with the best that can; BEST EFFORT takes it all the same. "
           "It changes no answer and no flow. Each window's status has promised_ms and took_ms; SHOW JOBS, "
           "DESCRIBE and EXPLAIN LATENCY say whether it is kept. Not with windows of rows or FROM LATE.",
           "SELECT COUNT(*) AS hits FROM log WINDOWING 30 SECONDS LATENESS 1 SECOND "
           "WITHIN 500 MILLISECONDS FOR 99 PERCENT"),
    Clause("PRIORITY", "PRIORITY RESEARCH | PRODUCTION",
           "Of a statement to a fleet: research gives way to production, as in the queue of elf offline. "
           "Where an agent gets more than it can map, and a job says WITHIN, rows of research are left out "
           "first, as far as that goes, also if research itself does not say WITHIN; windows say so. Without "
           "the clause it is production. It changes no flow; a flow that both read is production.",
           "SELECT COUNT(*) AS hits FROM log WINDOWING 30 SECONDS PRIORITY RESEARCH"),
    Clause("EMIT", "EMIT FINAL [REVISE [bound]] | CHANGES [EVERY period]",
           "When a window is said: once; again for rows that come up to so much later than LATENESS; or "
           "early and often, as the rows that differ.",
           "SELECT COUNT(*) AS hits FROM log WINDOWING 30 SECONDS EMIT FINAL REVISE 10 MINUTES"),
    Clause("STRAGGLERS", "STRAGGLERS WAIT duration | REVISE | LEAP | MIRROR",
           "What becomes of a window when agents are behind. REVISE (without the clause too): it waits two "
           "panes, 3 to 30 seconds (protocol.straggler_*_secs), and not for agents that are taken for dead; "
           "it comes without them, names them as missing, and is revised when they are back. WAIT: it waits "
           "so long for all, for dead agents too, 10 MINUTES at most; then as REVISE. MIRROR: as REVISE, "
           "but neighbours have copies of what an agent has of a pane at once (protocol.copies): when half "
           "of the time is up and it is behind, or does not get through, one of them answers for it, and the "
           "window is whole; where agents see one another's files (streams.NAME.shared), another one reads "
           "what it has not. LEAP: as REVISE, but a window does not wait for who is two panes behind half of "
           "the others, and is "
           "said once: rows of an agent that a window came without are left out for good, and counted as "
           "leapt by a later window of that agent's. As nothing is added to it later, agents then send only "
           "the groups that may be among the first of a LIMIT, where a window is one pane.",
           "SELECT COUNT(*) AS hits FROM log WINDOWING 30 SECONDS STRAGGLERS WAIT 60 SECONDS"),
    Clause("SINCE", "SINCE '-n unit' | 'timestamp'",
           "Of a statement to a fleet: the query begins in the past. Windows from that moment on are made of "
           "what agents have archived, in order, as fast as they come; then it goes on with new lines, and "
           "no line is counted twice or missed. Where an agent's archive begins later, windows before name "
           "it as missing; where no archive reaches back so far, they begin with the archives. A status "
           "says how many of the rows came from archives (archived). Not with TREES, EMIT CHANGES, "
           "STRAGGLERS LEAP, FROM LATE, FROM JOB or windows of rows. ALTER, ROLLBACK and RESUME begin now.",
           "SELECT COUNT(*) AS hits FROM log WINDOWING 30 SECONDS SINCE '-6 hours'"),
    Clause("WITH GRAPH", "GROUP BY from, to [HAVING …] WITH GRAPH components | pagerank | sssp(vertex) | "
           "mssp(vertex, …) [WEIGHT number] [ITERATIONS n] [HAVING …]; GROUP BY key WITH GRAPH "
           "kmeans(k, number, …)",
           "The groups of a window are edges of a graph, and the result is about its vertices: SELECT, "
           "HAVING after it, ORDER BY and LIMIT have vertex, component and size; vertex and rank; vertex and "
           "distance (mssp: source too); vertex, cluster and distance. SELECT * is all of these. Both keys "
           "are texts, or both integers; NULL is no vertex. WEIGHT, a number above 0 of aggregates, is the "
           "share of a rank that an edge takes, or its length; without it each edge weighs 1. A HAVING "
           "before it is about edges (graphs.md).",
           "SELECT vertex, component, size FROM log GROUP BY c_ip, cs_user_agent WITH GRAPH components "
           "HAVING size > 2 ORDER BY size DESC WINDOWING 1 HOUR"),
    Clause("SAMPLE", "FROM stream SAMPLE [BY key] n %",
           "Some rows stand for all: lines, or all lines of some keys, chosen by the md5 of the line or the "
           "key, so each agent, each window and Spark choose the same. COUNT and SUM are estimates of all "
           "rows, AVG is that of the sample, and COUNT(DISTINCT key) is estimated where key is that of BY. "
           "Beside each of these, name_error is half the width of an interval that holds the truth in 99 of "
           "100 cases; NULL where fewer than four keys make up the value. An expression of several has "
           "none, and other aggregates are refused. A group none of whose rows is in the sample is not in "
           "the answer. Where a few keys have most of a sum, a sample cannot know. Not in subqueries, nor "
           "with GROUP BY key, APPROXIMATE, joins of streams, FROM JOB, sessions or windows of rows.",
           "SELECT cs_method, COUNT(*) AS hits FROM log SAMPLE BY c_ip 1 % GROUP BY cs_method "
           "WINDOWING 30 SECONDS"),
    Clause("TREES", "TREES n",
           "The groups are spread over n trees of agents, and what comes after them (a GROUP BY around "
           "another, OVER) over the roots of these, as far as it can; the answer is the same.",
           "SELECT c_ip, COUNT(*) AS hits FROM log GROUP BY c_ip WINDOWING 30 SECONDS TREES 4"),
    Clause("APPROXIMATE", "LIMIT n APPROXIMATE",
           "Agents send their best groups only; error_bound says how much more a row may be.",
           "SELECT c_ip, COUNT(*) AS hits FROM log GROUP BY c_ip ORDER BY hits DESC LIMIT 10 APPROXIMATE "
           "WINDOWING 30 SECONDS"),
    Clause("subqueries", "FROM (SELECT …) [AS] name, WITH name AS (SELECT …) SELECT …",
           "A query over another's rows. One without groups becomes part of this one; one with groups is "
           "asked in each of its windows, about groups of its rows or (without aggregates) its rows as they "
           "are. The window is said once.",
           "WITH hosts AS (SELECT c_ip, COUNT(*) AS hits FROM log GROUP BY c_ip) "
           "SELECT MAX(hits) AS most, COUNT(*) AS hosts FROM hosts WINDOWING 1 MINUTE"),
    Clause("UNION ALL", "FROM (SELECT … FROM a UNION ALL SELECT … FROM b …) [AS] name",
           "Rows of several streams under the names of the first SELECT, each SELECT over one of them. What "
           "is grouped, and the windows, stand around it.",
           "SELECT kind, COUNT(*) AS n FROM (SELECT 'lost' AS kind FROM log WHERE sc_status = 404 UNION ALL "
           "SELECT cs_method FROM log) AS kinds GROUP BY kind"),
    Clause("WITH (…)", "… :name … WITH (name = constant, …)",
           "Values of parameters, at the end of a query: numbers, texts, TRUE, FALSE or NULL.",
           "SELECT COUNT(*) AS slow FROM log WHERE sc_bytes > :least WITH (least = 100000)"),
)  # fmt: skip
"""In the order of the reference."""

OPERATORS: Final[tuple[Entry, ...]] = (
    Operator("+ - *", "a + b, a - b, a * b", "Arithmetic. Integers have 64 bits; what does not fit is NULL.",
             "9223372036854775807 + 1", "NULL"),
    Operator("/", "a / b", "The quotient, always a double; NULL where b is 0.", "7 / 2", "3.5"),
    Operator("//", "a // b, a DIV b", "The quotient of integers without its fraction; NULL where b is 0.",
             "-7 // 2", "-3"),
    Operator("%", "a % b", "The remainder, with the sign of a; NULL where b is 0.", "-7 % 3", "-1"),
    Operator("comparisons", "= (or ==) <> < <= > >=",
             "NULL beside NULL is NULL. A text constant beside a number or a "
             "timestamp is read as one.", "2 == 2.0", "TRUE"),
    Operator("IS DISTINCT FROM", "a IS [NOT] DISTINCT FROM b", "A comparison for which NULL is a value.",
             "NULL IS DISTINCT FROM 1", "TRUE"),
    Operator("AND OR NOT", "a AND b, a OR b, NOT a", "With NULL for unknown.", "NULL AND FALSE", "FALSE"),
    Operator("BETWEEN", "a [NOT] BETWEEN low AND high",
             "Both ends belong to it.", "3 BETWEEN 1 AND 3", "TRUE"),
    Operator("IN", "a [NOT] IN (b, …)", "Whether it is one of the list.", "404 IN (403, 404)", "TRUE"),
    Operator("IS", "a IS [NOT] NULL | TRUE | FALSE", "Never NULL itself.", "NULL IS NULL", "TRUE"),
    Operator("LIKE", "text [NOT] LIKE | ILIKE pattern [ESCAPE 'c']",
             "% stands for any text, _ for one character, all else for itself; ILIKE without regard to case.",
             "'/a_b/c' LIKE '/a!_b/%' ESCAPE '!'", "TRUE"),
    Operator("~", "text ~ pattern, text !~ pattern, text ~* pattern, text RLIKE pattern",
             "Whether a regular expression, a constant, matches anywhere (!~: nowhere), as "
             "regexp_matches(text, pattern); ~* and !~* without regard to case.",
             "'/p/17' ~ '^/p/[0-9]+$'", "TRUE"),
    Operator("||", "a || b", "Texts in a row; NULL with NULL.", "'a' || 1", "'a1'"),
    Operator("->>", "json ->> path", "As json_extract_string(json, path).",
             """'{"a": {"b": 5}}' ->> '$.a.b'""",
             "'5'"),
    Operator("CASE", "CASE WHEN condition THEN value … [ELSE value] END, CASE a WHEN b THEN value … END",
             "The value of the first condition that is true, else that of ELSE, else NULL.",
             "CASE WHEN 404 < 400 THEN 'good' WHEN 404 < 500 THEN 'client' ELSE 'server' END", "'client'"),
    Operator("CAST", "CAST(a AS type), TRY_CAST(a AS type), a::type",
             "BIGINT, DOUBLE, TEXT, BOOLEAN, TIMESTAMP; what does not fit is NULL, with TRY_CAST or without.",
             "CAST('2.5' AS BIGINT)", "3"),
    Operator("EXTRACT", "EXTRACT(part FROM timestamp)", "As date_part(part, timestamp).",
             "EXTRACT(hour FROM TIMESTAMP '2024-05-03 04:05:06')", "4"),
    Operator("INTERVAL", "timestamp + INTERVAL n unit, timestamp - INTERVAL n unit",
             "MICROSECONDS … WEEKS have a length; MONTHS, QUARTERS and YEARS keep the day or take the last.",
             "TIMESTAMP '2024-01-31' + INTERVAL 1 MONTH", "TIMESTAMP '2024-02-29'"),
    Operator("AT TIME ZONE", "timestamp AT TIME ZONE '+02:00'",
             "Clocks at that offset; zones with rules ('Europe/Paris') are refused: the engines "
             "carry different tables.",
             "TIMESTAMP '2024-05-03 23:30:00' AT TIME ZONE '+02:00'",
             "TIMESTAMP '2024-05-04 01:30:00'"),
)  # fmt: skip
"""In the order of the reference."""


def catalogue() -> Iterator[Entry]:
    """Every entry, in the order of the reference."""
    yield from CLAUSES
    for name, rule in AGGREGATES.items():
        yield Entry("aggregate", "aggregates", name.upper(), rule.usage, rule.about, rule.example)
    yield from OPERATORS
    for group, functions in GROUPS.items():
        for one in functions:
            yield Entry(
                "function", group, one.name, one.usage, one.about, one.example, one.gives, one.aliases
            )
