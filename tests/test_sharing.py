"""Whether to share a flow's panes: the cost model."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from elf.windows import Cumulative, Kind, Landmark, Sliding, sharing
from elf.windows.kinds import HOUR_US
from elf.windows.sharing import HELD_MAX, MERGED_US, PANE_US, Measured, choose, held, own_ms, shared_ms

SECOND = 1_000_000
MINUTE = 60 * SECOND
HOUR = (Sliding(HOUR_US, HOUR_US),)


def test_many_rows_of_few_keys_are_aggregated_once() -> None:
    busy = Measured(MINUTE, rows=36_000_000, sent=1_000, merged=100)
    choice = choose(HOUR, HOUR_US, [busy], [])
    assert (choice.pane_us, choice.own_us, choice.is_shared) == (MINUTE, HOUR_US, True)
    assert choice.shared_ms == 60 * (PANE_US + 100 * MERGED_US) / 1_000
    assert choice.own_ms == own_ms(busy, HOUR_US)
    assert choice.why == (
        "panes of 1 min of a flow that runs, not own ones of 1 h: sharing takes at most "
        f"{choice.shared_ms:,.1f} ms of CPU an hour, own panes at least {choice.own_ms:,.1f} ms"
    )


def test_few_rows_in_many_panes_are_not_worth_their_merges() -> None:
    choice = choose(HOUR, HOUR_US, [Measured(SECOND, rows=3_600, sent=1, merged=1)], [])
    assert (choice.pane_us, choice.is_shared) == (HOUR_US, False)
    assert choice.why.startswith("own panes of 1 h, not those of 1 s that a flow has: sharing takes at most")


def test_a_master_does_not_take_millions_of_groups_at_once_whatever_it_saves() -> None:
    vast = Measured(MINUTE, rows=1e12, sent=50_000, merged=50_000)
    assert shared_ms(vast, HOUR) < own_ms(vast, HOUR_US)
    choice = choose(HOUR, HOUR_US, [vast], [])
    assert not choice.is_shared
    assert "a master would have 3,000,000 of its groups at once, and 1,000,000 at most" in choice.why
    small = Measured(2 * MINUTE, rows=1e12, sent=10, merged=10)
    assert choose(HOUR, HOUR_US, [vast, small], []).pane_us == 2 * MINUTE


def test_of_several_flows_it_is_the_cheapest() -> None:
    flows = [Measured(us, rows=1e9, sent=10, merged=10) for us in (SECOND, 10 * MINUTE, MINUTE)]
    assert choose(HOUR, HOUR_US, flows, ["…"]).pane_us == 10 * MINUTE


def test_nothing_known_is_no_reason_to_share() -> None:
    choice = choose(HOUR, HOUR_US, [], ["nothing here", "nothing there"])
    assert (choice.pane_us, choice.shared_ms, choice.own_ms) == (HOUR_US, None, None)
    assert choice.why == "own panes of 1 h: nothing here; nothing there"


def test_only_what_sharing_adds_is_counted() -> None:
    """The second window is made of the first one either way; an own unit of each slide is made of panes."""
    one = Measured(MINUTE, rows=0, sent=0, merged=7)
    day = Sliding(24 * HOUR_US, 24 * HOUR_US)
    assert shared_ms(one, (*HOUR, day)) == shared_ms(one, HOUR)
    sliding = Sliding(6 * HOUR_US, HOUR_US)
    assert shared_ms(one, (sliding,)) == shared_ms(one, HOUR) == shared_ms(one, (Landmark(HOUR_US),))
    assert held(one, (sliding,)) == 6 * 60 * 7
    assert held(one, (sliding, day)) == 24 * 60 * 7


def test_how_few_rows_at_a_time_are_mapped_counts_within_bounds() -> None:
    def own(map_us: float) -> float:
        return own_ms(Measured(SECOND, 1e6, 0, 0, map_us), HOUR_US)

    assert own(0.0) == own(sharing.ROW_US) == sharing.ROW_US * 1_000
    assert own(0.0) < own(sharing.WAITING_US) == own(100.0) == sharing.WAITING_US * 1_000


KINDS: st.SearchStrategy[Kind] = st.builds(
    lambda own, times, kind: kind(own * MINUTE, times),
    st.sampled_from((10, 60, 120)),
    st.integers(1, 6),
    st.sampled_from(
        (
            lambda us, n: Sliding(us * n, us * n),
            lambda us, n: Sliding(us * n, us),
            lambda us, n: Cumulative(us * n, us),
            lambda us, n: Landmark(us * n),
        )
    ),
)
COUNTS = st.floats(0, 1e9, allow_nan=False)


@given(
    st.lists(KINDS, min_size=1, max_size=3),
    st.lists(st.tuples(st.sampled_from((SECOND, 30 * SECOND, MINUTE)), COUNTS, COUNTS, COUNTS), max_size=3),
)
@settings(max_examples=200, deadline=None)
def test_it_is_shared_only_where_that_is_certainly_cheaper(
    kinds: list[Kind], counts: list[tuple[int, float, float, float]]
) -> None:
    own_us = 10 * MINUTE
    flows = [Measured(us, rows, sent, min(sent, merged)) for us, rows, sent, merged in counts]
    choice = choose(kinds, own_us, flows, ["nothing"])
    assert choice.is_shared == (choice.pane_us != own_us)
    told = (choice.shared_ms, choice.own_ms)
    if choice.is_shared:
        of_length = [one for one in flows if one.pane_us == choice.pane_us]
        flow = next(one for one in of_length if (shared_ms(one, kinds), own_ms(one, own_us)) == told)
        assert choice.shared_ms is not None
        assert choice.shared_ms < own_ms(flow, own_us) == choice.own_ms
        assert held(flow, kinds) <= HELD_MAX
        assert own_us % choice.pane_us == 0
    for flow in flows:  # more rows never speak for own panes
        more = Measured(flow.pane_us, flow.rows * 2, flow.sent, flow.merged)
        if choose(kinds, own_us, [flow], []).is_shared:
            assert choose(kinds, own_us, [more], []).is_shared
