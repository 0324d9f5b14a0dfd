"""The messages of agents and clients about streams, jobs and windows.

A room each for who speaks to whom. ``rollup``: the members of a flow, its root, its readers, who has copies
of snapshots, and who runs an agent's work again. ``helping``: who maps rows of another agent. ``log``: the
catalog log: what it says, its voters and who follows them, what they are asked for. ``groups``: a job group
and whoever creates the job, changes it or reads its windows. ``inquiries``: who wants to know of flows, trees
and streams. ``elf.wire`` has those of a client and its agent, and what all have in common: ``Answer`` ends
each ``Request``.

Overlay messages belong to the overlay (``overlay.messages``); these are sent directly to an address, or
inside a routed or multicast overlay message. Every message is a frozen struct of plain values, so that the
codec can check any bytes against its type. On the wire it is an array of its fields, so a new field goes to
the end, with a default. ``payload`` fields hold Arrow IPC and travel as a frame of their own.

Numbers of panes, members and revisions are integers; contribution sets are little-endian bitmaps over member
numbers; event times are microseconds.
"""

from __future__ import annotations

from typing import Final

from elf.job.messages.groups import GROUP_MESSAGES
from elf.job.messages.helping import HELPER_MESSAGES
from elf.job.messages.inquiries import INQUIRIES
from elf.job.messages.log import LOG_MESSAGES, PROPOSALS
from elf.job.messages.rollup import READING_MESSAGES, REEXECUTION_MESSAGES, REPLICA_MESSAGES, ROLLUP_MESSAGES
from elf.job.tables import TABLE_MESSAGES
from elf.wire.base import Answer, Message
from elf.wire.clients import CLIENT_MESSAGES, WindowResult

MESSAGES: Final[tuple[type[Message], ...]] = (
    Answer,
    *ROLLUP_MESSAGES,
    *REPLICA_MESSAGES,
    *REEXECUTION_MESSAGES,
    *HELPER_MESSAGES,
    *READING_MESSAGES,
    *LOG_MESSAGES,
    *PROPOSALS,
    *GROUP_MESSAGES,
    *TABLE_MESSAGES,
    *INQUIRIES,
    WindowResult,
    *CLIENT_MESSAGES,
)
"""All messages that may stand in a frame."""
