"""LIMIT n APPROXIMATE: which queries may be cut on the way up, with a bound on what that changes
(``elf.job.approximate``).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from elf.ql.draft import Draft
from elf.ql.expressions import Aggregate, walk
from elf.windows import Session

BOUND: Final = "error_bound"
"""The column with the error of an approximate row."""
_COUNTED: Final = ("count_star", "count", "sum")


def read_approximate(draft: Draft) -> Draft:
    """LIMIT n APPROXIMATE: one COUNT or SUM, the greatest first."""
    clause = draft.tree.args.get("approximate")
    if clause is None:
        return draft
    refused = _not_approximate(draft)
    if refused:
        raise draft.source.at(clause, f"APPROXIMATE {refused}")
    return replace(draft, approximate=True)


def _not_approximate(draft: Draft) -> str:
    """Why the rows of a query cannot be cut with a bound on what that may change; empty if they can."""
    order = draft.order[0] if draft.order else None
    if draft.limit is None:
        return "goes with a LIMIT"
    if draft.below is not None or draft.qualify is not None or draft.having is not None or draft.distinct:
        return "goes with neither HAVING, QUALIFY, LIMIT BY, DISTINCT nor subqueries"
    if not draft.keys or draft.sets:
        return "needs a plain GROUP BY"
    if draft.trees > 1:
        return "sends little enough for one tree: leave out TREES"
    if any(isinstance(kind, Session) for kind in draft.windows):
        return "does not go with sessions, whose pieces must all be there"
    if draft.counts:
        return "does not go with windows of rows"
    if draft.revise_us is not None or draft.changes_us is not None:
        return "does not go with EMIT FINAL REVISE or CHANGES: what was left out cannot be bounded then"
    if order is None or not isinstance(order.value, Aggregate) or not order.descending:
        return "needs ORDER BY COUNT(…) DESC or SUM(…) DESC: other values have no bound on what was left out"
    found = {part for o in draft.outputs for part in walk(o.value) if isinstance(part, Aggregate)}
    for one in (order.value, *sorted(found - {order.value}, key=repr)):
        name = one.name.upper().replace("COUNT_STAR", "COUNT")
        if one.name not in _COUNTED:
            return f"goes with COUNT and SUM only; of {name} nobody could say by how much it may be wrong"
        if one != order.value:
            return f"bounds the value that it orders by only; leave out the other {name}"
    if order.nulls_first:
        return "goes with NULLS LAST only"
    if any(output.name.lower() == BOUND for output in draft.outputs):
        return f"adds a column {BOUND}: give yours another name"
    return ""
