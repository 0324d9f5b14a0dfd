"""``elf sim graph``: its scenarios, and that a change that is dear, or leaves servers uneven, is told."""

from __future__ import annotations

import pytest

from elf.planning.stretches import equal
from lab.graphs import model, scenarios


@pytest.mark.parametrize("name", scenarios.SCENARIOS)
def test_what_it_measures_reaches_its_target(name: str) -> None:
    assert scenarios.SCENARIOS[name](1).reached


def test_moving_in_the_background_costs_less_than_at_one_barrier_and_more_than_nothing() -> None:
    for name in ("scale_out", "scale_in"):
        for found in scenarios.SCENARIOS[name](1).measured.values():
            assert 0 < found["contiguous"] < found["contiguous, first cut"] / 2


def test_a_slow_network_makes_the_change_later(monkeypatch: pytest.MonkeyPatch) -> None:
    before = scenarios.servers(5)
    after = scenarios.servers(10)
    assert model.changed(before, after).changed == 4
    monkeypatch.setattr(model, "NETWORK", model.NETWORK / 10)
    assert model.changed(before, after).changed > 4
    assert not scenarios.scale_out(1).reached


def test_uneven_servers_are_as_slow_as_the_busiest() -> None:
    uneven = dict(zip("abc", [(0, 10), (10, 20), (20, model.VERTICES)], strict=True))
    even = dict(zip("abc", equal(model.VERTICES, 3), strict=True))
    assert sum(model.iteration(uneven)) > 2 * sum(model.iteration(even))
