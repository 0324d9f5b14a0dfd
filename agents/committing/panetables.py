"""Encoded tables of panes, as they are stored and sent: opened, merged, and the last word on each pane."""

from __future__ import annotations

from bisect import bisect
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

import pyarrow as pa

from elf.aggregates import State, merge_tables
from elf.batch import decode_all, encode
from elf.errors import PanesGone, PeerError
from elf.job.approximate import CUT_STATE
from elf.job.commits import PaneCommit
from elf.job.contributions import Piece
from elf.job.counters import COUNTER_STATES, UNREDUCED, completed
from elf.job.gaps import gaps_of, with_gaps
from elf.job.spec import END_OF_TIME
from elf.ql.plan import Fragment

Known = Mapping[bytes, pa.Table]
"""Tables that are open already, by their encoded form."""
NOTHING_KNOWN: Final[Known] = {}


class Merged(NamedTuple):
    """What panes have counted, and their groups; None: nothing."""

    counters: pa.Table | None
    groups: pa.Table | None

    def encoded(self) -> tuple[bytes, bytes]:
        counters, payload = (encode(table) if table is not None else b"" for table in self)
        return counters, payload

    def known(self, counters: bytes, payload: bytes) -> Known:
        """By what they were encoded as."""
        both = ((counters, self.counters), (payload, self.groups))
        return {data: table for data, table in both if table is not None}


def opened_counters(pieces: Iterable[Piece], known: Known = NOTHING_KNOWN) -> list[pa.Table]:
    """What pieces have counted, each in its own panes; what is alike is one table."""
    return [completed(table) for table in _opened(((p.counters, p.start, p.end) for p in pieces), known)]


def opened_groups(pieces: Iterable[Piece], known: Known = NOTHING_KNOWN) -> list[pa.Table]:
    """Likewise, their groups."""
    return _opened(((p.payload, p.start, p.end) for p in pieces), known)


def _opened(encoded: Iterable[tuple[bytes, int, int]], known: Known) -> list[pa.Table]:
    alike: dict[tuple[int, int], list[bytes]] = {}
    found: list[pa.Table] = []
    for data, start, end in encoded:
        if data in known:
            found.append(_within(known[data], start, end))
        elif data:
            alike.setdefault((start, end), []).append(data)
    found += [_within(table, *panes) for panes, tables in alike.items() for table in decode_all(tables)]
    return found


def _within(table: pa.Table, start: int, end: int) -> pa.Table:
    """Raises ``PeerError`` if it is no table of panes."""
    if [field.type for field in table.schema if field.name == "_pane"] != [pa.int64()]:
        raise PeerError("a table without a column of panes")
    column = table["_pane"]
    if column.null_count:
        raise PeerError("rows in no pane")
    panes = column.to_numpy()
    inside = (panes >= start) & (panes < end)
    return table if inside.all() else table.filter(pa.array(inside))


def in_units(table: pa.Table, unit: int) -> pa.Table:
    """The same rows in the first panes of the units that theirs are in."""
    place = table.schema.get_field_index("_pane")
    panes = table["_pane"].to_numpy()
    return table.set_column(place, "_pane", pa.array(panes // unit * unit, pa.int64()))


def merged(
    tables: Sequence[pa.Table | None], keys: Sequence[str], states: Sequence[State]
) -> pa.Table | None:
    present = [table for table in tables if table is not None and table.num_rows]
    return merge_tables(present, keys, states) if present else None


def merged_counters(tables: Sequence[pa.Table | None], states: Sequence[State]) -> pa.Table | None:
    """The same of counters by pane, with the gaps that they name. Raises ``PeerError``."""
    counts = merged(tables, ("_pane",), states)
    return None if counts is None else with_gaps(counts, gaps_of(one for one in tables if one is not None))


def joined(tables: Sequence[pa.Table | None]) -> pa.Table | None:
    present = [table for table in tables if table is not None and table.num_rows]
    return pa.concat_tables(present, promote_options="permissive") if present else None


def counter_states(fragment: Fragment) -> tuple[State, ...]:
    """The states of a table of counters of a fragment's panes."""
    return COUNTER_STATES if fragment.keep is None else (*COUNTER_STATES, CUT_STATE)


def committed_counters(fragment: Fragment) -> tuple[State, ...]:
    """The same of committed panes."""
    return (*counter_states(fragment), *((UNREDUCED,) if fragment.changes_panes else ()))


def latest(rows: Iterable[PaneCommit], start: int, end: int) -> list[Piece]:
    """For each pane of ``[start, end)`` its highest revision, as disjoint pieces."""
    found: list[Piece] = []
    for row in sorted(rows, key=lambda row: row.revision):
        new = Piece(max(row.start, start), min(row.end, end), 0, row.counters, row.payload)
        kept: list[Piece] = []
        for old in found:
            left, right = old.clip(old.start, new.start), old.clip(new.end, old.end)
            kept += [part for part in (left, right) if part.start < part.end]
        found = [*kept, new]
    return found


def check_covered(flow: str, spans: list[tuple[int, int]], start: int, end: int) -> None:
    """Raises ``PanesGone`` unless each pane of ``[start, end)`` is in one of the spans, which are disjoint;
    they are sorted on the way.
    """
    spans.sort()  # sorted ones cost nothing
    at = start
    for begin, stop in spans[max(0, bisect(spans, (start, END_OF_TIME)) - 1) :]:
        if at >= end or begin > at:
            break
        at = max(at, stop)
    if at < end:
        raise PanesGone(f"panes [{at}, {end}) of {flow} are not here any more")
