"""Which rows any flow wants, by Arrow: of conditions that only compare columns with constants, as
``elf.ql.render`` writes them. Others are left to each flow's map, which has its WHERE anyhow.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from elf.job.ports import Wanted
from elf.schema import ColumnType

Mask = npt.NDArray[np.bool_]

_COMPARISON: Final = r"""r\."((?:[^"]|"")+)" (=|<>|<|<=|>|>=) ('(?:[^']|'')*'|-?[0-9]{1,18})"""
_ALONE: Final = re.compile(_COMPARISON)
_ALL: Final = re.compile(rf"{_COMPARISON}|\({_COMPARISON}\)(?: AND \({_COMPARISON}\))+")
_COMPUTE: Final[dict[str, Callable[[pa.ChunkedArray, pa.Scalar], pa.ChunkedArray]]] = {
    "=": pc.equal,
    "<>": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}
_OF_TEXTS: Final = ("=", "<>")


@dataclass(frozen=True)
class Comparison:
    """Of a column with a constant."""

    column: str
    sign: str
    constant: str | int

    def holds(self, rows: pa.Table) -> pa.ChunkedArray:
        """Of which rows it is true; a NULL is compared with nothing."""
        column = rows[self.column]
        return pc.fill_null(_COMPUTE[self.sign](column, pa.scalar(self.constant, column.type)), False)


Conditions: TypeAlias = tuple[tuple[Comparison, ...], ...]
"""At least one of which holds, all of whose comparisons hold."""


def conditions(wanted: Wanted) -> Conditions:
    """Those of ``wanted``, if they are all so simple; else none, and all rows are wanted."""
    types = {column.name: column.type for column in wanted.columns}
    found = [_comparisons(sql, types) for sql in wanted.where_sqls]
    return tuple(found) if all(found) else ()


def _comparisons(sql: str, types: dict[str, ColumnType]) -> tuple[Comparison, ...]:
    """Empty where there is anything else."""
    if not _ALL.fullmatch(sql):
        return ()
    found = []
    for name, sign, constant in _ALONE.findall(sql):
        column, is_text = name.replace('""', '"'), constant.startswith("'")
        value = constant[1:-1].replace("''", "'") if is_text else int(constant)
        if types.get(column) != ("text" if is_text else "bigint") or (is_text and sign not in _OF_TEXTS):
            return ()
        found.append(Comparison(column, sign, value))
    return tuple(found)


def rows_wanted(rows: pa.Table, any_of: Sequence[Sequence[Comparison]]) -> Mask | None:
    """For which rows one of the conditions holds; None: all are wanted."""
    if not any_of:
        return None
    each = (reduce(pc.and_, [one.holds(rows) for one in all_of]) for all_of in any_of)
    return np.asarray(reduce(pc.or_, each).to_numpy(), dtype=np.bool_)
