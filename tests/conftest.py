"""What holds for all tests."""

from __future__ import annotations

import gc
import logging
import os
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from tests.support.long import LONG

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from xdist.remote import Producer
    from xdist.scheduler import Scheduling

# What is asserted in shared helpers says as much as what is asserted in tests.
pytest.register_assert_rewrite("tests.support")

# Spark's queries in tests are small: compiling its bytecode thoroughly would take longer than running it.
os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")

# Agents and clients of tests have a key of their own: nothing is left in the folder of whoever runs them.
if "ELF_LOOPBACK_KEY" not in os.environ:
    _KEYS = tempfile.TemporaryDirectory(prefix="elf-tests-")
    os.environ["ELF_LOOPBACK_KEY"] = f"{_KEYS.name}/loopback.key"

# A shell starts what is in the background with Ctrl-C ignored, and what tests interrupt would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Examples are bounded in number, not in time: a busy machine must not fail a property.
settings.register_profile("elf", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("elf")


IN_TROUBLE = ("fleet", "trouble", "copies", "stragglers", "run_again")
TOGETHER = {
    "fleets in trouble": tuple(f"tests/fleet/test_{name}.py" for name in IN_TROUBLE),
    "fleets": ("tests/fleet/",),
    "spark": ("tests/spark/", "tests/ql/test_differential.py", "tests/agents/test_formats_spark.py"),
}
"""Files that are run in one process, by what their paths begin with; the first that fits counts. Real fleets
are in two processes, half of the time in each: they mostly wait for windows."""


FIRST = ("tests/fleet", "tests/spark", "tests/security", "tests/chaos", "tests/job", "tests/cli", "tests/run")
"""What takes longest begins first: else all but one of the processes wait for it in the end."""

LONG_ONES = Path(__file__).with_name("long.txt").read_text().splitlines()
"""Tests that run with ``make long`` alone, or where they are named: others show the same sooner."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    left_out = set() if LONG else set(LONG_ONES) - set(config.args)
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid in left_out])
    kept = [item for item in items if item.nodeid not in left_out]
    order = {folder: place for place, folder in enumerate(FIRST)}
    items[:] = sorted(kept, key=lambda item: order.get("/".join(item.nodeid.split("/", 2)[:2]), len(FIRST)))


def pytest_collection_finish() -> None:
    """Thousands of collected tests stay to the end: looking through them for garbage, again and again, takes
    a seventh of the time of simulated fleets.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)


def pytest_unconfigure() -> None:
    """Extension modules say at exit what was never freed."""
    gc.unfreeze()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Scheduling:
    """With ``-n``: the tests of a file are run in one process, one after the other; so are all that need
    Spark, and half of the real fleets."""
    from xdist.scheduler import LoadFileScheduling

    scheduler = LoadFileScheduling(config, log)
    scheduler._split_scope = _together
    return scheduler


def _together(nodeid: str) -> str:
    file = nodeid.split("::", 1)[0]
    return next((group for group in TOGETHER if nodeid.startswith(TOGETHER[group])), file)


@pytest.fixture(autouse=True)
def logs() -> Iterator[None]:
    """Commands that say themselves what is wrong turn logs off, in the process that they are called in."""
    yield
    logging.disable(logging.NOTSET)


@pytest.fixture(scope="session")
def local_spark() -> Iterator[SparkSession]:
    """The one Spark of a process: starting one, and warming it up, takes many seconds."""
    from spark_backend import session

    with session.opened("local[1]", progress=False, brief=True) as opened:
        yield opened


@pytest.fixture(scope="module")
def spark(local_spark: SparkSession) -> SparkSession:
    """A session with settings and views of its own."""
    own = local_spark.newSession()
    own.conf.set("spark.sql.shuffle.partitions", "1")
    return own


@pytest.fixture(scope="module")
def quick_spark(spark: SparkSession) -> SparkSession:
    """For small queries with much in them: compiling them would take longer than running them."""
    spark.conf.set("spark.sql.codegen.wholeStage", "false")
    spark.conf.set("spark.sql.codegen.factoryMode", "NO_CODEGEN")
    spark.conf.set("spark.sql.adaptive.enabled", "false")
    return spark
