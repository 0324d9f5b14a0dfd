"""A standalone cluster of Spark's, of its own jars: a master and workers as processes on loopback."""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyspark

from spark_backend import java

START_SECS = 120
CLASS = "org.apache.spark.deploy"


@contextmanager
def standalone(folder: Path, workers: int = 2) -> Iterator[str]:
    """The master's URL, once its workers, of one core each, are registered."""
    with ExitStack() as stack:
        log = folder / "master.log"
        master = [f"{CLASS}.master.Master", "--host", "127.0.0.1", "--port", "0", "--webui-port", "0"]
        stack.enter_context(_process(master, log, folder))
        url = _waited(log, r"Starting Spark master at (spark://\S+)", 1)[0]
        for number in range(workers):
            worker = [f"{CLASS}.worker.Worker", "--host", "127.0.0.1", "--webui-port", "0"]
            worker += ["--cores", "1", "--memory", "1g", "--work-dir", str(folder / f"work-{number}"), url]
            stack.enter_context(_process(worker, folder / f"worker-{number}.log", folder))
        _waited(log, "(Registering worker)", workers)
        yield url


@contextmanager
def _process(words: list[str], log: Path, folder: Path) -> Iterator[None]:
    spark = Path(pyspark.__file__).parent
    env = {
        **os.environ,
        "JAVA_HOME": str(java.ensure()),
        "SPARK_HOME": str(spark),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_LOCAL_DIRS": str(folder / "local"),
        "SPARK_DAEMON_MEMORY": "256m",
    }
    with log.open("wb") as out:
        command = [str(spark / "bin" / "spark-class"), *words]
        process = subprocess.Popen(command, env=env, stdout=out, stderr=out, cwd=folder)
    try:
        yield
    finally:
        process.terminate()
        process.wait(30)


def _waited(log: Path, pattern: str, times: int) -> list[str]:
    """What a log says, once it has said it so often."""
    deadline = time.monotonic() + START_SECS
    while len(found := re.findall(pattern, log.read_text(errors="replace"))) < times:
        assert time.monotonic() < deadline, log.read_text(errors="replace")
        time.sleep(0.1)
    return found
