"""``elf dash``: a fleet and its jobs on one screen: the agents at work, and the last window of some jobs.

On a terminal it is drawn anew in place, until Ctrl-C; elsewhere, and for ``--rounds``, one picture below the
other. A job that has no window yet says so; one that cannot be read says what is wrong with it, and the
others go on.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from elf.cli.ask import ask
from elf.cli.numbers import number
from elf.cli.printing import FACTS_COLUMNS, console, rich_table, title
from elf.cli.top import Round, looks, picture
from elf.client import Client, Window, connect
from elf.client.values import for_terminal
from elf.errors import ElfError

if TYPE_CHECKING:
    from rich.console import Group, RenderableType
    from rich.panel import Panel

JOBS_MAX: Final = 4
"""Jobs that are shown where none is named: the first by name."""
WIDE_COLUMNS: Final = 100
"""From so many on two jobs are beside each other."""
HISTORY: Final = 60
"""Looks that the line of rates has."""
ROWS_ANYWHERE: Final = 20
"""Rows of a window where there is no screen to fill."""
BARS: Final = "▁▂▃▄▅▆▇█"
_FRAME: Final = 4
"""Lines of a job beside its rows: two of the frame, and two of the names of its columns."""


@dataclass
class Shown:
    """What is known of a job."""

    window: Window | None = None
    why: str = "no window yet"


@dataclass
class Dash:
    """What is on the screen."""

    jobs: dict[str, Shown] = field(default_factory=dict)
    rates: deque[float] = field(default_factory=lambda: deque(maxlen=HISTORY))


def show_dash(address: str, cluster: str, jobs: Sequence[str], every: float, rounds: int | None) -> int:
    """Look at the fleet every so many seconds, until Ctrl-C or so many times."""

    async def reached() -> None:
        async with connect(address, cluster=cluster) as client:
            await watch(client, jobs, every, rounds)

    with contextlib.suppress(KeyboardInterrupt):
        ask(reached())
    return 0


async def watch(client: Client, jobs: Sequence[str], every: float, rounds: int | None) -> None:
    """Draw the fleet and these jobs; some, if none is named."""
    from rich.live import Live

    out = console(sys.stdout)
    dash = Dash({name: Shown() for name in jobs or await _some(client)})
    reading = [asyncio.create_task(_read(client, name, one)) for name, one in dash.jobs.items()]
    in_place = rounds is None and out.is_terminal
    width = out.width if out.is_terminal else FACTS_COLUMNS
    left = rounds
    try:
        with (
            Live(console=out, screen=True, auto_refresh=False)
            if in_place
            else contextlib.nullcontext() as live
        ):
            async for one in looks(client, every, at_once=in_place):
                dash.rates.append(one.rows_per_sec or 0.0)
                drawn = screen(dash, one, width, out.height if in_place else None)
                if live is not None:
                    live.update(drawn, refresh=True)
                else:
                    out.print(drawn, width=width)
                left = None if left is None else left - 1
                if left == 0:
                    return
    finally:
        for task in reading:
            task.cancel()
        await asyncio.gather(*reading, return_exceptions=True)


async def _some(client: Client) -> list[str]:
    names = (await client.status()).get("jobs")
    return sorted(map(str, names))[:JOBS_MAX] if isinstance(names, Iterable) else []


async def _read(client: Client, name: str, into: Shown) -> None:
    try:
        async for window in client.subscribe(name):
            into.window = window
    except ElfError as error:
        into.why = str(error)
    else:
        into.why = "the job is over"


# -- what is shown -------------------------------------------------------------------------------------------


def screen(dash: Dash, one: Round, width: int, height: int | None) -> Group:
    """Agents above, jobs below; each half of the screen where there are jobs."""
    from rich.console import Group
    from rich.text import Text

    top = None if height is None else height if not dash.jobs else min(height // 2, len(one.agents) + 6)
    parts: list[RenderableType] = [picture(one, width, None if top is None else top - 1)]
    if len(dash.rates) > 1:
        parts.append(Text.assemble(("rows/s ", "dim"), bars(dash.rates), f" {number(dash.rates[-1])}"))
    if dash.jobs:
        parts.append(_jobs(dash, width, None if height is None or top is None else height - top - 1))
    return Group(*parts)


def bars(values: Iterable[float]) -> str:
    """A line of bars, the highest as high as a line."""
    known = list(values)
    most = max(known, default=0.0) or 1.0
    return "".join(BARS[min(int(value / most * len(BARS)), len(BARS) - 1)] for value in known)


def _jobs(dash: Dash, width: int, height: int | None) -> RenderableType:
    from rich.table import Table

    beside = 2 if width >= WIDE_COLUMNS and len(dash.jobs) > 1 else 1
    lines = -(-len(dash.jobs) // beside)
    rows = ROWS_ANYWHERE if height is None else max(height // lines - _FRAME, 1)
    drawn = Table.grid(expand=True)
    for _ in range(beside):
        drawn.add_column(ratio=1)
    panels = [_panel(name, one, rows) for name, one in dash.jobs.items()]
    for line in range(lines):
        drawn.add_row(*panels[line * beside : (line + 1) * beside])
    return drawn


def _panel(name: str, one: Shown, rows: int) -> Panel:
    """A job's last window, as many rows of it as there is room for."""
    from rich.panel import Panel
    from rich.text import Text

    window = one.window
    if window is None:
        return Panel(Text(for_terminal(one.why), "dim"), title=Text(for_terminal(name)), title_align="left")
    table = window.table
    more = table.num_rows - rows
    text = for_terminal(window.coverage or "") if not window.whole else ""
    under = ", ".join(filter(None, (f"{more:,} more rows" if more > 0 else "", text)))
    return Panel(
        rich_table(table.slice(0, rows)) if table.num_rows else Text("no rows", "dim"),
        title=Text(for_terminal(title(window))),
        title_align="left",
        subtitle=Text(under, "" if window.whole else "yellow") if under else None,
    )
