"""What changes by itself, of all that the planners propose (protocol 5.17)."""

from __future__ import annotations

import pytest

from agents.node.balancing import Loads
from agents.node.deciding import Deciding, Proposed
from elf.fields import replace
from elf.job.catalog.admission import grow
from elf.job.catalog.log import CatalogLog
from elf.job.messages.log import (
    AgentLoad,
    AssignJobGroup,
    DecidePause,
    DecideTrees,
    GroupLoad,
    JobGroupAssigned,
)
from elf.job.spec import JobSpec
from elf.planning.pacing import Pace
from lab.chaos.world import World
from tests.support.histories import begun
from tests.support.jobgroups import leader

START_MS = 10_000_000
PACE = Pace()


def proposing(monkeypatch: pytest.MonkeyPatch, spec: JobSpec, lead: str) -> dict[str, Proposed]:
    """Three planners, each of which wants something of a job."""
    pause = {"before_ms": 50, "pause_ms": 20, "reached_ms": 9}
    wants: dict[str, Proposed] = {
        "scaling": DecideTrees(uid=spec.uid, before=1, trees=2, at_ms=START_MS, why="w"),
        "promises": DecidePause(uid=spec.uid, at_ms=START_MS, why="w", **pause),
        "moves": AssignJobGroup(uid=spec.uid, origin=lead, target="other:1", at_ms=START_MS, why="w"),
    }
    for name in wants:
        monkeypatch.setattr(
            f"agents.node.{name}.proposed", lambda *_, name=name: [wants[name]] if name in wants else []
        )
    return wants


def test_of_three_reasons_to_change_a_job_one_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(601, 2)
    spec, _ = begun(world, 5_000)
    log = CatalogLog(world.agents[0].node.log.after(0))
    wants = proposing(monkeypatch, spec, leader(world, spec).address)
    for name in ("scaling", "promises", "moves"):
        assert Deciding(log, Loads(log), PACE).decide(START_MS) == (wants.pop(name),)
    assert Deciding(log, Loads(log), PACE).decide(START_MS) == ()


def test_whoever_decides_next_goes_on_at_the_same_pace() -> None:
    """A job that was changed for one reason is not changed for another one soon."""
    world = World(602, 2)
    spec, _ = begun(world, 5_000)
    lead = leader(world, spec).address
    log = CatalogLog(world.agents[0].node.log.after(0))
    grow(log, AssignJobGroup(uid=spec.uid, origin=lead, target="other:1", at_ms=START_MS, why="w"))

    def decided(after_ms: int) -> tuple[Proposed, ...]:
        loads = Loads(log)
        loads.heard(lead, AgentLoad(350_000, (GroupLoad(spec.uid, 300_000),), 700_000), START_MS + after_ms)
        loads.heard("other:1", AgentLoad(0, (), 10_000), START_MS + after_ms)
        loads.heard("other:2", AgentLoad(0, (), 10_000), START_MS + after_ms)
        return Deciding(log, loads, PACE).decide(START_MS + after_ms)

    assert [len(decided(ms)) for ms in (0, 9_999, 29_999, 30_000)] == [0, 0, 0, 1]
    (again,) = decided(30_000)
    grow(log, again)
    assert [len(decided(30_000 + ms)) for ms in (30_000, 59_999, 60_000)] == [0, 0, 1], "longer each time"


def test_an_agent_to_which_a_job_has_gone_is_measured_before_it_gives_another_one_away() -> None:
    """It has had much to do for that."""
    world = World(604, 2)
    spec, _ = begun(world, 5_000)
    lead = leader(world, spec).address
    log = CatalogLog(world.agents[0].node.log.after(0))
    other = replace(spec, name="other", generation=1)
    gone = JobGroupAssigned(
        seq=log.last + 1, uid=other.uid, origin="other:1", target=lead, at_ms=START_MS, why="w"
    )
    log.append(gone)

    def decided(after_ms: int) -> int:
        loads = Loads(log)
        loads.heard(lead, AgentLoad(350_000, (GroupLoad(spec.uid, 300_000),), 700_000), START_MS + after_ms)
        for idle in ("other:1", "other:2"):
            loads.heard(idle, AgentLoad(0, (), 10_000), START_MS + after_ms)
        return len(Deciding(log, loads, PACE).decide(START_MS + after_ms))

    assert [decided(ms) for ms in (10_000, 29_999, 30_000)] == [0, 0, 1]


def test_without_the_setting_nothing_moves_and_all_else_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(603, 2)
    spec, _ = begun(world, 5_000)
    log = CatalogLog(world.agents[0].node.log.after(0))
    wants = proposing(monkeypatch, spec, leader(world, spec).address)
    for name in ("scaling", "promises"):
        assert Deciding(log, Loads(log), None).decide(START_MS) == (wants.pop(name),)
    assert Deciding(log, Loads(log), None).decide(START_MS) == ()
