"""``elf bench windows``: both sides have the same windows of a minute."""

from __future__ import annotations

import json

import pytest

from lab.bench.windows import Windows


def test_ten_windows_beside_one(capsys: pytest.CaptureFixture[str]) -> None:
    """The sides agree, or it would be an error."""
    assert Windows(3_000, 50, 1).perform(as_json=True) == 0
    said = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert said["events"] == 3_000
    assert said["ratio"] > 0
    assert "10 min = 2 × 5 min" in said["plan"]
