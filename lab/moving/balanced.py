"""Sixteen agents, a core each, and a hundred jobs that are unlike each other, after a rolling restart: how
even the work is before jobs move by themselves, and after (``cluster.balance``).

Real nodes on virtual time (``lab.bench.simulated``). A rolling restart hands the masters of each agent to
others, for good. Then lines come, a second of them each second, whose users are drawn. There are ``FLOWS``
flows, which the jobs share in turn: flow n has ``KEYS`` ÷ (n + 1) keys, and windows of one of ``WINDOWS_S``.
So some take many times what others take. What is compared is the CPU of the cores within
``LOOK_S``, all of it: also what has nothing to do with masters, and what balancing does not count.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from elf.planning.pacing import Pace
from lab.bench.control_fleet import SECOND_US, STREAM, line_of
from lab.bench.simulated.costs import Costs
from lab.bench.simulated.fleet import SimFleet

AGENTS: Final = 16
JOBS: Final = 100
KEYS: Final = 2_000
FLOWS: Final = 20
WINDOWS_S: Final = (1, 10, 5, 2)
LINES: Final = 100
"""That an agent reads in a second."""
LINK_MS: Final = 0.5
RESTART_MS: Final = 5_000
"""Between two agents; one is away for a fifth of it."""
LOOK_S: Final = 10
WITHIN_S: Final = 60


def balanced(seed: int, costs: Costs, agents: int = AGENTS, jobs: int = JOBS) -> dict[str, float]:
    """Greatest load over mean, before and after a minute; and how many moves it took."""
    fleet = SimFleet(agents, seed, costs, LINK_MS)
    with fleet.running():
        for number in range(jobs):
            flow = number % FLOWS
            keys, window = KEYS // (flow + 1), WINDOWS_S[flow % len(WINDOWS_S)]
            fleet.sql(
                f"CREATE JOB j{number} AS SELECT user % {keys} AS k, COUNT(*) AS n FROM clicks GROUP BY 1 "
                f"ORDER BY n DESC LIMIT {number + 1} WINDOWING {window} SECONDS LATENESS 0 SECONDS"
            )
        _restart(fleet)
        work = _Work(fleet)
        work.run(LOOK_S)
        masters = work.masters()
        before = work.imbalance(LOOK_S)
        for agent in fleet.world.agents:
            agent.node.deciding.pace = Pace()
        work.run(WITHIN_S)
        after = work.imbalance(LOOK_S)
        moves = len(list(fleet.world.agents[0].node.log.assignments))
        return {
            "before": round(before, 2),
            "after": round(after, 2),
            "moves": moves,
            "masters_most_before": max(masters),
            "masters_most_after": max(work.masters()),
        }


def _restart(fleet: SimFleet) -> None:
    """One after the other, as an upgrade does it."""
    world = fleet.world
    for agent in world.agents:
        agent.crash()
        world.run(RESTART_MS / 5)
        world.restart(agent)
        world.run(RESTART_MS * 4 / 5)
    world.run(RESTART_MS)


class _Work:
    """Lines that come all the time."""

    def __init__(self, fleet: SimFleet) -> None:
        self._fleet = fleet
        self._at_us = fleet.next_us

    def run(self, seconds: int) -> None:
        world = self._fleet.world
        for _ in range(seconds):
            for agent in world.agents:
                rows = [
                    line_of(self._at_us + 1_000 * row, world.rng.randrange(KEYS)).decode().strip()
                    for row in range(LINES)
                ]
                world.after(1e3 * world.rng.random(), agent, partial(agent.tasks[STREAM].feed, rows))
            self._at_us += SECOND_US
            world.run(1e3)

    def imbalance(self, seconds: int) -> float:
        """Over so long from now."""
        cores = self._fleet.world.cores
        before = [core.cpu_ms for core in cores]
        self.run(seconds)
        spent = [core.cpu_ms - was for core, was in zip(cores, before, strict=True)]
        return max(spent) * len(spent) / sum(spent)

    def masters(self) -> list[int]:
        """That each agent has."""
        return [len(agent.node.job_groups.jobs()) for agent in self._fleet.world.agents]
