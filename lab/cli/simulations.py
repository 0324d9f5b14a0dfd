"""``elf sim``: the overlay, and whole fleets, on virtual time."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from elf.cli.options import JsonLine


class Lifetimes(StrEnum):
    """``elf sim overlay --lifetimes``"""

    WEIBULL = "weibull"
    PARETO = "pareto"
    EXPONENTIAL = "exponential"


DrawsSeed = Annotated[int, typer.Option("--seed", min=0, help="The same seed, the same draws.")]

app = typer.Typer(help="Simulate a fleet on virtual time.", no_args_is_help=True)


@app.command()
def overlay(
    nodes: Annotated[int, typer.Option("--nodes", min=1, help="How many nodes join.")] = 200,
    keys: Annotated[
        int | None, typer.Option("--keys", min=1, help="Keys that are routed (1000; with --model 200000).")
    ] = None,
    jobs: Annotated[
        int | None, typer.Option("--jobs", min=0, help="Jobs that are placed (100; with --model 2000).")
    ] = None,
    crash: Annotated[
        float | None, typer.Option("--crash", min=0, max=0.9, help="Share that crashes (0.2).")
    ] = None,
    leaf_set: Annotated[
        int | None, typer.Option("--leaf-set", min=2, help="Members of a leaf set (as agents have it).")
    ] = None,
    partition: Annotated[
        int | None,
        typer.Option("--partition", min=1, metavar="SECONDS", help="Also: halves for so long, then healed."),
    ] = None,
    regions: Annotated[
        int | None,
        typer.Option("--regions", min=1, help="Nodes stand in so many regions, 40 ms apart, and say so."),
    ] = None,
    model: Annotated[
        bool, typer.Option("--model", help="A static model, without the protocol: up to a million nodes.")
    ] = False,
    churn: Annotated[
        float | None,
        typer.Option("--churn", min=1, metavar="SECONDS", help="Also: nodes live so long, others come."),
    ] = None,
    lifetimes: Annotated[
        Lifetimes | None,
        typer.Option("--lifetimes", help="With --churn: how they are distributed (weibull)."),
    ] = None,
    seconds: Annotated[
        int | None, typer.Option("--seconds", min=1, help="With --churn: virtual time (300).")
    ] = None,
    lookups: Annotated[
        int | None, typer.Option("--lookups", min=1, help="With --churn: a second (100).")
    ] = None,
    loss: Annotated[
        float | None,
        typer.Option("--loss", min=0, max=0.5, help="With --churn: share of messages lost (0.01)."),
    ] = None,
    seed: Annotated[int, typer.Option("--seed", min=0, help="The same seed, the same run.")] = 1,
    json: JsonLine = False,
    plot: Annotated[
        Path | None, typer.Option("--plot", metavar="FILE", help="Draw ring, tree, balance: .png or .svg.")
    ] = None,
) -> int:
    """Join, route, place jobs, crash and repair in one process; non-zero when a route or a tree is wrong."""
    from lab.cli.churn import churn_options
    from lab.cli.sim import SimOptions, simulate_overlay

    churning = churn_options(churn, lifetimes, seconds, lookups, loss)
    return simulate_overlay(
        SimOptions(nodes, keys, jobs, crash, leaf_set, seed, model, plot, json, churning, partition, regions)
    )


@app.command()
def chaos(
    seeds: Annotated[int, typer.Option("--seeds", min=1, help="How many histories.")] = 10,
    first_seed: Annotated[int, typer.Option("--first-seed", min=0, help="The others follow it.")] = 1,
    nodes: Annotated[int, typer.Option("--nodes", min=2, max=200, help="Agents of each fleet.")] = 8,
    only: Annotated[
        str | None,
        typer.Option("--only", metavar="N,N...", help="With one seed: these of its faults only (0: none)."),
    ] = None,
    shrink: Annotated[
        bool, typer.Option("--shrink/--no-shrink", help="Make the schedule of a failing seed small.")
    ] = True,
    workers: Annotated[
        int | None, typer.Option("--workers", min=1, help="Processes at once (one a core).")
    ] = None,
    always: Annotated[
        str | None,
        typer.Option(
            "--always",
            metavar="NAME,NAME...",
            help="Every seed has these, not only some: "
            "moves, offloads, promises, regions, rings, scales, tables.",
        ),
    ] = None,
    json: JsonLine = False,
) -> int:
    """Whole fleets through crashes, partitions and full disks; non-zero when a window is wrong or lost."""
    from lab.cli.chaos import ChaosOptions, features_of, numbers_of, run_chaos

    only_these, every = numbers_of(only), features_of(always)
    return run_chaos(ChaosOptions(seeds, first_seed, nodes, only_these, shrink, workers, json, every))


@app.command()
def control(
    nodes: Annotated[int, typer.Option("--nodes", min=2, max=12_000, help="Agents of the fleet.")] = 64,
    rounds: Annotated[int, typer.Option("--rounds", min=1, help="How often each figure is measured.")] = 3,
    link_ms: Annotated[
        float, typer.Option("--link-ms", min=0.0, max=1_000.0, help="What a message is under way.")
    ] = 0.5,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Of the ring; CPU is measured anew.")] = 1,
    only: Annotated[
        list[str] | None, typer.Option("--only", metavar="NAME", help="Measure this only; repeat it.")
    ] = None,
    operators: Annotated[
        bool, typer.Option("--operators", help="Measure max, min, sum and avg instead, alone and together.")
    ] = False,
    rate: Annotated[
        int | None,
        typer.Option("--rate", min=1, help="Measure windows of 5 s, with so many lines/s for each agent."),
    ] = None,
    intervals: Annotated[
        list[int] | None,
        typer.Option(
            "--interval", min=0, metavar="SECONDS", help="Count messages: updates so far apart (0: no job)."
        ),
    ] = None,
    json: JsonLine = False,
) -> int:
    """How fast masters reconfigure a fleet that no machine has: measured CPU on virtual time."""
    from lab.cli.simcontrol import ControlOptions, simulate_control

    return simulate_control(
        ControlOptions(nodes, rounds, link_ms, seed, json, only, operators, intervals, rate)
    )


@app.command()
def alerts(
    windows: Annotated[int, typer.Option("--windows", min=1, help="Windows of all histories.")] = 5_000,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Of the histories.")] = 1,
    workers: Annotated[
        int | None, typer.Option("--workers", min=1, help="Processes at once (one a core).")
    ] = None,
    json: JsonLine = False,
) -> int:
    """Alerts while masters die, agents are away and lines are late; non-zero when a notice is wrong."""
    from lab.cli.simalerts import AlertOptions, simulate_alerts

    return simulate_alerts(AlertOptions(windows, seed, workers, json))


@app.command()
def regions(
    agents: Annotated[int, typer.Option("--agents", min=2, max=64, help="Agents of the fleet.")] = 12,
    regions: Annotated[int, typer.Option("--regions", min=2, max=8, help="Regions they stand in.")] = 3,
    rate: Annotated[int, typer.Option("--rate", min=1, max=200, help="Rows a second of each.")] = 10,
    keys: Annotated[int, typer.Option("--keys", min=1, help="Different keys that rows have.")] = 2_000,
    windows: Annotated[int, typer.Option("--windows", min=1, help="Windows that are counted.")] = 3,
    seed: Annotated[int, typer.Option("--seed", min=0, help="The same seed, the same bytes.")] = 1,
    json: JsonLine = False,
) -> int:
    """What crosses borders without heads, with heads, and with heads that merge panes; non-zero when a window
    is wrong or more than 0.4 of it crosses."""
    from lab.cli.simregions import RegionOptions, simulate_regions
    from lab.sim.regions import Fleet

    return simulate_regions(RegionOptions(Fleet(agents, regions, rate, keys, windows, seed), json))


@app.command()
def queue(
    scenario: Annotated[
        list[str] | None,
        typer.Option(
            "--scenario",
            metavar="NAME",
            help="fig6.19, table6.5 …, or fig6.17 step by step; may be repeated (all but fig6.17).",
        ),
    ] = None,
    seed: Annotated[int, typer.Option("--seed", min=0, help="The same seed, the same run.")] = 1,
    json: JsonLine = False,
) -> int:
    """How production and research runs share a cluster: Natjam, with killing and caps beside it."""
    from lab.cli.simqueue import QueueOptions, simulate_queue

    return simulate_queue(QueueOptions(tuple(scenario or ()), seed, json))


@app.command()
def graph(
    scenario: Annotated[
        list[str] | None,
        typer.Option("--scenario", metavar="NAME", help="figure_6.14, scale_out …; may be repeated (all)."),
    ] = None,
    seed: DrawsSeed = 1,
    json: JsonLine = False,
) -> int:
    """Scaling a graph computation out and in while it runs: LFGraph's figures; non-zero below a target."""
    from lab.graphs.scenarios import SCENARIOS
    from lab.scenarios import ScenarioOptions, run_scenarios

    return run_scenarios(SCENARIOS, ScenarioOptions(tuple(scenario or ()), seed, json))


@app.command()
def moving(
    scenario: Annotated[
        list[str] | None,
        typer.Option(
            "--scenario", metavar="NAME", help="pause, figure_13, scale_in …; may be repeated (all)."
        ),
    ] = None,
    seed: DrawsSeed = 1,
    json: JsonLine = False,
) -> int:
    """Moving, fusing and scaling jobs: Enorm's and Stela's figures; non-zero below a target."""
    from lab.moving.scenarios import SCENARIOS
    from lab.scenarios import ScenarioOptions, run_scenarios

    return run_scenarios(SCENARIOS, ScenarioOptions(tuple(scenario or ()), seed, json))


@app.command()
def latency(
    scenario: Annotated[
        list[str] | None,
        typer.Option(
            "--scenario", metavar="NAME", help="model, rules, overload, scheduler; may be repeated (all)."
        ),
    ] = None,
    seed: DrawsSeed = 1,
    json: JsonLine = False,
) -> int:
    """Latency: SCALLA's model, settings within a bound, and overload; non-zero below a target."""
    from lab.latency.scenarios import SCENARIOS
    from lab.scenarios import ScenarioOptions, run_scenarios

    return run_scenarios(SCENARIOS, ScenarioOptions(tuple(scenario or ()), seed, json))


@app.command()
def wan(
    scenario: Annotated[
        list[str] | None,
        typer.Option(
            "--scenario",
            metavar="NAME",
            help="figure_1, intervals, batch_times, objective, planner, sizes, borders; repeat it (all).",
        ),
    ] = None,
    seed: DrawsSeed = 1,
    json: JsonLine = False,
) -> int:
    """Slow links between regions: trees and batch intervals of all jobs; non-zero below a target."""
    from lab.scenarios import ScenarioOptions, run_scenarios
    from lab.wan.scenarios import SCENARIOS

    return run_scenarios(SCENARIOS, ScenarioOptions(tuple(scenario or ()), seed, json))
