"""Formats: how the lines of a stream become typed columns, in the agents and offline alike."""

from __future__ import annotations

import difflib
from typing import Final

from agents.formats.access import COMBINED, COMMON
from agents.formats.dialect import Format, Selection
from agents.formats.json import JSON
from elf.errors import ConfigError

FORMATS: Final[dict[str, Format]] = {known.name: known for known in (COMBINED, COMMON, JSON)}
"""All formats, by name."""


def get_format(name: str) -> Format:
    """The format of that name. Raises ``ConfigError`` that names the nearest known one."""
    found = FORMATS.get(name)
    if found is not None:
        return found
    near = difflib.get_close_matches(name.lower(), FORMATS, n=1, cutoff=0.5)
    hint = f'; did you mean "{near[0]}"?' if near else f"; known are {', '.join(sorted(FORMATS))}"
    raise ConfigError(f'unknown format "{name}"{hint}')


__all__ = ["FORMATS", "Format", "Selection", "get_format"]
