"""Which LATENESS would do, by how many rows came later."""

from __future__ import annotations

from elf.planning.lateness import ROWS_MIN, shares, shorter

BEHIND = {0: 900, 100: 300, 250: 10, 500: 1, 1_000: 0, 2_000: 0, 5_000: 0}


def test_the_shortest_that_leaves_few_rows_out_is_named() -> None:
    found = shorter(2_000.0, 100_000, BEHIND)
    assert found is not None
    assert (found.lateness_ms, found.sooner_ms) == (250, 1_750.0)
    assert found.text.startswith("LATENESS 250 MILLISECONDS would do: 0.010% of the rows")
    assert found.text.endswith("1.75 s sooner")
    assert shorter(2_000.0, 1_000_000, BEHIND).lateness_ms == 250  # type: ignore[union-attr]
    assert shorter(2_000.0, 10_000, BEHIND).lateness_ms == 500  # type: ignore[union-attr]


def test_nothing_is_named_where_it_is_as_short_or_little_is_known() -> None:
    assert shorter(250.0, 100_000, BEHIND) is None
    assert shorter(2_000.0, ROWS_MIN - 1, dict.fromkeys(BEHIND, 0)) is None
    assert shorter(2_000.0, 0, {}) is None
    assert shares(0, BEHIND) == {}
    assert shares(1_000, {0: 10})[0] == 0.01
