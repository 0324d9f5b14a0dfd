"""The judge of alerts finds nothing in the product, and everything that is planted in it."""

from __future__ import annotations

import pytest

from elf.fields import replace
from lab.sim.alerts import played

HISTORY = ("1/14", 50)


def test_nothing_is_false_and_nothing_missing() -> None:
    judged = played(*HISTORY)
    assert (judged.windows, judged.wrong.total(), judged.seeds) == (50, 0, [])
    assert min(judged.masters, judged.again, *judged.notices.values()) > 0
    assert set(judged.notices) == {"firing", "quiet", "unknown"}


def test_who_is_missing_and_passed_over_makes_false_notices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agents.outputs.alerting._why_unknown", lambda *_: ())
    assert played(*HISTORY).wrong["false"]


def test_what_a_master_forgets_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    from elf.job.alerts import kept

    monkeypatch.setattr("agents.outputs.parcels.kept", lambda memory: kept(replace(memory, recent=())))
    assert played(*HISTORY).wrong["missing"]


def test_a_history_whose_last_row_is_of_an_old_version_comes_to_its_end() -> None:
    assert played("1/180", 250).wrong.total() == 0
