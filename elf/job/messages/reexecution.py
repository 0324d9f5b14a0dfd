"""Agents whose files others see too, the roots of their flows, and the agents that run their work
(``elf.job.reexecution``)."""

from __future__ import annotations

from elf.job.messages.rollup import Slice
from elf.job.reexecution import Reading, SourceOffsets, Where
from elf.wire.base import Message


class Whereabouts(Message, frozen=True, kw_only=True):
    """Member to the root of a flow, when a checkpoint is durable. The sender can also run others' work."""

    member: int
    where: Where


class Reexecute(Message, frozen=True, kw_only=True):
    """Root to another member that shares the stream: answer for ``member`` in this pane."""

    flow: str
    member: int
    pane: int
    offsets: SourceOffsets
    reading: Reading


class RunSlice(Slice, frozen=True, kw_only=True):
    """The answer: the pane of the member, from the source offsets with this number."""

    offsets: int = 0


class NotRun(Message, frozen=True, kw_only=True):
    """The answer where it cannot be run (yet): why."""

    flow: str
    member: int
    pane: int
    why: str


REEXECUTION_MESSAGES = (RunSlice, Whereabouts, Reexecute, NotRun)
