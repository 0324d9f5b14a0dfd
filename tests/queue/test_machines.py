"""The queue's state machines and policies, a step at a time."""

from __future__ import annotations

import math
import random
from itertools import product

import pytest

from elf.errors import ElfBug, UserError
from spark_backend.queue.attempts import TERMINAL, TRANSITIONS, Attempt, Checkpoint, Event, State
from spark_backend.queue.manager import Manager, Request
from spark_backend.queue.master import FAILURES_MAX, Master, Task
from spark_backend.queue.policies import (
    Draw,
    Policies,
    RunEviction,
    Selection,
    TaskEviction,
    victim_run,
    victim_tasks,
)
from spark_backend.queue.progress import SMOOTHING_MS, Rate

FIRST = Policies()


def at_place(at: int) -> Draw:
    return lambda n: at


def never(n: int) -> int:
    raise AssertionError("nothing is left to chance here")


def test_eviction_and_selection_go_together_or_are_refused() -> None:
    for runs, selection in product(RunEviction, Selection):
        if selection is Policies(runs).serving:
            assert Policies(runs, selection=selection).serving is selection
        else:
            with pytest.raises(UserError, match=f"{runs} goes with"):
                Policies(runs, selection=selection)
    assert Policies(RunEviction.MDF).serving is Selection.EDF
    assert Policies(RunEviction.MLF).serving is Selection.LLF


def test_which_run_gives_way() -> None:
    held = {"a": 3, "b": 8, "c": 3}
    assert victim_run(RunEviction.MR, held, never) == "b"
    assert [victim_run(RunEviction.LR, held, at_place(at)) for at in (0, 1)] == ["a", "c"]
    chances = [victim_run(RunEviction.PR, held, at_place(at)) for at in range(14)]
    assert {name: chances.count(name) for name in held} == held
    with pytest.raises(ValueError, match="containers"):
        victim_run(RunEviction.MDF, held, never)


def test_which_task_gives_way() -> None:
    remaining = {"long": 9.0, "short": 1.0, "new": math.inf, "mid": 4.0}
    assert victim_tasks(TaskEviction.SRT, remaining, 2, never) == ["short", "mid"]
    assert victim_tasks(TaskEviction.LRT, remaining, 2, never) == ["new", "long"]
    assert sorted(victim_tasks(TaskEviction.RANDOM, remaining, 9, lambda n: n - 1)) == sorted(remaining)


def test_a_rate_is_smoothed() -> None:
    rate = Rate(0, 0.0)
    assert rate.remaining_ms == math.inf
    rate.seen(1_000, 0.1)
    assert rate.remaining_ms == pytest.approx(9_000)
    rate.seen(900, 0.9)  # old
    rate.seen(2_000, 0.05)  # goes back
    assert rate.progress == 0.1
    rate.seen(1_000 + SMOOTHING_MS, 0.1)  # stood still
    assert rate.per_ms == pytest.approx(0.1 / 1_000 / math.e)


def test_an_attempt_goes_by_its_table_alone() -> None:
    for state, event in product(State, Event):
        attempt = Attempt("t.0", "t", Checkpoint(), state)
        if (state, event) in TRANSITIONS:
            attempt.do(event)
            assert attempt.state is TRANSITIONS[state, event]
            assert state not in TERMINAL
        else:
            with pytest.raises(ElfBug, match=f"{event} in {state}"):
                attempt.do(event)


def full_of_research(policies: Policies = FIRST, slots: int = 3) -> Manager:
    manager = Manager({"h": slots}, policies, lambda n: 0)
    manager.submit("research", deadline_ms=900_000)
    manager.heartbeat("research", [Request(f"r{n}") for n in range(slots)])
    manager.assign(0)
    assert len(manager.heartbeat("research", []).granted) == slots
    manager.submit("production", production=True, deadline_ms=100_000)
    return manager


@pytest.mark.parametrize("policies", [FIRST, Policies(RunEviction.MDF)])
def test_a_container_is_reclaimed_once_and_goes_to_who_waits(policies: Policies) -> None:
    manager = full_of_research(policies)
    wanted = [Request("p0"), Request("p1")]
    manager.heartbeat("production", wanted)
    for now in (1_000, 2_000):
        assert manager.preempt(now) == []
    assert len(manager.app("production").reclaims) == 2
    assert manager.heartbeat("research", []).release == 2
    assert manager.heartbeat("research", []).release == 0
    manager.heartbeat("research", [Request("r0", resuming=True)])
    manager.freed("research", ["c1"], 3_000)
    assert [one.request.attempt for one in manager.heartbeat("production", wanted).granted] == ["p0"]
    assert len(manager.app("production").reclaims) == 1
    manager.check()


def test_who_resumes_goes_before_new_research_and_behind_production() -> None:
    manager = full_of_research(slots=1)
    manager.submit("other")
    manager.heartbeat("research", [Request("new"), Request("resumes", resuming=True)])
    manager.heartbeat("other", [Request("resumes-too", resuming=True)])
    manager.heartbeat("production", [Request("p")])
    assert [one.attempt for _, one in manager.waiting()] == ["p", "resumes", "resumes-too", "new"]


def test_a_victim_is_not_told_of_what_has_come_otherwise() -> None:
    manager = full_of_research()
    manager.heartbeat("production", [Request("p0")])
    manager.preempt(1_000)
    manager.freed("research", ["c2"], 1_500)  # it has ended
    assert manager.heartbeat("research", []).release == 0


def test_who_gives_nothing_back_is_killed_after_12_s_and_the_reclaim_forgotten_2_s_later() -> None:
    manager = full_of_research()
    manager.heartbeat("production", [Request("p0")])
    manager.preempt(0)
    manager.heartbeat("research", [], suspending=["r1"])
    assert manager.preempt(12_000) == []
    [killed] = manager.preempt(12_001)
    assert killed.request.attempt == "r1"  # which was asked, and not the last one
    app = manager.app("production")
    assert (len(app.reclaims), len(app.expired)) == (0, 1)
    assert manager.preempt(13_000) == []
    assert not app.reclaims  # it still counts
    manager.preempt(14_001)
    assert (len(app.reclaims), len(app.expired)) == (1, 0)


def test_a_deadline_that_is_no_earlier_evicts_nobody() -> None:
    manager = full_of_research(Policies(RunEviction.MDF))
    manager.submit("later", deadline_ms=900_000)
    manager.heartbeat("later", [Request("l0")])
    manager.preempt(1_000)
    assert not manager.app("later").reclaims


def launch(manager: Manager, master: Master, now: int) -> list[str]:
    found = []
    for _ in range(2):  # what is asked for with the first heartbeat comes with the second one
        launches, unused = master.told(manager.heartbeat(master.run, master.requests()))
        assert not unused
        for one in launches:
            master.launched(one.attempt, now)
        found += [one.attempt for one in launches]
        manager.assign(now)
    return found


def two_tasks() -> tuple[Manager, Master]:
    manager = Manager({"h": 2}, FIRST, lambda n: 0)
    manager.submit("run")
    inputs = tuple("abcd")
    return manager, Master("run", [Task("t", inputs), Task("u", inputs)], TaskEviction.SRT, lambda n: 0)


def test_a_suspended_task_goes_on_where_it_stopped() -> None:
    manager, master = two_tasks()
    assert launch(manager, master, 0) == ["t.0", "u.0"]
    assert not master.task_heartbeat("t.0", 0.25, 1_000)
    assert not master.task_heartbeat("u.0", 0.75, 1_000)
    master.estimate()
    manager.submit("production", production=True)
    manager.heartbeat("production", [Request("p")])
    manager.preempt(1_000)
    master.told(manager.heartbeat("run", []))
    assert master.suspending() == ["u.0"]  # the shorter one
    assert master.task_heartbeat("u.0", 0.75, 2_000)
    master.suspended("u.0", Checkpoint(("u.0",), 3, tuple("abcd"), "h"))
    master.check()
    [request] = master.requests()
    assert request == Request("u.1", resuming=True, host="h")
    assert master.attempt("u.1").checkpoint.left == ("d",)
    assert master.progress() == pytest.approx((0.25 + 0.75) / 2)


def test_a_task_that_ends_before_its_safe_point_has_ended() -> None:
    manager, master = two_tasks()
    launch(manager, master, 0)
    master.hold()
    assert set(master.suspending()) == {"t.0", "u.0"}
    master.finished("t.0")
    master.suspended("u.0", Checkpoint(("u.0",), 1, tuple("abcd"), "h"))
    assert master.requests() == []
    master.go_on()
    assert [one.attempt for one in master.requests()] == ["u.1"]
    master.check()


def test_a_run_fails_when_a_task_has_failed_too_often() -> None:
    manager, master = two_tasks()
    for number in range(FAILURES_MAX):
        assert master.failed is None
        name = f"t.{number}"
        assert name in launch(manager, master, number)
        manager.freed("run", [master.attempt(name).container], number)
        master.broke(name, "a file is gone")
    assert master.failed == "a file is gone"
    assert master.requests() == []


@pytest.mark.parametrize("seed", range(20))
def test_nothing_is_lost_whatever_happens(seed: int) -> None:
    """Suspended, killed, failed and restarted at random, a run does every input once."""
    rng = random.Random(seed)
    manager = Manager({"h": 3}, FIRST, rng.randrange)
    manager.submit("run")
    inputs = tuple("abcde")
    tasks = [Task(f"t{n}", inputs) for n in range(4)]
    master = Master("run", tasks, TaskEviction.RANDOM, rng.randrange)
    done: dict[str, list[str]] = {task.name: [] for task in tasks}
    number = 0
    for now in range(0, 10**9, 1_000):
        if master.done:
            break
        launch(manager, master, now)
        name = rng.choice(master.running())
        attempt, task = master.attempt(name), master.attempt(name).task
        container = attempt.container
        begun = attempt.checkpoint
        read = inputs[begun.counter : begun.counter + rng.randint(0, 2)]
        reached = Checkpoint((*begun.attempts, name), begun.counter + len(read), inputs, "h")
        match rng.choice(["hold", "kill", "finish", "restart"]):
            case "hold":
                master.hold()
                if name in master.suspending():
                    master.suspended(name, reached)
                    done[task] += read
                    manager.freed("run", [container], now)
                master.go_on()
            case "kill":
                master.killed(name)
                manager.freed("run", [container], now)
            case "finish":
                master.finished(name)
                done[task] += inputs[begun.counter :]
                manager.freed("run", [container], now)
            case "restart":
                number += 100
                ended = [one.name for one in tasks if not master.pending(one.name)]
                kept = {one.name: Checkpoint((), len(done[one.name]), inputs, "h") for one in tasks}
                numbers = {one.name: number for one in tasks}
                master = Master("run", tasks, TaskEviction.RANDOM, rng.randrange, kept, ended, numbers)
                manager.leave("run")
                manager.submit("run")
        master.check()
        manager.check()
    assert all(found == list(inputs) for found in done.values())
