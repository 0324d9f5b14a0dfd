"""EXPLAIN LATENCY of a running job, through a statement to some agent, on virtual time; and the stamps behind
it."""

from __future__ import annotations

import numpy as np
import pytest

from agents.answering.learned import delays_of
from agents.traces.stamps import KEPT_MAX, Stamps
from elf.fields import replace
from elf.job.costs import flow_costs
from elf.job.stamps import LAST, RootStamp, SealStamp, StampStatus, WindowStamp, is_stamped, one_in
from elf.job.work import FlowWork, JobWork, WorkStatus
from elf.planning.phases import ABOUT
from elf.ql.promises import Chosen, Promise
from lab.chaos.engine import plan
from lab.chaos.world import World
from tests.support.histories import asked, begun

FLOW = "0" * 24


def test_phases_of_a_fleet_add_up_to_what_a_reader_waits() -> None:
    world = World(41, 4, checking=False)
    spec, _ = begun(world, 40_000, query=replace(plan(2), trees=2))
    world.create(0, replace(plan(2, 1), promise=Promise(2_000_000, 99.0), chosen=Chosen(poll_ms=10)), "soon")
    world.run(40_000)
    text, told = asked(world, 3, "EXPLAIN LATENCY JOB job")
    assert (told["asked"], told["silent"]) == (4, [])
    assert told["windows"], "each pane of 2 s ends a window"
    assert told["panes"] >= 3
    assert told["one_in"] == 4
    assert list(told["phases"]) == list(ABOUT)
    total = told["total"]["mean_ms"]
    assert abs(sum(one["mean_ms"] for one in told["phases"].values()) - total) < 0.01
    # what the windows' own stamps say
    members = [
        agent.loop._ports.seen.stamped([f.uid for f in spec.flows], [spec.uid]) for agent in world.agents
    ]
    made = [one for agent in members for one in agent.windows]
    lateness_us = int(told["lateness_s"] * 1e6)
    late = [one.applied_us - (one.pane + 1) * 2_000_000 - lateness_us for one in made]
    assert told["panes"] <= len(late)
    assert min(late) / 1e3 - 0.01 <= total <= max(late) / 1e3 + 0.01
    assert told["phases"]["wait"]["mean_ms"] > 0
    assert told["phases"]["tree"]["p99_ms"] > 0
    assert told["dominant"] in text
    model = told["predicted"]
    assert list(model["phases"]) == list(ABOUT)
    assert len(model["facts"]["lines_s"]) == 4
    assert all(rate > 0 for rate in model["facts"]["lines_s"])
    assert model["facts"]["depth"] >= 1
    assert model["facts"]["hop_ms"] > 0
    assert model["phases"]["window"]["mean_ms"] > 0, "with several trees windows are made on their own"
    assert abs(sum(one["mean_ms"] for one in model["phases"].values()) - model["total"]["mean_ms"]) < 0.01
    assert model["facts"]["looks_ms"] == 10, "as a job beside it over the same stream wants"
    roots = sorted((root for agent in members for root in agent.roots), key=lambda one: one.applied_us)
    last = {one.pane: one for one in roots}.values()
    commits = [one.applied_us - one.made_us for one in last]
    drafts = [one.made_us - one.draft_us for one in last]
    assert model["phases"]["commit"]["mean_ms"] == pytest.approx(np.mean(commits) / 1e3, abs=0.01)
    assert model["phases"]["commit"]["variance_ms2"] == pytest.approx(np.var(commits) / 1e6, abs=0.01)
    cpu_ms = model["facts"]["draft_cpu_ms"]
    drafted = max(cpu_ms, float(np.mean(drafts)) / 1e3)
    assert model["phases"]["draft"]["mean_ms"] == pytest.approx(drafted, abs=0.01)
    assert sum(told["last"].values()) == told["panes"]
    victim = next(a for a in world.agents if a.address not in (spec.leader, world.agents[3].address))
    victim.crash()
    text, told = asked(world, 3, "EXPLAIN LATENCY job")
    assert told["silent"] == [f"a{victim.index} ({victim.address})"]
    assert f"silent: a{victim.index}" in text
    assert told["panes"]


def test_what_a_pane_waits_for_is_learned_of_those_that_it_waits_for() -> None:
    """Of three agents one seals late, with others beside it; and nobody's commit is like a seal."""
    world = World(1, 1, checking=False)
    world.start_all()
    spec = world.create(0, plan(2), "job")
    (flow,) = (one.uid for one in spec.flows)
    panes = (4, 5, 6)
    roots = tuple(
        RootStamp(flow, pane, 0, 40_000 + pane + hop, 50_000, 58_000, 59_000 + 300 * (pane - 5))
        for pane, hop in zip(panes, (500, 9_000, 1_500), strict=True)
    )
    quick = tuple(RootStamp("other", pane, 0, 0, 50_000, 51_000, 52_000) for pane in panes)
    made = tuple(WindowStamp(spec.uid, root.pane, root.draft_us, root.applied_us) for root in roots)
    stamped = [
        StampStatus("quick", tuple(SealStamp(flow, pane, 0, 20_000, 22_000) for pane in panes), quick),
        StampStatus("first", tuple(SealStamp(flow, pane, 0, 1_000, 2_000) for pane in panes), roots, made),
        StampStatus("slow", tuple(SealStamp(flow, pane, 0, 1_000, 40_000 + pane) for pane in panes)),
    ]
    work = FlowWork(flow, rows=300, snapshots=3, map_us=30, seal_us=9_000, commits=3, commit_us=3_000)
    worked = {"a:1": WorkStatus("first", (work,), (JobWork(spec.uid, commits=3, final_us=6_000),))}
    delays = delays_of(spec, stamped, worked, tuple(flow_costs([flow], worked).values()), 50)
    assert delays is not None
    assert (delays.draft, delays.made, delays.window) == (1.0, 2.0, None), "windows are made with the pane"
    assert delays.queued == (5.0, 0.0), "eight ms, of which three are CPU"
    assert delays.agreed == pytest.approx((1.0, 0.06))
    assert delays.hop == 1.5, "the median"
    assert delays.sync == pytest.approx((36.0, 0.0), abs=0.01), "39 of the slow one, of which three are CPU"
    without = delays_of(spec, stamped[2:], worked, tuple(flow_costs([flow], worked).values()), 50)
    assert without is not None
    assert (without.agreed, without.queued) == (None, (0.0, 0.0)), "no root has told of any"


def test_a_job_that_has_just_begun_says_that_it_is_to_be_waited_for() -> None:
    world = World(42, 3, checking=False)
    world.start_all()
    world.create(0, plan(2), "job")
    text, told = asked(world, 1, "EXPLAIN LATENCY job")
    assert (told["panes"], told["total"], told["phases"], told["dominant"]) == (0, None, {}, None)
    assert "no stamped pane is complete yet" in text
    assert "one in 4 is stamped: there is one each 8 s on average" in text


def test_long_panes_are_stamped_more_often_and_what_is_stamped_nests() -> None:
    lengths_us = (0, 100_000, 1_000_000, 2_500_000, 5_000_000, 30_000_000)
    assert [one_in(us) for us in lengths_us] == [16, 16, 8, 4, 2, 1]
    panes = range(1_770_000_000, 1_770_016_000)
    stamped = {us: {pane for pane in panes if is_stamped(pane, us)} for us in (0, 1_000_000, 30_000_000)}
    assert stamped[0] <= stamped[1_000_000] <= stamped[30_000_000] == set(panes)
    assert abs(len(stamped[0]) - 1_000) < 100
    assert len({pane % 60 for pane in stamped[0]}) > 15, "not the round ones alone"


def test_stamps_are_bounded_and_those_of_who_is_asked_for() -> None:
    stamps = Stamps()
    for number in range(LAST + 5):
        stamps.sealed(SealStamp(FLOW, number, 1, 2, 3))
        stamps.committed(RootStamp(FLOW, number, 0, 0, 1, 2, 3))
        stamps.made(WindowStamp("job", number, 1, 2))
        stamps.old(FLOW)
    found = stamps.of("web-1", [FLOW], ["job"])
    assert [one.pane for one in found.seals] == [one.pane for one in found.roots] == list(range(5, LAST + 5))
    assert (len(found.windows), found.old) == (LAST, LAST + 5)
    for number in range(KEPT_MAX):
        stamps.sealed(SealStamp(f"{number + 1:024x}", number, 1, 2, 3))
        stamps.old(f"other-{number}")
    found = stamps.of("web-1", [FLOW], [])
    assert (len(found.roots), len(found.seals), found.old, found.windows) == (LAST, 0, 0, ())
