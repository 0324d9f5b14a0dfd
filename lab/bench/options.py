"""Options that several benches have. A bench's fields are the options of its command (``lab.cli.bench``)."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Option

Repeat = Annotated[int, Option("--repeat", min=1, help="Runs of each; the median counts.")]
Hour = Annotated[int, Option("--rows", min=1, help="Events in the hour.")]
Products = Annotated[int, Option("--products", min=1, help="Distinct keys, Zipf 1.2.")]
Agents = Annotated[int, Option("--agents", min=1, help="How many agents.")]
Hosts = Annotated[
    int, Option("--hosts", min=0, help="So many processes share the agents; 0: each has its own.")
]
Jobs = Annotated[int, Option("--jobs", min=1, help="How many jobs.")]
Fragments = Annotated[int, Option("--distinct", min=1, help="Different fragments among them.")]
WindowSeconds = Annotated[int, Option("--window", min=1, help="Seconds of a window.")]
Plot = Annotated[Path | None, Option("--plot", metavar="FILE", help="Draw the figures: .png or .svg.")]
