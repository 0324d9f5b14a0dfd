"""``elf bench copies`` with a few real agents: one is lost with its disk, and little is lost with it."""

from __future__ import annotations

import json

import pytest

from lab.bench.copies import Copies, Cost

FEW = Copies(agents=4, window_secs=4, rate=50, secs=2)


def test_a_small_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert FEW.perform(as_json=True) == 0
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert found["copied_bytes_s"]["eager"] > found["copied_bytes_s"]["lazy"] == 0
    assert found["lost_rows"]["lazy"] == found["lazy"][0]["written"]
    assert 0 <= found["lost_rows"]["eager"] < found["eager"][0]["written"]


def test_it_says_what_is_wrong() -> None:
    runs = {"lazy": [Cost(0.5, 0.0, 100, 100, False)], "eager": [Cost(0.55, 9.0, 100, 20, True)]}
    report = FEW.report(runs)
    assert report.facts["lost_rows"] == {"lazy": 100, "eager": 20}
    assert not report.problems
    runs["eager"] = [Cost(0.55, 9.0, 100, -1, False)]
    assert list(FEW.report(runs).problems) == [
        "eager: 1 rows too many",
        "a window does not say that it has an agent up to its last copy",
    ]
