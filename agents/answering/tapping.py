"""Rows of a stream for somebody who looks on (``elf tap``).

The client asks again and again, under a name of its own; each time the members of the stream are asked what
has come since (``SampleRows``), and what they say is one table. So nobody is sent more than was asked for: a
client that is slow, or gone, costs an agent what it may hold for a look, and no more. The condition is
planned like the WHERE of a query, once a tap.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

import msgspec
import pyarrow as pa

from agents.answering.asks import SILENT, Procedure, ToAddress, offload
from agents.answering.fleet import Fleet
from agents.answering.looking import as_asked
from elf.batch import decode, encode
from elf.errors import PeerError, UserError
from elf.job.catalog.log import CatalogLog
from elf.job.catalog.members import Member
from elf.job.messages.inquiries import SampledRows, SampleRows, StreamSeen
from elf.job.worker.fitting import arrow_schema
from elf.schema import Column, Schema, merge_schemas
from elf.wire.base import Answer
from elf.wire.clients import LINES_MAX, RETRY_MS_MIN, ROWS_MAX, Call, Reply, TapOptions, TapReply

ROWS_TOGETHER_MAX = 20_000
BYTES_MAX = 4 << 20
BYTES_TOGETHER_MAX = 32 << 20
"""What all members together may show a second, and hold between two questions: of many, each may less."""
PATIENCE_MS = 2_000
SKIPS = 10
"""A member that did not answer is left alone for so many questions: the others' rows would wait for it."""
ASKED_A_SECOND = 1_000
"""Members; where there are more, the client is to come less often."""
TAPS_KEPT = 64
TS = "_ts"
AGENT = "_agent"


@dataclass
class _Tap:
    """``request``: without its bounds; ``shown``: its columns without those that are only for its condition.
    ``silent``: members that did not answer, and for how many questions they are left alone."""

    request: SampleRows
    event_time: str | None
    shown: tuple[str, ...]
    silent: dict[str, int] = field(default_factory=dict)

    def asked(self, members: Sequence[Member]) -> list[Member]:
        self.silent = {at: left - 1 for at, left in self.silent.items() if left > 0}
        return [member for member in members if member.address not in self.silent]


class Tapping:
    """The taps of the clients of one agent, by their own names."""

    def __init__(self, log: CatalogLog, fleet: Fleet) -> None:
        self._log = log
        self._fleet = fleet
        self._taps: OrderedDict[str, _Tap] = OrderedDict()

    def tap(self, call: Call) -> Procedure:
        """What has come since the last call of this tap. The reply's payload are the rows, its body is
        ``TapReply``."""
        try:
            options = msgspec.json.decode(call.argument, type=TapOptions)
        except msgspec.MsgspecError as error:
            raise UserError(f"tap cannot be read: {error}") from None
        members = self._fleet.expected(options.stream)
        if not members:
            streams = ", ".join(self._log.streams())
            raise UserError(f"there is no stream {options.stream}; streams: {streams or 'none'}")
        tap = self._taps.get(options.tap)
        if tap is None:
            seen = yield from self._fleet.seen(options.stream)
            if not any(one.rows or one.schema.columns for one in seen):
                waiting = f"no line of stream {options.stream} has been read yet"
                return _reply(call.request, [], TapReply(waiting=waiting))
            tap = yield from offload(partial(_planned, options, seen))
            self._taps[options.tap] = tap
        self._taps.move_to_end(options.tap)
        if len(self._taps) > TAPS_KEPT:
            self._taps.popitem(last=False)
        return (yield from _ask(call.request, tap, members))


def _planned(options: TapOptions, seen: Sequence[StreamSeen]) -> _Tap:
    """Raises ``UserError``."""
    schema = merge_schemas([one.schema for one in seen])
    shown = _shown(options, schema)
    named: tuple[Column, ...] = ()
    if options.where:
        from elf.ql.conditions import condition

        named = condition(options.where, schema, stream=options.stream).columns
    chosen: dict[str, Column] = {}  # DuckDB takes names that differ by case only for the same
    for column in (*named, *shown):
        chosen.setdefault(column.name.lower(), column)
    request = SampleRows(
        id=0,
        origin="",
        stream=options.stream,
        row_sample=options.tap,
        columns=tuple(chosen.values()),
        where=options.where,
        rows_max=ROWS_MAX,
        lines_max=LINES_MAX,
        bytes_max=BYTES_MAX,
    )
    names = tuple(column.name for column in shown if column in request.columns)
    return _Tap(request, schema.event_time, names)


def _shown(options: TapOptions, schema: Schema) -> list[Column]:
    """The columns that are wanted, the event time's among them. Raises ``UserError``."""
    if not options.columns:
        return list(schema.columns)
    found = {name: schema.find(name) for name in (*filter(None, [schema.event_time]), *options.columns)}
    for name, column in found.items():
        if column is None:
            known = ", ".join(column.name for column in schema.everything())
            raise UserError(f"stream {options.stream} has no column {name}; columns: {known}")
    return list(dict.fromkeys(column for column in found.values() if column is not None))


def _ask(request: int, tap: _Tap, members: Sequence[Member]) -> Procedure:
    """The members' answers as one reply."""
    each = _bounded(tap.request, len(members))
    asked = tap.asked(members)
    answers = yield [ToAddress(member.address, each, PATIENCE_MS) for member in asked]
    for member, answer in zip(asked, answers, strict=True):
        if answer.error == SILENT:
            tap.silent[member.address] = SKIPS
    return (yield from offload(partial(_told, request, tap, each, len(members), asked, answers)))


def _told(
    request: int,
    tap: _Tap,
    each: SampleRows,
    members: int,
    asked: Sequence[Member],
    answers: Sequence[Answer],
) -> Reply:
    """It may take a while."""
    tables: list[pa.Table] = []
    hidden = unseen = 0
    silent: dict[str, str] = {}
    for member, answer in zip(asked, answers, strict=True):
        if answer.error:
            silent[member.name] = answer.error
            continue
        try:
            sampled = msgspec.msgpack.decode(answer.body, type=SampledRows)
            if sampled.rows:
                tables.append(_named(decode(sampled.rows), member.name, tap))
            hidden, unseen = hidden + sampled.hidden, unseen + sampled.unseen
        except (PeerError, msgspec.MsgspecError) as error:
            silent[member.name] = str(error)
    retry_ms = max(RETRY_MS_MIN, 1_000 * members // ASKED_A_SECOND)
    told = TapReply(hidden, unseen, each.rows_max, each.lines_max, silent, retry_ms=retry_ms)
    return _reply(request, tables, told)


def _bounded(request: SampleRows, members: int) -> SampleRows:
    """The request with what each of so many members may show and hold."""
    rows_max = max(min(ROWS_MAX, ROWS_TOGETHER_MAX // members), 1)
    return msgspec.structs.replace(
        request,
        rows_max=rows_max,
        lines_max=LINES_MAX if request.where else rows_max,
        bytes_max=max(min(BYTES_MAX, BYTES_TOGETHER_MAX // members), 1),
    )


def _named(rows: pa.Table, agent: str, tap: _Tap) -> pa.Table:
    """Rows with the time first (the event time's column, or when they were read), then the agent. Raises
    ``PeerError``."""
    shown = [column for column in tap.request.columns if column.name in tap.shown]
    rows = as_asked(rows, arrow_schema([Column(TS, "bigint"), *shown]))
    time = tap.event_time if tap.event_time in tap.shown else TS
    first = rows[time] if time != TS else rows[TS].cast(pa.timestamp("us"))
    agents = pa.array([agent] * rows.num_rows, pa.string())
    others = [name for name in tap.shown if name != time]
    return pa.table([first, agents, *(rows[name] for name in others)], names=[time, AGENT, *others])


def _reply(request: int, tables: Sequence[pa.Table], told: TapReply) -> Reply:
    body = msgspec.json.encode(told)
    if not tables:
        return Reply(request=request, body=body)
    rows = pa.concat_tables(tables)
    return Reply(request=request, body=body, payload=encode(rows.sort_by(rows.column_names[0])))
