"""A later stage that fails at the root of a key range: windows and the job say so, and the job goes on."""

from __future__ import annotations

import pyarrow as pa
import pytest

from elf.errors import UserError
from elf.ql.plan import Fragment
from lab.chaos import ports
from lab.chaos.engine import MOST, plan, py_stage, ranged
from lab.chaos.world import World
from tests.support.versions import said, state


def test_a_stage_that_fails_is_told_at_the_job_which_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(62, 5, checking=False)
    failing = [True]

    def stage(fragment: Fragment, groups: pa.Table) -> pa.Table:
        if failing[0]:
            raise UserError("too large")
        return py_stage(fragment, groups)

    monkeypatch.setattr(ports, "py_stage", stage)
    world.start_all()
    roots = tuple(agent.address for agent in world.agents[-2:])
    spec = world.create(1, ranged(plan(2), MOST, 3), "job", roots)
    for agent in world.agents:
        world.write(agent, world.now + 20_000, rate_ms=300)
    world.run_until(lambda: bool(said(world, spec)), 20_000)
    group = world.leader(spec).node.job_groups.get(spec.uid)
    assert group is not None
    why = group.facts().failure
    assert why.startswith("too large of the pane from ")
    assert ", key range " in why
    assert ", on agent " in why
    failing[0] = False
    before = len(said(world, spec))
    world.run(10_000)
    assert state(world, spec, 1) == "committed"
    failed = [one[3]["function_failed"] for _, one in sorted(said(world, spec).items())]
    assert all(failed[:before])
    assert failed[before + 1 :] == [False] * (len(failed) - before - 1)
    assert len(failed) > before + 2
