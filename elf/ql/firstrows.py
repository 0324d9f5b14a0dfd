"""What of a pane a LIMIT leaves, where that is known before the window is made."""

from __future__ import annotations

from dataclasses import replace

from elf.ql.plan import Plan, Top
from elf.windows import Sliding


def cut_of(plan: Plan) -> Top | None:
    """What a root may leave out of each pane that it hands to the master on another node, exactly: a window
    is one pane, and the root has the complete sums of its groups (one stream; key ranges share no group).
    """
    plain = plan.made is plan.fragment and not plan.more and not plan.beside
    if plan.top is None or not plain or len(plan.windows) != 1:
        return None
    (window,) = plan.windows
    whole = isinstance(window, Sliding) and window.is_tumbling and window.size_us == plan.fragment.pane_us
    return plan.top if whole else None


def with_first(plan: Plan) -> Plan:
    """The same plan, its agents sending only what may be among the first rows (``elf.job.thresholds``), if
    they are the greatest COUNTs or SUMs.
    """
    top, fragment = cut_of(plan), plan.fragment
    if top is None or not top.descending or top.nulls_first or fragment.keep is not None or plan.trees > 1:
        return plan
    state = next(state for state in fragment.states if state.name == top.state)
    return plan if state.merge != "sum" else replace(plan, fragment=replace(fragment, first=top))
