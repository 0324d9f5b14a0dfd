"""Which operators are fused, and whether a component is split."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elf.fields import replace
from elf.planning.fusion import Graph, fuse
from elf.planning.splitting import Measured, costs_of, split_or_combine


def graph(attributes: str, rates: dict[tuple[int, int], float]) -> Graph:
    return Graph([frozenset(one) - {"-"} for one in attributes.split()], rates)


LENDING = graph("uad a a - -", {(0, 1): 100, (0, 2): 100, (1, 3): 10, (2, 4): 10})
"""The paper's motivating job: interest rates, two by area, two global."""


@pytest.mark.parametrize("score", ["comm", "attributes"])
def test_the_motivating_job_is_fused_as_in_figure_2(score: str) -> None:
    found = fuse(LENDING, score)  # type: ignore[arg-type]
    assert found.components == ((0, 1, 2), (3,), (4,))
    assert found.between == pytest.approx(20 / 220)


def test_by_tuples_the_busiest_pair_is_fused_and_by_attributes_the_most_alike() -> None:
    # after a fusion of 1 with one of its neighbours there is nothing in common with the other
    between = graph("xy yzw zw", {(0, 1): 100, (1, 2): 10})
    assert fuse(between, "comm").components == ((0, 1), (2,))
    assert fuse(between, "attributes").components == ((0,), (1, 2))
    assert fuse(between, "comm").reasons == (
        "1 pairs were fused, greedily, by tuples a second",
        "9.1% of all tuples between operators go from component to component",
    )


def test_a_job_without_edges_stays_as_it_is() -> None:
    assert fuse(graph("a a", {})).components == ((0,), (1,))


@pytest.mark.parametrize("rates", [{(0, 2): 1.0}, {(0, 0): 1.0}, {(0, 1): -1.0}])
def test_a_rate_between_none_is_refused(rates: dict[tuple[int, int], float]) -> None:
    with pytest.raises(ValueError, match="no rate between operators"):
        graph("a a", rates)


@given(
    st.lists(st.frozensets(st.sampled_from("abcde")), min_size=1, max_size=8),
    st.dictionaries(st.tuples(st.integers(0, 7), st.integers(0, 7)), st.integers(0, 9), max_size=16),
    st.sampled_from(["comm", "attributes"]),
)
def test_components_are_a_partition_and_have_an_attribute_in_common(
    attributes: list[frozenset[str]], drawn: dict[tuple[int, int], int], score: str
) -> None:
    rates = {(i, j): float(rate) for (i, j), rate in drawn.items() if i < j < len(attributes)}
    found = fuse(Graph(attributes, rates), score)  # type: ignore[arg-type]
    assert sorted(one for part in found.components for one in part) == list(range(len(attributes)))
    where = {one: n for n, part in enumerate(found.components) for one in part}
    for part in found.components:
        common = frozenset.intersection(*(attributes[one] for one in part))
        assert len(part) == 1 or common
    # nothing is left that could be fused, and has a rate
    shared = [frozenset.intersection(*(attributes[one] for one in part)) for part in found.components]
    for (i, j), rate in rates.items():
        assert where[i] == where[j] or not rate or not shared[where[i]] & shared[where[j]]


@given(st.lists(st.frozensets(st.sampled_from("abc")), min_size=1, max_size=6))
def test_a_chain_of_equal_rates_is_fused_from_its_beginning(attributes: list[frozenset[str]]) -> None:
    """As far as anything is in common: what ``elf.ql.components`` rests on."""
    chain = Graph(attributes, {(at, at + 1): 1.0 for at in range(len(attributes) - 1)})
    length, common = 1, attributes[0]
    while length < len(attributes) and common & attributes[length]:
        common &= attributes[length]
        length += 1
    assert fuse(chain, "comm").components[0] == tuple(range(length))


HOUR = Measured(
    rows=1_000, row_cost=1, windows=3, partials=6, state_cost=2, key_groups=10, moved=4, wait_ms=50
)


def test_the_costs_are_those_of_the_paper() -> None:
    costs = costs_of(HOUR)
    assert (costs["split"].cpu, costs["split"].wait_ms) == (1_000 + 6 * 2 * 10 + 4 * 2, 0)
    assert (costs["combine"].cpu, costs["combine"].wait_ms) == (3_000 + 4 * 2 * 6, 200)


def test_the_cheaper_is_chosen_of_those_that_wait_no_longer_than_the_user_accepts() -> None:
    assert split_or_combine(HOUR, 1_000).chosen == "split"
    cheap = replace(HOUR, windows=1)
    assert split_or_combine(cheap, 200).chosen == "combine"
    found = split_or_combine(cheap, 199)
    assert found.chosen == "split"
    assert found.reasons[-1] == "combine waits longer than 199 ms"
    assert split_or_combine(cheap, -1).chosen is None
