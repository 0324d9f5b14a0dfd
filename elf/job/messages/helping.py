"""What an agent and the helper that maps rows of it say to each other (``elf.job.offload``)."""

from __future__ import annotations

from typing import Final, get_args

from elf.fields import AgentId, FlowUid, Serial, Text
from elf.job.offload import Mapped, RowsWanted, Stand
from elf.job.past import Past
from elf.wire.base import Message


class MapRows(Message, frozen=True, kw_only=True):
    """Agent to helper, until it answers: map these rows of my archive. ``agent_id``: whose they are."""

    agent_id: AgentId
    stream: Text
    wanted: RowsWanted


class RowsMapped(Message, frozen=True, kw_only=True):
    """The answer: what the rows from ``asked.position`` to ``past.position`` have come to. ``number``,
    ``asked`` and ``stand``: of the request, as numbers begin anew with each life of an agent."""

    flow: FlowUid
    number: Serial
    asked: Past
    stand: Stand
    past: Past
    mapped: Mapped


class RowsNotMapped(Message, frozen=True, kw_only=True):
    """The answer where they cannot be mapped (yet): why."""

    flow: FlowUid
    number: Serial
    why: Text
    again: bool = False
    """They may be asked for again soon."""


HelperMessage = MapRows | RowsMapped | RowsNotMapped
HELPER_MESSAGES: Final[tuple[type[Message], ...]] = get_args(HelperMessage)
