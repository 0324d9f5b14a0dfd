"""The experiments of section 6.6 (Tables 6.4 to 6.6, Figures 6.19 to 6.22) on virtual time.

Constructed, for the text does not print it: how long the longest reduce is (so that jobs that run alone take
what Table 6.4 says), how many maps there are and how long they take, and the whole trace of Figure 6.22.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean
from typing import Final

from lab.queue.optimal import srt
from lab.queue.sharing import HARD_CAP, KILL, SOFT_CAP, Sharing, natjam
from lab.queue.world import Cluster, Job, Seen, World
from spark_backend.queue.policies import Policies, RunEviction, TaskEviction

RUNS: Final = 5
"""Of each experiment; figures are means (as the paper's)."""

# -- Tables 6.4, 6.5 and 6.6, Figure 6.19 --------------------------------------------------------------------

MICRO: Final = Cluster(hosts=6, each=8)
SIZES: Final = {"XL": 47, "L": 35, "M": 23, "S": 11}
"""Reduces (Table 6.4)."""
ALONE: Final = {
    "research": {"XL": 192.3, "L": 193.8, "M": 195.6, "S": 202.6},
    "production": {"XL": 67.2, "L": 67.0, "M": 67.6, "S": 70.4},
}
"""Seconds on an otherwise empty cluster (Table 6.4)."""
LONGEST_MS: Final = {"research": 187_000, "production": 62_000}
MAPS_MS: Final = (2_000,)
LATER_MS: Final = 50_000
"""When the production job is submitted."""


def micro(kind: str, size: str, rng: random.Random, name: str = "", at_ms: int = 0) -> Job:
    """A job of Table 6.4: reduces are uniform in (0.5, 1] of the longest."""
    longest = LONGEST_MS[kind]
    reduces = tuple(round(longest * (1 - rng.random() / 2)) for _ in range(SIZES[size]))
    return Job(name or f"{kind}-{size.lower()}", reduces, MAPS_MS, at_ms, kind == "production")


def table_6_4(seed: int) -> dict[str, object]:
    """Each job alone, in seconds, beside the paper's."""
    found: dict[str, object] = {}
    for kind, sizes in ALONE.items():
        for size, paper in sizes.items():
            took = [
                _alone(micro(kind, size, random.Random(seed + run)), seed + run) / 1e3 for run in range(RUNS)
            ]
            found[f"{kind}-{size.lower()}"] = {"seconds": round(fmean(took), 1), "paper": paper}
    return found


def fig_6_19(seed: int) -> dict[str, object]:
    """Production-S after Research-XL: times as ratios to the same run alone."""
    found: dict[str, object] = {}
    for sharing in (natjam(), KILL, HARD_CAP, SOFT_CAP):
        ratios, suspends, steps = _ratios(sharing, "XL", "S", seed)
        found[sharing.name] = ratios | ({"suspends": suspends, "seconds": steps} if suspends else {})
    return found


def table_6_5(seed: int) -> dict[str, object]:
    """Task eviction, for a small and a large production job: seconds."""
    found: dict[str, object] = {}
    for size in ("S", "L"):
        for tasks in TaskEviction:
            seen = [
                _shared(natjam(Policies(tasks=tasks)), seed + run, {"research": ["XL"]}, size)[0]
                for run in range(RUNS)
            ]
            row = {
                "production": round(fmean(_took(one, f"production-{size.lower()}") for one in seen), 1),
                "research": round(fmean(_took(one, "research-0") for one in seen), 1),
            }
            found[f"{tasks}, production-{size.lower()}"] = row
    return found


def table_6_6(seed: int) -> dict[str, object]:
    """Run eviction, between two research jobs: seconds of each, the shorter first where they are alike."""
    found: dict[str, object] = {}
    for sizes in (["M", "M"], ["L", "S"]):
        for runs in (RunEviction.PR, RunEviction.MR, RunEviction.LR):
            seen = [
                _shared(natjam(Policies(runs=runs)), seed + run, {"research": sizes}, "S")[0]
                for run in range(RUNS)
            ]
            pairs = [[_took(one, f"research-{place}") for place in range(2)] for one in seen]
            if sizes[0] == sizes[1]:
                pairs = [sorted(pair) for pair in pairs]
            found[f"{runs}, {'+'.join(sizes)}"] = [
                round(fmean(times), 1) for times in zip(*pairs, strict=True)
            ]
    return found


def _alone(job: Job, seed: int, cluster: Cluster = MICRO) -> int:
    return World(cluster, natjam(), seed).run([job]).ended[job.name] - job.at_ms


def _shared(
    sharing: Sharing, seed: int, before: Mapping[str, Sequence[str]], size: str
) -> tuple[Seen, list[Job]]:
    """Research jobs, then a production job."""
    rng = random.Random(seed)
    jobs = [micro("research", one, rng, f"research-{place}") for place, one in enumerate(before["research"])]
    jobs.append(micro("production", size, rng, at_ms=LATER_MS))
    return World(MICRO, sharing, seed).run(jobs), jobs


def _took(seen: Seen, name: str) -> float:
    return (seen.ended[name] - (LATER_MS if name.startswith("production") else 0)) / 1e3


def _ratios(
    sharing: Sharing, research: str, production: str, seed: int
) -> tuple[dict[str, float], float, dict[str, float]]:
    times: dict[str, list[float]] = {"production": [], "research": []}
    alone: dict[str, list[float]] = {"production": [], "research": []}
    suspends, steps = [], []
    for run in range(seed, seed + RUNS):
        seen, jobs = _shared(sharing, run, {"research": [research]}, production)
        for job in jobs:
            kind = "production" if job.production else "research"
            times[kind].append(seen.ended[job.name] - job.at_ms)
            alone[kind].append(_alone(job, run))
        suspends.append(sum(seen.suspends.values()))
        steps.append(seen)
    ratios = {kind: round(fmean(times[kind]) / fmean(alone[kind]), 4) for kind in times}
    means = {
        name: round(fmean(values) / 1e3, 2)
        for name in ("schedule", "suspend", "resume")
        if (values := [ms for one in steps for ms in getattr(one, name)])
    }
    return ratios, fmean(suspends), means


# -- Natjam-R: Figures 6.20, 6.21 and 6.22 -------------------------------------------------------------------

DEADLINES: Final = Cluster(hosts=7, each=3)
IDENTICAL: Final = {"maps": 8, "map_ms": 25_000, "reduces": 50, "longest_ms": 17_000, "alone_s": 87}
"""The three jobs of Figure 6.20: 8 maps, 50 reduces, 87 s alone; how these share out is constructed."""
AFTER_MS: Final = 5_000


def identical(number: int, rng: random.Random, deadline_ms: int | None = None) -> Job:
    """One of the jobs of Figures 6.20 and 6.21."""
    longest = IDENTICAL["longest_ms"]
    reduces = tuple(round(longest * (1 - rng.random() / 2)) for _ in range(IDENTICAL["reduces"]))
    maps = (IDENTICAL["map_ms"],) * IDENTICAL["maps"]
    return Job(f"job-{number}", reduces, maps, AFTER_MS * (number - 1), deadline_ms=deadline_ms, in_turn=True)


def fig_6_20(seed: int) -> dict[str, object]:
    """Three jobs, the later the shorter the deadline: when each is done, by MDF and by MLF."""
    found: dict[str, object] = {}
    for runs in (RunEviction.MDF, RunEviction.MLF):
        rows = []
        for run in range(seed, seed + RUNS):
            jobs = [
                identical(number, random.Random(run), deadline_ms)
                for number, deadline_ms in ((1, 200_000), (2, 190_000), (3, 180_000))
            ]
            rows.append((World(DEADLINES, natjam(Policies(runs)), run).run(jobs), jobs))
        found[runs] = {
            "seconds": [round(fmean(seen.ended[f"job-{n}"] / 1e3 for seen, _ in rows), 1) for n in (1, 2, 3)],
            "met": [
                sum(seen.ended[job.name] <= (job.deadline_ms or 0) for job in jobs) for seen, jobs in rows
            ],
            "suspends": round(fmean(sum(seen.suspends.values()) for seen, _ in rows), 1),
        }
    return found


EPSILONS: Final = (0.2, 0.4, 0.6, 0.8, 1.0, 1.2)


def fig_6_21(seed: int) -> dict[str, object]:
    """Two jobs; the second, submitted 5 s later, has a deadline 1 s earlier. Margins in seconds, for each ε.

    The first job's deadline is its own time alone, times 1 + ε.
    """
    found: dict[str, object] = {}
    for epsilon in EPSILONS:
        margins: dict[str, list[float]] = {"job-1": [], "job-2": []}
        for run in range(seed, seed + RUNS):
            first = identical(1, random.Random(run))
            deadline = round(_alone(first, run, DEADLINES) * (1 + epsilon))
            jobs = [
                identical(1, random.Random(run), deadline),
                identical(2, random.Random(run), deadline - 1_000),
            ]
            seen = World(DEADLINES, natjam(Policies(RunEviction.MDF)), run).run(jobs)
            for job in jobs:
                margins[job.name].append(((job.deadline_ms or 0) - seen.ended[job.name]) / 1e3)
        found[f"{epsilon:g}"] = {name: round(fmean(values), 1) for name, values in margins.items()}
    return found


TRACE: Final = Cluster(hosts=7, each=3, masters=False)
"""Masters take no containers here: where many jobs wait, those of 21 of them would fill the cluster."""
JOBS: Final = 400
BURST: Final = 30
"""Arrivals in the busiest hour ÷ in the idlest (the paper's trace)."""
LOAD: Final = 1.3
"""Work that arrives ÷ what the cluster can do: the trace was scaled so as to overload it."""


def trace(seed: int) -> list[Job]:
    """A trace of 400 jobs, constructed: arrivals come in bursts, sizes are log-normal, reduces vary as in
    Table 6.4, and each deadline is ε × the job's time alone after that time, ε uniform in [0, 2]."""
    rng = random.Random(seed)
    jobs: list[Job] = []
    hours = [BURST ** rng.random() for _ in range(24)]
    sizes = [max(1, min(120, round(rng.lognormvariate(1.8, 1.1)))) for _ in range(JOBS)]
    longest = [max(4_000, min(120_000, round(rng.lognormvariate(9.9, 0.8)))) for _ in range(JOBS)]
    work = sum(0.75 * size * ms for size, ms in zip(sizes, longest, strict=True))
    day_ms = work / (TRACE.hosts * TRACE.each) / LOAD
    arrivals = sorted((rng.choices(range(24), hours)[0] + rng.random()) / 24 * day_ms for _ in range(JOBS))
    for number, (at, size, most) in enumerate(zip(arrivals, sizes, longest, strict=True)):
        reduces = tuple(round(most * (1 - rng.random() / 2)) for _ in range(size))
        alone = _alone(Job("alone", reduces), seed, TRACE)
        deadline = round(at + alone * (1 + rng.uniform(0, 2)))
        jobs.append(Job(f"job-{number}", reduces, (), round(at), True, deadline))
    return jobs


def fig_6_22(seed: int) -> dict[str, object]:
    """The trace by Natjam-R (MDF) and by soft cap: in which is the margin of each job better."""
    jobs = trace(seed)
    natjam_r = World(TRACE, natjam(Policies(RunEviction.MDF)), seed, check=False).run(jobs)
    soft_cap = World(TRACE, SOFT_CAP, seed, check=False).run(jobs)
    better = [(soft_cap.ended[job.name] - natjam_r.ended[job.name]) / 1e3 for job in jobs]
    met = {
        name: sum(seen.ended[job.name] <= (job.deadline_ms or 0) for job in jobs)
        for name, seen in (("natjam_r", natjam_r), ("soft_cap", soft_cap))
    }
    return {
        "jobs": len(jobs),
        "better": round(sum(gain > 0 for gain in better) / len(jobs), 4),
        "best_s": round(max(better), 1),
        "worst_s": [round(gain, 1) for gain in sorted(better)[:2]],
        "met": met,
    }


def step_by_step(seed: int) -> list[str]:
    """Figure 6.17 as it happens: a production run of one task, for which a full cluster makes room."""
    world = World(Cluster(2, 2, masters=False), natjam(), seed, tell=True)
    research = Job("research", (60_000, 70_000, 80_000, 90_000))
    return world.run([research, Job("production", (5_000,), at_ms=20_000, production=True)]).story


SCENARIOS: Final[Mapping[str, Callable[[int], dict[str, object]]]] = {
    "table6.4": table_6_4,
    "fig6.19": fig_6_19,
    "table6.5": table_6_5,
    "table6.6": table_6_6,
    "fig6.20": fig_6_20,
    "fig6.21": fig_6_21,
    "fig6.22": fig_6_22,
    "srt": srt,
}
