"""What the last life of an agent left in its store, as its node takes it up again."""

from __future__ import annotations

from collections.abc import Mapping

from agents.disk import copystore
from agents.disk.homestore import stored_job, stored_panes
from agents.disk.store import Store
from agents.node.beginning import FOUNDED_FACT, HOUSED_FACT, PEERS_FACT, Restored, from_lines
from elf.job.home.port import StoredJob
from elf.job.log.membership import CLUSTER_FACT, FOUNDER_FACT, read_cluster
from elf.job.log.streamlog import decode_entry
from elf.job.rollup.flowroots import StoredPanes
from elf.job.rollup.uplink import SNAPSHOT_OVERHEAD
from elf.job.worker.stream import StreamWorker


def restore(store: Store, workers: Mapping[str, StreamWorker]) -> Restored:
    """``workers``: of each stream, as its last cut has it."""
    told, told_before = store.get(CLUSTER_FACT), store.get(FOUNDER_FACT)
    cluster = read_cluster(told, told_before)
    jobs = stored_jobs(store)
    installed = frozenset((stream, uid) for stream, worker in workers.items() for uid in worker.flows())
    return Restored(
        cluster,
        founder=cluster.keepers.leader if cluster is not None and not told else None,
        log=tuple(decode_entry(entry) for _, entry in store.load_log()),
        groups=store.load_groups(),
        jobs=jobs,
        flows=stored_flows(store, jobs),
        installed=installed,
        retained=tuple(
            (s.flow, s.start, s.end, s.part, len(s.tally) + len(s.payload) + SNAPSHOT_OVERHEAD)
            for _, flow in sorted(installed)
            for s in store.snapshots(flow)
        ),
        suspended=frozenset(uid for worker in workers.values() for uid in worker.suspended()),
        copies=copystore.held(store),
        housed=store.get(HOUSED_FACT) is not None,
        founded=from_lines(store.get(FOUNDED_FACT)),
    )


def contacts(store: Store, restored: Restored) -> list[str]:
    """Whoever was alive when this agent last ran, and the log's keepers."""
    known = (store.get(PEERS_FACT) or b"").decode().split()
    return [*known, *(restored.cluster.keepers.addresses if restored.cluster is not None else ())]


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
