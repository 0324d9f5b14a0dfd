"""``elf offline backfill``: what came before a job began, by Spark from the shared archive.

A job with SINCE reads what its agents' own archives have. Where these do not reach back so far, Spark makes
the older windows, and the job keeps them; of a SELECT they are printed, before its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from elf.cli.ask import ask
from elf.cli.compare import check_spark
from elf.cli.offline_run import name_damaged, setting
from elf.cli.options import Output
from elf.cli.printing import printer, say, use_utf8
from elf.client import Client, CompareFacts, Window, connect, split
from elf.errors import UserError
from elf.ql.moments import HOW, moment_us
from elf.wire.clients import FILLED_MAX, Filled, WindowResult

if TYPE_CHECKING:
    from spark_backend.compare import Bounds
    from spark_backend.offline import Archived

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
BYTES_MAX: Final = 2 << 20
"""Of results that are given to a job at a time."""


@dataclass(frozen=True)
class BackfillOptions:
    """The command line of ``elf offline backfill``. ``windows``: of a SELECT, all in all; None: for ever."""

    job: str | None
    text: str | None
    begin: str | None
    archives: tuple[str, ...]
    geoip: tuple[str, ...]
    skip_damaged: bool
    windows: int | None
    output: Output
    master: str
    conf: tuple[str, ...]
    connect: str
    cluster: str
    creator: str | None = None


def backfill(options: BackfillOptions) -> int:
    """Raises ``UserError`` and its kinds."""
    if (options.job is None) == (options.text is None):
        raise UserError("say which job, or -q with a SELECT … SINCE: one of both")
    if options.job is not None and options.windows is not None:
        raise UserError("--windows goes with -q: of a job all windows are made that are older than its own")
    check_spark()
    from agents.lookups import LOOKUPS

    logging.disable(logging.ERROR)  # what py4j would print of a Ctrl-C; failures come as exceptions too
    LOOKUPS.open(options.geoip)
    use_utf8()
    if options.text is not None:
        return ask(_select(options, options.text))
    assert options.job is not None
    return _fill(options, options.job)


def _connected(options: BackfillOptions) -> Client:
    return connect(options.connect, cluster=options.cluster, creator=options.creator)


# -- of a job ------------------------------------------------------------------------------------------------


def _fill(options: BackfillOptions, job: str) -> int:
    async def facts() -> CompareFacts:
        async with _connected(options) as client:
            return await client.compare_facts(job, versions=True)

    from agents.archived import moment_text

    known = ask(facts())
    windows = _older(options, known)

    async def there() -> set[Bounds]:
        """Those that were made before: they stay as they are, and are not committed again."""
        found: set[Bounds] = set()
        async with _connected(options) as client:
            async for one in client.results(job, until=moment_text(windows[-1][1])):
                found |= {(_us(w.start), _us(w.end)) for w in split(one) if w.status.get("offline")}
        return found

    if windows:
        kept = ask(there())
        windows = [one for one in windows if one not in kept]
    if not windows:
        say(f"elf: nothing to do: job {job} has all windows that start then or later")
        return 0
    waiting: list[Filled] = []

    def give() -> None:
        async def given(some: Sequence[Filled]) -> None:
            async with _connected(options) as client:
                await client.fill(job, known.job.spec.version, some)

        if waiting:
            ask(given(tuple(waiting)))
        waiting.clear()

    for one in _made(options, known, windows):
        if waiting and (len(waiting) >= FILLED_MAX or _size([*waiting, one]) > BYTES_MAX):
            give()
        waiting.append(one)
    give()
    first, last = windows[0][0], max(start for start, _ in windows)
    say(
        f"elf: {len(windows):,} windows of job {job} that start from {moment_text(first)} to "
        f"{moment_text(last)} are made by Spark, and kept; later ones are the job's own"
    )
    return 0


def _us(moment: datetime | None) -> int:
    assert moment is not None  # of a sliding window
    return (moment - _EPOCH) // timedelta(microseconds=1)


def _size(results: Sequence[Filled]) -> int:
    return sum(len(one.status) + len(one.rows) for one in results)


# -- of a SELECT ---------------------------------------------------------------------------------------------


async def _select(options: BackfillOptions, text: str) -> int:
    """Its first live window says where it has begun. Older ones are printed first."""
    out, count = printer(options.output.value), 0

    def show(window: Window) -> bool:
        """Whether more are wanted."""
        nonlocal count
        out.windows([window])
        count += not window.revision
        return options.windows is None or count < options.windows

    async with (
        _connected(options) as client,
        contextlib.aclosing(client.subscribe(text)) as live,
    ):
        first = await anext(live)
        facts = await client.compare_facts(first.name, versions=True)
        windows = _older(options, facts)
        coming: asyncio.Queue[Window] = asyncio.Queue()
        reading = asyncio.create_task(_read(live, coming))
        try:
            for window in await asyncio.to_thread(_windows, options, facts, windows):
                if not show(window):
                    return 0
            if not show(first):
                return 0
            while show(await _next(coming, reading)):
                pass
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)
    return 0


async def _read(live: AsyncGenerator[Window], coming: asyncio.Queue[Window]) -> None:
    """A reader that is too slow would lose its SELECT: what comes meanwhile waits here."""
    async for window in live:
        coming.put_nowait(window)


async def _next(coming: asyncio.Queue[Window], reading: asyncio.Task[None]) -> Window:
    """Raises what the reader has died of."""
    waits = asyncio.create_task(coming.get())
    await asyncio.wait({waits, reading}, return_when=asyncio.FIRST_COMPLETED)
    if not waits.done():
        waits.cancel()
        reading.result()
        raise UserError("the SELECT has ended")
    return waits.result()


def _windows(options: BackfillOptions, facts: CompareFacts, windows: Sequence[Bounds]) -> list[Window]:
    """As a client is given them."""
    found: list[Window] = []
    for one in _made(options, facts, windows) if windows else ():
        result = WindowResult(
            job=facts.job.spec.uid,
            name=facts.job.spec.name,
            version=facts.job.spec.version,
            provisional=False,
            master="",
            first_us=one.first_us,
            last_us=one.last_us,
            revision=0,
            status=one.status,
            payload=one.rows,
        )
        found += split(result)
    return found


# -- of both -------------------------------------------------------------------------------------------------


def _older(options: BackfillOptions, facts: CompareFacts) -> list[Bounds]:
    """The windows that are asked for and that the live side does not make. Raises ``UserError``."""
    from agents.archived import moment_text
    from elf.job.group.group import WINDOWS_KEPT
    from spark_backend.history import begins_us, windows_before
    from spark_backend.judging import windows_of

    spec = facts.job.spec
    from_us = spec.plan.fragment.since_us
    if options.begin is not None:
        from_us = moment_us(options.begin, time.time_ns() // 1_000)
        if from_us is None:
            raise UserError(f"--from {options.begin}: that is no moment; say {HOW}")
    if from_us is None:
        raise UserError("since when? The query has no SINCE: say --from '-7 days'")
    until_us, made_us = begins_us(facts), max(end for _, end in windows_of(facts))
    if options.job is not None:
        step_us = min(kind.step_us for kind in spec.plan.windows)
        kept_us = made_us - WINDOWS_KEPT * step_us
        if from_us < kept_us:
            say(
                f"elf: a job keeps its last {WINDOWS_KEPT:,} windows: older ones than {moment_text(kept_us)} "
                "are left out (elf offline run answers for these)"
            )
            from_us = kept_us
    found = windows_before(spec.plan, from_us, until_us)
    if late := sum(end > made_us for _, end in found):
        say(
            f"elf: {late:,} windows that end after {moment_text(made_us)} are left out: the job has not made "
            "one that ends as late, so not all of their rows are archived; run it again then"
        )
    return [one for one in found if one[1] <= made_us]


def _made(options: BackfillOptions, facts: CompareFacts, windows: Sequence[Bounds]) -> list[Filled]:
    from spark_backend import history, offline, session

    archived = _archived(options, facts)
    damaged: Callable[[str, str], None] = name_damaged if options.skip_damaged else offline.refuse
    with session.opened(options.master, conf=dict(map(setting, options.conf))) as spark:
        return list(history.filled(spark, facts, archived, windows, damaged))


def _archived(options: BackfillOptions, facts: CompareFacts) -> list[Archived]:
    """What is made once stays so: of an agent that is away nothing may be missing."""
    from spark_backend.judging import silent
    from spark_backend.offline import Archived

    if not options.archives and (away := silent(facts)):
        raise UserError(
            f"no archive from {', '.join(away)}: not reached, and its rows would be missing for good; try "
            "again when it is back, or name the archives that have them with --archive"
        )
    return [
        Archived(path, source.stream, source.format, source.timestamp)
        for source in facts.archives
        for path in options.archives or source.archives
    ]
