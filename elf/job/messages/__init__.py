"""The messages of agents and clients about streams, jobs and windows.

There is a module for each pair of speakers. ``rollup``: the members of a flow and its root. ``replicas``: an
agent and the neighbours that hold replicas of its snapshots. ``reexecution``: an agent, the root, and the
agent that runs its work. ``reading``: the root and the nodes whose jobs read the flow. ``entries``,
``following``, ``proposals``: the catalog log: its entries, its voters and followers, what they are asked for.
``groups``: a job group and those who create the job, change it or read its windows. ``inquiries``: questions
about flows, trees and streams. ``elf.wire`` has the messages of a client and its agent, and what all have in
common: ``Answer`` ends each ``Request``.

Overlay messages belong to the overlay (``overlay.messages``); these are sent directly to an address, or
inside a routed or multicast overlay message. Every message is a frozen struct of plain values, so that the
codec can check any bytes against its type. On the wire it is an array of its fields, so a new field goes to
the end, with a default. ``payload`` fields hold Arrow IPC and travel as a frame of their own.

Numbers of panes, members and revisions are integers; contribution sets are little-endian bitmaps over member
numbers; event times are microseconds.
"""

from __future__ import annotations

from typing import Final

from elf.job.messages.following import LOG_MESSAGES
from elf.job.messages.groups import GROUP_MESSAGES
from elf.job.messages.inquiries import INQUIRIES
from elf.job.messages.proposals import PROPOSALS
from elf.job.messages.reading import READING_MESSAGES
from elf.job.messages.reexecution import REEXECUTION_MESSAGES
from elf.job.messages.replicas import REPLICA_MESSAGES
from elf.job.messages.rollup import ROLLUP_MESSAGES
from elf.wire.base import Answer, Message
from elf.wire.clients import CLIENT_MESSAGES, WindowResult

MESSAGES: Final[tuple[type[Message], ...]] = (
    Answer,
    *ROLLUP_MESSAGES,
    *REPLICA_MESSAGES,
    *REEXECUTION_MESSAGES,
    *READING_MESSAGES,
    *LOG_MESSAGES,
    *PROPOSALS,
    *GROUP_MESSAGES,
    *INQUIRIES,
    WindowResult,
    *CLIENT_MESSAGES,
)
"""All messages that may stand in a frame."""
