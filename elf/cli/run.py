"""``elf run``: options in, one run of the engine, windows and figures out.

What can be read only once (``-``, standard input; a pipe) is first copied to a file: its columns are inferred
from its lines before any of them is counted. But where a query has windows, and somebody writes to standard
input, they come while it is read (``agents.inputs.piped``).
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
import shutil
import stat
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from agents.inputs.packed import is_packed
from agents.inputs.piped import NAME, Piped
from elf.batch import decode
from elf.cli.errors import INTERRUPTED, ended_at_once
from elf.cli.numbers import size
from elf.cli.options import Output
from elf.cli.printing import Printer, printer, say, use_utf8
from elf.cli.progress import Progress
from elf.cli.spans import span_of
from elf.client.windows import split
from elf.errors import InputError, UserError
from elf.schema import COLUMN_TYPES, ColumnType
from elf.wire.clients import Reply, WindowResult

if TYPE_CHECKING:
    from agents.run import Summary
    from agents.runinputs import Asked, Replay, RunRequest


DEFAULT_STREAM: Final = "input"
"""The stream that ``--input`` makes; any name after FROM means it."""
STDIN: Final = "-"

_NAME: Final = re.compile(r"[A-Za-z_]\w*")

_SUMMED: Final = ("late", "rejected", "uncast")
"""What ``tell_losses`` says of all windows."""
FILES_SHOWN: Final = 3
"""That are named in a line, of however many."""


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
            say(f"elf: warning: the lines of {path} count twice: {same}")


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


@dataclass(frozen=True)
class LineOptions:
    """How the lines of log files are read, on the command lines of ``elf run`` and ``elf report``."""

    format: str | None
    timestamp: str | None
    timezone: str | None
    columns: tuple[str, ...]
    geoip: tuple[str, ...]


def request_of(asked: Asked, streams: Mapping[str, tuple[str, ...]], lines: LineOptions) -> RunRequest:
    """What is asked of the files of streams, with the tables that it looks up in open. Raises
    ``UserError``."""
    from agents.lookups import LOOKUPS
    from agents.runinputs import RunRequest
    from elf.client.files import files_of

    LOOKUPS.open(lines.geoip)
    return RunRequest(
        asked=asked,
        inputs=streams,
        format=lines.format,
        timestamp=lines.timestamp,
        timezone=lines.timezone,
        columns=dict(map(declared, lines.columns)),
        tables=_tables(asked.files),
        files=files_of(asked.sql) if asked.has_code else {},
    )


@dataclass(frozen=True)
class RunOptions:
    """The command line of ``elf run``."""

    inputs: tuple[str, ...]
    streams: tuple[str, ...]
    lines: LineOptions
    agents: int
    output: Output
    status: bool
    summary: Path | None
    archives: tuple[str, ...] = ()
    begin: str | None = None
    end: str | None = None
    speed: float | None = None


def replay_of(options: RunOptions) -> Replay | None:
    """The archive that the command line names; None: it names inputs. Raises ``UserError``."""
    from agents.runinputs import Replay

    if not options.archives:
        if (options.begin, options.end, options.speed) != (None, None, None):
            raise UserError("--from, --to and --speed are of an archive: give --archive PATH")
        return None
    for given, name in (
        (options.inputs, "--input"),
        (options.lines.format, "--format"),
        (options.lines.timestamp, "--timestamp"),
        (options.lines.timezone, "--timezone"),
        (options.agents > 1, "--agents"),
    ):
        if given:
            raise UserError(f"{name} does not go with --archive: its files say what they hold")
    if named := [text for text in options.streams if not _NAME.fullmatch(text)]:
        raise UserError(f"with --archive, --stream wants the NAME of a stream in it, not {named[0]!r}")
    return Replay(options.archives, options.streams, span_of(options.begin, options.end), options.speed)


def run_query(sql: str, options: RunOptions) -> int:
    """Run the query, print every window, write the summary. Raises ``UserError`` and its kinds."""
    from agents.runinputs import Asked

    asked = Asked(sql)
    _check_writable(options.summary)
    replay = replay_of(options)
    pipe = stdin_pipe(options.inputs, options.streams)
    early = pipe is not None and asked.comes_early
    interrupted = []

    def end() -> None:
        if pipe is not None:
            pipe.end()
            interrupted.append(True)

    once = None if pipe is None else end
    with tempfile.TemporaryDirectory(prefix="elf-run-") as folder, ended_at_once(Path(folder), once):
        inputs = Inputs({}, {})
        if replay is None:
            inputs = inputs_of(options.inputs, options.streams, Path(folder), pipe, early=early)
        status = _run(asked, inputs, options, replay)
    if interrupted:
        print("elf: interrupted: standard input was read up to here", file=sys.stderr)
        return INTERRUPTED
    return status


def _run(asked: Asked, inputs: Inputs, options: RunOptions, replay: Replay | None = None) -> int:
    from agents.run import ask, run

    use_utf8()
    out = printer(options.output.value, status=options.status, summed=_SUMMED)
    request = dataclasses.replace(
        request_of(asked, inputs.streams, options.lines),
        agents=options.agents,
        pipe=inputs.pipe,
        replay=replay,
    )
    live = inputs.pipe is not None or options.speed is not None
    if asked.is_question or asked.is_look:
        if asked.is_question:
            tell(ask(request), out)
        else:
            from agents.firstrows import first_rows  # and DuckDB, which others may do without

            tell(first_rows(request), out)
        return 0

    with Progress("reading", size_of(inputs), size) as line:

        def shown(result: WindowResult) -> None:
            line.wipe()
            show(result, out)
            if live:
                sys.stdout.flush()

        told = None if live else line.tell
        summary = run(dataclasses.replace(request, told=told), shown)
    out.ended(summary.columns)
    if options.summary is not None:
        options.summary.write_text(json.dumps(dataclasses.asdict(summary), indent=2) + "\n", encoding="utf-8")
    tell_losses(summary, inputs.names, live=live)
    return 0


def _tables(files: Sequence[str]) -> dict[str, bytes]:
    """The contents of the files that are joined, by name."""
    if not files:
        return {}
    from elf.client.tables import read_table  # and DuckDB, which others may do without

    return {name: read_table(name) for name in files}


def size_of(inputs: Inputs) -> int | None:
    """The bytes that will be read; None where files are compressed, or there are none."""
    if inputs.pipe is not None:
        return None
    paths = [path for some in inputs.streams.values() for path in some]
    if any(map(is_packed, paths)):
        return None
    return sum(Path(path).stat().st_size for path in paths)


def tell_losses(summary: Summary, names: Mapping[str, str], *, live: bool) -> None:
    """Lines that are in no result, on standard error; raises ``InputError`` for those that nobody has seen,
    and where there is no other line. ``names``: what a person calls paths; ``live``: windows came early."""
    for note in summary.notes:
        say(f"elf: {note}")
    if summary.rows_rejected == summary.rows_in > 0 and not summary.unread and not summary.blank:
        raise InputError(
            f"nothing was read: all {summary.rows_in:,} lines are rejected; they are not of the format "
            "(--format), or have no time (--timestamp COLUMN)"
            + (f"; one has {summary.why_not}" if summary.why_not else "")
        )
    if summary.rows_rejected:
        files = _listed(f"{names.get(path, path)}: {count:,}" for path, count in summary.rejected.items())
        lost = f"{summary.rows_rejected:,} of {summary.rows_in:,} lines rejected"
        why = f"; one has {summary.why_not}" if summary.why_not else ""
        say(f"elf: {lost}: they do not parse, or have no time ({files}){why}")
    if summary.beyond and not summary.notes:  # which say it already, and of what format the lines are
        files = _listed(f"{names.get(path, path)}: {count:,}" for path, count in summary.beyond.items())
        lines = f"{sum(summary.beyond.values()):,} of {summary.rows_in:,} lines"
        say(f"elf: {lines} have more fields than their format; extra_1 … have them ({files})")
    if summary.late:
        late = f"{summary.late:,} of {summary.rows_in:,} lines are in no window"
        of_pipe = " (of a pipe, or at --speed, 2 seconds, where the query says none)" if live else ""
        say(f"elf: {late}: they came later than LATENESS allows{of_pipe}")
    if summary.uncast:
        columns = ", ".join(f"{name} {kind}" for name, kind in summary.types.items())
        which = f"they are not of their column's type ({columns}); --column NAME=TYPE declares another"
        say(f"elf: {summary.uncast:,} values are NULL: {which}")
    if summary.unread:
        files = _listed(f"{names.get(path, path)} ({why.lower()})" for path, why in summary.unread.items())
        raise InputError(
            f"not read to the end: {files}; the answer lacks what follows: copy it again, or leave it out"
        )


def declared(text: str) -> tuple[str, ColumnType]:
    """The column of a ``--column``, and its type. Raises ``UserError``."""
    name, equals, kind = text.rpartition("=")
    if not equals or not name:
        raise UserError(f"--column wants NAME=TYPE, not {text!r}")
    for known in COLUMN_TYPES:
        if known == kind.lower():
            return name, known
    raise UserError(f"--column {text}: there is no type {kind!r}; types: {', '.join(COLUMN_TYPES)}")


def _listed(names: Iterable[str]) -> str:
    """The first of them, and how many there are besides."""
    first, more = (found := list(names))[:FILES_SHOWN], len(found) - FILES_SHOWN
    return ", ".join(first) + (f" and {more} more" if more > 0 else "")


def tell(reply: Reply, out: Printer) -> None:
    """Print the answer to a question."""
    if reply.payload:
        out.table(decode(reply.payload))
        if reply.text:
            say(f"elf: {reply.text}")
    elif not (reply.body and out.data(msgspec.json.decode(reply.body, type=dict[str, object]))):
        say(reply.text, sys.stderr if out.rows_only else sys.stdout)


def show(result: WindowResult, out: Printer) -> None:
    """Print the windows of a result."""
    out.windows(split(result))


def _check_writable(path: Path | None) -> None:
    """Before the work, not after it."""
    if path is None:
        return
    try:
        with path.open("a"):
            pass
    except OSError as error:
        raise UserError(f"cannot write {path}: {(error.strerror or str(error)).lower()}") from None
