"""Formats: how the lines of a stream become typed columns, in the agents and offline alike.

A format has a text, which is its name: of a preset (``combined``, ``haproxy``), or what says all of it: a
``log_format`` of nginx, a ``LogFormat`` of Apache, ``regex:…``, ``csv:…``, ``w3c:…``. In front may stand the
zone of its times, ``zone:Europe/Berlin apache_error``. The text travels with a stream, its archive and its
samples, so that whoever reads them reads alike.
"""

from __future__ import annotations

import difflib
from functools import lru_cache
from typing import Final

from agents.formats import apache, csv, logfmt, nginx, patterns, presets, w3c
from agents.formats.access import COMBINED, COMMON
from agents.formats.dialect import Format, Selection
from agents.formats.json import JSON
from agents.formats.nginxconf import written_out
from agents.formats.zones import Zoned
from elf.errors import ConfigError
from elf.schema import ZONED

FORMATS: Final[dict[str, Format]] = {
    known.name: known for known in (COMBINED, COMMON, JSON, logfmt.LOGFMT, *presets.PRESETS)
}
"""All formats that have a name."""
TEXTS: Final = "nginx's log_format (nginx:NAME finds it), Apache's LogFormat, regex:…, csv:HEADER, w3c:FIELDS"
"""What else a format may be."""
TEXT_MAX: Final = 4_000
"""Characters: it is in messages and archives."""


@lru_cache(256)
def get_format(text: str) -> Format:
    """The format of that name, or that a text says. Raises ``ConfigError``: where it is wrong, or what the
    nearest known name is."""
    if (found := FORMATS.get(text)) is not None:
        return found
    if len(text) > TEXT_MAX:
        raise ConfigError(f"a format of {len(text):,} characters; at most {TEXT_MAX:,}")
    if text.startswith(ZONED):
        zone, _, of = text.removeprefix(ZONED).partition(" ")
        return Zoned(zone, get_format(of))
    if text.startswith("csv:"):
        return csv.csv(text)
    if text.startswith("w3c:"):
        return w3c.of_fields(text)
    if patterns.is_regex(text):
        return patterns.regex(text)
    if nginx.is_log_format(text):
        return nginx.log_format(text)
    if apache.is_log_format(text):
        return apache.log_format(text)
    if text in ("csv", "w3c"):
        raise ConfigError(f"format {text} needs its columns, in its text: {text}:… (docs/formats.md)")
    near = difflib.get_close_matches(text.lower(), FORMATS, n=1, cutoff=0.5)
    hint = f'; did you mean "{near[0]}"?' if near else f"; known are {', '.join(sorted(FORMATS))}, {TEXTS}"
    raise ConfigError(f'unknown format "{text}"{hint}')


__all__ = ["FORMATS", "TEXTS", "Format", "Selection", "get_format", "written_out"]
