"""The same lines natively and by SQL: what differs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Final

import msgspec
import numpy as np
import pyarrow as pa

from agents.formats import get_format
from agents.tasks.engine import SqlExtractor
from agents.tasks.extracted import Extracted
from agents.tasks.extracting import Extractor
from elf import native
from elf.errors import UserError
from elf.job.ports import Wanted
from elf.schema import Column
from lab.bench.native.drawing import AccessLines, JsonLines, spoilt

SPOILT: Final = 0.25
"""So many lines are changed by chance, some of them again and again."""


@dataclass
class Compared:
    """``decided``: lines that the native reader did not leave to SQL; ``differences``: what is not the same,
    a sentence each."""

    lines: int
    decided: int
    differences: list[str]


def compare(format: str, seed: int, count: int) -> Compared:
    """So many lines drawn by a seed, with columns drawn by it. Raises ``UserError`` without a native part."""
    library = native.library()
    if library is None:
        raise UserError(f"elf's native part is not there: {native.why_not()}")
    rng = Random(seed)
    drawer = JsonLines(rng) if format == "json" else AccessLines(rng, combined=format == "combined")
    columns, event_time = drawer.columns()
    lines = [_drawn(rng, drawer) for _ in range(count)]
    array = pa.array(lines, pa.string())
    reader = get_format(format).reader(columns, event_time, library)
    if reader is None:
        return Compared(count, 0, [])
    decided = reader.read(array).decided
    differences = _differences(format, columns, event_time, array, reader)
    if format == "json":
        loose = [line for line, one in zip(lines, decided, strict=True) if one and not _is_strict(line)]
        differences += [f"decided, and no JSON object to msgspec: {line!r}" for line in loose]
    where = f"seed {seed}, {format}, {columns}, event time {event_time}: "
    return Compared(count, int(decided.sum()), [where + text for text in differences])


def _drawn(rng: Random, drawer: JsonLines | AccessLines) -> str:
    line = drawer.line()
    while rng.random() < SPOILT:
        line = spoilt(rng, line)
    return line


def _is_strict(line: str) -> bool:
    try:
        return isinstance(msgspec.json.decode(line), dict)
    except msgspec.DecodeError as error:
        return "out of range" in str(error)  # 1e400 is JSON, and no double


def _differences(
    format: str,
    columns: tuple[Column, ...],
    event_time: str | None,
    lines: pa.StringArray,
    reader: native.Reader,
) -> list[str]:
    """Of the lines as a whole, and if there are any, of the first line alone that shows them."""
    wanted = Wanted(columns)
    mixed = Extractor(get_format(format), event_time, wanted)
    sql = SqlExtractor(get_format(format), event_time, wanted)
    try:
        found = unlike(mixed.complete(lines, reader.read(lines)), sql.extract(lines))
        if not found:
            return []
        for row in range(len(lines)):
            one = lines[row : row + 1]
            alone = unlike(mixed.complete(one, reader.read(one)), sql.extract(one))
            if alone:
                return [f"{alone} of line {one[0].as_py()!r}"]
        return [f"{found} of all lines, of none alone"]
    finally:
        mixed.close()
        sql.close()


def unlike(ours: Extracted, theirs: Extracted) -> str:
    """What differs; empty where nothing does."""
    for what in ("uncast", "beyond"):
        if getattr(ours, what) != getattr(theirs, what):
            return f"{what} is {getattr(ours, what)}, by SQL {getattr(theirs, what)}"
    for what in ("accepted", "rejected"):
        if not np.array_equal(getattr(ours, what), getattr(theirs, what)):
            return f"{what} are {getattr(ours, what)}, by SQL {getattr(theirs, what)}"
    if ours.table.schema != theirs.table.schema:
        return f"the schema is {ours.table.schema}, by SQL {theirs.table.schema}"
    for name in ours.table.column_names:
        left, right = _bits(ours.table[name]), _bits(theirs.table[name])
        if not left.equals(right):
            return f"{name} is {_first_unlike(ours.table[name], theirs.table[name])}"
    return ""


def _bits(values: pa.ChunkedArray) -> pa.Array:
    """Doubles by their bits: -0.0 is not 0.0."""
    whole = values.combine_chunks()
    if pa.types.is_floating(whole.type):
        return pa.array(whole.to_numpy(zero_copy_only=False).view(np.int64), mask=_nulls(whole))
    return whole


def _nulls(values: pa.Array) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    return np.array(values.is_null().to_numpy(zero_copy_only=False), dtype=np.bool_)


def _first_unlike(ours: pa.ChunkedArray, theirs: pa.ChunkedArray) -> str:
    pairs: Sequence[tuple[object, object]] = list(zip(ours.to_pylist(), theirs.to_pylist(), strict=True))
    return next((f"{left!r}, by SQL {right!r}" for left, right in pairs if left != right), "of other bits")
