"""``elf run``: options in, one run of the engine, windows and figures out."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from elf.cli.choices import Output
from elf.cli.printing import Printer, printer, use_utf8
from elf.client.windows import split
from elf.errors import InputError, UserError
from elf.job.messages import WindowResult

DEFAULT_STREAM: Final = "input"
"""The stream that ``--input`` makes; any name after FROM means it."""

_NAME: Final = re.compile(r"[A-Za-z_]\w*")


@dataclass(frozen=True)
class RunOptions:
    """The command line of ``elf run``."""

    inputs: tuple[str, ...]
    streams: tuple[str, ...]
    format: str | None
    timestamp: str | None
    agents: int
    output: Output
    status: bool
    summary: Path | None


def run_query(sql: str, options: RunOptions) -> int:
    """Run the query, print every window, write the summary. Raises ``UserError`` and its kinds."""
    inputs = streams_of(options.inputs, options.streams)
    _check_writable(options.summary)
    from agents.run import RunRequest, run
    from elf.client.files import tables_of

    use_utf8()
    out = printer(options.output.value, status=options.status)
    request = RunRequest(
        sql=sql,
        inputs=inputs,
        format=options.format,
        timestamp=options.timestamp,
        agents=options.agents,
        tables=tables_of(sql),
    )
    summary = run(request, lambda result: show(result, out))
    if options.summary is not None:
        options.summary.write_text(json.dumps(dataclasses.asdict(summary), indent=2) + "\n", encoding="utf-8")
    return 0


def show(result: WindowResult, out: Printer) -> None:
    """Print the windows of a result."""
    for window in split(result):
        out.window(window)


def streams_of(inputs: Sequence[str], streams: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Stream → paths, all of which exist. Raises ``UserError``, ``InputError``."""
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
    for paths in found.values():
        for path in paths:
            _check_readable(Path(path))
    return {name: tuple(paths) for name, paths in found.items()}


def _check_readable(path: Path) -> None:
    try:
        if path.is_dir():
            raise InputError(f"cannot read {path}: it is a folder; name the files in it")
        with path.open("rb"):
            pass
    except OSError as error:
        raise InputError(f"cannot read {path}: {(error.strerror or str(error)).lower()}") from None


def _check_writable(path: Path | None) -> None:
    """Before the work, not after it."""
    if path is None:
        return
    try:
        with path.open("a"):
            pass
    except OSError as error:
        raise UserError(f"cannot write {path}: {(error.strerror or str(error)).lower()}") from None
