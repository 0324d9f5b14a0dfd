"""The work of a replicated home's commits, on threads: as ``agents.commits``, but for the commit."""

from __future__ import annotations

import time

from agents.commits import Kept, made_windows, merged_panes, published, size_of, us_since
from agents.homestore import panes_fact, windows_fact
from agents.store import Store
from elf.batch import decode
from elf.errors import ElfBug, PanesGone
from elf.job.effects import CommitPanes
from elf.job.homelog import encode
from elf.job.homeport import Draft, Drafted
from elf.job.ports import FinisherPort


def draft(
    effect: Draft, store: Store, finisher: FinisherPort | None, master: str, kept: Kept | None
) -> Drafted:
    """Do the work of a commit. ``finisher`` and ``kept``: of the job, for windows."""
    began, work = time.thread_time_ns(), effect.work
    if isinstance(work, CommitPanes):
        panes = merged_panes(work, store, effect.seq)
        keys, size = size_of(panes)
        fact = encode(panes_fact(panes))
        return Drafted(work, fact, rows=keys, bytes=size, cpu_us=us_since(began))
    if finisher is None:
        raise ElfBug("windows without a finisher")
    try:
        row, new = made_windows(work, store, finisher, kept)
    except PanesGone:
        return Drafted(work, b"", gone=True)
    fact, result = encode(windows_fact(row)) if new else b"", published(work, row, master)
    return Drafted(work, fact, result, rows=decode(row.rows).num_rows, cpu_us=us_since(began))
