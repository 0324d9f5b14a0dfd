"""Budgets are held within seconds, given back within a minute, and nobody pays for others."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from elf.planning.budgets import (
    CALM,
    LOOK_MS,
    OVER,
    WEIGHT_MAX,
    BudgetKeeper,
)
from elf.planning.lent import Budget, Budgets, FlowUse, Reader

TOP, LOW = Reader("top", "ada"), Reader("low", "bob")
FIVE = Budgets(job=Budget(cpu_share=0.05))


class Host:
    """Flows that cost so much of a core when all rows count, less a tenth that they always cost."""

    def __init__(self, budgets: Budgets, **flows: tuple[float, tuple[Reader, ...]]) -> None:
        self.keeper = BudgetKeeper(budgets)
        self.flows = flows
        self.weights: dict[str, tuple[int, str]] = dict.fromkeys(flows, (1, ""))
        self.spent = dict.fromkeys(flows, 0.0)
        self.now_ms = 1_000_000
        self.look()

    def share(self, uid: str) -> float:
        return self.flows[uid][0] * (0.1 + 0.9 / self.weights[uid][0])

    def look(self) -> dict[str, tuple[int, str]]:
        self.now_ms += LOOK_MS
        for uid in self.flows:
            self.spent[uid] += self.share(uid) * LOOK_MS * 1e3
        uses = [FlowUse(uid, int(self.spent[uid]), 0, of) for uid, (_, of) in self.flows.items()]
        found = self.keeper.look(uses, self.now_ms)
        changed = {uid: one for uid, one in found.items() if one != self.weights[uid]}
        self.weights |= changed
        return changed

    def looks(self, count: int) -> Iterator[dict[str, tuple[int, str]]]:
        return (self.look() for _ in range(count))


@pytest.mark.parametrize("share", [0.01, 0.06, 0.2, 0.4])
def test_a_job_is_within_its_budget_in_a_minute_and_stays_there(share: float) -> None:
    host = Host(FIVE, one=(share, (TOP,)))
    changes = [one for one in host.looks(60 // 5) if one]
    assert host.share("one") <= 0.05
    assert len(changes) <= 6
    assert not any(host.looks(100))
    weight, whose = host.weights["one"]
    assert (weight > 1, whose) == (share > 0.05, "job ada/top" if share > 0.05 else "")


def test_rows_come_back_when_there_is_room_again() -> None:
    host = Host(FIVE, one=(0.4, (TOP,)))
    list(host.looks(30))
    assert host.weights["one"][0] > 4
    host.flows["one"] = (0.02, (TOP,))
    changes = sum(bool(one) for one in host.looks(60))
    assert host.weights["one"] == (1, "")
    assert changes <= 6


def test_a_burst_of_one_look_changes_nothing() -> None:
    host = Host(FIVE, one=(0.01, (TOP,)))
    host.flows["one"] = (0.08, (TOP,))
    host.look()
    host.flows["one"] = (0.01, (TOP,))
    assert not any(host.looks(5))


def test_nobody_pays_for_the_budget_of_another_who_reads_the_same() -> None:
    budgets = Budgets(jobs={"ada/top": Budget(cpu_share=0.01)})
    host = Host(budgets, both=(0.4, (TOP, LOW)), own=(0.4, (TOP,)))
    list(host.looks(20))
    assert host.weights == {"both": (1, ""), "own": (WEIGHT_MAX, "job ada/top")}


@pytest.mark.parametrize("whole", ["", "runs people's code"])
def test_jobs_of_one_name_of_two_creators_have_two_budgets(whole: str) -> None:
    same = Reader("top", "mallory", whole)
    host = Host(FIVE, hers=(0.01, (TOP,)), his=(0.4, (same,)))
    list(host.looks(20))
    assert host.weights["hers"] == (1, ""), "a namesake that takes more"
    host = Host(FIVE, hers=(0.4, (TOP,)), his=(0.01, (same,)))
    list(host.looks(20))
    assert host.weights["hers"][0] > 1, "a namesake that is never sampled"
    assert host.weights["his"] == (1, "")
    named = Host(Budgets(jobs={"ada/top": Budget(cpu_share=0.05)}), his=(0.4, (same,)))
    assert not any(named.looks(20)), "a namesake of one that has a budget of its own"


def test_a_creator_has_one_budget_for_all_jobs_and_names_have_their_own() -> None:
    budgets = Budgets(creator=Budget(cpu_share=0.1), creators={"bob": Budget()})
    second = Reader("second", "ada")
    host = Host(budgets, one=(0.08, (TOP,)), two=(0.08, (second,)), three=(0.9, (LOW,)))
    list(host.looks(20))
    assert {uid: whose for uid, (_, whose) in host.weights.items()} == {
        "one": "creator ada",
        "two": "creator ada",
        "three": "",
    }
    assert host.share("one") + host.share("two") <= 0.1
    assert host.keeper.over("ada") is not None
    assert host.keeper.over("bob") is None


def test_nothing_is_left_out_in_vain() -> None:
    whole = Reader("users", "ada", "counts what is distinct, or the most frequent")
    host = Host(Budgets(creator=Budget(cpu_share=0.1)), cheap=(0.05, (TOP,)), dear=(0.2, (whole,)))
    assert not any(host.looks(40)), "what is never sampled is over the budget alone"
    told = host.keeper.over("ada")
    assert told is not None, "and that is said"
    assert "not sampled is what counts what is distinct" in told.said
    host.flows["dear"] = (0.08, (whole,))
    list(host.looks(20))
    assert host.weights["cheap"] == (4, "creator ada"), "there a weight helps"
    assert host.share("cheap") + host.share("dear") <= 0.1
    host.flows["dear"] = (0.2, (whole,))
    list(host.looks(3 * CALM))
    assert host.weights["cheap"] == (1, ""), "and is given back when it helps no longer"


def test_each_bound_is_held_where_it_can_be() -> None:
    keeper = BudgetKeeper(Budgets(creator=Budget(cpu_share=0.1, up_bytes_per_sec=1_000)))
    dear = Reader("dear", "ada", "runs people's code")
    for n in range(OVER + 1):
        flows = [FlowUse("up", 0, n * 10_000, (TOP,)), FlowUse("dear", n * 1_000_000, 0, (dear,))]
        found = keeper.look(flows, n * LOOK_MS)
    assert found["up"] == (2, "creator ada"), "bytes can be, CPU can not"


def test_what_has_no_estimate_is_whole_and_that_is_said() -> None:
    whole = Reader("top", "ada", "counts what is distinct, or the most frequent")
    host = Host(FIVE, one=(0.4, (whole,)))
    list(host.looks(20))
    assert host.weights == {"one": (1, "")}
    (told,) = host.keeper.told()
    assert "not sampled is what counts what is distinct" in told.said


def test_bytes_up_have_a_budget_of_their_own() -> None:
    keeper = BudgetKeeper(Budgets(job=Budget(up_bytes_per_sec=1_000)))
    for n in range(OVER + 1):
        found = keeper.look([FlowUse("one", 0, n * 10_000, (TOP,))], n * LOOK_MS)
    assert found == {"one": (2, "job ada/top")}
    (told,) = keeper.told()
    assert told.said == "job ada/top takes 2,000 of 1,000 bytes up a second of this agent, with one row in 2"


def test_where_nobody_has_a_budget_an_agent_may_still_fall_behind() -> None:
    keeper = BudgetKeeper(Budgets())
    assert not keeper.bounds
    assert keeper.look([], 0) == {}
    keeper.waited(10**6, LOOK_MS)
    assert keeper.bounds
    assert keeper.look([FlowUse("one", 0, 0, (TOP,))], 2 * LOOK_MS) == {"one": (2, "the agent")}


def test_an_agent_that_falls_behind_is_sampled_until_it_catches_up() -> None:
    keeper, now_ms = BudgetKeeper(Budgets(lag_ms=60_000)), 0
    flows = [FlowUse("one", 0, 0, (TOP,))]

    def after(lag_ms: int) -> tuple[int, str]:
        nonlocal now_ms
        now_ms += LOOK_MS
        if lag_ms:
            keeper.waited(lag_ms, now_ms)
        return keeper.look(flows, now_ms)["one"]

    assert after(0) == (1, "")
    assert [after(lag) for lag in (10_000, 59_000)] == 2 * [(1, "")], "it is read late first"
    assert after(61_000) == (2, "the agent")
    assert after(66_000) == (2, "the agent"), "what that does is not seen yet"
    assert after(71_000) == (4, "the agent")
    assert {after(lag) for lag in (70_000, 65_000, 62_000)} == {(4, "the agent")}, "it catches up"
    for _ in range(3 * CALM):
        after(0)
    assert after(0) == (1, "")
    assert keeper.told() == []


def test_without_lag_secs_an_agent_is_only_read_late() -> None:
    keeper = BudgetKeeper(Budgets(lag_ms=0))
    for n in range(20):
        keeper.waited(n * 60_000, n * LOOK_MS)
    assert keeper.look([FlowUse("one", 0, 0, (TOP,))], 10**6) == {"one": (1, "")}
