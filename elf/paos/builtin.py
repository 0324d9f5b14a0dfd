"""The aggregates whose state is a few columns of a group's row: all are sums, minima and maxima.

An aggregate is described once: the SQL of its partial states over raw rows, how each merges, and the SQL of
its value, for DuckDB, and for Spark where that differs. (Aggregates that need more rows: ``elf.ql.cells``.)

- Variances of integers are exact to the last rounding: n, Σx and Σx², the latter as two sums (its low 62 bits
  and the rest), so that no sum of 2**63 rows exceeds 38 digits. With m = Σx div n and r = Σx mod n, Σ(x -
  mean)² = (Σx² - n m² - 2 r m) - r²/n, all in integers of 128 bits; where that is too small, in doubles.
- Variances of doubles are power sums: an error of some 2**-52 (1 + mean²/variance) relative to the value, in
  either direction; a mean that is 10**6 deviations away leaves four digits. Where that matters, scale to
  integers.
- MIN_BY(x, y) and MAX_BY(x, y) are the least and the greatest of (y, x), a pair in one text
  (``elf.ql.pairs``): ties go to the least x for MIN_BY and to the greatest for MAX_BY, whatever the order in
  which rows come. Rows with a NULL in either are ignored.
- Intervals of a sample's estimates (``elf.ql.sampling``) are of its keys, since rows of a key are no
  independent draws. The keys are dealt into 16 parts (random groups: Wolter, Introduction to Variance
  Estimation, 2007, chapter 2), whose totals T₀ … T₁₅ with the sum T give Q = 16/15 (Σ Tᵢ² - T²/16): in the
  mean Σ t² over the totals t of the keys. Half the width is 2.947 √Q (Student's t, 99 %), and 2.947² c Q/|T|
  more, which counts where few keys are in the sample: there estimates have a long tail. Of a mean the first
  part is of the residuals t - mean · n. Of keys that count alike c is 0.6, of others 2, and there is no
  interval below 4 keys (T²/Q). Simulated with 16 to 1,000 keys: it holds in 99.4 to 99.9 % of the cells whose
  totals are exponential or lognormal (σ up to 1.2), and in 98 % where their variance is infinite.
- FIRST and LAST are the same by event time. What fits 64 bits is packed into one number with its time; event
  times beyond the year 75,000 count as that year.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from elf.aggregates import MergeOp, State


@dataclass(frozen=True)
class StateRule:
    """One state of an aggregate. ``partial`` is DuckDB SQL over raw rows, a template with ``{x}``, and
    ``{t}``, the event time; ``spark`` the same for Spark where it differs.

    Partials of a query that render to the same text may share a state column (SUM(x) and AVG(x)).
    """

    suffix: str
    merge: MergeOp
    partial: str
    identity_zero: bool = False
    spark: str | None = None

    def state(self, prefix: str) -> State:
        """The state column of this rule under a name of the caller's choice."""
        return State(f"{prefix}_{self.suffix}", self.merge, self.identity_zero)


@dataclass(frozen=True)
class Aggregate:
    """An SQL aggregate as a PAO.

    ``final`` is DuckDB SQL over merged states: a template with ``{0}``, ``{1}`` … the state columns, and
    ``{type}``, the DuckDB type of the aggregate over raw rows (HUGEINT for a SUM of BIGINT: Arrow brings it
    back as DECIMAL(38,0), which the rest of an expression would treat differently). ``spark``: Spark's, where
    it differs.
    """

    name: str
    states: tuple[StateRule, ...]
    final: str
    spark: str | None = None

    def final_sql(self, columns: Sequence[str], type_name: str, *, spark: bool = False) -> str:
        """The aggregate's value; ``columns`` are quoted names of its merged state columns, in order."""
        template = self.spark if spark and self.spark is not None else self.final
        return template.format(*columns, type=type_name)


_COUNT = StateRule("count", "sum", "COUNT({x})", identity_zero=True)
_SUM = StateRule("sum", "sum", "SUM({x})")

# -- variances -----------------------------------------------------------------------------------------------

_LOW = 1 << 62
_SQUARE = "(CAST({x} AS HUGEINT) * CAST({x} AS HUGEINT))"
_SPARK_SQUARE = "(CAST({x} AS DECIMAL(38, 0)) * CAST({x} AS DECIMAL(38, 0)))"


def _spark_high(number: str) -> str:
    """What is above the low 62 bits of a DECIMAL(38, 0) that is not negative."""
    return f"CAST(({number} - {number} % {_LOW}) / {_LOW} AS DECIMAL(38, 0))"


_INTEGERS = (
    _COUNT,
    _SUM,
    StateRule("low", "sum", f"SUM({_SQUARE} & {_LOW - 1})", spark=f"SUM({_SPARK_SQUARE} % {_LOW})"),
    StateRule("high", "sum", f"SUM({_SQUARE} >> 62)", spark=f"SUM({_spark_high(_SPARK_SQUARE)})"),
)
_DOUBLES = (_COUNT, _SUM, StateRule("squares", "sum", "SUM(({x}) * ({x}))"))


def _or_in_doubles(exact: str, high: str, low: str, rest: str, mean: str) -> str:
    """Σ(x - mean)² of n times that; where 128 bits are too few, in doubles."""
    high, low, rest, mean = (f"CAST({part} AS DOUBLE)" for part in (high, low, rest, mean))
    doubles = f"{high} * {_LOW}e0 + {low} - 2e0 * {rest} * {mean} - {rest} * {rest} / {{0}}"
    return f"COALESCE(CAST({exact} AS DOUBLE) / {{0}}, {doubles})"


def _squares_of_integers() -> str:
    """Σ(x - mean)² in DuckDB."""
    n, total, lows, highs = (f"CAST({{{i}}} AS HUGEINT)" for i in range(4))
    mean, rest = f"({total} // {n})", f"({total} % {n})"
    high = f"({highs} - {n} * (({mean} * {mean}) >> 62))"
    low = f"({lows} - {n} * (({mean} * {mean}) & {_LOW - 1}))"
    exact = f"TRY(({high} * {_LOW} + {low} - 2 * {rest} * {mean}) * {n} - {rest} * {rest})"
    return _or_in_doubles(exact, high, low, rest, mean)


def _squares_of_integers_in_spark() -> str:
    n, total, lows, highs = (f"CAST({{{i}}} AS DECIMAL(38, 0))" for i in range(4))
    mean, rest = f"CAST({total} div {n} AS DECIMAL(38, 0))", f"CAST({total} % {n} AS DECIMAL(38, 0))"
    square = f"({mean} * {mean})"
    high = f"({highs} - {n} * {_spark_high(square)})"
    low = f"({lows} - {n} * ({square} % {_LOW}))"
    around = f"try_subtract(try_add(try_multiply({high}, {_LOW}), {low}), 2 * {rest} * {mean})"
    exact = f"try_subtract(try_multiply({around}, {n}), {rest} * {rest})"
    return _or_in_doubles(exact, high, low, rest, mean)


_SQUARES = _squares_of_integers()
_SPARK_SQUARES = _squares_of_integers_in_spark()
_DOUBLE_SQUARES = "GREATEST({2} - {1} * {1} / {0}, 0e0)"
_VARIANCES: Mapping[str, str] = {
    "var_pop": "CASE WHEN {0} > 0 THEN SQUARES / {0} END",
    "var_samp": "CASE WHEN {0} > 1 THEN SQUARES / ({0} - 1) END",
    "stddev_pop": "CASE WHEN {0} > 0 THEN sqrt(SQUARES / {0}) END",
    "stddev_samp": "CASE WHEN {0} > 1 THEN sqrt(SQUARES / ({0} - 1)) END",
}


def _variances() -> list[Aggregate]:
    found = []
    for name, value in _VARIANCES.items():
        integers, spark, doubles = (
            value.replace("SQUARES", f"({text})") for text in (_SQUARES, _SPARK_SQUARES, _DOUBLE_SQUARES)
        )
        found.append(Aggregate(name, _INTEGERS, integers, spark))
        found.append(Aggregate(f"{name} of doubles", _DOUBLES, doubles))
    return found


# -- first and last ------------------------------------------------------------------------------------------

_TIME_MAX = 1 << 61
_TIME = (
    f"CASE WHEN epoch_us({{t}}) > {_TIME_MAX} THEN {_TIME_MAX} "
    f"WHEN epoch_us({{t}}) < -{_TIME_MAX} THEN -{_TIME_MAX} ELSE epoch_us({{t}}) END"
)
_SPARK_TIME = _TIME.replace("epoch_us", "unix_micros")
PACKED_END: Final = f"CAST(({{time}}) AS HUGEINT) * {1 << 64} + (CAST({{x}} AS HUGEINT) + {1 << 63})"
"""The state of FIRST and LAST, of a time in µs and what fits 64 bits. To Spark it is a struct of both."""
_PACKED = PACKED_END.replace("{time}", _TIME)
_UNPACKED = f"CAST((CAST({{0}} AS HUGEINT) & {(1 << 64) - 1}) - {1 << 63} AS BIGINT)"
_PAIR = (
    "CASE WHEN ({x}) IS NOT NULL AND {t} IS NOT NULL "
    f"THEN named_struct('t', {_SPARK_TIME}, 'x', {{x}}) END"
)


def _ends() -> list[Aggregate]:
    found = []
    ends: tuple[tuple[str, MergeOp], ...] = (("first", "min"), ("last", "max"))
    for name, merge in ends:
        call = merge.upper()
        spark = f"{call}({_PAIR})"
        packed = StateRule(name, merge, f"{call}({_PACKED})", spark=spark)
        found.append(Aggregate(name, (packed,), _UNPACKED, "{0}.x"))
    return found


# -- intervals -----------------------------------------------------------------------------------------------

T_99: Final = 2.947
"""99 % of Student's t with 15 degrees of freedom are no further from 0."""
KEYS_MIN: Final = 4
"""Of fewer keys in a sample that count for different amounts nothing is said."""
_TAIL, _EVEN_TAIL = 2.0, 0.6
_PARTS: Final = "0123456789abcdef"


def _intervals() -> list[Aggregate]:
    """Of rows ``{x}`` in the parts ``{t}``. Before they are scaled by what the sample is of all."""
    many, each = len(_PARTS), "CASE WHEN {t} = 'PART' THEN {x} END"
    sums = [StateRule(f"part{p}", "sum", f"SUM({each.replace('PART', p)})") for p in _PARTS]
    rows = [
        StateRule(f"rows{p}", "sum", f"COUNT({each.replace('PART', p)})", identity_zero=True) for p in _PARTS
    ]
    totals = [f"COALESCE({{{i}}}, 0e0)" for i in range(many)]
    counts = [f"CAST({{{many + i}}} AS DOUBLE)" for i in range(many)]
    total, count = f"({' + '.join(totals)})", f"({' + '.join(counts)})"
    squares = " + ".join(f"{one} * {one}" for one in totals)
    spread = f"GREATEST(({squares} - {total} * {total} / {many}) * {many}e0 / {many - 1}, 0e0)"
    tail = f"{T_99**2!r}e0 * {spread} / NULLIF(abs({total}), 0e0)"
    enough = f"{total} <> 0e0 AND {total} * {total} >= {KEYS_MIN}e0 * ({spread})"
    mean = f"({total} / {count})"
    crossed = " + ".join(f"{one} * {n}" for one, n in zip(totals, counts, strict=True))
    counted = " + ".join(f"{n} * {n}" for n in counts)
    rest = f"({squares} - 2e0 * {mean} * ({crossed}) + {mean} * {mean} * ({counted})) * {many}e0 / {many - 1}"
    of_sum = f"{T_99}e0 * sqrt({spread}) + {_TAIL}e0 * {tail}"
    of_count = f"{T_99}e0 * sqrt({spread}) + {_EVEN_TAIL}e0 * COALESCE({tail}, {T_99**2!r}e0)"
    of_mean = f"({T_99}e0 * sqrt(GREATEST({rest}, 0e0)) + {_TAIL}e0 * {tail}) / {count}"
    return [
        Aggregate("interval of count", tuple(sums), of_count),
        Aggregate("interval of sum", tuple(sums), f"CASE WHEN {enough} THEN {of_sum} END"),
        Aggregate(
            "interval of avg", (*sums, *rows), f"CASE WHEN {count} > 0 AND {enough} THEN {of_mean} END"
        ),
    ]


AGGREGATES: Final[Mapping[str, Aggregate]] = MappingProxyType(
    {
        aggregate.name: aggregate
        for aggregate in (
            Aggregate("count_star", (StateRule("count", "sum", "COUNT(*)", identity_zero=True),), "{0}"),
            Aggregate("count", (_COUNT,), "{0}"),
            Aggregate("sum", (_SUM,), "CAST({0} AS {type})"),
            Aggregate("min", (StateRule("min", "min", "MIN({x})"),), "CAST({0} AS {type})"),
            Aggregate("max", (StateRule("max", "max", "MAX({x})"),), "CAST({0} AS {type})"),
            Aggregate("avg", (_SUM, _COUNT), "CAST({0} AS DOUBLE) / NULLIF({1}, 0)"),
            *_variances(),
            *_ends(),
            *_intervals(),
            Aggregate("min_by", (StateRule("min", "min", "MIN({x})"),), "{0}"),
            Aggregate("max_by", (StateRule("max", "max", "MAX({x})"),), "{0}"),
        )
    }
)
"""By name. The variances are of integers, or ``… of doubles``; ``first`` and ``last`` of what fits 64
bits. COUNT(*) has no argument."""

BY: Final = ("min_by", "max_by")
"""Those of two arguments whose state is of a pair of them, and their value the first of it."""
