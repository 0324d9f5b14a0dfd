"""``elf bench samples``: intervals beside estimates, and the truth."""

from __future__ import annotations

import json

import pytest

from elf.errors import ElfError
from lab.bench.samples import ALL, SAMPLES, VALUES, Rows, Samples, held


def rows(guess: float, width: float | None) -> Rows:
    return {("w", "/"): dict.fromkeys(VALUES, guess) | {f"{name}_error": width for name in VALUES}}


def test_what_is_off_by_more_than_it_says_is_told() -> None:
    truth = rows(10, None)
    assert held(truth, rows(12, 2))["hits"] == (1, 1, 0)
    assert held(truth, rows(12, 1.9))["bytes"] == (1, 0, 0)
    assert held(truth, rows(12, None))["latency"] == (0, 0, 1)
    runs = {ALL: [truth], **{name: [rows(12, 2)] for name in SAMPLES}}
    assert not Samples().report(runs).problems
    bad = Samples().report({**runs, SAMPLES[0]: [rows(13, 2)]})
    assert bad.problems == ["66.67% of the intervals hold the truth, not 99%"]


def test_intervals_of_a_small_log_hold_the_truth(capsys: pytest.CaptureFixture[str]) -> None:
    try:
        assert Samples(rows=20_000, pages=20, visitors=3_000).perform(as_json=True) == 0
    except ElfError as error:
        pytest.fail(str(error))
    said = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert said["cells"] > 1_000
