"""Stela's choices, beginning with the example of the chapter."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elf.planning.etp import Operator, congested, etp, scale_in, scale_out


def operator(arrives: float, processes: float, *children: str, instances: int = 1) -> Operator:
    return Operator(arrives=arrives, processes=processes, children=children, instances=instances)


FIGURE_6_8 = {
    "1": operator(12_000, 8_000, "2", "3"),
    "2": operator(4_000, 4_000, "4"),
    "3": operator(4_000, 3_000, "5", "6"),
    "4": operator(4_000, 2_000),
    "5": operator(2_000, 2_000, "7", "8"),
    "6": operator(1_500, 1_000, "9", "10"),
    "7": operator(1_000, 1_000),
    "8": operator(1_000, 1_000),
    "9": operator(500, 500),
    "10": operator(500, 500),
}
"""A graph that fits what the text says of the figure, whose picture is lost: which operators are congested,
what the sinks process, and which of them each operator reaches."""

CHAIN = {
    "source": operator(100, 100, "parse"),
    "parse": operator(100, 100, "count"),
    "count": operator(100, 50, "store", instances=2),
    "store": operator(50, 50),
}


def test_figure_6_8() -> None:
    assert congested(FIGURE_6_8, rate=1) == ("1", "3", "4", "6")
    shares = etp(FIGURE_6_8, rate=1)
    assert {name: shares[name] for name in ("3", "4", "6", "1")} == {"3": 0.4, "4": 0.4, "6": 0.2, "1": 0.0}
    assert scale_out(FIGURE_6_8, machines=10, new=1, rate=1).rounds[0].operator == "3"


def test_an_operator_reaches_a_sink_once_however_many_ways_lead_there() -> None:
    diamond = {
        "a": operator(9, 3, "b", "c"),
        "b": operator(3, 3, "d"),
        "c": operator(3, 3, "d"),
        "d": operator(3, 3),
    }
    assert etp(diamond) == {"a": 1.0, "b": 1.0, "c": 1.0, "d": 1.0}


def test_what_sends_in_a_circle_or_to_nobody_is_refused() -> None:
    with pytest.raises(ValueError, match="sends to one that sends to it"):
        etp({"a": operator(1, 1, "b"), "b": operator(1, 1, "c"), "c": operator(1, 1, "b")})
    with pytest.raises(ValueError, match="there is no operator x"):
        etp({"a": operator(1, 1, "x")})


def test_rounds_are_instances_of_a_machine_times_new_machines_in_turn() -> None:
    found = scale_out(CHAIN, machines=2, new=3)
    assert [one.machine for one in found.rounds] == [0, 1, 2, 0, 1, 2]


def test_an_operator_grows_in_proportion_until_another_is_congested_or_none_is() -> None:
    found = scale_out(CHAIN, machines=5, new=5)
    assert [one.operator for one in found.rounds] == ["count", "store", "count", "store", "source"]
    first = scale_out(CHAIN, machines=5, new=1)
    assert (first.projected["count"].processes, first.projected["store"].arrives) == (75, 75)
    assert "50 of 100 tuples a second" in first.rounds[0].why


def test_where_nothing_is_congested_a_source_takes_more_in() -> None:
    found = scale_out({"in": operator(10, 10, "out"), "out": operator(10, 10)}, machines=2, new=1)
    assert [one.operator for one in found.rounds] == ["in"]
    assert (found.projected["in"].arrives, found.projected["out"].arrives) == (20, 20)


def test_machines_that_matter_least_go_and_what_they_had_goes_to_those_that_matter_little() -> None:
    placement = {"m1": ["source", "parse"], "m2": ["count"], "m3": ["count"], "m4": ["store"]}
    found = scale_in(CHAIN, placement, 2)
    assert [(one.machine, one.etp_sum) for one in found.removals] == [("m1", 0.0), ("m2", 1.0)]
    assert found.removals[0].moved == (("source", "m2"), ("parse", "m3"))
    assert sorted(one for there in found.placement.values() for one in there) == sorted(
        one for there in placement.values() for one in there
    )
    with pytest.raises(ValueError, match="4 of 4 machines cannot go"):
        scale_in(CHAIN, placement, 4)


@given(
    st.lists(
        st.tuples(st.integers(1, 50), st.integers(1, 50), st.sets(st.integers(0, 9))), min_size=1, max_size=10
    )
)
def test_the_effect_is_that_of_following_each_path(drawn: list[tuple[int, int, set[int]]]) -> None:
    """Against a slow way: every path from every operator."""
    topology = {
        str(n): operator(arrives, processes, *(str(c) for c in sorted(children) if n < c < len(drawn)))
        for n, (arrives, processes, children) in enumerate(drawn)
    }
    full = set(congested(topology))

    def sinks(name: str) -> set[str]:
        children = topology[name].children
        return {name} if not children else set[str]().union(*(sinks(c) for c in children if c not in full))

    total = sum(one.processes for one in topology.values() if not one.children)
    for name, share in etp(topology).items():
        assert share == pytest.approx(sum(topology[sink].processes for sink in sinks(name)) / total)
