"""ROWS OF: the lines that a committed window has counted, from the archives of its agents (protocol 7.11).

The window's commit names the contributions of which it was made: for each flow the panes, the members whose
snapshots are in them, and the parts of late rows. Each of these members is asked for its rows: it has written
down which ones a snapshot or part has counted (``elf.job.provenance``), and finds them in its own archive.

Nothing is left out silently. What an agent cannot show is said, by agent, and the rows that were found are
counted against what the window says that it has counted: only where both are equal, and nobody lacks
anything, the answer is *complete*.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import msgspec
import pyarrow as pa

from agents.answering.asks import Ask, Procedure, ToAddress, offload
from agents.answering.fleet import Fleet
from agents.answering.looking import as_asked
from agents.answering.masters import Masters
from agents.answering.past import moment
from agents.answering.tapping import AGENT
from elf.batch import decode, encode
from elf.errors import PeerError, UserError
from elf.job.catalog.log import CatalogLog
from elf.job.catalog.members import Member
from elf.job.commits import PanesUsed, panes_used
from elf.job.contributions import from_bytes, numbers
from elf.job.messages.groups import PastWindow, PastWindows, ReadPast
from elf.job.messages.inquiries import TracedRows, TraceRows
from elf.job.openparts import in_part, is_open
from elf.job.provenance import untraced
from elf.job.rollup.mirrors import flow_of
from elf.job.spec import Flow, JobSpec
from elf.ql.past import RowsOf
from elf.schema import Column
from elf.wire.base import Answer
from elf.wire.clients import Execute, Reply

PATIENCE_MS: Final = 15_000
BYTES_MAX: Final = 8 << 20
BYTES_TOGETHER_MAX: Final = 32 << 20
"""What a member shows, and all of them."""
ENDS_SHOWN: Final = 5
"""Of windows that start at one time."""
_SHOWN: Final = pa.schema(
    [
        ("time", pa.timestamp("us")),
        ("_source", pa.string()),
        ("_offset", pa.int64()),
        ("_line", pa.string()),
    ]
)
_BOUNDS: Final = ("window_start", "window_end")


@dataclass(frozen=True)
class _Window:
    """The last word on a window: ``rows_in`` is what it says that it has counted, before any WHERE."""

    start: int
    end: int
    revision: int
    rows_in: int
    spec: JobSpec
    used: tuple[PanesUsed, ...]


@dataclass
class _Share:
    """What is asked of one member: its contributions to a window's panes of one flow."""

    flow: Flow
    spans: list[tuple[int, int]] = field(default_factory=list)
    parts: list[tuple[int, int]] = field(default_factory=list)

    def add(self, start: int, end: int) -> None:
        if self.spans and self.spans[-1][1] == start:
            self.spans[-1] = (self.spans[-1][0], end)
        else:
            self.spans.append((start, end))


@dataclass
class _Found:
    """What all of them have said."""

    rows: pa.Table
    matched: int = 0
    counted: int = 0
    found: int = 0
    why: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    """What is against the answer being complete, by agent."""


class Tracing:
    """The procedure of one agent."""

    def __init__(self, log: CatalogLog, fleet: Fleet, masters: Masters) -> None:
        self._log = log
        self._fleet = fleet
        self._masters = masters

    def rows_of(self, asked: Execute, statement: RowsOf, now_ms: int) -> Procedure:
        """The reply's payload are the rows, its body says of how many, and whether that is all."""
        spec = self._masters.find(statement.job, asked.creator)
        window = yield from self._window(spec, *statement.span(now_ms * 1000))
        columns: tuple[Column, ...] = ()
        if statement.where:
            (stream,) = window.spec.plan.streams[:1]
            schema = (yield from self._fleet.view(stream)).schema
            columns = yield from offload(partial(_columns, statement.where, schema, stream))
        found = _Found(_SHOWN.empty_table().append_column(AGENT, pa.array([], pa.string())))
        shares = self._shares(window, found)
        requests = self._requests(window, statement, columns, shares)
        answers = yield [ToAddress(member.address, one, PATIENCE_MS) for member, one in requests]
        yield from offload(partial(_hear, found, requests, answers, statement.limit))
        return _reply(asked.request, spec, window, found)

    # -- the window ------------------------------------------------------------------------------------------

    def _window(
        self, spec: JobSpec, start: int, end: int | None
    ) -> Generator[list[Ask], list[Answer], _Window]:
        """Raises ``UserError`` where there is none, or nobody can say what it has counted."""
        facts = yield from self._masters.inspect(spec, 0)
        versions = {record.spec.version: record.spec for record in facts.versions}
        found: dict[tuple[int, int], tuple[PastWindow, Mapping[str, object]]] = {}
        after, more, first_us = 0, True, None
        longest = max((getattr(kind, "size_us", 0) for kind in spec.plan.windows), default=0)
        to_us = start + 2 * longest + 1 if end is None and longest else 1 << 62
        while more:
            request = ReadPast(
                id=0,
                origin="",
                uid=spec.uid,
                from_us=start,
                to_us=to_us if end is None else end,
                after=after,
                rows=False,
                panes=True,
            )
            answer = yield from self._masters.ask(spec, request)
            past = msgspec.msgpack.decode(answer.body, type=PastWindows)
            for one in past.windows:
                after = one.result.number
                for bounds, status in _statuses(one):
                    if bounds[0] == start and end in (None, bounds[1]):
                        found[bounds] = one, status
            more, first_us = past.more and bool(past.windows), past.first_us
        if not found:
            kept = "none is kept" if first_us is None else f"those that end after {moment(first_us)} are kept"
            which = moment(start) if end is None else f"{moment(start)} and ends at {moment(end)}"
            raise UserError(f"no committed window of job {spec.name} starts at {which}; {kept}")
        if any(status.get("offline") for _, status in found.values()):
            raise UserError(
                f"Spark has made this window of job {spec.name} from the archive (elf offline backfill): no "
                "agent has counted its rows; elf offline run finds them"
            )
        if len(found) > 1:
            ends = ", ".join(f"'{moment(bounds[1])}'" for bounds in sorted(found)[:ENDS_SHOWN])
            ends += " …" if len(found) > ENDS_SHOWN else ""
            raise UserError(
                f"{len(found)} windows of job {spec.name} start at {moment(start)}: say which with TO; they "
                f"end at {ends}"
            )
        ((bounds, (past_window, status)),) = found.items()
        result = past_window.result
        of = versions.get(result.version, spec if spec.version == result.version else None)
        if of is None:
            raise UserError(f"job {spec.name} does not know its version {result.version} any more")
        if why := untraced(of.plan):
            raise UserError(f"job {spec.name} {why}")
        if status.get("skipped"):
            raise UserError(f"the window that starts at {moment(start)} was skipped, and has counted nothing")
        revision, rows_in = (int(str(status.get(name) or 0)) for name in ("revision", "rows_in"))
        return _Window(*bounds, revision, rows_in, of, panes_used(past_window.panes))

    # -- who is asked for what -------------------------------------------------------------------------------

    def _shares(self, window: _Window, found: _Found) -> dict[tuple[str, int], _Share]:
        """By flow and member number."""
        flows = {flow.uid: flow for flow in window.spec.flows}
        shares: dict[tuple[str, int], _Share] = {}
        for used in sorted(window.used, key=lambda one: (one.flow, one.start)):
            flow = flows.get(flow_of(used.flow))
            if flow is None:
                raise UserError(f"job {window.spec.name} does not know its flow {used.flow} any more")
            pane_us = flow.fragment.pane_us
            start = max(used.start, window.start // pane_us)
            end = min(used.end, -(-window.end // pane_us))
            if start >= end or used.lost:
                continue
            reran = {number for number, part in used.parts if part < 0}
            members = from_bytes(used.members) | in_part(used.parts)  # of open parts the rows are the pane's
            for number in numbers(members):
                if number in reran:
                    self._reran(found, flow, number)
                    continue
                shares.setdefault((flow.uid, number), _Share(flow)).add(start, end)
            for number, part in used.parts:
                if part > 0 and not is_open(part):
                    shares.setdefault((flow.uid, number), _Share(flow)).parts.append((start, part))
        return shares

    def _reran(self, found: _Found, flow: Flow, number: int) -> None:
        """Another agent's run of a pane is in the commit, which nobody has written down."""
        text = "another agent has read its files for it (STRAGGLERS MIRROR), and wrote down no rows"
        who = self._member(flow, number)
        name = f"member {number}" if who is None else who.name
        if text not in found.why[name]:
            found.why[name].append(text)

    def _member(self, flow: Flow, number: int) -> Member | None:
        members = self._log.members(flow.fragment.stream)
        return next((member for member in members if member.number == number), None)

    def _requests(
        self,
        window: _Window,
        statement: RowsOf,
        columns: tuple[Column, ...],
        shares: Mapping[tuple[str, int], _Share],
    ) -> list[tuple[Member, TraceRows]]:
        each = min(BYTES_MAX, BYTES_TOGETHER_MAX // max(len(shares), 1))
        found = []
        for (_, number), share in shares.items():
            member = self._member(share.flow, number)
            if member is None:
                raise UserError(
                    f"nobody knows member {number} of stream {share.flow.fragment.stream} any more"
                )
            request = TraceRows(
                id=0,
                origin="",
                stream=share.flow.fragment.stream,
                spec=window.spec,
                flow=share.flow.uid,
                spans=tuple(share.spans),
                parts=tuple(share.parts),
                columns=columns,
                where=statement.where,
                rows_max=statement.limit,
                bytes_max=each,
            )
            found.append((member, request))
        return found


def _columns(where: str, schema: object, stream: str) -> tuple[Column, ...]:
    """What the condition reads. Raises ``UserError``."""
    from elf.ql.conditions import condition

    return condition(where, schema, stream=stream).columns  # type: ignore[arg-type]


def _statuses(one: PastWindow) -> Iterable[tuple[tuple[int, int], Mapping[str, object]]]:
    """(bounds in µs, status) of each window in a result."""
    table = decode(one.result.status)
    bounds = (table[name].cast(pa.timestamp("us")).cast(pa.int64()).to_pylist() for name in _BOUNDS)
    rows = table.select(["revision", "rows_in", "skipped"]).to_pylist()
    for start, end, status in zip(*bounds, rows, strict=True):
        if start is not None and end is not None:
            yield (start, end), status


def _hear(
    found: _Found, requests: Sequence[tuple[Member, TraceRows]], answers: Sequence[Answer], limit: int
) -> None:
    """The members' answers."""
    tables = [found.rows]
    for (member, request), answer in zip(requests, answers, strict=True):
        try:
            if answer.error:
                raise PeerError(answer.error)
            traced = msgspec.msgpack.decode(answer.body, type=TracedRows)
            if traced.rows:
                rows = as_asked(decode(traced.rows), _SHOWN)
                tables.append(rows.append_column(AGENT, pa.array([member.name] * rows.num_rows, pa.string())))
        except (PeerError, msgspec.MsgspecError) as error:
            found.why[member.name].append(str(error))
            continue
        found.matched += traced.matched
        if not _in_another_range(request):
            found.counted += traced.counted
            found.found += traced.found
        found.why[member.name] += [why for why in traced.why if why not in found.why[member.name]]
    by = [(name, "ascending") for name in ("time", AGENT, "_source", "_offset")]
    rows = pa.concat_tables(tables).sort_by(by).slice(0, limit)
    found.rows = rows.select(["time", AGENT, "_source", "_offset", "_line"])
    found.why = {agent: why for agent, why in found.why.items() if why}


def _in_another_range(request: TraceRows) -> bool:
    """Rows are counted once for all key ranges."""
    flow = next(one for one in request.spec.flows if one.uid == request.flow)
    return bool(flow.fragment.range[0])


def _reply(request: int, spec: JobSpec, window: _Window, found: _Found) -> Reply:
    why = dict(found.why)
    if not why and found.found != window.rows_in:
        text = f"the window says that it has counted {window.rows_in:,} rows, and {found.found:,} were found"
        why = {"": [text]}
    complete = not why
    shown = found.rows.num_rows
    which = f"window {moment(window.start)} to {moment(window.end)} of job {spec.name}"
    which += f", revision {window.revision}" if window.revision else ""
    text = f"{shown:,} of the {found.matched:,} rows" if shown < found.matched else f"all {shown:,} rows"
    text += f" that are asked for, of {which}, which has counted {window.rows_in:,} rows before WHERE; "
    if complete:
        text += "complete: all of them are archived"
    else:
        said = (f"{agent}: {one}" if agent else one for agent, some in why.items() for one in some)
        text += "not complete: " + "; ".join(said)
    body = {
        "job": spec.name,
        "window_start": moment(window.start),
        "window_end": moment(window.end),
        "revision": window.revision,
        "version": window.spec.version,
        "rows": found.matched,
        "shown": shown,
        "rows_in": window.rows_in,
        "found": found.found,
        "complete": complete,
        "why": why,
    }
    payload = encode(found.rows.combine_chunks())
    return Reply(request=request, text=text, body=msgspec.json.encode(body), payload=payload)
