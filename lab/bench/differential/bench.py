"""``elf bench differential``: random queries over random logs, answered by fleets of agents, by DuckDB over
all rows, and by Spark; all three must be the same.

Query number n of a seed is always the same one, over the same log: ``--only n`` repeats it. Twenty-five
queries share a log and are asked of one fleet at once; fleets are of 1, 3 and 16 agents in turn.
"""

from __future__ import annotations

import random
import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Final

import duckdb
from typer import Option

from elf.errors import QueryError
from elf.ql.fragments import KEPT
from elf.ql.rules_after import BOUND
from lab.bench.differential import live
from lab.bench.differential.asked import plan_of
from lab.bench.differential.differences import (
    ESTIMATES,
    EXACTLY,
    Answer,
    Tolerance,
    beyond_bounds,
    difference,
    group_of,
)
from lab.bench.differential.live import Answered
from lab.bench.differential.logs import Log, make_log
from lab.bench.differential.offline import Offline
from lab.bench.differential.queries import make_query
from lab.bench.differential.reference import Reference
from lab.bench.differential.spread import NoReference
from lab.bench.differential.tree import Query
from lab.bench.runner import Bench, Figure, Report, Scratch
from lab.bench.sides import clocked
from spark_backend import batch

QUERIES_A_LOG: Final = 25
FLEETS: Final = (1, 3, 16)
BUSY: Final = re.compile("do(es)? not answer")
"""What a fleet says of a query whose creation was not confirmed within its deadline: a matter of clocks."""
DRAWS: Final = 3
"""So often a query is made anew when no row is left of the log: an empty answer shows little."""
PROGRESS_S: Final = 20.0
"""How far it is is said on standard error at most so often."""
SHRUNK_MAX: Final = 5
"""Failures that are made small; of the others only the query is printed."""
TRIES_MAX: Final = 150
"""Of making one small."""


@dataclass
class Figures:
    """What a run came to."""

    queries: int = 0
    equal: int = 0
    different: int = 0
    empty: int = 0
    """Equal, but without a row."""
    asked_again: int = 0
    """Queries that a fleet on a busy machine did not take in time."""
    unsupported: Counter[str] = field(default_factory=Counter)
    """Queries that elf refused (or that have no reference), by reason."""


@dataclass(frozen=True)
class Case:
    number: int
    query: Query
    agents: int
    seed: str
    every: Answer | None = None
    """Of an APPROXIMATE query: all of its groups."""

    @property
    def text(self) -> str:
        return str(self.query)


@dataclass(frozen=True)
class Differential(Bench[str, tuple[Figures, float]]):
    """Random queries, judged."""

    queries: Annotated[int, Option("--queries", min=1, help="How many random queries.")] = 100
    seed: Annotated[int, Option("--seed", min=0, help="The same seed, the same queries and logs.")] = 1
    only: Annotated[
        int | None, Option("--only", min=0, metavar="NUMBER", help="This query of the seed alone.")
    ] = None
    shrunk_max: int = SHRUNK_MAX

    def sides(self, scratch: Scratch) -> Mapping[str, Callable[[], tuple[Figures, float]]]:
        """Run all; every difference is printed at once."""
        spark = scratch.enter_context(batch.opened())

        def ask() -> tuple[Figures, float]:
            with clocked() as clock:
                figures = run(self, Offline(spark))
            return figures, round(clock.seconds, 1)

        return {"elf": ask}

    def report(self, runs: Mapping[str, Sequence[tuple[Figures, float]]]) -> Report:
        """A problem when there are differences."""
        ((figures, seconds),) = runs["elf"]
        return Report(
            {**told(figures), "seed": self.seed, "seconds": seconds},
            [
                Figure(
                    f"random queries (seed {self.seed}) that agents, DuckDB and Spark answer alike",
                    figures.equal,
                    f"of {figures.queries}",
                    dict(figures.unsupported),
                )
            ],
            [f"unsupported, {count} times: {reason}" for reason, count in figures.unsupported.most_common()],
            problems=[f"{figures.different} of {figures.queries} queries differ"]
            if figures.different
            else [],
        )


def told(figures: Figures) -> dict[str, object]:
    """The figures by name."""
    return {
        "queries": figures.queries,
        "equal": figures.equal,
        "differences": figures.different,
        "unsupported": figures.unsupported.total(),
        "without_rows": figures.empty,
        "asked_again": figures.asked_again,
        "reasons": dict(figures.unsupported.most_common()),
    }


def run(options: Differential, offline: Offline) -> Figures:
    """All queries of the options, a log at a time."""
    figures, told_at = Figures(), time.monotonic()
    numbers = range(options.queries) if options.only is None else [options.only]
    logs = dict.fromkeys(number // QUERIES_A_LOG for number in numbers)
    for index in logs:
        log = make_log(random.Random(f"{options.seed}/{index}"))
        _Round(log, offline, figures, options).judge([n for n in numbers if n // QUERIES_A_LOG == index])
        if time.monotonic() - told_at >= PROGRESS_S and figures.queries < len(numbers):
            told_at = time.monotonic()
            so_far = f"{figures.queries} of {len(numbers)} queries, {figures.different} different"
            print(so_far, file=sys.stderr, flush=True)
    return figures


class _Round:
    """The queries of one log."""

    def __init__(self, log: Log, offline: Offline, figures: Figures, options: Differential) -> None:
        self._log = log
        self._offline = offline
        self._figures = figures
        self._options = options

    def judge(self, numbers: Sequence[int]) -> None:
        """Ask all three and compare."""
        figures = self._figures
        reference = Reference(self._log)
        self._offline.load(self._log)
        wanted: list[Answered] = []
        sound = []
        for number in numbers:
            figures.queries += 1
            try:
                case, answer = self._drawn(number, reference)
            except (QueryError, NoReference) as error:
                figures.unsupported[_reason(error)] += 1
            else:
                sound.append(case)
                wanted.append(answer)
        reference.close()
        texts = [case.text for case in sound]
        lives = live.answers(self._log, texts, sound[0].agents, sound[0].seed) if sound else []
        for index, (case, given) in enumerate(zip(sound, lives, strict=True)):
            if isinstance(given, str) and BUSY.search(given):
                figures.asked_again += 1
                (lives[index],) = live.answers(self._log, [case.text], case.agents, case.seed)
        sparks = self._offline.answers(texts)
        for case, want, got, spark in zip(sound, wanted, lives, sparks, strict=True):
            complaint = judge(want, got, spark, case)
            if complaint is None:
                figures.equal += 1
                figures.empty += isinstance(want, Answer) and not want.rows
            else:
                figures.different += 1
                self._tell(case, complaint)

    def _drawn(self, number: int, reference: Reference) -> tuple[Case, Answered]:
        """Query ``number`` of the seed, and DuckDB's answer. Raises ``QueryError``, ``NoReference``."""
        index, place = divmod(number, QUERIES_A_LOG)
        seed = f"{self._options.seed}/{index}"
        rng = random.Random(f"{seed}/{place}")
        for _ in range(DRAWS):
            query = make_query(rng, lateness=self._log.whole)
            case = Case(number, query, FLEETS[index % len(FLEETS)], seed)
            plan_of(case.text)
            try:
                answer: Answered = reference.answer(case.text)
                case = replace(case, every=every(query, reference))
            except duckdb.Error as error:
                answer = f"DuckDB: {error}"
            if isinstance(answer, str) or answer.rows:
                break
        return case, answer

    def _tell(self, case: Case, complaint: str) -> None:
        """Print a failure, as small as it gets."""
        print(f"\nquery {case.number} differs, {case.agents} agents: {complaint}\n  {case.text}")
        again = f"elf bench differential --seed {self._options.seed} --only {case.number}"
        if self._figures.different <= self._options.shrunk_max:
            alone = self._complain(case, case.query, self._log)
            if alone is None:
                print(f"  alone it is right: it takes the others of its log, --queries {case.number + 1}")
            else:
                query, log, complaint = shrink(
                    case.query, self._log, alone, lambda query, log: self._complain(case, query, log)
                )
                print(f"  shrunk: {complaint}\n  {query}")
                for number, file in enumerate(log.files):
                    for line in file:
                        print(f"    file {number}: {line.text}")
            self._offline.load(self._log)
        print(f"  to repeat it: {again}", flush=True)

    def _complain(self, case: Case, query: Query, log: Log) -> str | None:
        """What is wrong with this query over this log; None when nothing is, or it cannot be asked."""
        text = str(query)
        if not query.outputs and not query.keys:
            return None
        reference = Reference(log)
        try:
            plan_of(text)
            want: Answered = reference.answer(text)
            case = replace(case, query=query, every=every(query, reference))
        except (QueryError, NoReference, duckdb.Error):
            return None
        finally:
            reference.close()
        (got,) = live.answers(log, [text], case.agents, case.seed)
        found = judge(want, got, want, case)
        if found is not None:
            return found
        self._offline.load(log)
        (spark,) = self._offline.answers([text])
        return judge(want, want, spark)


def every(query: Query, reference: Reference) -> Answer | None:
    """All groups of an APPROXIMATE query."""
    if not query.approximate:
        return None
    found = reference.answer(str(replace(query, approximate=False, limit=None, offset=0)))
    return replace(found, names=(*found.names, BOUND), rows=[(*row, 0.0) for row in found.rows])


def _cut(case: Case) -> tuple[tuple[int, ...], int] | None:
    """Of an APPROXIMATE query of whose groups some may have been left out: the columns that tell a group, and
    the one that has its value. Of few groups none is.
    """
    if case.every is None or case.query.limit is None:
        return None
    value = len(case.every.names) - 2
    first = value - len(case.query.keys)
    groups = {group_of(row, range(first, value)) for row in case.every.rows}
    return (
        (tuple(range(value)), value) if len(groups) > KEPT * (case.query.limit + case.query.offset) else None
    )


def judge(wanted: Answered, got: Answered, spark: Answered | None, case: Case | None = None) -> str | None:
    """What is wrong, for a person to read; None when all are the same. ``spark``: None where Spark is not
    asked.
    """
    for name, one in (("DuckDB on all rows", wanted), ("live", got), ("Spark", spark)):
        if isinstance(one, str):
            return f"{name} has no answer: {one}"
    assert isinstance(wanted, Answer)
    assert isinstance(got, Answer)
    assert not isinstance(spark, str)
    cut = None if case is None else _cut(case)
    if cut is not None and case is not None and case.every is not None:
        if (found := beyond_bounds(got, wanted, case.every, *cut)) is not None:
            return f"live is not within its bounds: {found}"
        got = wanted
    if (found := difference(got, wanted)) is not None:
        return f"live is not DuckDB on all rows: {found}"
    if spark is None:
        return None
    if (found := difference(spark, wanted)) is not None:
        return f"Spark is not DuckDB on all rows: {found}"
    if (found := difference(got, Answer(spark.names, spark.rows, _loose(wanted), wanted.scales))) is not None:
        return f"live is not Spark: {found}"
    return None


def _loose(wanted: Answer) -> tuple[Tolerance, ...]:
    """Between live and Spark: estimates are the same to the bit."""
    return tuple(EXACTLY if one in ESTIMATES else one for one in wanted.tolerances)


def _reason(error: Exception) -> str:
    """An error without its place and its names."""
    return str(error).splitlines()[0].partition(" (line ")[0]


Fails = Callable[[Query, Log], str | None]
"""What is wrong with a query over a log; None when nothing is."""


@dataclass
class _Budget:
    fails: Fails
    left: int

    def try_one(self, query: Query, log: Log) -> str | None:
        if self.left <= 0:
            return None
        self.left -= 1
        return self.fails(query, log)


def shrink(
    query: Query, log: Log, complaint: str, fails: Fails, tries: int = TRIES_MAX
) -> tuple[Query, Log, str]:
    """The smallest failure that was found, and what is wrong with it. ``fails`` of (query, log) is
    ``complaint``."""
    budget = _Budget(fails, tries)
    log, complaint = _fewer_lines(query, log, complaint, budget, tries // 3)
    query, complaint = _simpler(query, log, complaint, budget)
    log, complaint = _fewer_lines(query, log, complaint, budget, budget.left)
    return query, log, complaint


def _fewer_lines(query: Query, log: Log, complaint: str, budget: _Budget, tries: int) -> tuple[Log, str]:
    """Without halves, then quarters … of the files, as long as it fails."""
    stop = budget.left - tries
    step = max((len(file) for file in log.files), default=0)
    while step and budget.left > stop:
        smaller = False
        for number in range(len(log.files)):
            start = 0
            while start < len(log.files[number]) and budget.left > stop:
                candidate = log.without(number, start, start + step)
                found = budget.try_one(query, candidate)
                if found is None:
                    start += step
                else:
                    log, complaint, smaller = candidate, found, True
        step = step // 2 if not smaller or step > 1 else 0
    return log, complaint


def _simpler(query: Query, log: Log, complaint: str, budget: _Budget) -> tuple[Query, str]:
    again = True
    while again and budget.left > 0:
        again = False
        for candidate in query.variants():
            found = budget.try_one(candidate, log)
            if found is not None:
                query, complaint, again = candidate, found, True
                break
            if budget.left <= 0:
                break
    return query, complaint
