"""One Spark session for all tests of this folder: starting one takes seconds."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from spark_backend import session


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    with session.opened("local[1]", progress=False, brief=True) as opened:
        opened.conf.set("spark.sql.shuffle.partitions", "1")
        yield opened
