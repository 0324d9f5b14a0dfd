"""What the demo shows while the job runs: in place in a terminal, plain lines otherwise."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from elf.cli.printing import rich_table
from elf.client import Window
from elf.client.values import cell


@dataclass(frozen=True)
class Scene:
    """What stays the same from window to window, but for the tree, which may still grow."""

    job: str
    submitted_to: str
    master: str
    tree: str


class Screen(Protocol):
    """Where windows are shown."""

    def show(self, window: Window, scene: Scene) -> None: ...


def facts_of(window: Window) -> str:
    """Time, coverage and speed of a window in a line."""
    status = window.status
    rows = _number(status.get("rows_in"))
    seconds = (window.end - window.start).total_seconds() if window.start and window.end else 0.0
    span = f"{window.start:%H:%M:%S} – {window.end:%H:%M:%S}" if window.start and window.end else "all"
    speed = f", {rows / seconds:,.0f} rows/s" if seconds else ""
    late = _number(status.get("late"))
    revision = f", revision {window.revision}" if window.revision else ""
    return (
        f"{span}  {cell(status.get('reported'))} of {cell(status.get('expected'))} agents, "
        f"{rows:,} rows{speed}, {late} late{revision}"
    )


@contextmanager
def screen(console: Console) -> Iterator[Screen]:
    """A screen on that console."""
    if console.is_terminal:
        with Live(console=console, auto_refresh=False) as live:
            yield _LiveScreen(live)
    else:
        yield _PlainScreen(console)


class _LiveScreen:
    def __init__(self, live: Live) -> None:
        self._live = live

    def show(self, window: Window, scene: Scene) -> None:
        head = Text.assemble((scene.job, "bold"), f"  {facts_of(window)}")
        foot = Text(f"submitted to {scene.submitted_to}, master {scene.master}\ntree: {scene.tree}", "dim")
        self._live.update(Group(head, rich_table(window.table), foot), refresh=True)


class _PlainScreen:
    def __init__(self, console: Console) -> None:
        self._console = console
        self._scene: Scene | None = None

    def show(self, window: Window, scene: Scene) -> None:
        if scene != self._scene:
            self._print(f"{scene.job}: submitted to {scene.submitted_to}, master {scene.master}")
            self._print(f"tree: {scene.tree}")
            self._scene = scene
        self._print(f"{facts_of(window)}")
        names = [name for name in window.table.column_names if not name.startswith("window_")]
        rows = zip(*(window.table[name].to_pylist() for name in names), strict=True)
        for place, row in enumerate(rows, 1):
            self._print(f"  {place:2}. {'  '.join(map(cell, row))}")

    def _print(self, line: str) -> None:
        self._console.print(line, markup=False, highlight=False, soft_wrap=True)


def _number(value: object) -> int:
    return value if isinstance(value, int) else 0
