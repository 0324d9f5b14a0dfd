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
    """One stream that an agent reads. Counts are since the agent's start.

    Attributes:
        stream (str): the stream.
        rows (int): rows that were read.
        bytes (int): bytes that were read.
        rejected (int): lines that did not parse.
        late (int): rows that parsed and are in no result, as LATENESS says.
        future (int): rows that parsed and are in no result: ahead of the clock.
        unrostered (int): rows that parsed and are in no result: outside the roster.
        shed (int): rows that parsed and are in no result: shed.
        leapt (int): rows that parsed and are in no result, as STRAGGLERS LEAP says.
        backlog_bytes (int): bytes in its files by the last look at them, and not read yet.
        uncast (int): values that are NULL since they do not fit the types of their flow.

    Example:
        >>> StreamStats("access", rows=12, rejected=1).late
        0
    """

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
    """How an agent is. Two of one ``incarnation`` give rates.

    Attributes:
        incarnation (int): greater after each start of the agent.
        clock_us (int): microseconds on a clock that never steps back.
        state (str): ``joining``, ``live`` or ``leaving``.
        streams (tuple[StreamStats, ...]): the streams that it reads.
        jobs (int): jobs that it is the master of.
        flows (int): flows that it computes.
        windows (int): windows that it has committed as a master.
        retained (int): snapshots that wait for their commit.
        resident_bytes (int): memory of its process.
        cpu_us (int): CPU time of its process, in microseconds.

    Example:
        >>> Stats(1, 0, "live", (), 0, 0, 0, 0, 0, 0).state
        'live'
    """

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
    """An agent as the one that was asked knows it.

    Attributes:
        agent (str): its name.
        address (str): ``"host:port"``.
        streams (tuple[str, ...]): the streams that it is a member of.
        stats (Stats | None): None of one that did not answer within two seconds.

    Example:
        >>> AgentStats("web-1", "web-1:7071", ("access",), None).stats is None
        True
    """

    agent: str
    address: str
    streams: tuple[str, ...]
    stats: Stats | None


class FleetStats(msgspec.Struct, frozen=True):
    """All agents that have not left.

    Attributes:
        jobs (int): how many jobs there are.
        agents (tuple[AgentStats, ...]): the agents.

    Example:
        >>> FleetStats(0, ()).agents
        ()
    """

    jobs: int
    agents: tuple[AgentStats, ...]


MESSAGES: tuple[type[Message], ...] = (InspectAgent,)
