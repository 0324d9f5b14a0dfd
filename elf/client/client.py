"""The client of a fleet: statements and calls to an agent, results and windows back.

What a statement does not need (sandboxes, the protocol of jobs) is imported by the calls that do, so that a
client is there at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import getpass
import os
import uuid
from collections import OrderedDict
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import TracebackType
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec
import pyarrow as pa

from elf.batch import decode
from elf.client.changes import Changes
from elf.client.connection import ANSWER_SECS, CONNECT_SECS, Connection, object_of
from elf.client.files import files_of, tables_of
from elf.client.windows import Window, split
from elf.errors import ElfError, UserError
from elf.wire.clients import Execute, Reply
from elf.wire.stats import FleetStats
from elf.wire.tapping import TapOptions, TapReply

if TYPE_CHECKING:
    from elf.functions.sandbox import Sandboxes
    from elf.job.messages.groups import JobStatus

T = TypeVar("T")

CLUSTER: Final = "elf"
"""The cluster name of an agent whose configuration gives none."""

LEAVE_SECS: Final = 180.0
"""An agent leaves when its snapshots are committed or copied: that takes a window or two."""

COMPARE_SECS: Final = 120.0
"""Every member closes and ships its open archive roll first."""

REMEMBERED_MAX: Final = 65_536
"""Windows that a subscription remembers, to give each revision once; a repeat comes soon after or never."""


@dataclass(frozen=True, eq=False)
class Result:
    """What a statement came to: a text for people, and rows when it has any. ``waiting``: there is more to
    come, and the text says why nothing has for some seconds."""

    text: str
    table: pa.Table | None
    waiting: bool = False
    data: dict[str, object] | None = None
    """The same as the text, for programs."""


class ArchiveStatus(msgspec.Struct, frozen=True):
    """Where the lines of a job's stream are archived, and how to read them; ``silent`` members shipped
    nothing.
    """

    stream: str
    format: str
    timestamp: str | None
    archives: tuple[str, ...]
    silent: tuple[str, ...]


class _Archives(msgspec.Struct, frozen=True):
    streams: tuple[ArchiveStatus, ...]


@dataclass(frozen=True, eq=False)
class Tapped:
    """Rows of a stream since the last ones (None: none came): the time, ``_agent``, and the other columns;
    and what is told of those that are not among them."""

    rows: pa.Table | None
    told: TapReply


@dataclass(frozen=True, eq=False)
class CompareFacts:
    """A job as its master knows it, committed windows and all, and the archives of its streams."""

    archives: tuple[ArchiveStatus, ...]
    job: JobStatus


def connect(
    address: str, *, timeout: float = CONNECT_SECS, creator: str | None = None, cluster: str = CLUSTER
) -> Client:
    """A client of the agent at ``host:port``; ``async with`` opens it. Of several, with commas between them,
    the first one that answers; what reads windows of a job goes on at another one when that is lost.

    ``timeout`` is in seconds, for the opening; ``creator`` is who owns the jobs that are created (default:
    the user of the operating system). Opening raises ``ElfError`` when nobody answers there, ``UserError``
    when it is no address.
    """
    return Client(address, timeout=timeout, creator=creator or user_name(), cluster=cluster)


def user_name() -> str:
    """The name of the user of the operating system; in a container without one, the number."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return str(os.getuid())


class Client:
    """See the module's docstring; made by ``connect``. Belongs to one event loop."""

    def __init__(self, address: str, *, timeout: float, creator: str, cluster: str) -> None:
        self.creator = creator
        self._connection = Connection(address, timeout=timeout, creator=creator, cluster=cluster)
        self._sandboxes: Sandboxes | None = None

    @property
    def address(self) -> str:
        """Of the agent that we talk to."""
        return self._connection.address

    async def __aenter__(self) -> Client:
        return await self.open()

    async def open(self) -> Client:
        """Reach an agent. Idempotent; raises as ``connect`` says."""
        await self._connection.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Cancel what is open and let go of the connection. Idempotent."""
        await self._connection.close()
        if self._sandboxes is not None:
            self._sandboxes.close()
            self._sandboxes = None

    # -- statements ------------------------------------------------------------------------------------------

    async def sql(self, text: str) -> Result:
        """Perform one statement that ends (CREATE, SHOW, DESCRIBE, ALTER, DROP, EXPLAIN …). Raises
        ``UserError``.
        """
        async with contextlib.aclosing(self.execute(text)) as answers:
            async for answer in answers:
                if isinstance(answer, Window):
                    raise UserError("a SELECT or SUBSCRIBE gives windows until it is ended: use subscribe()")
                return answer
        return Result("", None)

    async def subscribe(self, job_or_select: str, windows: int | None = None) -> AsyncGenerator[Window]:
        """Windows of a job (by its name), or of a SELECT that runs as long as it is read; each revision once.

        Ends after ``windows`` different windows (revisions of them don't count), or never.
        """
        text = job_or_select.strip()
        statement = f"SUBSCRIBE {text}" if text.isidentifier() else text
        async with contextlib.aclosing(self.execute(statement, windows)) as answers:
            async for answer in answers:
                if isinstance(answer, Window):
                    yield answer

    async def execute(self, text: str, windows: int | None = None) -> AsyncGenerator[Result | Window]:
        """Whatever the agent says to a statement: one ``Result``, or windows for as long as they come.

        ``windows`` is counted here, after repeats are gone: the agent would count what it sends. A SUBSCRIBE
        goes on at another agent, where several are known, after the last result that is told here.
        """
        spans: set[tuple[object, object]] = set()
        seen: OrderedDict[tuple[object, ...], None] = OrderedDict()
        changes = Changes()
        files = await asyncio.to_thread(files_of, text)
        tables = await asyncio.to_thread(tables_of, text)
        message = Execute(
            request=0,
            sql=text,
            creator=self.creator,
            files=tuple(files.items()),
            tables=tuple(tables.items()),
        )
        async with contextlib.aclosing(self._connection.anywhere(message)) as replies:
            async for reply in replies:
                if isinstance(reply, Reply):
                    if reply.done or reply.payload or reply.text:
                        table = decode(reply.payload) if reply.payload else None
                        data = object_of(reply) if reply.body else None
                        yield Result(reply.text, table, not reply.done and table is None, data)
                    continue
                for window in split(reply.result):
                    if window.key in seen:
                        continue
                    seen[window.key] = None
                    if len(seen) > REMEMBERED_MAX:
                        seen.popitem(last=False)
                    if window.emits_changes:
                        window = replace(window, changes=changes.of(window))
                    yield window
                    if windows is not None and not window.early:
                        spans.add((window.start, window.end))
                        if len(spans) >= windows:
                            return

    # -- calls -----------------------------------------------------------------------------------------------

    async def call(
        self, verb: str, argument: str = "", *, limit_secs: float = ANSWER_SECS
    ) -> dict[str, object]:
        """One of the proposals that are no statements; the JSON object of its answer."""
        return object_of(await self._connection.ask(verb, argument, limit_secs))

    async def tree(self, job: str) -> dict[str, object]:
        """The reduction trees of a job, one a flow, as their roots see them."""
        return await self.call("tree", job)

    async def status(self) -> dict[str, object]:
        """The agent's own state."""
        return await self.call("status")

    async def fleet(self) -> FleetStats:
        """How all agents of the fleet are; one that does not answer within two seconds is there without
        ``stats``."""
        return self._read("fleet", await self._connection.ask("fleet", "", ANSWER_SECS), FleetStats)

    async def tap(self, stream: str, where: str = "", columns: Sequence[str] = ()) -> AsyncGenerator[Tapped]:
        """Rows of a stream as its agents read them, as long as they are asked for; at most so many a second
        (``elf.wire.tapping``), what is beyond that is counted. ``where``: a condition in ELF-QL;
        ``columns``: those wanted, if not all. Raises ``UserError``.
        """
        options = msgspec.json.encode(TapOptions(str(uuid.uuid4()), stream, where, tuple(columns))).decode()
        while True:
            reply = await self._connection.ask("tap", options, ANSWER_SECS)
            told = self._read("tap", reply, TapReply)
            yield Tapped(decode(reply.payload) if reply.payload else None, told)
            await asyncio.sleep(told.retry_ms / 1000)

    def _read(self, verb: str, reply: Reply, kind: type[T]) -> T:
        try:
            return msgspec.json.decode(reply.body, type=kind)
        except msgspec.MsgspecError as error:
            raise ElfError(f"the agent's answer to {verb} cannot be read: {error}") from None

    async def compare_facts(self, job: str) -> CompareFacts:
        """What an offline run of a job needs. Has the members ship their archives first."""
        from elf.job.messages.groups import JobStatus

        reply = await self._connection.ask("compare", job, COMPARE_SECS)
        try:
            facts = msgspec.msgpack.decode(reply.payload, type=JobStatus)
            archives = msgspec.json.decode(reply.body, type=_Archives)
        except msgspec.MsgspecError as error:
            raise ElfError(f"the agent's answer to compare {job} cannot be read: {error}") from None
        return CompareFacts(archives.streams, facts)

    async def submit(
        self,
        text: str,
        filename: str,
        name: str,
        *,
        replace: bool = False,
        settings: Mapping[str, object] | None = None,
    ) -> dict[str, object]:
        """Send a job written in Python (``elf.job.Job``) to all agents; ``replace``: in place of the one of
        that name. ``settings``: other values for attributes of the job's class, such as ``{"every": 1.0}``.

        The text is checked first, in a process of its own on this machine. Raises ``UserError``.
        """
        from elf.functions.checks import check_job
        from elf.functions.sandbox import Sandboxes
        from elf.job.program.spec import Submission, with_settings

        self._sandboxes = self._sandboxes or Sandboxes()
        text = with_settings(text, settings or {})
        loaded = await asyncio.to_thread(check_job, self._sandboxes, text, filename, name, self.creator)
        asked = Submission(name, text, filename, loaded, str(uuid.uuid4()), replace)
        return await self.call("submit", msgspec.json.encode(asked).decode())

    async def query(self, job: str, message: object = None) -> object:
        """Ask the master of a job (``name`` or ``creator/name``), as ``Job.query`` does: what the ``deliver``
        of a job in Python returns, or the last window of an SQL job. ``message``: anything that JSON has.
        Raises ``UserError``.
        """
        from elf.job.program.spec import Question
        from elf.job.program.values import unpack_value

        try:
            argument = msgspec.json.encode(Question(job, message)).decode()
        except (TypeError, ValueError) as error:
            raise UserError(f"a query's message is what JSON has: {error}") from None
        return unpack_value((await self._connection.ask("query", argument, ANSWER_SECS)).payload)

    async def leave(self, *, force: bool = False) -> dict[str, object]:
        """Have the agent seal what it has, hand it over and go. Raises ``UserError`` where something would
        have too few voters without it, unless it is to go by ``force``."""
        return await self.call("leave", "force" if force else "", limit_secs=LEAVE_SECS)

    async def take_off(self, agent: str) -> str:
        """Have an agent that is gone for good, named or by where it was, expected no more from now on; what
        was done. Raises ``UserError`` for one that lives."""
        return (await self._connection.ask("take off", agent, ANSWER_SECS)).text
