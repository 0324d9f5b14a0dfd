"""``elf bench security``: both fleets do the same work."""

from __future__ import annotations

import json

import pytest

from lab.bench.security import SecurityCost


def test_keys_beside_none(capsys: pytest.CaptureFixture[str]) -> None:
    assert SecurityCost(agents=2, rounds=1, rows=2_000, repeat=1).perform(as_json=True) == 0
    said = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (said["agents"], said["rows"]) == (2, 4_000)
    assert said["cpu_ratio"] > 0
    assert said["windows_ms"].keys() == {"open", "keys"}
