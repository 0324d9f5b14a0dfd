"""``elf compare``: the windows that a job committed, against the same query run by Spark over the archive.

It ends with 0 where all windows are equal, 1 where some differ and all of that is explained, 2 where
something is unexplained; with 69 where nothing could be compared, and 64 for a wrong command line.
"""

from __future__ import annotations

import importlib.util
import json
import logging
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from elf.cli.ask import ask
from elf.cli.errors import UNAVAILABLE, fail
from elf.cli.printing import console, say
from elf.client import CompareFacts, connect
from elf.errors import ConfigError, ElfBug, ElfError, UserError
from elf.ql.lookups import lookups_in
from elf.ql.moments import HOW, moment_us

if TYPE_CHECKING:
    from elf.ql.plan import Plan
    from spark_backend.compare import Bounds, Comparison
    from spark_backend.judging import Spark

LOOK_AGAIN_SECS: Final = 20.0
"""So long, at most, later windows are waited for, that may count rows which no window counts yet."""
_POLL_SECS: Final = 2.0


@dataclass(frozen=True)
class Chosen:
    """Which windows are judged: those from a moment on, and before another (event time, µs since the epoch),
    and of these the last ``windows``."""

    windows: int | None = None
    from_us: int | None = None
    to_us: int | None = None

    def of(self, known: Sequence[Bounds]) -> list[Bounds]:
        """Those of the windows that are known."""
        begin = -(1 << 63) if self.from_us is None else self.from_us
        end = (1 << 63) if self.to_us is None else self.to_us
        found = [one for one in known if begin <= one[0] and one[1] <= end]
        found.sort(key=lambda one: (one[1], one[0]))
        return found if self.windows is None else found[-self.windows :]


@dataclass(frozen=True)
class Fleet:
    """Whom to ask about which job."""

    address: str
    cluster: str
    job: str

    def facts(self, from_us: int | None = None) -> CompareFacts:
        """With the last results of the job; or with all that it keeps of windows from then on."""

        async def facts() -> CompareFacts:
            async with connect(self.address, cluster=self.cluster) as client:
                found = await client.compare_facts(self.job, versions=True)
                if from_us is None or len(found.job.windows) < FACTS_MAX:
                    return found
                since = datetime.fromtimestamp(from_us / 1e6, UTC).isoformat()
                kept = tuple([one async for one in client.results(self.job, since)])
                return replace(found, job=msgspec.structs.replace(found.job, windows=kept))

        return ask(facts())


@dataclass(frozen=True)
class Asked:
    """What was asked for, as it was typed; ``begin`` and ``end`` are ``--from`` and ``--to``."""

    fleet: Fleet
    windows: int | None = None
    begin: str | None = None
    end: str | None = None
    report: Path | None = None
    as_json: bool = False
    master: str | None = None
    follow: bool = False
    every: str = "60s"
    rounds: int | None = None
    metrics: str | None = None
    notify: str | None = None
    geoip: tuple[str, ...] = ()

    def chosen(self) -> Chosen:
        """Raises ``UserError``."""
        now_us = time.time_ns() // 1000
        moments = []
        for option, said in (("--from", self.begin), ("--to", self.end)):
            found = None if said is None else moment_us(said, now_us)
            if said is not None and found is None:
                raise UserError(f"{option} {said}: give {HOW}")
            moments.append(found)
        from_us, to_us = moments
        if from_us is not None and to_us is not None and from_us >= to_us:
            raise UserError(f"--from {self.begin} is not before --to {self.end}")
        return Chosen(self.windows, from_us, to_us)


def compare_job(asked: Asked) -> int:
    """Compare and print; how it came out (``spark_backend.compare.Outcome``), or ``UNAVAILABLE``."""
    from agents.lookups import LOOKUPS

    try:
        check_spark()
        check_page(asked.report)
        chosen = asked.chosen()
        LOOKUPS.open(asked.geoip)
        logging.disable(logging.ERROR)  # what py4j would print of a Ctrl-C; failures come as exceptions too
        if asked.follow:
            from elf.cli.follow import follow

            return follow(asked, chosen)
        if (asked.rounds, asked.metrics, asked.notify) != (None, None, None):
            raise UserError("--rounds, --metrics and --notify go with --follow")
        facts = asked.fleet.facts(chosen.from_us)
        comparison = report(facts, chosen, asked.master, asked.fleet)
        _show(comparison, facts, asked.report, as_json=asked.as_json)
        return int(comparison.outcome)
    except ElfError as error:
        status = fail(error)
        return status if isinstance(error, ConfigError | ElfBug) else UNAVAILABLE


def check_spark() -> None:
    """Raise ``UserError`` when Spark is not installed, before anybody is asked for anything."""
    if importlib.util.find_spec("pyspark") is None:
        raise UserError("comparing needs Spark: install elf-stream[spark] in this environment")


def check_page(page: Path | None) -> None:
    """Raise ``UserError`` where a report cannot be written, before Spark has worked for it."""
    if page is not None and (page.is_dir() or not page.absolute().parent.is_dir()):
        why = "it is a folder" if page.is_dir() else f"there is no folder {page.parent}"
        raise UserError(f"--report {page}: {why}")


def report(
    facts: CompareFacts, chosen: Chosen, master: str | None = None, again: Fleet | None = None
) -> Comparison:
    """Run the query offline, and judge. ``again``: whom to ask once more where rows may be counted in windows
    that were not committed yet. Raises ``UserError``."""
    name = facts.job.spec.name
    if not facts.job.windows:
        raise UserError(f"job {name} has not committed any window yet; ask again later")
    from spark_backend import judging, session

    known = judging.windows_of(facts)
    wanted = chosen.of(list(known))
    if not wanted:
        raise UserError(f"no window of job {name} is in that time: {_extent(list(known))}")
    if chosen.from_us is None and len(wanted) < (chosen.windows or 0) and len(facts.job.windows) >= FACTS_MAX:
        say(f"elf: these are the last {FACTS_MAX:,} results of job {name}: --from asks for older ones")
    if quiet := judging.silent(facts):
        say(f"elf: no archive from {', '.join(quiet)}: not reached; windows with their rows may differ")
    if off := judging.without_archive(facts):
        say(f"elf: no archive on {', '.join(off)} (archive: off); windows with their rows differ")
    archives = [(path, source.stream) for source in facts.archives for path in source.archives]
    print(f"running the query with Spark over {len(archives)} archives", file=sys.stderr)
    if lookups_in(facts.job.spec.plan.spark_sql):
        _name_tables(facts.job.spec.plan, archives, wanted)
    with session.opened(master or session.LOCAL) as spark:
        comparison = judging.judge(spark, facts, set(wanted).__contains__, name_damaged)
        return comparison if again is None else _looked_again(spark, comparison, facts, again)


FACTS_MAX: Final = 1_000
"""Results that an agent tells of."""


def _looked_again(spark: Spark, comparison: Comparison, facts: CompareFacts, fleet: Fleet) -> Comparison:
    """Windows of which the archive has rows that nobody counts are judged once more, when later windows are
    there: these may count them."""
    from spark_backend import judging, reasons

    open_ones = {(one.start_us, one.end_us) for one in comparison.windows if reasons.waits(one)}
    if not open_ones:
        return comparison
    say(f"elf: {len(open_ones)} windows are not explained yet: waiting for the windows after them")
    last, deadline = max(judging.windows_of(facts)), time.monotonic() + LOOK_AGAIN_SECS
    while True:
        time.sleep(_POLL_SECS)
        later = fleet.facts()
        fresh = sum(bounds > last for bounds in judging.windows_of(later))
        if fresh > 1 or time.monotonic() > deadline:
            break
    judged = judging.judge(spark, later, open_ones.__contains__)
    return judging.updated(comparison, judged)


def _extent(known: Sequence[Bounds]) -> str:
    from spark_backend.report import moment

    if not known:
        return "it has none"
    return f"it has windows from {moment(min(known)[0])} to {moment(max(end for _, end in known))}"


def _name_tables(plan: Plan, archives: Sequence[tuple[str, str]], spans: Sequence[tuple[int, int]]) -> None:
    """Say in which tables values are looked up here, and where agents had others. Raises ``UserError``."""
    from agents.lookups import LOOKUPS
    from spark_backend.lookups import editions

    if why := LOOKUPS.lacking(lookups_in(plan.spark_sql)):
        raise UserError(why)
    span = (min(start for start, _ in spans), max(end for _, end in spans)) if plan.windows else None
    theirs, ours = editions(plan, archives, span), {one for those in LOOKUPS.told().values() for one in those}
    if theirs:
        print(f"values were looked up in {', '.join(sorted(theirs))}", file=sys.stderr)
    if other := theirs - ours:
        here = ", ".join(sorted(ours))
        say(f"elf: not here: {', '.join(sorted(other))}; here is {here}: windows may differ for that alone")


def name_damaged(path: str, why: str) -> None:
    text = f"{path} is damaged and left out ({why}); windows with its rows differ: put a copy of it back"
    say(f"elf: {text}")


def _show(comparison: Comparison, facts: CompareFacts, page: Path | None, *, as_json: bool) -> None:
    from spark_backend import report as texts

    if page is not None:
        from spark_backend.page import write

        write(comparison, facts.job.spec.name, facts.job.spec.plan.sql, page)
        say(f"elf: the report is in {page}")
    if as_json:
        print(json.dumps(texts.as_json(comparison, facts.job.spec.name)))
    else:
        texts.show(comparison, console(sys.stdout))
