"""``elf sim control``: whole nodes on virtual time, each a server of one core."""

from __future__ import annotations

import gc
import json
from functools import partial
from typing import Any

import pytest

from agents.codec import Message
from elf.errors import ElfError, UserError
from elf.job.messages.rollup import Begun
from lab.bench.control_measures import SEPARATE, create
from lab.bench.simulated.costs import Costs, measured
from lab.bench.simulated.fleet import SimFleet
from lab.bench.simulated.measures import MEASURES, notify, window
from lab.bench.simulated.world import TimedWorld
from lab.chaos.agent import SimAgent
from lab.cli.simcontrol import ControlOptions, simulate_control

SLOW = Costs(send_ms=1.0, receive_ms=2.0, hop_ms=0.5, sync_ms=4.0, archive_ms=0.5, archive_sync_ms=3.0)
"""Far more than this machine takes for anything, so that tests do not depend on it."""
JOB = "store, COUNT(*) AS n FROM clicks GROUP BY store"


def test_every_figure_is_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert simulate_control(ControlOptions(nodes=4, rounds=1, link_ms=0.5, seed=2, as_json=True)) == 0
    said = capsys.readouterr()
    figures = json.loads(said.out.splitlines()[-1])
    for name in MEASURES:
        assert 0.5 < figures[name]["p50"] <= figures[name]["p99"] <= figures[name]["max"]
    assert (figures["agents"], figures["depth_max"]) == (4, 1)
    assert 0 < figures["busy"] < 1
    assert "left out: code_ms" in said.err
    assert all(
        f"{cost.removesuffix('_ms')} {value:g}" in said.out for cost, value in figures["costs"].items()
    )
    assert gc.isenabled()


def test_what_is_asked_for_is_measured_instead(capsys: pytest.CaptureFixture[str]) -> None:
    options = ControlOptions(4, 1, 0.5, 2, True, ["notify"], True, [0, 1], 20)
    assert simulate_control(options) == 0
    figures = json.loads(capsys.readouterr().out.splitlines()[-1])
    operators = {f"{name}{how}_ms" for name in SEPARATE for how in ("", "_together")}
    measured = {name for name, one in figures.items() if name.endswith("_ms") and isinstance(one, dict)}
    assert measured == operators | {"notify_ms", "campaign_ms", "zoom_ms"}
    assert 0 < figures["campaign_ms"]["max"] < 5_000, "each window of 5 s before the next one's end"
    idle, busy = (figures["traffic"][seconds] for seconds in ("0", "1"))
    assert 0 < idle["messages_per_s"] < busy["messages_per_s"]
    assert 0 < idle["bytes_per_s"] < busy["bytes_per_s"]
    with pytest.raises(UserError, match="--only code: there are submit, notify, filter"):
        simulate_control(ControlOptions(4, 1, 0.5, 2, True, ["code"]))


def test_what_is_charged_is_measured_here() -> None:
    costs = measured()
    assert all(
        0 < value < 50 for name, value in costs.facts().items() if name not in ("mib_ms", "sandbox_ms")
    )
    assert costs.mib_ms >= 0
    assert costs.sandbox_ms >= 0


def test_a_step_begins_when_the_last_one_is_over() -> None:
    """Of two that come at once the second waits for the first, and what each causes leaves after it."""
    world = TimedWorld(1, 2, SLOW, link_ms=10.0)
    agent = world.agents[0]
    agent.up, seen = True, []
    agent.store.waited()  # for its tables

    def step() -> None:
        world.charge(5.0)
        agent.tell("stepped", "")
        world.after(1.0, agent, lambda: seen.append(world.exact))

    began = world.exact
    with world.charged():
        for _ in range(2):
            world.after(0, agent, step)
        world.run(100)
    first, second = world.said
    assert first.began == began
    assert first.ended == second.began == pytest.approx(began + 5, abs=1)
    assert second.ended == pytest.approx(began + 10, abs=1)
    assert seen == pytest.approx([second.ended, second.ended + 1], abs=1)
    assert world.cores[0].cpu_ms == pytest.approx(10, abs=1)
    assert world.cores[1].cpu_ms == 0


def test_links_messages_and_syncs_are_in_the_figures() -> None:
    """One level: the master encodes once and sends to each, who receive: two agents, one link."""
    quick, slow = SimFleet(3, 1, Costs(), 0.5), SimFleet(3, 1, SLOW, 20.0)
    with quick.running():
        (fast, *_) = notify(quick, 1)
        windows = window(quick, 1)
    with slow.running():
        (told, *_) = notify(slow, 1)
        charged = window(slow, 1)
    assert told >= 20 + SLOW.send_ms + SLOW.receive_ms
    assert fast >= 0.5
    assert fast < told
    # a slice to its root, two commits of it that another agent has synced too, and the result to its reader
    assert min(charged) >= 5 * 20 + 4 * SLOW.sync_ms
    assert max(windows) < min(charged)


def test_what_every_agent_prepares_is_charged_to_each() -> None:
    """DuckDB's statements are prepared once in the process."""
    fleet, charged = SimFleet(3, 1, Costs(), 0.5), list[float]()
    fleet.world.prepared._charge = charged.append
    with fleet.running():
        charged.clear()
        fleet.sql(create("one", JOB))
        fleet.world.run(1_000)
    assert len([ms for ms in charged if ms > 0]) >= 2


def test_results_are_those_of_all_rows() -> None:
    """It is timed, and right: a window's rows are those that were read."""
    fleet = SimFleet(5, 3, Costs(), 0.5)
    with fleet.running():
        fleet.sql(create("one", JOB))
        reader = fleet.subscribe("one")
        fleet.pause()
        start = fleet.next_us
        for number in range(5):
            fleet.write(number, start, 30, 10.0 * number)
            fleet.write(number, start + 1_000_000, 1, 200)
        fleet.world.run_until(lambda: start + 1_000_000 in fleet.results(reader))
        rows: list[dict[str, Any]] = fleet.rows(reader, start + 1_000_000)
    assert sum(row["n"] for row in rows) == 5 * 30
    assert {row["store"] for row in rows} == {"video_games", "toys", "books"}


def test_a_statement_that_is_refused_is_an_error() -> None:
    fleet = SimFleet(2, 1, Costs(), 0.5)
    with fleet.running(), pytest.raises(ElfError, match="there is no stream nothing"):
        fleet.sql("CREATE JOB one AS SELECT COUNT(*) FROM nothing WINDOWING 1 SECONDS")


def test_a_master_of_many_hears_who_begins_in_few_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = SimFleet(60, 5, measured(), 0.5)
    words: dict[str, list[Begun]] = {}
    send = TimedWorld.send

    def sent(world: TimedWorld, agent: SimAgent, to: str, message: Message) -> None:
        if isinstance(message, Begun):
            words.setdefault(to, []).append(message)
        send(world, agent, to, message)

    with fleet.running():
        monkeypatch.setattr(TimedWorld, "send", sent)
        fleet.sql(create("job", JOB))
        spec = fleet.world.agents[0].node.log.find_job("job", "me")
        assert spec is not None
        heard = [one.member for word in words[spec.leader] for one in word.flows[0].members]
        assert len(set(heard)) == 59
        assert len(words[spec.leader]) <= 45, "a word from each is 59; how few depends on this machine"
        assert len(heard) <= 59 + 10, "twice of those only whose place in the tree has changed"
        fleet.sql("DROP JOB job")


def test_a_loop_and_the_other_threads_take_turns() -> None:
    world = TimedWorld(1, 2, SLOW, link_ms=10.0)
    agent = world.agents[0]
    agent.up, seen = True, list[str]()
    agent.store.waited()

    def step(what: str) -> None:
        world.charge(5.0)
        seen.append(what)

    with world.charged():
        for number in range(4):
            world.after(0, agent, partial(step, f"loop {number}"))
        world.after(1.0, agent, partial(seen.append, "late"))
        world.run(0.5)  # the first has begun
        world.later(agent, partial(step, "lane"))
        world.run(60)
    assert seen[:3] in (["loop 0", "lane", "loop 1"], ["loop 0", "loop 1", "lane"])
    assert seen[-1] == "late", "each in its own order"
