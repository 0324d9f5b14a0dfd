"""The reference of ``elf sim chaos``, on rows that can be added up in the head."""

from __future__ import annotations

from collections import Counter

import pytest

from elf.fields import replace
from elf.ql.plan import Plan
from lab.chaos.engine import SECOND, plan, staged
from lab.chaos.jobs import query_of
from lab.chaos.reference import (
    BANG,
    BOOM,
    DROPPING,
    SEVERAL,
    Counts,
    Span,
    is_right,
    reduced,
    reducing,
    several,
)

ROWS = {0: "aab", 2: "abbbbc", 4: "bc"}
"""By second."""
WHOLE = {"a": 3, "b": 6, "c": 2}
JOINED = {"a": 6, "b": 12, "c": 4}


def sums(side: int, span: Span) -> Counts:
    return Counter(key for at, keys in ROWS.items() if span[0] <= at * SECOND < span[1] for key in keys)


def abc_only(side: int, span: Span) -> Counts:
    """The second side of a join lacks b."""
    found = sums(side, span)
    return Counter({key: n for key, n in found.items() if key != "b"}) if side else found


@pytest.mark.parametrize(
    ("query", "counts"),
    [
        (plan(6), WHOLE),
        (plan(6, least=3), {"a": 3, "b": 6}),
        (staged(plan(2), 6, 2), WHOLE),
        (staged(plan(2, least=2), 6, 2), {"a": 2, "b": 4}),
        (replace(staged(plan(2, least=2), 6, 2), final_sql="3"), {"b": 4}),
        (replace(plan(6), beside=(plan(6),)), JOINED),
        (replace(plan(6), final=DROPPING), {"b": 6, "c": 2}),
        (query_of("top"), {"a": 3, "b": 6}),
    ],
)
def test_it_takes_these_rows_and_no_others(query: Plan, counts: dict[str, int]) -> None:
    span = (0, 6 * SECOND)
    assert is_right(query, Counter(counts), sums, span)
    for key in counts:
        assert not is_right(query, Counter({**counts, key: counts[key] + 1}), sums, span)
        assert not is_right(query, Counter({k: n for k, n in counts.items() if k != key}), sums, span)
    assert not is_right(query, Counter({**counts, "z": 1}), sums, span)


def test_joined_jobs_have_the_keys_of_all() -> None:
    query, span = replace(plan(6), beside=(plan(6),)), (0, 6 * SECOND)
    assert is_right(query, Counter({"a": 6, "c": 4}), abc_only, span)
    assert not is_right(query, Counter(JOINED), abc_only, span)


def test_a_final_function_that_fails_must_have_been_taken_out() -> None:
    query, span = replace(plan(6), final=DROPPING), (0, 6 * SECOND)

    def booming(side: int, span: Span) -> Counts:
        return sums(side, span) + Counter([BOOM])

    treated, whole = Counter({"b": 6, "c": 2, BOOM: 1}), Counter({**WHOLE, BOOM: 1})
    assert not is_right(query, treated, booming, span)
    assert is_right(query, whole, booming, span, failed=True)
    assert not is_right(query, whole, booming, span)


@pytest.mark.parametrize("least", SEVERAL.values())
def test_a_reduce_function_leaves_out_groups_that_a_pane_may_have_once_all_is_there(least: int) -> None:
    """So it is not the same whether it gets parts of a pane one by one."""
    fragment = reducing(plan(2), least).fragment
    assert fragment.reduce is not None
    assert fragment.reduce.function == several(least)
    part, rest = Counter({"a": least, "b": least - 1}), Counter({"b": 1, "c": 1})
    first = reduced(fragment, part, failed=False)
    assert first == {"a": least}
    assert reduced(fragment, part + rest, failed=False) == {"a": least, "b": least}
    assert reduced(fragment, first + rest, failed=False) == {"a": least}
    assert reduced(fragment, part, failed=True) == part
    assert reduced(fragment, part + Counter([BANG]), failed=False) is None
