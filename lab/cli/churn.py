"""The churn of ``elf sim overlay --churn``: nodes live for a random time and are replaced, while keys are
looked up."""

from __future__ import annotations

import random
from dataclasses import asdict, dataclass
from typing import Final

from elf.errors import UserError
from lab.cli.simulations import Lifetimes
from lab.overlay.churn import ChurnReport, churn
from overlay.config import OverlayConfig

RIGHT_SHARE: Final = 0.999
"""At least that share of the lookups must end at the right node, and none at two."""


@dataclass(frozen=True)
class ChurnOptions:
    """The command line. ``mean_s``: mean lifetime; ``loss``: share of messages."""

    mean_s: float
    kind: Lifetimes
    seconds: int
    lookups_per_s: int
    loss: float


def churn_options(
    mean_s: float | None,
    kind: Lifetimes | None,
    seconds: int | None,
    lookups: int | None,
    loss: float | None,
) -> ChurnOptions | None:
    """What was asked for; None without ``--churn``, where the others mean nothing. Raises ``UserError``."""
    if mean_s is None:
        if any(value is not None for value in (kind, seconds, lookups, loss)):
            raise UserError("--lifetimes, --seconds, --lookups, --loss: they are for --churn; give it too")
        return None
    return ChurnOptions(
        mean_s,
        Lifetimes.WEIBULL if kind is None else kind,
        300 if seconds is None else seconds,
        100 if lookups is None else lookups,
        0.01 if loss is None else loss,
    )


def run_churn(nodes: int, seed: int, options: ChurnOptions, config: OverlayConfig) -> ChurnReport:
    """In a world of its own, of so many nodes."""
    return churn(
        nodes,
        random.Random(seed),
        kind=options.kind.value,
        mean_lifetime_s=options.mean_s,
        seconds=options.seconds,
        lookups_per_s=options.lookups_per_s,
        loss=options.loss,
        config=config,
    )


def is_right(report: ChurnReport) -> bool:
    """Whether enough lookups ended at the right node, and none at two."""
    return report.right_share >= RIGHT_SHARE and not report.doubled and not report.overlaps


def churn_facts(report: ChurnReport) -> dict[str, object]:
    """The figures as JSON."""
    facts = asdict(report)
    lookups = {name: facts.pop(name) for name in ("total", "wrong", "lost", "doubled")}
    return {**facts, "lookups": lookups, "right_share": report.right_share, "ok": is_right(report)}


def print_churn(report: ChurnReport, options: ChurnOptions) -> None:
    """For people."""
    print(
        f"churn: {report.nodes} nodes for {report.seconds:g} virtual seconds, {options.kind} lifetimes of "
        f"{options.mean_s:g} s, {options.loss:.1%} of messages lost: {report.deaths} died, "
        f"{report.joins} came; {report.messages_per_s} messages a node and second"
    )
    verdict = "all right" if is_right(report) else "not good enough"
    print(
        f"{report.total} lookups, {report.right_share:.3%} at the right node (at least {RIGHT_SHARE:.1%}), "
        f"{report.wrong} at another, {report.lost} nowhere, {report.doubled} at two, "
        f"{report.again} again after a death; half within {report.delay_ms_p50} ms, "
        f"99.9 % within {report.delay_ms_p999} ms; two claimed one key at {report.overlaps} of "
        f"{report.looks} moments: {verdict}"
    )
