"""The one way to a Spark session.

Rules: UTC everywhere; ANSI arithmetic, so that what a rendering does not catch with TRY fails loudly and is
never a wrong number; names as written (JSON paths differ by case); partition values are text. A local Spark
listens on loopback only, leaves no folder behind, and logs errors alone; on a terminal its stages show a
progress bar.
"""

from __future__ import annotations

import logging
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from elf.errors import UserError
from spark_backend import java

LOCAL: Final = "local[*]"
SHUFFLE_PARTITIONS: Final = 8
"""Groups are few once Spark has aggregated each file: 200, the default, would be 192 empty tasks a window."""

_LOGGING: Final = Path(__file__).with_name("log4j2.properties")
_SETTINGS: Final = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "true",
    "spark.sql.caseSensitive": "true",
    "spark.sql.variable.substitute": "false",
    "spark.sql.variant.allowDuplicateKeys": "true",
    "spark.sql.sources.partitionColumnTypeInference.enabled": "false",
    "spark.sql.shuffle.partitions": str(SHUFFLE_PARTITIONS),
    "spark.hadoop.parquet.page.verify-checksum.enabled": "true",  # the agents write them
    "spark.ui.enabled": "false",
    # What a UI would show is remembered without one too: the plans of the last thousand queries.
    "spark.ui.retainedJobs": "1",
    "spark.ui.retainedStages": "1",
    "spark.ui.retainedTasks": "1",
    "spark.sql.ui.retainedExecutions": "1",
    "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={_LOGGING.as_uri()} -Duser.timezone=UTC",
}
_BRIEF: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Options of a Java that plans much and computes little: its second compiler would take half of the CPU."""


class SparkFailed(UserError):
    """Spark could not be started, or could not run the query; the text has what it said.

    Example:
        >>> issubclass(SparkFailed, UserError)
        True
    """


@contextmanager
def opened(
    master: str = LOCAL, *, progress: bool | None = None, brief: bool = False, memory: str = "1g"
) -> Iterator[SparkSession]:
    """A Spark session, stopped after the block.

    Args:
        master (str): any Spark master URL.
        progress (bool | None): whether the stages' progress bar is shown; None: when stderr is a terminal.
        brief (bool): whether it is for many small queries.
        memory (str): of a local Spark's heap, at most, as Java says it: ``1g``.

    Yields:
        SparkSession: in UTC, with ANSI arithmetic.

    Raises:
        JavaMissing: without Java 17 or newer.
        SparkFailed: when it does not start.

    Example:
        >>> with opened("local[1]", progress=False, brief=True) as spark:
        ...     spark.sql("SELECT 1 AS one").collect()
        [Row(one=1)]
    """
    java.ensure()
    # PySpark writes failed queries to stderr as JSON, besides raising them.
    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)
    shown = sys.stderr.isatty() if progress is None else progress
    with tempfile.TemporaryDirectory(prefix="elf-spark-") as folder:
        builder = SparkSession.builder.master(master).appName("elf")
        if master.startswith("local"):
            os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
            builder = builder.config("spark.driver.host", "127.0.0.1").config("spark.local.dir", folder)
        settings = _SETTINGS | {
            "spark.driver.memory": memory,
            "spark.ui.showConsoleProgress": str(shown).lower(),
            "spark.sql.warehouse.dir": (Path(folder) / "warehouse").as_uri(),
        }
        if brief:
            settings["spark.driver.extraJavaOptions"] += f" {_BRIEF}"
        for key, value in settings.items():
            builder = builder.config(key, value)
        try:
            session = builder.getOrCreate()
        except (PySparkException, OSError, RuntimeError) as error:
            raise SparkFailed(f"Spark did not start on {master}: {error}") from error
        try:
            yield session
        finally:
            session.stop()
