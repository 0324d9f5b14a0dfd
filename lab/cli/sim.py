"""``elf sim overlay``: a ring on virtual time, or as a static model; figures, pictures, and a verdict."""

from __future__ import annotations

import json
import math
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from elf.errors import UserError
from lab.cli.churn import ChurnOptions, churn_facts, is_right, print_churn, run_churn
from lab.overlay.churn import ChurnReport
from lab.overlay.simulator import Hops, Phase, Report, simulate
from lab.overlay.world import Latency, matrix
from overlay.config import OverlayConfig
from overlay.ids import ID_BITS, node_id
from overlay.messages import Message

if TYPE_CHECKING:
    from lab.pictures.scene import Scene
    from lab.sim.model import Model

DIGIT_VALUES: Final = 16
HOPS_BEYOND: Final = 1
"""A route may take one hop more than the tables' depth: the last one, to the numerically closest leaf."""
CRASH_SHARE: Final = 0.2
KEYS: Final = 1_000
MODEL_KEYS: Final = 200_000
JOBS: Final = 100
NEAR_MS: Final = 1
FAR_MS: Final = 40
"""What a message takes within a region, and to another."""
HEALED_WITHIN_S: Final = 10
"""A ring that was in halves must be one again so soon after it has healed."""
MODEL_JOBS: Final = 2_000


@dataclass(frozen=True)
class SimOptions:
    """The command line; None where the protocol and the model have defaults of their own."""

    nodes: int
    keys: int | None
    jobs: int | None
    crash: float | None
    leaf_set: int | None
    seed: int
    model: bool
    plot: Path | None
    as_json: bool
    churn: ChurnOptions | None = None
    partition: int | None = None
    regions: int | None = None


def simulate_overlay(options: SimOptions) -> int:
    """Run and report; 1 when a route or a tree is wrong. Raises ``UserError``."""
    config = config_of(options.leaf_set)
    if options.plot is not None:
        from elf.cli.pictures import check_plot

        check_plot(options.plot)
        if options.jobs == 0:
            raise UserError("--plot draws trees: give --jobs at least 1")
    for name, value in (("--churn", options.churn), ("--partition", options.partition)):
        if value is not None and options.nodes < 2:
            raise UserError(f"{name} needs --nodes of at least 2")
    return _run_model(options, config) if options.model else _run_protocol(options, config)


def config_of(leaf_set: int | None) -> OverlayConfig:
    """The agents' settings, with leaf sets of that size. Raises ``UserError``."""
    config = OverlayConfig()
    try:
        return config if leaf_set is None else replace(config, leaf_set_size=leaf_set)
    except ValueError as error:
        raise UserError(f"--leaf-set {leaf_set}: {error}") from None


# -- the protocol --------------------------------------------------------------------------------------------


def _run_protocol(options: SimOptions, config: OverlayConfig) -> int:
    began = time.monotonic()
    keys = KEYS if options.keys is None else options.keys
    jobs = JOBS if options.jobs is None else options.jobs
    crash = CRASH_SHARE if options.crash is None else options.crash
    rng = random.Random(options.seed)
    apart_ms = (options.partition or 0) * 1000
    place_of, latency = places(options.regions)
    report = simulate(
        options.nodes,
        keys,
        crash,
        rng,
        jobs=jobs,
        weigh=weigh,
        config=config,
        latency=latency,
        place_of=place_of,
        partition_ms=apart_ms,
    )
    limit = hops_limit(options.nodes)
    right = all(fault(phase, limit) is None for phase in report.phases) and jobs_fault(report) is None
    right = right and partition_fault(report) is None
    scene = scene_of(report) if report.jobs.trees else None
    churned = None
    if options.churn is not None:
        churned = run_churn(options.nodes, options.seed, options.churn, config)
        right = right and is_right(churned)
    if options.as_json:
        found = {**facts(report), "seed": options.seed, "hops_limit": limit, "ok": right}
        if options.regions is not None:
            found["far_links"] = far_links(report, place_of)
        if churned is not None:
            found |= {"lookups": lookups_of(report, churned), "churn": churn_facts(churned)}
        print(json.dumps(found))
    else:
        _print(report, limit, options.seed, time.monotonic() - began)
        if options.regions is not None:
            share = far_links(report, place_of)
            print(f"{options.regions} regions, {FAR_MS} ms apart: {share:.1%} of the tree links cross them")
        if churned is not None and options.churn is not None:
            print_churn(churned, options.churn)
    title = f"{options.nodes:,} nodes on virtual time before any crash, seed {options.seed}"
    _show(scene, title, options)
    return 0 if right else 1


def places(regions: int | None) -> tuple[Callable[[str], str], Latency | None]:
    """Where each address stands, by its id's lowest digits, and how long messages take; None: a plane."""
    if regions is None:
        return lambda _: "", None

    def place_of(address: str) -> str:
        return f"region-{node_id(address) % regions}"

    names = [f"region-{number}" for number in range(regions)]
    ms = {(one, other): NEAR_MS if one == other else FAR_MS for one in names for other in names}
    return place_of, matrix(place_of, ms)


def far_links(report: Report, place_of: Callable[[str], str]) -> float:
    """The share of tree links between child and parent that cross regions, over all trees that were grown."""
    links = [link for tree in report.jobs.trees for link in tree.items() if link[0] != link[1]]
    return round(sum(place_of(a) != place_of(b) for a, b in links) / len(links), 4) if links else 0.0


def lookups_of(report: Report, churned: ChurnReport) -> dict[str, int]:
    """Those at rest and after the crash, and those under churn, together."""
    names = ("total", "wrong", "lost", "doubled")
    return {name: getattr(report.lookups, name) + getattr(churned, name) for name in names}


def weigh(message: Message) -> int:
    """Bytes of a message as agents put it on the wire, all frames together."""
    from agents.codec import encode

    return sum(map(len, encode(message, cluster="elf", sender=message.sender.address)))


def facts(report: Report) -> dict[str, object]:
    """The figures as JSON; ``hops`` are those of the steady state, before any crash.

    ``balance`` is by two choices (``overlay.placement``), ``balance_plain`` by one key a job.
    """
    from lab.sim.balance import shares

    place = {address: number for number, address in enumerate(sorted(_nodes(report)))}
    jobs = report.jobs
    by_two, by_one = (
        shares(report.nodes, [place[root] for root in roots]) for roots in (jobs.roots, jobs.first)
    )
    return {
        "nodes": report.nodes,
        "joined": report.joined,
        "crashed": report.crashed,
        "phases": [asdict(phase) for phase in report.phases],
        "hops": _hops(report.phases[0].hops),
        "balance": by_two,
        "balance_plain": by_one,
        "recovery_seconds": quantiles(jobs.recovery_seconds),
        "partition": _partition(report),
        "upkeep": asdict(report.maintenance),
        "lookups": asdict(report.lookups),
        "tree": asdict(jobs.shape),
        "jobs": {"placed": len(jobs.roots), "unplaced": jobs.unplaced, "ungrown": jobs.ungrown,
                 "unrepaired": jobs.unrepaired},
        "virtual_seconds": report.virtual_seconds,
        "messages": report.messages,
        "fingerprint": report.fingerprint,
    }  # fmt: skip


def quantiles(seconds: Sequence[float]) -> dict[str, float] | None:
    """The median and the 99th percentile, by nearest rank; None of nothing."""
    ordered = sorted(seconds)
    if not ordered:
        return None
    return {f"p{q}": ordered[math.ceil(q * len(ordered) / 100) - 1] for q in (50, 99)}


def hops_limit(nodes: int) -> int:
    """⌈log₁₆ N⌉ + 1 (paper, section 2.3), in whole numbers."""
    digits, reach = 0, 1
    while reach < nodes:
        digits, reach = digits + 1, reach * DIGIT_VALUES
    return digits + HOPS_BEYOND


def fault(phase: Phase, limit: int) -> str | None:
    """What is wrong with a phase, in words; None when all is well."""
    lookups = phase.lookups
    found = [
        f"{count} routes {what}"
        for count, what in (
            (lookups.wrong, "ended at the wrong node"),
            (lookups.lost, "ended nowhere"),
            (lookups.doubled, "ended more than once"),
        )
        if count
    ]
    if phase.hops.max > limit:
        found.append(f"a route took {phase.hops.max} hops, over {limit}")
    if phase.ready < phase.nodes:
        found.append(f"{phase.nodes - phase.ready} nodes did not get in")
    return ", ".join(found) or None


def jobs_fault(report: Report) -> str | None:
    """What is wrong with the jobs, in words; None when all is well."""
    jobs, lookups = report.jobs, report.lookups
    wrong = lookups.wrong + lookups.lost + lookups.doubled
    for phase in report.phases:
        wrong -= phase.lookups.wrong + phase.lookups.lost + phase.lookups.doubled
    found = [
        f"{count} {what}"
        for count, what in (
            (wrong, "keys of jobs ended wrong, nowhere or twice"),
            (jobs.unplaced, "jobs found no place"),
            (jobs.ungrown, "trees never came to rest"),
            (jobs.unrepaired, "trees were not whole again"),
        )
        if count
    ]
    return ", ".join(found) or None


def partition_fault(report: Report) -> str | None:
    """What is wrong with how the halves came together, in words; None when all is well."""
    halves = report.partition
    if halves is None:
        return None
    if halves.one_ring_seconds is None:
        return "the halves never became one ring"
    if halves.one_ring_seconds > HEALED_WITHIN_S:
        return f"one ring after {halves.one_ring_seconds:g} s, over {HEALED_WITHIN_S}"
    return f"{halves.apart} trees never became whole" if halves.apart else None


def _partition(report: Report) -> dict[str, object] | None:
    halves = report.partition
    if halves is None:
        return None
    return {
        "seconds": halves.seconds,
        "one_ring_seconds": halves.one_ring_seconds,
        "trees_seconds": quantiles(halves.trees_seconds),
        "trees_apart": halves.apart,
    }


def _nodes(report: Report) -> set[str]:
    """All that have to do with jobs: who is in a tree, and who roots one."""
    members = set(report.jobs.trees[0]) if report.jobs.trees else set()
    return members | set(report.jobs.roots) | set(report.jobs.first)


def scene_of(report: Report) -> Scene:
    """What is drawn of a run: the ring and its first tree before any crash."""
    import numpy as np

    from lab.pictures.scene import Scene

    tree = report.jobs.trees[0]
    addresses = sorted(_nodes(report), key=node_id)
    place = {address: number for number, address in enumerate(addresses)}
    return Scene(
        places=np.array([node_id(address) / 2.0**ID_BITS for address in addresses]),
        parents=np.array([place[tree.get(address, address)] for address in addresses], np.int64),
        first=np.array([place[root] for root in report.jobs.first], np.int64),
        roots=np.array([place[root] for root in report.jobs.roots], np.int64),
    )


def _print(report: Report, limit: int, seed: int, seconds: float) -> None:
    for phase in report.phases:
        hops = f"hops mean {phase.hops.mean:.2f} max {phase.hops.max} (limit {limit})"
        print(
            f"{phase.name}: {phase.nodes} nodes, {phase.lookups.total} routes, {hops}, "
            f"settled after {phase.settled_seconds:g} s: {fault(phase, limit) or 'all right'}"
        )
    jobs = report.jobs
    if jobs.roots or jobs.unplaced:
        times = quantiles(jobs.recovery_seconds)
        tree = f"depth mean {jobs.shape.depth_mean:.2f} max {jobs.shape.depth_max}"
        whole = f", whole {times['p50']:g} s after the crash (p99 {times['p99']:g} s)" if times else ""
        print(
            f"jobs: {len(jobs.roots)} placed; {len(jobs.trees)} trees, {tree}, "
            f"fan-out max {jobs.shape.fanout_max}{whole}: {jobs_fault(report) or 'all right'}"
        )
    if report.partition is not None:
        halves, times = report.partition, quantiles(report.partition.trees_seconds)
        trees = f", its trees whole after {times['p50']:g} s (p99 {times['p99']:g} s)" if times else ""
        print(
            f"in halves for {halves.seconds:g} s: one ring {halves.one_ring_seconds} s after{trees}: "
            f"{partition_fault(report) or 'all right'}"
        )
    print(
        f"{report.messages} messages in {report.virtual_seconds:g} virtual seconds; an idle node sends "
        f"{report.maintenance.messages_per_s} messages and {report.maintenance.bytes_per_s:g} bytes a second"
        f"; seed {seed}, {seconds:.1f} s"
    )


# -- the static model ----------------------------------------------------------------------------------------


def _run_model(options: SimOptions, config: OverlayConfig) -> int:
    from lab.pictures.scene import Scene
    from lab.sim.model import measure

    asked = {
        "--crash": options.crash,
        "--churn": options.churn,
        "--partition": options.partition,
        "--regions": options.regions,
    }
    for name, value in asked.items():
        if value is not None:
            raise UserError(
                f"{name} needs the protocol: the static model is a ring at rest; leave out --model"
            )
    began = time.monotonic()
    keys = MODEL_KEYS if options.keys is None else options.keys
    jobs = MODEL_JOBS if options.jobs is None else options.jobs
    model = measure(options.nodes, keys, jobs, options.seed, config)
    if options.as_json:
        print(json.dumps({**model_facts(model), "leaf_set": config.leaf_set_size, "seed": options.seed}))
    else:
        _print_model(model, config, options.seed, time.monotonic() - began)
    scene = Scene(model.ring.ids / 2.0**64, model.parents, model.first, model.roots)
    title = f"{options.nodes:,} nodes, static model, seed {options.seed}"
    _show(scene if jobs else None, title, options)
    return 1 if model.lookups.wrong else 0


def model_facts(model: Model) -> dict[str, object]:
    """The figures as JSON.

    ``balance`` is the mean of 20 rings: by two choices that know all loads; ``balance_stale`` by two that
    know those of a heartbeat ago, with 100 jobs a second; ``balance_plain`` by one key. ``roots``: of one
    ring, how many nodes root 0, 1, 2 … of so many trees, by two choices.
    """
    import numpy as np

    from lab.pictures.scene import BOUNDS, loads

    return {
        "nodes": len(model.ring),
        "hops": _hops(model.hops),
        "histogram": model.hops.histogram,
        "lookups": {"total": model.lookups.total, "wrong": model.lookups.wrong},
        "balance": model.balance.chosen,
        "balance_stale": model.balance.stale,
        "balance_plain": model.balance.plain,
        "roots": {
            str(trees): np.bincount(loads(len(model.ring), model.roots[:trees])).tolist()
            for trees in BOUNDS
            if trees <= len(model.roots)
        },
        "tree": asdict(model.tree),
    }


def _print_model(model: Model, config: OverlayConfig, seed: int, seconds: float) -> None:
    hops, tree = model.hops, model.tree
    print(
        f"static model: {len(model.ring):,} nodes, leaf sets of {config.leaf_set_size}, perfect tables; "
        f"seed {seed}, {seconds:.1f} s"
    )
    wrong = f"{model.lookups.wrong} routes ended at the wrong node" if model.lookups.wrong else "all right"
    print(
        f"{model.lookups.total:,} routes: hops mean {hops.mean:.2f}, 99.9 % within {hops.p999}, "
        f"max {hops.max}: {wrong}"
    )
    print(
        f"trees of all nodes: depth mean {tree.depth_mean:.2f}, max {tree.depth_max}, "
        f"fan-out max {tree.fanout_max}"
    )
    for trees, share in model.balance.plain.items():
        print(
            f"{trees} trees, agents below the paper's bound, mean of 20 rings: {share:.2%} with one key, "
            f"{model.balance.chosen[trees]:.2%} with two, {model.balance.stale[trees]:.2%} with old loads"
        )


# -- both ----------------------------------------------------------------------------------------------------


def _hops(hops: Hops) -> dict[str, float]:
    return {"mean": hops.mean, "p999": hops.p999, "max": hops.max}


def _show(scene: Scene | None, title: str, options: SimOptions) -> None:
    """The pictures: in the file that was asked for, else in the terminal."""
    if scene is None:
        return
    if options.plot is not None:
        from lab.pictures.plots import draw_overlay

        draw_overlay(scene, title, options.plot)
    elif not options.as_json:
        from lab.pictures.text import overlay_lines

        print("\n".join(["", *overlay_lines(scene)]))
