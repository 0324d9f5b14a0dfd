"""``elf shell``: statements at a prompt, over several lines until a semicolon.

Keywords and the names of jobs and streams complete with Tab; the history is kept in a file of the user's. An
error shows its line with a caret and leaves the prompt as it was. What comes from a pipe or a file is
performed as ``elf sql`` does it: the last statement needs no semicolon, and the first that fails ends it.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from elf.cli.ask import answer, ask, perform, split, statements
from elf.cli.errors import fail
from elf.cli.options import Output
from elf.cli.printing import printer, say
from elf.client import Client, connect
from elf.errors import ElfError

if TYPE_CHECKING:
    from prompt_toolkit import PromptSession
    from prompt_toolkit.completion import Completer

_WORDS: Final = """
SELECT FROM WHERE GROUP BY HAVING ORDER LIMIT ASC DESC AS AND OR NOT IN IS NULL LIKE BETWEEN CASE WHEN
THEN ELSE END COUNT SUM MIN MAX AVG DISTINCT FILTER STDDEV VARIANCE FIRST LAST BOOL_AND BOOL_OR MEDIAN
ARRAY_AGG HISTOGRAM MAX_BY MIN_BY LAG LEAD OVER PARTITION ROWS PRECEDING FOLLOWING
PERCENTILE APPROX_COUNT_DISTINCT APPROX_PERCENTILE APPROX_TOP_K WINDOWING SLIDE SECONDS MINUTES HOURS
MILLISECONDS LATENESS EMIT FINAL REVISE CHANGES EVERY LATE STRAGGLERS WAIT LEAP MIRROR CREATE REPLACE JOB DROP
ALTER PAUSE RESUME EMPTY ROLLBACK VERSION RESET IMMEDIATELY MOVE SHOW JOBS STREAMS MEMBERS ARCHIVES DESCRIBE
SUBSCRIBE NOTIFY EXPLAIN OFFLINE OUTPUT OUTPUTS TO WITH BEGINNING NOW ALERT ALERTS COVERAGE OF WINDOW WINDOWS
SINCE UNTIL REVISIONS AGGREGATE AGGREGATES
"""
KEYWORDS: Final = tuple(_WORDS.split())

HELP: Final = """\
statements end with ;   \\q leaves   help shows this   Ctrl-C stops a SELECT or clears the line
SELECT …;   CREATE JOB name AS SELECT …;   SUBSCRIBE name;   DROP JOB name;
SELECT … FROM JOB name WINDOWS SINCE '-1 hour';   ROWS OF name WINDOW 'start' WHERE condition LIMIT n;
CREATE OUTPUT name FROM JOB job TO 'https://…';   DROP OUTPUT name;
CREATE ALERT name ON JOB job WHEN condition FOR 3 WINDOWS NOTIFY 'https://…';   DROP ALERT name;
CREATE AGGREGATE name FROM 'file.py';   DROP AGGREGATE name;
SHOW JOBS | OUTPUTS | ALERTS | AGGREGATES | STREAMS | MEMBERS | ARCHIVES;   DESCRIBE name;   EXPLAIN name;
all of it: docs/elf-ql.md"""
_QUIT: Final = ("\\q", "quit", "exit")
_ASKED: Final = ("\\?", "\\h", "help", "?")


def run_shell(address: str, cluster: str, creator: str | None = None) -> int:
    """Read and perform statements until ``\\q`` or the end of input."""
    if not sys.stdin.isatty():
        text = _piped()
        return perform(address, cluster, text, Output.TABLE, creator=creator) if statements(text) else 0
    return ask(_shell(address, cluster, creator))


async def _shell(address: str, cluster: str, creator: str | None = None) -> int:
    async with connect(address, cluster=cluster, creator=creator) as client:
        status = await client.status()
        say(f"connected to {status.get('agent', client.address)} ({client.address})\n{HELP}", sys.stdout)
        session = _session(await known_names(client))
        text = ""
        while True:
            try:
                line = await session.prompt_async("elf> " if not text else "...> ")
            except KeyboardInterrupt:
                text = ""
                continue
            except EOFError:
                return 0
            if not text and line.strip().rstrip(";") in _QUIT:
                return 0
            if not text and asks_for_help(line):
                print(HELP)
                continue
            text = await _perform(client, f"{text}{line}\n")


def asks_for_help(line: str) -> bool:
    """Whether a line at the beginning of a statement is no statement, but wants to know what is one."""
    return line.strip().rstrip(";").strip().lower() in _ASKED


def _piped() -> str:
    """Standard input, up to a line that leaves; help is shown at once."""
    text = ""
    for line in sys.stdin:
        if asks_for_help(line) and not split(text).rest:
            print(HELP)
            continue
        if line.strip().rstrip(";") in _QUIT and not split(text).rest:
            break
        text += line
    return text


async def _perform(client: Client, text: str) -> str:
    """Perform the statements that are complete; what is left of the text is returned."""
    parts = split(text)
    for statement in parts.complete:
        performing = asyncio.ensure_future(answer(client, statement, printer("table")))
        try:
            await _interruptible(performing)
        except ElfError as error:
            fail(error)
            return ""
    return parts.rest + "\n" if parts.rest else ""


async def _interruptible(performing: asyncio.Future[bool]) -> None:
    """Wait; Ctrl-C ends what is performed, and not the shell."""
    import signal

    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGINT, performing.cancel)
    try:
        await performing
    finally:
        loop.remove_signal_handler(signal.SIGINT)


async def known_names(client: Client) -> tuple[str, ...]:
    """Names of jobs and streams, for completion; the agent's own view, without asking others."""
    status = await client.status()
    found: set[str] = set()
    for key in ("jobs", "streams"):
        names = status.get(key)
        if isinstance(names, Iterable):
            found.update(str(name) for name in names)
    return tuple(sorted(found))


def _session(names: tuple[str, ...]) -> PromptSession[str]:
    from prompt_toolkit import PromptSession
    from prompt_toolkit.history import FileHistory, InMemoryHistory

    path = history_path()
    history = FileHistory(str(path)) if path else InMemoryHistory()
    return PromptSession(history=history, completer=_completer(names), complete_while_typing=False)


def _completer(names: tuple[str, ...]) -> Completer:
    from prompt_toolkit.completion import WordCompleter

    return WordCompleter([*KEYWORDS, *names], ignore_case=True)


def history_path() -> Path | None:
    """Where statements are remembered (XDG state folder); None when nothing can be kept there."""
    base = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    folder = Path(base) / "elf"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / "history"
        path.touch(mode=0o600)
    except OSError:
        return None
    return path
