"""Agents that are behind: what a job says about them, and how that is carried out (protocol 4.4, protocol
8.1).

A straggler is an agent of a pane's roster whose snapshot is not at the root when the limit is up. The limit
runs from when half of the watermarks have passed the pane. ``STRAGGLERS`` is part of the fragment, so a flow
has one policy, and only jobs with that policy share it:

    REVISE   the settings' limit (two panes, clamped); agents that are taken for dead are not waited for. What
             comes later is a revision, for as long as ``revise_ms``.
    WAIT n   the limit is n, and all expected agents are waited for, dead or never heard of. It runs from
             when half of those that are there have passed: more than half may be away. Then as REVISE.
    LEAP     the limit of REVISE; but who has fallen two intervals behind is not waited for (the paper's
             rule), and the commit is the last word on its panes. What comes later is refused.
    MIRROR   as REVISE; but neighbours have a replica of each snapshot at once, and when half of the limit is
             up, or a missing agent is two intervals behind, one of them answers for it (the paper's
             speculative copy; how: ``elf.job.rollup.replication``).

Two intervals behind in a pane is who has not sealed it when half of the others have sealed two panes from it
on. The root sees that by what members say of themselves each second, and hears it from their parents in the
tree, who see it by their children's slices (``elf.job.rollup.combiner``).

What becomes of a pane on one agent under LEAP, and what it hears:

    open ──seal──▶ sealed, sent ──── Committed with us ─────────────────────────────▶ forgotten
      │                └──────────── Committed without us, Verdict "leapt" ▶ dropping ──checkpoint──▶ counted
      └───────────────────────────── Committed without us ─────────────────▶ dropping ──checkpoint──▶ counted

- The root says so only of a commit that is durable (a majority of its job group has it), so that no later
  root takes it back; it has no revision. ``Committed`` goes down the whole tree; an agent that has missed it
  offers what it retains, and hears the verdict.
- A pane that is still open when the message comes is in no commit, since nothing about it has left the agent.
  The stream task (command ``DropStragglers``) drops its groups and is past it at once: it catches up without
  mapping what nobody will use. That need not be durable before the next checkpoint, since a pane that is
  read, and sealed, again is dropped again. Rows of it that are read later are *leapt* too, not late, unless
  their own source makes them late.
- The rows of a sealed pane are counted, and its snapshot is deleted, by one transaction: the stream task's
  checkpoint. A crash before it leaves the snapshot, which is offered again; one after it leaves the count. A
  snapshot of many panes may be dropped in some: it stays until each of them is answered.
- Counts are *leapt* in the counters of the pane that is open on that agent, and reach people with the windows
  of that pane. What dropped counters had counted themselves (late, rejected, leapt …) goes on there. So each
  row is in one commit, or in one count, and each count in one commit, except those of an agent that leaves.
- About panes that the root has forgotten (after ``revise_ms``) it can tell nothing: they count as leapt.

Under MIRROR, where agents see one another's files, one runs the work of another, as the paper's mirrors do:
what has not been sealed has no replica (``elf.job.reexecution``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from elf.job.counters import COUNTER_COLUMNS
from elf.job.snapshots import Name, Span

if TYPE_CHECKING:
    import pyarrow as pa

    from elf.ql.plan import Fragment


def policy_of(fragment: Fragment) -> str:
    """What a job says about stragglers, in the words of the query."""
    if fragment.leap or fragment.mirror:
        return "LEAP" if fragment.leap else "MIRROR"
    return "REVISE" if fragment.wait_us is None else f"WAIT {fragment.wait_us / 1e6:g} SECONDS"


def outside(span: Span, start: int, end: int) -> list[Span]:
    """The part of a span that is not in ``[start, end)``."""
    parts = ((span[0], min(span[1], start)), (max(span[0], end), span[1]))
    return [part for part in parts if part[0] < part[1]]


def left_over(counters: pa.Table | None, spans: Sequence[Span]) -> Counter[str]:
    """The counts, in a table of counters, of the panes in these spans."""
    found: Counter[str] = Counter()
    if counters is None:
        return found
    panes = counters["_pane"].to_numpy()
    inside = np.zeros(len(panes), dtype=np.bool_)
    for start, end in spans:
        inside |= (panes >= start) & (panes < end)
    for name in COUNTER_COLUMNS:
        if name in counters.column_names:
            found[name] += int(counters[name].to_numpy()[inside].sum())
    return found


@dataclass
class Drops:
    """The snapshots of one flow on one agent that are dropped, or answered by another agent (from the source
    offsets with that number, ``elf.job.reexecution``), in part (``spans``) or wholly: then they are
    ``counting`` until the stream task has counted them."""

    spans: dict[Name, list[tuple[int, int, int]]] = field(default_factory=dict)
    counting: set[Name] = field(default_factory=set)

    def over(self, name: Name, span: Span, start: int, end: int, mark: int = 0) -> None:
        """The panes of a span of a snapshot that are in ``[start, end)`` are dropped, or answered."""
        inside = (max(span[0], start), min(span[1], end))
        if inside[0] < inside[1]:
            self.spans.setdefault(name, []).append((*inside, mark))

    def take(self, names: Iterable[Name]) -> tuple[tuple[Name, tuple[tuple[int, int, int], ...]], ...]:
        """Of snapshots with every pane answered: those with dropped or answered panes, which are to be
        counted."""
        found = tuple((name, tuple(self.spans.pop(name))) for name in names if name in self.spans)
        self.counting.update(name for name, _ in found)
        return found
