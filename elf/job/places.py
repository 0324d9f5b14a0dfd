"""Which agents a flow is asked of: ``FROM access ON place = 'eu'`` is about agents with such labels.

What members say of themselves when they join a stream is in the catalog log. An agent whose labels make a
condition of WHERE false, or unknown, has no row of the flow. It is not asked: it gets no flow, is not
expected in its panes, and so is not missing there (protocol 2.6). Where labels do not decide, or are not
known, the agent is asked.

An agent that is started again with other labels may have rows from before; it is asked for what it would be
with the ones or the others.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Mapping
from typing import Final

from elf.fields import Labels
from elf.ql.plan import Condition, Fragment
from elf.schema import LABELS

SETS_KEPT: Final = 8
"""Sets of labels that are remembered of a member; one that has had more is asked whatever it says."""
_ORDERS: Final[Mapping[str, Callable[[str, str], bool]]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


class _Undecided(Exception):
    """Labels alone do not say it."""


def may_have_rows(fragment: Fragment, known: Collection[Labels] | None) -> bool:
    """Whether an agent that has said these sets of labels may have rows of a fragment. None: it has said
    nothing; more than ``SETS_KEPT``: there may be others."""
    if known is None or len(known) > SETS_KEPT:
        return True
    return any(all(_may(one, dict(labels)) for one in fragment.where) for labels in known)


def _may(one: Condition, labels: Mapping[str, str]) -> bool:
    try:
        return _truth(one, labels) is True
    except _Undecided:
        return True


def _truth(one: Condition, labels: Mapping[str, str]) -> bool | None:
    """None: it is not known, as in SQL. Raises ``_Undecided``."""
    match one.op:
        case "and" | "or":
            return _connected(one, labels)
        case "not":
            inner = _truth(one.parts[0], labels)
            return None if inner is None else not inner
        case "is_null":
            return _text(one.parts[0], labels) is None
        case "in":
            value, *others = (_text(part, labels) for part in one.parts)
            return None if value is None else value in others or (None if None in others else False)
        case op if op in _ORDERS:
            left, right = (_text(part, labels) for part in one.parts)
            return None if left is None or right is None else _ORDERS[op](left, right)
    raise _Undecided


def _connected(one: Condition, labels: Mapping[str, str]) -> bool | None:
    """One part may decide what others leave open."""
    decides, undecided = one.op == "or", False
    truth: bool | None = not decides
    for part in one.parts:
        try:
            said = _truth(part, labels)
        except _Undecided:
            undecided = True
            continue
        if said is decides:
            return decides
        truth = None if said is None else truth
    if undecided:
        raise _Undecided
    return truth


def _text(one: Condition, labels: Mapping[str, str]) -> str | None:
    """The value of a label, or of a text. Raises ``_Undecided``."""
    if one.op == "column" and one.name.startswith(LABELS):
        return labels.get(one.name.removeprefix(LABELS))
    if one.op == "constant" and isinstance(one.value, str):
        return one.value
    raise _Undecided
