"""``elf sim overlay --churn``: nodes live for a random time and are replaced, while keys are looked up."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Final

from elf.cli.choices import Lifetimes
from elf.cli.sim import config_of
from elf.errors import UserError
from overlay.churn import ChurnReport, churn

RIGHT_SHARE: Final = 0.999
"""At least that share of the lookups must end at the right node, and none at two."""


@dataclass(frozen=True)
class ChurnOptions:
    """The command line. ``mean_s``: mean lifetime; ``loss``: share of messages."""

    nodes: int
    leaf_set: int | None
    mean_s: float
    kind: Lifetimes
    seconds: int
    lookups_per_s: int
    loss: float
    seed: int
    as_json: bool


def simulate_churn(options: ChurnOptions, unwanted: Mapping[str, object]) -> int:
    """Run and report; 1 when too many lookups ended wrong, or any of them twice. ``unwanted``: options that
    mean nothing here. Raises ``UserError``."""
    said = [name for name, value in unwanted.items() if value not in (None, False)]
    if said:
        raise UserError(f"--churn looks keys up at a rate, and nothing else: leave out {', '.join(said)}")
    if options.nodes < 2:
        raise UserError("--churn needs --nodes of at least 2")
    began = time.monotonic()
    report = churn(
        options.nodes,
        random.Random(options.seed),
        kind=options.kind.value,
        mean_lifetime_s=options.mean_s,
        seconds=options.seconds,
        lookups_per_s=options.lookups_per_s,
        loss=options.loss,
        config=config_of(options.leaf_set),
    )
    right = report.right_share >= RIGHT_SHARE and not report.doubled and not report.overlaps
    if options.as_json:
        facts = asdict(report)
        lookups = {name: facts.pop(name) for name in ("total", "wrong", "lost", "doubled")}
        facts |= {"lookups": lookups, "right_share": report.right_share, "seed": options.seed, "ok": right}
        print(json.dumps(facts))
    else:
        _print(report, options, right, time.monotonic() - began)
    return 0 if right else 1


def _print(report: ChurnReport, options: ChurnOptions, right: bool, seconds: float) -> None:
    print(
        f"{report.nodes} nodes for {report.seconds:g} virtual seconds, {options.kind} lifetimes of "
        f"{options.mean_s:g} s, {options.loss:.1%} of messages lost: {report.deaths} died, "
        f"{report.joins} came"
    )
    print(
        f"{report.total} lookups, {report.right_share:.3%} at the right node (at least {RIGHT_SHARE:.1%}), "
        f"{report.wrong} at another, {report.lost} nowhere, {report.doubled} at two; "
        f"half within {report.delay_ms_p50} ms, 99.9 % within {report.delay_ms_p999} ms"
    )
    print(
        f"moments at which two nodes claimed one key: {report.overlaps} of {report.looks}; "
        f"{report.messages_per_s} messages a node and second; fingerprint {report.fingerprint}, "
        f"seed {options.seed}, {seconds:.1f} s: {'all right' if right else 'not good enough'}"
    )
