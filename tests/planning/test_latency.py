"""The model of latency against simulations of what it is a model of."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from elf.fields import replace
from elf.planning import latency
from elf.planning.latency import Costs, Member, Moments
from elf.planning.phases import ABOUT

ROWS = 400_000


def waits(apart: np.ndarray, takes: np.ndarray) -> np.ndarray:
    """Lindley's recursion, after a warm-up."""
    sums = np.concatenate([[0.0], np.cumsum(takes[:-1] - apart[1:])])
    return (sums - np.minimum.accumulate(sums))[ROWS // 10 :]


def close(found: float, simulated: float, within: float) -> None:
    assert abs(found - simulated) <= within * simulated, (found, simulated)


@pytest.mark.parametrize("busy", [0.3, 0.6, 0.85])
@pytest.mark.parametrize(
    ("comes", "takes", "mean_within", "sd_within"),
    [
        ("poisson", "exponential", 0.1, 0.1),
        ("poisson", "fixed", 0.1, 0.1),
        ("poisson", "two kinds", 0.1, 0.15),
        ("regular", "exponential", 0.25, 0.25),
        ("halves", "two kinds", 0.25, 0.45),
    ],
)
def test_a_queue(comes: str, takes: str, busy: float, mean_within: float, sd_within: float) -> None:
    rng = np.random.default_rng(7)
    draws: dict[str, Callable[[], np.ndarray]] = {
        "poisson": lambda: rng.exponential(1.0, ROWS),
        "regular": lambda: rng.gamma(4.0, 0.25, ROWS),
        "halves": lambda: rng.gamma(2.0, 0.5, ROWS),
        "exponential": lambda: rng.exponential(busy, ROWS),
        "fixed": lambda: np.full(ROWS, busy),
        "two kinds": lambda: rng.choice([0.25, 2.5], ROWS, p=[2 / 3, 1 / 3]) * busy,
    }
    apart, served = draws[comes](), draws[takes]()
    simulated = waits(apart, served)
    found = latency.queueing(latency.measured(apart), latency.measured(served))
    close(found.mean, float(simulated.mean()), mean_within)
    close(found.deviation, float(simulated.std()), sd_within)


def test_a_queue_that_is_too_busy_has_no_mean_and_a_regular_one_no_wait() -> None:
    once = latency.measured([1.0])
    with pytest.raises(ValueError, match=r"1\.00 times as busy"):
        latency.queueing(once, once)
    assert latency.queueing(latency.measured([2.0]), once) == latency.NONE


@pytest.mark.parametrize("count", [1, 2, 5, 16, 17, 64, 320])
def test_the_last_of_several(count: int) -> None:
    rng = np.random.default_rng(3)
    last = rng.normal(10.0, 2.0, (40_000, count)).max(axis=1)
    found = latency.last_of(count, Moments(10.0, 4.0))
    close(found.mean, float(last.mean()), 0.01)
    close(found.deviation, float(last.std()), 0.02 if count <= 16 else 0.1)


@pytest.mark.parametrize("rates", [[100.0] * 8, [5.0, 20.0, 20.0], [0.5], [2.0] * 16])
def test_the_last_agent_that_sees_a_line_beyond(rates: list[float]) -> None:
    rng = np.random.default_rng(5)
    comes = rng.exponential(1.0, (20_000, len(rates))) / np.array(rates)
    looks = np.cumsum([min(0.05 * 1.05**n, 0.2) for n in range(2_000)])
    seen = looks[np.searchsorted(looks, comes.max(axis=1))]
    found = latency.last_poll(rates)
    close(found.mean, float(seen.mean()), 0.03)
    assert abs(found.deviation - float(seen.std())) < max(0.05 * float(seen.std()), 0.002)
    assert latency.last_poll([]) == latency.last_poll([0.0]) == latency.NONE


def test_batches_and_rows_within_them() -> None:
    rng = np.random.default_rng(1)
    inside = rng.random(ROWS)
    found = latency.batching(6.0)
    close(found.mean, float((6 * inside).mean()), 0.01)
    close(found.variance, float((6 * inside).var()), 0.01)
    whole = rng.gamma(9.0, 2.0, ROWS)
    found = latency.within_batch(Moments(float(whole.mean()), float(whole.var())))
    close(found.mean, float((whole * inside).mean()), 0.01)
    close(found.variance, float((whole * inside).var()), 0.01)


def test_shared_cpu_is_that_of_one_thread_or_of_what_others_leave() -> None:
    work = Moments(10.0, 4.0)
    assert latency.shared_cpu(work, 4, 0.5) == work, "half of four cores is more than a thread can use"
    assert latency.shared_cpu(work, 4, 0.875) == Moments(20.0, 16.0), "half a core is left"
    assert latency.within_batch(latency.shared_cpu(Moments(10.0), 1, 0.5)).mean == 10.0, "equation 2"
    with pytest.raises(ValueError, match="others take 1 of 2 cores"):
        latency.shared_cpu(work, 2, 1.0)


def test_results_that_come_in_steps() -> None:
    rng = np.random.default_rng(2)
    for steps in (1, 4, 100):
        comes = (np.floor(rng.random(ROWS) * steps) + 1) * 3.0 / steps
        found = latency.spread(steps, 3.0)
        close(found.mean, float(comes.mean()), 0.01)
        assert abs(found.variance - float(comes.var())) < 0.01


def test_quantiles() -> None:
    found = Moments(10.0, 4.0)
    assert math.isclose(latency.normal_quantile(found, 0.99), 10 + 2 * 2.3263, rel_tol=1e-4)
    assert math.isclose(latency.cantelli_quantile(found, 0.99), 10 + 2 * math.sqrt(99))
    rng = np.random.default_rng(4)
    for drawn in (rng.exponential(3.0, ROWS), rng.pareto(3.0, ROWS), rng.random(ROWS)):
        of = Moments(float(drawn.mean()), float(drawn.var()))
        assert np.quantile(drawn, 0.99) <= latency.cantelli_quantile(of, 0.99)


def test_phases_of_a_pane_have_the_names_of_what_is_measured() -> None:
    costs = Costs(sync=Moments(4.0, 1.0), hop=Moments(0.5), depth=2, draft=3.0)
    found = latency.phases_of_pane([Member(50.0, 2.0), Member(20.0, 4.0)], costs)
    assert tuple(found) == tuple(ABOUT)
    assert (found["seal"], found["tree"]) == (Moments(7.0, 1.0), Moments(1.0))
    assert (found["draft"], found["window"]) == (Moments(3.0), latency.NONE)
    assert 50 < found["wait"].mean < 110
    assert found["commit"].mean > 5
    agreed = replace(costs, agreed=Moments(1.0, 2.0), queued=Moments(5.0, 3.0), made=2.0)
    found = latency.phases_of_pane([], agreed)
    assert (found["draft"], found["commit"]) == (Moments(10.0, 3.0), Moments(1.0, 2.0))
    assert latency.phases_of_pane([], replace(agreed, window=4.0))["window"] == Moments(10.5, 5.0)
    beside = latency.phases_of_pane([], replace(costs, window=6.0, cores=2, others=0.75))
    assert beside["draft"].mean == 6.0
    assert beside["window"].mean > 12.0
    assert latency.total(beside.values()).mean == pytest.approx(sum(one.mean for one in beside.values()))
