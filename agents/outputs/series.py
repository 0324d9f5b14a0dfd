"""A window as numbers with labels, for those who keep series: which columns are which."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.types as pat

from elf.client.values import cell
from elf.client.windows import WINDOW_COLUMNS
from elf.errors import UserError
from elf.job.output import OutputSpec

SERIES_DEFAULT: Final = "100"


@dataclass(frozen=True)
class Row:
    """The labels of a row, and its numbers by column; no NULL is one."""

    labels: tuple[str, ...]
    values: Mapping[str, float]


class Shape:
    """How one output makes series. ``labels`` in its options names the columns that tell rows apart; without
    it they are all that hold no numbers. ``series``: rows of a window, at most."""

    def __init__(self, output: OutputSpec) -> None:
        named = output.option("labels")
        self._named = tuple(filter(None, (name.strip() for name in named.split(",")))) if named else None
        self.most = int(output.option("series", SERIES_DEFAULT))

    def labels(self, table: pa.Table) -> tuple[str, ...]:
        """Raises ``UserError`` for a name that is no column's. A window without rows may have no columns."""
        if not table.num_rows:
            return ()
        names = [name for name in table.column_names if name not in WINDOW_COLUMNS]
        if self._named is None:
            return tuple(name for name in names if not _is_number(table.schema.field(name).type))
        if unknown := [name for name in self._named if name not in names]:
            raise UserError(f"labels: there is no column {unknown[0]}; columns: {', '.join(names)}")
        return self._named

    def rows(self, table: pa.Table) -> Iterator[Row]:
        """The first rows, as many as there may be. Raises ``UserError`` where two have the same labels."""
        labels, seen = self.labels(table), set[tuple[str, ...]]()
        numbers = [name for name in table.column_names if name not in labels and name not in WINDOW_COLUMNS]
        numbers = [name for name in numbers if _is_number(table.schema.field(name).type)]
        for row in table.slice(0, min(self.most, table.num_rows)).to_pylist():
            said = tuple(cell(row[name]) for name in labels)
            if said in seen:
                raise UserError(
                    f"two rows have the same labels ({', '.join(labels)}: {', '.join(said)}); "
                    "WITH (labels = 'column, …') names the columns that tell rows apart"
                )
            seen.add(said)
            yield Row(said, {name: float(row[name]) for name in numbers if row[name] is not None})


def _is_number(kind: pa.DataType) -> bool:
    return bool(pat.is_integer(kind) or pat.is_floating(kind) or pat.is_decimal(kind))
