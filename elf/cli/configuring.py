"""What ``elf config init`` does."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from agents.discovery import Discovered, Told, discover, written
from agents.loading import load
from elf.errors import ConfigError, UserError


@dataclass(frozen=True)
class Wanted:
    """The command line. ``told``: of ``agents.discovery.Told``, but ``bootstrap``."""

    out: Path
    nginx: Path | None
    told: Mapping[str, str]
    bootstrap: tuple[str, ...]
    force: bool
    start: bool


def initialise(wanted: Wanted) -> int:
    """``elf config init``"""
    there = str(wanted.out) != "-" and wanted.out.exists() and not wanted.force
    if there and not wanted.start:
        raise UserError(f"{wanted.out} is there already; --force writes over it, --out FILE names another")
    if not there:
        _write(wanted)
    if wanted.start:
        _become_agent(wanted.out)
    return 0


def _write(wanted: Wanted) -> None:
    found = discover(wanted.nginx)
    text = written(Told(**wanted.told, bootstrap=wanted.bootstrap), found)
    _check(text)
    if str(wanted.out) == "-":
        sys.stdout.write(text)
        return
    try:
        wanted.out.parent.mkdir(parents=True, exist_ok=True)
        wanted.out.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UserError(f"{wanted.out} cannot be written: {(error.strerror or str(error)).lower()}") from None
    _say(wanted.out, found)


def _check(text: str) -> None:
    """What was told may be no address, and what nginx says no path. Raises ``ConfigError``."""
    with tempfile.TemporaryDirectory(prefix="elf-config-") as folder:
        path = Path(folder) / "elf.yaml"
        path.write_text(text, encoding="utf-8")
        try:
            load(path, {})
        except ConfigError as error:
            raise ConfigError(str(error).replace(f"{path}:", "line ")) from None


def _say(out: Path, found: Discovered) -> None:
    for note in found.notes:
        print(f"elf: {note}", file=sys.stderr)
    for stream in found.streams:
        print(f"stream {stream.name}: {', '.join(stream.include)} ({stream.format})", file=sys.stderr)
    if not found.streams:
        print("elf: no log was found: write the streams yourself", file=sys.stderr)
    print(f"wrote {out}; next: elf-agent validate --config {out}", file=sys.stderr)


def _become_agent(config: Path) -> None:
    """This process goes on as an agent, under its number."""
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, "-P", "-m", "agents.main", "--config", str(config)])
