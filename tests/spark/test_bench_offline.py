"""``elf bench offline``: all of its sides answer alike."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from lab.bench import offline
from lab.bench.offline_side import Answered
from lab.bench.runner import Scratch
from spark_backend import session


@pytest.mark.parametrize("format", list(offline.OfflineFormat))
def test_its_sides_answer_alike(
    quick_spark: SparkSession, monkeypatch: pytest.MonkeyPatch, format: offline.OfflineFormat
) -> None:
    """Here in the one Spark of the process."""
    monkeypatch.setattr(session, "opened", lambda *_, **__: nullcontext(quick_spark))
    monkeypatch.setattr(offline, "ask", lambda side, asked: side(asked))
    bench = offline.Offline(1_500, format, "local[1]", 1)
    with Scratch() as scratch:
        runs: dict[str, list[Answered]] = {name: [run()] for name, run in bench.sides(scratch).items()}
        assert len([*Path(scratch.folder).glob("archive/stream=log/date=*/hour=*")]) > 600
    report = bench.report(runs)
    assert report.facts["elf"]["rows"] > 30  # type: ignore[index]
    assert runs["compare, three windows"][0].rows > 0
