"""Commands of the shell that are no statements: they begin with a backslash, as psql's do.

``\\g`` alone stands at the end of a statement, in place of its semicolon.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from elf.errors import UserError

COMMANDS: Final[Mapping[str, str]] = {
    "\\d": "[NAME]  jobs and streams, or what is known of one",
    "\\dj": "jobs",
    "\\ds": "streams",
    "\\dm": "agents",
    "\\do": "outputs",
    "\\da": "alerts",
    "\\dt": "tables",
    "\\g": "[FILE]  at a statement's end: perform it, into a file (.csv, .json, else as it is shown)",
    "\\i": "FILE  perform the statements of a file",
    "\\timing": "[on|off]  say how long statements take",
    "\\live": "[on|off]  windows in place, or one below the other",
    "\\pager": "[on|off]  long tables a page at a time",
    "\\conninfo": "the agent that answers",
    "\\?": "this",
    "\\q": "leave",
}
"""What each takes and does."""
STATEMENTS: Final[Mapping[str, tuple[str, ...]]] = {
    "\\dj": ("SHOW JOBS;",),
    "\\ds": ("SHOW STREAMS;",),
    "\\dm": ("SHOW MEMBERS;",),
    "\\do": ("SHOW OUTPUTS;",),
    "\\da": ("SHOW ALERTS;",),
    "\\dt": ("SHOW TABLES;",),
}
_GO: Final = re.compile(r"\\g(?:[ \t]+(?P<file>\S+))?[ \t]*\Z")
_SWITCHES: Final = frozenset({"\\timing", "\\live", "\\pager"})


@dataclass
class Settings:
    """What the switches say."""

    timing: bool = False
    live: bool = True
    pager: bool = True


@dataclass(frozen=True)
class Go:
    """A statement that ends in ``\\g``, and the file that it goes to (None: the screen)."""

    statement: str
    file: Path | None


def go_of(text: str) -> Go | None:
    """A text that ends in ``\\g``; None: it does not."""
    match = _GO.search(text)
    if match is None:
        return None
    file = match["file"]
    return Go(text[: match.start()].rstrip(), None if file is None else Path(file.strip("'")).expanduser())


def statements_of(command: str, argument: str) -> tuple[str, ...]:
    """What a command that describes asks the agent; nothing, if it is another."""
    if command == "\\d":
        return (f"DESCRIBE {argument};",) if argument else ("SHOW STREAMS;", "SHOW JOBS;")
    return STATEMENTS.get(command, ())


def switched(settings: Settings, command: str, argument: str) -> str | None:
    """Turn a switch, and say how it is now; None: the command is none. Raises ``UserError``."""
    if command not in _SWITCHES:
        return None
    name = command.removeprefix("\\")
    wanted = {"on": True, "off": False, "": not getattr(settings, name)}.get(argument.lower())
    if wanted is None:
        raise UserError(f"{command} {argument}: on or off")
    setattr(settings, name, wanted)
    return f"{name} is {'on' if wanted else 'off'}"


def split_command(line: str) -> tuple[str, str]:
    """A command and its argument. Raises ``UserError`` for one that there is not."""
    command, _, argument = line.strip().rstrip(";").rstrip().partition(" ")
    if command not in COMMANDS:
        raise UserError(f"there is no command {command}; \\? lists those that there are")
    return command, argument.strip()


def help_text() -> str:
    """A line a command."""
    return "\n".join(f"  {command:10}{about}" for command, about in COMMANDS.items())
