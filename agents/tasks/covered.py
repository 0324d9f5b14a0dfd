"""Which files an agent may open in another one's place: those that its own configuration names
(``streams.NAME.shared``), whoever asks.

A file is what it is after all links are followed. So a link that someone puts into a shared folder leads
nowhere; links before the first wildcard of a pattern are its owner's, and are followed too. No pattern of
another agent is ever looked for on the disk: it only chooses among files that ours lead to.
"""

from __future__ import annotations

import glob
import os
import stat
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

from agents.inputs.files import paths_of
from elf.errors import InputError

_OPENED: Final = Path("/proc/self/fd")


class NotCovered(InputError):
    """A file that this agent does not open for others."""


def opened(path: str, patterns: Sequence[str]) -> int:
    """A descriptor of a regular file that is covered. Raises ``NotCovered``, and ``OSError``."""
    real = os.path.realpath(path)
    _must_cover(path, real, patterns)
    descriptor = os.open(real, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW)
    try:
        if _OPENED.exists():  # a folder on the way may have become a link meanwhile
            _must_cover(path, str((_OPENED / str(descriptor)).readlink()), patterns)
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise NotCovered(f"{path} is no file")
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _must_cover(path: str, real: str, patterns: Sequence[str]) -> None:
    if not any(matches(real, _resolved(pattern)) for pattern in patterns):
        raise NotCovered(f"{path} is not among the files that streams.NAME.shared names here")


def covered(patterns: Sequence[str], include: Sequence[str], exclude: Sequence[str]) -> list[str]:
    """The files that these patterns of ours lead to now, and another agent's too."""
    ours, real = paths_of(patterns, exclude), [_resolved(pattern) for pattern in patterns]
    theirs = (path for path in ours if any(matches(path, pattern) for pattern in include))
    return [path for path in theirs if any(matches(os.path.realpath(path), one) for one in real)]


def matches(path: str, pattern: str) -> bool:
    """As ``glob`` has it: a wildcard is within a name, ``**`` is any number of folders."""
    return _match(path.split("/"), pattern.split("/"))


def _match(path: Sequence[str], pattern: Sequence[str]) -> bool:
    """By columns, so that many ``**`` cost no more than their number."""
    reached = {0}
    for part in pattern:
        if part == "**":
            reached = set(range(min(reached), len(path) + 1)) if reached else reached
        else:
            reached = {at + 1 for at in reached if at < len(path) and fnmatchcase(path[at], part)}
    return len(path) in reached


def _resolved(pattern: str) -> str:
    """With the links before its first wildcard followed."""
    parts = pattern.split("/")
    plain = next((n for n, part in enumerate(parts) if glob.has_magic(part)), len(parts))
    return "/".join([os.path.realpath("/".join(parts[:plain]) or "/").rstrip("/"), *parts[plain:]])
