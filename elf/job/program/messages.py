"""The messages of agents about jobs written in Python. They are sent like all other messages of elf."""

from __future__ import annotations

from typing import Annotated

import msgspec

from elf.fields import (
    Address,
    AgentId,
    Count,
    GroupUid,
    JobUid,
    Key,
    Name,
    Serial,
    Text,
    Ticket,
    Value,
    Word,
)
from elf.job.program.calls import MULTICAST_BYTES_MAX
from elf.job.program.keyed import PIECE_BYTES, PIECES_MAX
from elf.job.program.seats import OWN, Seat, Tree
from elf.job.program.spec import ProgramSpec
from elf.security.authored import Authorship
from elf.wire.base import Message, Request

PieceNumber = Annotated[int, msgspec.Meta(ge=0, lt=PIECES_MAX)]
NOTES_MAX = 1_000
"""Slices that one message says are kept."""
Source = Annotated[bytes, msgspec.Meta(max_length=16)]
"""The app id of a job, or nothing for a client."""
Path = Annotated[tuple[Annotated[str, msgspec.Meta(max_length=600)], ...], msgspec.Meta(max_length=64)]
"""Jobs that wait for each other, as ``creator/name``."""


class SubmitProgram(Request, frozen=True, kw_only=True):
    """Routed to the app id: have the catalog log take this job. Answered when it has, or cannot."""

    spec: ProgramSpec
    replace: bool = False

    def __post_init__(self) -> None:
        self.spec.check()


class DropProgram(Request, frozen=True, kw_only=True):
    """Routed to the app id: end this job everywhere. Answered when the catalog log says so. ``author``: the
    signed statement, where there are keys."""

    app: Key
    uid: JobUid
    author: Authorship | None = None


class InspectProgram(Request, frozen=True, kw_only=True):
    """Routed to the app id, answered by the master with ``ProgramStatus``."""

    app: Key
    uid: JobUid


class QueryProgram(Request, frozen=True, kw_only=True):
    """Routed to the app id: a client's query, answered with the reply of the job that the master runs."""

    app: Key
    value: Value


class Note(Message, frozen=True, kw_only=True):
    """``send_to``: a slice from a job on one agent to the same job on another, again and again until it
    is ``NotesKept`` (protocol 14.3). Its name is the sender's ``agent`` id and its ``number``; all of the
    sender's slices to this receiver that are below ``settled`` are kept already. ``of`` and ``to``: the seats
    of sender and receiver; the name of a master's slice has the master in place of the agent. It goes up
    that ``tree`` of the job."""

    uid: JobUid
    value: Value
    agent: AgentId
    number: Ticket
    settled: Ticket
    of: Seat = OWN
    to: Seat = OWN
    tree: Tree = 0


class Remark(Message, frozen=True, kw_only=True):
    """``send_to`` with ``at_once``: it has no name, so it is neither kept nor sent again (protocol 14.20). It
    is for that seat, and goes up that ``tree`` of the job."""

    uid: JobUid
    value: Value
    to: Seat = OWN
    tree: Tree = 0


class NotesKept(Message, frozen=True, kw_only=True):
    """The answer: slices with these numbers are in the durable state of the job at the receiver."""

    uid: JobUid
    numbers: Annotated[tuple[Ticket, ...], msgspec.Meta(max_length=NOTES_MAX)]
    of: Seat = OWN
    to: Seat = OWN


class Told(Message, frozen=True, kw_only=True):
    """``multicast``: from a master down its tree, once to each agent and in order; ``uid`` is that of its job
    group. With a ``size`` it is the notice of a larger one: the ``number``-th of this ``term``, of which each
    agent asks its parent for the pieces (``elf.job.program.feedback``). ``cuts``: it is fed back by key, and
    has so many pieces; 0: it is for all."""

    uid: GroupUid
    value: Value
    size: Annotated[int, msgspec.Meta(ge=0, le=MULTICAST_BYTES_MAX)] = 0
    term: Serial = 0
    number: Serial = 0
    cuts: Annotated[int, msgspec.Meta(ge=0, le=PIECES_MAX)] = 0


class AskPiece(Message, frozen=True, kw_only=True):
    """Agent to its parent in the job's tree, or to the master's agent, until the piece comes."""

    uid: GroupUid
    term: Serial
    number: Serial
    piece: PieceNumber


class Piece(Message, frozen=True, kw_only=True):
    """The answer, when the piece is there."""

    uid: GroupUid
    term: Serial
    number: Serial
    piece: PieceNumber
    value: Annotated[bytes, msgspec.Meta(min_length=1, max_length=PIECE_BYTES)]


class Routed(Message, frozen=True, kw_only=True):
    """``route`` and ``query``: from one application to the master of ``app``. ``query``: the asker's number,
    0 if no reply is wanted, below 0 for a client's request; ``path``: the jobs that wait for it already;
    ``tree``: whose master is meant."""

    app: Key
    source: Source
    value: Value
    path: Path = ()
    origin: Address = ""
    query: Ticket = 0
    tree: Tree = 0


class Returned(Message, frozen=True, kw_only=True):
    """The reply to a query, directly to the asker."""

    query: Ticket
    value: Value = b""
    error: Text = ""


class ProgramTrouble(Message, frozen=True, kw_only=True):
    """Agent to the master, when it changes and every few seconds while it lasts: the job does not run well
    here. An empty ``state``: it does again."""

    uid: JobUid
    agent: Name
    state: Word
    reason: Text


class ProgramStatus(msgspec.Struct, frozen=True):
    """What a master knows of its job. ``troubles``: (agent, state, reason); counts are this agent's own."""

    master: Address
    state: Word
    reason: Text
    troubles: tuple[tuple[Name, Word, Text], ...]
    counts: dict[Text, Count]


MESSAGES: tuple[type[Message], ...] = (
    SubmitProgram,
    DropProgram,
    InspectProgram,
    QueryProgram,
    Note,
    Remark,
    NotesKept,
    Told,
    AskPiece,
    Piece,
    Routed,
    Returned,
    ProgramTrouble,
)
