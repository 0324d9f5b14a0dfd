"""A client and the agent that it talks to."""

from __future__ import annotations

from typing import Final

from elf.wire.base import Message

ONE_SHOT_PREFIX: Final = "_select_"
"""What the name of a SELECT's job begins with."""


class Execute(Message, frozen=True, kw_only=True):
    """A client's statement, to any agent. ``windows`` ends a SELECT or SUBSCRIBE after that many windows."""

    request: int
    sql: str
    creator: str
    windows: int | None = None
    files: tuple[tuple[str, str], ...] = ()
    """Names and texts of the files that it names."""
    tables: tuple[tuple[str, bytes], ...] = ()
    """Names and contents (``elf.batch``) of those that it joins."""
    after: tuple[str, int] | None = None
    """A SUBSCRIBE goes on after the result of that number of the job with that uid, told by another agent."""


class Call(Message, frozen=True, kw_only=True):
    """A client's other proposals: ``verb`` is one of ``tree JOB``, ``compare JOB``, ``leave``, ``status``,
    ``take off AGENT``, ``submit``, ``query``, ``fleet``, ``tap PROPOSAL``; ``argument`` as it says.
    """

    request: int
    verb: str
    argument: str = ""
    creator: str = ""


class KeepAlive(Message, frozen=True, kw_only=True):
    """Client to agent every two seconds while a request is open; silence for ten ends it."""

    request: int


class Cancel(Message, frozen=True, kw_only=True):
    """Client to agent: I want no more of this."""

    request: int


class Reply(Message, frozen=True, kw_only=True):
    """Agent to client. ``text`` is for people; ``body`` JSON; ``payload`` an Arrow table; ``done`` ends the
    request.
    """

    request: int
    text: str = ""
    body: bytes = b""
    payload: bytes = b""
    done: bool = True


class Failed(Message, frozen=True, kw_only=True):
    """Agent to client: the request cannot be done; ``text`` says what, where and what to do."""

    request: int
    text: str


class WindowResult(Message, frozen=True, kw_only=True):
    """Committed windows of a job, once a revision; in a fleet mostly one window, in ``elf run`` many at once.

    ``status`` and ``payload`` are Arrow IPC. Status has a row a window: ``window_start``, ``window_end``
    (timestamp µs), ``revision``, ``expected``, ``reported``, ``missing`` (names), ``rows_in``, ``late``,
    ``rejected``, ``uncast``, ``future``, ``unrostered``, ``shed``, ``leapt`` (see ``elf.job.stragglers``),
    ``skipped`` (panes of it were dropped before the master had them, or a change of the job cut it off: it
    has no rows), ``version``. Payload has the result rows, ``window_start`` and ``window_end`` first when the
    job has windows.
    """

    job: str
    name: str
    version: int
    provisional: bool = False
    master: str
    first_us: int
    last_us: int
    revision: int
    final: bool = False
    """True when no window can follow (a finite input)."""
    status: bytes
    payload: bytes
    changes: bool = False
    """The job says EMIT CHANGES: readers are told what differs from what they had of a window."""
    early: int = 0
    """Above 0: not committed, and replaced by the next of the windows in it."""
    number: int = 0
    """Of this result among those of its job, by which readers know what they miss; 0: it has none."""
    before: int = 0
    """The number of the result before it, as far as the job group still has that."""


class Published(Message, frozen=True, kw_only=True):
    """Agent to client: windows of the job that it subscribed to."""

    request: int
    result: WindowResult


CLIENT_MESSAGES: Final = (Execute, Call, KeepAlive, Cancel, Reply, Failed, Published)
