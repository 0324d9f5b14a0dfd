"""The one way to a Spark session.

Rules: UTC everywhere; ANSI arithmetic, so that what a rendering does not catch with TRY fails loudly and is
never a wrong number; names as written (JSON paths differ by case); partition values are text. A local Spark
listens on loopback only, leaves no folder behind, and logs errors alone; on a terminal its stages show a
progress bar.
"""

from __future__ import annotations

import logging
import os
import re
import socket
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from py4j.protocol import Py4JError, Py4JJavaError, Py4JNetworkError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from elf.errors import UserError
from spark_backend import java

LOCAL: Final = "local[*]"
SHUFFLE_PARTITIONS: Final = 8
"""Groups are few once Spark has aggregated each file: 200, the default, would be 192 empty tasks a window."""

REACH_SECS: Final = 5.0
"""So long a master is waited for."""
WORKERS_SECS: Final = 60.0
"""So long a standalone master may take to give the first executor."""
STANDALONE: Final = "spark://"

_LOGGING: Final = Path(__file__).with_name("log4j2.properties")
_SETTINGS: Final = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "true",
    "spark.sql.caseSensitive": "true",
    "spark.sql.variable.substitute": "false",
    "spark.sql.variant.allowDuplicateKeys": "true",
    "spark.sql.sources.partitionColumnTypeInference.enabled": "false",
    "spark.sql.shuffle.partitions": str(SHUFFLE_PARTITIONS),
    # Files are named one by one: each would be looked at by a task of its own.
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": str(SHUFFLE_PARTITIONS),
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
BRIEF_BYTES_MAX: Final = 128 << 20
"""Of Parquet: so little is read sooner than compiled. On two cores four million lines of an access log (in
116 MB) took 19 s of CPU in place of 25, one million 12 in place of 18 to 20."""


class SparkFailed(UserError):
    """Spark could not be started, or could not run the query; the text has what it said.

    Example:
        >>> issubclass(SparkFailed, UserError)
        True
    """


@contextmanager
def failing() -> Iterator[None]:
    """What Spark says against a query in the block comes as one line. Raises ``SparkFailed``."""
    try:
        yield
    except (PySparkException, Py4JError) as error:
        said = _said(error)
        if _FULL in said:
            said += (
                f": it sorts in {tempfile.gettempdir()}, or where its workers do; make room, or set TMPDIR"
            )
        raise SparkFailed(f"Spark could not run the query: {said}") from error


_FULL: Final = "No space left on device"


def _said(error: Exception) -> str:
    """The first line of what Spark says; of an exception in Java, of its cause."""
    text = str(error)
    if isinstance(error, Py4JJavaError):
        cause = error.java_exception
        while (deeper := cause.getCause()) is not None:
            cause = deeper
        text = cause.getMessage() or cause.toString()
    return next((line.strip() for line in text.splitlines() if line.strip()), type(error).__name__)


@contextmanager
def opened(
    master: str = LOCAL,
    *,
    progress: bool | None = None,
    brief: bool = False,
    memory: str = "1g",
    conf: Mapping[str, str] | None = None,
) -> Iterator[SparkSession]:
    """A Spark session, stopped after the block.

    Args:
        master (str): any Spark master URL: ``local[*]``, ``spark://host:7077``, ``yarn``, ``k8s://…``.
        progress (bool | None): whether the stages' progress bar is shown; None: when stderr is a terminal.
        brief (bool): whether its queries are small (``BRIEF_BYTES_MAX``), or many.
        memory (str): of a local Spark's heap, at most, as Java says it: ``1g``.
        conf (Mapping[str, str] | None): more settings of Spark's, and of Hadoop's after ``spark.hadoop.``.

    Yields:
        SparkSession: in UTC, with ANSI arithmetic.

    Raises:
        JavaMissing: without Java 17 or newer.
        SparkFailed: when it does not start, or its master does not answer or has no worker, which are waited
            for a bounded time.

    Example:
        >>> with opened("local[1]", progress=False, brief=True) as spark:
        ...     spark.sql("SELECT 1 AS one").collect()
        [Row(one=1)]
    """
    _reach(master)
    java.ensure()
    # PySpark writes failed queries to stderr as JSON, besides raising them.
    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    shown = sys.stderr.isatty() if progress is None else progress
    with tempfile.TemporaryDirectory(prefix="elf-spark-") as folder:
        builder = SparkSession.builder.master(master).appName("elf")
        if master.startswith("local"):
            os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
            os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
            builder = builder.config("spark.driver.host", "127.0.0.1").config("spark.local.dir", folder)
        elif master.startswith(STANDALONE) and all(map(_is_loopback, _places(master))):
            builder = builder.config("spark.driver.host", "127.0.0.1")
        settings = _SETTINGS | {
            "spark.driver.memory": memory,
            "spark.ui.showConsoleProgress": str(shown).lower(),
            "spark.sql.warehouse.dir": (Path(folder) / "warehouse").as_uri(),
        }
        if brief:
            settings["spark.driver.extraJavaOptions"] += f" {_BRIEF}"
        for key, value in (settings | dict(conf or {})).items():
            builder = builder.config(key, value)
        try:
            session = builder.getOrCreate()
        except (PySparkException, Py4JError, OSError, RuntimeError) as error:
            raise SparkFailed(f"Spark did not start on {master}: {_said(error)}") from error
        try:
            if master.startswith(STANDALONE):
                _await_executor(session, master)
            yield session
        finally:
            with suppress(ConnectionError, Py4JNetworkError):  # Java has had the same signal, and is gone
                session.stop()


def _places(master: str) -> list[tuple[str, int]]:
    """Host and port of each master of a URL of a standalone cluster, which may name several, or of the API
    of Kubernetes; of others none. Raises ``SparkFailed``."""
    found = re.fullmatch(r"(?:spark|k8s)://(?:https?://)?(.+)", master)
    if found is None:
        return []
    places = []
    for each in found[1].split(","):
        host, _, port = each.rstrip("/").rpartition(":")
        if not host or not port.isdigit():
            raise SparkFailed(f"{master} is no master: say the port of each, as in spark://host:7077")
        places.append((host.strip("[]"), int(port)))
    return places


def _is_loopback(place: tuple[str, int]) -> bool:
    return place[0] in ("localhost", "::1") or place[0].startswith("127.")


def _reach(master: str) -> None:
    """Raises ``SparkFailed`` for a master that nobody answers at: Spark itself would try for a minute or
    more, and say it in a hundred lines."""
    if master.startswith("sc://"):
        raise SparkFailed(
            f"{master}: elf plans its queries in a driver of its own and does not speak Spark Connect; "
            "give the cluster's master (spark://host:7077, yarn, k8s://…)"
        )
    if master == "yarn" and not (os.environ.get("HADOOP_CONF_DIR") or os.environ.get("YARN_CONF_DIR")):
        raise SparkFailed("yarn: set HADOOP_CONF_DIR to the folder with the cluster's yarn-site.xml")
    why = ""
    for place in (places := _places(master)):
        try:
            with socket.create_connection(place, REACH_SECS):
                return
        except OSError as error:
            why = (error.strerror or str(error)).lower()
    if places:
        raise SparkFailed(f"the Spark master {master} does not answer ({why}): is it running there?")


def _await_executor(session: SparkSession, master: str) -> None:
    """Raises ``SparkFailed`` where no worker gives one in time: Spark itself would wait for ever."""
    deadline = time.monotonic() + WORKERS_SECS
    tracker = session.sparkContext._jsc.sc().statusTracker()
    while len(tracker.getExecutorInfos()) < 2:  # the driver is one
        if session.sparkContext._jsc.sc().isStopped():
            raise SparkFailed(f"the Spark master {master} has refused elf, or is of another Spark")
        if time.monotonic() > deadline:
            raise SparkFailed(
                f"no worker of the Spark master {master} has given an executor in {WORKERS_SECS:.0f} s: "
                "are there workers, with a core and 1 GiB of memory that are free?"
            )
        time.sleep(0.1)
