"""``elf-agent``: one agent beside one web server.

``elf-agent --config elf.yaml`` runs it until SIGTERM (takes a cut and stops; it goes on from there at the
next start) or ``elf leave``. ``elf-agent validate --config elf.yaml`` looks at a configuration and says all
that is wrong with it. Exit status 0, 78 for a bad configuration, 1 for anything else.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Final

import typer

from agents.config import DEFAULT_PATH, load, validate
from elf.errors import ConfigError, ElfError

BAD_CONFIG: Final = 78

app = typer.Typer(
    add_completion=False,
    pretty_exceptions_enable=False,
    help="One elf agent: follows logs, computes, answers.",
)

ConfigOption = Annotated[Path, typer.Option("--config", help="The YAML file.")]


@app.callback(invoke_without_command=True)
def agent(context: typer.Context, config: ConfigOption = DEFAULT_PATH) -> None:
    """Run the agent (the default)."""
    if context.invoked_subcommand is None:
        from agents.process import run_agent

        raise typer.Exit(run_agent(load(config)))


@app.command("validate")
def validate_config(config: ConfigOption = DEFAULT_PATH) -> None:
    """Check a configuration, and this machine against it."""
    problems = validate(load(config))
    for problem in problems:
        print(f"elf-agent: {problem}", file=sys.stderr)
    if problems:
        raise typer.Exit(BAD_CONFIG)
    print(f"{config}: ok")


def main() -> None:
    """Entry point: one clear line for whatever goes wrong."""
    try:
        app()
    except ConfigError as error:
        for line in str(error).splitlines():
            print(f"elf-agent: {line}", file=sys.stderr)
        sys.exit(BAD_CONFIG)
    except ElfError as error:
        print(f"elf-agent: {error}", file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    main()
