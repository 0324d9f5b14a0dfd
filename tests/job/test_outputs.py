"""Outputs of a job, on virtual time: all that is committed comes out, whoever is the master; what comes twice
replaces itself; where they are is in the job's group."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from agents.outputs.delivering import Deliveries
from agents.outputs.parcels import Parcel
from agents.ports import Results
from elf.batch import decode
from elf.errors import UserError
from elf.job.effects import Deliver, PruneWindows
from elf.job.events import Delivered
from elf.job.output import OutputSpec
from elf.job.spec import JobSpec
from lab.chaos.engine import plan
from lab.chaos.world import World
from tests.support.histories import begun, settled
from tests.support.jobgroups import leader, moved, staffed
from tests.support.outside import came, said
from tests.support.versions import answered, reconfigure

CREATE = "CREATE OUTPUT out FROM JOB job TO 'https://outside.example/in'"


def shown(world: World, through: int = 0) -> dict[str, object]:
    """The row of the one output."""
    rows = decode(said(world, through, "SHOW OUTPUTS").payload).to_pylist()
    (row,) = rows
    return dict(row)


def out_is_in(world: World, spec: JobSpec, until_ms: int, least: int) -> None:
    """Outside is what is committed, in its last revision."""
    windows = settled(world, spec, until_ms)
    assert len(windows) >= least
    outside = {int(start * 1e6): entry for (start, _), entry in came(world).windows.items()}
    for start, (revision, counts, _) in windows.items():
        rank, rows = outside[start]
        assert rank[-1] == revision
        assert {row["k0"]: row["s0"] for row in rows} == counts


def test_all_windows_come_out_whoever_is_the_master(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(91, 3, checking=False)
    spec, until = begun(world, 20_000, rate_ms=1_000)
    staffed(world, spec, 3)
    take, rng = world.outside.take, random.Random(91)

    def taken(output: OutputSpec, parcels: Sequence[Parcel]) -> None:
        """And now and then the answer gets lost."""
        take(output, parcels)
        if world.now < until and rng.random() < 0.3:
            raise UserError("no answer")

    monkeypatch.setattr(world.outside, "take", taken)
    said(world, 2, f"{CREATE} FROM BEGINNING")
    world.run(3_000)
    for _ in range(2):
        lead = world.leader(spec)
        world.crash_share = 0.02
        world.run(1_500)
        world.crash_share = 0.0
        if lead.up:
            lead.crash()
        moved(world, spec, lead)
        world.restart(lead)
        world.run(2_000)
    world.run(max(until - world.now, 0) + 6_000)
    out_is_in(world, spec, until, 9)
    numbers = came(world).numbers
    assert set(numbers) == set(range(1, max(numbers) + 1))  # none is left out
    assert len(numbers) > len(set(numbers)), "some came again"
    world.run_until(lambda: len({str(agent.store.outputs(spec.uid)) for agent in world.agents}) == 1)
    row = shown(world)
    assert (row["state"], row["waiting"], row["lost"]) == ("up to date", 0, 0)


def test_a_dead_output_holds_up_nothing_and_what_falls_out_is_named_as_a_gap() -> None:
    world = World(92, 3, checking=False)
    spec, _ = begun(world, 60_000, rate_ms=1_000)
    staffed(world, spec, 3)
    world.run(3_000)
    assert said(world, 1, CREATE).text == "output out created, of what comes from now on"
    world.run(2_000)
    world.run_until(lambda: bool(world.outside.came and came(world).numbers))
    world.outside.is_down = True
    lead = leader(world, spec)
    made = len(lead.store.windows_after(spec.uid, 0))
    world.run(9_000)
    rows = lead.store.windows_after(spec.uid, 0)
    assert len(rows) >= made + 4
    row = shown(world)
    assert (row["state"], row["reason"]) == ("stopped", "the outside is down")
    assert int(str(row["waiting"])) >= 3
    kept = rows[-1]
    lead.perform(lead.node.settle([PruneWindows(spec.uid, kept.first_start)], world.now))
    world.run(1_000)
    world.outside.is_down = False
    world.run(9_000)
    numbers = came(world).numbers
    assert numbers == sorted(set(numbers))
    lost = set(range(numbers[0], numbers[-1] + 1)) - set(numbers)
    row = shown(world, 2)
    assert (row["state"], row["lost"]) == ("up to date", len(lost))
    assert len(lost) >= 2
    assert row["reason"] == f"results {min(lost)} to {max(lost)} were no longer kept"
    assert numbers[0] > 1  # of what came before it nothing was asked for


def test_outputs_end_with_a_word_and_with_their_job() -> None:
    world = World(94, 3, checking=False)
    spec, _ = begun(world, 20_000, rate_ms=1_000)
    staffed(world, spec, 3)
    said(world, 1, CREATE)
    world.run(6_000)
    first = came(world).numbers
    assert first
    facts = {row["fact"]: row["value"] for row in decode(said(world, 0, "DESCRIBE job").payload).to_pylist()}
    assert facts["outputs"] == "out to https://outside.example/in"
    assert said(world, 2, "DROP OUTPUT out").text == "output out dropped"
    world.run(500)
    count = len(first)
    world.run(5_000)
    assert len(first) == count
    assert all(agent.store.outputs(spec.uid) == [] for agent in world.agents)
    said(world, 0, CREATE)  # of that name, and another one
    world.run(3_000)
    assert len(world.outside.came) == 2
    assert said(world, 0, "DROP JOB job").text == "job job dropped; its outputs have ended with it: out"
    world.run(3_000)
    assert all(agent.node.log.outputs() == () for agent in world.agents)
    assert said(world, 0, "SHOW OUTPUTS").payload == b""


def test_what_is_delivered_may_be_of_a_version_that_only_the_master_still_names(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The log forgets a version that reads nothing; an alert then could not know what a window without rows
    says (``elf sim chaos``, seed 4000485)."""
    world, seen, deliver = World(97, 3), list[set[int]](), Deliveries.deliver

    def watched(self: Deliveries, effect: Deliver, results: Results) -> Delivered:
        seen.append({one.version for one in effect.versions})
        return deliver(self, effect, results)

    monkeypatch.setattr(Deliveries, "deliver", watched)
    spec, _ = begun(world, 30_000, rate_ms=500)
    staffed(world, spec, 3)
    world.run(5_000)
    reconfigure(world, spec, "alter", plan(2, least=2))
    assert not answered(world)
    logs = [agent.node.log for agent in world.agents]
    world.run_until(
        lambda: all({one.version for one in log.versions(spec.uid)} == {2} for log in logs), 20_000
    )
    said(world, 1, f"{CREATE} FROM BEGINNING")
    world.run(3_000)
    assert seen
    assert all(versions == {1, 2} for versions in seen)
