"""``elf bench plan``: all examples and panels have a plan; equal fragments share a flow."""

from __future__ import annotations

import json

import pytest

from elf.ql.catalogue import CLAUSES
from lab.bench.plan import Planning


def test_examples_and_jobs_are_planned(capsys: pytest.CaptureFixture[str]) -> None:
    assert Planning(24, 4, 1).perform(as_json=True) == 0
    said = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (said["jobs"], said["flows"]) == (24, 4)
    assert said["examples"] > len(CLAUSES)
    assert 0 < said["median_ms"] <= said["slowest_ms"]
    assert said["longest"].endswith(".sql")
