"""The last windows of a job made once more, at an agent that is to lead its group (protocol 5.13): so its
first ones are made like those of a master that has made others before. Statements are prepared, and panes
that the next windows have in common with these are merged.

Nothing is committed or said. It is made of what the store has committed, and decides nothing: what the next
windows cannot go on from is made anew, as after a death.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from agents.committing.kept import Version, alike
from agents.committing.windowcommits import remade
from agents.disk import groupstore
from agents.disk.store import Store, StoreError
from elf.batch import WRONG
from elf.errors import ElfError
from elf.job.commits import WindowCommit, panes_used
from elf.job.contributions import from_bytes
from elf.job.effects import CommitWindows, Coverage
from elf.job.spec import JobSpec, VersionRecord

AGAIN_MAX: Final = 32
"""So many commits are made once more at most. Where more have come since, the last one alone is made, of its
panes: what was made here may be of hours ago."""


def warm(version: Version, uid: str, number: int, store: Store) -> int | None:
    """The end of the last windows that a version of a job has committed, when all is as after these, if they
    can be made here; None: there are none."""
    row = store.job(uid)
    stored = () if row is None else groupstore.stored_job(store, row.record, row.state).versions
    record = next((one for one in stored if one.spec.version == number), None)
    last_us = store.assembled(uid).get(number)
    if record is None or last_us is None or not record.spec.plan.windows:
        return last_us
    try:
        _remake(version, record, last_us, store)
    except StoreError:  # the disk's fault
        raise
    except (ElfError, *WRONG):
        pass  # nothing is kept of them, and the master that makes the next ones says what is wrong
    return last_us


def _remake(version: Version, record: VersionRecord, last_us: int, store: Store) -> None:
    """With what the next windows are made with (``Making.task``), those that it has not made yet."""
    spec = record.spec
    rows = _last_commits(store, spec)
    if not rows or rows[-1].last_end != last_us:
        return
    joint = len(spec.flows) == 1 and spec.plan.final is None
    if not joint and version.common is not None and alike(_work(record, rows[-1])) is not None:
        version = version.common
        if version.users > 1:
            return  # equal jobs are here, and make them
    with version.alone() as (finisher, kept):
        if kept.next_us == last_us:
            return
        since = [row for row in rows if kept.next_us is not None and row.last_end > kept.next_us]
        ends = [kept.next_us, *(row.last_end for row in since)]
        follows = all(row.first_start == end for row, end in zip(since, ends, strict=False))
        for row in since if since and follows else rows[-1:]:
            finisher.begin()
            remade(_work(record, row), store, finisher, kept)


def _last_commits(store: Store, spec: JobSpec) -> Sequence[WindowCommit]:
    """The last ones of a version's windows, by their ends; no revisions."""
    rows = store.last_windows(spec.uid, AGAIN_MAX)
    return [row for row in rows if row.version == spec.version and not row.revision]


def _work(record: VersionRecord, row: WindowCommit) -> CommitWindows:
    """What was to be done for a commit."""
    spec, first = record.spec, record.first_pane or 0
    used = panes_used(row.panes_used)
    return CommitWindows(
        spec,
        row.first_start,
        row.last_end,
        tuple(
            Coverage(one.flow, one.start, one.end, one.revision, 0, from_bytes(one.members), lost=one.lost)
            for one in used
        ),
        (),
        from_us=first * spec.plan.fragment.pane_us,
        landmarks=record.landmarks,
        until_us=record.until_us,
    )
