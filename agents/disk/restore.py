"""What the store has of the jobs and flows of an earlier life, as a node takes it up again."""

from __future__ import annotations

from agents.disk.homestore import stored_job, stored_panes
from agents.disk.store import Store
from elf.job.home.port import StoredJob
from elf.job.rollup.flowroots import StoredPanes


def stored_jobs(store: Store) -> tuple[StoredJob, ...]:
    """The jobs whose home, or a member of it, is or was here."""
    return tuple(stored_job(store, row.record, row.state) for row in store.load_jobs())


def stored_flows(store: Store, jobs: tuple[StoredJob, ...]) -> dict[str, StoredPanes]:
    """Every flow of which something is kept. Before flows could be shared their first pane stood in the
    record of their job, which names no master.
    """
    firsts = {job.spec.flows[0].uid: job.versions[0].first_pane for job in jobs if not job.spec.master}
    return {
        uid: stored_panes(store, uid, firsts.get(uid) if first is None else first)
        for uid, first in store.flows().items()
    }
