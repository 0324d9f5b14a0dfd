"""Early results: windows that are not complete, out of committed and of open panes
(``elf.job.home.early``)."""

from __future__ import annotations

from agents.committing.finishing import finished, staged
from agents.committing.kept import bounded
from agents.committing.panetables import joined, merged, opened_groups, opened_tallies
from agents.committing.status import status_of_windows
from agents.committing.windowcommits import Treat, names_of, pieces_of, treated
from agents.disk.store import Store
from elf.batch import encode
from elf.job.assembly.windows import Assembly
from elf.job.effects import MakeEarly
from elf.job.events import EarlyMade
from elf.job.messages import WindowResult
from elf.job.ports import FinisherPort
from elf.job.tally import TALLY_STATES


def early_windows(
    effect: MakeEarly, store: Store, finisher: FinisherPort, master: str, treat: Treat | None = None
) -> EarlyMade:
    """Make them, and store nothing. ``treat``: the final function of the version."""
    base, plan = effect.committed, effect.committed.spec.plan
    pane_us, calendar = plan.fragment.pane_us, base.calendar
    start = bounded(calendar.needs_from(base.first_us), pane_us)
    pieces = [*pieces_of(base, store, start, bounded(base.last_us, pane_us)), *effect.pieces]
    keys = ("_pane", *plan.fragment.keys)
    groups = merged(opened_groups(pieces), keys, plan.fragment.states)
    tally = merged(opened_tallies(pieces), ("_pane",), TALLY_STATES)
    if tally is None:
        return EarlyMade(base.spec.uid, None)
    assembly = Assembly(plan, calendar)
    groups = staged(plan, groups, calendar.needs_from(base.first_us), base.last_us, finisher)
    rows = finished(assembly.windows(base.first_us, base.last_us, groups), finisher.run)
    spans = assembly.calendar.holding(tally["_pane"].to_numpy(), base.first_us, base.last_us)
    status = status_of_windows(effect.whole, spans, names_of(base, store), joined([tally]))
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
