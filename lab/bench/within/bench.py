"""``elf bench within``: do jobs keep what they promise, on real agents?

- Three workloads on a fleet: what it says that it can promise, and then whether its windows are within that,
  at the rate at which it says that it keeps it, with nothing left out.
- One agent that gets 1.4 and 1.8 times what it can do, beside an oracle (``lab.bench.within.overload``): jobs
  that promise the same, and jobs that do not (there also 0.7 times).
- What deciding which rows are left out takes of a core.
- What EXPLAIN LATENCY says that windows will take, beside what they take (``lab.bench.within.modelled``).
- Spark Structured Streaming and Flink SQL with the same lines at the same rate, where they are installed.
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from typing import Annotated, ClassVar, Final

import msgspec
import psutil
from typer import Option

from elf.errors import UserError
from elf.fields import replace
from elf.planning.overload import LOOK_MS, Lag
from elf.ql.promises import Promise
from lab.bench.campaign import check_spark
from lab.bench.options import Repeat
from lab.bench.peers.engines import ENVS, able, chosen
from lab.bench.runner import Bench, Figure, Report, Scratch, percentiles
from lab.bench.within.beside import Beside, Took, beside
from lab.bench.within.kept import Kept, kept
from lab.bench.within.load import WORKLOADS
from lab.bench.within.modelled import Modelled, modelled
from lab.bench.within.overload import ALIKE, JOBS, UNLIKE, Overloaded, overloaded
from lab.chaos.engine import STREAM, plan
from lab.chaos.world import World
from lab.latency.mixed import MIXES, Load, by_turns

TIMES: Final = {
    "overload 1.4": (1.4, ALIKE),
    "overload 1.8": (1.8, ALIKE),
    "promises 0.7": (0.7, UNLIKE),
    "promises 1.4": (1.4, UNLIKE),
    "promises 1.8": (1.8, UNLIKE),
}
PLANNER: Final = "planner"
MODEL: Final = "model"
ENGINES: Final = {"spark": "Spark Structured Streaming", "flink": "Flink SQL"}
BESIDE: Final = {f"{engine}, {name}": (engine, name) for name in WORKLOADS for engine in ENGINES}
SIDES: Final = (*WORKLOADS, MODEL, *TIMES, PLANNER, *BESIDE)
PLANNED_JOBS: Final = 32
LOOKS: Final = 100
PROMISE: Final = Promise(500_000, 99.0)


class Planned(msgspec.Struct, frozen=True):
    """CPU of a look at the flows of a stream that is behind; and, of a core, what it takes to say whose turn
    it is, of six flows at 1.4 times what can be done."""

    look_ms: float
    turns: float

    @property
    def share(self) -> float:
        """Of a core."""
        return self.look_ms / LOOK_MS


Run = Kept | Modelled | Overloaded | Planned | Took


@dataclass(frozen=True)
class Within(Bench[str, Run]):
    """Fleets one after the other."""

    agents: Annotated[int, Option("--agents", min=1, help="Agents that promise something.")] = 3
    rate: Annotated[int, Option("--rate", min=10, help="Lines a second, of all of them, at most.")] = 600
    seconds: Annotated[float, Option("--seconds", min=1, help="How long promises are judged.")] = 40
    overload: Annotated[float, Option("--overload", min=25, help="Seconds of an overload.")] = 60
    repeat: Repeat = 3
    only: Annotated[
        list[str] | None, Option("--only", metavar="NAME", help="These sides only; repeat it.")
    ] = None

    envs: Annotated[
        Path, Option("--envs", metavar="DIR", help="Where environments of elf bench peers are, for Flink.")
    ] = ENVS

    once: ClassVar = (MODEL, *TIMES, PLANNER, *BESIDE)

    def __post_init__(self) -> None:
        """Raises ``UserError``."""
        for name in self.only or ():
            if name not in SIDES:
                raise UserError(f"--only {name}: there are {', '.join(SIDES)}")
            if name in BESIDE and (why := engines(self.envs)[1].get(BESIDE[name][0])):
                raise UserError(f"--only {name}: {why}")

    def sides(self, scratch: Scratch) -> Mapping[str, Callable[[], Run]]:
        """Those that are wanted and can be run."""
        rates: dict[str, float] = {}
        folders = (scratch.folder / f"fleet{number}" for number in count())

        def keeps(name: str) -> Run:
            found = kept(next(folders), WORKLOADS[name], self.agents, self.rate, self.seconds)
            rates[name] = found.rate
            return found

        def other(engine: Beside, name: str) -> Run:
            return beside(engine, WORKLOADS[name], rates.get(name, self.rate), self.seconds)

        def beyond(times: float, bounds: Sequence[int]) -> Run:
            return overloaded(next(folders), times, self.overload, bounds)

        made: dict[str, Callable[[], Run]] = {name: partial(keeps, name) for name in WORKLOADS}
        made[MODEL] = lambda: modelled(next(folders), self.agents)
        made |= {name: partial(beyond, *load) for name, load in TIMES.items()}
        made[PLANNER] = planned
        there, _ = engines(self.envs)
        made |= {side: partial(other, there[of], name) for side, (of, name) in BESIDE.items() if of in there}
        return {name: side for name, side in made.items() if name in (self.only or SIDES)}

    def report(self, runs: Mapping[str, Sequence[Run]]) -> Report:
        """Each beside its target. No problem where one is missed: the machine may have been busy."""
        figures = list(_latencies(runs))
        notes = [f"load of the machine {os.getloadavg()[0]:.1f}, {psutil.cpu_count()} cores"]
        for name, found in runs.items():
            figures += _figures(name, found)
        notes += [
            f"{name}: {sum(one.met for one in met)} of {len(met)} runs met the bound with nothing left out"
            for name, found in runs.items()
            if (met := [one for one in found if isinstance(one, Kept)])
        ]
        notes += [
            f"{name}: others had the cores, so that an oracle could do next to nothing"
            for name, found in runs.items()
            if any(isinstance(one, Overloaded) and one.of_oracle is None for one in found)
        ]
        notes += [
            f"{name}: {one.wrong} of {len(one.took_ms)} windows have other counts than what was written"
            for name, found in runs.items()
            for one in found
            if isinstance(one, Took) and one.wrong
        ]
        notes += [
            f"{name}, modelled of measured: {setting.told}"
            for name, found in runs.items()
            for one in found
            if isinstance(one, Modelled)
            for setting in one.settings
        ]
        notes += engines(self.envs)[1].values()
        facts = {
            name: _shown(one)
            for name, (one, *_) in runs.items()
            if name in self.once and not isinstance(one, Modelled)
        }
        details = {name: [_shown(one) for one in found] for name, found in runs.items()}
        return Report({"agents": self.agents, **facts}, figures, notes, {"runs": details})


def _shown(run: Run) -> dict[str, object]:
    """Times of windows by their percentiles, since there may be thousands."""
    told: dict[str, object] = msgspec.to_builtins(run)
    if isinstance(run, Kept | Took) and run.took_ms:
        told |= {"took_ms": percentiles(run.took_ms), "windows": len(run.took_ms)}
    return told


def _latencies(runs: Mapping[str, Sequence[Run]]) -> Iterator[Figure]:
    """Of each workload, elf's beside the other engines'; of one that elf has not done, theirs alone."""

    def took(side: str) -> dict[str, float]:
        found = [ms for one in runs.get(side, ()) if isinstance(one, Kept | Took) for ms in one.took_ms]
        return percentiles(found) if found else {}

    for name in WORKLOADS:
        own = took(name)
        theirs = {title: found for engine, title in ENGINES.items() if (found := took(f"{engine}, {name}"))}
        if own and theirs:
            for q in ("p50", "p99"):
                others = {title: found[q] for title, found in theirs.items()}
                yield Figure(f"{name}, {q} of windows", own[q], "ms", others)
        else:
            for title, found in theirs.items():
                yield Figure(f"{title}, {name}: windows (p50, p99)", (found["p50"], found["p99"]), "ms")


def _figures(name: str, found: Sequence[Run]) -> list[Figure]:
    match found[0]:
        case Kept(rate=rate):
            every = [one for one in found if isinstance(one, Kept)]
            late = statistics.median(percentiles(one.took_ms)["p99"] for one in every)
            bound = statistics.median(one.bound_ms for one in every)
            what = f"{name}, {rate:,.0f} lines/s: p99 of windows, beside the bound that is suggested"
            return [Figure(what, round(late, 1), "ms", {"bound": bound})]
        case Modelled() as model:
            return _of_model(model)
        case Overloaded(of_oracle=settled, in_time=in_time, rate=rate, in_time_each=each):
            least = 0.8 if name.endswith("1.8") else 0.9
            what = f"{name} ({rate:,.0f} lines/s, {JOBS} jobs): in time, of what an oracle could do"
            told = [] if settled is None else [Figure(what, settled, "of 1", {"target": least})]
            return [
                *told,
                Figure(f"{name}: windows within what they promise", round(100 * in_time, 1), "%"),
                *(Figure(f"{name}: within {ms} ms", round(100 * one, 1), "%") for ms, one in each.items()),
            ]
        case Planned(share=share, turns=turns):
            what = f"what looks at {PLANNED_JOBS} flows that are behind take of a core"
            turn = "what it takes of a core to say whose turn it is, of six flows"
            shares = {what: share, turn: turns}
            return [Figure(name, round(100 * one, 3), "%", {"target": 3.0}) for name, one in shares.items()]
        case Took():
            return []
    raise AssertionError(name)


def _of_model(found: Modelled) -> list[Figure]:
    """Each setting beside the model, and how many of them are near to it."""
    both = [
        (f"{one.title}: {what} of windows, beside the model's", beside)
        for one in found.settings
        for what, beside in (("mean", one.mean), ("p99", one.p99))
        if beside is not None
    ]
    each = [Figure(what, one.measured, "ms", {"model": one.modelled}) for what, one in both]
    shares = (
        Figure(
            f"{what}, of {count}", round(100 * near, 1), "%", {} if least is None else {"target": 100 * least}
        )
        for what, count, near, least in found.shares()
    )
    return [*each, *shares]


def planned() -> Planned:
    """Of a simulated agent with so many jobs: its own code, and the kernel's clock."""
    world = World(1, 1, checking=False)
    world.start_all(world.agents)
    queries = (plan(2, where="abcdef"[: 1 + n % 6], lateness_us=1_000 * n) for n in range(PLANNED_JOBS))
    specs = [world.create(0, replace(one, promise=PROMISE), f"j{n}") for n, one in enumerate(queries)]
    lending = world.agents[0].node.lending
    installed = {flow.uid: STREAM for spec in specs for flow in spec.flows}
    now_ms, took = world.agents[0].now_ms, []
    for look in range(LOOKS):
        lending.lags[STREAM] = Lag(400 * (look + 1))
        began = time.process_time()
        lending.look(installed, {}, now_ms + (look + 1) * LOOK_MS)
        took.append(1e3 * (time.process_time() - began))
    load = Load(MIXES["SQL within 0.1, 1 and 5 s"], (1.4,))
    began = time.process_time()
    by_turns(load)
    return Planned(statistics.mean(took), (time.process_time() - began) / load.secs)


def engines(envs: Path) -> tuple[dict[str, Beside], dict[str, str]]:
    """The other engines that can run here, and why the others cannot. Spark is in elf's own interpreter,
    Flink where ``elf bench peers`` has it."""
    there: dict[str, Beside] = {}
    lacking: dict[str, str] = {}
    try:
        check_spark()
        there["spark"] = Beside("spark", ENGINES["spark"], (sys.executable, "-P"))
    except UserError as error:
        lacking["spark"] = f"{ENGINES['spark']} is not here: {error}"
    found, why = able(chosen(["flink"]), envs)
    for one in found:
        there["flink"] = Beside("flink", ENGINES["flink"], (str(one.python(envs.expanduser())), "-I"))
    for line in why:
        lacking["flink"] = line
    return there, lacking
