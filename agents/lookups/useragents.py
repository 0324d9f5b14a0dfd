"""What user agents are, by the expressions of uap-core (the package ua-parser)."""

from __future__ import annotations

import importlib.metadata
from functools import cache, lru_cache
from typing import Any, Final

AGENTS_KEPT: Final = 1 << 12
"""Of so many user agents what was found is remembered: an unknown one takes hundreds of expressions."""
_CHARS_MAX: Final = 1_024
"""What is behind that says nothing that the expressions look for, and may be anything."""
_OTHER: Final = "Other"
_NAMES: Final = ("ua_browser", "ua_browser_version", "ua_os", "ua_os_version", "ua_device", "ua_is_bot")

Value = str | bool | None


class UserAgents:
    """Where there are ``expressions``."""

    def __init__(self) -> None:
        import ua_parser

        self._parse = ua_parser.parse
        self._found = lru_cache(AGENTS_KEPT)(self._looked_up)

    def value(self, name: str, text: str | None) -> Value:
        """NULL of NULL."""
        return None if text is None else self._found(text[:_CHARS_MAX])[_NAMES.index(name)]

    def _looked_up(self, text: str) -> tuple[Value, ...]:
        found = self._parse(text)
        browser, system, device = found.user_agent, found.os, found.device
        return (
            _family(browser),
            _version_of(browser, "major", "minor", "patch"),
            _family(system),
            _version_of(system, "major", "minor", "patch", "patch_minor"),
            _family(device),
            _family(device) == "Spider",
        )


def _family(part: Any) -> str:
    return _OTHER if part is None else str(part.family)


def _version_of(part: Any, *names: str) -> str | None:
    numbers = [] if part is None else [getattr(part, name) for name in names]
    known = numbers[: numbers.index(None)] if None in numbers else numbers
    return ".".join(known) or None


@cache
def expressions() -> str:
    """Which ones are installed, such as ``ua-parser-builtins 202610``; empty: none."""
    package = "ua-parser-builtins"
    try:
        return f"{package} {importlib.metadata.version(package)}"
    except importlib.metadata.PackageNotFoundError:
        return ""
