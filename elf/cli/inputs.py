"""What ``elf run`` reads. What can be read only once (``-``, standard input; a pipe) is first copied to a
file: its columns are inferred from its lines before any of them is counted. But where a query has windows,
and somebody writes to standard input, they come while it is read (``agents.inputs.piped``).
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from agents.inputs.piped import NAME, Piped
from elf.errors import InputError, UserError

DEFAULT_STREAM: Final = "input"
"""The stream that ``--input`` makes; any name after FROM means it."""
STDIN: Final = "-"

_NAME: Final = re.compile(r"[A-Za-z_]\w*")


@dataclass(frozen=True)
class Inputs:
    """``streams``: the paths of each that can be read. ``names``: what a person calls those of them that are
    copies."""

    streams: dict[str, tuple[str, ...]]
    names: dict[str, str]
    pipe: Piped | None = None


def stdin_pipe(inputs: Sequence[str], streams: Sequence[str]) -> Piped | None:
    """Standard input, where it is named and no regular file: somebody may be writing to it."""
    if STDIN not in inputs and not any(text.endswith(f"={STDIN}") for text in streams):
        return None
    try:
        descriptor = sys.stdin.fileno()
    except (AttributeError, OSError, ValueError):
        return None  # closed, or not of the system
    return None if stat.S_ISREG(os.fstat(descriptor).st_mode) else Piped(descriptor)


def inputs_of(
    inputs: Sequence[str], streams: Sequence[str], folder: Path, pipe: Piped | None, *, early: bool
) -> Inputs:
    """What the command line names; copies are in ``folder``. Where windows come ``early`` and the ``pipe``
    is all there is, it is read as it comes, if it does not end at once. Raises ``UserError``, ``InputError``.
    """
    found: dict[str, list[str]] = {}
    if inputs:
        found[DEFAULT_STREAM] = list(inputs)
    for text in streams:
        name, equals, path = text.partition("=")
        if not equals or not path or not _NAME.fullmatch(name):
            raise UserError(f"--stream wants NAME=PATH, not {text!r}")
        found.setdefault(name, []).append(path)
    if not found:
        raise UserError("give the log files to read: --input PATH... or --stream NAME=PATH...")
    if sum(paths.count(STDIN) for paths in found.values()) > 1:
        raise UserError("standard input (-) can be read once")
    for paths in found.values():
        _tell_repeated(paths)
    only = sum(map(len, found.values())) == 1
    if pipe is not None and early and only and not pipe.is_compressed and pipe.begin():
        return Inputs(dict.fromkeys(found, (NAME,)), {}, pipe)
    if pipe is not None and sys.stderr.isatty():
        print("elf: reads standard input to its end; Ctrl-C: the answer so far", file=sys.stderr)
    read = {name: tuple(_file(path, folder, pipe) for path in paths) for name, paths in found.items()}
    both = [pair for name in found for pair in zip(read[name], found[name], strict=True)]
    shown = {copy: "standard input" if path == STDIN else path for copy, path in both if copy != path}
    return Inputs(read, shown)


def _tell_repeated(paths: Sequence[str]) -> None:
    """A file that a stream has twice, perhaps by a link, counts twice: that may be meant."""
    known: dict[tuple[int, int], str] = {}
    for path in paths:
        if path == STDIN or not Path(path).is_file():
            continue
        status = Path(path).stat()
        first = known.get(key := (status.st_dev, status.st_ino))
        if first is None:
            known[key] = path
        else:
            same = "it is named twice" if first == path else f"it is the same file as {first}"
            print(f"elf: warning: the lines of {path} count twice: {same}", file=sys.stderr)


def _file(path: str, folder: Path, pipe: Piped | None) -> str:
    """A file with the contents of a path."""
    if path == STDIN:
        copy = folder / "stdin"
        with copy.open("wb") as out:
            if pipe is not None:
                pipe.copy(out)
            else:
                shutil.copyfileobj(sys.stdin.buffer, out)
        return str(copy)
    try:
        mode = Path(path).stat().st_mode
        if stat.S_ISDIR(mode):
            raise InputError(f"cannot read {path}: it is a folder; name the files in it")
        with Path(path).open("rb") as file:
            if stat.S_ISREG(mode):
                return path
            copy = folder / str(len(list(folder.iterdir())))
            with copy.open("wb") as out:
                shutil.copyfileobj(file, out)
            return str(copy)
    except OSError as error:
        raise InputError(f"cannot read {path}: {(error.strerror or str(error)).lower()}") from None
