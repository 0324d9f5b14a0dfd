"""What is lent of memory and of a day's bytes: who wants little has it, nobody pays for others, and what
cannot be held is sampled."""

from __future__ import annotations

import pytest

from elf.planning.budgets import LOOK_MS, OVER, BudgetKeeper
from elf.planning.days import DAY_MS, Day, paced
from elf.planning.lent import Budget, Budgets, FlowUse, Held, Reader
from elf.planning.memory import fair, memory_bounds

MB = 1_000_000
TOP, LOW, OTHER = Reader("top", "ada"), Reader("low", "ada"), Reader("other", "bob")


def flow(uid: str, memory: int, *readers: Reader, spilled: int = 0) -> FlowUse:
    return FlowUse(uid, 0, 0, readers, Held(memory, 0, spilled))


def test_who_wants_little_has_it_and_the_rest_is_divided() -> None:
    assert fair({"a": 1, "b": 100, "c": 50}, 61) == {"a": 1, "b": 30, "c": 30}
    assert fair({"a": 10, "b": 20}, 100) == {"a": 10, "b": 20}


def test_flows_within_the_budget_are_not_bounded_and_others_are_by_what_they_would_hold() -> None:
    budgets = Budgets(job=Budget(memory_bytes=10 * MB))
    assert memory_bounds([flow("a", 9 * MB, TOP)], budgets) == {}
    held = memory_bounds([flow("a", 10 * MB, TOP, spilled=50 * MB)], budgets)
    assert held == {"a": 10 * MB}, "what is on disk already would be in memory"


def test_a_creator_has_one_budget_and_a_shared_flow_what_its_most_generous_reader_lends() -> None:
    budgets = Budgets(creators={"ada": Budget(memory_bytes=10 * MB)})
    flows = [flow("small", 2 * MB, TOP), flow("large", 90 * MB, LOW)]
    assert memory_bounds(flows, budgets) == {"small": 2 * MB, "large": 8 * MB}
    assert memory_bounds([flow("both", 90 * MB, TOP, OTHER)], budgets) == {}, "bob has no budget"
    both = memory_bounds([flow("both", 90 * MB, TOP, LOW)], budgets)
    assert both == {"both": 10 * MB}, "two jobs of hers have one budget"
    bobs = Budgets(creators={"ada": Budget(memory_bytes=10 * MB), "bob": Budget(memory_bytes=30 * MB)})
    assert memory_bounds([flow("both", 90 * MB, TOP, OTHER)], bobs) == {"both": 60 * MB}


@pytest.mark.parametrize(
    ("held", "weight"), [(Held(9 * MB, 1 * MB, 99 * MB), 1), (Held(12 * MB, 11 * MB), 2)]
)
def test_memory_is_sampled_only_where_disk_cannot_take_it(held: Held, weight: int) -> None:
    keeper = BudgetKeeper(Budgets(job=Budget(memory_bytes=10 * MB)))
    for n in range(OVER + 1):
        found = keeper.look([FlowUse("a", 0, 0, (TOP,), held)], n * LOOK_MS)
    assert found["a"][0] == weight
    (told,) = keeper.told()
    spilled = " (99.0 MB more on disk)" if weight == 1 else ""
    assert told.said.startswith(
        f"job ada/top takes {held.memory_bytes / MB:.1f} of 10.0 MB of memory{spilled} of this agent"
    )


def test_disk_over_its_budget_is_sampled_and_what_has_no_estimate_is_told() -> None:
    keeper = BudgetKeeper(Budgets(creator=Budget(disk_bytes=10 * MB)))
    whole = Reader("users", "bob", "counts what is distinct, or the most frequent")
    held = Held(0, 0, 8 * MB, 8 * MB)
    for n in range(OVER + 1):
        flows = [FlowUse("a", 0, 0, (TOP,), held), FlowUse("b", 0, 0, (whole,), held)]
        found = keeper.look(flows, n * LOOK_MS)
    assert found == {"a": (2, "creator ada"), "b": (1, "")}
    told = keeper.over("bob")
    assert told is not None
    assert "16.0 of 10.0 MB of disk of this agent; not sampled is what counts what is distinct" in told.said


def test_the_first_half_of_a_day_is_free_and_the_rest_lasts_until_midnight() -> None:
    noon = DAY_MS // 2
    assert paced(0, 10**9, noon) is None
    assert paced(1_000_000, 499_999, noon) is None
    assert paced(864_000, 432_000, noon) == 10
    assert paced(864_000, 900_000, noon) == 0


@pytest.mark.parametrize("times", [0.9, 3, 20])
def test_a_day_has_no_more_than_its_bytes_and_who_is_within_them_is_never_held(times: float) -> None:
    budget = Budgets(job=Budget(up_bytes_per_day=8_640_000))
    keeper, weight, up, start = BudgetKeeper(budget), 1, 0.0, 20_000 * DAY_MS
    for now_ms in range(start, start + DAY_MS, 6 * LOOK_MS):
        up += times * 100 * 6 * LOOK_MS / 1000 / weight
        weight = keeper.look([FlowUse("a", 0, int(up), (TOP,))], now_ms)["a"][0]
        assert weight == 1 or times > 1
    assert up <= 8_640_000 * 1.03
    assert up >= min(times, 1) * 8_640_000 * 0.6, "and it is used"
    keeper.look([FlowUse("a", 0, int(up), (TOP,))], start + DAY_MS)
    assert keeper.day.of("job ada/top") == 0, "a new day"


def test_a_restart_gives_nobody_the_day_again() -> None:
    day = Day()
    day.add({"job ada/top": 5}, DAY_MS)
    day.add({"job ada/top": 5}, DAY_MS + 1)
    again = Day.restored(day.image())
    assert (again.number, again.of("job ada/top"), again.of("job x")) == (1, 10, 0)
    assert Day.restored(b"\xff").taken == Day.restored(None).taken == {}
