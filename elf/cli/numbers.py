"""Numbers and sizes, for people."""

from __future__ import annotations


def number(value: float | None) -> str:
    """Without digits after the point, but where there are few before it."""
    if value is None:
        return ""
    return f"{value:,.0f}" if value >= 10 or value == int(value) else f"{value:.1f}"


def size(value: float | None) -> str:
    """Bytes, for people: ``1.2 MiB``."""
    if value is None:
        return ""
    for unit in ("B", "KiB", "MiB"):
        if abs(value) < 1023.5:
            return f"{value:.0f} {unit}" if unit == "B" or value >= 99.5 else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:,.1f} GiB"
