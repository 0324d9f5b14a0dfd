"""``elf top``: the agents of a fleet at work, as each says itself (``elf.wire.clients``).

On a terminal it is one picture that is drawn anew in place; elsewhere, and for ``--rounds``, one table below
the other, or JSON, an object a round. A rate is what came between two answers of an agent by that agent's own
clock; an agent that has answered once, or was started anew in between, has none. An agent that does not
answer is shown and says so. Ctrl-C is how it ends.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, Literal

import msgspec

from elf.cli.ask import ask
from elf.cli.numbers import number, size
from elf.cli.options import Shown
from elf.cli.printing import console
from elf.client import Client, connect
from elf.client.values import for_terminal, printable_json
from elf.wire.clients import AgentStats, FleetStats, Stats

if TYPE_CHECKING:
    from rich.console import Console, Group
    from rich.table import Table
    from rich.text import Text

NO_ANSWER: Final = "no answer"
FRAME_LINES: Final = 5
"""Of a picture, beside its agents: head, blank line, names of columns and their rule, what follows."""
GAP: Final = 2
"""Blanks between two columns; one of them is the box's."""


class Row(msgspec.Struct, frozen=True):
    """An agent. None: not known; ``cpu`` is 1.0 for a whole core; counts are since the agent's start, those
    of all its streams."""

    agent: str
    address: str
    streams: tuple[str, ...]
    state: str
    rows_per_sec: float | None = None
    bytes_per_sec: float | None = None
    windows_per_sec: float | None = None
    cpu: float | None = None
    memory_bytes: int | None = None
    backlog_bytes: int | None = None
    rejected: int | None = None
    late: int | None = None
    future: int | None = None
    unrostered: int | None = None
    shed: int | None = None
    leapt: int | None = None
    uncast: int | None = None
    outputs_stopped: int | None = None
    jobs: int | None = None
    flows: int | None = None
    snapshots_retained: int | None = None


class Round(msgspec.Struct, frozen=True):
    """One look at the fleet: its sums, and its agents, who reads most first."""

    time: datetime
    jobs: int
    silent: int
    rows_per_sec: float | None
    bytes_per_sec: float | None
    windows_per_sec: float | None
    agents: tuple[Row, ...]


def show_top(address: str, cluster: str, every: float, rounds: int | None, output: Shown) -> int:
    """Look at the fleet every so many seconds, until Ctrl-C or so many times."""
    out = console(sys.stdout)

    async def watch() -> None:
        async with connect(address, cluster=cluster) as client:
            if rounds is None and output is Shown.TABLE and out.is_terminal:
                await _draw(looks(client, every, at_once=True), out)
            else:
                await _print(looks(client, every, at_once=False), out, rounds, output)

    try:
        ask(watch())
    except KeyboardInterrupt:
        return 0
    return 0


async def looks(client: Client, every: float, *, at_once: bool) -> AsyncGenerator[Round]:
    """A round every so many seconds. The first has no rates; without ``at_once`` it is kept back."""
    loop = asyncio.get_running_loop()
    before: FleetStats | None = None
    while True:
        began = loop.time()
        now = await client.fleet()
        if at_once or before is not None:
            yield round_of(now, before, datetime.now(UTC))
        before = now
        await asyncio.sleep(max(began + every - loop.time(), 0))


async def _draw(rounds: AsyncGenerator[Round], out: Console) -> None:
    from rich.live import Live

    with Live(console=out, screen=True, auto_refresh=False) as live:
        async for one in rounds:
            live.update(picture(one, out.width, out.height), refresh=True)


async def _print(rounds: AsyncGenerator[Round], out: Console, count: int | None, output: Shown) -> None:
    left = count
    async for one in rounds:
        if output is Shown.JSON:
            sys.stdout.write(printable_json(msgspec.json.encode(one).decode()) + "\n")
            sys.stdout.flush()
        else:
            out.print(picture(one, out.width, None))
        left = None if left is None else left - 1
        if left == 0:
            return


# -- what is shown -------------------------------------------------------------------------------------------


def round_of(now: FleetStats, before: FleetStats | None, time: datetime) -> Round:
    """What a look at the fleet comes to, after the one before it."""
    known = {} if before is None else {one.address: one.stats for one in before.agents}
    rows = [_row(one, known.get(one.address)) for one in now.agents]
    rows.sort(key=lambda row: (-(row.rows_per_sec or 0.0), row.address))
    return Round(
        time,
        now.jobs,
        sum(one.stats is None for one in now.agents),
        _sum(row.rows_per_sec for row in rows),
        _sum(row.bytes_per_sec for row in rows),
        _sum(row.windows_per_sec for row in rows),
        tuple(rows),
    )


def _row(one: AgentStats, before: Stats | None) -> Row:
    now = one.stats
    if now is None:
        return Row(one.agent, one.address, one.streams, NO_ANSWER)
    rate = _rates(now, before)
    streams = now.streams
    return Row(
        agent=one.agent,
        address=one.address,
        streams=one.streams,
        state=now.state,
        rows_per_sec=rate(lambda v: sum(s.rows for s in v.streams)),
        bytes_per_sec=rate(lambda v: sum(s.bytes for s in v.streams)),
        windows_per_sec=rate(lambda v: v.windows),
        cpu=rate(lambda v: v.cpu_us / 1e6, 3),
        memory_bytes=now.resident_bytes,
        backlog_bytes=sum(s.backlog_bytes for s in streams),
        rejected=sum(s.rejected for s in streams),
        late=sum(s.late for s in streams),
        future=sum(s.future for s in streams),
        unrostered=sum(s.unrostered for s in streams),
        shed=sum(s.shed for s in streams),
        leapt=sum(s.leapt for s in streams),
        uncast=sum(s.uncast for s in streams),
        outputs_stopped=now.outputs_stopped,
        jobs=now.jobs,
        flows=now.flows,
        snapshots_retained=now.retained,
    )


def _rates(now: Stats, before: Stats | None) -> Callable[..., float | None]:
    """How much of something came in a second."""

    def rate(count: Callable[[Stats], float], digits: int = 1) -> float | None:
        if before is None or before.incarnation != now.incarnation or now.clock_us <= before.clock_us:
            return None
        return round((count(now) - count(before)) / ((now.clock_us - before.clock_us) / 1e6), digits)

    return rate


def _sum(values: Iterable[float | None]) -> float | None:
    """Of those that are known; None if none is."""
    known = [value for value in values if value is not None]
    return round(sum(known), 1) if known else None


# -- pictures ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Column:
    """``rank``: columns of the highest go first where the terminal is too narrow; 0 stays."""

    name: str
    text: Callable[[Row], str]
    rank: int
    justify: Literal["left", "right"] = "right"


COLUMNS: Final = (
    _Column("agent", lambda row: for_terminal(row.agent or row.address), 0, "left"),
    _Column("address", lambda row: for_terminal(row.address), 8, "left"),
    _Column("streams", lambda row: for_terminal(", ".join(row.streams)), 10, "left"),
    _Column("state", lambda row: for_terminal(row.state), 0, "left"),
    _Column("rows/s", lambda row: number(row.rows_per_sec), 0),
    _Column("bytes/s", lambda row: size(row.bytes_per_sec), 3),
    _Column("backlog", lambda row: size(row.backlog_bytes), 4),
    _Column("late", lambda row: number(row.late), 1),
    _Column("rejected", lambda row: number(row.rejected), 5),
    _Column("shed", lambda row: number(row.shed), 7),
    _Column("uncast", lambda row: number(row.uncast), 9),
    _Column("jobs", lambda row: number(row.jobs), 6),
    _Column("cpu", lambda row: "" if row.cpu is None else f"{100 * row.cpu:.0f} %", 0),
    _Column("memory", lambda row: size(row.memory_bytes), 2),
)


def picture(one: Round, width: int, height: int | None) -> Group:
    """The head line and a row an agent, as many as there is room for (None: all)."""
    from rich.console import Group
    from rich.text import Text

    room = len(one.agents) if height is None else max(height - FRAME_LINES, 1)
    shown, more = one.agents[:room], len(one.agents) - room
    rest = Text(f"… and {more:,} more" if more > 0 else "", "dim")
    return Group(head(one), Text(), _table(shown, _columns(one.agents, width)), rest)


def head(one: Round) -> Text:
    """The fleet in a line."""
    from rich.text import Text

    count = len(one.agents)
    agents = "1 agent" if count == 1 else f"{count:,} agents"
    silent = f" ({one.silent:,} without an answer)" if one.silent else ""
    stopped = sum(row.outputs_stopped or 0 for row in one.agents)
    outputs = f" ({stopped:,} of their outputs stopped: SHOW OUTPUTS)" if stopped else ""
    jobs = "1 job" if one.jobs == 1 else f"{one.jobs:,} jobs"
    rates = [
        f"{text}{unit}"
        for text, unit in (
            (number(one.rows_per_sec), " rows/s"),
            (size(one.bytes_per_sec), "/s"),
            (number(one.windows_per_sec), " windows/s"),
        )
        if text
    ]
    rest = ", ".join([*rates, f"{one.time:%H:%M:%S} UTC"])
    return Text.assemble((agents, "bold"), (silent, "red"), f", {jobs}", (outputs, "red"), f", {rest}")


def _columns(rows: Sequence[Row], width: int) -> list[tuple[_Column, int]]:
    """Those that there is room for, and how wide they are for all of these rows. ``uncast`` is there where
    anything is."""
    wanted = [column for column in COLUMNS if column.name != "uncast" or any(row.uncast for row in rows)]
    widest = {column: max([len(column.name), *(len(column.text(row)) for row in rows)]) for column in wanted}
    for column in sorted(wanted, key=lambda column: -column.rank):
        if not column.rank or sum(widest.values()) + GAP * (len(widest) - 1) <= width:
            break
        del widest[column]
    return list(widest.items())


def _table(rows: Sequence[Row], columns: Sequence[tuple[_Column, int]]) -> Table:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    drawn = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, GAP - 1, 0, 0))
    for column, width in columns:
        name = Text(column.name)
        drawn.add_column(name, justify=column.justify, min_width=width, no_wrap=True, overflow="ellipsis")
    for row in rows:
        style = "red" if row.state == NO_ANSWER else "yellow" if row.state != "live" else ""
        drawn.add_row(*(Text(column.text(row)) for column, _ in columns), style=style)
    return drawn
