"""A client's connection to one agent, or to the next one where several are named: requests out, replies and
windows back, over one ZeroMQ DEALER.

Every open request is kept alive every two seconds (an agent ends what it hears nothing of), and the agent is
asked for a sign of life when it has been silent. Rules: every wait has a limit with a name; every request
that is not finished is cancelled; a reader that falls behind is told so, it never grows a queue; whatever
fails is one ``ElfError`` with one clear text. What a statement does not need (sandboxes, the protocol of
jobs) is imported by the calls that do, so that a client is there at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import getpass
import itertools
import os
import re
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
from elf.client.files import files_of, tables_of
from elf.client.requests import Request
from elf.client.windows import Window, split
from elf.errors import ElfError, PeerError, UserError
from elf.transport import Closed, ZeroMqTransport
from elf.transport.probe import probe
from elf.wire.base import FAMILY, Message
from elf.wire.clients import CLIENT_MESSAGES, Call, Cancel, Execute, Failed, KeepAlive, Published, Reply
from elf.wire.frames import Codec, OtherCluster
from elf.wire.heard import Heard
from elf.wire.tapping import TapReply, TapWish
from elf.wire.vitals import FleetVitals

if TYPE_CHECKING:
    from elf.functions.sandbox import Sandboxes
    from elf.job.messages import JobFacts

T = TypeVar("T")

CLUSTER: Final = "elf"
"""The cluster name of an agent whose configuration gives none."""

CONNECT_SECS: Final = 5.0
"""How long ``connect`` tries to reach the agent; what is none is told after a part of it."""

ANSWER_SECS: Final = 60.0
"""How long a statement or call may stay without any answer."""

LEAVE_SECS: Final = 180.0
"""An agent leaves when its snapshots are committed or copied: that takes a window or two."""

COMPARE_SECS: Final = 120.0
"""Every member closes and ships its open archive roll first."""

KEEP_ALIVE_SECS: Final = 2.0
STOPPED_SECS: Final = 9.0
"""A client that was stopped for so long (suspended, laptop lid) may have been forgotten by the agent."""

SILENCE_SECS: Final = 15.0
"""An agent that has said nothing for so long, though it was asked, is lost."""

REMEMBERED_MAX: Final = 65_536
"""Windows that a subscription remembers, to give each revision once; a repeat comes soon after or never."""

MOVES: Final = 10
"""Times that all agents are tried when one is lost, a second or more apart."""

_BYTES_MAX: Final = 256 << 20
_CODEC: Final[Codec[Message]] = Codec({FAMILY: CLIENT_MESSAGES})
_SUBSCRIBE: Final = re.compile(r"\s*SUBSCRIBE\s+\w+\s*;?\s*", re.IGNORECASE)


class LostAgent(ElfError):
    """The agent that we talked to is no more, or has forgotten us."""


class OtherFleet(ElfError):
    """There is an agent, of another cluster than was asked for."""

    def __init__(self, its: str, asked: str) -> None:
        super().__init__(
            f"it is an agent of cluster {its!r}, and {asked!r} was asked for (--cluster; cluster.name)"
        )


@dataclass(frozen=True, eq=False)
class Result:
    """What a statement came to: a text for people, and rows when it has any. ``waiting``: there is more to
    come, and the text says why nothing has for some seconds."""

    text: str
    table: pa.Table | None
    waiting: bool = False
    data: dict[str, object] | None = None
    """The same as the text, for programs."""


class ArchiveFacts(msgspec.Struct, frozen=True):
    """Where the lines of a job's stream are archived, and how to read them; ``silent`` members shipped
    nothing.
    """

    stream: str
    format: str
    timestamp: str | None
    archives: tuple[str, ...]
    silent: tuple[str, ...]


class _Archives(msgspec.Struct, frozen=True):
    streams: tuple[ArchiveFacts, ...]


@dataclass(frozen=True, eq=False)
class Tapped:
    """Rows of a stream since the last ones (None: none came): the time, ``_agent``, and the other columns;
    and what is told of those that are not among them."""

    rows: pa.Table | None
    told: TapReply


@dataclass(frozen=True, eq=False)
class CompareFacts:
    """A job as its master knows it, committed windows and all, and the archives of its streams."""

    archives: tuple[ArchiveFacts, ...]
    job: JobFacts


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
        self._addresses = tuple(one for part in address.split(",") if (one := part.strip())) or (address,)
        self.address = self._addresses[0]
        """Of the agent that we talk to."""
        self.creator = creator
        self._timeout = timeout
        self._cluster = cluster
        self._numbers = itertools.count(1)
        self._requests: dict[int, Request] = {}
        self._sandboxes: Sandboxes | None = None
        self._transport: ZeroMqTransport | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._asked: float | None = None
        self._incarnation: object = None
        self._moving = asyncio.Lock()

    async def __aenter__(self) -> Client:
        return await self.open()

    async def open(self) -> Client:
        """Reach an agent. Idempotent; raises as ``connect`` says."""
        if self._transport is not None:
            return self
        at = self._addresses.index(self.address)
        failed: list[ElfError] = []
        for address in self._addresses[at:] + self._addresses[:at]:
            self.address = address
            try:
                await self._open()
            except UserError:
                raise
            except ElfError as error:
                failed.append(error)
            else:
                return self
        raise failed[0] if len(failed) == 1 else ElfError("; ".join(map(str, failed)))

    async def _open(self) -> None:
        if why := await probe(self.address, self._timeout / CONNECT_SECS):
            raise self._unreachable(why)
        self._asked = None
        self._transport = await ZeroMqTransport.dial()
        self._tasks = [asyncio.create_task(self._receive()), asyncio.create_task(self._keep_alive())]
        try:
            status = await self.call("status", limit_secs=self._timeout)
        except BaseException as error:
            await self._disconnect()
            if isinstance(error, OtherFleet):
                raise self._unreachable(str(error)) from None
            if isinstance(error, ElfError) and not isinstance(error, UserError):
                raise self._unreachable(
                    f"no agent of cluster {self._cluster!r} answers there "
                    "(--cluster NAME, as the agent's cluster.name says), or it is stopped"
                ) from None
            raise
        self._incarnation = status.get("incarnation")

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Cancel what is open and let go of the connection. Idempotent."""
        for number in list(self._requests):
            self._close_request(number)
        await self._disconnect()
        if self._sandboxes is not None:
            self._sandboxes.close()
            self._sandboxes = None

    async def _disconnect(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks = []
        if self._transport is not None:
            await self._transport.close()
            self._transport = None

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
        async with contextlib.aclosing(self._anywhere(message)) as replies:
            async for reply in replies:
                if isinstance(reply, Reply):
                    if reply.done or reply.payload or reply.text:
                        table = decode(reply.payload) if reply.payload else None
                        data = _object(reply) if reply.body else None
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
        """One of the wishes that are no statements; the JSON object of its answer."""
        return _object(await self._ask(verb, argument, limit_secs))

    async def _ask(self, verb: str, argument: str, limit_secs: float) -> Reply:
        message = Call(request=0, verb=verb, argument=argument, creator=self.creator)
        async with contextlib.aclosing(self._stream(message, limit_secs)) as replies:
            async for reply in replies:
                if isinstance(reply, Reply) and reply.done:
                    return reply
        raise ElfError(f"the agent at {self.address} ended {verb} without an answer")

    async def tree(self, job: str) -> dict[str, object]:
        """The reduction trees of a job, one a flow, as their roots see them."""
        return await self.call("tree", job)

    async def status(self) -> dict[str, object]:
        """The agent's own state."""
        return await self.call("status")

    async def fleet(self) -> FleetVitals:
        """How all agents of the fleet are; one that does not answer within two seconds is there without
        ``vitals``."""
        return self._read("fleet", await self._ask("fleet", "", ANSWER_SECS), FleetVitals)

    async def tap(self, stream: str, where: str = "", columns: Sequence[str] = ()) -> AsyncGenerator[Tapped]:
        """Rows of a stream as its agents read them, as long as they are asked for; at most so many a second
        (``elf.wire.tapping``), what is beyond that is counted. ``where``: a condition in ELF-QL;
        ``columns``: those wanted, if not all. Raises ``UserError``.
        """
        wish = msgspec.json.encode(TapWish(str(uuid.uuid4()), stream, where, tuple(columns))).decode()
        while True:
            reply = await self._ask("tap", wish, ANSWER_SECS)
            told = self._read("tap", reply, TapReply)
            yield Tapped(decode(reply.payload) if reply.payload else None, told)
            await asyncio.sleep(told.again_ms / 1000)

    def _read(self, verb: str, reply: Reply, kind: type[T]) -> T:
        try:
            return msgspec.json.decode(reply.body, type=kind)
        except msgspec.MsgspecError as error:
            raise ElfError(f"the agent's answer to {verb} cannot be read: {error}") from None

    async def compare_facts(self, job: str) -> CompareFacts:
        """What an offline run of a job needs. Has the members ship their archives first."""
        from elf.job.messages import JobFacts

        reply = await self._ask("compare", job, COMPARE_SECS)
        try:
            facts = msgspec.msgpack.decode(reply.payload, type=JobFacts)
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
        return unpack_value((await self._ask("query", argument, ANSWER_SECS)).payload)

    async def leave(self, *, force: bool = False) -> dict[str, object]:
        """Have the agent seal what it has, hand it over and go. Raises ``UserError`` where something would
        have too few keepers without it, unless it is to go by ``force``."""
        return await self.call("leave", "force" if force else "", limit_secs=LEAVE_SECS)

    async def take_off(self, agent: str) -> str:
        """Have an agent that is gone for good, named or by where it was, expected no more from now on; what
        was done. Raises ``UserError`` for one that lives."""
        return (await self._ask("take off", agent, ANSWER_SECS)).text

    async def _anywhere(self, message: Execute) -> AsyncGenerator[Reply | Published]:
        """The replies to a statement; of a SUBSCRIBE, from one agent after the other. Each result once."""
        heard: dict[str, Heard] = {}
        while True:
            agent = self._transport
            try:
                async with contextlib.aclosing(self._stream(message, ANSWER_SECS)) as replies:
                    async for reply in replies:
                        if isinstance(reply, Published):
                            result = reply.result
                            known = heard.setdefault(result.job, Heard(None))
                            if not known.take(result.number, result.before):
                                continue
                            if known.upto is not None:
                                message = msgspec.structs.replace(message, after=(result.job, known.upto))
                        yield reply
                return
            except LostAgent as lost:
                if len(self._addresses) == 1 or not _SUBSCRIBE.fullmatch(message.sql):
                    raise
                await self._move(agent, lost)

    async def _move(self, agent: ZeroMqTransport | None, lost: LostAgent) -> None:
        """To another agent, unless somebody else has moved us meanwhile; the one that was lost comes last."""
        async with self._moving:
            if self._transport is not agent:
                return
            await self._disconnect()
            at = self._addresses.index(self.address) + 1
            self.address = self._addresses[at % len(self._addresses)]
            for tries_left in reversed(range(MOVES)):
                try:
                    await self.open()
                except ElfError as error:
                    if not tries_left:
                        raise ElfError(f"{lost}; {error}") from None
                    await asyncio.sleep(1.0)
                else:
                    return

    # -- one request -----------------------------------------------------------------------------------------

    async def _stream(self, message: Execute | Call, limit_secs: float) -> AsyncGenerator[Reply | Published]:
        """Send a request, yield its replies until it is done. ``limit_secs`` is for the first one."""
        request = Request(next(self._numbers))
        self._requests[request.number] = request
        try:
            self._send(msgspec.structs.replace(message, request=request.number))
            limit: float | None = limit_secs
            while True:
                arrived = await request.get(limit)
                if arrived is None:
                    raise ElfError(f"no answer from the agent at {self.address} within {limit_secs:g} s")
                limit = None
                if isinstance(arrived, Failed):
                    self._requests.pop(request.number, None)
                    raise UserError(arrived.text)
                if isinstance(arrived, Reply) and arrived.done:
                    self._requests.pop(request.number, None)
                    yield arrived
                    return
                yield arrived
        finally:
            self._close_request(request.number)

    def _close_request(self, number: int) -> None:
        if self._requests.pop(number, None) is not None:
            self._send(Cancel(request=number))

    def _send(self, message: Message) -> None:
        if self._transport is None:
            raise ElfError("the client is not open: use `async with`")
        frames = _CODEC.encode(message, cluster=self._cluster, sender=self._transport.address)
        self._transport.send(self.address, frames)

    # -- the connection --------------------------------------------------------------------------------------

    def _unreachable(self, why: str) -> ElfError:
        return ElfError(f"cannot reach an agent at {self.address}: {why}")

    async def _receive(self) -> None:
        """Sort what arrives by request. A frame that is none is dropped; it was not for us."""
        transport = self._transport
        if transport is None:
            return
        while True:
            try:
                _, frames = await transport.receive()
                message = _CODEC.decode(frames, cluster=self._cluster, max_bytes=_BYTES_MAX).message
            except Closed:
                return
            except OtherCluster as other:
                self._fail(OtherFleet(other.cluster, self._cluster))
                continue
            except PeerError:
                continue
            self._asked = None
            if isinstance(message, Reply | Failed | Published):
                request = self._requests.get(message.request)
                if request is not None:
                    request.put(message)
                elif isinstance(message, Reply):
                    self._look(message)

    async def _keep_alive(self) -> None:
        """Tell the agent that we are here, ask it whether it is, and give it up when it is not."""
        loop = asyncio.get_running_loop()
        while True:
            before = loop.time()
            await asyncio.sleep(KEEP_ALIVE_SECS)
            if loop.time() - before > STOPPED_SECS:
                self._lose("this client was stopped for too long; ask again")
            if not self._requests:
                continue
            for number in list(self._requests):
                self._send(KeepAlive(request=number))
            self._send(Call(request=0, verb="status", creator=self.creator))
            self._asked = self._asked or loop.time()
            if loop.time() - self._asked > SILENCE_SECS:
                self._lose(f"it has said nothing for {SILENCE_SECS:g} s")

    def _look(self, sign: Reply) -> None:
        """A sign of life: an agent that was started anew has forgotten our requests."""
        with contextlib.suppress(ElfError):
            if _object(sign).get("incarnation", self._incarnation) != self._incarnation:
                self._lose("it was restarted")

    def _lose(self, why: str) -> None:
        self._fail(LostAgent(f"lost the agent at {self.address}: {why}"))

    def _fail(self, error: ElfError) -> None:
        for request in self._requests.values():
            request.fail(error)


def _object(reply: Reply) -> dict[str, object]:
    """The JSON object of a reply; its text under ``text`` when there is none."""
    if not reply.body:
        return {"text": reply.text} if reply.text else {}
    try:
        return msgspec.json.decode(reply.body, type=dict[str, object])
    except msgspec.MsgspecError as error:
        raise ElfError(f"the agent's answer is not a JSON object: {error}") from None
