"""The console that people look at."""

from __future__ import annotations

from rich.console import Console


class Terminal(Console):
    """Rich's, but for one thing: that its reader has gone (``elf run … | head``) is for the caller to know,
    who may be in the middle of a loop, and not the end of the process."""

    def on_broken_pipe(self) -> None:
        raise
