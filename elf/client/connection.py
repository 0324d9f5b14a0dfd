"""A client's connection to one agent, or to the next one where several are named: requests out, replies and
results back, over one ZeroMQ DEALER.

Every open request is kept alive every two seconds (an agent ends what it hears nothing of), and the agent is
asked for a sign of life when it has been silent. Rules: every wait has a limit with a name; every request
that is not finished is cancelled; a reader that falls behind is told so, it never grows a queue; whatever
fails is one ``ElfError`` with one clear text.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import re
import time
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from elf.client.asking import ANSWER_SECS, KEEP_ALIVE_SECS, answer_of, object_of
from elf.client.credentials import Credential, credentials, renewed
from elf.errors import AuthError, ElfError, PeerError, UserError
from elf.security.principals import Security
from elf.security.roles import CALLS, is_change
from elf.transport.base import Closed
from elf.transport.handshakes import Failure
from elf.transport.probe import has_keys, probe
from elf.transport.zeromq import ZeroMqTransport
from elf.wire.base import FAMILY, Message
from elf.wire.clients import (
    CLIENT_MESSAGES,
    Call,
    Cancel,
    Execute,
    Failed,
    KeepAlive,
    Published,
    Reply,
    signed_part,
)
from elf.wire.frames import Codec, OtherCluster
from elf.wire.heard import Heard

if TYPE_CHECKING:
    from elf.security.folder import Keys

CLUSTER: Final = "elf"
"""The cluster name of an agent whose configuration gives none."""
CONNECT_SECS: Final = 5.0
"""How long ``connect`` tries to reach the agent; what is none is told after a part of it."""

STOPPED_SECS: Final = 9.0
"""A client that was stopped for so long (suspended, laptop lid) may have been forgotten by the agent."""

SILENCE_SECS: Final = 15.0
"""An agent that has said nothing for so long, though it was asked, is lost."""

MOVES: Final = 10
"""Times that all agents are tried when one is lost, a second or more apart."""

_BYTES_MAX: Final = 256 << 20
_CODEC: Final[Codec[Message]] = Codec({FAMILY: CLIENT_MESSAGES})
_SUBSCRIBE: Final = re.compile(r"\s*SUBSCRIBE\s+\w+\s*;?\s*", re.IGNORECASE)
WAITING_MAX: Final = 1024
"""Replies that may wait for a slow reader; with more its request fails."""

Incoming = Reply | Failed | Published


class LostAgent(ElfError):
    """The agent that we talked to is no more, or has forgotten us."""


class ChangedKey(LostAgent):
    """All agents listen with another key now, which we know."""


class OtherFleet(ElfError):
    """There is an agent, of another cluster than was asked for."""

    def __init__(self, its: str, asked: str) -> None:
        super().__init__(
            f"it is an agent of cluster {its!r}, and {asked!r} was asked for (--cluster; cluster.name)"
        )


class Unreadable(ElfError):
    """What the agent says is no message to this client."""

    def __init__(self, refused: PeerError) -> None:
        way_out = "it was damaged on its way, or agent and client are of two versions of elf"
        super().__init__(f"what it says cannot be read ({refused}): {way_out}")


class Request:
    """One open request, and what has arrived for it: bounded, and ended by an error at any time. ``number``
    is the client's own."""

    def __init__(self, number: int) -> None:
        self.number = number
        self._arrived: asyncio.Queue[Incoming | ElfError] = asyncio.Queue()

    def put(self, message: Incoming) -> None:
        """Something arrived."""
        if self._arrived.qsize() >= WAITING_MAX:
            self.fail(ElfError(f"the reader is too slow: more than {WAITING_MAX} results wait for it"))
        else:
            self._arrived.put_nowait(message)

    def fail(self, error: ElfError) -> None:
        """Nothing will arrive any more. What waits is given up: the error must not wait behind it."""
        while not self._arrived.empty():
            self._arrived.get_nowait()
        self._arrived.put_nowait(error)

    async def get(self, limit_secs: float | None) -> Incoming | None:
        """The next message; None when there was none in time. Raises what ``fail`` was given."""
        try:
            async with asyncio.timeout(limit_secs):
                arrived = await self._arrived.get()
        except TimeoutError:
            return None
        if isinstance(arrived, ElfError):
            raise arrived
        return arrived


class Connection:
    """See the module's docstring. Belongs to one event loop."""

    def __init__(
        self,
        address: str,
        *,
        timeout: float,
        creator: str,
        cluster: str,
        keys: str | Path | Security | None = None,
    ) -> None:
        self._addresses = tuple(one for part in address.split(",") if (one := part.strip())) or (address,)
        self.address = self._addresses[0]
        """Of the agent that we talk to."""
        self._timeout = timeout
        self._creator = creator
        self._asked_cluster = self._cluster = cluster
        self._named = keys
        self._credential = Credential("no keys")
        self._numbers = itertools.count(1)
        self._requests: dict[int, Request] = {}
        self._transport: ZeroMqTransport | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._asked: float | None = None
        self._incarnation: object = None
        self._moving = asyncio.Lock()
        self._stale = False
        """Whether the agent was lost because of its key: then the next request opens the connection anew."""
        self._learning: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Reach an agent. Idempotent; raises as ``elf.client.connect`` says."""
        if self._transport is not None:
            return
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
                return
        raise failed[0] if len(failed) == 1 else ElfError("; ".join(map(str, failed)))

    @property
    def keys(self) -> Keys | None:
        """Of a fleet, with which this client came; None: it came without."""
        return self._credential.keys

    async def _open(self) -> None:
        if why := await probe(self.address, self._timeout / CONNECT_SECS):
            raise self._unreachable(why)
        refused: list[AuthError] = []
        for credential in credentials(self.address, self._named):
            self._credential = credential
            keys = credential.keys
            own = keys is not None and self._asked_cluster == CLUSTER
            self._cluster = keys.identity.cluster if keys is not None and own else self._asked_cluster
            try:
                return await self._shake_hands()
            except AuthError as error:
                wants = await has_keys(self.address)
                other = wants is not None and wants != (credential.security is not None)
                refused.append(credential.refused("mechanism") if other else error)
        raise self._unreachable("; ".join(dict.fromkeys(map(str, refused))))

    async def _shake_hands(self) -> None:
        self._asked = self._incarnation = None
        self._stale = False
        self._transport = await ZeroMqTransport.dial(security=self._credential.security, told=self._told)
        self._tasks = [asyncio.create_task(self._receive()), asyncio.create_task(self._keep_alive())]
        try:
            status = object_of(await self.ask("status", "", self._timeout))
        except BaseException as error:
            await self._disconnect()
            if isinstance(error, AuthError):
                raise
            if isinstance(error, OtherFleet | Unreadable):
                raise self._unreachable(str(error)) from None
            if isinstance(error, ElfError) and not isinstance(error, UserError):
                raise self._unreachable(
                    f"no agent of cluster {self._cluster!r} answers there "
                    "(--cluster NAME, as the agent's cluster.name says), or it is stopped"
                ) from None
            raise
        self._incarnation = status.get("incarnation")
        await self._learn(status)

    async def _learn(self, status: dict[str, object]) -> None:
        """Ask for the keys that agents listen with, where there is one that we do not know."""
        keys, newest = self.keys, status.get("fleet_key")
        if keys is None or keys.certificate.kind != "person" or self._stale:
            return
        if newest in (None, "", keys.identity.fleet.newest.hex()):
            return
        from elf.security.certificates import Signed

        with contextlib.suppress(ElfError, msgspec.ValidationError):  # the next status says it again
            told = object_of(await self.ask("keys", "", self._timeout)).get("signed")
            signed = msgspec.convert(told, tuple[Signed, ...], strict=False)
            self._credential = renewed(self._credential, signed)

    async def close(self) -> None:
        """Cancel what is open and let go of the agent. Idempotent."""
        for number in list(self._requests):
            self._close_request(number)
        await self._disconnect()

    async def _disconnect(self) -> None:
        tasks = [*self._tasks, *([self._learning] if self._learning is not None else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._tasks, self._learning = [], None
        if self._transport is not None:
            await self._transport.close()
            self._transport = None

    # -- requests --------------------------------------------------------------------------------------------

    async def ask(self, verb: str, argument: str, limit_secs: float) -> Reply:
        """The answer to one of the proposals that are no statements."""
        message = Call(request=0, verb=verb, argument=argument, creator=self._creator)
        ended = f"the agent at {self.address} ended {verb} without an answer"
        return await answer_of(self._stream(message, limit_secs), ended)

    async def anywhere(self, message: Execute) -> AsyncGenerator[Reply | Published]:
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
                stays = len(self._addresses) == 1 and not isinstance(lost, ChangedKey)
                if stays or not _SUBSCRIBE.fullmatch(message.sql):
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

    async def _open_again(self) -> None:
        """The agent may listen with another key by now, which may be known here by now."""
        async with self._moving:
            if self._stale:
                self._stale = False
                await self._disconnect()
                await self.open()

    async def _stream(self, message: Execute | Call, limit_secs: float) -> AsyncGenerator[Reply | Published]:
        """Send a request, yield its replies until it is done. ``limit_secs`` is for the first one."""
        if self._stale:
            await self._open_again()
        request = Request(next(self._numbers))
        self._requests[request.number] = request
        try:
            self._send(self._signed(msgspec.structs.replace(message, request=request.number)))
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

    def _signed(self, message: Execute | Call) -> Execute | Call:
        """With its author's signature, where there are keys and it may change something."""
        keys = self.keys
        if keys is None or (isinstance(message, Call) and not is_change(CALLS.get(message.verb, "read"))):
            return message
        from elf.security.authorship import author

        text, digests = signed_part(message)
        authored = author(keys.pair, self._cluster, text, digests, time.time())
        return msgspec.structs.replace(message, authored=authored)

    def _close_request(self, number: int) -> None:
        if self._requests.pop(number, None) is not None:
            self._send(Cancel(request=number))

    def _send(self, message: Message) -> None:
        if self._transport is None:
            raise ElfError("the client is not open: use `async with`")
        frames = _CODEC.encode(message, cluster=self._cluster, sender=self._transport.address)
        self._transport.send(self.address, frames)

    # -- the agent -------------------------------------------------------------------------------------------

    def _told(self, _address: str, why: Failure | None) -> None:
        """How a handshake has ended; one that fails later is that of a key that is admitted no more."""
        if why is None:
            return
        error: ElfError = self._credential.refused(why)
        if self._incarnation is not None:
            self._stale = why != "key"
            error = AuthError(str(self._unreachable(str(error))))
            if self._stale and self._knows_another_key():
                error = ChangedKey(f"lost the agent at {self.address}: the fleet has another key; ask again")
        self._fail(error)

    def _knows_another_key(self) -> bool:
        keys, security = self.keys, self._credential.security
        return keys is not None and security is not None and security.server != keys.identity.fleet.newest

    def _unreachable(self, why: str) -> ElfError:
        return ElfError(f"cannot reach an agent at {self.address}: {why}")

    def _no_answer(self, why: ElfError) -> ElfError:
        return ElfError(f"no answer from the agent at {self.address}: {why}")

    async def _receive(self) -> None:
        """Sort what arrives by request. Of what cannot be read nobody knows whose answer it is: all that wait
        are told."""
        transport = self._transport
        if transport is None:
            return
        while True:
            try:
                _, frames, _ = await transport.receive()
                message = _CODEC.decode(frames, cluster=self._cluster, max_bytes=_BYTES_MAX).message
            except Closed:
                return
            except OtherCluster as other:
                self._fail(OtherFleet(other.cluster, self._cluster))
                continue
            except PeerError as refused:
                error: ElfError = Unreadable(refused)
                self._fail(error if self._incarnation is None else self._no_answer(error))
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
            self._send(Call(request=0, verb="status", creator=self._creator))
            self._asked = self._asked or loop.time()
            if loop.time() - self._asked > SILENCE_SECS:
                self._lose(f"it has said nothing for {SILENCE_SECS:g} s")

    def _look(self, sign: Reply) -> None:
        """A sign of life: an agent that was started anew has forgotten our requests."""
        with contextlib.suppress(ElfError):
            status = object_of(sign)
            if status.get("incarnation", self._incarnation) != self._incarnation:
                self._lose("it was restarted")
            elif self._incarnation is not None and (self._learning is None or self._learning.done()):
                self._learning = asyncio.create_task(self._learn(status))

    def _lose(self, why: str) -> None:
        self._fail(LostAgent(f"lost the agent at {self.address}: {why}"))

    def _fail(self, error: ElfError) -> None:
        for request in self._requests.values():
            request.fail(error)
