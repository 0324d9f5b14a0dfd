"""A client and the agent that it talks to."""

from __future__ import annotations

from elf.job.messages.base import Message
from elf.job.messages.homes import WindowResult


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
    """A client's other wishes: ``verb`` is one of ``tree JOB``, ``compare JOB``, ``leave``, ``status``,
    ``take off AGENT``, ``submit``, ``query``, ``fleet``, ``tap WISH``; ``argument`` as it says.
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


class Published(Message, frozen=True, kw_only=True):
    """Agent to client: windows of the job that it subscribed to."""

    request: int
    result: WindowResult
