"""Settings of the overlay. All times are integer milliseconds of the clock that the caller passes in as
``now_ms``."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property

from overlay.ids import ID_BITS
from overlay.turns import TURNS_MAX


@dataclass(frozen=True)
class OverlayConfig:
    """How a node routes, watches and repairs. Every bound on memory and on retries is here.

    Detection: a watched peer that is silent for ``suspect_ms`` is probed ``probe_tries`` times, ``probe_ms``
    apart, from the second time on through others too. It is dead when all probes stay unanswered for
    ``dead_ms`` after its last message. By default that is 3.2 s, because a node that stalls for 2 s may have
    been due to speak 1.1 s before. Both ring neighbours together hear a node twice as often, so when the
    other one confirms the silence, ``sure_ms`` (2.7 s after the last message to either) are enough: a death
    is found within 3 s. For a faster (and more easily mistaken) ring divide all four times by the same
    number.
    """

    base_bits: int = 4
    """Bits a digit (Pastry's b): tables have 2**b columns and routes about log of N to base 2**b hops."""
    leaf_set_size: int = 24
    """Members of the leaf set, half on each side."""

    heartbeat_ms: int = 1_000
    """Period of heartbeats to each of the two ring neighbours, half a period apart."""
    suspect_ms: int = 1_400
    """Silence of a watched peer after which it is probed."""
    probe_ms: int = 450
    """Wait for the answer to one probe."""
    probe_tries: int = 4
    """Unanswered probes that make a peer dead."""
    probe_helpers: int = 3
    """Peers that are asked to probe a suspect too, before it is taken for dead."""
    stretch_max: int = 3
    """How many times longer a node waits at most when it is slow or cut off itself."""
    overload_max: int = 16
    """The same when most answers come late: then all nodes are overloaded, and none is dead."""

    join_retry_ms: int = 500
    """Wait for a join's answer before the next contact is asked; doubles up to 8 s."""
    join_timeout_ms: int = 30_000
    """Time from start to JoinFailed."""

    hop_ms: int = 250
    """Wait for the next hop's acknowledgement of a routed message, and for the answer to a tree join; doubles
    up to 1 s."""
    hop_tries: int = 12
    """Tries of one hop, over all alternatives, before a routed message is dropped."""
    hops_max: int = 32
    """A routed message that has made so many hops is dropped: it can only be going in circles."""

    leaf_exchange_ms: int = 7_000
    """Period of comparing leaf sets with a random member."""
    row_exchange_ms: int = 6_000
    """Period of comparing a table row, in turn with the entry that was silent longest and with a near
    node."""
    sweep_ms: int = 150
    """The same while the table is swept after a death; also between measurements just after a join."""
    tune_ms: int = 4_000
    """Period of measuring the round trip to a rival for a table cell."""
    nearer_percent: int = 20
    """How much nearer a rival must be to take a cell; 100: cells never change hands for nearness."""
    neighbourhood_size: int = 8
    """Members of the neighbourhood set, the nearest peers by round trip."""
    reach_max: int = 1_024
    """Peers whose round trip and place are remembered."""
    dead_probe_ms: int = 2_000
    """Period of asking one remembered dead peer whether it is back."""
    dead_retry_ms: int = 5_000
    """How long hearsay about a dead peer is not followed up after the last check."""
    dead_forget_ms: int = 600_000
    """How long dead peers are remembered."""
    dead_max: int = 256
    """How many dead peers are remembered."""
    forget_ms: int = 60_000
    """How long a peer that is no longer needed is remembered."""
    live_max: int = 16_384
    """How many live peers are remembered; a stranger beyond that is not heard."""

    tree_refresh_ms: int = 1_000
    """Period of a child's refresh to each of its parents, for all topics at once."""
    refresh_at_once: int = 64
    """With more parents each of them hears it less often: so many a period. With fewer, silence would be
    noticed later than trees may take to be whole again."""
    refresh_turns_max: int = TURNS_MAX
    """Each parent hears it at least once in so many periods, however many there are."""
    child_ttl_ms: int = 4_000
    """Silence after which a child is dropped from a topic; that of a child with many parents is longer."""
    host_retry_ms: int = 1_000
    """Period of asking a topic's host that is away."""
    fanout_max: int = 16
    """Most children of a node in a topic; a further one is sent on to one of them."""
    kept_max: int = 64
    """Multicasts of a topic that a node keeps for those who missed them."""
    kept_bytes: int = 64 << 10
    """The same in bytes of payload; the newest is kept whatever its size."""
    repair_batch: int = 16
    """Multicasts that are asked for, or sent, at once."""
    lost_ms: int = 10_000
    """Wait for a missing multicast after which it is lost."""
    window_messages: int = 32
    """Multicasts of a topic under way to one child, at most."""
    window_bytes: int = 256 << 10
    """The same in bytes of payload; one is sent whatever its size."""

    held_max: int = 1_024
    """Routed messages held while not yet ready; also the bound of messages waiting for a hop's
    acknowledgement."""

    @cached_property
    def beat_ms(self) -> int:
        """Period of heartbeats to one neighbour or the other, and of checking all watched peers."""
        return self.heartbeat_ms // 2

    @cached_property
    def dead_ms(self) -> int:
        """The silence after which a watched peer is dead: the time of suspicion and probes together."""
        return self.suspect_ms + self.probe_tries * self.probe_ms

    @cached_property
    def sure_ms(self) -> int:
        """The same when both ring neighbours have heard nothing: one of them should have heard it half a
        period later. Also how long a peer that owes us no heartbeats may take to answer."""
        return self.dead_ms - self.beat_ms

    @cached_property
    def lease_ms(self) -> int:
        """How long a neighbour's message lets a node act for its keys: less than any silence that means
        death."""
        return self.sure_ms - self.heartbeat_ms // 5

    def __post_init__(self) -> None:
        for field in fields(self):
            if getattr(self, field.name) < 1:
                raise ValueError(f"{field.name} must be at least 1")
        if ID_BITS % self.base_bits:
            raise ValueError(f"base_bits must divide {ID_BITS}")
        if self.leaf_set_size % 2:
            raise ValueError("leaf_set_size must be even: half of it stands on each side")
        if self.fanout_max < 2:
            raise ValueError("fanout_max must be at least 2, or trees are chains")
        if self.suspect_ms <= self.heartbeat_ms or self.suspect_ms <= self.tree_refresh_ms:
            raise ValueError(
                "suspect_ms must exceed heartbeat_ms and tree_refresh_ms, or peace looks like death"
            )
        if self.lease_ms <= 2 * self.heartbeat_ms:
            raise ValueError(
                "suspect_ms and probe_tries * probe_ms must be 2.7 * heartbeat_ms together, or leases run out"
            )
        if self.nearer_percent > 100:
            raise ValueError("nearer_percent must be at most 100")
