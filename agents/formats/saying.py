"""What is wrong with the text of a format, and where."""

from __future__ import annotations

from typing import Final

from elf.errors import ConfigError

_SHOWN: Final = 24


def cannot(text: str, at: int, why: str) -> ConfigError:
    """One line: where, in what, and why."""
    at = max(at, 0)
    start, end = max(at - _SHOWN, 0), at + _SHOWN
    before = ("…" if start else "") + text[start:at]
    after = text[at:end] + ("…" if end < len(text) else "")
    return ConfigError(f"format, character {at + 1} ({before}▸{after}): {why}")
