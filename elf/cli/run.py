"""``elf run``: options in, one run of the engine, windows and figures out."""

from __future__ import annotations

import dataclasses
import json
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from elf.cli.choices import Output
from elf.cli.inputs import streams_of
from elf.cli.printing import Printer, printer, use_utf8
from elf.client.windows import split
from elf.errors import UserError
from elf.job.messages import WindowResult


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
    _check_writable(options.summary)
    with tempfile.TemporaryDirectory(prefix="elf-run-") as folder:
        return _run(sql, streams_of(options.inputs, options.streams, Path(folder)), options)


def _run(sql: str, inputs: Mapping[str, tuple[str, ...]], options: RunOptions) -> int:
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


def _check_writable(path: Path | None) -> None:
    """Before the work, not after it."""
    if path is None:
        return
    try:
        with path.open("a"):
            pass
    except OSError as error:
        raise UserError(f"cannot write {path}: {(error.strerror or str(error)).lower()}") from None
