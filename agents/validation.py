"""What is wrong with this machine for a configuration, before an agent is started with it.

Folders are tried by making something in them, addresses by listening there. A port that is in use is none of
what is wrong: the agent may be running. Nothing is left behind.
"""

from __future__ import annotations

import glob
import itertools
import os
import re
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from agents.addresses import clash
from agents.config import Config
from agents.formats import get_format
from agents.http import cannot_serve
from agents.lanes.guessing import better_format
from agents.lanes.samples import sample_lines
from agents.transport.zeromq import cannot_listen
from elf.errors import ElfError

DOUBTED: Final = 20
"""Files of a stream that are looked at."""


def validate_all(configs: Mapping[Path, Config]) -> dict[Path, list[str]]:
    """What is wrong with each, a line each; agents of one process must not be in each other's way."""
    found = {file: validate(config) for file, config in configs.items()}
    for (first, one), (second, other) in itertools.combinations(configs.items(), 2):
        found[second] += [f"{problem} {first}" for problem in _in_the_way(one, other)]
    return found


def _in_the_way(one: Config, other: Config) -> list[str]:
    """What the other shares with the one before it and must not, up to the name of that one's file."""
    found = []
    if one.agent.name == other.agent.name:
        found.append(f"agent.name: {other.agent.name} is also the name in")
    if one.data_dir == other.data_dir:
        found.append(f"data_dir: {other.data_dir} is also the folder in")
    for (key, mine), (before, its) in itertools.product(_addresses(other), _addresses(one)):
        if clash(mine, its):
            found.append(f"{key}: {mine} is {before} in")
    return found


def _addresses(config: Config) -> list[tuple[str, str | None]]:
    return [("agent.listen", config.agent.listen), ("http.listen", config.http.listen)]


def validate(config: Config) -> list[str]:
    """What is wrong with this machine for one configuration."""
    folders = [("data_dir", config.data_dir)]
    if config.archive.path.startswith("/"):
        folders.append(("archive.path", config.archive.path))
    found = [f"{key}: {problem}" for key, path in folders if (problem := _unwritable(Path(path)))]
    if why := cannot_listen(config.agent.listen):
        found.append(f"agent.listen: {why}")
    if config.http.listen and (why := cannot_serve(config.http.listen)):
        found.append(f"http.listen: {why}")
    for name, stream in config.streams.items():
        for pattern in stream.include:
            folder = fixed_folder(pattern)
            if not folder.is_dir():
                found.append(f"streams.{name}.include: there is no folder {folder} (for {pattern})")
            elif not os.access(folder, os.R_OK | os.X_OK):
                found.append(f"streams.{name}.include: the folder {folder} may not be read")
    return found


def doubts(config: Config) -> list[str]:
    """What may be wrong, or change by itself: files of another format than their stream's."""
    found = []
    for name, stream in config.streams.items():
        for path in sorted(_paths(stream.include) - _paths(stream.exclude))[:DOUBTED]:
            try:
                samples = sample_lines([path])
                better = better_format(get_format(stream.format), samples)
            except ElfError:
                continue  # what cannot be read is told elsewhere, or nobody's business
            if better is not None:
                found.append(f"streams.{name}.format: {stream.format}, but {path} looks like {better.name}")
                break
    return found


def _paths(patterns: Sequence[str]) -> set[str]:
    return {path for pattern in patterns for path in glob.glob(pattern, recursive=True)}  # noqa: PTH207


def fixed_folder(pattern: str) -> Path:
    """The deepest folder of an absolute pattern that has no wildcard in its path."""
    folders = Path(pattern).parts[:-1]
    wild = next((at for at, part in enumerate(folders) if re.search(r"[*?\[]", part)), len(folders))
    return Path(*folders[:wild])


def _unwritable(folder: Path) -> str | None:
    """Why a folder cannot be made, or not be written to; None when all is well. It is tried: what the
    permissions say is not all (a root user, a file system that is read-only or the kernel's)."""
    existing = next(place for place in (folder, *folder.parents) if place.exists())
    if not existing.is_dir():
        return f"{existing} is not a folder"
    try:
        with tempfile.TemporaryDirectory(prefix=".elf-validate-", dir=existing):
            return None
    except OSError as error:
        return f"nothing can be written to {existing}: {str(error.strerror).lower()}"
