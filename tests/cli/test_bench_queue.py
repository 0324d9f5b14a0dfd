"""``elf bench queue`` with few lines, on a real standalone cluster."""

from __future__ import annotations

import json

import pytest

from lab.bench.queue import Queue, Took

FEW = Queue(rows=4_000, days=1, production_days=1, repeat=1)


@pytest.mark.timeout(900)
def test_a_small_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert FEW.perform(as_json=True) == 0
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert found["files"] == 24
    assert set(found["seconds"]) == {
        "production, alone",
        "research, alone",
        "production, together",
        "research, together",
    }
    assert found["production"] > 0
    assert found["research"] > 0


def test_ratios_are_of_medians_and_research_is_held_against_both_alone() -> None:
    def took(load: float, **seconds: float) -> Took:
        return Took(seconds, 2 if len(seconds) > 1 else 0, load)

    report = FEW.report(
        {
            "production": [took(0, production=one) for one in (30, 31, 99)],
            "research": [took(1, research=one) for one in (100, 99, 101)],
            "together": [took(7, production=one, research=one + 100) for one in (31, 33, 32)],
        }
    )
    assert report.details["production"] == pytest.approx(32 / 31, abs=1e-4)
    assert report.details["research"] == pytest.approx(132 / 131, abs=1e-4)
    assert report.facts["load"] == 7
    assert len(report.notes) == 2
    short = {name: [took(0, production=5, research=9)] for name in ("production", "research", "together")}
    assert "less than 30: more --rows" in FEW.report(short).notes[-1]
