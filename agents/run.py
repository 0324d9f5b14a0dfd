"""``elf run``: a whole fleet in one process, over the memory transport, on finite inputs.

The same nodes, trees, masters, stream tasks and store as in a real fleet: N agents find each other through
the first, a client submits the query as a one-shot SELECT, and the inputs are read only when every agent has
the flow, so that nothing is missed. Event time is all there is: nothing is sealed before an input ends, and a
row is late only by its own source, so that the answer depends neither on N nor on the order in which agents
report.
"""

from __future__ import annotations

import asyncio
import contextlib
import platform
import random
import sys
import time
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import psutil

from agents import codec, logs
from agents.disk.store import Store
from agents.driver import Driver
from agents.inputs.values import Input
from agents.inputs.whole import Whole
from agents.node.beginning import NodeSettings, Restored, raft_config
from agents.node.node import Node
from agents.replay import Replayed, pace_of
from agents.runinputs import FleetStream, RunRequest, Share, streams_of
from agents.tasks.sinks import RejectFile, Sinks
from agents.tasks.streams import FunctionsAt, StreamEngine
from agents.tasks.streamtask import StreamTask
from elf.batch import decode
from elf.client.windows import WINDOW_COLUMNS
from elf.errors import UserError
from elf.fields import replace
from elf.job.catalog.membership import Identity, StreamSince
from elf.job.rollup.decide import RootSettings
from elf.job.worker.stream import LONG_AGO, WorkerSettings
from elf.ql.plan import COUNTED, Plan
from elf.ql.statements import Describe
from elf.transport.base import Limits
from elf.transport.memory import MemoryNetwork, MemoryTransport
from elf.wire.base import Message
from elf.wire.clients import Execute, Failed, KeepAlive, Published, Reply, WindowResult
from overlay import Overlay, OverlayConfig, Peer
from overlay.raft import Groups

CLUSTER = "run"
LIVE_LATENESS_US = 2_000_000
"""Of a pipe, and of an archive at a pace, where the query says none: as of the streams of a fleet
(``lateness_secs``)."""
REPLAY_IDLE_MS = 5_000
"""An archived log that is silent for so long, at a pace, does not hold windows open."""
PATIENT = RootSettings(limit_ms_min=1 << 60, limit_ms_max=1 << 60, grace_ms=1 << 60, patient=True)
"""A finite input is waited for, however long the other agents have been done with theirs."""
TOLD_SECS = 0.25
"""Between two times that it is told how much was read."""
UNBOUNDED = Limits(message_bytes_max=1 << 40, inbox_bytes_max=1 << 40)
"""Nothing is on a wire: a result is handed over however large it is."""


@dataclass(frozen=True)
class Summary:
    """What a run came to. Bytes are those of the inputs as read; ``bytes_sent`` and ``messages`` those
    between agents.
    """

    rows_in: int
    rows_rejected: int
    bytes_in: int
    seconds: float
    windows: int
    peak_rss_bytes: int
    tree_depth: int
    messages: int
    bytes_sent: int
    rejected: Mapping[str, int]
    """Lines that did not parse or have no time, by path; without the paths that have none."""
    uncast: int
    """Values that are NULL since they did not fit the types of their columns, which samples have told."""
    why_not: str
    """What is wrong with a line that was rejected; empty where that is not known."""
    beyond: Mapping[str, int]
    """Lines with more fields than their format, by path; without the paths that have none."""
    late: int
    """Lines that are in no window since they came later than LATENESS allows."""
    unread: Mapping[str, str]
    """Why paths could not be read to their ends."""
    columns: tuple[str, ...]
    """Of the answer's rows."""
    types: Mapping[str, str]
    """Those of the inputs' columns that are read as something else than text."""
    notes: tuple[str, ...] = ()
    """What a person should know of the inputs, in a line each."""
    blank: bool = False
    """Whether the inputs have nothing but blank lines, where they were looked at."""


def run(request: RunRequest, on_windows: Callable[[WindowResult], None]) -> Summary:
    """Run a query to its end; ``on_windows`` gets every window, in order. Raises ``UserError``."""
    logs.configure("error", "console")  # what a person should know of the inputs is in the summary
    made, notes = streams_of(request)
    pipe, replay = request.pipe, request.replay
    with _functions(request) as functions:
        fleet = partial(Fleet, made, functions=functions, rejects=request.rejects)
        if replay is not None:
            pace = pace_of(made[0].agents, replay.span, replay.speed)
            again = partial(Replayed, span=replay.span, pace=pace)
            fleet = partial(fleet, open_input=again, live=pace is not None)
        elif pipe is not None:

            def opened(share: Sequence[Share]) -> Input:
                return pipe if share else Whole([])

            fleet = partial(fleet, open_input=opened, live=True)
        summary = asyncio.run(_run(fleet, request, on_windows))
    return replace(summary, notes=notes, blank=not any(one.samples for one in made))


def ask(request: RunRequest) -> Reply:
    """The answer to a question; lines are only sampled. Raises ``UserError``."""
    logs.configure("error", "console")
    made, _ = streams_of(request)
    only = isinstance(request.asked.last, Describe) and len(made) == 1  # whatever it is called
    sql = f"DESCRIBE STREAM {made[0].facts.stream}" if only else request.asked.sql
    with _functions(request) as functions:
        return asyncio.run(_ask(partial(Fleet, made, functions=functions), sql, request))


@contextlib.contextmanager
def _functions(request: RunRequest) -> Iterator[FunctionsAt | None]:
    """Where aggregates of one's own run, if the text brings some: within walls where the machine has them,
    and else as whatever a person runs on their own machine."""
    if not request.asked.has_code:
        yield None
        return
    from elf.functions import confinement
    from elf.functions.sandbox import Sandboxes

    sandboxes = Sandboxes(confined=not confinement.lacking())
    try:
        yield FunctionsAt(sandboxes, lambda line: print(f"elf: {line}", file=sys.stderr))
    finally:
        sandboxes.close()


async def _ask(make: Callable[[], Fleet], sql: str, request: RunRequest) -> Reply:
    fleet = make()
    try:
        await fleet.start()
        return await fleet.ask(sql, request.tables, request.files)
    finally:
        await fleet.stop()


def run_together(
    request: RunRequest, queries: Sequence[str], on_windows: Callable[[int, WindowResult], None]
) -> tuple[Summary, dict[int, str]]:
    """Run several queries over the inputs of one, which are read once; ``on_windows`` gets every window with
    the number of its query. The queries that were refused, and why, are beside the figures. Raises
    ``UserError``."""
    logs.configure("error", "console")
    made, notes = streams_of(request)
    summary, failed = asyncio.run(_answered(partial(Fleet, made), request, queries, on_windows))
    return replace(summary, notes=notes, blank=not any(one.samples for one in made)), failed


async def _run(
    make: Callable[[], Fleet], request: RunRequest, on_windows: Callable[[WindowResult], None]
) -> Summary:
    queries = [request.asked.sql]
    summary, failed = await _answered(make, request, queries, lambda _, result: on_windows(result))
    if failed:
        raise UserError(failed[0])
    return summary


async def _answered(
    make: Callable[[], Fleet],
    request: RunRequest,
    queries: Sequence[str],
    on_windows: Callable[[int, WindowResult], None],
) -> tuple[Summary, dict[int, str]]:
    began = time.monotonic()
    fleet = make()
    try:
        await fleet.start()
        windows = 0

        def count(number: int, result: WindowResult) -> None:
            nonlocal windows
            windows += decode(result.status).num_rows
            on_windows(number, result)

        async with _telling(fleet, request):
            failed = await fleet.answer(queries, count, request.tables, request.files)
        return fleet.summary(windows, time.monotonic() - began), failed
    finally:
        await fleet.stop()


@contextlib.asynccontextmanager
async def _telling(fleet: Fleet, request: RunRequest) -> AsyncIterator[None]:
    """Tell whoever wants to know how much was read."""

    async def tell(told: Callable[[int], None]) -> None:
        while True:
            await asyncio.sleep(TOLD_SECS)
            told(fleet.bytes_read())

    telling = None if request.told is None else asyncio.create_task(tell(request.told))
    try:
        yield
    finally:
        if telling is not None:
            telling.cancel()


class Fleet:
    """N drivers in one process: each reads one of ``shares``. Columns are inferred from ``samples``.
    ``live``: windows are closed while inputs are read. ``rejects``: where rejected lines are kept. Made where
    a loop runs.
    """

    def __init__(
        self,
        streams: Sequence[FleetStream],
        *,
        network: MemoryNetwork | None = None,
        open_input: Callable[[Sequence[Any]], Input] = Whole,
        live: bool = False,
        functions: FunctionsAt | None = None,
        rejects: Path | None = None,
    ) -> None:
        self._live = live
        self._rejects = rejects
        self._functions = functions
        self._network = network or MemoryNetwork(UNBOUNDED)
        self._open_input = open_input
        paths = [{item.path for item in share} for one in streams for share in one.shares]
        self._twice = sum(map(len, paths)) > len(set().union(*paths))
        self._inputs: list[Input] = []
        self._columns: tuple[str, ...] = ()
        self._types: dict[str, str] = {}
        self._drivers = [self._driver(i, streams) for i in range(len(streams[0].shares))]
        self._ends: list[asyncio.Task[object]] = []

    def _driver(self, index: int, streams: Sequence[FleetStream]) -> Driver:
        address = f"agent-{index}:0"
        replayed = streams[0].agents[index] if streams[0].agents else None
        me = Identity(str(uuid.uuid4()), f"agent-{index}", 1, address)
        store = Store(":memory:")
        settings = WorkerSettings(
            finite=not self._live,
            # Only rows, and the end, close windows; of an archive some logs end before others.
            idle_ms=1 << 60 if replayed is None else REPLAY_IDLE_MS,
            future_us=None,
            lateness_us=LIVE_LATENESS_US if self._live else None,
            since_us=LONG_AGO,
            checkpoint_ms=1 << 60,
            agent=address if self._twice or replayed is not None else "",
            name=platform.node() if replayed is None else replayed.name,
            labels=() if replayed is None else replayed.labels,
        )
        inputs = [self._open_input(one.shares[index]) for one in streams]
        self._inputs += inputs
        tasks = [
            (self._task(one, settings, store, index), source)
            for one, source in zip(streams, inputs, strict=True)
        ]
        rng = random.Random(index)
        node = Node(
            me,
            [StreamSince(one.facts.stream, LONG_AGO) for one in streams],
            Overlay(ring_peer(me), OverlayConfig(), rng),
            Groups(ring_peer(me), raft_config(), rng),
            NodeSettings(
                root=PATIENT, voters_max=1, group_members=1, replicas=0
            ),  # they live and die together
            Restored(),
            new_cluster_uid=CLUSTER,
        )
        node.clients.statements.planning.finite = True
        limit = UNBOUNDED.message_bytes_max
        driver = Driver(
            node,
            self._network.listen(address),
            store,
            tasks,
            cluster=CLUSTER,
            finals=self._functions,
            message_bytes_max=limit,
        )
        driver.reading.clear()
        return driver

    def _task(self, stream: FleetStream, settings: WorkerSettings, store: Store, index: int) -> StreamTask:
        facts, sinks = stream.facts, Sinks()
        if self._rejects is not None:
            sinks = Sinks(rejects=RejectFile(self._rejects / f"{facts.stream}.{index}.jsonl"))
        engine = StreamEngine(facts.format, facts.timestamp, self._functions)
        return StreamTask(facts, settings, store, samples=stream.samples, engine=engine, sinks=sinks)

    async def start(self) -> None:
        """All agents in one ring, all of them members of all streams."""
        first, *others = self._drivers
        self._ends = [asyncio.ensure_future(first.run([]))]
        self._ends += [asyncio.ensure_future(d.run([first.node.me.address])) for d in others]
        await self._until(
            lambda: all(d.node.ready for d in self._drivers), "the agents did not find each other"
        )
        await self._until(
            lambda: all(
                len(first.node.log.members(task.facts.stream)) == len(self._drivers) for task in first.tasks()
            ),
            "members are missing",
        )

    async def _until(self, condition: Callable[[], bool], complaint: str, timeout_s: float = 60.0) -> None:
        deadline = time.monotonic() + timeout_s
        while not condition():
            for end in self._ends:
                if end.done():
                    raise UserError(f"an agent stopped: {end.result()}")
            if time.monotonic() > deadline:
                raise UserError(complaint)
            await asyncio.sleep(0.002)

    async def answer(
        self,
        queries: Sequence[str],
        on_windows: Callable[[int, WindowResult], None],
        tables: Mapping[str, bytes] | None = None,
        files: Mapping[str, str] | None = None,
    ) -> dict[int, str]:
        """Submit the queries, then let the inputs be read; ``on_windows`` gets every window with the number
        of its query. ``tables``: contents of the files that they join; ``files``: texts of aggregates.
        Returns the queries that were refused or failed, and why.
        """
        client = self._network.dial()
        failed: dict[int, str] = {}
        for number, sql in enumerate(queries):
            given, texts = tuple((tables or {}).items()), tuple((files or {}).items())
            asked = Execute(request=number + 1, sql=sql, creator="run", files=texts, tables=given)
            self._send(client, asked)
        beats = asyncio.ensure_future(self._beat(client, len(queries)))
        opened = asyncio.ensure_future(self._open_when_installed(len(queries), failed))
        collected = asyncio.ensure_future(self._collect(client, set(range(len(queries))), failed, on_windows))
        try:
            await asyncio.wait({opened, collected}, return_when=asyncio.FIRST_COMPLETED)
            if opened.done():
                opened.result()
            await collected
            return failed
        finally:
            for task in (beats, opened, collected):
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task
            await client.close()

    async def ask(self, sql: str, tables: Mapping[str, bytes], files: Mapping[str, str]) -> Reply:
        """The answer to a statement that gives no windows. Raises ``UserError``."""
        client = self._network.dial()
        try:
            given, texts = tuple(tables.items()), tuple(files.items())
            self._send(client, Execute(request=1, sql=sql, creator="run", files=texts, tables=given))
            while True:
                _, frames, _ = await client.receive()
                decoded = codec.decode(frames, cluster=CLUSTER, max_bytes=UNBOUNDED.message_bytes_max)
                match decoded.message:
                    case Failed(text=text):
                        raise UserError(text)
                    case Reply(done=True) as reply:
                        return reply
        finally:
            await client.close()

    def _send(self, client: MemoryTransport, message: Message) -> None:
        client.send(
            self._drivers[0].node.me.address, codec.encode(message, cluster=CLUSTER, sender=client.address)
        )

    async def _beat(self, client: MemoryTransport, requests: int) -> None:
        while True:
            await asyncio.sleep(2)
            for request in range(1, requests + 1):
                self._send(client, KeepAlive(request=request))

    async def _open_when_installed(self, queries: int, failed: Mapping[int, str]) -> None:
        """Read only when all queries that were not refused are jobs that somebody reads and whose masters
        read their flows, and every stream task has these. (Equal queries share one.) A creation that was not
        confirmed in time may have made a job too: nobody reads it.
        """
        log = self._drivers[0].node.log
        tasks = [task for driver in self._drivers for task in driver.tasks()]

        def installed() -> bool:
            flows = log.flows()
            masters = [master for driver in self._drivers for master in driver.node.job_groups.read()]
            active = sum(master.state == "active" for master in masters)
            return active >= queries - len(failed) and all(
                {flow.uid for flow in flows if flow.fragment.stream == task.facts.stream}
                <= set(task.worker.flows())
                for task in tasks
            )

        while not installed():
            await asyncio.sleep(0.002)
        for spec in log.jobs()[-1:]:
            self._columns = _columns_of(spec.plan)
            self._types = {c.name: c.type for f in spec.plan.fragments for c in f.columns if c.type != "text"}
        for driver in self._drivers:
            driver.reading.set()

    async def _collect(
        self,
        client: MemoryTransport,
        waiting: set[int],
        failed: dict[int, str],
        on_windows: Callable[[int, WindowResult], None],
    ) -> None:
        receive = asyncio.ensure_future(client.receive())
        try:
            while waiting:
                await asyncio.wait({receive, *self._ends}, return_when=asyncio.FIRST_COMPLETED)
                stopped = [end for end in self._ends if end.done()]
                if stopped and not receive.done():
                    raise UserError(getattr(stopped[0].result(), "text", "an agent stopped"))
                _, frames, _ = receive.result()
                decoded = codec.decode(frames, cluster=CLUSTER, max_bytes=UNBOUNDED.message_bytes_max)
                receive = asyncio.ensure_future(client.receive())
                match message := decoded.message:
                    case Failed():
                        failed[message.request - 1] = message.text
                        waiting.discard(message.request - 1)
                    case Published():
                        await self._hand_over(message, on_windows)
                    case Reply(done=True):
                        if message.text:  # of a job that ended before its last window
                            failed[message.request - 1] = message.text
                        waiting.discard(message.request - 1)
        finally:
            receive.cancel()
            await asyncio.gather(receive, return_exceptions=True)

    async def _hand_over(self, message: Published, on_windows: Callable[[int, WindowResult], None]) -> None:
        """Beside the loop, which has leases to renew. No more windows are made meanwhile than those that are
        being made, and nobody asks for these again."""
        for driver in self._drivers:
            driver.making.clear()
        await asyncio.to_thread(on_windows, message.request - 1, message.result)
        for driver in self._drivers:
            driver.making.set()
            driver.store.prune_windows(message.result.job, message.result.last_us)

    def bytes_read(self) -> int:
        """Of all inputs, so far."""
        return sum(task.counts.bytes_read for driver in self._drivers for task in driver.tasks())

    def summary(self, windows: int, seconds: float) -> Summary:
        tasks = [task.counts for driver in self._drivers for task in driver.tasks()]
        rejected = sum((task.rejected for task in tasks), Counter[str]())
        counters = [driver.transport.counters for driver in self._drivers]
        return Summary(
            rows_in=sum(task.rows_read for task in tasks),
            rows_rejected=rejected.total(),
            bytes_in=sum(task.bytes_read for task in tasks),
            seconds=round(seconds, 6),
            windows=windows,
            peak_rss_bytes=_peak_rss(),
            tree_depth=self._depth(),
            messages=sum(c.sent for c in counters),
            bytes_sent=sum(c.sent_bytes for c in counters),
            rejected=dict(sorted(rejected.items())),
            uncast=sum(task.uncast for task in tasks),
            why_not=next((task.why_not for task in tasks if task.why_not), ""),
            beyond=dict(sorted(sum((task.beyond for task in tasks), Counter[str]()).items())),
            late=sum(task.late for task in tasks),
            columns=self._columns,
            types=self._types,
            unread={path: why for one in self._inputs for path, why in one.counters.problems.items()},
        )

    def _depth(self) -> int:
        """Edges from the deepest worker of the query's tree to its root."""
        nodes = {driver.node.me.address: driver.node for driver in self._drivers}
        topics = {flow.topic for node in nodes.values() for flow in node.sender.flows()}
        deepest = 0
        for topic in topics:
            for node in nodes.values():
                depth, at = 0, node.overlay.parent(topic)
                while at is not None and depth <= len(nodes):
                    depth, at = depth + 1, nodes[at].overlay.parent(topic)
                deepest = max(deepest, depth)
        return deepest

    async def stop(self) -> None:
        for driver in self._drivers:
            driver.stop("done")
        await asyncio.gather(*self._ends, return_exceptions=True)


def _columns_of(plan: Plan) -> tuple[str, ...]:
    """Of the rows of a query's answer, also where there are none."""
    windows = WINDOW_COLUMNS if plan.windows else ()
    counted = COUNTED if plan.fragment.count is not None else ()
    return (*windows, *counted, *plan.outputs)


def ring_peer(me: Identity) -> Peer:
    """An agent's place on the ring."""
    return Peer(me.address, me.incarnation)


def _peak_rss() -> int:
    import resource

    return max(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024, psutil.Process().memory_info().rss)
