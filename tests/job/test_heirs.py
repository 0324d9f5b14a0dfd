"""Whoever is to lead a job's group gets ready first (protocol 5.13): its first window goes on from the last
one of the leader before, and no window is made twice or half."""

from __future__ import annotations

from typing import Any

import pytest

from agents.committing import warming
from agents.committing.kept import Kept
from agents.committing.sides import Sides
from agents.committing.windowcommits import remade
from agents.node.heirs import READY_MS, Heirs
from elf.job.effects import CommitWindows
from elf.job.messages.groups import GetReady, Ready
from elf.job.ports import FinisherPort
from elf.job.spec import JobSpec
from elf.wire.base import Message
from elf.wire.clients import Reply
from lab.chaos.agent import SimAgent
from lab.chaos.engine import plan
from lab.chaos.world import World
from tests.support.histories import begun, said
from tests.support.jobgroups import exact, leader, members, staffed

SLIDING = plan(6, 1)


def sliding(seed: int, ran_ms: int, agents: int = 3, length_ms: int = 20_000) -> tuple[World, JobSpec, int]:
    """A job whose windows overlap, of a group of three, that has run for so long; and when its lines end."""
    world = World(seed, agents)
    world.group_members = 3
    spec, until = begun(world, length_ms, query=SLIDING)
    staffed(world, spec, 3)
    world.run(ran_ms)
    return world, spec, until


def made_from(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """For each range of windows where it begins, and from where on panes are read for it."""
    found: list[tuple[int, int]] = []
    resume = Kept.resume

    def resuming(kept: Kept, effect: CommitWindows, finisher: FinisherPort) -> tuple[Sides, int]:
        sides, from_us = resume(kept, effect, finisher)
        found.append((effect.first_us, from_us))
        return sides, from_us

    monkeypatch.setattr(Kept, "resume", resuming)
    return found


def moved(world: World, spec: JobSpec, monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """A job goes to a member; of the windows that are made then: whether they go on from those before."""
    first, inside = leader(world, spec), members(world, spec)
    heir = next(agent for agent in inside if agent is not first)
    reply = said(world, first.index, f"ALTER JOB job MOVE TO 'a{heir.index}'")
    assert isinstance(reply, Reply)
    assert leader(world, spec) is heir
    found, made_us = made_from(monkeypatch), world.leader(spec).store.assembled(spec.uid)[1]
    world.run(4_000)
    return [first_us == from_us for first_us, from_us in found if first_us >= made_us]


@pytest.mark.parametrize("agents", [3, 5])
def test_the_first_window_of_the_next_master_goes_on_from_the_last_one(
    agents: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, spec, until = sliding(701, 9_000, agents=agents)
    with monkeypatch.context() as patch:
        assert all(moved(world, spec, patch))
    monkeypatch.setattr(Heirs, "ready", lambda *_: True)
    with monkeypatch.context() as patch:
        assert not moved(world, spec, patch)[0], "it reads six panes"
    world.run(max(0, until - world.now) + 6_000)
    exact(world, spec, until, 10)


def test_who_does_not_answer_leads_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """An agent of an older release knows no such word."""
    world, spec, until = sliding(702, 5_000)
    send, asked = World.send, list[int]()

    def deaf(world: World, agent: SimAgent, to: str, message: Message) -> None:
        if isinstance(message, GetReady):
            asked.append(world.now)
        else:
            send(world, agent, to, message)

    monkeypatch.setattr(World, "send", deaf)
    with monkeypatch.context() as patch:
        moved(world, spec, patch)
    assert len(asked) >= 3
    assert asked[-1] - asked[0] < READY_MS
    world.run(max(0, until - world.now) + 6_000)
    exact(world, spec, until, 10)


def test_what_was_made_long_ago_is_no_reason_to_make_all_since(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a hand-over that was given up, or of a time when this agent led the job."""
    world, spec, _ = sliding(704, 5_000)
    first = leader(world, spec)
    other = next(agent for agent in members(world, spec) if agent is not first)
    assert other.making is not None
    version, made = other.making.versions.own(spec), list[int]()

    def counted(effect: CommitWindows, *rest: Any) -> None:
        made.append(effect.last_us)
        remade(effect, *rest)

    def warmed() -> list[int]:
        made.clear()
        last_us = warming.warm(version, spec.uid, spec.version, other.store)
        assert not made or made[-1] == last_us
        return made

    monkeypatch.setattr(warming, "remade", counted)
    assert len(warmed()) == 1
    assert not warmed()
    world.run(3_000)
    assert len(warmed()) == 3, "each goes on from the one before"
    monkeypatch.setattr(warming, "AGAIN_MAX", 3)
    world.run(6_000)
    assert len(warmed()) == 1
    assert not warmed()


def test_who_has_entered_late_leads_though_there_is_no_time_to_get_ready(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world, spec, _ = sliding(705, 5_000)
    monkeypatch.setattr("agents.node.staffing.HAND_MS", READY_MS)  # what is left of it
    monkeypatch.setattr(Heirs, "ready", lambda *_: False)
    moved(world, spec, monkeypatch)


def test_only_the_leader_is_believed_and_only_its_heir() -> None:
    world, spec, _ = sliding(703, 3_000, length_ms=8_000)
    first = leader(world, spec)
    other = next(agent for agent in members(world, spec) if agent is not first)
    hosting = other.node.hosting
    assert hosting.get_ready("10.0.0.9:1", GetReady(uid=spec.uid)) == []
    (one,) = hosting.get_ready(first.address, GetReady(uid=spec.uid))
    assert hosting.get_ready(first.address, GetReady(uid=spec.uid)) == [], "once at a time"
    assert one.spec.uid == spec.uid  # type: ignore[union-attr]
    heirs = Heirs(first.node.job_groups)
    assert heirs.ready("a job in Python", other.address, world.now), "it has no windows"
    assert not heirs.take()
    assert not heirs.ready(spec.uid, other.address, world.now)
    assert [send.to for send in heirs.take()] == [other.address]
    assert not heirs.heard("10.0.0.9:1", Ready(uid=spec.uid, made_us=1))
    assert heirs.heard(other.address, Ready(uid=spec.uid, made_us=1))
    assert not heirs.ready(spec.uid, other.address, world.now), "there may be more to make"
    assert heirs.heard(other.address, Ready(uid=spec.uid, made_us=1))
    assert heirs.ready(spec.uid, other.address, world.now) is first.node.job_groups.is_at_rest(spec.uid)
    assert heirs.ready(spec.uid, other.address, world.now + READY_MS)
