"""``elf bench stages``: a job of two stages with one root and with several, on simulated agents with a core
each (``lab.bench.simulated``): how many groups of the first stage the second one takes in a second.

The CPU time of later stages is measured as agents run them, at roots and at the master, and charged on
virtual time beside all else. A window keeps the busiest agent for so long; groups by that time is what the
stage could take for ever. The rows of all windows must be the same, whatever the number of trees.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from statistics import median
from typing import Annotated, Final

from typer import Option

from elf.errors import ElfError
from lab.bench.control_fleet import SECOND_US, STREAM
from lab.bench.options import Agents
from lab.bench.runner import Bench, Figure, Report, Scratch
from lab.bench.simulated.costs import measured
from lab.bench.simulated.fleet import SimFleet

QUERY: Final = (
    "SELECT product, COUNT(*) AS users, SUM(hits) AS hits, MAX(user) AS latest FROM (SELECT product, user, "
    "COUNT(*) AS hits, ROW_NUMBER() OVER (PARTITION BY product ORDER BY COUNT(*) DESC, user) AS place "
    "FROM clicks GROUP BY product, user) AS ranked WHERE place <= 20 GROUP BY product "
    "ORDER BY users DESC LIMIT 10 WINDOWING 1 SECONDS LATENESS 0 SECONDS TREES {}"
)
"""The first twenty users of each product, and the products with most of them."""
LINK_MS: Final = 0.5
NAMES_MAX: Final = 64
WARM: Final = 1
"""Windows in which statements are prepared."""
TARGET: Final = 3.0
Rows = list[dict[str, object]]


@dataclass(frozen=True)
class Ran:
    """Of each window: CPU time of later stages on the busiest agent and on all, from the last line to the
    result (virtual), in ms; and its rows."""

    busiest_ms: Sequence[float]
    all_ms: Sequence[float]
    window_ms: Sequence[float]
    rows: Sequence[Rows]


@dataclass(frozen=True)
class Stages(Bench[int, Ran]):
    """One tree, and so many."""

    agents: Agents = 12
    trees: Annotated[int, Option("--trees", min=2, help="Compared with one tree; each root an agent.")] = 4
    groups: Annotated[int, Option("--groups", min=10, help="Of the first stage, a window.")] = 240_000
    products: Annotated[int, Option("--products", min=1, help="Groups of the second stage.")] = 3_000
    windows: Annotated[int, Option("--windows", min=1, help="Measured ones; medians.")] = 4
    seed: Annotated[int, Option(help="Of the fleet's ring.")] = 1

    def sides(self, scratch: Scratch) -> Mapping[int, Callable[[], Ran]]:
        return {trees: partial(self._run, trees) for trees in (1, self.trees)}

    def _run(self, trees: int) -> Ran:
        fleet = SimFleet(self.agents, self.seed, measured(), LINK_MS)
        with fleet.running():
            client = fleet.subscribe(self._job(fleet, trees))
            fleet.pause()
            return self._windows(fleet, client)

    def _job(self, fleet: SimFleet, trees: int) -> str:
        """A job whose roots are on so many agents: where they are depends on its name."""
        for number in range(NAMES_MAX):
            name = f"stages_{number}"
            fleet.sql(f"CREATE JOB {name} AS {QUERY.format(trees)}")
            spec = fleet.world.agents[-1].node.log.find_job(name, "me")
            if spec is not None and len({flow.leader for flow in spec.flows}) == trees:
                return name
            fleet.sql(f"DROP JOB {name}")
            fleet.pause()
        raise ElfError(f"{trees} roots on as many agents: not with {self.agents} agents and this seed")

    def _windows(self, fleet: SimFleet, client: str) -> Ran:
        world, first = fleet.world, fleet.next_us
        busiest, total, window, rows = list[float](), list[float](), list[float](), list[Rows]()
        for number in range(WARM + self.windows):
            fleet.forget()
            start = first + number * SECOND_US
            before = [agent.functions.later_ms for agent in world.agents]
            for agent in world.agents:
                lines = self._lines(start, agent.index)
                world.after(0, agent, partial(agent.tasks[STREAM].feed, lines))
            fleet.all_said("read")
            fleet.pause()
            fleet.forget()
            for agent in world.agents:
                fleet.write(agent.index, start + SECOND_US, 1, 0)
            last = max(one.began for one in fleet.all_said("read"))
            end = start + SECOND_US
            world.run_until(lambda: end in fleet.results(client))  # noqa: B023
            came = fleet.results(client)[end]
            spent = [a.functions.later_ms - ms for a, ms in zip(world.agents, before, strict=True)]
            if number >= WARM:
                busiest.append(max(spent))
                total.append(sum(spent))
                window.append(came - last)
                rows.append(fleet.rows(client, end))
            fleet.pause()
        return Ran(busiest, total, window, rows)

    def _lines(self, first_us: int, agent: int) -> list[str]:
        """An agent's part of a window's pairs, each once."""
        found = []
        for pair in range(agent, self.groups, self.agents):
            ts = datetime.fromtimestamp((first_us + 10 * (pair % 90_000)) / 1e6, UTC)
            row = {
                "ts": ts.isoformat(timespec="microseconds"),
                "product": f"product {_product(pair, self.products)}",
            }
            found.append(json.dumps({**row, "store": "toys", "user": pair, "clicks": 1}))
        return found

    def report(self, runs: Mapping[int, Sequence[Ran]]) -> Report:
        (one,), (many,) = runs[1], runs[self.trees]
        if one.rows != many.rows:
            raise ElfError(f"one tree and {self.trees} trees give different rows")
        rates = {trees: 1e3 * self.groups / median(ran[0].busiest_ms) for trees, ran in runs.items()}
        gain = rates[self.trees] / rates[1]
        facts: dict[str, object] = {
            "groups": self.groups,
            "trees": self.trees,
            "groups_a_second_one": round(rates[1]),
            "groups_a_second_many": round(rates[self.trees]),
            "gain": round(gain, 2),
        }
        for name, ran in (("one", one), ("many", many)):
            facts[f"busiest_ms_{name}"] = round(median(ran.busiest_ms), 2)
            facts[f"all_ms_{name}"] = round(median(ran.all_ms), 2)
            facts[f"window_ms_{name}"] = round(median(ran.window_ms), 1)
        what = f"second stage over {self.groups:,} groups, {self.trees} roots"
        return Report(
            facts,
            [
                Figure(f"{what}: groups a second", rates[self.trees], "1/s", {"one root": rates[1]}),
                Figure(f"{what}: gain over one root", gain, "×", {"target": TARGET}),
                Figure(
                    f"{what}: last line to result",
                    median(many.window_ms),
                    "ms of virtual time",
                    {"one root": median(one.window_ms)},
                ),
            ],
        )


def _product(pair: int, products: int) -> int:
    """Some have more users than others: a window's first ten are no ties."""
    return int(products * (pair * 2_654_435_761 % (1 << 32) / (1 << 32)) ** 1.3)
