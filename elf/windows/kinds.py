"""Panes, and the kinds of windows, as values that travel in plans, with the arithmetic of each.

Pane ``p`` is ``[p * pane_us, (p + 1) * pane_us)``. Without a window clause everything is pane 0.

A window is an interval ``[start, end)`` of event time. It is *complete* when everything below its end is
committed, so windows are counted by their ends: "the windows that end in ``(first, last]``".

- *sliding* (tumbling when size equals slide): starts at multiples of the slide;
- *cumulative* (Flink's CUMULATE): from a multiple of the size to each multiple of the step above it;
- *landmark*: from the landmark to each multiple of ``every``, where that last stretch brought a row (else
  nothing has changed, and a finite input would have no last window);
- *counted*: so many rows of one source each. To calendars they are tumbling windows of a second, in which the
  last row of each came: only agents count (``elf.job.worker.counted``);
- *session*: a key's rows that are less than the gap apart; ``[first row, last row + gap)``.

Sessions have no unbounded past: a chain of rows is cut at every multiple of half of ``max_us`` except the
first one after its first row. So no session is longer than ``max_us``, and a part of a chain that is cut is
at least half as long. Which part a row is in depends on at most ``max_us / 2 + gap_us`` before it: that is
what a master must read to go on after a crash.
"""

from __future__ import annotations

import math
from typing import Final, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

from elf.fields import Span

Int64s = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

Us = TypeVar("Us", int, Int64s)

FOREVER_US: Final = 1 << 62
"""After every event time; its negative is before every one."""

SECOND_US: Final = 1_000_000
HOUR_US: Final = 3_600_000_000
_UNITS: Final = ((86_400_000_000, "d"), (HOUR_US, "h"), (60_000_000, "min"), (1_000_000, "s"), (1_000, "ms"))


def span(us: int) -> str:
    """A length of time in its largest whole unit."""
    for size, name in _UNITS:
        if us % size == 0:
            return f"{us // size} {name}"
    return f"{us} µs"


class Sliding(msgspec.Struct, frozen=True, tag="sliding"):
    """Windows of ``size_us``, one each ``slide_us``."""

    size_us: Span
    slide_us: Span

    @property
    def text(self) -> str:
        """For people."""
        return span(self.size_us) + ("" if self.is_tumbling else f", every {span(self.slide_us)}")

    @property
    def unit_us(self) -> int:
        """The length of the pieces that its windows are made of; of tumbling windows, themselves."""
        return math.gcd(self.size_us, self.slide_us)

    @property
    def step_us(self) -> int:
        """How far apart the ends are."""
        return self.slide_us

    @property
    def is_tumbling(self) -> bool:
        return self.size_us == self.slide_us

    def first_start(self, after_us: int) -> int:
        """Start of the first window that ends after ``after_us``."""
        return ((after_us - self.size_us) // self.slide_us + 1) * self.slide_us

    def last_end(self, us: Us) -> Us:
        """End of the last window that holds ``us`` (or, between windows, of the one before)."""
        return us // self.slide_us * self.slide_us + self.size_us

    def ends_by(self, us: Us) -> Us:
        """The last end that is not after ``us``."""
        return (us - self.size_us) // self.slide_us * self.slide_us + self.size_us

    def starts_of(self, ends: Int64s) -> Int64s:
        return ends - self.size_us

    def are_ends(self, ends: Int64s) -> Mask:
        found: Mask = (ends - self.size_us) % self.slide_us == 0
        return found


class Counted(Sliding, frozen=True, tag="counted"):
    """Windows of ``rows`` rows of a source: all those that were full in the same second are published
    together."""

    rows: Span = 1

    @property
    def text(self) -> str:
        """For people."""
        return f"{self.rows:,} row{'' if self.rows == 1 else 's'} of a source"


class Cumulative(msgspec.Struct, frozen=True, tag="cumulative"):
    """Windows that grow by ``step_us`` until they are ``size_us`` long; then they begin again."""

    size_us: Span
    step_us: Span

    def __post_init__(self) -> None:
        if self.step_us > self.size_us:
            raise ValueError("a step that is longer than its window")

    @property
    def text(self) -> str:
        return f"cumulative, up to {span(self.size_us)} by {span(self.step_us)}"

    @property
    def unit_us(self) -> int:
        return self.step_us

    def first_start(self, after_us: int) -> int:
        return after_us // self.size_us * self.size_us

    def last_end(self, us: Us) -> Us:
        return us // self.size_us * self.size_us + self.size_us

    def ends_by(self, us: Us) -> Us:
        return us // self.step_us * self.step_us

    def starts_of(self, ends: Int64s) -> Int64s:
        found: Int64s = (ends - 1) // self.size_us * self.size_us
        return found

    def are_ends(self, ends: Int64s) -> Mask:
        found: Mask = ends % self.step_us == 0
        return found


class Landmark(msgspec.Struct, frozen=True, tag="landmark"):
    """Everything since the landmark, each ``every_us``. The calendar knows where it starts."""

    every_us: Span

    @property
    def text(self) -> str:
        return f"since the landmark, every {span(self.every_us)}"

    @property
    def unit_us(self) -> int:
        return self.every_us

    @property
    def step_us(self) -> int:
        return self.every_us

    def ends_by(self, us: Us) -> Us:
        return us // self.every_us * self.every_us

    def are_ends(self, ends: Int64s) -> Mask:
        found: Mask = ends % self.every_us == 0
        return found


class Session(msgspec.Struct, frozen=True, tag="session"):
    """Rows of a key that are less than ``gap_us`` apart, at most ``max_us`` long."""

    gap_us: Span
    max_us: Span

    def __post_init__(self) -> None:
        if self.max_us < 2 * self.gap_us:
            raise ValueError("sessions that are over before they are closed")

    @property
    def text(self) -> str:
        return f"sessions, closed by {span(self.gap_us)} of silence, at most {span(self.max_us)} long"

    @property
    def half_us(self) -> int:
        """Chains are cut at multiples of this."""
        return self.max_us // 2

    @property
    def unit_us(self) -> int:
        """Rows of a key in one pane of this length are in one session: it is no longer than the gap, and a
        whole part of the length at which chains are cut."""
        least = -(-self.half_us // self.gap_us)
        parts = (n for n in range(least, least + 10_000) if self.half_us % n == 0)
        return self.half_us // next(parts, self.half_us // math.gcd(self.gap_us, self.half_us))

    @property
    def step_us(self) -> int:
        return self.gap_us

    @property
    def past_us(self) -> int:
        """A session's bounds depend on no row that is further before its start."""
        return self.half_us + self.gap_us

    def first_start(self, after_us: int) -> int:
        """From here on rows must be known for the sessions that end after ``after_us``."""
        return after_us - self.max_us - self.past_us

    def last_end(self, us: Us) -> Us:
        """A row at ``us`` changes no session that ends after this."""
        return us + self.max_us + 2 * self.gap_us

    def ends_by(self, us: Us) -> Us:
        return us


Kind = Sliding | Counted | Cumulative | Landmark | Session


def counted(rows: int) -> Counted:
    """Windows of so many rows."""
    return Counted(SECOND_US, SECOND_US, rows)


def in_order(kinds: tuple[Kind, ...]) -> tuple[Kind, ...]:
    """Of two kinds that have the same window, the one that makes it comes first: a landmark's is made only
    after a new row, the longest stretch has it most often."""
    return tuple(
        sorted(kinds, key=lambda kind: -kind.every_us if isinstance(kind, Landmark) else -FOREVER_US)
    )


def pane_us_of(kinds: tuple[Kind, ...]) -> int:
    """The longest pane that every window is a whole number of; 0 without windows."""
    return math.gcd(*(kind.unit_us for kind in kinds)) if kinds else 0


def panes_of(ts_us: Int64s, pane_us: int) -> Int64s:
    """The pane of each event time (floor, so that times before 1970 are right too)."""
    if pane_us == 0:
        return np.zeros(len(ts_us), dtype=np.int64)
    return np.floor_divide(ts_us, pane_us)


def highest_before(ts_us: Int64s, highest: int) -> Int64s:
    """For each row, the highest event time read before it from its source; ``highest`` is that of earlier
    chunks.
    """
    before = np.empty(len(ts_us), dtype=np.int64)
    if len(ts_us):
        before[0] = highest
        before[1:] = ts_us[:-1]
        np.maximum.accumulate(before, out=before)
    return before


def sealable(watermark_us: int, lateness_us: int, pane_us: int) -> int:
    """The first pane that must stay open: every pane whose end plus lateness is at or below the watermark may
    be sealed.
    """
    return (watermark_us - lateness_us) // pane_us


def sums_by_window(panes: Int64s, values: Int64s, starts: Int64s, ends: Int64s) -> Int64s:
    """Sums of ``values`` (a row a pane, which may repeat; a column each) over the panes ``[start, end)`` of
    each window: differences of running sums, which is exact for integers."""
    order = np.argsort(panes, kind="stable")
    running = np.zeros((len(panes) + 1, values.shape[1]), np.int64)
    np.cumsum(values[order], axis=0, out=running[1:])
    ordered = panes[order]
    found: Int64s = running[np.searchsorted(ordered, ends)] - running[np.searchsorted(ordered, starts)]
    return found
