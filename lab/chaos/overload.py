"""An agent that gets more than it can map: its stream tasks take all their time and fall behind. What work
takes, and how far behind they are, is made up; what becomes of it is the agent's own
(``elf.planning.overload``)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from elf.job import events as was

if TYPE_CHECKING:
    from lab.chaos.agent import SimAgent

TOLD_MS = 1_000
GROWS_MS = 400
"""By so much a stream falls further behind between two words of it."""


def overload(agent: SimAgent, ms: int) -> None:
    """From now on each piece of work of its stream tasks takes so long, and they fall behind, until
    ``relieve``."""
    agent.busy_ms = ms
    _tell(agent, 0)


def relieve(agent: SimAgent) -> None:
    """It keeps up again."""
    agent.busy_ms = 0


def _tell(agent: SimAgent, lag_ms: int) -> None:
    """Also in its next lives. No stream of it is behind when it is over."""
    lag_ms = lag_ms + GROWS_MS if agent.busy_ms else 0
    if agent.up:
        for stream in agent.streams:
            agent.guard(lambda name=stream: agent.handle(was.Lagging(name, lag_ms)))  # type: ignore[misc]
    if lag_ms:
        agent.world.at(agent.world.now + TOLD_MS, lambda: _tell(agent, lag_ms))
