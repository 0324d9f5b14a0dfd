"""``elf generate``: a generated log into a file or to standard output, at once or at a pace."""

from __future__ import annotations

import contextlib
import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated, BinaryIO, Final, Literal

import typer

from elf.cli.progress import Progress
from elf.errors import UserError


class LogKind(StrEnum):
    """``elf generate KIND``"""

    CLICKS = "clicks"
    ACCESS = "access"
    POSTS = "posts"


ROWS: Final = 100_000


@dataclass(frozen=True)
class GenerateOptions:
    """The command line of ``elf generate``."""

    kind: Literal["clicks", "access", "posts"]
    out: str
    rows: int | None
    seed: int
    rate: float | None
    seconds: float | None
    per_second: float
    start: str
    disorder: float
    bad: float


def write(options: GenerateOptions) -> int:
    """Write the log. Raises ``UserError`` for options that don't go together or a file that can't be made."""
    from lab.generator import Access, Clicks, Pace, Posts, Source, write_finite, write_live

    if options.seconds is not None and options.rate is None:
        raise UserError("--seconds needs --rate; without it say how many lines with --rows")
    sources: dict[str, type[Clicks] | type[Access] | type[Posts]] = {
        "clicks": Clicks,
        "access": Access,
        "posts": Posts,
    }
    source: Source = sources[options.kind](options.seed, options.bad)
    disorder_us = round(options.disorder * 1e6)
    with _opened(options.out, append=options.rate is not None) as out:
        if options.rate is None:
            rows = ROWS if options.rows is None else options.rows
            with Progress("writing lines", rows, lambda count: f"{count:,}") as line:
                write_finite(
                    source,
                    out,
                    rows=rows,
                    start_us=_microseconds(options.start),
                    per_second=options.per_second,
                    disorder_us=disorder_us,
                    seed=options.seed,
                    told=line.tell,
                )
        else:
            pace = Pace(options.rate, options.rows, options.seconds)
            write_live(source, out, pace, disorder_us=disorder_us, seed=options.seed, stopped=_until_signal())
    return 0


@contextlib.contextmanager
def _opened(path: str, *, append: bool) -> Iterator[BinaryIO]:
    if path == "-":
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    try:
        file = Path(path).open("ab" if append else "wb")  # noqa: SIM115
    except OSError as error:
        raise UserError(f"cannot write {path}: {(error.strerror or str(error)).lower()}") from None
    with file:
        yield file


def _until_signal() -> Callable[[], bool]:
    """False until SIGTERM or SIGINT: a live log ends with a whole line."""
    stopped = False

    def stop(_signal: int, _frame: object) -> None:
        nonlocal stopped
        stopped = True

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    return lambda: stopped


def _microseconds(text: str) -> int:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise UserError(f"--start wants a time such as 2026-01-01T00:00:00Z, not {text!r}") from None
    moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment
    since = moment - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


def generate(
    kind: Annotated[
        LogKind,
        typer.Argument(
            help="clicks: the click stream of an e-commerce site, JSON lines (Figure 4 of the paper); "
            "access: a web access log in the combined format; posts: a social network's, with a spam "
            "campaign in them, JSON lines (section 4.1)."
        ),
    ],
    out: Annotated[str, typer.Option("--out", metavar="FILE", help="Where to; - is standard output.")],
    rows: Annotated[
        int | None, typer.Option("--rows", min=0, help="How many lines (default 100000 without --rate).")
    ] = None,
    seed: Annotated[int, typer.Option("--seed", min=0, help="The same seed gives the same lines.")] = 1,
    rate: Annotated[
        float | None,
        typer.Option(
            "--rate", min=0.001, help="Append at so many lines a second, with the time of the clock."
        ),
    ] = None,
    seconds: Annotated[
        float | None, typer.Option("--seconds", min=0, help="With --rate: stop after that.")
    ] = None,
    per_second: Annotated[
        float,
        typer.Option("--per-second", min=0.001, help="Without --rate: lines in a second of event time."),
    ] = 1000,
    start: Annotated[
        str, typer.Option("--start", help="Without --rate: event time of the first line, UTC.")
    ] = "2026-01-01T00:00:00Z",
    disorder: Annotated[
        float | None,
        typer.Option(
            "--disorder", min=0, help="Lines may be so many seconds behind, most less (0.5; access 0)."
        ),
    ] = None,
    bad: Annotated[float, typer.Option("--bad", min=0, max=1, help="Share of lines that don't parse.")] = 0,
) -> int:
    """Write a log file to try elf on."""
    if disorder is None:
        disorder = 0 if kind is LogKind.ACCESS else 0.5
    return write(
        GenerateOptions(kind.value, out, rows, seed, rate, seconds, per_second, start, disorder, bad)
    )
