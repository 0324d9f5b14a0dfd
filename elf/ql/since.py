"""``SINCE 'moment'``: from which event time on a query wants the rows of its streams, of the agents' archives
too (``elf.job.past``).

A moment is what ``elf.ql.moments`` reads, such as ``'-6 hours'`` or a timestamp. It is
resolved once, by the clock of the agent that is asked, and lies in the job's definition: all agents mean the
same one. A changed job begins with its change, whatever its text says.
"""

from __future__ import annotations

from elf.fields import replace
from elf.ql.dialect import Since
from elf.ql.moments import HOW, moment_us
from elf.ql.plan import Plan
from elf.ql.statements import Query


def moment_of(query: Query, now_us: int) -> int | None:
    """The event time (µs) that a query means by SINCE; None where it does not say it. Raises
    ``QueryError``."""
    clause = query.tree.args.get("since")
    inner = next((one for one in query.tree.find_all(Since) if one is not clause), None)
    if inner is not None:
        raise query.source.at(inner, "SINCE is of the whole query: say it once, at the end")
    if clause is None:
        return None
    text = str(clause.this)
    found = moment_us(text, now_us)
    if found is None:
        raise query.source.at(clause, f"SINCE '{text}' is no time; a time is {HOW}")
    if found > now_us:
        raise query.source.at(clause, f"SINCE '{text}' is to come yet; leave it out: the job begins now")
    return found


def begun_at(query: Query, plan: Plan, since_us: int) -> Plan:
    """The plan with rows from that event time on. Raises ``QueryError`` where a plan cannot have them."""
    clause = query.tree.args.get("since") or query.tree
    if refused := _refusal(plan):
        raise query.source.at(clause, f"SINCE does not go with {refused}")
    first, *more = (replace(one, since_us=since_us) for one in (plan.fragment, *plan.more))
    return replace(plan, fragment=first, more=tuple(more))


def _refusal(plan: Plan) -> str:
    """What of a plan has no past; empty: nothing."""
    if plan.reads or plan.beside:
        return "FROM JOB: say it where that job is created"
    for there, what in (
        (not plan.windows, "a query without WINDOWING: one result at an end that never comes"),
        (any(one.late_of for one in plan.unranged), "FROM LATE: late rows are not archived as such"),
        (any(one.count is not None for one in plan.unranged), "windows of rows: these go by the order"),
        (plan.trees > 1, "TREES yet: each tree would read the archive again"),
        (plan.fragment.leap, "STRAGGLERS LEAP, which leaves out who is behind: all are, in the past"),
        (plan.fragment.changes_us is not None, "EMIT CHANGES: the past does not change"),
    ):
        if there:
            return what
    return ""
