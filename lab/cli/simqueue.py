"""``elf sim queue``: the experiments of Natjam and Natjam-R on virtual time."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from elf.errors import UserError
from lab.queue.scenarios import SCENARIOS, step_by_step

STEPS: Final = "fig6.17"
"""Shown when it is named: a story, no figures."""


@dataclass(frozen=True)
class QueueOptions:
    """The command line."""

    scenarios: tuple[str, ...]
    seed: int
    as_json: bool


def simulate_queue(options: QueueOptions) -> int:
    """Run and report; 1 when something is not as the paper says. Raises ``UserError``."""
    names = options.scenarios or tuple(SCENARIOS)
    for name in names:
        if name != STEPS and name not in SCENARIOS:
            raise UserError(f"there is no scenario {name}: {', '.join([*SCENARIOS, STEPS])}")
    found: dict[str, object] = {}
    for name in names:
        began = time.monotonic()
        if name == STEPS:
            story = step_by_step(options.seed)
            found[name] = story
            print(f"{name}:", *story, sep="\n  ")
            continue
        result = SCENARIOS[name](options.seed)
        found[name] = result
        print(f"{name} ({time.monotonic() - began:.1f} s):")
        for what, figures in result.items():
            print(f"  {what}: {_said(figures)}")
        sys.stdout.flush()
    wrong = [line for name, result in found.items() for line in faults(name, result)]
    for line in wrong:
        print(f"not as it should be: {line}", file=sys.stderr)
    if options.as_json:
        print(json.dumps({**found, "seed": options.seed, "ok": not wrong}))
    return 1 if wrong else 0


def _said(figures: object) -> str:
    if isinstance(figures, Mapping):
        return ", ".join(f"{name} {_said(value)}" for name, value in figures.items())
    if isinstance(figures, Sequence) and not isinstance(figures, str):
        return " / ".join(map(str, figures))
    return str(figures)


def faults(name: str, result: object) -> list[str]:
    """What of a scenario's figures is not as the paper says, or below the targets, in words."""
    judged = _JUDGES.get(name)
    return [] if judged is None else [f"{name}: {what}" for what, right in judged(result) if not right]


def _table_6_4(found: dict[str, dict[str, float]]) -> list[tuple[str, bool]]:
    return [
        (f"{job} alone is more than 6 % off", abs(one["seconds"] / one["paper"] - 1) <= 0.06)
        for job, one in found.items()
    ]


def _fig_6_19(found: dict[str, dict[str, float]]) -> list[tuple[str, bool]]:
    natjam, kill = found["natjam"], found["kill"]
    hard, soft = found["hard_cap"], found["soft_cap"]
    return [
        ("production over 1.07 by Natjam", natjam["production"] <= 1.07),
        ("research over 1.02 by Natjam", natjam["research"] <= 1.02),
        ("research by kill is not between", natjam["research"] < kill["research"] < hard["research"]),
        ("production by soft cap is not the slowest", soft["production"] > 1.5),
    ]


def _table_6_5(found: dict[str, dict[str, float]]) -> list[tuple[str, bool]]:
    judged = []
    for size in ("s", "l"):
        srt, *others = (found[f"{name}, production-{size}"]["research"] for name in ("srt", "lrt", "random"))
        judged.append((f"SRT is not the best for production-{size}", srt < min(others)))
    return judged


def _table_6_6(found: dict[str, list[float]]) -> list[tuple[str, bool]]:
    judged = []
    for sizes in ("M+M", "L+S"):
        pr, mr, lr = (found[f"{policy}, {sizes}"] for policy in ("pr", "mr", "lr"))
        near = all(abs(one / other - 1) <= 0.05 for one, other in zip(pr, mr, strict=True))
        judged += [
            (f"PR and MR are not within 5 % for {sizes}", near),
            (f"LR is not the worst for {sizes}", max(lr) > max(*pr, *mr)),
        ]
    return judged


def _fig_6_20(found: dict[str, dict[str, list[int]]]) -> list[tuple[str, bool]]:
    return [
        ("MDF misses a deadline", set(found["mdf"]["met"]) == {3}),
        ("MLF meets a deadline", set(found["mlf"]["met"]) == {0}),
    ]


def _fig_6_21(found: dict[str, dict[str, float]]) -> list[tuple[str, bool]]:
    return [
        ("ε 0.8 misses a deadline", min(found["0.8"].values()) >= 0),
        ("ε 0.2 misses the shorter deadline", found["0.2"]["job-2"] >= 0),
    ]


def _fig_6_22(found: dict[str, float]) -> list[tuple[str, bool]]:
    return [("fewer than 69 % of the jobs are better", found["better"] >= 0.69)]


def _srt(found: dict[str, dict[str, int]]) -> list[tuple[str, bool]]:
    return [("another choice than SRT's is better", found["srt"]["worse_than_best"] == 0)]


_JUDGES: Final[Mapping[str, Callable[[Any], list[tuple[str, bool]]]]] = {
    "table6.4": _table_6_4,
    "fig6.19": _fig_6_19,
    "table6.5": _table_6_5,
    "table6.6": _table_6_6,
    "fig6.20": _fig_6_20,
    "fig6.21": _fig_6_21,
    "fig6.22": _fig_6_22,
    "srt": _srt,
}
