"""ALTER JOB … PREVIEW: the windows of the version that a job would have beside those that it has, and what
both cost.

The new version runs beside the job as a SELECT does, and ends with who reads it: whoever goes away, or is
killed, leaves the job as it is. Windows are put together by their start and end. One that has no fellow (the
job has other windows, is paused, or began a version later) is told without one.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import msgspec
import pyarrow as pa

from elf.client.results import Result
from elf.client.values import cell, plain
from elf.client.windows import OP, WINDOW_COLUMNS, Window
from elf.errors import ElfError, UserError
from elf.wire.clients import Preview

if TYPE_CHECKING:
    from elf.client.client import Client

FELLOW_SECS: Final = 10.0
"""How long a window of the job may come after that of the preview."""
_WAITING_MAX: Final = 1_000
"""Windows that wait for who reads them."""
_CPU: Final = ("map_us", "tree_us", "seal_us", "merge_us", "commit_us")
_COSTS: Final = ("CPU ms", "rows", "groups", "messages", "bytes")


@dataclass(frozen=True, eq=False)
class Previewed:
    """A window of the new version beside the job's.

    Attributes:
        window (Window): of the new version; its ``changes`` are what differs, with ``_op``: ``-`` for rows
            that the job has and the new version has not, ``+`` for the others. By the columns that both have.
        before (Window | None): the job's; None: it has no such window.
        alike (int): rows that both have.
        gone (int): rows that only the job has.
        come (int): rows that only the new version has.

    Example:
        >>> wanted = "SELECT product, COUNT(*) AS clicks FROM clicks GROUP BY product WINDOWING 1 SECONDS"
        >>> async for one in client.preview(f"ALTER JOB busy AS {wanted} PREVIEW 1 WINDOWS"):
        ...     if isinstance(one, Previewed):
        ...         print(one.window.changes.column_names, one.alike + one.come == one.window.table.num_rows)
        ['window_start', 'window_end', '_op', 'product', 'clicks'] True
    """

    window: Window
    before: Window | None
    alike: int
    gone: int
    come: int


@dataclass(frozen=True, eq=False)
class Costs:
    """What both versions have cost while they ran side by side, in all agents.

    Attributes:
        preview (Preview): of what.
        table (pyarrow.Table): ``cost``, ``now`` (the job) and ``new``: CPU ms, rows, groups, messages and
            bytes between agents. A flow that both read is in both columns.
        shared (int): flows that both read: these cost nothing more.
        columns_gone (tuple[str, ...]): columns that only the job has.
        columns_come (tuple[str, ...]): columns that only the new version has.

    Example:
        >>> wanted = "SELECT product, COUNT(*) AS n FROM clicks GROUP BY product WINDOWING 1 SECONDS"
        >>> async for one in client.preview(f"ALTER JOB busy AS {wanted} PREVIEW 1 WINDOWS"):
        ...     if isinstance(one, Costs):
        ...         print(one.columns_gone, one.columns_come, one.table["cost"].to_pylist())
        ('clicks',) ('n',) ['CPU ms', 'rows', 'groups', 'messages', 'bytes']
    """

    preview: Preview
    table: pa.Table
    shared: int
    columns_gone: tuple[str, ...]
    columns_come: tuple[str, ...]


def preview_of(result: Result) -> Preview | None:
    """What a result says before the windows of a preview; None: it is of no preview."""
    told = (result.data or {}).get("preview")
    return None if told is None else msgspec.convert(told, Preview)


async def beside(
    client: Client, preview: Preview, windows: AsyncGenerator[Result | Window]
) -> AsyncGenerator[Previewed | Costs | Result]:
    """The windows of a preview, each beside the job's, and then what both cost. ``windows``: those that the
    statement gives behind its first result."""
    pairs = _Pairs(preview)
    async with contextlib.aclosing(client.execute(f"SUBSCRIBE {preview.job}")) as own:
        before = await _work(client, preview.job)
        readers = [
            asyncio.create_task(pairs.take(source, new=new))
            for source, new in ((windows, True), (own, False))
        ]
        try:
            async for one in pairs.found():
                yield one
            yield await _costs(client, preview, before, pairs)
        finally:
            for reader in readers:
                reader.cancel()
            await asyncio.gather(*readers, return_exceptions=True)


class _Pairs:
    """Windows of both sides, in the order in which they come."""

    def __init__(self, preview: Preview) -> None:
        self._left = preview.windows
        self._came: asyncio.Queue[tuple[Window | Result | Exception, bool]] = asyncio.Queue(_WAITING_MAX)
        self._own: dict[tuple[object, object], Window] = {}
        self._new: dict[tuple[object, object], tuple[Window, float]] = {}
        self.columns: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())
        """Of the job, and of the new version, without those of windows."""

    async def take(self, source: AsyncGenerator[Result | Window], *, new: bool) -> None:
        """All that one side gives, and why it gives no more."""
        end: Exception = ElfError("its windows have ended")
        try:
            async for one in source:
                if isinstance(one, Result) or not one.early:
                    await self._came.put((one, new))
        except Exception as error:
            end = error
        await self._came.put((end, new))

    async def found(self) -> AsyncGenerator[Previewed | Result]:
        """As many as are wanted. Raises ``ElfError`` where the new version ends before."""
        clock = asyncio.get_running_loop()
        while self._left > 0:
            due = min((at for _, at in self._new.values()), default=None)
            wait = None if due is None else max(due - clock.time(), 0)
            with contextlib.suppress(TimeoutError):
                one, new = await asyncio.wait_for(self._came.get(), wait)
                if isinstance(one, Exception) and new:
                    raise one
                if isinstance(one, Result) and new:
                    yield one
                if isinstance(one, Window):
                    self._put(one, new=new, until=clock.time() + FELLOW_SECS)
            for pair in self._ready(clock.time()):
                yield pair

    def _put(self, one: Window, *, new: bool, until: float) -> None:
        key = (one.start, one.end)
        names = tuple(name for name in one.table.column_names if name not in WINDOW_COLUMNS)
        if one.table.num_columns:
            self.columns = (self.columns[0], names) if new else (names, self.columns[1])
        if not new:
            self._own[key] = one
            if len(self._own) > _WAITING_MAX:
                del self._own[next(iter(self._own))]
        elif key in self._new or one.revision == 0:
            self._new[key] = (one, self._new[key][1] if key in self._new else until)

    def _ready(self, now: float) -> list[Previewed]:
        """Those that have a fellow, or wait for none any more."""
        passed = max((one.end for one in self._own.values() if one.end is not None), default=None)
        found = []
        for key, (one, until) in list(self._new.items()):
            own = self._own.get(key)
            over = one.end is not None and passed is not None and one.end <= passed
            if (own is not None or over or now >= until) and self._left > 0:
                del self._new[key]
                self._left -= 1
                found.append(_pair(one, own))
        return found


def _pair(new: Window, own: Window | None) -> Previewed:
    if own is None:
        return Previewed(new, None, 0, 0, new.table.num_rows)
    tables = own.table, new.table
    names = [table.column_names for table in tables if table.num_columns]  # where there are no rows: none
    shared = [name for name in (names[-1] if names else []) if all(name in some for some in names)]
    old_rows, new_rows = (_rows(table, shared) for table in tables)
    old, came = (Counter(map(_key, rows)) for rows in (old_rows, new_rows))
    gone, come = old - came, came - old
    differing = [*_only(old_rows, gone, "-"), *_only(new_rows, come, "+")]
    differing.sort(key=lambda row: [row[name] for name in shared if isinstance(row[name], str)])
    types = [{field.name: field.type for field in table.schema} for table in tables]
    changes = _table(differing, shared, types)
    return Previewed(replace(new, changes=changes), own, (old & came).total(), gone.total(), come.total())


def _rows(table: pa.Table, names: Sequence[str]) -> list[dict[str, Any]]:
    return table.select(names).to_pylist() if table.num_columns else []


def _key(row: Mapping[str, object]) -> str:
    """Equal for rows with equal values, whatever types the numbers have."""
    values = [plain(value) for value in row.values()]
    return repr([int(one) if isinstance(one, float) and one.is_integer() else one for one in values])


def _only(rows: Sequence[dict[str, Any]], wanted: Counter[str], sign: str) -> Iterator[dict[str, Any]]:
    """Those of the rows that only one side has, with their sign last."""
    left = Counter(wanted)
    for row in rows:
        if left[key := _key(row)]:
            left[key] -= 1
            yield {**row, OP: sign}


def _table(
    rows: Sequence[dict[str, Any]], names: Sequence[str], types: Sequence[Mapping[str, pa.DataType]]
) -> pa.Table:
    """The rows, with the sign behind the window."""
    at = len(WINDOW_COLUMNS) if tuple(names[:2]) == WINDOW_COLUMNS else 0
    arrays = {
        name: _column([row[name] for row in rows], [one[name] for one in types if name in one])
        for name in names
    }
    signs = pa.array([row[OP] for row in rows], pa.string())
    return pa.table(dict([*list(arrays.items())[:at], (OP, signs), *list(arrays.items())[at:]]))


def _column(values: Sequence[object], types: Sequence[pa.DataType]) -> pa.Array:
    """Of the type that both sides have, else of numbers, else of texts."""
    if all(one == types[0] for one in types):
        return pa.array(values, types[0])
    told = [plain(value) for value in values]
    if all(one is None or (isinstance(one, int | float) and not isinstance(one, bool)) for one in told):
        with suppress(pa.ArrowException, OverflowError):
            return pa.array(told)
    return pa.array([None if one is None else cell(one) for one in values], pa.string())


# -- what it costs -------------------------------------------------------------------------------------------

_Work = dict[str, dict[str, float]]
"""Of each flow, by its uid, and of the master (empty): numbers by ``_COSTS``."""


async def _work(client: Client, job: str) -> _Work:
    told = (await client.sql(f"EXPLAIN ANALYZE {job}")).data or {}
    live: Mapping[str, Any] = told.get("live") or {}  # type: ignore[assignment]
    found: _Work = {}
    for flow in live.get("flows", ()):
        levels = flow["levels"]
        cpu = sum(level[name] for level in levels for name in _CPU) / 1e3
        counts = [
            sum(level[name] for level in levels) for name in ("rows", "groups", "messages", "sent_bytes")
        ]
        found[flow["flow"]] = dict(zip(_COSTS, (cpu, *counts), strict=True))
    master = live.get("master") or {}
    found[""] = dict.fromkeys(_COSTS, 0.0) | {"CPU ms": master.get("final_us", 0) / 1e3}
    return found


async def _costs(client: Client, preview: Preview, before: _Work, pairs: _Pairs) -> Costs:
    now, new = await _work(client, preview.job), await _work(client, preview.beside)
    shared = (now.keys() & new.keys()) - {""}
    own = [_less(work, before.get(flow, {})) for flow, work in now.items()]
    more = [_less(work, before.get(flow, {}) if flow else {}) for flow, work in new.items()]
    table = pa.table(
        {
            "cost": list(_COSTS),
            "now": [round(sum(one[name] for one in own)) for name in _COSTS],
            "new": [round(sum(one[name] for one in more)) for name in _COSTS],
        }
    )
    old_columns, new_columns = pairs.columns
    return Costs(
        preview,
        table,
        len(shared),
        tuple(name for name in old_columns if new_columns and name not in new_columns),
        tuple(name for name in new_columns if old_columns and name not in old_columns),
    )


def _less(work: Mapping[str, float], before: Mapping[str, float]) -> dict[str, float]:
    return {name: work[name] - before.get(name, 0) for name in _COSTS}


async def previewed(client: Client, statement: str) -> AsyncGenerator[Previewed | Costs]:
    """See ``Client.preview``."""
    async with contextlib.aclosing(client.execute(statement)) as answers:
        async for first in answers:
            preview = preview_of(first) if isinstance(first, Result) else None
            if preview is None:
                raise UserError("this is no ALTER JOB … PREVIEW n WINDOWS")
            async with contextlib.aclosing(beside(client, preview, answers)) as pairs:
                async for one in pairs:
                    if not isinstance(one, Result):
                        yield one
            return
