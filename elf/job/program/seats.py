"""Who of a job in Python is meant: the job as it runs on an agent, or one of its masters.

A master is one more object of the job, beside those of the agents. It belongs to no agent: the leader of the
job group of its tree runs it, from the group's state. Each has a *seat*: 0 is an agent's own, and ``t + 1``
that of the master of the job's tree ``t``. Slices for a master are addressed to its seat and not to an agent,
so they find it where it is.
"""

from __future__ import annotations

from typing import Annotated, Final

from msgspec import Meta

from elf.job.spec import group_uid, job_of, place_of

TREES_MAX: Final = 32
"""Of a job: each has a master, which is a process of its own on some agent."""
Tree = Annotated[int, Meta(ge=0, lt=TREES_MAX)]
"""The place of a tree among those of its job."""
Trees = Annotated[int, Meta(ge=1, le=TREES_MAX)]
"""How many a job has."""
Seat = Annotated[int, Meta(ge=0, le=TREES_MAX)]
OWN: Final = 0
MASTER: Final = 1
"""Of the job's first tree."""
_MARK: Final = "#"
_BETWEEN: Final = "!"


def seat_of(tree: int) -> int:
    """That of a tree's master."""
    return tree + MASTER


def tree_of(seat: int) -> int:
    """Whose master it is; the first one for the job of an agent."""
    return max(seat - MASTER, 0)


def masters_name(seat: int) -> str:
    """Of whom a slice is, or who is to get it, in place of an agent's id or address."""
    return f"{_MARK}{seat}"


def seat_named(name: str) -> int:
    """The opposite; 0 for an agent's id or address."""
    return int(name[1:]) if name.startswith(_MARK) else OWN


def key_of(uid: str, seat: int) -> str:
    """The name of what runs on an agent in this seat."""
    return f"{uid}{_BETWEEN}{seat}" if seat else uid


def uid_of(key: str) -> str:
    """The job that it is of."""
    return key.partition(_BETWEEN)[0]


def group_of(uid: str, seat: int) -> str:
    """The uid of the job group that has the state of what is in this seat."""
    return group_uid(uid, tree_of(seat))


def key_in(group: str) -> str:
    """The name of the master whose state is in a job group."""
    return key_of(job_of(group), seat_of(place_of(group)))
