"""Who is expected and who is there, as sets: the same as going through all members each time."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from elf.job.catalog.members import FOREVER_US, Member
from elf.job.contributions import bitmap
from elf.job.messages.rollup import FlowProgress
from elf.job.rollup.presence import LATER_MS_MAX, Presence, Roster, Told
from elf.job.spec import END_OF_TIME, START_OF_TIME

GRACE_MS = 30
PANE_US = 10
times = st.integers(-50, 50) | st.just(START_OF_TIME)
ends = st.integers(-50, 50) | st.just(FOREVER_US)


def pane_of(us: int, pane_us: int) -> int:
    if abs(us) >= END_OF_TIME or not pane_us:
        return END_OF_TIME if us > 0 else START_OF_TIME
    return -(-us // pane_us)


@given(st.lists(st.tuples(times, ends), max_size=8), st.sampled_from([0, 1, PANE_US]))
def test_the_expected_are_those_whose_time_has_the_pane(spans: list[tuple[int, int]], pane_us: int) -> None:
    members = tuple(Member(n, f"id{n}", f"a{n}", 1, f"a{n}", *span) for n, span in enumerate(spans))
    roster = Roster(pane_us, members, 3)
    turns = set()
    for pane in range(-60, 60):
        held = [
            m.number for m in members if pane_of(m.since_us, pane_us) <= pane < pane_of(m.until_us, pane_us)
        ]
        assert roster.expected(pane) == bitmap(held)
        if pane > -60 and roster.expected(pane) != roster.expected(pane - 1):
            turns.add(pane)
    assert turns <= set(roster.edges(-61, 60)), "whoever goes through panes by edges misses no change"
    assert set(roster.edges(-10, 10)) == {edge for edge in roster.edges(-61, 60) if -10 < edge < 10}
    assert roster.staying == bitmap(m.number for m in members if m.until_us == FOREVER_US)
    assert roster.all == bitmap(range(len(members)))
    assert [roster.member(m.number) for m in members] == list(members)
    assert roster.member(len(members)) is None


steps = st.tuples(st.integers(0, 12), st.sampled_from(["hear", "hear", "hear", "lose"]), st.integers(0, 4))


@given(st.lists(st.tuples(steps, st.integers(0, 3)), max_size=40))
def test_who_is_there_is_who_spoke_of_late_and_is_not_taken_for_dead(
    script: list[tuple[tuple[int, str, int], int]],
) -> None:
    presence, now_ms = Presence(GRACE_MS), 0
    told: dict[int, Told] = {}
    dead: set[int] = set()
    seen = places(told, dead, now_ms)
    for (wait_ms, what, number), live_from in script:
        now_ms += wait_ms
        if what == "lose":
            dead.add(number)
            presence.lose([number])
        else:
            progress = FlowProgress("uid", live_from, 9)
            told.setdefault(number, Told(progress, now_ms)).hear(progress, now_ms)
            dead.discard(number)
            news = presence.hear(number, progress, now_ms)
            same = seen.get(number) == places(told, dead, now_ms).get(number)
            assert news or same, "a word without news changes nothing since the last look"
        there = [n for n, one in told.items() if n not in dead and now_ms - one.at_ms <= GRACE_MS]
        assert presence.there(now_ms) == bitmap(there)
        assert presence.heard == bitmap(told)
        assert presence.dead == bitmap(dead)
        for pane in range(-1, 5):
            assert presence.begun(pane) == bitmap(n for n, o in told.items() if o.progress.live_from <= pane)
        firsts = {one.progress.live_from for one in told.values()}
        assert presence.beginnings(0, 3) == {pane for pane in firsts if 0 < pane < 3}
        seen = places(told, dead, now_ms)
        assert {n: presence[n].at_ms for n in presence} == {n: one.at_ms for n, one in told.items()}


def places(told: dict[int, Told], dead: set[int], now_ms: int) -> dict[int, tuple[int, bool, bool]]:
    """Of each that was heard: with which pane it begins, and whether it is there."""
    return {n: (one.progress.live_from, n in dead, now_ms - one.at_ms <= GRACE_MS) for n, one in told.items()}


def test_whose_words_come_less_often_is_not_silent_so_soon() -> None:
    presence = Presence(300_000)
    assert presence.is_silent(0, 3_000, None, 99_999) is False, "we have not begun: nobody owes us anything"
    assert [presence.is_silent(0, 3_000, 0, at) for at in (3_000, 3_001)] == [False, True]
    presence.hear(0, FlowProgress("uid", 0, 9), 10_000)
    assert [presence.is_silent(0, 3_000, 0, at) for at in (13_000, 13_001)] == [False, True]
    presence.hear(0, FlowProgress("uid", 0, 9, later_ms=3_000), 20_000)
    assert [presence.is_silent(0, 3_000, 0, at) for at in (26_000, 26_001)] == [False, True]
    presence.lose([0])
    assert presence.is_silent(0, 3_000, 0, 20_000)
    presence.hear(1, FlowProgress("uid", 0, 9, later_ms=1 << 60), 20_000)
    assert presence.later_ms == LATER_MS_MAX, "nobody makes us wait for ever"
