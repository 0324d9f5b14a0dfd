"""``elf bench guest``: an nginx beside an agent that wants twice its share, and beside none."""

from __future__ import annotations

import json

import psutil
import pytest

from elf.errors import UserError
from elf.schema import Column, Schema
from lab.bench import guest
from lab.bench.measure import STREAM, plan_of
from lab.bench.rotation import writers

TURN = {"p50_ms": 1.0, "p99_ms": 4.0, "p999_ms": 9.0, "requests_per_s": 2000.0}
BESIDE = {**TURN, "agent_percent": 5.0, "lent_percent": 5.0, "weight": 4.0}


def test_the_ratio_is_that_of_turns_side_by_side() -> None:
    alone = [TURN | {"p99_ms": p99} for p99 in (4.0, 8.0, 100.0)]
    beside = [BESIDE | {"p99_ms": p99} for p99 in (4.04, 8.0, 150.0)]
    report = guest.Guest().report({"beside": beside, "alone": alone})
    assert [figure.elf for figure in report.figures] == [8.0, 1.0]
    assert "1.01, 1.00, 1.50; the median is +1.0 %" in report.notes[0]
    assert "one row in 4 counts" in report.notes[1]


def test_no_two_jobs_are_one_flow() -> None:
    columns = [Column("ts", "timestamp"), Column("sc_status", "bigint"), Column("sc_bytes", "bigint")]
    columns += [Column(name, "text") for name in ("cs_uri_stem", "c_ip", "cs_method", "cs_user_agent")]
    schema = Schema(tuple(columns), "ts")
    queries = [query.replace("FROM access", f"FROM {STREAM}") for query in guest.queries(20)]
    assert len({plan_of(query, schema).fragment for query in queries}) == 20


def test_who_asks_is_not_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writers, "place_of", lambda tool: "/nginx")
    monkeypatch.setattr(guest, "place_of", lambda tool: None)
    with pytest.raises(UserError, match="elf bench guest needs wrk: apt-get install wrk"):
        guest.Guest()


@pytest.mark.skipif(None in map(writers.place_of, ("nginx", "wrk")), reason="nginx or wrk is not here")
def test_an_nginx_is_asked_beside_an_agent_and_alone(capsys: pytest.CaptureFixture[str]) -> None:
    assert guest.Guest(rate=200, jobs=3, seconds=2, settle=0, repeat=1).perform(as_json=True) == 0
    said = json.loads(capsys.readouterr().out.splitlines()[-1])
    for side in ("beside", "alone"):
        assert 0 < said[side]["p50_ms"] <= said[side]["p99_ms"] <= said[side]["p999_ms"]
        assert said[side]["requests_per_s"] > 50
    assert said["beside"]["agent_percent"] > 0
    assert said["beside"]["lent_percent"] > 0
    commands = [child.cmdline() for child in psutil.Process().children()]
    assert not any("agents.main" in command or "nginx" in command[:1] for command in commands)
