"""Random queries over the windows of jobs, which are random queries themselves: their rows in the job's
windows or in larger ones, joined with those of another job, and jobs over jobs.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from elf.ql.expressions import Kind
from elf.windows import Counted, Cumulative, Sliding
from elf.windows import Kind as Window
from lab.bench.differential.asked import plan_of
from lab.bench.differential.expressions import Expressions
from lab.bench.differential.sources import any_key, columns_of
from lab.bench.differential.tree import Node, Query, leaf

Leaves = Mapping[Kind, Sequence[Node]]
DEPTH_MAX: Final = 2
"""Jobs over jobs."""
_LETTERS: Final = ("gh", "ef")


def over_jobs(
    rng: random.Random, make: Callable[[], Query], group: Callable[[Leaves], Query], depth: int = 1
) -> Query:
    """``make`` gives a query that is over streams; ``group`` one with groups over rows with these columns."""
    if depth < DEPTH_MAX and rng.random() < 0.3:
        job = over_jobs(rng, make, group, depth + 1)
    else:
        job = _windowed(rng, make)
    job = _called(rng, job, depth)
    leaves: Leaves = columns_of(job)
    windows = plan_of(str(job)).windows
    query = Query(under=job)
    shared = [isinstance(kind, Sliding | Cumulative) and not isinstance(kind, Counted) for kind in windows]
    if all(shared) and rng.random() < 0.4:
        query, leaves = _joined(rng, query, make, leaves)
    if leaves and rng.random() < 0.2:
        return replace(_plain(rng, leaves), under=query.under, beside=query.beside)
    query = replace(group(leaves), under=query.under, beside=query.beside)
    joined = any(one.beside for one in (query, job, *job.jobs()))
    if not joined and len(windows) == 1 and rng.random() < 0.9:
        query = replace(query, window=_larger(rng, windows[0]))
    return query


def _windowed(rng: random.Random, make: Callable[[], Query]) -> Query:
    """A job, which most often leaves some rows to its readers."""
    while True:
        query = make()
        if query.window and not query.approximate:
            break
    if query.given or rng.random() < 0.2:
        return query
    return replace(query, where=(), having=(), qualify=(), limit=query.limit or None, offset=0)


def _called(rng: random.Random, query: Query, depth: int) -> Query:
    """As a job. What its columns are called stands for one thing only in what is over it."""
    return replace(query, job=f"j{rng.getrandbits(32):x}", letters=_LETTERS[depth - 1])


def _joined(
    rng: random.Random, query: Query, make: Callable[[], Query], leaves: Leaves
) -> tuple[Query, Leaves]:
    """With another job that has the same windows beside it, where they have columns to compare."""
    job = query.under
    assert job is not None
    while job.under is not None and job.under.job:  # whose windows are those of the job that it reads
        if job.window:  # larger ones, of shorter panes
            return query, leaves
        job = job.under
    other = _windowed(rng, make)
    own = tuple(one for one in other.outputs if not any(word in str(one) for word in ("LAG(", "LEAD(")))
    own = own or (leaf("COUNT(*)", "bigint", aggregated=True),)
    other = replace(other, outputs=own, window=job.window)  # which may be of several sizes
    alike = query.under is job and job.keys and job.keys[0].exact and _same_rows(job, other)
    if alike and rng.random() < 0.8:
        other = replace(other, keys=(job.keys[0], *other.keys))
    other = _called(rng, other, 1)
    theirs = columns_of(other)
    both = sorted(leaves.keys() & theirs.keys())
    if not both:
        return query, leaves
    kind = rng.choice(both)
    mine = {of: [_of("s", node) for node in nodes] for of, nodes in leaves.items()}
    found = {of: [_of("u0", node) for node in nodes] for of, nodes in theirs.items()}
    on = f"{rng.choice(mine[kind])} = {rng.choice(found[kind])}"
    if alike and other.keys[:1] == job.keys[:1]:
        on = f"s.{job.letters[0]}0 = u0.{other.letters[0]}0"
    every = {of: [*mine.get(of, ()), *found.get(of, ())] for of in sorted(leaves.keys() | theirs.keys())}
    if rng.random() < 0.2:
        on += f" AND {Expressions(rng, every).make('boolean', 1)}"
    return replace(query, beside=((rng.choice(["", "LEFT "]), other, on),)), every


def _same_rows(job: Query, other: Query) -> bool:
    """Whether what is a key of one may be one of the other."""
    plain = all(
        (one.under, one.joins, one.stream, one.given) == (None, (), "log", ()) for one in (job, other)
    )
    return plain and not other.sets and not other.distinct


def _of(table: str, column: Node) -> Node:
    return replace(column, template=f"{table}.{column.template}")


def _plain(rng: random.Random, leaves: Leaves) -> Query:
    """The rows as they are, some of them."""
    rows = Expressions(rng, leaves)
    outputs = tuple(any_key(rows) for _ in range(rng.choice([1, 2, 3])))
    query = Query(outputs=outputs, distinct=rng.random() < 0.15)
    if rng.random() < 0.5:
        query = replace(query, where=(rows.make("boolean", 2),))
    if rng.random() < 0.4 and not query.distinct:
        query = replace(query, order=((any_key(rows), rng.choice(["", " DESC", " NULLS FIRST"])),))
    return replace(query, limit=rng.choice([1, 2, 5])) if rng.random() < 0.3 else query


def _larger(rng: random.Random, window: Window) -> str:
    """Windows that are a number of whole ones of these; nothing where these are not tumbling ones."""
    if not isinstance(window, Sliding) or not window.is_tumbling:
        return ""
    size, many = window.size_us // 1000, rng.choice([1, 2, 3, 6])
    tumbling, step = f"{many * size} MILLISECONDS", f"{size} MILLISECONDS"
    return rng.choice(
        [
            f"WINDOWING {tumbling}",
            f"WINDOWING {tumbling} SLIDE {step}",
            f"WINDOWING {tumbling}, {2 * size} MILLISECONDS SLIDE {step}",
            f"WINDOWING CUMULATE {tumbling} STEP {step}",
            f"WINDOWING LANDMARK EVERY {tumbling}",
        ]
    )
