"""The kinds of jobs that a schedule names, and their queries."""

from __future__ import annotations

from typing import Final

from elf.fields import replace
from elf.ql.plan import Plan, Top, with_first
from lab.chaos.engine import BUYS, EACH, MOST, SECOND, STREAM, plan, ranged, staged, united
from lab.chaos.reference import DROPPING

WAIT_US: Final = 6 * SECOND
"""How long a job waits for stragglers."""
LATENESS_US: Final = 2 * SECOND
"""The lateness of queries over files, and the agents' own."""

JOBS = {
    "plain": 1,
    "slide": 3,
    "odd": 1,
    "where": 1,
    "both": 3,
    "top": 2,
    "late": 2,
    "trees": 1,
    "larger": 2,
    "over": 1,
    "joined": 1,
    "final": 2,
    "wait": 2,
    "leap": 3,
    "first": 2,
}
"""Kinds of jobs, and how often they are."""
UNITS = ("four", "six")
"""Kinds of jobs whose panes heads may merge; where agents stand in regions some are of these."""
PASTS = ("plain", "slide", "odd", "where", "both", "top", "late", "larger", "wait")
"""Kinds of jobs that may begin in the past."""
OWNED = ("plain", "slide", "odd", "where", "both", "trees", "late", "long", "wait", "leap")
"""Kinds of jobs that may count by an aggregate of one's own."""
OTHERWISE = ("wait", "leap", "leap trees", "first")
"""They have straggler policies of their own."""
JOINING = ("plain", "slide", "odd", "where", "late", "wait")
"""Kinds of jobs that may join a table."""
READERS = ("over", "joined")
"""They read job 0, which is plain."""
OWN = ("larger", "final", *READERS)
"""Their windows are made for each job, also for equal ones (``agents.committing.kept.alike``)."""
RANGED = {
    "plain": ("plain", "ranked", "tallied"),
    "trees": ("trees", "ranked", "tallied"),
    "odd": ("odd", "ranked"),
    "where": ("where", "tallied"),
}
"""What kinds of jobs may be instead: with a later stage at the roots of key ranges."""


def query_of(kind: str) -> Plan:
    """The query of a job of that kind."""
    match kind:
        case "slide":
            return plan(4, 2, least=2)
        case "odd":
            return plan(3, 1)
        case "four":
            return united(4, 4)
        case "six":
            return united(6, 6)
        case "where":
            return plan(2, where="abc")
        case "both":
            return plan(4, 2, streams=(STREAM, BUYS))
        case "top":
            return replace(plan(2), top=Top("s0", True, False, 2), limit=2)
        case "trees":
            return replace(plan(2), trees=3)
        case "ranked":
            return ranged(plan(2), MOST, 3)
        case "tallied":
            return ranged(plan(3), EACH, 2)
        case "late":
            return revising(plan(2))
        case "long":
            return revising(plan(3, 1))
        case "larger":
            return staged(revising(plan(2, least=2)), 6, 2)
        case "over":
            return staged(plan(2), 4, 4)
        case "joined":
            return replace(plan(4, 2), beside=(plan(4, 2, where="abc"),))
        case "final":
            return replace(plan(2), final=DROPPING)
        case "wait":
            return behind(plan(2), wait_us=WAIT_US)
        case "leap":
            return behind(plan(2, 1), leap=True)
        case "leap trees":
            return replace(behind(plan(2, 1), leap=True), trees=3)
        case "first":
            return with_first(behind(replace(plan(2), top=Top("s0", True, False, 1), limit=1), leap=True))
        case "mirror":
            return mirrored(plan(2))
        case _:
            return plan(2)


def mirrored(query: Plan) -> Plan:
    """The same, with neighbours that answer for stragglers."""
    fragment, *more = (replace(one, mirror=True) for one in (query.fragment, *query.more))
    return replace(query, fragment=fragment, more=tuple(more), beside=tuple(map(mirrored, query.beside)))


def tardy(query: Plan) -> Plan:
    """The same, with another lateness."""
    fragment, *more = (replace(one, lateness_us=LATENESS_US) for one in (query.fragment, *query.more))
    return replace(query, fragment=fragment, more=tuple(more), beside=tuple(map(tardy, query.beside)))


def revising(query: Plan) -> Plan:
    """The same, with revisions for late rows."""
    return replace(query, fragment=replace(query.fragment, revise_us=8 * SECOND))


def behind(query: Plan, *, wait_us: int | None = None, leap: bool = False) -> Plan:
    """The same, with another policy for stragglers."""
    return replace(query, fragment=replace(query.fragment, wait_us=wait_us, leap=leap))


def since(query: Plan, since_us: int) -> Plan:
    """The same, from that event time on."""
    fragment, *more = (replace(one, since_us=since_us) for one in (query.fragment, *query.more))
    return replace(query, fragment=fragment, more=tuple(more))
