"""The voters of the catalog log, and all agents as its followers (protocol 2.1)."""

from __future__ import annotations

import msgspec

from elf.job.messages.entries import LogEntry
from elf.wire.base import Message


class LogVoters(msgspec.Struct, frozen=True):
    """The voters of the catalog log: those of its Raft group, as of a membership (``epoch``) and a term, and
    their leader ("" while none is known). The higher (epoch, term) is newer."""

    epoch: int
    term: int
    leader: str
    addresses: tuple[str, ...]


class Hello(Message, frozen=True, kw_only=True):
    """A node to a neighbour: who votes on the catalog log of this cluster? Sent four times a second until the
    node knows, then every ten seconds: two clusters in one ring must not stay unnoticed."""


class Welcome(Message, frozen=True, kw_only=True):
    """The answer of a node that knows. ``entries``: how many entries of the log it has."""

    voters: LogVoters
    cluster_uid: str
    entries: int


class Follow(Message, frozen=True, kw_only=True):
    """Every agent to one voter after the other, every two seconds: I know the log up to ``known``, and its
    voters as of (``epoch``, ``term``).
    """

    agent_id: str
    known: int
    epoch: int
    term: int


class LogTail(Message, frozen=True, kw_only=True):
    """Entries of the log, in order, after ``after``: from a voter to one follower, if it lacks some; and from
    the leader down the trees of the streams that they are about. ``last``: how many the log has there; a
    follower that has fewer after taking these asks for more at once."""

    cluster_uid: str
    voters: LogVoters
    after: int
    entries: tuple[LogEntry, ...]
    last: int


class Spread(Message, frozen=True, kw_only=True):
    """Routed to a topic without a job group: the node nearest to it, its root, multicasts ``body`` (a packed
    message) down the tree."""

    topic: bytes
    body: bytes


class Refused(Message, frozen=True, kw_only=True):
    """A voter to an agent that may not join (a copied data folder): the agent stops and says ``text``, if the
    proposal was of its present life. The refusal of an earlier one may come late. ``incarnation``: the
    proposer's."""

    agent_id: str
    text: str
    incarnation: int = 0


LOG_MESSAGES = (Hello, Welcome, Follow, LogTail, Spread, Refused)
