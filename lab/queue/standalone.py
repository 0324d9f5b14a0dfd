"""A standalone cluster of Spark's, of its own jars: a master and workers as processes on loopback."""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import psutil

from elf.errors import UserError
from spark_backend import java

START_SECS: Final = 300
_CLASS: Final = "org.apache.spark.deploy"
_EXECUTOR: Final = "CoarseGrainedExecutorBackend"
_DAEMONS: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Masters and workers live long and do little."""


@dataclass(frozen=True)
class Standalone:
    """A cluster that runs.

    Attributes:
        url (str): of its master.
        workers (tuple[int, ...]): the process of each worker.
    """

    url: str
    workers: tuple[int, ...]

    def executors(self) -> list[psutil.Process]:
        """The processes that run tasks now."""
        found = []
        for worker in self.workers:
            for child in psutil.Process(worker).children(recursive=True):
                try:
                    if any(_EXECUTOR in word for word in child.cmdline()):
                        found.append(child)
                except psutil.Error:
                    continue  # it has ended
        return found


@contextmanager
def standalone(folder: Path, workers: int = 2, *, cores: int = 1) -> Iterator[Standalone]:
    """A cluster, once its workers are registered.

    Args:
        folder (Path): for its logs and what it spills.
        workers (int): how many.
        cores (int): of each.

    Raises:
        UserError: where it does not start in five minutes.
    """
    with ExitStack() as stack:
        log = folder / "master.log"
        master = [f"{_CLASS}.master.Master", "--host", "127.0.0.1", "--port", "0", "--webui-port", "0"]
        stack.enter_context(_process(master, log, folder))
        url = _waited(log, r"Starting Spark master at (spark://\S+)", 1)[0]
        pids = []
        for number in range(workers):
            worker = [f"{_CLASS}.worker.Worker", "--host", "127.0.0.1", "--webui-port", "0"]
            worker += ["--cores", str(cores), "--memory", "1g", "--work-dir", str(folder / f"work-{number}")]
            pids.append(
                stack.enter_context(_process([*worker, url], folder / f"worker-{number}.log", folder))
            )
        _waited(log, "(Registering worker)", workers)
        yield Standalone(url, tuple(pids))


@contextmanager
def _process(words: list[str], log: Path, folder: Path) -> Iterator[int]:
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise UserError("this needs Spark: install elf-stream[spark] in this environment")
    spark = Path(spec.origin).parent
    env = {
        **os.environ,
        "JAVA_HOME": str(java.ensure()),
        "SPARK_HOME": str(spark),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_LOCAL_DIRS": str(folder / "local"),
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": _DAEMONS,
        # an application stays though its executors are killed, again and again
        "SPARK_MASTER_OPTS": "-Dspark.deploy.maxExecutorRetries=-1",
    }
    with log.open("wb") as out:
        command = [str(spark / "bin" / "spark-class"), *words]
        process = subprocess.Popen(command, env=env, stdout=out, stderr=out, cwd=folder)
    try:
        yield process.pid
    finally:
        process.terminate()
        process.wait(30)


def _waited(log: Path, pattern: str, times: int) -> list[str]:
    """What a log says, once it has said it so often."""
    deadline = time.monotonic() + START_SECS
    while len(found := re.findall(pattern, log.read_text(errors="replace"))) < times:
        if time.monotonic() > deadline:
            *_, last = ["", *log.read_text(errors="replace").splitlines()]
            raise UserError(f"Spark's cluster did not start in {START_SECS} s: {last}")
        time.sleep(0.1)
    return found
