"""How an agent is, in a few numbers: what ``elf top`` shows of each.

Counts are since the agent's start and its process's; two answers of one ``incarnation`` less each other, over
the time between their ``clock_us``, are rates, however late either of them came. Where several agents share a
process, its memory and CPU time are in each answer.
"""

from __future__ import annotations

import msgspec

from elf.wire.base import Message, Request


class InspectAgent(Request, frozen=True, kw_only=True):
    """To an agent: how are you? Answered with ``Stats``."""


class StreamStats(msgspec.Struct, frozen=True):
    """Of one stream that it reads. ``backlog_bytes``: in its files by the last look at them, and not fed
    yet; ``late`` to ``leapt``: rows that parsed and are in no result, ``rejected``: lines that did not;
    ``uncast``: values that are NULL since they do not fit the types of their flow."""

    stream: str
    rows: int = 0
    bytes: int = 0
    rejected: int = 0
    late: int = 0
    future: int = 0
    unrostered: int = 0
    shed: int = 0
    leapt: int = 0
    backlog_bytes: int = 0
    uncast: int = 0


class Stats(msgspec.Struct, frozen=True):
    """Of an agent. ``state``: ``joining``, ``live`` or ``leaving``; ``windows``: committed as a master;
    ``retained``: snapshots that wait for their commit; ``clock_us`` never steps back."""

    incarnation: int
    clock_us: int
    state: str
    streams: tuple[StreamStats, ...]
    jobs: int
    flows: int
    windows: int
    retained: int
    resident_bytes: int
    cpu_us: int


class AgentStats(msgspec.Struct, frozen=True):
    """An agent as the one that was asked knows it; ``stats`` is None of one that did not answer."""

    agent: str
    address: str
    streams: tuple[str, ...]
    stats: Stats | None


class FleetStats(msgspec.Struct, frozen=True):
    """All agents that have not left, and how many jobs there are."""

    jobs: int
    agents: tuple[AgentStats, ...]


MESSAGES: tuple[type[Message], ...] = (InspectAgent,)
