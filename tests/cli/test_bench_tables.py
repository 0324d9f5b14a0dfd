"""``elf bench tables``: every user is found, in each way."""

from __future__ import annotations

import json

import pytest

from lab.bench import rekeying, tables
from lab.bench.tablereaders import WAYS
from lab.bench.tables import Tables
from lab.bench.ycsb import KEYS


def test_rows_are_found_in_each_way(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, few in (("TIMES", 1), ("SIZES", (1.0,)), ("MIXES", {"40/40/20": (0.4, 0.4)})):
        monkeypatch.setattr(rekeying, name, few)
    monkeypatch.setattr(tables, "OPEN_SECS", 0.5)
    bench = Tables(agents=2, hosts=1, users=40, readers=2, reads=4, rate=8, alone_secs=0.5, change_secs=0.5)
    assert bench.perform(as_json=True) == 0
    said = json.loads(capsys.readouterr().out.splitlines()[-1])
    ways = len(WAYS)
    assert (said["missed"], said["reads"]) == (0, ways * (2 * 4 * len(KEYS) + 4 + 4))
    assert said["rows"] >= 40
    (changed,) = said["changed"]
    assert len(changed["took"]) == 1
    for load in changed["loads"].values():
        assert load["changes"] > 0
        assert load["lost"] == 0
    many = sorted(len(times) for times in said["ms"].values())
    assert many == [4] * (2 * ways) + [8] * (ways * len(KEYS))
    assert all(min(times) > 0 for times in said["ms"].values())
