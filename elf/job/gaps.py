"""Gaps: bytes of a log that were gone before they were read, by the event time of their rows (protocol 11.1);
and rows that were left out, or read late, over a budget (``elf.job.sampling``).

An input finds that bytes are ``Missed``. The worker of the stream knows between which event times they were,
and marks the panes that a gap touches. So a pane itself says what it lacks, in its counters (the column
``GAPS``, which exists only where there is something to say). Each window over it names the gap, whoever
commits it, and whenever; with a pane that comes late the gap is in the revision.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import msgspec
import pyarrow as pa

from elf.errors import PeerError
from elf.job.work import EstimateWork, LentWork

GAPS: Final = "gaps"
GAPS_MAX: Final = 256
"""How many gaps one pane names. Beyond that the last one stands for all others."""

BUDGETS_MAX: Final = 64
"""The same of budgets: those of the highest weights."""
BUDGETS_SHOWN: Final = 16
"""Of them in the status of a window."""
TOLD_CHARS_MAX: Final = 512
"""Of a name that an agent tells, in what a master tells of its work."""


class Missed(msgspec.Struct, frozen=True):
    """Bytes behind ``offset`` of a source (empty: nothing was read of it). ``bytes``: how many, None where
    nobody can know; ``why``: what became of them. ``ended``: the next chunk continues after them."""

    source: str
    path: str
    offset: int
    bytes: int | None
    why: str
    ended: bool = False


class Gap(msgspec.Struct, frozen=True, array_like=True, order=True):
    """``bytes``: -1 where nobody can know; event times in µs, both inclusive. ``weight``: 0, or it is no gap:
    one row in so many was counted, for the budget that ``source`` names."""

    from_us: int
    to_us: int
    agent: str
    source: str
    bytes: int = -1
    weight: int = 0

    def shown(self) -> dict[str, object]:
        """As in a window's status."""
        known = self.bytes if self.bytes >= 0 else None
        names = {"agent": self.agent, "source": self.source, "bytes": known}
        return {**names, "from": self.from_us, "to": self.to_us}


GAP_TYPE: Final = pa.struct(
    [
        ("agent", pa.string()),
        ("source", pa.string()),
        ("bytes", pa.int64()),
        ("from", pa.timestamp("us")),
        ("to", pa.timestamp("us")),
    ]
)
"""Of ``Gap.shown``."""


def over_budget(agent: str, whose: str, weight: int) -> Gap:
    """What a pane says of which one row in so many was counted, for that budget."""
    return Gap(0, 0, agent, whose, -1, weight)


BUDGET_TYPE: Final = pa.struct([("agent", pa.string()), ("budget", pa.string()), ("weight", pa.int64())])


def budgets_shown(gaps: Iterable[Gap]) -> list[dict[str, object]]:
    """Of these what was over budgets, as in a window's status: the highest weight of each agent and
    budget."""
    found: dict[tuple[str, str], int] = {}
    for one in gaps:
        if one.weight:
            found[one.agent, one.source] = max(one.weight, found.get((one.agent, one.source), 0))
    ordered = sorted(found.items(), key=lambda item: (-item[1], item[0]))[:BUDGETS_SHOWN]
    return [{"agent": agent, "budget": whose, "weight": weight} for (agent, whose), weight in ordered]


def estimate_of(status: pa.Table) -> EstimateWork | None:
    """What the last of these windows says of budgets; None: nothing."""
    for last in status.slice(max(status.num_rows - 1, 0)).to_pylist():
        told = [one for one in last.get("budgets") or () if one["weight"] > 0]
        found = [LentWork(_cut(one["agent"]), _cut(one["budget"]), one["weight"]) for one in told]
        if found or last.get("sampled"):
            rows, sampled = (max(last[name] or 0, 0) for name in ("rows_in", "sampled"))
            return EstimateWork(rows, sampled, tuple(found))
    return None


def _cut(text: str) -> str:
    """Agents say it of themselves, and may say anything."""
    return text[:TOLD_CHARS_MAX]


def to_bytes(gaps: Iterable[Gap]) -> bytes:
    """In a canonical order."""
    budgets = sorted((gap for gap in set(gaps) if gap.weight), key=lambda gap: (-gap.weight, gap))
    found = sorted({gap for gap in gaps if not gap.weight})
    if len(found) > GAPS_MAX:
        rest = found[GAPS_MAX - 1 :]
        known = sum(gap.bytes for gap in rest if gap.bytes > 0)
        span = min(gap.from_us for gap in rest), max(gap.to_us for gap in rest)
        found = [*found[: GAPS_MAX - 1], Gap(*span, "", f"{len(rest)} others", known or -1)]
    return msgspec.msgpack.encode([*found, *budgets[:BUDGETS_MAX]])


def from_bytes(data: bytes) -> list[Gap]:
    """Raises ``PeerError``."""
    try:
        return msgspec.msgpack.decode(data, type=list[Gap])
    except msgspec.MsgspecError as error:
        raise PeerError(f"gaps that cannot be read: {error}") from error


def gaps_of(tables: Iterable[pa.Table]) -> dict[int, set[Gap]]:
    """The gaps in counters, by pane. Raises ``PeerError``."""
    found: dict[int, set[Gap]] = {}
    for table in tables:
        for pane, gaps in named(table):
            found.setdefault(pane, set()).update(gaps)
    return found


def named(table: pa.Table) -> Iterator[tuple[int, Sequence[Gap]]]:
    """(pane, gaps) of a table of counters. Raises ``PeerError``."""
    if GAPS in table.column_names:
        rows = table.select(["_pane", GAPS]).drop_null()
        known: dict[bytes, list[Gap]] = {}
        for pane, data in zip(rows["_pane"].to_pylist(), rows[GAPS].to_pylist(), strict=True):
            if data not in known:
                known[data] = from_bytes(data)
            yield pane, known[data]


def gaps_alone(table: pa.Table) -> pa.Table:
    """The gaps of a table of counters, without its counts."""
    if GAPS not in table.column_names:
        return table.slice(0, 0)
    return table.select(["_pane", GAPS]).drop_null()


def with_gaps(table: pa.Table, gaps: dict[int, set[Gap]]) -> pa.Table:
    """A table of counters with these gaps, and no others; it has a row for each of their panes."""
    if not gaps:
        return table
    encoded: dict[frozenset[Gap], bytes] = {}
    column = []
    for pane in table["_pane"].to_pylist():
        here = frozenset(gaps.get(pane, ()))
        if here and here not in encoded:
            encoded[here] = to_bytes(here)
        column.append(encoded[here] if here else None)
    return table.append_column(GAPS, pa.array(column, pa.binary()))
