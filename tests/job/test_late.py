"""Rows later than LATENESS: parts and revisions of panes, and flows over late rows."""

from __future__ import annotations

from collections import Counter, defaultdict
from datetime import UTC, datetime
from functools import partial

import pytest

from agents.codec import Message
from elf.client.windows import Changes, split
from elf.fields import replace
from elf.job import events as was
from elf.job.effects import Effect
from elf.job.messages.groups import SubscribeJob
from elf.job.messages.rollup import Slice
from elf.job.rollup.clocks import Clocks
from elf.ql.plan import Plan
from elf.wire.clients import WindowResult
from lab.chaos.agent import SimAgent
from lab.chaos.engine import SECOND, plan
from lab.chaos.world import World
from tests.support.stories import crashes_loss_and_doubles_of_late_rows, reference, revising, write


@pytest.mark.parametrize("seed", range(1))
def test_the_last_revision_has_every_row_that_is_not_beyond_the_bound(seed: int) -> None:
    crashes_loss_and_doubles_of_late_rows(seed)


def test_late_rows_that_come_to_a_master_of_before_are_counted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """That node is in the flow's tree, and its log has the new job group."""
    world = World(1, 4)
    world.start_all()
    until = world.now + 20_000
    for agent in world.agents:
        write(world, agent, until)
    spec = world.create(1, revising())
    send, strayed = world.send, set[tuple[object, ...]]()

    def astray(agent: SimAgent, to: str, message: Message) -> None:
        """Each part, when it is sent first."""
        if isinstance(message, Slice) and message.parts:
            name = (message.start, message.parts)
            if name not in strayed:
                strayed.add(name)
                to = next(a.address for a in world.agents if a.address not in (to, agent.address))
        send(agent, to, message)

    monkeypatch.setattr(world, "send", astray)
    world.run(until - world.now + 25_000)
    windows = world.committed(spec)
    starts = [start for start in windows if start + 4 * SECOND < until * 1000]
    starts = [start for start in starts if all(world.answers_for(a, spec, start) for a in world.agents)]
    assert [windows[start][1] for start in starts] == [
        dict(reference(world, spec, start)) for start in starts
    ]
    assert len(starts) >= 6
    assert sum(agent.node.unknown_flow for agent in world.agents) == len(strayed) > 5


def late_rows(uid: str) -> Plan:
    """The late rows of a flow by key, by the time at which they came."""
    base = plan()
    return replace(base, fragment=replace(base.fragment, late_of=uid), spark_sql="")


def test_late_rows_can_be_queried_and_are_as_many_as_are_counted() -> None:
    world = World(3, 3)
    world.start_all()
    until = world.now + 24_000
    for agent in world.agents:
        write(world, agent, until)
    spec = world.create(1, plan(), "job")
    late = world.create(2, late_rows(spec.flows[0].uid), "late")
    world.run(until - world.now + 12_000)
    counted, queried = world.committed(spec), world.committed(late)
    began = min(queried) + 4 * SECOND
    told = sum(status["late"] for start, (_, _, status) in counted.items() if start >= began)
    found = sum(sum(counts.values()) for start, (_, counts, _) in queried.items() if start >= began)
    assert told > 10
    assert abs(found - told) <= 3  # the same rows, but a count stands at the pane that was open
    assert {key for _, counts, _ in queried.values() for key in counts} == set("abc")


def test_a_clock_that_is_off_is_measured_and_told() -> None:
    world = World(4, 4)
    bad = world.agents[2]
    bad.clock_ms = 7_000
    world.start_all()
    spec = world.create(1, plan())
    leader = world.leader(spec)
    for agent in world.agents:
        world.write(agent, world.now + 6_000)
    world.run(12_000)
    skews = leader.node.clocks.skews(leader.now_ms)
    assert abs(skews[bad.address] - 7_000) < 50
    assert all(abs(skew) < 50 for address, skew in skews.items() if address != bad.address)
    if leader is not bad:
        ((address, skew),) = leader.skewed
        assert address == bad.address
        assert abs(skew - 7_000) < 50


def test_a_clock_is_not_off_by_what_nobody_can_measure() -> None:
    """LATENESS 0: a warning needs more than half a round trip and the ms that clocks are read in."""

    def heard(skew_ms: int, rtt_ms: float | None, way_ms: int) -> int | None:
        clocks = Clocks("root:1")
        for now in (1_000, 5_000, 9_000, 11_000):
            clocks.hear("a:1", now - way_ms + skew_ms, now, rtt_ms)
        return clocks.beyond("a:1", 0, 11_000)

    assert heard(0, 4.0, 0) is None  # all of the round trip was on the way back
    assert heard(0, 4.0, 4) is None
    assert heard(0, 0.5, 1) is None
    assert heard(0, None, 60) is None
    assert heard(40, 4.0, 2) == 20  # two clocks: either may be the bad one
    assert heard(7_000, None, 2) == 3_499


def test_a_clock_that_seems_right_is_compared_with_all_others_once_a_second(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[int] = []
    make = Clocks.skews

    def skews(clocks: Clocks, now_ms: int) -> dict[str, int]:
        made.append(now_ms)
        return make(clocks, now_ms)

    monkeypatch.setattr(Clocks, "skews", skews)
    clocks, warned = Clocks("root:1"), []
    for now in range(0, 120_000, 1_000):
        for number in range(9):
            ahead = 5_000 if number == 4 and now >= 60_000 else 0
            clocks.hear(f"a{number}:1", now + number + ahead, now + number, 2.0)
            skew = clocks.beyond(f"a{number}:1", 2_000, now + number)
            warned += [(number, now, skew)] if skew is not None else []
    assert warned == [(4, 60_000, 5_000)]
    assert len(made) <= 120


def test_words_that_waited_while_their_hearer_was_restarted_are_no_skew() -> None:
    clocks = Clocks("root:1")
    for sent in (1_000, 2_000, 3_000):
        clocks.hear("a:1", sent, 3_600, 1.0)
    assert clocks.beyond("a:1", 0, 3_600) is None
    for now in (4_000, 5_000, 6_000, 7_000):
        clocks.hear("a:1", now - 1, now, 1.0)
    assert clocks.beyond("a:1", 0, 7_000) is None


def test_a_machine_that_is_busy_for_seconds_after_a_start_is_no_skew() -> None:
    clocks, warned = Clocks("root:1"), list[int | None]()
    for now in range(1_000, 30_000, 1_000):
        waited = 4_000 if now < 9_000 else 1
        clocks.hear("a:1", now - waited, now, 1.0)
        warned.append(clocks.beyond("a:1", 1_000, now))
    assert set(warned) == {None}


def test_a_clock_that_is_seldom_heard_is_not_judged_by_its_first_words() -> None:
    clocks = Clocks("root:1")
    for now in (8_000, 12_000, 16_000, 20_000):
        clocks.hear("a:1", now - 4_000, now, 1.0)  # each of them was long under way
        assert (clocks.beyond("a:1", 0, now) is not None) is (now == 20_000)


def test_early_results_grow_into_the_windows_and_changes_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader sums the changes that it is told; after the last one it has what was committed."""
    world = World(5, 3, loss=0.02, doubles=0.02)
    world.start_all()
    until = world.now + 14_000
    for agent in world.agents:
        world.write(agent, until)
    query = plan(4, 2)
    spec = world.create(1, replace(query, fragment=replace(query.fragment, changes_us=SECOND // 2)))
    reader = world.agents[0]
    found: list[WindowResult] = []

    def published(result: WindowResult, now_ms: int) -> list[Effect]:
        found.append(result)
        return []

    monkeypatch.setattr(reader.node.clients, "published", published)
    asked = SubscribeJob(id=1, origin=reader.address, uid=spec.uid, after=None)
    for after in range(0, 24_000, 2_000):
        leader = world.leader(spec)
        world.at(world.now + after, partial(leader.handle, was.Arrived(reader.address, asked)))
    world.run(24_000)
    changes, early = Changes(), 0
    sums: defaultdict[datetime | None, Counter[tuple[str, int]]] = defaultdict(Counter)
    complete: set[datetime | None] = set()
    for result in found:
        for window in split(result):
            assert window.emits_changes
            early += window.early > 0 and window.start not in complete
            for row in changes.of(window).to_pylist():
                sums[window.start][row["k0"], row["s0"]] += 1 if row["_op"] == "+" else -1
            if not window.early:
                complete.add(window.start)
    committed = {datetime.fromtimestamp(at / 1e6, UTC): w for at, w in world.committed(spec).items()}
    checked = 0
    for start in committed.keys() & complete:
        assert +sums[start] == Counter(committed[start][1].items()), start
        checked += 1
    assert checked >= 4
    assert early >= 2 * checked
