"""Where the rows of a table with a ring are (Parqua, chapter 6.4.3; docs/dev/decisions/0051).

The hashes of keys are divided into ``PARTS`` equal ranges. A part begins at a point of the overlay's ring,
and its ``COPIES`` copies, the *replicas*, are at the members of the fleet that follow that point, in this
order, of those that lend (``agent.lends``). So who has a row follows from its key and from the members that
the catalog log names, and from nothing else: all agents with the same log say the same. A replica has no Raft
group: it takes the results of the job in their order, by itself, and one that is behind comes after.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import nsmallest
from typing import Final

from elf.fields import Address
from elf.job.output import TABLE, OutputSpec
from elf.job.spec import group_uid, place_of
from elf.ql.fuel import RING_COPIES, RING_PARTS
from overlay.ids import ID_BITS, clockwise, node_id

PARTS: Final = RING_PARTS
COPIES: Final = RING_COPIES
_PLACE: Final = 9_999
"""In place of a key range: no group has it."""


def ring_uid(job: str) -> str:
    """What stands for the group of a replica: all that an agent has of the rings of a job's tables."""
    return group_uid(job, _PLACE)


def is_ring(group: str) -> bool:
    """Whether that is one."""
    return place_of(group) == _PLACE


def has_ring(spec: OutputSpec) -> bool:
    """Whether a table has a ring."""
    return spec.kind == TABLE and bool(spec.option("ring"))


def replicas(members: Iterable[Address], place: int) -> tuple[Address, ...]:
    """The members that have a part, in their order."""
    point = (place << ID_BITS) // PARTS
    return tuple(nsmallest(COPIES, members, key=lambda one: clockwise(point, node_id(one))))


def majority(copies: int) -> int:
    """So many of them that any two majorities have one in common."""
    return copies // 2 + 1
