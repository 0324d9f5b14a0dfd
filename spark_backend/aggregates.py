"""Aggregates of one's own in Spark (``elf.ql.own``): a grouped Arrow function for the state of a group of
rows, and one for its value.

Their code comes from whoever made the aggregate, so it runs here as it does on agents: in a process of its
own beside each of Spark's, within walls where the machine has them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql import SparkSession

from elf.errors import UserError
from elf.ql.own import OwnAggregate, Wanted
from elf.ql.render import TYPES

if TYPE_CHECKING:
    from elf.functions.aggregate import Aggregate

CALL_SECS: Final = 60.0
"""Of one call: of all rows of a group."""


def register(spark: SparkSession, owns: Sequence[OwnAggregate]) -> None:
    """Make aggregates known to a session.

    Args:
        spark (SparkSession): where they are called.
        owns (Sequence[OwnAggregate]): those that a query calls.

    Raises:
        UserError: when this PySpark has no Arrow functions.

    Example:
        >>> register(spark, [])
    """
    if not owns:
        return
    try:
        from pyspark.sql.pandas.functions import ArrowUDFType, arrow_udf
    except ImportError:
        raise UserError("aggregates of one's own need PySpark 4.1 or newer here") from None
    for own in owns:
        kinds: dict[Wanted, str] = {"state": "BINARY", "value": TYPES["spark"][own.signature.returns]}
        for wanted, kind in kinds.items():
            made: Any = arrow_udf(_calling(own, wanted), kind, ArrowUDFType.GROUPED_AGG)  # type: ignore[call-overload]
            spark.udf.register(own.called(wanted), made)


def _calling(own: OwnAggregate, wanted: Wanted) -> Callable[..., Any]:
    """For a process of Spark's: what runs the class is started there."""

    def value(*columns: pa.Array) -> Any:
        from spark_backend.aggregates import answer

        return answer(own, wanted, columns)

    return value


def answer(own: OwnAggregate, wanted: Wanted, columns: Sequence[pa.Array]) -> Any:
    """Of one group.

    Args:
        own (OwnAggregate): the aggregate.
        wanted (str): ``state`` or ``value``.
        columns (Sequence[pyarrow.Array]): its arguments, without NULLs.

    Returns:
        Any: the state as bytes, or the value; None of no rows.

    Raises:
        elf.functions.aggregate.AggregateFailed: when the class fails.

    Example:
        >>> answer(mean, "value", [pa.array([1.0, 3.0])])
        2.0
    """
    import numpy as np

    from elf.batch import ARROW_TYPES
    from elf.functions.aggregate import BYTES_MAX, ROWS_MAX

    if not len(columns[0]):
        return None
    kinds = [ARROW_TYPES[kind] for kind in own.signature.arguments]
    given = [column.cast(kind) for column, kind in zip(columns, kinds, strict=True)]
    aggregate = _running(own)
    rows, size = len(given[0]), sum(column.nbytes for column in given)
    most = max(1, min(ROWS_MAX, rows * BYTES_MAX // max(1, size)))
    parts = ([column.slice(at, most) for column in given] for at in range(0, rows, most))
    states = pa.concat_arrays([aggregate.create(np.zeros(len(part[0]), np.int64), part) for part in parts])
    ids, times = np.zeros(len(states), np.int64), pa.array(np.ones(len(states), np.int64))
    if wanted == "value":
        return aggregate.value(ids, states, times)[0].as_py()
    return (aggregate.merge(ids, states, times) if len(states) > 1 else states)[0].as_py()


@cache
def _running(own: OwnAggregate) -> Aggregate:
    """As long as this process lives, which takes the other with it."""
    import sys

    from elf.functions import confinement
    from elf.functions.aggregate import Aggregate
    from elf.functions.function import UserFunction
    from elf.functions.sandbox import Limits, Sandboxes

    sandboxes = Sandboxes(confined=not confinement.lacking())
    limits = Limits(call_secs=CALL_SECS)
    return Aggregate(
        own, UserFunction(sandboxes, own.function, limits, lambda line: print(line, file=sys.stderr))
    )
