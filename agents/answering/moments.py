"""Event times, as people are told them."""

from __future__ import annotations

from datetime import UTC, datetime

from elf.job.spec import END_OF_TIME


def moment_of(us: int | None) -> str:
    """For people."""
    if us is None or abs(us) >= END_OF_TIME // 2:  # the beginning may have been made a whole number of panes
        return "the first row"
    return datetime.fromtimestamp(us / 1e6, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
