"""The interface of a node and the runner of its Python jobs: effects out, events in."""

from __future__ import annotations

from typing import Literal

import msgspec

from elf.job.program.calls import Event, JobEffect, Place
from elf.job.program.spec import ProgramSpec

State = Literal["starting", "running", "failing", "failed"]
"""``failing``: its last callback raised, or its process is being started again; ``failed``: given up here."""


class StartProgram(msgspec.Struct, frozen=True):
    """Run this job; comes back as ``ProgramState``."""

    spec: ProgramSpec
    place: Place


class StopProgram(msgspec.Struct, frozen=True):
    """End it."""

    uid: str


class CallProgram(msgspec.Struct, frozen=True):
    """Call a callback, in order; comes back as ``ProgramActed`` or ``ProgramState``."""

    uid: str
    event: Event
    place: Place
    payload: bytes = b""


class AnswerProgram(msgspec.Struct, frozen=True):
    """The end of a query for which a callback waits."""

    uid: str
    number: int
    value: bytes = b""
    error: str = ""


ProgramEffect = StartProgram | StopProgram | CallProgram | AnswerProgram


class ProgramActed(msgspec.Struct, frozen=True):
    """A callback has returned (or raised): perform these. ``cpu_us``: taken since this was told last; 0 where
    it is not told now."""

    uid: str
    effects: tuple[JobEffect, ...]
    cpu_us: int = 0


class ProgramAsked(msgspec.Struct, frozen=True):
    """A callback waits for the reply to a query; answer with ``AnswerProgram``."""

    uid: str
    number: int
    app: bytes
    app_name: str
    value: bytes
    path: tuple[str, ...]
    timeout_ms: int


class ProgramState(msgspec.Struct, frozen=True):
    """The state of the job. ``query``: the token of a query that gets no reply because of it."""

    uid: str
    state: State
    reason: str = ""
    query: str = ""


class ProgramLost(msgspec.Struct, frozen=True):
    """Calls that were not made: the job is too slow for them."""

    uid: str
    calls: int


ProgramEvent = ProgramActed | ProgramAsked | ProgramState | ProgramLost
