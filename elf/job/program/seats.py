"""Who of a job in Python is meant: the job as it runs on an agent, or its master.

The master is one more object of the job, beside that of its agent. It belongs to no agent: the leader of the
job group runs it, from the group's state. Each has a *seat* on its agent: 0 is the agent's own, 1 the
master's. Slices for the master are addressed to its seat and not to an agent, so they find it where it is.
"""

from __future__ import annotations

from typing import Annotated, Final

from msgspec import Meta

Seat = Annotated[int, Meta(ge=0, le=1)]
OWN: Final = 0
MASTER: Final = 1
_MARK: Final = "#"
_BETWEEN: Final = "!"
MASTERS_NAME: Final = f"{_MARK}{MASTER}"
"""Of whom a slice is, or who is to get it, in place of an agent's id or address."""


def key_of(uid: str, seat: int) -> str:
    """The name of what runs on an agent in this seat."""
    return f"{uid}{_BETWEEN}{seat}" if seat else uid


def uid_of(key: str) -> str:
    """The job that it is of."""
    return key.partition(_BETWEEN)[0]
