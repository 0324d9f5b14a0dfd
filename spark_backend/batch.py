"""Many small queries over one set of rows, in few Spark jobs: for comparing, where a job's own cost would be
all there is.

Every query becomes rows of one union: its number, a row's place in its answer, and the cells as text; so
there is one plan, one job and one collect for all of them. Doubles as text are read back to the same bits.
"""

from __future__ import annotations

import datetime as dt
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from agents.formats import Format
from elf.schema import Column
from spark_backend import session
from spark_backend.offline import LINES, zoned

Cell = str | int | float | bool | dt.datetime | None


@dataclass(frozen=True)
class Table:
    """Names of the columns and the rows in order."""

    names: tuple[str, ...]
    rows: list[tuple[Cell, ...]]


_QUICK: Final = {
    # Compiling so small a query would take longer than running it.
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
}


class Batch:
    """Answers over one set of rows after the other. ``folder``: for files of its own."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        for key, value in _QUICK.items():
            spark.conf.set(key, value)
        self._spark = spark
        self._folder = folder
        self._tables: set[str] = set()
        self._loads = 0
        self._rows: dict[str, DataFrame] = {}

    def load(
        self, format: Format, lines: pa.Table, columns: Sequence[Column], event_time: str, view: str
    ) -> None:
        """Parse lines as an archive's are (column ``line``, and what else shall be kept) and keep the typed
        rows in memory as ``view``. They are one partition, so that no query over them needs a shuffle.
        """
        if view in self._rows:
            self._rows.pop(view).unpersist()
        self._loads += 1
        path = str(self._folder / f"lines-{self._loads}.parquet")
        pq.write_table(lines, path)
        self._spark.read.parquet(path).coalesce(1).createOrReplaceTempView(LINES)
        kept = [name for name in lines.column_names if name != "line"]
        selection = format.spark_select(columns, event_time)
        self._rows[view] = self._spark.sql(selection.sql(LINES, keep=kept, checked=False)).cache()
        self._rows[view].createOrReplaceTempView(view)

    def unite(self, view: str, views: Sequence[str]) -> None:
        """The rows of several views as one; a column that one lacks is NULL there."""
        first, *others = (self._rows[one] for one in views)
        for other in others:
            first = first.unionByName(other, allowMissingColumns=True)
        first.coalesce(1).createOrReplaceTempView(view)

    def join(self, relation: str, table: pa.Table) -> None:
        """A table to join, under this name, from now on."""
        if relation not in self._tables:
            self._tables.add(relation)
            self._spark.createDataFrame(zoned(table)).createOrReplaceTempView(relation)

    def answers(self, queries: Sequence[tuple[str, Mapping[str, str]]]) -> list[Table | str]:
        """Each query's answer, or what Spark says against it. With a query come the views that it reads, and
        their SQL.
        """
        frames: list[DataFrame | str] = []
        for sql, views in queries:
            try:
                for view, rows in views.items():
                    self._spark.sql(rows).createOrReplaceTempView(view)
                frames.append(self._spark.sql(sql))
            except (PySparkException, Py4JError) as error:
                frames.append(_complaint(error))
        good = [(number, frame) for number, frame in enumerate(frames) if isinstance(frame, DataFrame)]
        found = _collect(good)
        return [frame if isinstance(frame, str) else found[number] for number, frame in enumerate(frames)]


@contextmanager
def opened(master: str = "local[2]") -> Iterator[Batch]:
    """In a Spark of its own."""
    with (
        session.opened(master, progress=False, brief=True, memory="3g") as spark,
        tempfile.TemporaryDirectory(prefix="elf-batch-") as folder,
    ):
        yield Batch(spark, Path(folder))


def _complaint(error: Exception) -> str:
    return f"Spark: {str(error).splitlines()[0]}"


def _collect(frames: Sequence[tuple[int, DataFrame]]) -> dict[int, Table | str]:
    """All in one job; where that fails, each half by itself, so that one bad query spoils only its own."""
    if not frames:
        return {}
    try:
        rows = _union([_as_texts(number, frame) for number, frame in frames]).collect()
    except (PySparkException, Py4JError) as error:
        if len(frames) == 1:
            return {frames[0][0]: _complaint(error)}
        middle = len(frames) // 2
        return _collect(frames[:middle]) | _collect(frames[middle:])
    cells: dict[int, list[tuple[int, Sequence[str | None]]]] = {number: [] for number, _ in frames}
    for number, place, texts in rows:
        cells[number].append((place, texts))
    tables: dict[int, Table | str] = {}
    for number, frame in frames:
        readers = [_reader(field.dataType.typeName()) for field in frame.schema.fields]
        ordered = sorted(cells[number], key=lambda item: item[0])
        tables[number] = Table(
            tuple(frame.columns),
            [
                tuple(None if t is None else read(t) for read, t in zip(readers, row, strict=True))
                for _, row in ordered
            ],
        )
    return tables


def _union(frames: Sequence[DataFrame]) -> DataFrame:
    """All rows. Spark checks each union as a whole: halves of halves take half the time of one by one."""
    if len(frames) == 1:
        return frames[0]
    middle = len(frames) // 2
    return _union(frames[:middle]).union(_union(frames[middle:]))


def _as_texts(number: int, frame: DataFrame) -> DataFrame:
    plain = frame.toDF(*(f"c{index}" for index in range(len(frame.columns))))
    texts = [F.col(f"c{index}").cast("string") for index in range(len(frame.columns))]
    # One partition: the rows are in order, and so are these numbers.
    place = F.monotonically_increasing_id()
    return plain.coalesce(1).select(
        F.lit(number).alias("number"), place.alias("place"), F.array(*texts).alias("cells")
    )


def _reader(kind: str) -> Callable[[str], Cell]:
    match kind:
        case "boolean":
            return lambda text: text == "true"
        case "double" | "float":
            return lambda text: float(text.replace("Infinity", "inf"))
        case "timestamp":
            return _moment
        case "string":
            return lambda text: text
        case _:
            return lambda text: int(text)


def _moment(text: str) -> dt.datetime:
    return dt.datetime.fromisoformat(text)
