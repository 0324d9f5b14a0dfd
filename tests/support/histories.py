"""Histories of whole fleets on virtual time: how they begin, and what is checked at their end."""

from __future__ import annotations

import json
from typing import Any

from agents.committing.spans import by_span, micros
from elf.batch import decode
from elf.job import events as was
from elf.job.events import Arrived
from elf.job.spec import JobSpec
from elf.ql.plan import Plan
from elf.windows import Sliding
from elf.wire.clients import Call, Execute, Failed, Reply
from lab.chaos.agent import SimAgent
from lab.chaos.engine import plan
from lab.chaos.world import World

Windows = dict[int, tuple[int, dict[str, int], dict[str, Any]]]
"""By start (µs): revision, counts by key, status."""


def begun(
    world: World, writing_ms: int, *, through: int = 1, query: Plan | None = None, rate_ms: int = 200
) -> tuple[JobSpec, int]:
    """All agents up and writing, a job created through one of them; (the job, when the writing ends)."""
    world.start_all()
    until = world.now + writing_ms
    for agent in world.agents:
        world.write(agent, until, rate_ms=rate_ms)
    return world.create(through, query or plan(2)), until


def settled(world: World, spec: JobSpec, until_ms: int) -> Windows:
    """Windows that had ended well before ``until_ms``."""
    kind = spec.plan.windows[0]
    assert isinstance(kind, Sliding)
    return {s: w for s, w in world.committed(spec).items() if s + kind.size_us < (until_ms - 1_000) * 1000}


def check_all(world: World, spec: JobSpec, until_ms: int, least: int) -> None:
    windows = settled(world, spec, until_ms)
    assert len(windows) >= least
    for start, (_, counts, status) in windows.items():
        assert counts == world.truth(spec, start, status["missing"]), (start, status)
        late_starters = {
            f"a{a.index}" for a in world.agents if a.up and not world.answers_for(a, spec, start)
        }
        assert set(status["missing"]) <= late_starters, status


def asked(world: World, through: int, sql: str) -> tuple[str, dict[str, Any]]:
    """(text, object) of an answer."""
    world.client_inbox.clear()
    execute = Execute(request=7, sql=sql, creator="me")
    world.agents[through].handle(was.Arrived("client:9", execute))
    world.run_until(lambda: bool(world.client_inbox), 30_000)
    (reply,) = world.client_inbox
    assert isinstance(reply, Reply), reply
    return reply.text, json.loads(reply.body)


def last_words(world: World, spec: JobSpec) -> dict[tuple[int, int, str], int]:
    """Rows a window and key, of the highest revision of each window, as its job group has them."""
    said: dict[tuple[int, int], tuple[int, dict[str, int]]] = {}
    for row in world.leader(spec).store.windows(spec.uid, -(1 << 62), 1 << 62):
        parts = by_span(decode(row.rows))
        for one in decode(row.status).to_pylist():
            span = (micros(one["window_start"]), micros(one["window_end"]))
            rows = parts[span].to_pylist() if span in parts else []
            if span not in said or said[span][0] <= one["revision"]:
                said[span] = (one["revision"], {r["k0"]: r["s0"] for r in rows})
    return {(*span, key): n for span, (_, counts) in said.items() for key, n in counts.items()}


def struck(world: World, spec: JobSpec, victim: SimAgent, *, away_ms: int, after_ms: int) -> None:
    """An agent dies and comes back, then the job group of the job does; time passes."""
    victim.crash()
    world.run(away_ms)
    world.restart(victim)
    world.run(2_000)
    leader = world.leader(spec)
    leader.crash()
    world.run(1_000)
    world.restart(leader)
    world.run(after_ms)


def lacking_alone(world: World, job: JobSpec, dead: SimAgent, until: int) -> None:
    """No window is skipped, and what they lack is the dead agent's."""
    windows = settled(world, job, until)
    assert len(windows) >= 10
    for start, (_, counts, status) in windows.items():
        assert not status["skipped"]
        assert set(status["missing"]) <= {f"a{dead.index}"}
        whole, rest = world.truth(job, start), world.truth(job, start, status["missing"])
        for key in whole.keys() | counts.keys():  # what it sealed last may have come to one root only
            assert counts.get(key, 0) in (whole.get(key, 0), rest.get(key, 0)), (start, key)


def said(world: World, through: int, sql: str, creator: str = "me") -> object:
    """The reply to a statement that a client gives to an agent."""
    world.client_inbox.clear()
    world.agents[through].handle(Arrived("client:1", Execute(request=1, sql=sql, creator=creator)))
    world.run_until(lambda: bool(world.client_inbox))
    return world.client_inbox[-1]


def call(world: World, agent: SimAgent, verb: str, argument: str) -> str:
    """What it says to a call of a client."""
    known = len(world.client_inbox)
    agent.handle(was.Arrived("client:8", Call(request=world.now, verb=verb, argument=argument)))

    def said() -> list[str]:
        answers = world.client_inbox[known:]
        return [m.text for m in answers if isinstance(m, Failed | Reply)]

    world.run_until(lambda: bool(said()), 6_000)
    return said()[0]
