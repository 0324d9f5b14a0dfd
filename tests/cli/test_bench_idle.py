"""``elf bench idle``: an agent that is measured without a job and with one, and a shipper beside it."""

from __future__ import annotations

import json
import time
from pathlib import Path

import psutil
import pytest

from elf.cli.processes import ended
from elf.errors import UserError
from lab.bench import idle, shipper
from lab.bench.rotation import writers
from tests.support.waiting import wait_until


def test_an_agent_without_a_job_is_smaller_and_gone_afterwards(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(idle, "SETTLE_SECS", 0.1)
    assert idle.Idle(1, rates=[100, 50]).perform(as_json=True) == 0
    said = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert 0 < said["no_job"]["rss_mib"] < said["one_job"]["rss_mib"]
    assert said["rate"] == 100
    assert "an agent that reads 50 lines/s, one job" in {one["what"] for one in said["figures"]}
    for figures in (said["no_job"], said["one_job"], said["one_job_50"]):
        assert 0 < figures["pss_mib"] <= figures["rss_mib"]
        assert figures["switches_per_s"] > 5, "it has read lines all the time"
    assert not any("agents.main" in child.cmdline() for child in psutil.Process().children())


def test_lines_are_written_at_their_pace(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    began = time.monotonic()
    with idle.written(log, 200):
        wait_until(lambda: log.exists() and log.read_bytes().count(b"\n") >= 60, "60 lines", 30)
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert 60 <= len(lines) <= 200 * (time.monotonic() - began)
    assert {line["page"] for line in lines} >= {"/0", "/49"}
    with idle.written(tmp_path / "b.log", 0):
        pass
    assert not (tmp_path / "b.log").exists()


@pytest.mark.skipif(writers.place_of("rsyslogd") is None, reason="rsyslog is not here")
def test_the_shipper_has_begun_when_it_is_measured(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text('{"page": "/"}\n')
    with ended() as processes, shipper.ships(processes, tmp_path, "*.log") as child:
        assert idle._switches(psutil.Process(child.process.pid)) > 0
    assert child.process.returncode is not None


def test_no_shipper_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writers, "place_of", lambda _: None)
    with pytest.raises(UserError, match=r"--shipper needs rsyslogd: apt-get install rsyslog$"):
        idle.Idle(1, shipper=True)
