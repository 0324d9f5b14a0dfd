"""The work of a replicated home's commits, on threads: as ``agents.committing.panecommits`` and
``agents.committing.windowcommits``, but for the commit."""

from __future__ import annotations

import time

from agents.committing.kept import Kept
from agents.committing.opening import PiecesUnusable, Types
from agents.committing.panecommits import Reduces, merged_panes, size_of
from agents.committing.panetables import us_since
from agents.committing.windowcommits import Treat, made_windows, published
from agents.disk.homestore import panes_fact, windows_fact
from agents.disk.store import Store
from elf.batch import decode
from elf.errors import ElfBug, PanesGone
from elf.job.effects import CommitPanes
from elf.job.home.port import Draft, Drafted
from elf.job.home.records import encode
from elf.job.ports import FinisherPort
from elf.job.thresholds import Unsure


def draft(
    effect: Draft,
    store: Store,
    finisher: FinisherPort | None,
    master: str,
    kept: Kept | None,
    treat: Treat | None = None,
    reduces: Reduces | None = None,
    types: Types | None = None,
) -> Drafted:
    """Do the work of a commit. ``finisher``, ``kept`` and ``treat``: of the job, for windows; ``reduces`` and
    ``types``: of the flow, for panes."""
    began, work = time.thread_time_ns(), effect.work
    if isinstance(work, CommitPanes):
        try:
            panes, threshold = merged_panes(work, store, effect.seq, reduces, types)
        except PanesGone:
            return Drafted(work, b"", gone=True)
        except Unsure:
            return Drafted(work, b"", unsure=True)
        except PiecesUnusable as error:
            return Drafted(work, b"", unusable=error.pieces)
        size = size_of(panes)
        fact = encode(panes_fact(panes))
        took = us_since(began)
        return Drafted(
            work,
            fact,
            rows=size.keys,
            bytes=size.bytes,
            cpu_us=took,
            threshold=threshold,
            panes=size.panes,
            rows_in=size.rows,
        )
    if finisher is None:
        raise ElfBug("windows without a finisher")
    try:
        row, new = made_windows(work, store, finisher, kept, treat)
    except PanesGone:
        return Drafted(work, b"", gone=True)
    fact, result = encode(windows_fact(row)) if new else b"", published(work, row, master)
    return Drafted(work, fact, result, rows=decode(row.rows).num_rows, cpu_us=us_since(began))
