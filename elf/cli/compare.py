"""``elf compare``: the windows that a job committed, against the same query run by Spark over the archive."""

from __future__ import annotations

import importlib.util
import logging
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from elf.cli.ask import ask
from elf.cli.printing import console, say
from elf.client import CompareFacts, Window, connect, split
from elf.errors import UserError

if TYPE_CHECKING:
    from spark_backend.compare import Comparison, LiveWindow

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def compare_job(address: str, cluster: str, job: str, master: str | None) -> int:
    """Compare and print; 0 when every window is the same on both sides."""
    check_spark()
    logging.disable(logging.ERROR)  # what py4j would print of a Ctrl-C; failures come as exceptions too

    async def facts() -> CompareFacts:
        async with connect(address, cluster=cluster) as client:
            return await client.compare_facts(job)

    return 0 if report(ask(facts()), master).equal else 1


def check_spark() -> None:
    """Raise ``UserError`` when Spark is not installed, before anybody is asked for anything."""
    if importlib.util.find_spec("pyspark") is None:
        raise UserError("comparing needs Spark: install elf-stream[spark] in this environment")


def report(facts: CompareFacts, master: str | None = None) -> Comparison:
    """Run the query offline and print windows, differences and the closing line. Raises ``UserError``."""
    live = live_windows(facts)
    if not live:
        raise UserError(f"job {facts.job.spec.name} has not committed any window yet; ask again later")
    from spark_backend import compare, offline, session
    from spark_backend.report import show

    silent = dict.fromkeys(name for source in facts.archives for name in source.silent)
    if silent:
        say(f"elf: no archive from {', '.join(silent)}: not reached; windows with their rows may differ")
    off = dict.fromkeys(name for source in facts.archives for name in source.off)
    if off:
        say(f"elf: no archive on {', '.join(off)} (archive: off); windows with their rows differ")
    skipped = sum(bool(window.status.get("skipped")) for window in _windows(facts))
    if skipped:
        print(f"windows that were skipped, and are not compared: {skipped}", file=sys.stderr)
    archived = [
        offline.Archived(path, source.stream, source.format, source.timestamp)
        for source in facts.archives
        for path in source.archives
    ]
    print(f"running the query with Spark over {len(archived)} archives", file=sys.stderr)
    bounds = (min(window.start_us for window in live), max(window.end_us for window in live))
    for line in offline.lacking(archived, bounds if bounds[0] < bounds[1] else None):
        say(f"elf: the archive lacks rows: {line}; windows with them differ")
    with session.opened(master or session.LOCAL) as spark:
        spans = [(window.start_us, window.end_us) for window in live]
        rows = offline.run(spark, facts.job.spec.plan, archived, spans, _name_damaged)
    comparison = compare.compare(live, rows)
    show(comparison, console(sys.stdout))
    return comparison


def _name_damaged(path: str, why: str) -> None:
    text = f"{path} is damaged and left out ({why}); windows with its rows differ: put a copy of it back"
    say(f"elf: {text}")


def live_windows(facts: CompareFacts) -> list[LiveWindow]:
    """The committed windows as the comparison takes them; provisional ones are no commits, and skipped ones
    have no rows to compare.
    """
    from spark_backend.compare import LiveWindow

    return [
        LiveWindow(_us(window.start), _us(window.end), window.revision, window.status, window.table)
        for window in _windows(facts)
        if not window.provisional and not window.status.get("skipped")
    ]


def _windows(facts: CompareFacts) -> Iterator[Window]:
    for result in facts.job.windows:
        yield from split(result)


def _us(moment: datetime | None) -> int:
    """Microseconds since the epoch; 0 for the bounds of a job without windows."""
    if moment is None:
        return 0
    since = moment - _EPOCH
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds
