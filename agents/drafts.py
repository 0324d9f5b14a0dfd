"""The work of a replicated home's commits, on threads: as ``agents.commits``, but for the commit."""

from __future__ import annotations

from agents.commits import Kept, made_windows, merged_panes, published
from agents.homestore import panes_fact, windows_fact
from agents.store import Store
from elf.errors import ElfBug
from elf.job.effects import CommitPanes
from elf.job.homelog import encode
from elf.job.homeport import Draft, Drafted
from elf.job.ports import FinisherPort


def draft(
    effect: Draft, store: Store, finisher: FinisherPort | None, master: str, kept: Kept | None
) -> Drafted:
    """Do the work of a commit. ``finisher`` and ``kept``: of the job, for windows."""
    work = effect.work
    if isinstance(work, CommitPanes):
        return Drafted(work, encode(panes_fact(merged_panes(work, store, effect.seq))))
    if finisher is None:
        raise ElfBug("windows without a finisher")
    row, new = made_windows(work, store, finisher, kept)
    return Drafted(work, encode(windows_fact(row)) if new else b"", published(work, row, master))
