"""Settings of Raft groups. All times are integer milliseconds of the clock that is passed in as
``now_ms``."""

from __future__ import annotations

from dataclasses import dataclass, fields


@dataclass(frozen=True)
class RaftConfig:
    """How groups watch, elect and replicate. Every bound on memory, messages and retries is here.

    From a leader's crash to the next one: at most ``silence_ms`` until its silence is noticed, then at most
    ``size`` slots until a member stands, then two round trips: less than 4 s by default. A node that stalls
    for ``silence_ms - beat_ms`` keeps what it leads.
    """

    size: int = 5
    """Voters that a group settles at. While one is replaced there may be one more."""

    beat_ms: int = 1_000
    """Period of the beat between a leader's node and a member's, whatever the number of groups they share."""
    silence_ms: int = 3_000
    """Silence after which a leader is given up, and after which a leader without a majority gives up."""
    slot_ms: int = 150
    """Width of one member's slot in an election; the voters stand in the order of their closeness to the
    key."""
    vote_ms: int = 300
    """Wait for the answers to one ballot."""
    push_ms: int = 250
    """Wait before an unanswered append is repeated (twice as long each time, twice), and before followers are
    told what is committed if no record tells them."""
    ask_ms: int = 500
    """Period of asking for a leader, for admission and for release."""
    replace_ms: int = 3_000
    """How long a member that wants to go waits for a replacement, where the group could spare fewer without
    it."""
    release_ms: int = 6_000
    """How long it waits where the group would depend on a silent member then. After that the silent one is
    released first."""
    forward_ms: int = 5_000
    """Wait for the answer to a forwarded record; then its outcome is unsure."""
    transfer_ms: int = 2_000
    """Time that a transfer of leadership may take; records are refused meanwhile."""
    learner_ms: int = 30_000
    """Silence after which a learner is dropped, and time for which an address is invited."""
    forget_ms: int = 60_000
    """How long a peer with which we share nothing is remembered."""
    links_max: int = 16_384
    """How many peers are remembered; of a stranger beyond that nothing is."""

    batch_entries: int = 64
    """Records in one append."""
    batch_bytes: int = 256 * 1024
    """Bytes of records in one append; a single larger record goes alone."""
    parts_max: int = 256
    """Groups in one message."""
    record_bytes_max: int = 8 * 1024 * 1024
    """Bytes of one record."""
    uncommitted_max: int = 1_024
    """Records of one group that wait for their commit; more are refused as busy."""
    piece_bytes: int = 64 * 1024
    """Bytes of one piece of a snapshot."""
    state_bytes_max: int = 128 * 1024 * 1024
    """Bytes of one snapshot."""
    compact_entries: int = 1_024
    """Records in a log at which a snapshot is asked for."""
    forwards_max: int = 1_024
    """Forwarded records whose answer we wait for, and tokens remembered so that a doubled message is one
    record."""

    def __post_init__(self) -> None:
        for field in fields(self):
            if getattr(self, field.name) < 1:
                raise ValueError(f"{field.name} must be at least 1")
        if self.silence_ms <= 2 * self.beat_ms:
            raise ValueError("silence_ms must exceed two beats, or one lost message looks like death")
