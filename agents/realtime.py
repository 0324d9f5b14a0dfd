"""The ports of a real agent (``agents.ports``) that are made of an asyncio loop, threads and a transport."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Final, TypeVar

from agents import codec
from agents.codec import Message
from agents.ports import Queue
from elf.security.certificates import Signed
from elf.transport.base import Transport
from elf.wire.base import Message as JobMessage

T = TypeVar("T")

OUTPUTS_AT_ONCE: Final = 8
"""Results on their way out of the fleet, whose targets may take their time: a pool of their own."""
USERS_AT_ONCE: Final = 4
"""Commits with reduce or final functions, which may take their time: a pool of their own."""


class LoopClock:
    """Time on the asyncio loop that runs. ``guard`` calls what is due, unless the agent has stopped."""

    def __init__(self, guard: Callable[[Callable[[], None]], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._guard = guard
        self._offset = time.time() - time.monotonic()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = 0

    def now_ms(self) -> int:
        """Wall clock that never steps back, in milliseconds."""
        return int((self._offset + time.monotonic()) * 1000)

    def soon(self, action: Callable[[], None]) -> None:
        self._loop.call_soon(self._guard, action)

    def after(self, ms: int, action: Callable[[], None]) -> None:
        self._loop.call_later(ms / 1000, self._guard, action)

    def wake(self, at_ms: int, tick: Callable[[], None]) -> None:
        if self._timer is not None and at_ms >= self._timer_ms:
            return
        self.close()
        self._timer_ms = at_ms
        self._timer = self._loop.call_later((at_ms - self.now_ms()) / 1000, self._woken, tick)

    def _woken(self, tick: Callable[[], None]) -> None:
        self._timer = None
        self._guard(tick)

    def post(self, action: Callable[[], None]) -> None:
        """``soon``, from any thread. A loop that has ended takes nothing any more."""
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._guard, action)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()


class Threads:
    """Work on threads. ``post`` has something called on the loop."""

    def __init__(self, post: Callable[[Callable[[], None]], None]) -> None:
        self._post = post
        pool = ThreadPoolExecutor(2, thread_name_prefix="commit")
        disk = ThreadPoolExecutor(1, thread_name_prefix="groups")
        replicas = ThreadPoolExecutor(1, thread_name_prefix="replicas")
        self._outputs = ThreadPoolExecutor(OUTPUTS_AT_ONCE, thread_name_prefix="outputs")
        self._plans = ThreadPoolExecutor(1, thread_name_prefix="plan")
        self._users = ThreadPoolExecutor(USERS_AT_ONCE, thread_name_prefix="users")
        programs = ThreadPoolExecutor(1, thread_name_prefix="programs")
        past = ThreadPoolExecutor(1, thread_name_prefix="past")
        tables = ThreadPoolExecutor(1, thread_name_prefix="tables")
        self._pools = pool, disk, replicas, programs, past, tables
        self._of: dict[Queue, ThreadPoolExecutor] = {
            "plan": self._plans,
            "compute": pool,
            "functions": self._users,
            "commit": pool,
            "persist": disk,
            "groups": disk,
            "replicas": replicas,
            "programs": programs,
            "outputs": self._outputs,
            "past": past,
            "tables": tables,
            "aside": pool,
        }

    def submit(self, queue: Queue, work: Callable[[], T], then: Callable[[T], None]) -> None:
        self.when_done(self.begin(queue, work), then)

    def begin(self, queue: Queue, work: Callable[[], T]) -> Future[T]:
        return self._of[queue].submit(work)

    def when_done(self, future: Future[T], then: Callable[[T], None]) -> None:
        """Has ``then`` called on the loop with what the future comes to."""
        future.add_done_callback(lambda done: self._post(lambda: then(done.result())))

    def end_functions(self) -> None:
        """Wait for users' functions, on a thread that may."""
        self._users.shutdown(wait=True, cancel_futures=True)

    def end_outputs(self) -> None:
        """Wait for deliveries, on a thread that may; no more begin."""
        self._outputs.shutdown(wait=True, cancel_futures=True)

    def close(self) -> None:
        self._plans.shutdown(wait=True, cancel_futures=True)
        for pool in self._pools:
            pool.shutdown(wait=True)


class TransportLinks:
    """Messages over a transport, and to clients inside the process (the HTTP server's), which have no
    socket."""

    def __init__(
        self,
        transport: Transport,
        cluster: str,
        address: str,
        know: Callable[[Signed], object] = lambda signed: None,
    ) -> None:
        """``know`` is told what was signed: whom the transport admits follows from it."""
        self._know = know
        self._transport = transport
        self._encode = partial(codec.encode, cluster=cluster, sender=address)
        self._clients: dict[str, asyncio.Queue[JobMessage]] = {}
        self._same: Message | None = None
        self._frames: list[bytes] = []

    def send(self, to: str, message: Message) -> None:
        if to in self._clients and isinstance(message, JobMessage):
            self._clients[to].put_nowait(message)
            return
        if message is not self._same:  # a multicast goes to many children: encoded once
            self._same, self._frames = message, self._encode(message)
        self._transport.send(to, self._frames)

    def known(self, signed: Signed) -> None:
        self._know(signed)

    def settled(self) -> None:
        """What was sent last does not come again."""
        self._same, self._frames = None, []

    def open_client(self, address: str) -> asyncio.Queue[JobMessage]:
        """What is sent to this address comes out here."""
        self._clients[address] = asyncio.Queue()
        return self._clients[address]

    def close_client(self, address: str) -> None:
        self._clients.pop(address, None)
