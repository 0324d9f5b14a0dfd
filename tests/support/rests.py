"""What was measured of what comes after maps."""

from __future__ import annotations

from elf.planning.rests import Rest


def measured(*took: int) -> Rest:
    """Of panes that took so long (ms), one after the other."""
    rest = Rest()
    for pane, took_ms in enumerate(took):
        rest.mapped(pane, 1_000 * pane)
        assert rest.committed(pane, 1_000 * pane + took_ms)
    return rest
