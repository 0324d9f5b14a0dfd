"""What the last life of an agent left in its store, as its node takes it up again."""

from __future__ import annotations

from collections.abc import Mapping

from agents.disk import replicastore
from agents.disk.groupstore import stored_flows, stored_jobs
from agents.disk.store import Store
from agents.node.beginning import BOOTSTRAPPED_FACT, PEERS_FACT, TODAY_FACT, Restored, from_lines
from elf.job.catalog.log import decode_entry
from elf.job.catalog.membership import CLUSTER_FACT, read_cluster
from elf.job.program.keeping import Checkpoint
from elf.job.rollup.sender import SNAPSHOT_OVERHEAD
from elf.job.worker.stream import StreamWorker


def restore(
    store: Store, workers: Mapping[str, StreamWorker], programs: Mapping[str, Checkpoint]
) -> Restored:
    """``workers``: of each stream, as its last checkpoint has it; ``programs``: the checkpoints of jobs in
    Python, by uid."""
    installed = frozenset((stream, uid) for stream, worker in workers.items() for uid in worker.flows())
    return Restored(
        read_cluster(store.get(CLUSTER_FACT)),
        log=tuple(decode_entry(entry) for _, entry in store.load_log()),
        groups=store.load_groups(),
        jobs=stored_jobs(store),
        flows=stored_flows(store),
        installed=installed,
        retained=tuple(
            (s.flow, s.start, s.end, s.part, len(s.counters) + len(s.payload) + SNAPSHOT_OVERHEAD)
            for _, flow in sorted(installed)
            for s in store.snapshots(flow)
        ),
        sealed={uid: state.sealed for w in workers.values() for uid, state in w.states().items()},
        suspended=frozenset(uid for worker in workers.values() for uid in worker.suspended()),
        replicas=replicastore.held(store),
        bootstrapped=from_lines(store.get(BOOTSTRAPPED_FACT)),
        up_today=store.get(TODAY_FACT) or b"",
        programs=programs,
        rings=store.tables.replicas(),
    )


def contacts(store: Store, restored: Restored) -> list[str]:
    """Whoever was alive when this agent last ran, and the log's voters."""
    known = (store.get(PEERS_FACT) or b"").decode().split()
    return [*known, *(restored.cluster.voters.addresses if restored.cluster is not None else ())]
