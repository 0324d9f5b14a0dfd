"""Sixteen agents, a core each, and a hundred jobs that are unlike each other, after a rolling restart: how
even the work is before jobs move by themselves, and after (``cluster.balance``).

Real nodes on virtual time (``lab.bench.simulated``). A rolling restart hands the masters of each agent to
others, for good. Then lines come, a second of them each second; job n groups them by ``KEYS`` / (n + 1) keys,
so that the first take far more than the last. What is compared is the CPU of the cores within ``LOOK_S``, all
of it: also what has nothing to do with masters, and what balancing does not count.
"""

from __future__ import annotations

from typing import Final

from elf.errors import ElfError
from elf.planning.pacing import Pace
from lab.bench.control_fleet import SECOND_US
from lab.bench.simulated.costs import Costs
from lab.bench.simulated.fleet import SimFleet

AGENTS: Final = 16
JOBS: Final = 100
KEYS: Final = 2_000
LINES: Final = 40
"""That an agent reads in a second."""
LINK_MS: Final = 0.5
RESTART_MS: Final = 6_000
"""Between two agents; one is away for a sixth of it."""
LOOK_S: Final = 20
WITHIN_S: Final = 60


def balanced(seed: int, costs: Costs, agents: int = AGENTS, jobs: int = JOBS) -> dict[str, float]:
    """Greatest load over mean, before and after a minute; and how many moves it took."""
    fleet = SimFleet(agents, seed, costs, LINK_MS)
    with fleet.running():
        for number in range(jobs):
            keys = max(1, KEYS // (number + 1))
            fleet.sql(
                f"CREATE JOB j{number} AS SELECT user % {keys} AS k, COUNT(*) AS n FROM clicks "
                f"GROUP BY user % {keys} ORDER BY n DESC LIMIT 10 WINDOWING 5 SECONDS LATENESS 0 SECONDS"
            )
        _restart(fleet)
        work = _Work(fleet)
        work.run(LOOK_S)
        masters = work.masters()
        before = work.imbalance(LOOK_S)
        for agent in fleet.world.agents:
            agent.node.balancing.pace = Pace()
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
        world.run(RESTART_MS / 6)
        world.restart(agent)
        world.run(RESTART_MS * 5 / 6)
    world.run(RESTART_MS)


class _Work:
    """Lines that come all the time."""

    def __init__(self, fleet: SimFleet) -> None:
        self._fleet = fleet
        self._at_us = fleet.next_us

    def run(self, seconds: int) -> None:
        world = self._fleet.world
        for _ in range(seconds):
            began = world.exact
            for agent in range(self._fleet.nodes):
                self._fleet.write(agent, self._at_us, LINES, 1e3 * world.rng.random())
            self._at_us += SECOND_US
            world.run(1e3)
            if world.exact - began > 1_001:
                raise ElfError("virtual time has run ahead")

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
