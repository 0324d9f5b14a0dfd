"""``elf bench security``: both fleets do the same work."""

from __future__ import annotations

import json

import pytest

from lab.bench.security import SecurityCost


def test_keys_beside_none(capsys: pytest.CaptureFixture[str]) -> None:
    assert SecurityCost(agents=2, pairs=2, rounds=1, rows=2_000).perform(as_json=True) == 0
    said = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (said["agents"], said["rows"]) == (2, 4_000)
    assert all(0 < said[of]["from"] <= said[of]["median"] for of in ("cpu_ratio", "throughput_ratio"))
    assert said["windows_ms"].keys() == {"open", "keys"}
    assert said["zeromq_ms_a_window"].keys() == {"open", "keys"}
    assert [len(said["turns"][side]) for side in ("open", "keys")] == [said["pairs"], 2]
    assert said["windows_a_turn"] == 8
    assert said["p99_more_ms"]["from"] <= said["p99_more_ms"]["median"] <= said["p99_more_ms"]["to"]
