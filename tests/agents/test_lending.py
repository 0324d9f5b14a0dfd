"""What an agent tells its stream tasks of what flows may hold in memory."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from agents.node.lending import Lending
from elf.fields import replace
from elf.job.commands import SetMemory
from elf.job.effects import Work
from elf.planning.budgets import LOOK_MS
from elf.planning.lent import Budget, Budgets
from elf.ql.plan import Plan
from elf.ql.promises import Chosen, Promise
from lab.chaos.engine import plan, spec_of

MB = 1_000_000
UID, HERE = "flow", {"flow": "access"}


def lending(of: Plan | None = None) -> Lending:
    """Of an agent with one flow, of which a job may hold less than it does."""
    spec = spec_of("top", "me", 1, of or plan(2))
    log: Any = SimpleNamespace(readers=lambda uid: [spec], flow=lambda uid: None)
    sender: Any = SimpleNamespace(
        spent=lambda: {UID: 0}, sent_bytes=lambda: {UID: 0}, held=lambda: {UID: (20 * MB, 0, 0, 0)}
    )
    context: Any = SimpleNamespace(me=SimpleNamespace(address="here:1"), log=log)
    return Lending(context, sender, Budgets(job=Budget(memory_bytes=10 * MB)))


def test_a_flow_that_is_installed_again_hears_again_what_it_may_hold() -> None:
    lent, told = lending(), Work("access", SetMemory(((UID, 10 * MB),)))
    assert told in lent.look(HERE, {}, 0)
    assert told not in lent.look(HERE, {}, LOOK_MS), "it knows"
    lent.look({}, {}, LOOK_MS + 1_000)
    lent.look(HERE, {}, LOOK_MS + 2_000)
    assert told in lent.look(HERE, {}, 2 * LOOK_MS)


@pytest.mark.parametrize(
    ("chosen", "within_ms"),
    [
        (None, 1),
        (Chosen(reached_ms=90, keeps=True), 1),
        (Chosen(reached_ms=90, keeps=False), 90),
    ],
)
def test_a_promise_that_nobody_can_keep_stands_for_the_best_that_can(
    chosen: Chosen | None, within_ms: int
) -> None:
    """Otherwise whoever says WITHIN 1 MILLISECOND BEST EFFORT has rows of others' promises left out."""
    promised = replace(plan(2), promise=Promise(1_000, 99.0, best_effort=True), chosen=chosen)
    lent = lending(promised)
    assert lent._agreed(UID).promise == (within_ms, "the promise of job me/top")
