"""Rounds on one agent: who is waited for, and what comes early, late, or from nobody we know."""

from __future__ import annotations

from typing import Any

import pytest

from elf.job.program import calls
from elf.job.program.calls import JobEffect, Place
from elf.job.program.host import JobError
from elf.job.program.runner import JobRunner, UserCodeError
from elf.job.program.spec import with_settings
from elf.job.program.values import pack_value, unpack_value
from lab.chaos.programs import no_queries

TEXT = """
from elf.job import Rounds

class Adds(Rounds):
    keep_late = True
    mine = 1
    def start(self): self.done = []
    def on_timer(self): self.begin("go")
    def contribute(self, message): return self.mine
    def combine(self, one, other): return one + other
    def finish(self, message, total, agents): self.done.append((message, total, agents))
"""
ROOT = Place("a", 0, True, "", ("b", "c"))
INNER = Place("b", 0, False, "a", ("d",))


class Agent:
    """``kinds``: of the effects of its last call."""

    def __init__(self, text: str = TEXT, state: bytes = b"") -> None:
        self.runner = JobRunner(text, "adds.py", "adds", "me", no_queries)
        self.runner.start(ROOT, state)
        self.job: Any = self.runner.job
        self.kinds: list[type[JobEffect]] = []

    def call(self, event: calls.Event, place: Place) -> list[Any]:
        effects: list[JobEffect] = []
        self.runner.handle(event, place, b"", effects)
        self.kinds = [type(effect) for effect in effects]
        return [unpack_value(effect.value) for effect in effects]

    def cast(self, number: int, place: Place) -> list[Any]:
        return self.call(calls.Cast(b"", pack_value({"round": number, "message": "go"})), place)

    def part(self, sender: str, number: int, value: int, place: Place, agents: int = 1) -> list[Any]:
        told = {"round": number, "agents": agents, "value": value}
        return self.call(calls.Sent(sender, pack_value(told)), place)


def test_the_master_finishes_when_all_its_children_have_sent_theirs() -> None:
    agent = Agent()
    assert agent.call(calls.Timer(), ROOT) == [{"round": 1, "message": "go"}]
    agent.cast(1, ROOT)
    agent.part("b", 1, 10, ROOT, agents=3)
    assert agent.job.done == []
    agent.part("c", 1, 100, ROOT)
    assert agent.job.done == [("go", 110, 4)], "a master contributes nothing"
    assert agent.call(calls.Timer(), ROOT) == [{"round": 2, "message": "go"}]


def test_a_child_that_has_left_the_tree_is_not_waited_for() -> None:
    agent = Agent()
    agent.cast(1, ROOT)
    agent.part("b", 1, 10, Place("a", 0, True, "", ("b",)))
    assert agent.job.done == [("go", 10, 1)]


def test_what_comes_early_is_kept_for_its_round_and_what_comes_late_is_in_the_next() -> None:
    agent = Agent()
    assert agent.part("d", 1, 10, INNER) == []  # its multicast was quicker than ours
    assert agent.cast(1, INNER) == [{"round": 1, "agents": 2, "value": 11}]
    assert agent.part("e", 1, 100, INNER) == []  # it was away
    assert agent.cast(2, INNER) == []
    assert agent.part("d", 2, 10, INNER) == [{"round": 2, "agents": 2, "value": 111}]


def test_a_round_that_is_not_complete_ends_with_the_next_and_nothing_is_lost() -> None:
    agent = Agent()
    agent.cast(1, INNER)
    agent.cast(2, INNER)
    assert agent.part("d", 2, 10, INNER) == [{"round": 2, "agents": 2, "value": 12}]
    dropping = Agent(TEXT.replace("keep_late = True", "keep_late = False"))
    dropping.cast(1, INNER)
    dropping.cast(2, INNER)
    assert dropping.part("d", 2, 10, INNER) == [{"round": 2, "agents": 2, "value": 11}]


def test_an_agent_without_a_parent_for_a_moment_keeps_its_part() -> None:
    agent = Agent()
    lost = Place("b", 0, False, "", ())
    assert agent.cast(1, lost) == []
    assert agent.cast(2, Place("b", 0, False, "a", ())) == [{"round": 2, "agents": 1, "value": 2}]


def test_settings_are_attributes_of_the_class_and_a_wrong_one_is_named() -> None:
    text = with_settings(TEXT, {"mine": 5, "every": 2.0})
    agent = Agent(text)
    assert (agent.job.mine, agent.job.every) == (5, 2.0)
    assert text.splitlines()[: len(TEXT.splitlines())] == TEXT.rstrip().splitlines()
    with pytest.raises(UserCodeError, match="Adds has no setting min; it has at_once, keep_late, mine"):
        Agent(with_settings(TEXT, {"min": 5}))


LOOKS = TEXT.replace("keep_late = True", "at_once = True")


def test_what_goes_at_once_waits_for_no_state_and_of_each_child_the_first_is_taken() -> None:
    agent = Agent(LOOKS)
    assert agent.cast(1, INNER) == []
    assert agent.part("d", 1, 10, INNER) == [{"round": 1, "agents": 2, "value": 11}]
    assert agent.kinds == [calls.RemarkTo]
    two = Place("b", 0, False, "a", ("d", "e"))
    agent.cast(2, two)
    agent.part("d", 2, 10, two)
    assert agent.part("d", 2, 10, two) == [], "its process has ended, and has contributed again"
    assert agent.part("e", 2, 100, two) == [{"round": 2, "agents": 3, "value": 111}]
    with pytest.raises(JobError, match="at_once and keep_late"):
        Agent(LOOKS.replace("mine = 1", "keep_late = True"))


def test_two_masters_never_give_two_rounds_one_number() -> None:
    first = Agent(LOOKS)
    (begun,) = first.call(calls.Timer(), ROOT)
    assert (begun["round"], first.kinds) == (1, [calls.MulticastOut]), "its state has the numbers after it"
    committed = first.runner.state()
    assert [one["round"] for one in first.call(calls.Timer(), ROOT)] == [2]
    assert first.kinds == [calls.MulticastOut], "nobody knows yet whether that is durable"
    first.cast(2, ROOT)
    assert [one["round"] for one in first.call(calls.Timer(), ROOT)] == [3]
    assert first.kinds == [calls.RemarkOut], "no state has this one"
    given = {1, 2, 3}
    for state in (committed, first.runner.state()):
        second = Agent(LOOKS, state)
        (begun,) = second.call(calls.Timer(), ROOT)
        assert begun["round"] not in given
        assert second.kinds == [calls.MulticastOut]
        given.add(begun["round"])
    below = Agent(LOOKS)
    below.cast(max(given), Place("b", 0, False, "a", ()))
    assert below.cast(3, Place("b", 0, False, "a", ())) == [], "of a master that another one has followed"
