"""What may come next in a statement that is being typed: keywords, streams, columns and jobs, by what stands
before the cursor.

A completer sees words, not a grammar: the last ones before the cursor say what kind of name is due, and the
streams that the statement names anywhere say whose columns. Where nothing is known everything is offered.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from elf.cli.ask import split

if TYPE_CHECKING:
    from prompt_toolkit.completion import Completer

_WORDS: Final = """
SELECT FROM WHERE GROUP BY HAVING ORDER LIMIT ASC DESC AS AND OR NOT IN IS NULL LIKE BETWEEN CASE WHEN
THEN ELSE END COUNT SUM MIN MAX AVG DISTINCT FILTER STDDEV VARIANCE FIRST LAST BOOL_AND BOOL_OR MEDIAN
ARRAY_AGG HISTOGRAM MAX_BY MIN_BY LAG LEAD OVER PARTITION ROWS PRECEDING FOLLOWING
PERCENTILE APPROX_COUNT_DISTINCT APPROX_PERCENTILE APPROX_TOP_K WINDOWING SLIDE SECONDS MINUTES HOURS
MILLISECONDS LATENESS WITHIN FOR PERCENT AVERAGE BEST EFFORT PRIORITY RESEARCH PRODUCTION
EMIT FINAL REVISE CHANGES EVERY LATE STRAGGLERS WAIT LEAP MIRROR CREATE REPLACE JOB DROP
ALTER PAUSE RESUME EMPTY ROLLBACK VERSION RESET IMMEDIATELY MOVE SCALE OUT AUTO OFFLOAD BACK
SHOW JOBS STREAMS MEMBERS ARCHIVES DESCRIBE
DECISIONS SUBSCRIBE NOTIFY EXPLAIN LATENCY ROUTES OFFLINE OUTPUT OUTPUTS TO WITH BEGINNING NOW ALERT ALERTS
TABLE TABLES KEY SHARDS RETAIN ANY COVERAGE OF WINDOW WINDOWS
SINCE UNTIL REVISIONS AGGREGATE AGGREGATES PREVIEW COMMIT GRAPH WEIGHT ITERATIONS
"""
KEYWORDS: Final = tuple(_WORDS.split())
_BEGIN: Final = """
SELECT CREATE DROP ALTER SUBSCRIBE SHOW DESCRIBE EXPLAIN PAUSE RESUME ROLLBACK EMPTY NOTIFY ROWS WITH
COMMIT
"""
BEGINNINGS: Final = tuple(_BEGIN.split())
"""Of statements."""
_SHOWN: Final = (
    "JOBS",
    "STREAMS",
    "MEMBERS",
    "OUTPUTS",
    "ALERTS",
    "TABLES",
    "AGGREGATES",
    "ARCHIVES",
    "DECISIONS",
    "SCALE IN",
)
_AFTER: Final[Mapping[str, Sequence[str]]] = {
    "SHOW": _SHOWN,
    "CREATE": ("JOB", "OR REPLACE JOB", "OUTPUT", "ALERT", "TABLE", "AGGREGATE"),
    "DROP": ("JOB", "OUTPUT", "ALERT", "TABLE", "AGGREGATE"),
    "ALTER": ("JOB", "TABLE"),
    "PAUSE": ("JOB",),
    "RESUME": ("JOB",),
    "ROLLBACK": ("JOB",),
    "EMPTY": ("JOB",),
    "NOTIFY": ("JOB",),
    "GROUP": ("BY",),
    "ORDER": ("BY",),
    "GRAPH": ("components", "pagerank", "sssp", "mssp", "kmeans"),
}
_WORD: Final = re.compile(r"[\w.]+\Z")
_TOKEN: Final = re.compile(r"'[^']*'?|[\w.]+|[^\s\w]")
_VALUES: Final = frozenset(
    {"SELECT", "WHERE", "BY", "AND", "OR", "NOT", "HAVING", "DISTINCT", "WHEN", "CASE"}
)
"""After these, and after punctuation, a column or a function is due."""
_FILES: Final = re.compile(r"(?:\\(?:g|i)\s+|\bFROM\s+')(?P<path>[^'\s]*)\Z", re.IGNORECASE)


@dataclass
class Names:
    """What an agent knows: ``columns`` of each stream, jobs, and commands of the shell."""

    columns: dict[str, Sequence[str]] = field(default_factory=dict)
    jobs: Sequence[str] = ()
    commands: Sequence[str] = ()

    @property
    def streams(self) -> list[str]:
        return sorted(self.columns)


def completions(before: str, after: str, names: Names) -> list[str]:
    """What may stand in place of the word before the cursor; all of it begins as that word does, in any
    case. ``after``: the text behind the cursor, which may name streams too."""
    rest = split(before).rest
    rest += before[len(before.rstrip()) :] if rest else ""
    if rest.count("'") % 2:
        return []  # within a text
    if rest.lstrip().startswith("\\"):
        return list(_of_command(rest.lstrip(), names))
    match = _WORD.search(rest)
    word = match.group() if match else ""
    tokens = [token.upper() for token in _TOKEN.findall(rest[: len(rest) - len(word)])]
    found = _wanted(tokens, f"{rest} {after}", names)
    return [one for one in dict.fromkeys(found) if one.lower().startswith(word.lower()) and one != word]


def _of_command(text: str, names: Names) -> Iterator[str]:
    """A command of the shell, or the name that it takes."""
    command, blank, word = text.partition(" ")
    wanted = names.commands if not blank else ()
    if blank and command == "\\d":
        wanted = [*names.jobs, *names.streams]
    elif blank and command in ("\\timing", "\\pager", "\\live"):
        wanted = ("on", "off")
    start = word.strip() if blank else command
    yield from (one for one in wanted if one.startswith(start))


def _wanted(tokens: Sequence[str], statement: str, names: Names) -> Iterable[str]:
    last = tokens[-1] if tokens else ""
    first = tokens[0] if tokens else ""
    if not tokens:
        return BEGINNINGS
    if last in _AFTER and (len(tokens) == 1 or last in ("GROUP", "ORDER", "GRAPH")):
        return _AFTER[last]
    if last == "JOB":
        return () if first == "CREATE" and len(tokens) < 6 else names.jobs
    if last == "SUBSCRIBE" or tokens[-2:] == ["ROWS", "OF"]:
        return names.jobs
    if last in ("DESCRIBE", "EXPLAIN"):
        return [
            *names.jobs,
            *names.streams,
            *(["ANALYZE", "LATENCY", "ROUTES", "SELECT"] if last == "EXPLAIN" else []),
        ]
    if last in ("FROM", "JOIN"):
        return [*names.streams, "JOB", "LATE"]
    if last in _VALUES or (not last[0].isalnum() and last[0] not in "_'"):
        return [*_columns(statement, names), *KEYWORDS]
    return [*KEYWORDS, *_columns(statement, names), *names.jobs, *names.streams]


def _columns(statement: str, names: Names) -> list[str]:
    """Of the streams that a statement names; of all where it names none."""
    said = {token.lower() for token in _TOKEN.findall(statement)}
    streams = [one for one in names.columns if one.lower() in said] or list(names.columns)
    return sorted({column for one in streams for column in names.columns[one]})


def path_before(text: str) -> str | None:
    """The beginning of a file's name, if one is due."""
    match = _FILES.search(text)
    return match["path"] if match else None


def paths(start: str) -> list[str]:
    """Files and folders whose names begin so."""
    folder, slash, name = start.rpartition("/")
    where = Path(folder + slash).expanduser() if folder or slash else Path()
    try:
        found = sorted(where.iterdir())
    except OSError:
        return []
    shown = (one.name + "/" * one.is_dir() for one in found if one.name.startswith(name))
    return [f"{folder}{slash}{one}" for one in shown if name or not one.startswith(".")]


def completer(names: Names) -> Completer:
    """The same for a prompt."""
    from prompt_toolkit.completion import CompleteEvent, Completer, Completion
    from prompt_toolkit.document import Document

    class Statements(Completer):
        def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterator[Completion]:
            before = document.text_before_cursor
            start = path_before(before)
            if start is not None:
                yield from (Completion(one, -len(start)) for one in paths(start))
                return
            word = before.rpartition(" ")[2] if before.lstrip().startswith("\\") else ""
            if not word:
                match = _WORD.search(before)
                word = match.group() if match else ""
            for one in completions(before, document.text_after_cursor, names):
                yield Completion(one, -len(word))

    return Statements()
