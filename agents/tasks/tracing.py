"""Finds the rows that panes of a flow have counted (``elf.job.provenance``), among what its agent has
archived.

What is written down says of each row whether it was counted; nothing is decided again here. The number of
rows is written down too, so that fewer in the archive are told. Whoever asks sees lines as the stream is
masked now: those that were archived under other masks are masked before anything is chosen by them.

It runs beside the stream task, on a thread of its own, and changes nothing.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from agents.archive.partitions import ArchiveError
from agents.disk.store import Store
from agents.formats import get_format
from agents.tasks.archived import Archived, ArchivedRows
from agents.tasks.masking import Lines
from elf.aggregates import normalise, split_by_range
from elf.batch import encode
from elf.errors import InputError, UserError
from elf.job.messages.inquiries import TracedRows, TraceRows
from elf.job.ports import Int64s, MapperPort, Wanted
from elf.job.provenance import UNKNOWN, PaneRows
from elf.job.spec import Flow
from elf.job.worker.fitting import arrow_schema, fitted, with_origins
from elf.job.worker.stream import WorkerSettings
from elf.ql.plan import Fragment
from elf.schema import Column, is_origin

if TYPE_CHECKING:  # DuckDB, as in agents.tasks.streams
    from agents.tasks.extracting import Extractor

ROWS_MAX: Final = 2_000_000
"""Rows of the asked panes that are looked at."""
BATCH_ROWS: Final = 65_536
_OFFSET_BITS: Final = 48
_SHOWN: Final = pa.schema(
    [
        ("time", pa.timestamp("us")),
        ("_source", pa.string()),
        ("_offset", pa.int64()),
        ("_line", pa.string()),
    ]
)
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Masks:
    """How a stream is masked now. ``fact``: as it is written down with archived rows (empty: not at all);
    ``open``: makes what masks lines, to be closed."""

    fact: str = ""
    open: Callable[[], Lines] | None = None


class _Masking:
    """Masks archived lines that were not, or otherwise."""

    def __init__(self, masks: Masks) -> None:
        self._masks = masks
        self._lines: Lines | None = None

    def shown(self, lines: pa.StringArray, facts: Mapping[str, str]) -> pa.StringArray:
        """As whoever asks may see them."""
        if self._masks.open is None or facts.get("mask", "") == self._masks.fact:
            return lines
        if self._lines is None:
            self._lines = self._masks.open()
        return self._lines.mask(lines)

    def close(self) -> None:
        if self._lines is not None:
            self._lines.close()


@dataclass
class _Asked:
    """What is written down of the asked panes; ``why``: what is not."""

    panes: list[PaneRows] = field(default_factory=list)
    why: list[str] = field(default_factory=list)

    @property
    def rows(self) -> int:
        return sum(one.rows for one in self.panes)


class Tracing:
    """Of one stream of one agent."""

    def __init__(self, archived: Archived, store: Store, settings: WorkerSettings, masks: Masks) -> None:
        self._archived = archived
        self._store = store
        self._settings = settings
        self._masks = masks

    def trace(self, request: TraceRows, event_time: str | None) -> TracedRows:
        """Raises ``UserError``, with what to do about it."""
        flow = next((one for one in request.spec.flows if one.uid == request.flow), None)
        if flow is None:
            raise UserError(f"job {request.spec.name} has no flow {request.flow}")
        asked = self._written(request)
        if asked.rows > ROWS_MAX:
            text = f"it has counted {asked.rows:,} rows there, and looks at {ROWS_MAX:,} at most"
            raise UserError(f"{text}: ask for a shorter window")
        first, found, matched = _First(request.rows_max), Counter[int](), 0
        chooser, masking = _Chooser(request, flow, event_time, self._settings), _Masking(self._masks)
        with closing(chooser), closing(masking):
            try:
                for rows, panes in self._found(flow.fragment, asked):
                    found.update(panes.tolist())
                    chosen = _shown(rows, chooser, masking)
                    matched += chosen.num_rows
                    first.add(chosen)
            except (ArchiveError, OSError, pa.ArrowException) as error:
                asked.why.append(f"its archive cannot be read: {error}")
        asked.why += self._lacking(flow.fragment, asked, found)
        payload, left_out = first.fitting(request.bytes_max)
        if left_out:
            asked.why.append(f"{left_out:,} rows that are asked for are more than it sends at once")
        return TracedRows(payload, matched, asked.rows, found.total(), tuple(asked.why))

    # -- what is written down --------------------------------------------------------------------------------

    def _written(self, request: TraceRows) -> _Asked:
        asked = _Asked()
        unknown = 0
        for start, end in request.spans:
            at = start
            for one in self._store.traced(request.flow, start, end):
                if one.part:
                    continue
                unknown += max(0, min(one.start, end) - at)
                at = max(at, one.end)
                asked.panes += [pane for pane in one.panes if start <= pane.pane < end]
            unknown += max(0, end - at)
        for pane, part in request.parts:
            known = [one for one in self._store.traced(request.flow, pane, pane + 1) if one.part == part]
            unknown += not known
            asked.panes += [rows for one in known for rows in one.panes]
        lost = sum(one.rows == UNKNOWN for one in asked.panes)
        asked.panes = [one for one in asked.panes if one.rows != UNKNOWN]
        if unknown:
            asked.why.append(
                f"it does not know, or no longer, which rows {unknown:,} of the panes have counted"
            )
        if lost:
            asked.why.append(f"{lost:,} of the panes have rows of too many files to be written down")
        return asked

    # -- what is archived ------------------------------------------------------------------------------------

    def _found(self, fragment: Fragment, asked: _Asked) -> Iterator[tuple[ArchivedRows, Int64s]]:
        """Archived rows that were counted, each once, and their panes."""
        if not asked.panes:
            return
        ranges = _Ranges(asked.panes)
        first, last = min(one.pane for one in asked.panes), max(one.pane for one in asked.panes)
        pane_us, seen = fragment.pane_us, np.empty(0, np.int64)
        for part in self._archived.rows(first * pane_us, (last + 1) * pane_us):
            sources = ranges.sources_of(part.table["source"])
            offsets = part.table["position"].to_numpy()
            panes = np.floor_divide(part.table["ts"].to_numpy(), pane_us)
            chosen = np.flatnonzero(ranges.hold(sources, panes, offsets))
            names = (sources[chosen] << _OFFSET_BITS) | offsets[chosen]
            _, once = np.unique(names, return_index=True)
            once = np.sort(once[~np.isin(names[once], seen)])
            seen = np.concatenate([seen, names[once]])
            kept = chosen[once]
            for begin in range(0, len(kept), BATCH_ROWS):
                some = kept[begin : begin + BATCH_ROWS]
                yield ArchivedRows(part.table.take(pa.array(some)), part.facts), panes[some]

    def _lacking(self, fragment: Fragment, asked: _Asked, found: Mapping[int, int]) -> list[str]:
        """What is wrong with the number of archived rows."""
        counted = Counter[int]()
        for one in asked.panes:
            counted[one.pane] += one.rows
        short = sum(max(0, rows - found.get(pane, 0)) for pane, rows in counted.items())
        over = sum(max(0, found.get(pane, 0) - rows) for pane, rows in counted.items())
        why = []
        if short:
            text = f"{short:,} of the {counted.total():,} rows that it has counted are not in its archive"
            why.append(text + self._gone(min(counted), max(counted), fragment.pane_us))
        if over:
            why.append(f"{over:,} rows more than it has counted lie where these do")
        return why

    def _gone(self, first: int, last: int, pane_us: int) -> str:
        try:
            gone = self._archived.gone(first * pane_us, (last + 1) * pane_us)
        except (ArchiveError, OSError, pa.ArrowException):
            return ""
        return f": {gone:,} rows of these hours were deleted to make room" if gone else ""


def _shown(rows: ArchivedRows, chooser: _Chooser, masking: _Masking) -> pa.Table:
    """Those that are asked for, as they are shown."""
    lines = rows.table["line"].combine_chunks()
    shown = masking.shown(lines, rows.facts)
    kept = pa.array(chooser.chosen(lines, shown, rows))
    table = rows.table.take(kept)
    times = table["ts"].cast(pa.timestamp("us"))
    columns = [times, table["log"].cast(pa.string()), table["position"], shown.take(kept)]
    return pa.table(columns, schema=_SHOWN)


class _Ranges:
    """The ranges of some panes, to be asked about many rows at once."""

    def __init__(self, panes: Sequence[PaneRows]) -> None:
        names = dict.fromkeys(source for one in panes for source, _ in one.sources)
        self._numbers = {name: number for number, name in enumerate(names)}
        every = sorted(
            (self._numbers[source], one.pane, start, end)
            for one in panes
            for source, ranges in one.sources
            for start, end in ranges
        )
        flat = np.array(every, dtype=np.int64).reshape(-1, 4)
        self._source, self._pane, self._start, self._end = (flat[:, place] for place in range(4))

    def sources_of(self, names: pa.ChunkedArray) -> Int64s:
        """The number of each row's source; -1 where no pane has rows of it."""
        each = names.combine_chunks().cast(pa.string()).dictionary_encode()
        numbers = [self._numbers.get(name, -1) for name in each.dictionary.to_pylist()]
        found: Int64s = np.array(numbers or [-1], dtype=np.int64)[each.indices.to_numpy()]
        return found

    def hold(self, sources: Int64s, panes: Int64s, offsets: Int64s) -> Mask:
        """Which rows are in the ranges of their panes: those that begin before the end of the last range of
        their pane and source that begins at or before them."""
        count = len(self._start)
        places = np.concatenate([self._start, offsets])
        of = (np.concatenate([self._source, sources]), np.concatenate([self._pane, panes]))
        is_row = np.concatenate([np.zeros(count, np.int64), np.ones(len(offsets), np.int64)])
        order = np.lexsort((is_row, places, of[1], of[0]))
        last = np.maximum.accumulate(np.where(order < count, order, -1))
        before = np.empty(len(order), np.int64)
        before[order] = last
        before = before[count:]
        known = before >= 0
        at = np.where(known, before, 0)
        if not count:
            return np.zeros(len(offsets), np.bool_)
        same = (self._source[at] == sources) & (self._pane[at] == panes)
        return np.asarray(known & same & (offsets < self._end[at]), np.bool_)


class _Chooser:
    """Which counted rows the job's own WHERE takes, and the condition of who asks."""

    def __init__(
        self, request: TraceRows, flow: Flow, event_time: str | None, settings: WorkerSettings
    ) -> None:
        from agents.tasks.engine import Mapper  # DuckDB, as in agents.tasks.streams
        from agents.tasks.rowsamples import rendered

        self._fragment = flow.fragment
        self._event_time = event_time
        self._settings = settings
        where = rendered(request.where, request.columns, request.stream)
        self._asked = _Read(request.columns) if where else None
        self._where: MapperPort | None = None
        if where:
            sql = f"SELECT r._pane AS _pane FROM rows AS r WHERE {where}"
            self._where = Mapper(sql, request.columns)
        takes_all = not flow.fragment.where_sql and not flow.fragment.tables and flow.fragment.range[1] == 1
        self._own = None if takes_all else _Read(flow.fragment.columns)
        self._map: MapperPort | None = None

    def chosen(self, lines: pa.StringArray, shown: pa.StringArray, rows: ArchivedRows) -> Int64s:
        """Places of rows. ``shown``: their lines as who asks may see them."""
        kept = np.arange(len(lines), dtype=np.int64)
        if self._asked is not None and self._where is not None:
            kept = self._by(self._asked, shown, rows, kept, self._where.run)
        if self._own is not None and len(kept):
            kept = self._by(self._own, lines, rows, kept, self._mapped)
        return kept

    def _by(
        self,
        read: _Read,
        lines: pa.StringArray,
        rows: ArchivedRows,
        kept: Int64s,
        run: Callable[[pa.Table], pa.Table],
    ) -> Int64s:
        """Those of the rows that a statement gives something of, when each is in a pane of its own."""
        table, accepted = read.rows(lines.take(pa.array(kept)), rows, kept, self._event_time, self._settings)
        numbered = table.append_column("_pane", pa.array(accepted))
        return kept[np.unique(run(numbered)["_pane"].to_numpy())] if len(accepted) else kept[:0]

    def _mapped(self, rows: pa.Table) -> pa.Table:
        """The groups of the job, of its key range: whatever a row comes to there was counted."""
        from agents.tasks.engine import Mapper

        fragment = self._fragment
        if self._map is None:
            self._map = Mapper.of(fragment)
        groups = normalise(self._map.run(rows), fragment.keys, fragment.task_states)
        place, count = fragment.range
        return groups if count == 1 else split_by_range(groups, fragment.ranged_by, count)[place]

    def close(self) -> None:
        for one in (self._asked, self._own, self._where, self._map):
            if one is not None:
                one.close()


class _Read:
    """Reads some columns of archived lines."""

    def __init__(self, columns: Sequence[Column]) -> None:
        self._schema = arrow_schema(columns)
        self._read = tuple(column for column in columns if not is_origin(column.name))
        self._origins = tuple(column.name for column in columns if is_origin(column.name))
        self._extractors: dict[tuple[str, str | None], Extractor] = {}

    def rows(
        self,
        lines: pa.StringArray,
        archived: ArchivedRows,
        kept: Int64s,
        event_time: str | None,
        settings: WorkerSettings,
    ) -> tuple[pa.Table, Int64s]:
        """The columns of these lines, and which lines they are of."""
        found = self._extractor(archived.facts, event_time).extract(lines)
        accepted = np.asarray(found.accepted, np.int64)
        facts = archived.facts
        labels = tuple(json.loads(facts["labels"]).items()) if "labels" in facts else settings.labels
        logs = archived.table["log"].cast(pa.string()).take(pa.array(kept[accepted])).combine_chunks()
        rows = with_origins(found.table, self._origins, facts.get("agent_name", settings.name), logs, labels)
        rows, _ = fitted(rows, self._schema)
        return rows.select(self._schema.names), accepted

    def _extractor(self, facts: Mapping[str, str], event_time: str | None) -> Extractor:
        from agents.tasks.extracting import Extractor

        name = facts.get("format", "")
        key = (name, facts.get("timestamp") or event_time)
        if key not in self._extractors:
            try:
                self._extractors[key] = Extractor(get_format(name), key[1], Wanted(self._read))
            except InputError as error:
                raise UserError(f"its lines of format {name} have other columns: {error}") from None
        return self._extractors[key]

    def close(self) -> None:
        for one in self._extractors.values():
            one.close()


class _First:
    """The first rows by event time, then log and offset."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._rows = _SHOWN.empty_table()

    def add(self, rows: pa.Table) -> None:
        if self._most and rows.num_rows:
            by = [(name, "ascending") for name in ("time", "_source", "_offset")]
            both = pa.concat_tables([self._rows, rows]).sort_by(by)
            self._rows = both.slice(0, self._most).combine_chunks()

    def fitting(self, bytes_max: int) -> tuple[bytes, int]:
        """As many as go into so many bytes, and how many do not."""
        rows = self._rows
        while rows.num_rows and rows.nbytes > bytes_max:
            rows = rows.slice(0, rows.num_rows // 2)
        payload = encode(rows.combine_chunks()) if rows.num_rows else b""
        return payload, self._rows.num_rows - rows.num_rows
