"""The interface of a node and the runner of its Python jobs: effects out, events in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from elf.job.program.calls import Event, JobEffect, Place
from elf.job.program.spec import ProgramSpec

State = Literal["starting", "running", "failing", "failed"]
"""``failing``: its last callback raised, or its process is being started again; ``failed``: given up here."""


@dataclass(frozen=True)
class StartProgram:
    """Run this job; comes back as ``ProgramState``."""

    spec: ProgramSpec
    place: Place


@dataclass(frozen=True)
class StopProgram:
    """End it."""

    uid: str


@dataclass(frozen=True)
class CallProgram:
    """Call a callback, in order; comes back as ``ProgramActed`` or ``ProgramState``."""

    uid: str
    event: Event
    place: Place
    payload: bytes = b""


@dataclass(frozen=True)
class AnswerProgram:
    """The end of a query for which a callback waits."""

    uid: str
    number: int
    value: bytes = b""
    error: str = ""


ProgramEffect = StartProgram | StopProgram | CallProgram | AnswerProgram


@dataclass(frozen=True)
class ProgramActed:
    """A callback has returned (or raised): perform these. ``cpu_us``: taken since this was told last; 0 where
    it is not told now."""

    uid: str
    effects: tuple[JobEffect, ...]
    cpu_us: int = 0


@dataclass(frozen=True)
class ProgramAsked:
    """A callback waits for the reply to a query; answer with ``AnswerProgram``."""

    uid: str
    number: int
    app: bytes
    app_name: str
    value: bytes
    path: tuple[str, ...]
    timeout_ms: int


@dataclass(frozen=True)
class ProgramState:
    """The state of the job. ``query``: the token of a query that gets no reply because of it."""

    uid: str
    state: State
    reason: str = ""
    query: str = ""


@dataclass(frozen=True)
class ProgramLost:
    """Calls that were not made: the job is too slow for them."""

    uid: str
    calls: int


ProgramEvent = ProgramActed | ProgramAsked | ProgramState | ProgramLost
