"""Which rows are left out so that others are in time: the dearest, no more than it takes, and given back."""

from __future__ import annotations

import random
from itertools import product

import pytest

from elf.planning.budgets import WEIGHT_MAX
from elf.planning.overload import LOOK_MS, FlowLoad, Lag, Overload, fitted


class Stream:
    """A stream task that has a second of time by the second. ``costs``: of all rows of a flow, in ms for each
    second of lines; ``shared``: what all have in common."""

    def __init__(self, shared: float, costs: dict[str, tuple[float, float | None]]) -> None:
        self.shared, self.costs = shared, costs
        self.overload, self.lag_ms, self.now_ms = Overload(), 0.0, 0
        self.times = 1.0
        self.research: set[str] = set()
        self.tells_rows, self.alone = False, 0.0
        """What a flow takes by itself, whatever its weight, by the second."""
        self.core, self.cpu_ms = 1.0, 0.0
        """How much of a core the task gets, and has got; how long it was at work."""
        self.busy_ms = 0.0

    def run(self, secs: int) -> list[float]:
        """Lags, one a look."""
        found = []
        for _ in range(secs * 1000 // LOOK_MS):
            held = self.overload.weights
            a_second = self.shared + sum(ms / held.get(uid, 1) for uid, (ms, _) in self.costs.items())
            a_second *= self.times / self.core
            fixed = self.alone * len(self.costs) * LOOK_MS / 1000
            lines_s = min(LOOK_MS / 1000 + self.lag_ms / 1000, (LOOK_MS - fixed) / a_second)
            self.busy_ms += fixed + lines_s * a_second
            self.cpu_ms += (fixed + lines_s * a_second) * self.core
            self.lag_ms += LOOK_MS - 1000 * lines_s
            self.lag_ms = max(0.0, self.lag_ms)
            self.now_ms += LOOK_MS
            flows = [
                FlowLoad(
                    uid, lines_s * self.times * ms / held.get(uid, 1) + self.alone * LOOK_MS / 1000, within,
                    is_able=within is not None or uid in self.research, gives_way=uid in self.research,
                    rows=round(10_000 * lines_s * self.times) if self.tells_rows else 0,
                )
                for uid, (ms, within) in self.costs.items()
            ]  # fmt: skip
            self.overload.look(flows, Lag(self.lag_ms, self.busy_ms, self.cpu_ms, self.now_ms), self.now_ms)
            found.append(self.lag_ms)
        return found


@pytest.mark.parametrize("times", [1.4, 1.8])
def test_who_promises_is_in_time_again_and_loses_no_more_rows_than_it_takes(times: float) -> None:
    stream = Stream(300.0, {"dear": (400.0, 500.0), "cheap": (100.0, 500.0), "free": (150.0, None)})
    assert stream.run(20) == [0.0] * 10
    assert not stream.overload.weights
    stream.times = times
    lags = stream.run(60)
    assert lags[-1] == 0.0, "it has caught up"
    assert sum(lag > 0 for lag in lags) <= 8
    held = stream.overload.weights
    assert "free" not in held, "who promises nothing loses nothing"
    assert held["dear"] > held.get("cheap", 1), "the dearest first"
    kept = sum(1 / held.get(uid, 1) for uid in ("dear", "cheap")) / 2
    # an oracle knows what comes: the best of all weights that keep up
    best = max(
        (1 / dear + 1 / cheap) / 2
        for dear, cheap in product([2**n for n in range(7)], repeat=2)
        if times * (450.0 + 400.0 / dear + 100.0 / cheap) <= 1_000.0 or (dear, cheap) == (64, 64)
    )
    assert kept >= (0.9 if times == 1.4 else 0.8) * best


def test_what_was_left_out_comes_back_when_there_is_room_and_not_before() -> None:
    stream = Stream(300.0, {"dear": (500.0, 500.0)})
    stream.times = 1.5
    stream.run(30)
    held = dict(stream.overload.weights)
    assert held["dear"] > 1
    assert stream.run(600) == [0.0] * 300
    assert stream.overload.weights == held, "nothing is tried that the flows do not tell"
    stream.times = 1.0
    stream.run(20)
    assert not stream.overload.weights
    assert stream.lag_ms == 0.0


def test_where_nobody_promises_nothing_is_left_out() -> None:
    stream = Stream(300.0, {"a": (5_000.0, None), "b": (100.0, None)})
    stream.run(60)
    assert not stream.overload.weights
    assert stream.lag_ms > 10_000


def test_what_catches_up_by_itself_loses_no_more() -> None:
    """A burst: the agent is behind, and gets nearer."""
    stream = Stream(200.0, {"a": (100.0, 500.0)})
    stream.run(10)
    stream.lag_ms = 8_000.0
    stream.overload._lag = Lag(8_000.0)
    stream.run(20)
    assert not stream.overload.weights
    assert stream.lag_ms == 0.0


def test_a_flow_that_is_gone_or_that_somebody_else_reads_too_is_mapped_whole() -> None:
    stream = Stream(900.0, {"a": (900.0, 500.0), "b": (500.0, 500.0)})
    stream.run(20)
    assert set(stream.overload.weights) == {"a", "b"}
    stream.costs = {"b": (500.0, None)}
    stream.run(LOOK_MS // 1000)
    assert not stream.overload.weights


def test_as_many_rows_are_kept_as_can_be() -> None:
    """Beside brute force over all weights."""
    rng, parts = random.Random(3), []
    for _ in range(100):
        whole = {name: rng.choice([5.0, 40.0, 300.0, 900.0]) for name in "abc"}
        shared, until = rng.choice([0.0, 200.0]), rng.uniform(250.0, 1_500.0)
        found = fitted(shared, whole, until)
        levels = [2**n for n in range(WEIGHT_MAX.bit_length())]
        able = [
            one
            for one in product(levels, repeat=3)
            if shared + sum(cost / w for cost, w in zip(whole.values(), one, strict=True)) <= until
        ]
        assert tuple(found.values()) in able
        most = max(sum(1 / w for w in one) for one in able)
        parts.append(sum(1 / w for w in found.values()) / most)
    assert min(parts) > 0.75
    assert sum(parts) / len(parts) > 0.97
    assert set(fitted(2_000.0, {"a": 9.0, "b": 1.0}, 1_000.0).values()) == {WEIGHT_MAX}, "as far as it goes"


def test_nothing_is_decided_by_the_first_look() -> None:
    overload = Overload()
    assert overload.due(0)
    assert overload.look([FlowLoad("a", 900.0, 100.0)], Lag(5_000.0), 0) == {}
    assert not overload.due(LOOK_MS - 1)
    assert overload.look([FlowLoad("a", 1_990.0, 100.0)], Lag(7_000.0), LOOK_MS)["a"] > 1


def test_no_row_is_left_out_in_vain() -> None:
    """What all flows have in common takes more than there is."""
    stream = Stream(1_200.0, {"a": (300.0, 500.0)})
    stream.run(60)
    assert not stream.overload.weights


def test_where_others_are_at_work_all_takes_longer_by_as_much() -> None:
    """The agent gets two fifths of a core: what it takes by itself is not what it waits."""
    stream = Stream(100.0, {"dear": (500.0, 500.0), "cheap": (100.0, 500.0)})
    stream.core = 0.4
    lags = stream.run(60)
    assert lags[-1] == 0.0
    held = stream.overload.weights
    assert (100 + 500 / held["dear"] + 100 / held.get("cheap", 1)) / 0.4 <= 1_000
    stream.core = 1.0
    stream.run(600)
    assert not stream.overload.weights


def test_research_gives_way_to_who_promises_and_is_whole_where_nobody_does() -> None:
    costs: dict[str, tuple[float, float | None]]
    costs = {"dear": (400.0, 500.0), "small": (150.0, None), "promising": (150.0, 2_000.0)}
    stream = Stream(300.0, costs)
    stream.research = {"small", "promising"}
    stream.times = 1.2
    assert stream.run(60)[-1] == 0.0
    held = dict(stream.overload.weights)
    assert set(held) == {"small", "promising"}, "the dear one is production: what gives way was enough"
    stream.times = 1.7
    assert stream.run(60)[-1] < 250.0
    held = dict(stream.overload.weights)
    assert held["dear"] == 2, "what gives way is not enough any more"
    assert min(held["small"], held["promising"]) > 1
    stream.costs = {uid: (ms, None) for uid, (ms, _) in costs.items()}
    stream.run(20)
    assert not stream.overload.weights, "there is nobody whom anything is left out for"


def test_what_a_flow_takes_by_itself_is_not_taken_for_its_rows() -> None:
    """Each pane takes something however few rows it has: at high weights that is most of it."""
    stream = Stream(100.0, dict.fromkeys("abcdefgh", (100.0, 500.0)))
    stream.tells_rows, stream.alone = True, 30.0
    stream.times = 2.5
    stream.run(30)
    assert len(stream.overload.weights) >= 6
    stream.times = 1.0
    assert stream.run(120)[-1] == 0.0
    held = stream.overload.weights
    kept = sum(1 / held.get(uid, 1) for uid in "abcdefgh")
    assert 100 + 100 * kept + 8 * stream.alone <= 1_000
    assert kept >= 4.8, "an oracle keeps six"


def test_many_flows_are_weighed_in_the_time_that_there_is() -> None:
    whole = {f"flow {n}": 1.0 + n % 7 for n in range(20_000)}
    found = fitted(100.0, whole, 2_000.0)
    takes = 100.0 + sum(cost / found[uid] for uid, cost in whole.items())
    assert takes <= 2_000.0 + 1e-6
    assert min(found.values()) < max(found.values())


def test_research_gives_way_also_to_a_promise_of_who_is_mapped_whole() -> None:
    overload, now_ms = Overload(), 0
    for lag_ms in (0.0, 1_000.0, 2_000.0, 3_000.0, 4_000.0):
        flows = [
            FlowLoad("distinct", 500.0, 500.0, is_able=False),
            FlowLoad("research", 1_400.0, gives_way=True),
        ]
        overload.look(flows, Lag(lag_ms), now_ms)
        now_ms += LOOK_MS
    assert set(overload.weights) == {"research"}
