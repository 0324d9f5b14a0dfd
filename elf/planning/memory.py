"""What flows may hold in memory, so that no job and no creator has more there than it may; what is more goes
to disk.

A flow's memory is divided among its readers. Where all that a holder wants is more than its budget, each
flow has what it wants or an equal share, whichever is less, and what some leave is the others' (max-min
fairness). A flow may hold what its most generous reader lends it, as with weights."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

from elf.planning.lent import Budgets, FlowUse, Holder, holders


def fair(wanted: Mapping[str, float], most: float) -> dict[str, float]:
    """What each may have of so much, if all want more than that."""
    found, left = dict[str, float](), most
    for place, (name, want) in enumerate(sorted(wanted.items(), key=lambda item: (item[1], item[0]))):
        found[name] = min(want, left / (len(wanted) - place))
        left -= found[name]
    return found


def memory_bounds(flows: Sequence[FlowUse], budgets: Budgets) -> dict[str, int]:
    """Of the flows that are bounded, in bytes."""
    wanted: dict[Holder, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for flow in flows:
        for reader in flow.readers:
            for holder in holders(reader.job, reader.creator):
                if budgets.of(holder).memory_bytes:
                    share = (flow.held.memory_bytes + flow.held.spilled_bytes) / len(flow.readers)
                    wanted[holder][flow.uid] += share
    lent = {
        holder: fair(shares, most)
        for holder, shares in wanted.items()
        if sum(shares.values()) > (most := budgets.of(holder).memory_bytes)
    }
    bounds = {flow.uid: _bound(flow, lent) for flow in flows if flow.readers}
    return {uid: bound for uid, bound in bounds.items() if bound is not None}


def _bound(flow: FlowUse, lent: Mapping[Holder, Mapping[str, float]]) -> int | None:
    """By its most generous reader. A creator lends for all of their jobs that read it together."""
    found, jobs = [], Counter(reader.creator for reader in flow.readers)
    for reader in flow.readers:
        job, creator = holders(reader.job, reader.creator)
        limits = []
        if job in lent:
            limits.append(lent[job][flow.uid])
        if creator in lent:
            limits.append(lent[creator][flow.uid] / jobs[reader.creator])
        if not limits:
            return None
        found.append(min(limits) * len(flow.readers))
    return int(max(found))
