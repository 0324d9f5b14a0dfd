"""``elf scale``: agents that a fleet can do without."""

from __future__ import annotations

from typing import Annotated

import typer

from elf.cli.options import DEFAULT_ADDRESS, Cluster, Connect, KeysOption, Output, OutputOption, group
from elf.cli.usage import examples

app = group("Agents that a fleet can do without.")


@app.callback()
def _scale() -> None:
    """So that ``in`` is a command, though it is the only one."""


@app.command("in", epilog=examples("scale"))
def scale_in(
    agents: Annotated[int, typer.Argument(min=1, help="How many are to go.")] = 1,
    connect: Connect = DEFAULT_ADDRESS,
    output: OutputOption = Output.TABLE,
    cluster: Cluster = "elf",
    keys: KeysOption = None,
) -> int:
    """Name the agents that matter least to the jobs, of those that read no lines. Nothing is changed."""
    from elf.cli.ask import perform

    return perform(connect, cluster, f"SHOW SCALE IN {agents}", output)
