"""Finds the Java that Spark runs on: 17 or newer, else one line that says which package to install.

``deploy/java.sh`` does the same for ``make``, and installs it where it may.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from elf.errors import UserError

JAVA_MIN: Final = 17
_INSTALLED: Final = Path("/usr/lib/jvm")
_VERSION: Final = re.compile(r'version "(?:1\.)?(\d+)')
_ASK_SECS_MAX: Final = 30


class JavaMissing(UserError):
    """No Java that Spark can run on."""


def ensure() -> Path:
    """The Java job group to use, which it also sets as ``JAVA_HOME`` for Spark's launcher. Raises
    ``JavaMissing``.

    Asked in this order: ``JAVA_HOME``, ``java`` on the PATH, what is installed but on no path (oldest first).
    """
    seen = []
    for home in _job_groups():
        version = java_version(home / "bin" / "java")
        if version is not None and version >= JAVA_MIN:
            os.environ["JAVA_HOME"] = str(home)
            return home
        if version is not None:
            seen.append(f"{home} is Java {version}")
    found = f" ({'; '.join(seen)})" if seen else ""
    raise JavaMissing(
        f"Spark needs Java {JAVA_MIN} or newer and none was found{found}: "
        f"install the package default-jre-headless (or openjdk-{JAVA_MIN}-jre-headless), or set JAVA_HOME"
    )


def java_version(java: Path) -> int | None:
    """The feature release of that ``java``: 17 for 17.0.15, 8 for 1.8.0; None when it can't be run."""
    try:
        asked = subprocess.run(
            [java, "-version"],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_ASK_SECS_MAX,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    match = _VERSION.search(asked.stderr + asked.stdout)
    return int(match[1]) if match else None


def _job_groups() -> Iterator[Path]:
    if home := os.environ.get("JAVA_HOME"):
        yield Path(home)
    if java := shutil.which("java"):
        yield Path(java).resolve().parent.parent
    installed = [
        (java_version(java) or 0, java.parent.parent) for java in sorted(_INSTALLED.glob("*/bin/java"))
    ]
    yield from (home for _, home in sorted(installed))
