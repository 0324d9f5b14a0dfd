"""The curves of each figure, out of what its commands said: a function a figure.

A function takes the answers of all its commands that have one. What it does not find is no curve.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any, Final

from lab.bench.paper.curves import Axes, Beside, Bound, Curve, Kind, Point, Shown
from lab.bench.peers.engines import ARCHIVING, ELF, ORACLE, PEERS
from lab.bench.runner import shown

Facts = Mapping[str, Any]
Answers = Mapping[str, Facts]
"""By command, its JSON object."""
Read = Callable[[Answers], Shown]

AGENTS: Final = "agents"
OPERATORS: Final = ("max", "min", "sum", "avg")
REAL, SIMULATED = "real", "simulated"


def of(answers: Answers, begins: str) -> list[Facts]:
    """The answers of the commands that begin so."""
    return [facts for command, facts in answers.items() if f"{command} ".startswith(f"elf {begins} ")]


def spread(x: float, facts: Facts) -> Point:
    """A point of percentiles."""
    return Point(x, facts["p50"], facts["p50"], facts["p99"])


def curve(name: str, kind: Kind, points: Iterable[Point]) -> Iterator[Curve]:
    """With its points in order; none without points."""
    if ordered := sorted(points, key=lambda point: point.x):
        yield Curve(name, kind, ordered)


def over_agents(answers: Answers, measures: Mapping[str, str]) -> list[Curve]:
    """Measures (by name, their titles) of real and of simulated fleets, against the number of agents."""
    found: list[Curve] = []
    fleets = ((REAL, Kind.ELF, "bench control"), (SIMULATED, Kind.SIMULATED, "sim control"))
    for name, title in measures.items():
        for whose, kind, command in fleets:
            points = [spread(one["agents"], one[name]) for one in of(answers, command) if name in one]
            found += curve(f"{title}, {whose}", kind, points)
    return found


def worst(curves: Sequence[Curve], begins: str, unit: str) -> str:
    """The range of medians, and the greatest value, in words."""
    points = [point for one in curves if one.name.startswith(begins) for point in one.points]
    if not points:
        return "not measured"
    low, high = min(point.y for point in points), max(point.y for point in points)
    most = max(point.high or point.y for point in points)
    between = shown(low) if low == high else f"{shown(low)} to {shown(high)}"
    return f"{between} {unit}" + (f", at most {shown(most)}" if most > high else "")


def windows(answers: Answers) -> Shown:
    """10a: what a window costs, against its size."""
    titles = {one.name: one.title for one in (ELF, ARCHIVING, ORACLE, *PEERS)}
    longest: dict[tuple[str, int], tuple[int, Point]] = {}
    short: set[tuple[str, int]] = set()
    for facts in of(answers, "bench peers"):
        work = 1e3 * facts["slide_s"] * facts["log_events_per_s"]
        for side in facts["sides"]:
            key, rate = (side["engine"], facts["window_s"]), side["events_per_core_s"]
            if rate is None:
                short.add(key)
            elif side["events"] > longest.get(key, (0,))[0]:
                slow, quick = side["spread"] or (rate, rate)
                point = Point(facts["window_s"], work / rate, work / quick, work / slow)
                longest[key] = side["events"], point
    points: dict[str, list[Point]] = {}
    for (name, _), (_, point) in longest.items():
        points.setdefault(name, []).append(point)
    lacking = [
        f"{titles[name]} with windows of {size} s: too short to tell" for name, size in short - longest.keys()
    ]
    kinds = {ELF.name: Kind.ELF, ARCHIVING.name: Kind.ELF}
    curves = [
        one
        for name, found in points.items()
        for one in curve(titles[name], kinds.get(name, Kind.BESIDE), found)
    ]
    size = max((facts["window_s"] for facts in of(answers, "bench peers")), default=0)
    largest = [(one.name, point.y) for one in curves for point in one.points if point.x == size]
    here = ", ".join(f"{name} {shown(ms)} ms" for name, ms in largest)
    title = "One core's time for a window every 5 s"
    return Shown(
        [Axes(title, "s of window", "ms", curves, log_x=True, log_y=True)],
        [Beside(f"a window of {size} s", "at 300 s ELF is below Storm and Muppet", here)],
        sorted(lacking),
    )


CHANGES: Final = {
    "notify": ("a notice to all agents", 10),
    "filter": ("a changed filter on all agents", 210),
    "code": ("changed code on all agents", 600),
}


def changes(answers: Answers) -> Shown:
    """10b: how soon agents hear of a change."""
    curves = over_agents(answers, {f"{name}_ms": name for name in CHANGES})
    bounds = [
        Bound(f"the paper: {name} in less than {limit} ms", limit, name)
        for name, (_, limit) in CHANGES.items()
    ]
    return Shown(
        [Axes("Until the last agent knows", AGENTS, "ms", curves, bounds, log_x=True, log_y=True)],
        [
            Beside(what, f"< {limit} ms (1,280 agents)", worst(curves, name, "ms"))
            for name, (what, limit) in CHANGES.items()
        ],
        ["simulated: changed code, since users' functions run in processes of their own"],
    )


def recovery(answers: Answers) -> Shown:
    """10c: an agent that is killed, and one that is behind."""
    real = [spread(one["agents"], one["recovery_ms"]) for one in of(answers, "bench failover")]
    whole = [
        Point(one["nodes"], 1e3 * times["p50"], 1e3 * times["p50"], 1e3 * times["p99"])
        for one in of(answers, "sim overlay")
        if (times := one["recovery_seconds"]) is not None
    ]
    killed = [
        *curve("killed, until the next correct window, real", Kind.ELF, real),
        *curve("5 % killed at once, until trees are whole, simulated", Kind.SIMULATED, whole),
    ]
    leaps = over_agents(answers, {"leap_ms": "leapt over"})
    return Shown(
        [
            Axes(
                "Recovery", AGENTS, "ms", killed, [Bound("the paper: about 7 s", 7_000)], log_x=True
            ),
            Axes(
                "A straggler is leapt over", AGENTS, "ms", leaps,
                [Bound("the paper: less than 100 ms", 100)], log_x=True,
            ),
        ],
        [
            Beside("recovery", "about 7 s", worst(killed, "", "ms")),
            Beside("leap", "< 100 ms", worst(leaps, "", "ms")),
        ],
    )  # fmt: skip


def trees(answers: Answers) -> Shown:
    """11: word count against the number of keys."""
    rows = [row for facts in of(answers, "bench cbt") for row in facts["runs"]]
    axes: list[Axes] = []
    for keys in dict.fromkeys(row["keys"] for row in rows):
        speed: dict[str, list[Point]] = {}
        memory: dict[str, list[Point]] = {}
        for row in rows:
            if row["keys"] == keys:
                low, high = (rate / 1e6 for rate in row["spread"])
                rate = Point(row["groups"], row["keys_per_s"] / 1e6, low, high)
                speed.setdefault(row["side"], []).append(rate)
                size = Point(row["groups"], row["peak_bytes_per_key"])
                memory.setdefault(row["side"], []).append(size)
        axes += [
            Axes(
                f"Throughput, {keys} keys", "keys that differ", "M keys/s", _sides(speed),
                more_is_better=True, log_x=True,
            ),
            Axes(
                f"Memory at its peak, {keys} keys", "keys that differ", "bytes a key", _sides(memory),
                log_x=True, log_y=True,
            ),
        ]  # fmt: skip
    fastest = max((row["keys_per_s"] for row in rows if row["side"] == "elf"), default=0)
    here = f"{shown(fastest)} keys/s at most, on one thread"
    lacking = [] if any("hash_map" in row["side"] for row in rows) else [NO_SPARSEHASH]
    return Shown(axes, [Beside("throughput of a node", "> 1,000,000 keys/s, 12 cores", here)], lacking)


NO_SPARSEHASH: Final = "Google's sparsehash: no g++ or no libsparsehash-dev"


def _sides(points: Mapping[str, Sequence[Point]]) -> list[Curve]:
    return [
        one
        for side, found in points.items()
        for one in curve(side, Kind.ELF if side == "elf" else Kind.BESIDE, found)
    ]


def alone(answers: Answers) -> Shown:
    """12a: the operators, one at a time."""
    return _operators(answers, "", "one at a time")


def together(answers: Answers) -> Shown:
    """12b: the operators, all at once."""
    return _operators(answers, "_together", "all four at once")


def _operators(answers: Answers, suffix: str, how: str) -> Shown:
    curves = over_agents(answers, {f"{name}{suffix}_ms": name for name in OPERATORS})
    bound = Bound("the paper: less than 100 ms", 100)
    title = f"From a window's end to its result, {how}"
    return Shown(
        [Axes(title, AGENTS, "ms", curves, [bound], log_x=True)],
        [Beside(name, "< 100 ms", worst(curves, name, "ms")) for name in OPERATORS],
    )


def roots(answers: Answers) -> Shown:
    """12c: how many trees an agent roots."""
    curves: list[Curve] = []
    rows: list[Beside] = []
    loses: list[str] = []
    for facts in of(answers, "sim overlay"):
        for jobs, counts in facts.get("roots", {}).items():
            below = [100 * share / sum(counts) for share in accumulate(counts)]
            points = [Point(number, share) for number, share in enumerate(below)]
            curves += curve(f"{jobs} jobs", Kind.SIMULATED, points)
        for jobs, share in facts["balance"].items() if "roots" in facts else ():
            bound, paper = PAPER_ROOTS[jobs]
            here = f"{100 * share:.2f} % (mean of 20 rings)"
            rows.append(Beside(f"{jobs} jobs: agents that root less than {bound}", f"{paper} %", here))
            if 100 * share < paper:
                loses.append(
                    f"{jobs} jobs: {here} of the agents root less than {bound}; the paper: {paper} %"
                )
    title = "Agents that root at most so many trees"
    axes = Axes(title, "roots", "% of the agents", curves, more_is_better=True)
    return Shown([axes], rows, [], loses)


PAPER_ROOTS: Final = {"500": (3, 99.5), "1000": (5, 99.5), "2000": (5, 95.0)}


OVERHEADS: Final = {
    "cpu_percent": ("CPU", "% of a core", "2.96 % of 12 cores; Flume 0.14, Storm's worker 1.17"),
    "pss_mib": ("Memory", "MiB", "5.73 % of 48 GiB; Flume 5.48, Storm's worker 15.91"),
    "writes_per_s": ("Writes", "calls/s", "3.39 transactions/s; Flume 2.84, Storm's worker 11.47"),
    "switches_per_s": ("Context switches", "a second", "780; Flume 259, Storm's worker 11,199"),
}
"""By name: the title, the unit, what the paper has for ELF and beside it."""
RUNS: Final = {"no_job": "elf, no job", "one_job": "elf, one job", "shipper": "rsyslog"}


def overheads(answers: Answers) -> Shown:
    """13a: what an agent takes from its host."""
    axes: list[Axes] = []
    rows: list[Beside] = []
    for facts in of(answers, "bench idle"):
        there = {name: title for name, title in RUNS.items() if name in facts}
        for key, (title, unit, paper) in OVERHEADS.items():
            curves = [
                Curve(name, Kind.BESIDE if run == "shipper" else Kind.ELF, [Point(0, facts[run][key])])
                for run, name in there.items()
            ]
            axes.append(Axes(title, "", unit, curves))
            here = ", ".join(f"{one.name} {shown(one.points[0].y)}" for one in curves)
            rows.append(Beside(f"{title} ({unit})", paper, here))
    return Shown(axes, rows)


def packets(answers: Answers) -> Shown:
    """13b: messages of an agent."""
    bound = Bound("the paper: at most 10 for millions of agents", 10)
    return _traffic(answers, "messages", "messages/s", "bounded by 10 for millions of agents", [bound])


def sent_bytes(answers: Answers) -> Shown:
    """13c: bytes of an agent."""
    return _traffic(answers, "bytes", "bytes/s", "linear in the logarithm of the number of agents")


def _traffic(answers: Answers, what: str, unit: str, paper: str, bounds: Sequence[Bound] = ()) -> Shown:
    points: dict[tuple[str, Kind], list[Point]] = {}
    for facts in of(answers, "sim control"):
        for every, sent in facts.get("traffic", {}).items():
            name = f"an update every {every} s, simulated" if every != "0" else "no job, simulated"
            at = Point(facts["agents"], sent[f"{what}_per_s"])
            points.setdefault((name, Kind.SIMULATED), []).append(at)
    for facts in of(answers, "bench jobs"):
        name = f"an update every {facts['window']} s, real"
        sent = facts["all"][f"{what}_a_window"] / facts["agents"] / facts["window"]
        points.setdefault((name, Kind.ELF), []).append(Point(facts["agents"], sent))
    for facts in of(answers, "sim overlay"):
        at = Point(facts["nodes"], facts["upkeep"][f"{what}_per_s"])
        points.setdefault(("the ring alone, simulated", Kind.SIMULATED), []).append(at)
    curves = [one for (name, kind), found in points.items() for one in curve(name, kind, found)]
    title = f"What an agent sends: {what}"
    rows = [Beside(f"{what} of an agent", paper, worst(curves, "", unit))]
    return Shown([Axes(title, AGENTS, unit, curves, bounds, log_x=True)], rows)


def campaign(answers: Answers) -> Shown:
    """4.1: the application."""
    found = of(answers, "bench campaign")
    lags = [
        Point(one["agents"], max(one["lag_ms"]["p50"], one["zoomed_lag_ms"]["p50"]),
              min(one["lag_ms"]["p50"], one["zoomed_lag_ms"]["p50"]),
              max(one["lag_ms"]["p99"], one["zoomed_lag_ms"]["p99"]))
        for one in found
    ]  # fmt: skip
    zooms = [Point(one["agents"], one["zoom_ms"]) for one in found]
    cores = [Point(one["agents"], one["cores"]) for one in found]
    spark = [Point(one["agents"], one["spark_s"]) for one in found if one["spark_s"] is not None]
    simulated = [one for one in of(answers, "sim control") if "campaign_ms" in one]
    late = [
        *curve("windows, real", Kind.ELF, lags),
        *curve(
            "windows, simulated", Kind.SIMULATED,
            [spread(one["agents"], one["campaign_ms"]) for one in simulated],
        ),
    ]  # fmt: skip
    zoomed = [
        *curve("zoom-in, real", Kind.ELF, zooms),
        *curve(
            "zoom-in, simulated", Kind.SIMULATED,
            [spread(one["agents"], one["zoom_ms"]) for one in simulated],
        ),
    ]  # fmt: skip
    most = max((one["agents"] for one in found), default=0)
    rows = [
        Beside(
            "agents at 50 events/s", "1,280, on 60 machines of 12 cores",
            f"{most} real on this machine"
            + (f", {max(one['agents'] for one in simulated):,} simulated" if simulated else ""),
        ),
        Beside("a changed filter", "< 210 ms", worst(zoomed, "", "ms")),
    ]  # fmt: skip
    if found:
        judged, wrong = (sum(one[key] for one in found) for key in ("judged", "wrong"))
        rows.append(Beside("windows as they were written", "", f"{judged - wrong} of {judged}"))
    compared: dict[str, int] = {}
    for one in found:
        for outcome, count in one["compared"].items():
            compared[outcome] = compared.get(outcome, 0) + count
    if compared:
        said = ", ".join(f"{count} {outcome}" for outcome, count in compared.items())
        rows.append(Beside("live and offline", "both run", f"windows by Spark: {said}"))
    axes = [
        Axes("After its end a window is read", AGENTS, "ms", late, log_x=True),
        Axes("The closer look, until the last agent computes it", AGENTS, "ms", zoomed,
             [Bound("the paper: less than 210 ms", 210)], log_x=True),
        Axes("CPU of all agents", AGENTS, "cores", list(curve("all agents, real", Kind.ELF, cores))),
    ]  # fmt: skip
    if spark:
        bars = list(curve("elf compare", Kind.ELF, spark))
        axes.append(Axes("The same windows by Spark", AGENTS, "s", bars))
    lacking = [] if simulated and max(one["agents"] for one in simulated) >= PAPER_AGENTS else [FEWER]
    return Shown(axes, rows, lacking)


PAPER_AGENTS: Final = 1_280
FEWER: Final = "1,280 agents: this size is smaller than the paper's"
