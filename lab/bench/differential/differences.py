"""What is known to differ between the engines, and how each difference is handled when answers are compared.

Nothing of this is skipped unseen: ``DIFFERENCES`` is the list, ``same`` and ``difference`` are the rules.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Final

FLOAT_TOLERANCE: Final = 1e-12

Cell = object
Row = tuple[Cell, ...]


@dataclass(frozen=True)
class Known:
    """A difference: ``what`` differs, and how it is ``handled``."""

    name: str
    what: str
    handled: str


DIFFERENCES: Final = (
    Known(
        "sums of doubles",
        "a sum of doubles depends on the order of the rows, and so do AVG, variances and deviations",
        "equal to one part in 10^12 of the largest intermediate sum (of |x|, or of x squared), which is "
        "computed beside it; never a key, a condition, an order. Sums of multiples of 1/8 "
        "are compared like integers",
    ),
    Known(
        "variances by other formulas",
        "elf's are power sums (exact for integers), the reference is two passes",
        "equal to one part in 10^10 of the mean square; deviations are compared as variances",
    ),
    Known(
        "percentiles between two values",
        "low + (high - low) * fraction: the fraction is rational in elf, a double in DuckDB",
        "equal to one part in 10^12 of the larger of the two",
    ),
    Known(
        "approximate aggregates",
        "APPROX_COUNT_DISTINCT and APPROX_PERCENTILE are sketches; no other engine has the same ones",
        "live and Spark must agree to the bit; both with the exact answer within the documented error (six "
        "standard errors of 1.6 %; 2**-7 of the value). APPROX_TOP_K is exact",
    ),
    Known(
        "order of NULLs",
        "DuckDB puts NULLs last, Spark first",
        "every ORDER BY is rendered with NULLS FIRST or LAST; the order of rows is compared",
    ),
    Known(
        "integer division, overflow, division by zero",
        "errors in one engine, NULL, infinity or another type in the other",
        "elf says double for /, NULL for what overflows or divides by zero: rendered so for both, "
        "compared exactly",
    ),
    Known(
        "-0.0",
        "which of 0.0 and -0.0 a group or an extreme shows depends on who came first",
        "the two are equal, as they are in every comparison of either engine",
    ),
    Known(
        "decimals and 128-bit integers",
        "sums of integers are HUGEINT in DuckDB, DECIMAL(38, 0) in Spark and Arrow",
        "compared as integers",
    ),
    Known(
        "letters whose case has another length",
        "upper('ß') and lower('İ') differ",
        "no such letter is in a log; the manual says so",
    ),
    Known(
        "numbers as text",
        "DuckDB writes 1e-7, Spark 1.0E-7",
        "the language refuses to make text of a double; a log's text columns hold texts",
    ),
    Known(
        "last bits of functions",
        "libraries compute ln, exp, pow, sin … to the last bit or the one before it",
        "equal to one part in 10^12; never a key, a condition, an order",
    ),
)


@dataclass(frozen=True)
class Tolerance:
    """How far two doubles (or estimates) may be apart: ``relative`` of the greater of the values and
    ``scale``. ``squared``: compare squares.
    """

    relative: float = FLOAT_TOLERANCE
    squared: bool = False


EXACTLY: Final = Tolerance()
COUNTED: Final = Tolerance(0.1)
RANKED: Final = Tolerance(2**-7)
ESTIMATES: Final = (COUNTED, RANKED)
"""Of APPROX_COUNT_DISTINCT and APPROX_PERCENTILE, against exact answers."""


def plain(value: Cell) -> Cell:
    """A value without its engine's own type: whole decimals are integers, times are without a zone."""
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    if isinstance(value, dt.datetime) and value.tzinfo is not None:
        return value.astimezone(dt.UTC).replace(tzinfo=None)
    return value


def same(one: Cell, other: Cell, tolerance: Tolerance = EXACTLY, scale: float | None = None) -> bool:
    """Whether two cells count as equal. A boolean is no number, an integer no double."""
    if type(one) is not type(other):
        return False
    if isinstance(one, float) and isinstance(other, float):
        return _near(one, other, tolerance, scale)
    if isinstance(one, int) and isinstance(other, int) and tolerance is not EXACTLY:
        return abs(one - other) <= max(2.0, tolerance.relative * max(abs(one), abs(other)))
    return one == other


def _near(one: float, other: float, tolerance: Tolerance, scale: float | None) -> bool:
    if scale is not None and not math.isfinite(scale):
        return True  # what was summed has left the doubles: the answer is whatever came first
    if math.isnan(one) or math.isnan(other):
        return math.isnan(one) and math.isnan(other)
    if one == other:
        return True
    if tolerance.squared:
        one, other = one * one, other * other
    return abs(one - other) <= tolerance.relative * max(abs(one), abs(other), scale or 0.0)


@dataclass(frozen=True)
class Answer:
    """Named columns and rows in order. ``tolerances`` and ``scales`` (a row each) go by column; only the
    reference has them.
    """

    names: tuple[str, ...]
    rows: Sequence[Row]
    tolerances: tuple[Tolerance, ...] = ()
    scales: Sequence[Sequence[float | None]] = ()


def beyond_bounds(got: Answer, wanted: Answer, every: Answer, key: Sequence[int], value: int) -> str | None:
    """What is wrong with an approximate answer; None when nothing is. ``every``: all groups, exactly;
    ``key``: the columns that tell a group (window and keys), ``value``: what it is ordered by, ``wanted``:
    the answer without APPROXIMATE, which has as many rows.
    """
    if got.names != wanted.names and got.rows:
        return f"columns {', '.join(got.names)} instead of {', '.join(wanted.names)}"
    if len(got.rows) != len(wanted.rows):
        return f"{len(got.rows)} rows instead of {len(wanted.rows)}"
    exact = {group_of(row, key): row[value] for row in every.rows}
    for number, row in enumerate(got.rows):
        truth = exact.get(group_of(row, key))
        said, bound = row[value], row[-1]
        if (
            not isinstance(said, int | float)
            or not isinstance(bound, float)
            or not isinstance(truth, int | float)
        ):
            return f"row {number}: {said!r}, of {truth!r}, with the bound {bound!r}\n  {row}"
        slack = FLOAT_TOLERANCE * max(abs(said), abs(truth))
        if not said - slack <= truth <= said + bound + slack:
            return f"row {number}: {truth!r} is not from {said!r} to {bound!r} more\n  {row}"
    return None


def group_of(row: Row, key: Sequence[int]) -> tuple[str, ...]:
    """What tells a group: these columns. 0.0 and -0.0 are one, as are all NaN."""
    cells = (row[index] for index in key)
    return tuple(repr(cell + 0.0 if isinstance(cell, float) else cell) for cell in cells)


def difference(got: Answer, wanted: Answer) -> str | None:
    """What is different, for a person to read; None when nothing is."""
    if got.names != wanted.names and got.rows:
        return f"columns {', '.join(got.names)} instead of {', '.join(wanted.names)}"
    for number, (mine, theirs) in enumerate(zip(got.rows, wanted.rows, strict=False)):
        for index, name in enumerate(wanted.names):
            tolerance = wanted.tolerances[index] if wanted.tolerances else EXACTLY
            scale = wanted.scales[number][index] if wanted.scales else None
            if not same(mine[index], theirs[index], tolerance, scale):
                told = f"row {number}, {name}: {mine[index]!r} instead of {theirs[index]!r}"
                return f"{told}\n  {mine}\n  {theirs}"
    if len(got.rows) != len(wanted.rows):
        more = got.rows[len(wanted.rows) :] or wanted.rows[len(got.rows) :]
        return f"{len(got.rows)} rows instead of {len(wanted.rows)}; the first one too many or few: {more[0]}"
    return None
