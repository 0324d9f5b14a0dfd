"""What an agent shows over HTTP: ``AgentStatus`` of ``agents.http``, read from the driver and its node; or
while it stands aside (``agents.disk.room``)."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime
from typing import Final

import msgspec
import pyarrow as pa

from agents.driver import Driver
from agents.http import Fact, NotServing
from agents.inside import Inside
from agents.reports import outputs_of
from elf.batch import decode
from elf.client.values import plain, rfc3339
from elf.errors import ElfError, UserError
from elf.job.tables import is_table
from elf.page.events import KEPT_BYTES_MAX, Once
from elf.ql.templates import name as quoted
from elf.ql.templates import text_literal
from elf.wire.clients import ONE_SHOT_PREFIX, Execute, Published, Reply, WindowResult

BUDGETS_SHOWN: Final = 10
"""Of those whose budgets are used up: the first."""
ROWS_MAX: Final = 10_000
"""Of a table in one answer."""
ROWS_AT_ONCE: Final = 100
"""So many are made ready for an answer on the loop; more on a thread."""


class Status:
    """One agent's facts."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._told = Once(_facts, lambda result, _: len(result.payload) <= KEPT_BYTES_MAX)
        """Of results that several read."""

    def trouble(self) -> str:
        return "the agent is on its way out" if self._driver.node.leaving else ""

    def unready(self) -> str:
        return self._driver.readiness.reason

    def warnings(self) -> Sequence[str]:
        return (
            [
                f"stream {stream}: {rolls} rolls wait for an archive that cannot be written to: {why}"
                for stream, (rolls, why) in self._driver.archive_problems().items()
                if why
            ]
            + self._driver.archive_warnings()
            + [
                f"rows are left out, others stand for them: {one.said}"
                for one in self._driver.node.lending.keeper.told()[:BUDGETS_SHOWN]
                if one.weight > 1
            ]
        )

    def gaps(self) -> Sequence[Fact]:
        return self._driver.gaps()

    def metrics(self) -> bytes:
        node, metrics = self._driver.node, self._driver.metrics
        metrics.snapshots_retained(node.sender.retained())
        holding, replication = node.replicas.holding, node.replicas.replication
        metrics.replicas(
            wanting=replication.wanting,
            copied=replication.copied,
            held=len(holding),
            held_bytes=holding.bytes,
            sent_bytes=replication.sent_bytes,
            mirrored=node.job_groups.roots.mirrored,
            run_again=node.job_groups.roots.run_again,
            not_run_again=node.job_groups.roots.not_run_again,
        )
        arrived = node.links.arrivals()
        metrics.slices(within=node.sender.within, across=node.sender.across, arrived=arrived)
        metrics.probes(node.probes.bytes)
        metrics.members_live(len(node.overlay.peers()) + 1)
        metrics.jobs(len(node.log.jobs()) + len(node.log.programs()))
        metrics.flows(node.flows)
        metrics.log(node.log.last, keeps=node.catalog.keeps, leads=node.catalog.leads)
        skews = node.clocks.skews(self._driver.now_ms())
        metrics.skew(max(map(abs, skews.values()), default=0) / 1000)
        for stream, (rolls, _) in self._driver.archive_problems().items():
            metrics.rolls_waiting(stream, rolls)
        for kind, count in self._driver.losses().items():
            metrics.lost(kind, count)
        metrics.budgets_over(node.lending.keeper.over_budget())
        metrics.outputs_waiting(sum(one.waiting for one in outputs_of(node)))
        from agents.exposition import exposition  # its library is 3 MB, and many agents are never asked

        return exposition(metrics, self._driver.gauges())

    def jobs(self) -> Sequence[Fact]:
        return [
            {
                "name": spec.name,
                "creator": spec.creator,
                "stream": ", ".join(spec.plan.streams),
                "master": spec.leader,
                "flows": [flow.uid for flow in spec.flows],
                "query": spec.plan.sql,
            }
            for spec in self._driver.node.log.jobs()
            if not spec.name.startswith(ONE_SHOT_PREFIX)
        ] + self._programs()

    def _programs(self) -> list[Fact]:
        """Jobs in Python, as they do on this agent."""
        node = self._driver.node
        shown = node.programs.shown(self._driver.now_ms())
        return [
            {
                "name": spec.name,
                "creator": spec.creator,
                "stream": ", ".join(sorted({tap.fragment.stream for tap in spec.taps})),
                "class": spec.title,
                "state": shown.get(spec.uid, ("starting", ""))[0],
                "reason": shown.get(spec.uid, ("starting", ""))[1],
            }
            for spec in node.log.programs()
        ]

    def members(self) -> Sequence[Fact]:
        return self._driver.node.fleet.members()

    def streams(self) -> Sequence[Fact]:
        return self._driver.node.fleet.streams()

    def broadcasts(self, job: str) -> Sequence[Fact] | None:
        node = self._driver.node
        spec = next((spec for spec in node.log.jobs() if spec.name == job), None)
        if spec is None:
            return None
        return [
            {"text": heard.text, "sent": moment(heard.sent_ms), "heard": moment(heard.heard_ms)}
            for heard in node.broadcasts.of(spec.uid)
        ]

    async def rows(
        self, table: str, equals: Sequence[tuple[str, str]], *, anywhere: bool, creator: str = ""
    ) -> Fact | None:
        log = self._driver.node.log
        there = [one for one in log.outputs() if is_table(one) and one.name == table]
        if not there:
            return None
        named = [one for one in there if creator in ("", one.creator)]
        if len({one.creator for one in named}) != 1:
            owners = ", ".join(sorted({one.creator for one in there}))
            raise UserError(f"there are tables {table} of {owners}: creator=… says whose")
        spec = named[-1]
        given = {column.lower() for column, _ in equals}
        if missing := [one for one in spec.option("key").split(",") if one.lower() not in given]:
            raise UserError(f"a row is found by its key: add {missing[0]}=… to the question")
        where = " AND ".join(
            f"{quoted(column, 'duckdb')} = {text_literal(value, 'duckdb')}" for column, value in equals
        )
        sql = f"SELECT * FROM {table}{' AS OF ANY' if anywhere else ''} WHERE {where}"
        asked = Execute(request=1, sql=sql, creator=spec.creator)
        found = list[pa.Table]()
        async for reply in Inside(self._driver, None, spec.creator).anywhere(asked):
            if isinstance(reply, Reply) and reply.payload:
                found.append(decode(reply.payload))
                if (count := sum(one.num_rows for one in found)) > ROWS_MAX:
                    raise UserError(
                        f"{count:,} rows have this key, and {ROWS_MAX:,} is the most here: SQL has all"
                    )
            if isinstance(reply, Reply) and reply.done:
                few = sum(one.num_rows for one in found) <= ROWS_AT_ONCE
                rows = _plain(found) if few else await asyncio.to_thread(_plain, found)
                told = msgspec.json.decode(reply.body)
                late = {"recovering": True} if told.get("recovering") else {}
                return {"rows": rows, "number": told["number"], "as_of": told["as_of"], **late}
        raise UserError("the agent ends")

    async def windows(self, job: str) -> AsyncIterator[Fact] | None:
        if all(spec.name != job for spec in self._driver.node.log.jobs()):
            return None
        return self._windows(job)

    async def _windows(self, job: str) -> AsyncIterator[Fact]:
        """Subscribe like any client, from inside the process."""
        creator = next(spec.creator for spec in self._driver.node.log.jobs() if spec.name == job)
        inside = Inside(self._driver, None, creator)
        subscribe = Execute(request=1, sql=f"SUBSCRIBE {job}", creator=creator)
        with contextlib.suppress(ElfError):  # the job has failed, or the reader is too slow: it ends
            async with contextlib.aclosing(inside.anywhere(subscribe)) as replies:
                async for reply in replies:
                    if isinstance(reply, Published):
                        for fact in self._told.of(reply.result):
                            yield fact


class Aside:
    """Those of an agent that stands aside: ``why``, and nothing else."""

    def __init__(self, why: str) -> None:
        self._why = why

    def trouble(self) -> str:
        return self._why

    def unready(self) -> str:
        return self._why

    def warnings(self) -> Sequence[str]:
        return ()

    def gaps(self) -> Sequence[Fact]:
        return ()

    def metrics(self) -> bytes:
        raise NotServing(self._why)  # its counts begin anew with its next life

    def jobs(self) -> Sequence[Fact]:
        raise NotServing(self._why)

    def members(self) -> Sequence[Fact]:
        raise NotServing(self._why)

    def streams(self) -> Sequence[Fact]:
        raise NotServing(self._why)

    def broadcasts(self, job: str) -> Sequence[Fact] | None:
        raise NotServing(self._why)

    async def rows(
        self, table: str, equals: Sequence[tuple[str, str]], *, anywhere: bool, creator: str = ""
    ) -> Fact | None:
        raise NotServing(self._why)

    async def windows(self, job: str) -> AsyncIterator[Fact] | None:
        raise NotServing(self._why)


def _plain(tables: Sequence[pa.Table]) -> list[object]:
    """Their rows, for JSON; some at a time, since Arrow lets no other thread run meanwhile."""
    parts = (part for table in tables for part in table.to_batches(max_chunksize=ROWS_AT_ONCE))
    return [plain(row) for part in parts for row in part.to_pylist()]


def moment(ms: int) -> str:
    """RFC 3339, UTC."""
    return rfc3339(datetime.fromtimestamp(ms / 1e3, UTC))


def _facts(result: WindowResult) -> list[Fact]:
    """A fact for each window: status and rows, their times in UTC."""
    rows = decode(result.payload).to_pylist()
    found: list[Fact] = []
    for status in decode(result.status).to_pylist():
        inside = [row for row in rows if row.get("window_start") == status["window_start"]]
        early = {"early": result.early} if result.early else {}
        told = {"job": result.name, "version": result.version, **early, "status": status, "rows": inside}
        found.append({name: plain(value) for name, value in told.items()})
    return found
