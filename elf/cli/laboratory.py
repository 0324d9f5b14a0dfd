"""The laboratory (``lab``): its commands where it is installed, and one line about it where it is not.

It measures and simulates elf and makes logs to try it on. Every checkout and source distribution has it; a
package for servers may do without it, since nothing else of elf needs it.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import Final

import typer

from elf.errors import UserError

COMMANDS: Final = {
    "generate": "Write a log file to try elf on.",
    "bench": "Measure elf on this machine.",
    "sim": "Simulate a fleet on virtual time.",
}


def register(app: typer.Typer) -> None:
    """Add its commands to the application."""
    if find_spec("lab") is not None:
        from lab import cli

        cli.register(app)
        return
    for name, text in COMMANDS.items():
        anything = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}
        app.command(name, help=text, context_settings=anything)(_absent(f"elf {name}"))


def require(command: str) -> None:
    """Raises ``UserError`` where a command needs the laboratory and it is not there."""
    if find_spec("lab") is None:
        raise UserError(
            f"{command} needs elf's laboratory, which is not installed here: "
            "run it from a checkout of elf (make install), or install a package that has it"
        )


def _absent(command: str) -> Callable[[], None]:
    def run() -> None:
        require(command)

    return run
