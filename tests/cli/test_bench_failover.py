"""``elf bench failover`` with a few real agents: killed, recovered, and nothing lost or twice."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest

from elf.cli.processes import ROOT
from elf.client import Window
from elf.errors import UserError
from lab.bench.failover import Detect, Failover, Ledger, Strike


@pytest.mark.parametrize(("agents", "at_once"), [(3, 1), (5, 2)])
def test_agents_are_killed(agents: int, at_once: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert Failover(agents, 2, Strike.KILL, 500, Detect.FAST, at_once=at_once).perform(as_json=True) == 0
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (found["agents"], found["detect"], found["at_once"]) == (agents, "fast", at_once)
    assert found["windows"] > 4
    assert found["wrong"] == found["lost"] == found["doubled"] == 0
    for victim in ("master_ms", "other_ms", "recovery_ms"):
        assert 0 < found[victim]["p50"] <= found[victim]["max"]


def test_agents_are_upgraded_one_by_one(capsys: pytest.CaptureFixture[str]) -> None:
    """From another checkout, which here is this one."""
    assert Failover(3, 3, Strike.TERM, 500, Detect.FAST, before=str(ROOT)).perform(as_json=True) == 0
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (found["before"], found["agents"], found["strikes"]) == (str(ROOT), 3, 3)
    assert found["windows"] > 4
    assert found["wrong"] == found["lost"] == found["doubled"] == 0


def test_an_upgrade_is_from_a_checkout_and_restarts_each_agent_once(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no checkout of elf there"):
        Failover(3, 3, Strike.TERM, before=str(tmp_path))
    with pytest.raises(UserError, match="give --by term, and as many --strikes as --agents"):
        Failover(3, 2, Strike.TERM, before=str(ROOT))


def test_a_majority_must_live() -> None:
    with pytest.raises(UserError, match="--at-once 2: a majority must live: give --agents 5 or more"):
        Failover(4, 2, at_once=2)


def window(counts: dict[str, int], missing: list[str], revision: int = 0) -> Window:
    start, end = (datetime.fromtimestamp(second, UTC) for second in (100, 101))
    table = pa.table({"agent": list(counts), "n": list(counts.values())})
    return Window("job", "alive", 1, "master", start, end, revision, {"missing": missing}, table)


def test_its_ledger_sees_lines_that_are_lost_doubled_or_too_many() -> None:
    ledger = Ledger(1_000)
    for at_ms, agent in ((100_000, "a"), (100_999, "a"), (100_500, "b"), (101_000, "b")):
        ledger.line(at_ms, agent)
    ledger.hear(window({"a": 2}, ["b"]))
    assert ledger.correct(100_000)
    assert not ledger.complete(100_000)
    ledger.hear(window({"a": 2, "b": 1}, [], 1))
    assert ledger.complete(100_000)
    ledger.hear(window({"a": 2, "b": 1}, [], 1))
    assert ledger.doubled == 0
    ledger.hear(window({"a": 2}, [], 1))
    assert ledger.doubled == 1
    for wrong in ({"a": 1, "b": 1}, {"a": 2}, {"a": 2, "b": 2}, {"a": 2, "b": 1, "c": 1}):
        other = Ledger(1_000)
        other.written = ledger.written
        other.hear(window(wrong, []))
        assert not other.correct(100_000), wrong
