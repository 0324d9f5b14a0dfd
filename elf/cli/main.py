"""The ``elf`` command: its subcommands, and how it ends.

Nothing heavy is imported before a command needs it, so that ``elf --help`` is there at once.
"""

from __future__ import annotations

import copy
import gc
import sys
from typing import Annotated, Final

import typer
from typer.main import get_command_name

from elf import __version__
from elf.cli import config, fleet, keys, local, offline, scale
from elf.cli.completion import completion, ready
from elf.cli.errors import exit_status
from elf.cli.usage import examples

OBJECTS_NEW: Final = 50_000
"""After so many the collector looks for garbage. What is imported is none: with the default of 700 it would
look at all of that again and again, for a tenth of the time of ``elf run`` on a small file."""

app = typer.Typer(
    name="elf",
    help="SQL questions about the live logs of a fleet of web servers.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
local.register(app)
fleet.register(app)
app.add_typer(keys.app, name="keys")
app.add_typer(config.app, name="config")
app.add_typer(offline.app, name="offline")
app.add_typer(scale.app, name="scale")
app.command(epilog=examples("doctor"))(keys.doctor)
app.command(epilog=examples("completion"))(completion)


def _version(wanted: bool) -> None:
    if wanted:
        print(f"elf {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    pass


def only(command: str) -> typer.Typer:
    """The application with this command alone: to make the parsers of all of them would take longer than most
    commands do. With all of them where it is none, as what is then printed names them."""
    commands = [
        known
        for known in app.registered_commands
        if known.callback and (known.name or get_command_name(known.callback.__name__)) == command
    ]
    groups = [known for known in app.registered_groups if known.name == command]
    if not commands and not groups:
        return app
    one = copy.copy(app)
    one.registered_commands, one.registered_groups = commands, groups
    return one


def main(args: list[str] | None = None) -> None:
    """Run one command line and exit with its status."""
    gc.set_threshold(OBJECTS_NEW)
    ready()
    words = sys.argv[1:] if args is None else args
    named = only(words[0]) if words else app
    sys.exit(exit_status(lambda: named(words, prog_name="elf", standalone_mode=False)))


if __name__ == "__main__":
    main()
