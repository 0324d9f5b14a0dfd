"""What ``elf sim control`` measures: as ``lab.bench.control_measures``, a function a figure, on virtual time.

A function leaves the fleet as it found it, but for event time.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

import msgspec

from elf.errors import ElfError
from elf.job.program.calls import Loaded, Place
from elf.job.program.runner import JobRunner
from elf.job.program.spec import Question, Submission
from lab.bench.bundling import BEFORE, EDGES, JOB, edge_of
from lab.bench.control_fleet import SECOND_US, STREAM
from lab.bench.control_measures import ANSWERS, CYCLE, LINES, OPERATORS, SEPARATE, create
from lab.bench.simulated.fleet import SimFleet
from lab.chaos.programs import no_queries

Measure = Callable[[SimFleet, int], list[float]]


@dataclass(frozen=True)
class Traffic:
    """What an agent sends in a second."""

    messages_per_s: float
    bytes_per_s: float


CAMPAIGN_S: Final = 5
POLL_MS: Final = 200.0
"""Agents look at files that do not grow so often, at least."""
BEGINS: Final = "            self.began = time.monotonic()\n"
SAYS: Final = BEGINS + "            print('begun', self.epoch + 1)\n"
TIMED_CYCLE: Final = CYCLE.replace(BEGINS, SAYS).replace("time.monotonic()", "0.0")
"""Its clock is not of virtual time: it says when an epoch begins, and no epoch is given up."""


def submit(fleet: SimFleet, rounds: int) -> list[float]:
    """CREATE JOB sent → its answer."""
    found = []
    for number in range(rounds + 1):
        found.append(fleet.sql(create(f"submit_{number}", OPERATORS["top_products"])))
        fleet.sql(f"DROP JOB submit_{number}")
        fleet.pause()
    return found[1:]  # with the first one imports what agents have imported before they begin


def notify(fleet: SimFleet, rounds: int) -> list[float]:
    """The master begins to send a notice → the last agent has heard it."""
    fleet.sql(create("noticed", OPERATORS["stores"]))
    found = []
    for number in range(5 * rounds):
        fleet.forget()
        fleet.sql(f"NOTIFY JOB noticed 'discount {number}'")
        heard = fleet.all_said("noticed", f"discount {number}")
        found.append(max(one.ended for one in heard) - min(one.began for one in heard))
        fleet.pause()
    fleet.sql("DROP JOB noticed")
    return found


def filters(fleet: SimFleet, rounds: int) -> list[float]:
    """ALTER JOB with another WHERE sent → the last agent computes by it."""
    select = "store, COUNT(*) AS n FROM clicks WHERE user >= {} GROUP BY store"
    fleet.sql(create("filtered", select.format(0)))
    found = []
    for number in range(1, rounds + 1):
        fleet.forget()
        began = fleet.world.exact
        select_ = select.format(number)
        fleet.sql(f"ALTER JOB filtered AS SELECT {select_} WINDOWING 1 SECONDS LATENESS 0 SECONDS")
        found.append(max(one.ended for one in fleet.all_said("computed")) - began)
        fleet.pause()
    fleet.sql("DROP JOB filtered")
    return found


def window(fleet: SimFleet, rounds: int) -> list[float]:
    """All agents read the line that ends a window, at once → its result at the subscriber; four jobs."""
    return _together(_windows(fleet, OPERATORS, 2 * rounds, 0.0))


def window_apart(fleet: SimFleet, rounds: int) -> list[float]:
    """The same, read when each agent next looks at its files; since the last one has read it."""
    return _together(_windows(fleet, OPERATORS, 2 * rounds, POLL_MS))


def operators(fleet: SimFleet, rounds: int) -> dict[str, list[float]]:
    """The same of each of the paper's operators: while its job runs alone, and while all four run."""
    found = {
        f"{name}_ms": _windows(fleet, {name: query}, 2 * rounds, POLL_MS)[name]
        for name, query in SEPARATE.items()
    }
    together = _windows(fleet, SEPARATE, 2 * rounds, POLL_MS)
    return found | {f"{name}_together_ms": took for name, took in together.items()}


def campaign(fleet: SimFleet, rate: int, count: int) -> dict[str, list[float]]:
    """Every agent reads so many lines in each second of virtual time, beside a job that has the first five
    of each window of 5 s: after its end a window is at the subscriber (``campaign_ms``; so many windows, and
    so many again after the next), and ALTER JOB with another WHERE and other groups sent → the last agent
    computes by it (``zoom_ms``)."""
    world = fleet.world
    window_us = CAMPAIGN_S * SECOND_US
    first = fleet.next_us + -fleet.next_us % window_us
    apart = [1e3 * world.rng.random() for _ in range(fleet.nodes)]
    how = f"ORDER BY n DESC LIMIT 5 WINDOWING {CAMPAIGN_S} SECONDS LATENESS 0 SECONDS"
    seconds, zoomed = itertools.count(), list[float]()

    def second(then: Callable[[], None] = lambda: None) -> None:
        at, began = first + next(seconds) * SECOND_US, world.exact
        for agent, ms in enumerate(apart):
            fleet.write(agent, at, rate, ms)
        then()
        world.run(max(0.0, began + 1e3 - world.exact))

    def look_closer() -> None:
        fleet.forget()
        altered = world.exact
        query = "SELECT product, COUNT(*) AS n FROM clicks WHERE user < 100 GROUP BY product"
        fleet.sql(f"ALTER JOB campaign AS {query} {how}")
        zoomed.append(max(one.ended for one in fleet.all_said("computed")) - altered)

    query = "SELECT user, COUNT(*) AS n FROM clicks WHERE store == 'video_games' GROUP BY user"
    fleet.sql(f"CREATE JOB campaign AS {query} {how}")
    reader, began, found = fleet.subscribe("campaign"), world.exact, dict[int, float]()
    for number in range(2 * (count * CAMPAIGN_S + 1)):
        second(look_closer if number == count * CAMPAIGN_S + 1 else lambda: None)
        found |= fleet.results(reader)
    world.run_until(lambda: len(fleet.results(reader).keys() | found.keys()) >= 2 * count)
    found |= fleet.results(reader)
    fleet.next_us = first + next(seconds) * SECOND_US
    fleet.sql("DROP JOB campaign")
    fleet.pause()
    lags = [at - began - (end_us - first) / 1e3 for end_us, at in sorted(found.items())]
    return {"campaign_ms": lags, "zoom_ms": zoomed}


def traffic(fleet: SimFleet, seconds: int, intervals: int) -> Traffic:
    """So many intervals of ``seconds`` of virtual time, at the beginning of each of which every agent reads
    some lines, which end a window of a job (0: one second, no lines, no job)."""
    world, job = fleet.world, seconds > 0
    first = fleet.next_us
    if job:
        query = f"SELECT {OPERATORS['top_products']} WINDOWING {seconds} SECONDS LATENESS 0 SECONDS"
        fleet.sql(f"CREATE JOB updated AS {query}")
        first += -first % (seconds * SECOND_US)
        _all_read(fleet, first, LINES, POLL_MS)
    fleet.pause()
    began, messages, sent = world.exact, world.messages, world.sent_bytes
    for number in range(1, intervals + 1):
        for agent in range(fleet.nodes if job else 0):
            fleet.write(agent, first + number * seconds * SECOND_US, LINES, POLL_MS * world.rng.random())
        world.run(1e3 * max(seconds, 1))
    agent_secs = fleet.nodes * (world.exact - began) / 1e3
    found = Traffic((world.messages - messages) / agent_secs, (world.sent_bytes - sent) / agent_secs)
    if job:
        fleet.next_us = first + (intervals + 1) * seconds * SECOND_US
        fleet.sql("DROP JOB updated")
        fleet.pause()
    return found


def _together(found: Mapping[str, list[float]]) -> list[float]:
    return [ms for took in found.values() for ms in took]


def _windows(
    fleet: SimFleet, queries: Mapping[str, str], count: int, apart_ms: float
) -> dict[str, list[float]]:
    """So many windows of jobs that run together: by job, what each window took, in ms."""
    for name, query in queries.items():
        fleet.sql(create(name, query))
    clients = {name: fleet.subscribe(name) for name in queries}
    fleet.pause()
    found: dict[str, list[float]] = {name: [] for name in queries}
    first = fleet.next_us
    for number in range(count):
        start = first + number * SECOND_US
        fleet.forget()
        _all_read(fleet, start + LINES * 1000, LINES, POLL_MS)
        fleet.pause()
        fleet.forget()
        last = _all_read(fleet, start + SECOND_US, 1, apart_ms)
        wanted = start + SECOND_US
        fleet.world.run_until(lambda: all(wanted in fleet.results(one) for one in clients.values()))  # noqa: B023
        for name, client in clients.items():
            found[name].append(fleet.results(client)[wanted] - last)
        fleet.pause()
    fleet.next_us = first + (count + 1) * SECOND_US
    for name in queries:
        fleet.sql(f"DROP JOB {name}")
    fleet.pause()  # the next job of that name is refused where the log has not come so far
    return found


def _all_read(fleet: SimFleet, first_us: int, lines: int, apart_ms: float) -> float:
    """Every agent reads lines, within so long; when the last one begins to."""
    for number in range(fleet.nodes):
        fleet.write(number, first_us, lines, apart_ms * fleet.world.rng.random())
    return max(one.began for one in fleet.all_said("read"))


def leap(fleet: SimFleet, rounds: int) -> list[float]:
    """The root commits a pane without an agent that is behind → all others have its word."""
    behind = 1
    fleet.sql(create("leaping", OPERATORS["stores"], "STRAGGLERS LEAP"))
    (flow,) = fleet.flows("leaping")
    found: list[float] = []
    first = fleet.next_us
    for number in range(rounds):
        start = first + number * SECOND_US
        fleet.forget()
        _all_read(fleet, start, LINES, POLL_MS)
        fleet.pause()
        fleet.forget()
        for one in range(fleet.nodes):
            if one != behind:
                fleet.write(one, start + SECOND_US, 1, POLL_MS * fleet.world.rng.random())
        told = fleet.all_said("forgets", flow, but=1)
        (decided,) = fleet.said("commits", flow).values()
        found.append(max(one.ended for one in told) - decided.began)
        fleet.write(behind, start + SECOND_US, 1, 0)
        fleet.pause()
    fleet.next_us = first + (rounds + 1) * SECOND_US
    fleet.sql("DROP JOB leaping")
    return found


def cycle(fleet: SimFleet, rounds: int) -> list[float]:
    """The master of a job in Python begins an epoch → it has what all agents answered."""
    _submit(fleet, "cycle", TIMED_CYCLE, Loaded("Cycle", 100, ()))
    fleet.forget()
    begun: dict[int, float] = {}
    found: list[float] = []
    epoch, limit = 0, fleet.world.exact + 60_000
    while len(found) < 5 * rounds + 1 and fleet.world.exact < limit:
        fleet.world.run(10)
        said, fleet.world.said[:] = list(fleet.world.said), []
        for one in said:
            words = one.about.split() if one.what == "printed" else []
            if words[:1] == ["begun"]:
                epoch = int(words[1])
                begun[epoch] = one.began
            elif words[1:] == [str(fleet.nodes)]:
                found.append(one.ended - begun[epoch])
    if len(found) <= 5 * rounds:
        raise ElfError(f"{len(found)} of {5 * rounds + 1} epochs after a minute of virtual time")
    fleet.sql("DROP JOB cycle")
    return found[1:]


def bundling(fleet: SimFleet, rounds: int) -> list[float]:
    """The master of product bundling begins an epoch → it has the users of all agents."""
    world, rng = fleet.world, random.Random(1)
    _submit(fleet, "bundling", JOB, loaded_of(JOB))
    fleet.forget()
    begun, found = 0.0, list[float]()
    for epoch in range(BEFORE + 5 * rounds):
        for agent in range(fleet.nodes):
            rows = [edge_of(1_000 * world.now, rng).decode().strip() for _ in range(EDGES)]
            world.after(0, world.agents[agent], partial(world.agents[agent].tasks[STREAM].feed, rows))
        ends = world.exact + 500
        while world.exact < ends:
            world.run(10)
            said, world.said[:] = list(world.said), []
            for one in said:
                words = one.about.split() if one.what == "printed" else []
                if words[:1] == ["begun"]:
                    begun = one.began
                elif words[1:2] == [str(fleet.nodes)] and epoch >= BEFORE:
                    found.append(one.ended - begun)
    fleet.sql("DROP JOB bundling")
    return found


def route(fleet: SimFleet, rounds: int) -> list[float]:
    """An agent asks the master of a job in Python → it has the reply. The asking job's own sandbox is charged
    beside it; the client that asks for it is on that agent."""
    _submit(fleet, "answers", ANSWERS, Loaded("Answers", 0, ()))
    fleet.pause()
    argument = msgspec.json.encode(Question("answers", 4)).decode()
    own = fleet.world.costs.sandbox_ms - 2 * fleet.world.link_ms
    found = []
    for _ in range(5 * rounds):
        found.append(fleet.call("query", argument, fleet.world.rng.randrange(fleet.nodes)) + own)
        fleet.pause()
    fleet.sql("DROP JOB answers")
    return found


def _submit(fleet: SimFleet, name: str, text: str, loaded: Loaded) -> None:
    fleet.call("submit", msgspec.json.encode(Submission(name, text, f"{name}.py", loaded, name)).decode())


def loaded_of(text: str) -> Loaded:
    """What a client learns of a job when it tries it."""
    return JobRunner(text, "job.py", "job", "me", no_queries).start(Place("", 0))


MEASURES: Final[Mapping[str, Measure]] = {
    "submit_ms": submit,
    "notify_ms": notify,
    "filter_ms": filters,
    "cycle_ms": cycle,
    "route_ms": route,
    "window_ms": window,
    "window_apart_ms": window_apart,
    "leap_ms": leap,
    "bundling_ms": bundling,
}
