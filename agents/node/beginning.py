"""What a node begins with: who it is and what it is part of, its settings, and what an earlier life of the
agent left in its store."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

import overlay as ring
from agents.answering.quotas import Quotas
from agents.answering.routing import Mode
from elf.fields import replace
from elf.job.catalog.log import CatalogLog
from elf.job.catalog.membership import Cluster, Identity
from elf.job.catalog.voters import LOG_GROUP, VOTERS_MAX
from elf.job.group.port import StoredJob
from elf.job.group.records import RECORD_BYTES_MAX
from elf.job.messages.log import LogEntry
from elf.job.program.keeping import Checkpoint
from elf.job.replicas import ReplicaName
from elf.job.rollup.decide import RootSettings
from elf.job.rollup.flowroots import StoredPanes
from elf.job.tables import StoredTable
from elf.planning.lent import Budgets
from elf.planning.pacing import Pace
from overlay import raft

TODAY_FACT: Final = "up_today"
"""Durable: bytes that have gone up today, by whose budget that is (``elf.planning.days.Day``)."""
PEERS_FACT: Final = "peers"
"""Durable: addresses of live peers, a line each, to find the ring again after a restart."""
Detect = Literal["default", "fast"]
"""How soon the dead are missed: within 3 s, and a node may stall for 2 s; or within 1 s, for three times the
heartbeats, and for machines that never stall for half a second."""
ALONE_MS: Final = 5_000
BOOTSTRAPPED_FACT: Final = "founded"
"""Durable: job groups of key ranges that this agent has bootstrapped, a uid a line: it does so once."""
JOIN_MS: Final = 30_000


def as_lines(uids: Iterable[str]) -> bytes:
    """A fact that names these."""
    return "\n".join(sorted(uids)).encode()


def from_lines(fact: bytes | None) -> tuple[str, ...]:
    """What such a fact names."""
    return tuple((fact or b"").decode().split())


@dataclass(frozen=True)
class Context:
    """What all parts of a node share: who the agent is, its ``streams``, its copy of the stream ``log``, and
    its place on the ring and in trees."""

    me: Identity
    streams: frozenset[str]
    log: CatalogLog
    overlay: ring.Overlay


@dataclass(frozen=True)
class Restored:
    """What an earlier life of this agent left in its store."""

    cluster: Cluster | None = None
    log: tuple[LogEntry, ...] = ()
    groups: Mapping[bytes, raft.Stored] = field(default_factory=dict)
    jobs: tuple[StoredJob, ...] = ()
    flows: Mapping[str, StoredPanes] = field(default_factory=dict)
    """Every flow of which the store has something."""
    installed: frozenset[tuple[str, str]] = frozenset()
    """(Stream, flow) that the stream tasks compute."""
    retained: tuple[tuple[str, int, int, int, int], ...] = ()
    """Snapshots: flow, first pane, end, part, size in bytes."""
    suspended: frozenset[str] = frozenset()
    """Flows that were over their quota."""
    sealed: Mapping[str, int] = field(default_factory=dict)
    """The first open pane of each flow that stream tasks compute."""
    replicas: Mapping[ReplicaName, int] = field(default_factory=dict)
    """Of other agents' snapshots, the oldest first: size in bytes."""
    bootstrapped: tuple[str, ...] = ()
    """Job groups of key ranges."""
    rings: tuple[StoredTable, ...] = ()
    """Its replicas of tables with a ring."""
    programs: Mapping[str, Checkpoint] = field(default_factory=dict)
    """Checkpoints of jobs in Python, by uid."""
    up_today: bytes = b""
    """``TODAY_FACT``."""


@dataclass(frozen=True)
class NodeSettings:
    """Settings of the protocol for one node."""

    root: RootSettings = field(default_factory=RootSettings)
    beat_ms: int = 1_000
    offer_ms: int = 3_000
    follow_ms: int = 2_000
    retained_bytes_max: int = 256 << 20
    combine_ms: int | None = None
    """How long combiners below a root wait; None: as their panes are long."""
    border_us: int | None = None
    """How long a region's head holds panes to merge them; None: as long as readers allow
    (``elf.job.units``)."""
    links: Mapping[tuple[str, str], tuple[float, float | None]] = field(default_factory=dict)
    """What is stated of links between regions, from one to the other: bytes a second, and delay in s."""
    routes: Mode = "off"
    """Whether this agent, if it leads the voters, plans over which regions flows send, and whether that
    acts."""
    replicas: int = 2
    eager: bool = False
    """Snapshots are copied at once, and open panes at each checkpoint."""
    copy_after_ms: int = 3_000
    copies_bytes_max: int = 256 << 20
    voters_max: int = VOTERS_MAX
    group_members: int = VOTERS_MAX
    pace: Pace | None = None
    """Of jobs that move by themselves; None: none does."""
    open: bool = False
    """Whether anybody may say anything to it, which whoever asks for the members is told."""
    renew_ms: int = 300_000
    """After so long the leader of a job looks whether rows of tables that it joins are others."""
    quotas: Quotas = field(default_factory=Quotas)
    budgets: Budgets = field(default_factory=Budgets)


def overlay_config(
    restored: Restored,
    me: Identity,
    config: ring.OverlayConfig | None = None,
    detect: Detect = "default",
) -> ring.OverlayConfig:
    """What is set, how soon the dead are missed, and how long to look for the ring: a voter that comes back
    only for a moment, since the others may be waiting for it. Of several the first begins the ring again, the
    next ones look a little longer."""
    timeout_ms, cluster = JOIN_MS, restored.cluster
    voters = cluster.voters.addresses if cluster is not None else ()
    if me.address in voters:
        timeout_ms = ALONE_MS * (1 + voters.index(me.address))
    elif len(voters) == 1 and LOG_GROUP in restored.groups:
        timeout_ms = ALONE_MS  # it is the only voter, at another address than before
    config = replace(config or ring.OverlayConfig(), join_timeout_ms=timeout_ms)
    if detect == "default":
        return config
    return replace(
        config, heartbeat_ms=330, suspect_ms=460, probe_ms=150, tree_refresh_ms=330, child_ttl_ms=1_300
    )


def raft_config(detect: Detect = "default") -> raft.RaftConfig:
    """Groups in agents beat a little slower than by default: an idle leader of five costs less. From a
    leader's crash to the next one it is 5 s at most, and less where the overlay broadcasts it first."""
    config = raft.RaftConfig(beat_ms=1_500, silence_ms=4_000, record_bytes_max=RECORD_BYTES_MAX + (1 << 20))
    if detect == "default":
        return config
    return replace(config, beat_ms=500, silence_ms=1_300, slot_ms=50, vote_ms=100, push_ms=100, ask_ms=200)
