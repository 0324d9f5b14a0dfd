"""``elf shell``: statements at a prompt, over several lines until a semicolon.

Enter ends a statement that has its semicolon, and begins a new line of one that has not; so the history, a
file of the user's, has whole statements. Tab completes what may come next (``elf.cli.completing``). Windows
are drawn in place and long tables a page at a time (``elf.cli.livetable``); commands with a backslash are as
psql's (``elf.cli.backslash``). An error shows its line with a caret and leaves the prompt as it was; Ctrl-C
stops what is performed, and not the shell. What comes from a pipe or a file is performed as ``elf sql`` does
it: the last statement needs no semicolon, and the first that fails ends it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from elf.cli import backslash
from elf.cli.ask import answer, ask, perform, split, statements
from elf.cli.completing import Names, completer
from elf.cli.errors import fail
from elf.cli.livetable import ScreenPrinter
from elf.cli.options import Output, one_text
from elf.cli.previewing import Pending
from elf.cli.printing import Printer, printer, say
from elf.client import Client, connect
from elf.errors import ElfError, UserError

if TYPE_CHECKING:
    from prompt_toolkit import PromptSession
    from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent

HELP: Final = """\
statements end with ;   \\q leaves   \\? lists commands   Tab completes   Ctrl-C stops a SELECT
SELECT …;   CREATE JOB name AS SELECT …;   SUBSCRIBE name;   DROP JOB name;
SELECT … FROM JOB name WINDOWS SINCE '-1 hour';   ROWS OF name WINDOW 'start' WHERE condition LIMIT n;
CREATE OUTPUT name FROM JOB job TO 'https://…';   DROP OUTPUT name;
CREATE ALERT name ON JOB job WHEN condition FOR 3 WINDOWS NOTIFY 'https://…';   DROP ALERT name;
CREATE AGGREGATE name FROM 'file.py';   DROP AGGREGATE name;
ALTER JOB name AS SELECT … PREVIEW 3 WINDOWS;   COMMIT;
SHOW JOBS | OUTPUTS | ALERTS | TABLES | AGGREGATES | STREAMS | MEMBERS | ARCHIVES | DECISIONS | SCALE IN n;
DESCRIBE name;   EXPLAIN [ANALYZE | LATENCY] name;   EXPLAIN ROUTES;
all of it: docs/elf-ql.md"""
LEARN_SECS: Final = 20.0
_QUIT: Final = ("\\q", "quit", "exit")
_ASKED: Final = ("\\?", "\\h", "help", "?")
_FORMS: Final = {".csv": Output.CSV, ".json": Output.JSON}
"""Of a file that \\g writes, by the end of its name."""


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
        shell = Shell(client)
        learning = asyncio.create_task(shell.keep_learning())
        try:
            return await shell.run(_session(shell.names))
        finally:
            learning.cancel()


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


def is_whole(text: str) -> bool:
    """Whether Enter ends a text: it has its semicolon, or is no statement."""
    begun = text.strip()
    if not begun or begun.startswith("\\") or begun.rstrip(";") in _QUIT or asks_for_help(begun):
        return True
    return backslash.go_of(begun) is not None or not split(text).rest


class Shell:
    """What a prompt does with what is typed."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.names = Names(commands=tuple(backslash.COMMANDS))
        self._settings = backslash.Settings()
        self._pending = Pending()
        self._last = ""
        """The statements that were performed last, which ``\\g`` performs again."""

    async def run(self, session: PromptSession[str]) -> int:
        """Until the user leaves."""
        while True:
            try:
                text = await session.prompt_async("elf> ")
            except KeyboardInterrupt:
                continue
            except EOFError:
                return 0
            if text.strip().rstrip(";") in _QUIT:
                return 0
            try:
                await self._typed(text)
            except ElfError as error:
                fail(error)

    async def keep_learning(self) -> None:
        """Names change, and a stream shows its columns when lines have come."""
        while True:
            await self.learn()
            await asyncio.sleep(LEARN_SECS)

    async def learn(self) -> None:
        """Ask for the names that complete: the agent's own view, and the columns that its streams show."""
        with contextlib.suppress(ElfError):
            self.names.jobs, streams = await known_names(self._client)
            self.names.columns = {one: self.names.columns.get(one, ()) for one in streams}
            for one in streams:
                found = (await self._client.sql(f"DESCRIBE {one}")).table
                if found is not None and "column" in found.column_names:
                    self.names.columns[one] = found["column"].to_pylist()

    async def _typed(self, text: str) -> None:
        if asks_for_help(text):
            print(f"{HELP}\n{backslash.help_text()}")
            return
        go = backslash.go_of(text)
        if go is not None:
            self._last = go.statement or self._last
            if not self._last:
                raise UserError("\\g: there is no statement yet")
            await self._go(self._last, go.file)
        elif text.lstrip().startswith("\\"):
            await self._command(*backslash.split_command(text))
        elif text.strip():
            self._last = text
            await self._perform(text, self._screen())

    async def _command(self, command: str, argument: str) -> None:
        said = backslash.switched(self._settings, command, argument)
        if said is not None:
            say(said, sys.stdout)
        elif command == "\\conninfo":
            say(
                f"{self._client.address}, cluster {(await self._client.status()).get('cluster', '')}",
                sys.stdout,
            )
        elif command == "\\i":
            if not argument:
                raise UserError("\\i: name a file of statements")
            await self._perform(one_text(None, Path(argument).expanduser(), "FILE"), self._screen())
        else:
            for statement in backslash.statements_of(command, argument):
                await self._perform(statement, self._screen())

    def _screen(self) -> Printer:
        return ScreenPrinter(sys.stdout, live=self._settings.live, pages=self._settings.pager)

    async def _go(self, text: str, file: Path | None) -> None:
        """Perform statements, into a file if one is named; what was in it is gone."""
        if file is None:
            await self._perform(text, self._screen())
            return
        try:
            with file.open("w", encoding="utf-8", newline="") as out:
                await self._perform(text, printer(_FORMS.get(file.suffix, Output.TABLE).value, out=out))
        except OSError as error:
            why = (error.strerror or str(error)).lower()
            raise UserError(f"\\g {file}: it cannot be written: {why}") from None

    async def _perform(self, text: str, out: Printer) -> None:
        """Perform the statements of a text; the first that fails ends it."""
        for statement in statements(text):
            began = time.perf_counter()
            await _interruptible(
                asyncio.ensure_future(answer(self._client, statement, out, None, self._pending))
            )
            if self._settings.timing:
                print(f"Time: {1e3 * (time.perf_counter() - began):.3f} ms", flush=True)
            if statement.split(maxsplit=1)[0].upper() in ("CREATE", "DROP", "ALTER"):
                with contextlib.suppress(ElfError):
                    self.names.jobs, _ = await known_names(self._client)


async def _interruptible(performing: asyncio.Future[bool]) -> None:
    """Wait; Ctrl-C ends what is performed, and not the shell."""
    import signal

    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGINT, performing.cancel)
    try:
        await performing
    finally:
        loop.remove_signal_handler(signal.SIGINT)


async def known_names(client: Client) -> tuple[list[str], list[str]]:
    """Names of jobs and of streams, for completion; the agent's own view, without asking others."""
    status = await client.status()
    jobs, streams = (status.get(key) for key in ("jobs", "streams"))
    return (
        sorted(map(str, jobs)) if isinstance(jobs, Iterable) else [],
        sorted(map(str, streams)) if isinstance(streams, Iterable) else [],
    )


def _session(names: Names) -> PromptSession[str]:
    from prompt_toolkit import PromptSession
    from prompt_toolkit.history import FileHistory, InMemoryHistory

    path = history_path()
    return PromptSession(
        history=FileHistory(str(path)) if path else InMemoryHistory(),
        completer=completer(names),
        complete_while_typing=False,
        multiline=True,
        key_bindings=_bindings(),
        prompt_continuation="...> ",
    )


def _bindings() -> KeyBindings:
    """Enter ends a whole statement."""
    from prompt_toolkit.key_binding import KeyBindings

    bindings = KeyBindings()

    @bindings.add("enter")
    def _(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if is_whole(buffer.text):
            buffer.validate_and_handle()
        else:
            buffer.insert_text("\n")

    return bindings


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
