"""``elf sim chaos``: fleets of real nodes on virtual time, a seed a history, with an oracle over each."""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field

from elf.errors import UserError

KINDS = ("wrong", "lost", "doubled", "broken")
DONE = ("windows", "records", "rotations", "stops", "gaps", "postponed")
SHOWN = 3
"""Findings of a seed that are printed."""
PROGRESS_S = 5.0
"""How far it is is said on standard error at most so often."""


@dataclass(frozen=True)
class ChaosOptions:
    """The command line. ``only``: numbers of the faults of the one seed that befall it."""

    seeds: int
    first_seed: int
    nodes: int
    only: tuple[int, ...] | None
    shrink: bool
    workers: int | None
    as_json: bool
    always: tuple[str, ...] = ()
    """Features that every seed has (``lab.chaos.features.FEATURES``)."""


@dataclass
class Run:
    """What came of one seed, as it comes back from another process."""

    seed: int
    done: dict[str, int]
    fingerprint: str
    counts: dict[str, int]
    findings: list[str]
    left: tuple[int, ...] = ()
    schedule: list[str] = field(default_factory=list)


def numbers_of(only: str | None) -> tuple[int, ...] | None:
    """``--only``. Raises ``UserError``."""
    if only is None:
        return None
    try:
        found = sorted({int(word) for word in only.split(",")})
    except ValueError:
        raise UserError(f"--only {only}: give numbers of faults, such as --only 2,5") from None
    return tuple(n for n in found if n)


def features_of(always: str | None) -> tuple[str, ...]:
    """``--always``. Raises ``UserError``."""
    from lab.chaos.features import FEATURES

    found = tuple(sorted({word.strip() for word in always.split(",")})) if always else ()
    if wrong := [name for name in found if name not in FEATURES]:
        raise UserError(f"--always {wrong[0]}: there are {', '.join(FEATURES)}")
    return found


def run_chaos(options: ChaosOptions) -> int:
    """Run the seeds and report; 1 when something was wrong, lost, doubled or broken. Raises ``UserError``."""
    if options.only is not None and options.seeds != 1:
        raise UserError("--only chooses faults of one seed: give --seeds 1 with it")
    told = began = time.monotonic()
    totals, all_done = dict.fromkeys(KINDS, 0), dict.fromkeys(DONE, 0)
    failing: list[int] = []
    done = 0
    said = hashlib.blake2b(digest_size=8)
    for run in _runs(options):
        done += 1
        for what in DONE:
            all_done[what] += run.done[what]
        said.update(run.fingerprint.encode())
        for kind in KINDS:
            totals[kind] += run.counts[kind]
        if run.findings:
            failing.append(run.seed)
            _print_failure(run, options)
        if time.monotonic() - told >= PROGRESS_S and done < options.seeds:
            told, said_so_far = time.monotonic(), f"{all_done['windows']} windows, {len(failing)} failing"
            print(f"{done} of {options.seeds} seeds, {said_so_far}", file=sys.stderr, flush=True)
    facts = {
        "seeds": done,
        "first_seed": options.first_seed,
        "nodes": options.nodes,
        **all_done,
        **totals,
        "failing_seeds": failing,
        "fingerprint": said.hexdigest(),
        "seconds": round(time.monotonic() - began, 1),
    }
    if options.as_json:
        print(json.dumps(facts))
    else:
        found = ", ".join(f"{count} {kind}" for kind, count in totals.items())
        print(
            f"{done} seeds of {options.nodes} nodes: {all_done['windows']} windows committed, "
            f"{all_done['records']} records, {all_done['rotations']} rotations, {all_done['stops']} stops, "
            f"{all_done['gaps']} gaps; "
            f"{found}; {facts['seconds']} s, fingerprint {facts['fingerprint']}"
        )
    return 1 if failing else 0


def _runs(options: ChaosOptions) -> Iterator[Run]:
    """In the order of the seeds, on as many processes as there are cores."""
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    workers = min(options.workers or os.cpu_count() or 1, options.seeds)
    if workers == 1:
        yield from (run_seed(seed, options) for seed in seeds)
        return
    fresh = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, mp_context=fresh) as pool:
        yield from pool.map(run_seed, seeds, [options] * len(seeds))


def run_seed(seed: int, options: ChaosOptions) -> Run:
    """One seed, and what is left of its schedule if it fails."""
    from lab.chaos.drawing import drawn
    from lab.chaos.shrink import shrunk
    from lab.chaos.story import play

    whole = drawn(seed, options.nodes, always=options.always)
    numbers = tuple(range(1, len(whole.faults) + 1)) if options.only is None else options.only
    if wrong := [n for n in numbers if not 0 < n <= len(whole.faults)]:
        known = f"seed {seed} of {options.nodes} nodes has faults 1 to {len(whole.faults)}"
        raise UserError(f"--only {wrong[0]}: {known}")
    verdict = first = play(whole.only(numbers))
    if verdict.findings and options.shrink and options.only is None:
        numbers, verdict = shrunk(whole, verdict)
    faults = [(n, whole.faults[n - 1]) for n in numbers]
    late = f", {whole.joiners} of them later" if whole.joiners else ""
    named = [
        kind
        + ", with mirrors" * (n in whole.mirrored)
        + ", by an aggregate of one's own" * (n in whole.owned)
        for n, kind in enumerate(whole.jobs)
    ]
    placed = f"({' '.join(whole.streams)})"
    placed += f" of regions {' '.join(map(str, whole.regions))}" if whole.regions else ""
    jobs = ", ".join(f"job{n} ({kind})" for n, kind in enumerate(named[: whole.begun]))
    return Run(
        seed,
        {what: getattr(first, what) for what in DONE},
        first.fingerprint,
        {kind: first.count(kind) for kind in KINDS},
        [f"{one.kind} at {one.at_ms / 1000:.3f} s: {one.text}" for one in verdict.findings],
        numbers,
        [f"{whole.nodes} agents{late} {placed}; groups of {whole.group_members}; {jobs}"]
        + [
            f"    log {n} of a{who}: {style}"
            for who, logs in enumerate(whole.files)
            for n, style in enumerate(logs)
        ]
        + [f"{n:3} {fault}" for n, fault in faults],
    )


def _print_failure(run: Run, options: ChaosOptions) -> None:
    print(f"seed {run.seed} fails:")
    for text in run.findings[:SHOWN]:
        print(f"  {text}")
    if len(run.findings) > SHOWN:
        print(f"  … and {len(run.findings) - SHOWN} more")
    print("  with this schedule:")
    for line in run.schedule:
        print(f"    {line}")
    only = ",".join(map(str, run.left)) or "0"
    command = f"elf sim chaos --seeds 1 --first-seed {run.seed} --nodes {options.nodes}"
    command += f" --always {','.join(options.always)}" if options.always else ""
    print(f"  again: {command} --only {only}", flush=True)
