"""Aggregates whose state is more rows: cells, each a row of its group with one more key (``c0``, ``c1`` …).

Beside its ordinary row, in which every cell column is NULL, a group has a row for each distinct value of a
cell column (and NULL in the others): with COUNT(DISTINCT x) each x is a row, and ``cell_count`` says how
often it occurred. So sketches merge as everything else does, by sums and maxima over columns, in any order,
to the same bits in agents, trees, windows and Spark. (A library's sketch, such as those of Apache
DataSketches, is a Python object a key, and a different one in Spark; merged in another order it is another
sketch.) The price: memory by cell, not by group.

- COUNT, SUM, AVG (DISTINCT x), MEDIAN(x), PERCENTILE(x, p), APPROX_TOP_K(x, k), HISTOGRAM(x),
  ARRAY_AGG(DISTINCT x): one cell for each value. They are exact: the error bound of APPROX_TOP_K is 0. Equal
  arguments share their cells.
- ARRAY_AGG(x ORDER BY y): one cell for each pair of values, in the order of y and then of x
  (``elf.ql.pairs``). Merging keeps them all; what is shown is cut.
- APPROX_COUNT_DISTINCT(x): a HyperLogLog of 4,096 registers (Flajolet et al. 2007) over 64 bits of md5, one
  cell for each register that was hit, with Ertl's estimator (arXiv 1702.01284, section 4), which needs no
  constants and no corrections. Standard error 1.04/sqrt(4096) = 1.6 %; a few values are nearly exact.
  Doubles, whose text the engines write differently, are counted exactly.
- APPROX_PERCENTILE(x, p): the value of rank ceil(p n), rounded to 7 significant bits: within 0.79 % (2**-7)
  of the true value of that rank, since rounding keeps the order. Integers up to 128 are exact. One cell for
  each rounded value: 64 for each doubling of x. Beyond 1e-290 to 1e290 values are not rounded.
- An aggregate of one's own (``elf.ql.own``): one cell for each state that is not merged yet.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final, Literal

from msgspec import Struct

from elf.aggregates import State
from elf.ql.expressions import OWN, TRUE, Aggregate, Call, Constant, Expr, Ref, Slot, connect
from elf.ql.kinds import become, cast
from elf.ql.own import OwnAggregate
from elf.ql.pairs import of_pair, pair
from elf.ql.render import render
from elf.ql.templates import Engine, Form, same

COUNT: Final = State("cell_count", "sum", identity_zero=True)
RANK: Final = State("cell_rank", "max")


class Cell(Struct, frozen=True):
    """``key`` distinguishes a group's rows, and is not NULL where ``given`` is not; rows where that is NULL
    have no cell. ``rank``: the greatest of it is kept; None: rows are counted. With a rank, it and the key
    are of a column ``x``, the distinct values of ``given``: hashing each once a chunk is four times as fast
    where they repeat. ``own``: it is a state of this aggregate, of rows with these ``args``."""

    given: Expr
    key: Expr
    rank: Expr | None = None
    own: OwnAggregate | None = None
    args: tuple[Expr, ...] = ()

    @property
    def state(self) -> State:
        return COUNT if self.rank is None else RANK


class Celled(Struct, frozen=True):
    """An aggregate over cells. ``final``: its value over a group's rows, a template with ``{c}``, the cell
    column; ``{n}`` and ``{rank}``, the states; ``{json}``, the argument's value as JSON (``quoted``: always
    as a text); ``{0}`` and ``{1}``, the aggregate's ``params``, and of ``needs``:

    - ``order``: ``{upto}``, how many rows have this cell's value or a lower one, and ``{total}``, how many
      there are;
    - ``place``: ``{place}``, 1 for the cell with the most rows, and so on;
    - ``first``, ``last``: ``{first}``, ``{last}``, 1 for the cell with the least or the greatest value, and
      so on.
    """

    cell: Callable[[Aggregate], Cell]
    final: Form
    needs: Literal["", "order", "place", "first", "last"] = ""
    quoted: bool = False

    def value(self, aggregate: Aggregate, column: str, engine: Engine) -> str:
        """SQL over the rows of a group, ``g``."""
        names = {name: f"g.{name}_{column}" for name in ("upto", "total", "place", "first", "last")}
        states = {"n": f"g.{COUNT.name}", "rank": f"g.{RANK.name}"}
        template = self.final.template(engine)
        json = render(self._json(aggregate, column), engine) if "{json}" in template else ""
        return template.format(*aggregate.params, c=f"g.{column}", json=json, **names, **states)

    def _json(self, aggregate: Aggregate, column: str) -> Expr:
        """A cell's value of the first argument as JSON."""
        kind = aggregate.args[0].kind
        value: Expr = Slot(column, kind)
        if len(aggregate.args) > 1:
            value = of_pair(value, kind)
        text = cast(value, "text") or value
        return (
            text
            if kind in ("bigint", "boolean") and not self.quoted
            else Call("json of text", (text,), "text")
        )


def _value(aggregate: Aggregate) -> Cell:
    (arg,) = aggregate.args
    return Cell(arg, arg)


def _listed(aggregate: Aggregate) -> Cell:
    """``params``: how many are listed, and whether what is ordered by NULL is low."""
    if len(aggregate.args) == 1:
        return _value(aggregate)
    x, by = aggregate.args
    both = pair(x, by, low=bool(aggregate.params[1]))
    return Cell(both, both)


def _register(aggregate: Aggregate) -> Cell:
    x = Ref("x", "text")
    return Cell(aggregate.args[0], Call("register", (x,), "bigint"), Call("register rank", (x,), "bigint"))


def _rounded(aggregate: Aggregate) -> Cell:
    (arg,) = aggregate.args
    return Cell(arg, Call("7 bits", (become(arg, "double"),), "double"))


def _own(aggregate: Aggregate) -> Cell:
    """A row with a NULL in any argument is passed over."""
    there = [Call("not", (Call("is_null", (arg,), "boolean"),), "boolean") for arg in aggregate.args]
    null = Constant(None, "boolean")
    given = aggregate.args[0]
    if len(there) > 1:
        given = Call("case", (connect("and", tuple(there)), TRUE, null), "boolean")
    return Cell(given, given, None, aggregate.own, aggregate.args)


_REGISTERS: Final = 4096
_EMPTY = f"({_REGISTERS} - COUNT({{c}})) / {_REGISTERS}e0"


def _distinct_estimate(power: str) -> str:
    """Ertl's estimate m²/(2 ln 2)/(m σ(empty/m) + Σ 2**-rank); ``power``: the SQL of 2**(52 - rank)."""
    terms = " + ".join(f"{1 << k}e0 * power({_EMPTY}, {2 << k})" for k in range(18))
    ranks = f"CAST(SUM(CASE WHEN {{c}} IS NOT NULL THEN {power} END) AS DOUBLE) / {1 << 52}e0"
    alpha = "0.7213475204444817e0"
    estimate = f"{alpha} * {_REGISTERS**2} / ({_REGISTERS} * ({_EMPTY} + {terms}) + {ranks})"
    return f"CASE WHEN COUNT({{c}}) = 0 THEN 0 ELSE CAST(round({estimate}) AS BIGINT) END"


_RANKED = Form(
    _distinct_estimate("CAST(1 AS BIGINT) << (52 - {rank})"),
    _distinct_estimate("CAST(shiftleft(1L, CAST(52 - {rank} AS INT)) AS DECIMAL(38, 0))"),
)

# The value of rank p (total - 1), counted from 0, between two values; p is the fraction {0}/{1}.
_LOW = "MIN({c}) FILTER (WHERE {upto} * {1} > {0} * ({total} - 1))"
_HIGH = "MIN({c}) FILTER (WHERE ({upto} - 1) * {1} >= {0} * ({total} - 1))"
_BETWEEN = "CAST(MAX({0} * ({total} - 1) % {1}) FILTER (WHERE {c} IS NOT NULL) AS DOUBLE) / {1}"
_LOW, _HIGH = f"CAST({_LOW} AS DOUBLE)", f"CAST({_HIGH} AS DOUBLE)"
_CONTINUOUS = f"CASE WHEN {_LOW} = {_HIGH} THEN {_LOW} ELSE {_LOW} + ({_HIGH} - {_LOW}) * ({_BETWEEN}) END"
_DISCRETE = "MIN({c}) FILTER (WHERE {upto} * {1} >= {0} * {total})"


def _texts(entry: str, between: str, order: str) -> Form:
    """The entries of a group in a row."""
    return Form(
        f"string_agg({entry}, '{between}' ORDER BY {order})",
        f"listagg({entry}, '{between}') WITHIN GROUP (ORDER BY {order})",
    )


def _around(before: str, inside: Form, after: str) -> Form:
    return Form(f"{before} || {inside.duckdb} || {after}", f"{before} || {inside.spark} || {after}")


def _counts(place: str) -> Form:
    """The first {0} values of a group, each with its count."""
    entry = f"CASE WHEN {place} <= {{0}} AND {{c}} IS NOT NULL THEN {{json}} || ': ' || {{n}} END"
    return _texts(entry, ", ", place)


def _repeated(before: str, order: str) -> Form:
    """The first {0} of a group's values, each as often as it occurred; ``before``: how many precede it."""
    times = f"CAST(LEAST({{n}}, {{0}} - {before}) AS INT)"
    entry = f"CASE WHEN {before} < {{0}} AND {{c}} IS NOT NULL THEN repeat(', ' || {{json}}, {times}) END"
    inside = _texts(entry, "", order)
    return _around("'['", Form(f"substring({inside.duckdb}, 3)", f"substring({inside.spark}, 3)"), "']'")


def _once(place: str) -> Form:
    """The first {0} of a group's different values."""
    entry = f"CASE WHEN {place} <= {{0}} AND {{c}} IS NOT NULL THEN {{json}} END"
    return _around("'['", _texts(entry, ", ", place), "']'")


_TOP = _around("'{{'", _counts("{place}"), "'}}'")
_OTHERS = (
    "CASE WHEN COUNT({c}) > {0} THEN ', \"…\": ' || "
    "CAST(SUM(CASE WHEN {first} > {0} AND {c} IS NOT NULL THEN {n} END) AS TEXT) ELSE '' END"
)
_HISTOGRAM = _around("'{{'", _counts("{first}"), _OTHERS + " || '}}'")
_HISTOGRAM = Form(_HISTOGRAM.duckdb, _HISTOGRAM.spark.replace("AS TEXT", "AS STRING"))

_SUM = Form("SUM({c})", "SUM(CAST({c} AS DECIMAL(38, 0)))")


def _mean(total: str) -> str:
    return f"CAST({total} AS DOUBLE) / NULLIF(COUNT({{c}}), 0)"


CELLED: Final[Mapping[str, Celled]] = MappingProxyType(
    {
        "count distinct": Celled(_value, same("COUNT({c})")),
        "sum distinct": Celled(_value, _SUM),
        "sum distinct of doubles": Celled(_value, same("SUM({c})")),
        "avg distinct": Celled(_value, Form(_mean(_SUM.duckdb), _mean(_SUM.spark))),
        "avg distinct of doubles": Celled(_value, same(_mean("SUM({c})"))),
        "approx_count_distinct": Celled(_register, _RANKED),
        "percentile": Celled(_value, same(_CONTINUOUS), "order"),
        "approx_percentile": Celled(_rounded, same(_DISCRETE), "order"),
        "approx_top_k": Celled(_value, _TOP, "place", quoted=True),
        "histogram": Celled(_value, _HISTOGRAM, "first", quoted=True),
        "array_agg": Celled(_listed, _repeated("({upto} - {n})", "{upto}"), "order"),
        "array_agg desc": Celled(_listed, _repeated("({total} - {upto})", "{upto} DESC"), "order"),
        "array_agg distinct": Celled(_value, _once("{first}"), "first"),
        "array_agg distinct desc": Celled(_value, _once("{last}"), "last"),
        OWN: Celled(_own, same("MAX({c})")),
    }
)
"""By the name of the bound aggregate. ``params`` of the percentiles: p as a fraction; of the others: how many
values they show at most."""
