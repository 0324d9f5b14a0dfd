"""Jobs that get another query while they run: asking for it, and checking the windows of every version."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from agents.disk.groupstore import stored_jobs
from elf.batch import decode
from elf.job import events as was
from elf.job.messages.groups import ReconfigureJob
from elf.job.spec import JobSpec, VersionRecord
from elf.ql.plan import Plan
from elf.windows import Sliding
from elf.wire.base import Answer
from lab.chaos.books import us_of
from lab.chaos.engine import defined
from lab.chaos.reference import DROPPING
from lab.chaos.world import World


def reconfigure(world: World, spec: JobSpec, verb: str, query: Plan | None = None, **how: object) -> None:
    """Ask the job's master, as an agent's statement would; the answer comes to ``client_inbox``."""
    leader = world.leader(spec)
    made = None if query is None else defined(query)
    request = ReconfigureJob(id=7, origin="client:1", uid=spec.uid, verb=verb, definition=made, **how)  # type: ignore[arg-type]
    if leader.up:
        leader.handle(was.Arrived("client:1", request))


def answered(world: World) -> str:
    """Wait for the answer to what was asked; its error."""
    world.run_until(lambda: bool(world.client_inbox), 10_000)
    answer = world.client_inbox.pop()
    world.client_inbox.clear()
    assert isinstance(answer, Answer)
    return answer.error


def versions(world: World, spec: JobSpec) -> dict[int, VersionRecord]:
    """As the job group keeps them on its disk."""
    (job,) = (job for job in stored_jobs(world.leader(spec).store) if job.spec.uid == spec.uid)
    return {one.spec.version: one for one in job.versions}


def state(world: World, spec: JobSpec, version: int) -> str:
    """Of a version; a job group that moves may not have applied its record yet."""
    known = versions(world, spec).get(version)
    return known.state if known is not None else ""


Said = dict[tuple[int, int], tuple[int, int, dict[str, int], dict[str, Any]]]


def said(world: World, spec: JobSpec) -> Said:
    """Window (start, end) → (version, revision, counts, status) of its last revision."""
    found: Said = {}
    for row in world.leader(spec).store.windows(spec.uid, -(1 << 62), 1 << 62):
        rows = decode(row.rows).to_pylist()
        for status in decode(row.status).to_pylist():
            span = us_of(status["window_start"]), us_of(status["window_end"])
            counts = {
                r["k0"]: r["s0"] for r in rows if (us_of(r["window_start"]), us_of(r["window_end"])) == span
            }
            assert status["version"] == row.version
            before = found.get(span)
            assert before is None or before[0] == row.version, (span, "is of two versions")
            if before is None or before[1] <= status["revision"]:
                found[span] = row.version, status["revision"], counts, status
    return found


def truth(
    world: World, query: Plan, span: tuple[int, int], missing: Sequence[str] = (), *, failed: bool = False
) -> dict[str, int]:
    """What one version says of a window: a count over all logs, without what its functions drop, unless they
    have ``failed``."""
    where, pane_us = query.fragment.map_sql.removeprefix("count by key "), query.fragment.pane_us
    panes = Counter(
        (ts // pane_us, key)
        for agent in world.agents
        if f"a{agent.index}" not in missing
        for ts, key in agent.log.rows
        if span[0] <= ts < span[1] and (not where or key in where)
    )
    least = 2 if query.fragment.reduce is not None and not failed else 1
    counts: Counter[str] = Counter()
    for (_, key), n in panes.items():
        counts[key] += n if n >= least else 0
    final = query.final.filename if query.final is not None and not failed else ""
    return {
        key: n
        for key, n in counts.items()
        if n >= max(1, int(query.final_sql or 0)) and (final != DROPPING.filename or key != "a")
    }


def check(world: World, spec: JobSpec, until_ms: int, least: int) -> Said:
    """Every window is right by the version whose it is, and each version has all of its own."""
    records, windows = versions(world, spec), said(world, spec)
    made = {n: r for n, r in records.items() if r.state in ("committed", "finished")}
    end_us = (until_ms - 1_500) * 1000
    assert sum(span[1] <= end_us for span in windows) >= least
    for span, (version, _, counts, status) in windows.items():
        if status["skipped"]:
            assert (counts, version in made) == ({}, True)
            continue
        query, failed = made[version].spec.plan, bool(status["function_failed"])
        if span[1] > end_us:
            continue
        if failed and query.fragment.reduce is not None:  # some of its panes are reduced, some are not
            full, sure = truth(world, query, span, failed=True), truth(world, query, span, status["missing"])
            assert all(n <= full.get(key, 0) for key, n in counts.items()), (span, status)
            assert all(n <= counts.get(key, 0) for key, n in sure.items()), (span, status)
        elif status["missing"]:  # in one pane at least; it comes too late for revisions
            full = truth(world, query, span, failed=failed)
            sure = truth(world, query, span, status["missing"], failed=failed)
            assert all(n <= full.get(key, 0) for key, n in counts.items()), (span, status)
            assert query.final_sql or all(n <= counts.get(key, 0) for key, n in sure.items()), (span, status)
        else:
            assert counts == truth(world, query, span, status["missing"], failed=failed), (span, status)
    for number, record in made.items():
        assert record.first_pane is not None
        first = record.first_pane * record.spec.plan.fragment.pane_us
        last = min(record.until_us, end_us)
        wanted: set[tuple[int, int]] = set()
        for kind in record.spec.plan.windows:
            assert isinstance(kind, Sliding)
            if record.first_pane < 0:  # nothing had been read: from the first row on
                there = (s for (s, e), one in windows.items() if (one[0], e - s) == (number, kind.size_us))
                first = min(there, default=end_us)
            starts = range(-(-first // kind.slide_us) * kind.slide_us, last, kind.slide_us)
            ends_us = min(record.ends_us, end_us) - kind.size_us
            wanted |= {(start, start + kind.size_us) for start in starts if start <= ends_us}
        if record.after_us is not None:  # it goes on with the windows of the version before
            wanted = {span for span in wanted if span[1] > record.after_us}
        mine = {span for span, one in windows.items() if one[0] == number and span[1] <= end_us}
        assert mine == wanted, (number, sorted(mine ^ wanted), record)
    return windows
