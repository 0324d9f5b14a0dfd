"""What the store has of the jobs and flows of an earlier life, as a node takes it up again."""

from __future__ import annotations

import msgspec

from agents.store import Store
from elf.job.flowroots import StoredPanes
from elf.job.homes import StoredJob
from elf.job.spec import JobSpec


def stored_jobs(store: Store) -> tuple[StoredJob, ...]:
    """The jobs that have, or had, their home here."""
    found = []
    for row in store.load_jobs():
        spec, first_pane = msgspec.msgpack.decode(row.record, type=tuple[JobSpec, int | None])
        last = store.last_windows(spec.uid, 1)
        found.append(StoredJob(spec, row.state, first_pane, last[0].last_end if last else None))
    return tuple(found)


def stored_flows(store: Store, jobs: tuple[StoredJob, ...]) -> dict[str, StoredPanes]:
    """Every flow of which something is kept. Before flows could be shared their first pane stood in the
    record of their job, which names no master.
    """
    firsts = {job.spec.flows[0].uid: job.first_pane for job in jobs if not job.spec.master}
    return {
        uid: StoredPanes(
            firsts.get(uid) if first is None else first,
            tuple((c.start, c.end, c.revision, c.members) for c in store.committed(uid)),
            store.last_seq(uid),
            store.parts_of(uid),
        )
        for uid, first in store.flows().items()
    }
