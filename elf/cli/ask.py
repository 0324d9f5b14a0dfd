"""Statements to an agent, answers to standard output: ``elf sql`` and what is made of it.

Of where one statement ends and the next begins, in a text that may still be being typed, only quotes and
comments are understood; whether a statement means anything is for the agent to say. A statement keeps its
place: the text before it becomes blank lines, so that an error in it names the line and column of the whole
text.
"""

from __future__ import annotations

import ast
import asyncio
import contextlib
import json
import re
import sys
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

import pyarrow as pa

from elf.cli.errors import INTERRUPTED
from elf.cli.options import Output, one_text
from elf.cli.previewing import Pending, show
from elf.cli.printing import Printer, printer, say, use_utf8
from elf.cli.together import until_live
from elf.client import Client, Window, connect
from elf.client.coverage import coverage, is_whole
from elf.client.previews import preview_of
from elf.client.values import plain, printable_json, rfc3339
from elf.errors import UserError

_PIECE: Final = re.compile(
    r"""--[^\n]*            # a comment to the end of the line
    | /\*.*?(?:\*/|\Z)      # a comment, perhaps not closed yet
    | '(?:[^']|'')*(?:'|\Z) # text
    | "(?:[^"]|"")*(?:"|\Z) # a name
    | `[^`']*(?:[`']|\Z)    # a name, or text quoted as papers print it: `video_games'
    | ;
    | [^-/'"`;]+ | .""",
    re.VERBOSE | re.DOTALL,
)

T = TypeVar("T")
WITHOUT_ROWS_SECS: Final = 5.0
WAITING_SECS: Final = 60.0
"""Between two times that the same reason for waiting is said."""


@dataclass(frozen=True)
class Split:
    """Statements that end in a semicolon, each at its place, and what follows the last one."""

    complete: tuple[str, ...]
    rest: str


def split(text: str) -> Split:
    """The statements of a text. ``rest`` is empty when nothing but space and comments follows."""
    complete: list[str] = []
    start, blank = 0, True
    for piece in _PIECE.finditer(text):
        found = piece.group()
        if found == ";":
            if not blank:
                complete.append(_at_its_place(text, start, piece.end()))
            start, blank = piece.end(), True
        elif not found.isspace() and not found.startswith(("--", "/*")):
            blank = False
        elif found.startswith("/*") and not (found.endswith("*/") and len(found) >= 4):
            blank = False  # a comment that goes on
    return Split(tuple(complete), "" if blank else _at_its_place(text, start, len(text)))


def statements(text: str) -> tuple[str, ...]:
    """All statements of a finished text; the last one needs no semicolon."""
    parts = split(text)
    return parts.complete + ((parts.rest,) if parts.rest else ())


def _at_its_place(text: str, start: int, end: int) -> str:
    """The statement with as many lines and columns before it as it has in the whole text."""
    start += len(text[start:end]) - len(text[start:end].lstrip())
    before = text[:start]
    return "\n" * before.count("\n") + " " * (start - (before.rfind("\n") + 1)) + text[start:end].rstrip()


def perform(
    address: str,
    cluster: str,
    text: str,
    output: Output,
    *,
    windows: int | None = None,
    status: bool = False,
    creator: str | None = None,
    wait: int | None = None,
) -> int:
    """Perform the statements of a text, one after the other; the first that fails ends it. ``wait``: for so
    many agents first."""
    use_utf8()
    asked = statements(text)
    if not asked:
        raise UserError("nothing to do: there is no statement")
    if wait is not None:
        asyncio.run(until_live(address, cluster, wait))
    client = connect(address, cluster=cluster, creator=creator)
    return asyncio.run(_perform(client, asked, printer(output.value, status=status), windows))


async def _perform(reached: Client, asked: tuple[str, ...], out: Printer, windows: int | None) -> int:
    pending = Pending()
    async with reached as client:
        for statement in asked:
            if await answer(client, statement, out, windows, pending):
                return INTERRUPTED
    return 0


async def answer(client: Client, statement: str, out: Printer, windows: int | None, pending: Pending) -> bool:
    """Print all that one statement gives. True when Ctrl-C ended a statement that was not giving windows.
    ``pending``: what was previewed before it."""
    watching = False
    waiting = Waiting(out.beside)
    statement = await pending.statement(statement, client)
    try:
        async with contextlib.aclosing(client.execute(statement, windows)) as answers:
            async for found in answers:
                if isinstance(found, Window):
                    watching = True
                    out.windows([found])
                    waiting.window(found)
                    continue
                if (preview := preview_of(found)) is not None:
                    watching = True
                    await show(client, preview, answers, out, pending)
                    return False
                if found.waiting:
                    watching = True
                    waiting.say(f"no window for some seconds: {found.text}")
                    continue
                if found.table is not None:
                    out.table(found.table)
                if found.data is not None and found.table is None and out.data(found.data):
                    continue
                if found.text:
                    beside = watching or found.table is not None or out.rows_only
                    say(found.text, sys.stderr if beside else sys.stdout)
    except asyncio.CancelledError:
        # Ctrl-C is how a SELECT ends. asyncio.run has cancelled us once and will not do so again.
        task = asyncio.current_task()
        if task is not None:
            task.uncancel()
        return not watching
    return False


class Waiting:
    """Says on standard error why nothing comes: when the reason changes, and once a minute. ``before`` is
    called before it does."""

    def __init__(self, before: Callable[[], None] = lambda: None) -> None:
        self._before = before
        self._reason = ""
        self._again = 0.0
        self._rows = time.monotonic()

    def window(self, window: Window) -> None:
        """A window came; if none has had a row for some seconds, that is said too."""
        now = time.monotonic()
        if window.table.num_rows:
            self._rows = now
        elif window.end is not None and not window.early and now - self._rows >= WITHOUT_ROWS_SECS:
            rows = f"{window.status.get('rows_in', 0)} rows in, {window.coverage}"
            self.say(f"windows come without rows; the last one ended at {rfc3339(window.end)}: {rows}")

    def say(self, text: str) -> None:
        """The reason is what stands before the first semicolon."""
        reason, now = text.partition(";")[0], time.monotonic()
        if reason != self._reason or now >= self._again:
            self._reason, self._again = reason, now + WAITING_SECS
            self._before()
            say(f"elf: {text}")


def submit_file(
    address: str,
    cluster: str,
    file: Path,
    name: str | None,
    settings: Sequence[str],
    *,
    replace: bool,
    creator: str | None = None,
) -> int:
    """``elf submit``"""
    chosen = dict(setting(text) for text in settings)
    text = one_text(None, file, "FILE")
    named = file.stem.replace("-", "_") if name is None else name
    if not named.isidentifier():
        raise UserError(
            f"{named!r} is no name for a job: letters, digits and _ (give another one with --name)"
        )

    async def submit() -> dict[str, object]:
        async with connect(address, cluster=cluster, creator=creator) as client:
            return await client.submit(text, file.name, named, replace=replace, settings=chosen)

    ask(submit())
    print(f"job {named} submitted; elf jobs shows it, DROP JOB {named} ends it")
    return 0


def setting(text: str) -> tuple[str, object]:
    """``NAME=VALUE``; a value that is no Python literal is a text."""
    name, equals, value = text.partition("=")
    if not equals or not name.isidentifier():
        raise UserError(f"--set wants NAME=VALUE, not {text!r}")
    try:
        return name, ast.literal_eval(value)
    except (ValueError, SyntaxError):
        return name, value


def query_job(address: str, cluster: str, job: str, message: str | None) -> int:
    """``elf query``"""
    asked: object = message
    with contextlib.suppress(ValueError):
        asked = None if message is None else json.loads(message)

    async def query() -> object:
        async with connect(address, cluster=cluster) as client:
            return await client.query(job, asked)

    answer = plain(ask(query()))
    print(printable_json(json.dumps(answer, ensure_ascii=False, default=_as_json)), flush=True)
    status = answer.get("status") if isinstance(answer, dict) and "window_end" in answer else None
    revision = status.get("revision", 0) if isinstance(status, dict) else 0
    if isinstance(status, dict) and not is_whole(status, revision):
        say(f"elf: {job}: {coverage(status, revision)}")
    return 0


def _as_json(value: object) -> object:
    return plain(value.to_pylist()) if isinstance(value, pa.Table) else str(value)


def leave_fleet(address: str, cluster: str, *, force: bool) -> int:
    """``elf leave``: of one agent, no other in its place."""
    if "," in address:
        raise UserError(f"--connect {address}: name the one agent that is to leave")

    async def leave() -> dict[str, object]:
        async with connect(address, cluster=cluster) as client:
            print(f"asked the agent at {address} to leave; it goes when its data is handed over", flush=True)
            return await client.leave(force=force)

    said = ask(leave())
    say(str(said.get("text") or f"the agent at {address} has left"), sys.stdout)
    return 0


def take_off(address: str, cluster: str, agent: str) -> int:
    """``elf leave --dead``"""

    async def take() -> str:
        async with connect(address, cluster=cluster) as client:
            return await client.take_off(agent)

    say(ask(take()), sys.stdout)
    return 0


def ask(question: Coroutine[Any, Any, T]) -> T:
    """Run one question to an agent to its end."""
    use_utf8()
    return asyncio.run(question)
