"""The commands of the laboratory: ``elf bench``, ``elf sim`` and ``elf generate``. Each loads what it
measures or simulates when it is run.
"""

from __future__ import annotations

import typer


def register(app: typer.Typer) -> None:
    """Add these commands to the application."""
    from lab.cli import bench, simulations
    from lab.cli.generate import generate

    app.command()(generate)
    app.add_typer(bench.app, name="bench")
    app.add_typer(simulations.app, name="sim")
