"""Early results: windows that are not complete, out of committed and of open panes
(``elf.job.group.subscribers``)."""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence
from dataclasses import replace

from agents.committing.kept import bounded
from agents.committing.opening import Types, opened, opens
from agents.committing.panetables import joined, merged, merged_counters, opened_counters, opened_groups
from agents.committing.sides import finished, staged
from agents.committing.status import status_of_windows
from agents.committing.windowcommits import Treat, names_of, pieces_of, treated
from agents.disk.store import Store
from elf.batch import encode
from elf.errors import PeerError
from elf.job.assembly.windows import Assembly
from elf.job.contributions import Piece
from elf.job.counters import COUNTER_STATES
from elf.job.effects import CommitWindows, MakeEarly
from elf.job.events import EarlyMade
from elf.job.ports import FinisherPort
from elf.wire.clients import WindowResult


def early_windows(
    effect: MakeEarly,
    store: Store,
    finisher: FinisherPort,
    master: str,
    treat: Treat | None = None,
    types: Types | None = None,
) -> EarlyMade:
    """Make them, and store nothing. ``treat``: the final function of the version; ``types``: how columns of
    open panes are to be. Whose panes cannot be opened is missing (``agents.committing.opening``)."""
    base, plan = effect.committed, effect.committed.spec.plan
    pane_us, calendar = plan.fragment.pane_us, base.calendar
    start = bounded(calendar.needs_from(base.first_us), pane_us)
    below = pieces_of(base, store, start, bounded(base.last_us, pane_us))
    keys, whole = ("_pane", *plan.fragment.keys), effect.whole
    try:
        counter_tables, tables = opened(plan.fragment, effect.pieces, types)
    except PeerError:
        bad = [piece for piece in effect.pieces if not opens(plan.fragment, piece, types)]
        good = [piece for piece in effect.pieces if piece not in bad]
        whole = _without(effect, _members(bad))
        counter_tables, tables = opened(plan.fragment, good, types)
    groups = merged([*opened_groups(below), *tables], keys, plan.fragment.states)
    counters = merged_counters([*opened_counters(below), *counter_tables], ("_pane",), COUNTER_STATES)
    if counters is None:
        return EarlyMade(base.spec.uid, None)
    assembly = Assembly(plan, calendar)
    groups = staged(plan, groups, calendar.needs_from(base.first_us), base.last_us, finisher)
    rows = finished(assembly.windows(base.first_us, base.last_us, groups), finisher.run)
    spans = assembly.calendar.holding(counters["_pane"].to_numpy(), base.first_us, base.last_us)
    status = status_of_windows(whole, spans, names_of(base, store), joined([counters]))
    status, rows = treated(base.spec, status, rows, treat)
    result = WindowResult(
        job=base.spec.uid,
        name=base.spec.name,
        version=base.spec.version,
        master=master,
        first_us=base.first_us,
        last_us=base.last_us,
        revision=0,
        status=encode(status),
        payload=encode(rows),
        early=effect.number,
    )
    return EarlyMade(base.spec.uid, result)


def _members(pieces: Sequence[Piece]) -> int:
    return functools.reduce(operator.or_, (piece.members for piece in pieces), 0)


def _without(effect: MakeEarly, members: int) -> CommitWindows:
    """These members have reported no open panes."""
    committed = effect.committed.coverage
    still = (
        replace(one, reported=one.reported & ~members) for one in effect.whole.coverage[len(committed) :]
    )
    return replace(effect.whole, coverage=(*committed, *still))
