"""What an agent tells its stream tasks of what flows may hold in memory."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from agents.node.lending import Lending
from elf.fields import replace
from elf.job.catalog.admission import grow
from elf.job.catalog.log import CatalogLog
from elf.job.commands import SetMemory
from elf.job.effects import Work
from elf.job.group.reconfiguration import proposed
from elf.job.messages.log import AddJob
from elf.planning.budgets import LOOK_MS
from elf.planning.lent import Budget, Budgets
from elf.ql.plan import Plan
from elf.ql.promises import Chosen, Promise
from lab.chaos.engine import plan, spec_of
from tests.support.rests import measured

MB = 1_000_000


def lending(of: Plan, *rests_ms: int) -> tuple[Lending, str]:
    """Of an agent with one flow, of which a job may hold less than it does; and the flow's uid. ``rests_ms``:
    what came after its maps."""
    spec = spec_of("top", "me", 1, of, master="there:1")
    spec = spec.with_flows(proposed(spec, b"k" * 16, "there:1"))
    log, uid = CatalogLog(), spec.flows[0].uid
    assert grow(log, AddJob(spec=spec))
    sender: Any = SimpleNamespace(
        spent=lambda: {uid: 0},
        sent_bytes=lambda: {uid: 0},
        held=lambda: {uid: (20 * MB, 0, 0, 0)},
        rested=0,
        rest=lambda uid: measured(*rests_ms),
    )
    context: Any = SimpleNamespace(me=SimpleNamespace(address="here:1"), log=log)
    return Lending(context, sender, Budgets(job=Budget(memory_bytes=10 * MB))), uid


def test_a_flow_that_is_installed_again_hears_again_what_it_may_hold() -> None:
    lent, uid = lending(plan(2))
    here, told = {uid: "access"}, Work("access", SetMemory(((uid, 10 * MB),)))
    assert told in lent.look(here, {}, 0)
    assert told not in lent.look(here, {}, LOOK_MS), "it knows"
    lent.look({}, {}, LOOK_MS + 1_000)
    lent.look(here, {}, LOOK_MS + 2_000)
    assert told in lent.look(here, {}, 2 * LOOK_MS)


@pytest.mark.parametrize(
    ("chosen", "rests_ms", "within_ms"),
    [
        (None, (), 50),
        (Chosen(reached_ms=90, keeps=True), (), 50),
        (Chosen(reached_ms=90, keeps=False), (), 90),
        (Chosen(reached_ms=900, keeps=False), (30, 500, 20), 50),
        (None, (56, 70, 90), 80),
    ],
    ids=["nobody knows", "it can be kept", "as the model says", "measured: it can", "measured: it can not"],
)
def test_a_promise_that_nobody_can_keep_stands_for_the_best_that_can(
    chosen: Chosen | None, rests_ms: tuple[int, ...], within_ms: int
) -> None:
    """Otherwise whoever says WITHIN 1 MILLISECOND BEST EFFORT has rows of others' promises left out."""
    promised = replace(plan(2), promise=Promise(50_000, 99.0, best_effort=True), chosen=chosen)
    lent, uid = lending(promised, *rests_ms)
    found, whose = lent._agreed(uid).promise or (0, "")
    assert found == pytest.approx(within_ms)
    assert whose == "the promise of job me/top"
