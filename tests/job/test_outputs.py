"""Outputs of a job, on virtual time: all that is committed comes out, whoever is the master; what comes twice
replaces itself; where they are is in the job's group."""

from __future__ import annotations

from elf.batch import decode
from elf.job.effects import PruneWindows
from elf.job.spec import JobSpec
from lab.chaos.world import World
from tests.support.histories import begun, settled
from tests.support.jobgroups import leader, moved, staffed
from tests.support.outside import came, said

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
        assert rank[2] == revision
        assert {row["k0"]: row["s0"] for row in rows} == counts


def test_all_windows_come_out_whoever_is_the_master() -> None:
    world = World(91, 3)
    spec, until = begun(world, 30_000, rate_ms=1_000)
    staffed(world, spec, 3)
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
    world.run(max(until - world.now, 0) + 15_000)
    out_is_in(world, spec, until, 12)
    numbers = came(world).numbers
    assert set(numbers) == set(range(1, max(numbers) + 1))  # none is left out
    assert numbers != sorted(set(numbers))  # some came again, behind later ones
    positions = [agent.store.outputs(spec.uid) for agent in world.agents]
    assert all(one == positions[0] for one in positions)
    row = shown(world)
    assert (row["state"], row["waiting"], row["lost"]) == ("up to date", 0, 0)


def test_a_dead_output_holds_up_nothing_and_its_backlog_is_seen() -> None:
    world = World(92, 3)
    spec, until = begun(world, 30_000, rate_ms=1_000)
    staffed(world, spec, 3)
    world.run(5_000)
    assert said(world, 1, CREATE).text == "output out created, of what comes from now on"
    world.run(2_000)
    world.outside.is_down = True
    made = len(leader(world, spec).store.windows_after(spec.uid, 0))
    world.run(12_000)
    assert len(leader(world, spec).store.windows_after(spec.uid, 0)) >= made + 5
    row = shown(world)
    assert row["state"] == "stopped"
    assert row["reason"] == "the outside is down"
    assert int(str(row["waiting"])) >= 4
    world.outside.is_down = False
    world.run(max(until - world.now, 0) + 20_000)
    assert shown(world, 2)["state"] == "up to date"
    numbers = came(world).numbers
    assert numbers == sorted(set(numbers)) == list(range(numbers[0], numbers[-1] + 1))
    assert numbers[0] > 1  # of what came before it nothing was asked for


def test_what_is_no_longer_kept_is_named_as_a_gap() -> None:
    world = World(93, 3)
    spec, _ = begun(world, 30_000, rate_ms=1_000)
    staffed(world, spec, 3)
    world.outside.is_down = True
    said(world, 1, f"{CREATE} FROM BEGINNING")
    world.run(15_000)
    lead = leader(world, spec)
    rows = lead.store.windows_after(spec.uid, 0)
    lead.perform(lead.node.settle([PruneWindows(spec.uid, rows[3].last_end)], world.now))
    world.run(1_000)
    world.outside.is_down = False
    world.run(20_000)
    row = shown(world)
    lost = rows[4].seq - 1
    assert row["lost"] == lost
    assert row["reason"] == f"results 1 to {lost} were no longer kept"
    assert min(came(world).numbers) == lost + 1


def test_outputs_end_with_a_word_and_with_their_job() -> None:
    world = World(94, 3)
    spec, _ = begun(world, 30_000, rate_ms=1_000)
    staffed(world, spec, 3)
    said(world, 1, CREATE)
    world.run(6_000)
    first = came(world).numbers
    assert first
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
