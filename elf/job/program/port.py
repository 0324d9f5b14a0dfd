"""The interface of a node and the runner of its Python jobs: effects out, events in. ``uid`` is the key of
what runs (``elf.job.program.seats``)."""

from __future__ import annotations

from typing import Literal

import msgspec

from elf.job.program.calls import Event, JobEffect, Place
from elf.job.program.seats import OWN, key_of
from elf.job.program.spec import ProgramSpec

State = Literal["starting", "running", "failing", "failed"]
"""``failing``: its last callback raised, or its process is being started again; ``failed``: given up here."""


class StartProgram(msgspec.Struct, frozen=True):
    """Run this job, in this seat; comes back as ``ProgramState``. ``state``: what it had; empty: nothing
    yet."""

    spec: ProgramSpec
    place: Place
    state: bytes = b""
    seat: int = OWN

    @property
    def uid(self) -> str:
        return key_of(self.spec.uid, self.seat)


class StopProgram(msgspec.Struct, frozen=True):
    """End it."""

    uid: str


class CallProgram(msgspec.Struct, frozen=True):
    """Call a callback, in order; comes back as ``ProgramActed`` or ``ProgramState``. ``number``: of the call,
    from 1."""

    uid: str
    event: Event
    place: Place
    payload: bytes = b""
    number: int = 0


class AnswerProgram(msgspec.Struct, frozen=True):
    """The end of a query for which a callback waits."""

    uid: str
    number: int
    value: bytes = b""
    error: str = ""


ProgramEffect = StartProgram | StopProgram | CallProgram | AnswerProgram


class ProgramActed(msgspec.Struct, frozen=True):
    """A callback has returned (or raised): perform these. ``cpu_us``: taken since this was told last; 0 where
    it is not told now. ``state``: what the job has after this call and all before it; None where it is not
    told, and then no effect is of those that wait for it (``calls.LASTING``)."""

    uid: str
    effects: tuple[JobEffect, ...]
    cpu_us: int = 0
    number: int = 0
    state: bytes | None = None


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
    """Calls with these numbers were not made: the job is too slow for them."""

    uid: str
    numbers: tuple[int, ...]


class ProgramSaved(msgspec.Struct, frozen=True):
    """The job's checkpoint with this number is durable (``elf.job.effects.SaveProgram``)."""

    uid: str
    number: int


ProgramEvent = ProgramActed | ProgramAsked | ProgramState | ProgramLost | ProgramSaved
