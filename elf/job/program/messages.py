"""The messages of agents about jobs written in Python. They are sent like all other messages of elf."""

from __future__ import annotations

import msgspec

from elf.job.program.spec import ProgramSpec
from elf.wire.base import Message, Request


class SubmitProgram(Request, frozen=True, kw_only=True):
    """Routed to the app id: have the catalog log take this job. Answered when it has, or cannot."""

    spec: ProgramSpec
    replace: bool = False


class DropProgram(Request, frozen=True, kw_only=True):
    """Routed to the app id: end this job everywhere. Answered when the catalog log says so."""

    app: bytes
    uid: str


class InspectProgram(Request, frozen=True, kw_only=True):
    """Routed to the app id, answered by the master with ``ProgramStatus``."""

    app: bytes
    uid: str


class QueryProgram(Request, frozen=True, kw_only=True):
    """Routed to the app id: a client's query, answered with the reply of the job that the master runs."""

    app: bytes
    value: bytes


class Note(Message, frozen=True, kw_only=True):
    """``send_to``: from a job on one agent to the same job on another, at most once."""

    uid: str
    value: bytes


class Told(Message, frozen=True, kw_only=True):
    """``multicast``: from the master down the tree, once to each agent and in order."""

    uid: str
    value: bytes


class Routed(Message, frozen=True, kw_only=True):
    """``route`` and ``query``: from one application to the master of ``app``. ``query``: the asker's number,
    0 if no reply is wanted, below 0 for a client's request; ``path``: the jobs that wait for it already."""

    app: bytes
    source: bytes
    value: bytes
    path: tuple[str, ...] = ()
    origin: str = ""
    query: int = 0


class Returned(Message, frozen=True, kw_only=True):
    """The reply to a query, directly to the asker."""

    query: int
    value: bytes = b""
    error: str = ""


class ProgramTrouble(Message, frozen=True, kw_only=True):
    """Agent to the master, when it changes and every few seconds while it lasts: the job does not run well
    here. An empty ``state``: it does again."""

    uid: str
    agent: str
    state: str
    reason: str


class ProgramStatus(msgspec.Struct, frozen=True):
    """What a master knows of its job. ``troubles``: (agent, state, reason); counts are this agent's own."""

    master: str
    state: str
    reason: str
    troubles: tuple[tuple[str, str, str], ...]
    counts: dict[str, int]


MESSAGES: tuple[type[Message], ...] = (
    SubmitProgram,
    DropProgram,
    InspectProgram,
    QueryProgram,
    Note,
    Told,
    Routed,
    Returned,
    ProgramTrouble,
)
