"""What Spark would do for a query over an archive: which hours, files and columns it reads, what it leaves
out by statistics, and its plan.
"""

from __future__ import annotations

import re
from collections.abc import Sequence, Set
from typing import Final

from pyspark.sql import DataFrame, SparkSession

from agents.archived import ArchivedStream, extent, files_of
from spark_backend.session import failing

_Key = tuple[str, str, str]

_VIEW: Final = "answer"
_READ: Final = re.compile(r"ReadSchema: struct<(.*)>")
_PUSHED: Final = re.compile(r"PushedFilters: \[(.*)\]")


def explained(spark: SparkSession, found: DataFrame, streams: Sequence[ArchivedStream]) -> str:
    """Tell it, without reading any row.

    Args:
        spark (SparkSession): the session that ``found`` is of.
        found (pyspark.sql.DataFrame): of ``spark_backend.offline.answer``.
        streams (Sequence[ArchivedStream]): the files that are read, of ``spark_backend.queries.question``.

    Returns:
        str: a line a fact, an empty line, and Spark's own plan.

    Raises:
        SparkFailed: when Spark does not take the query.

    Example:
        >>> from spark_backend.offline import answer
        >>> from spark_backend.queries import question
        >>> asked = question("SELECT COUNT(*) AS n FROM clicks", [archive])
        >>> text = explained(spark, answer(spark, asked.plan, asked.archived), asked.streams)
        >>> text.startswith("stream   clicks: 1 of 1 hours, 1 of 1 files")
        True
    """
    with failing():
        found.createOrReplaceTempView(_VIEW)
        (row,) = spark.sql(f"EXPLAIN FORMATTED SELECT * FROM {_VIEW}").collect()
    plan, read = str(row[0]), {_key(uri) for uri in found.inputFiles()}
    scans = (", ".join(_columns(scan)) for scan in dict.fromkeys(_READ.findall(plan)))
    return "\n".join(
        [
            *(f"stream   {_files(one, read)}" for one in streams),
            *(f"columns  {scan}" for scan in scans),
            *(f"filters  {pushed or 'none'}" for pushed in dict.fromkeys(_PUSHED.findall(plan))),
            "",
            plan.strip(),
        ]
    )


def _files(one: ArchivedStream, read: Set[_Key]) -> str:
    targets = {file.target.uri: file.target for file in one.files}
    every = files_of([*targets.values()], one.stream, None)
    files = [file for file in every if _key(file.path) in read]
    hours, all_hours = (len({file.hour for file in some}) for some in (files, every))
    megabytes = sum(file.about.bytes for file in files) / 1e6
    return (
        f"{one.stream}: {hours:,} of {all_hours:,} hours, {len(files):,} of {len(every):,} files, "
        f"{megabytes:,.1f} MB; {extent(files)}"
    )


def _key(path: str) -> _Key:
    """What tells a file from others, however its path is encoded: date, hour and name."""
    *_, date, hour, _, name = path.split("/")
    return date, hour, name


def _columns(struct: str) -> list[str]:
    """The names of the fields in a struct's text, whatever stands in their own brackets."""
    found, depth, begin = [], 0, 0
    for place, sign in enumerate(struct):
        depth += (sign in "<(") - (sign in ">)")
        if sign == "," and not depth:
            found.append(struct[begin:place])
            begin = place + 1
    return [field.partition(":")[0] for field in (*found, struct[begin:])]
