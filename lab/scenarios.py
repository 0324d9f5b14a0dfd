"""Scenarios of a paper by name: each is run from a seed, told beside its target, and reached or not. Of them
``elf sim graph``, ``moving``, ``latency`` and ``wan`` are made."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from elf.errors import UserError

Facts = dict[str, Any]


@dataclass(frozen=True)
class Found:
    """``measured`` beside its ``target`` in words."""

    measured: Facts
    target: str
    reached: bool

    def facts(self) -> Facts:
        return {"measured": self.measured, "target": self.target, "reached": self.reached}


Scenarios = Mapping[str, Callable[[int], Found]]
"""From the seed."""


@dataclass(frozen=True)
class ScenarioOptions:
    """The command line. ``scenarios``: none are all."""

    scenarios: tuple[str, ...]
    seed: int
    as_json: bool


def run_scenarios(known: Scenarios, options: ScenarioOptions) -> int:
    """Run and report; 1 when a target is not reached. Raises ``UserError``."""
    names = options.scenarios or tuple(known)
    for name in names:
        if name not in known:
            raise UserError(f"there is no scenario {name}: {', '.join(known)}")
    found: dict[str, Found] = {}
    for name in names:
        began = time.monotonic()
        one = found[name] = known[name](options.seed)
        how = "reached" if one.reached else "NOT reached"
        print(f"{name} ({time.monotonic() - began:.1f} s): {how}: {one.target}")
        for what, figures in one.measured.items():
            if not isinstance(figures, list):  # which are for programs
                print(f"  {what}: {said(figures)}")
        sys.stdout.flush()
    missed = [name for name, one in found.items() if not one.reached]
    if missed:
        print(f"below the target: {', '.join(missed)}", file=sys.stderr)
    if options.as_json:
        facts = {name: one.facts() for name, one in found.items()}
        print(json.dumps({**facts, "seed": options.seed, "ok": not missed}))
    return 1 if missed else 0


def said(figures: object) -> str:
    """For people."""
    if isinstance(figures, Mapping):
        return ", ".join(f"{name} {said(value)}" for name, value in figures.items())
    return f"{figures:g}" if isinstance(figures, float) else str(figures)
