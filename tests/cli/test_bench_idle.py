"""``elf bench idle``: an agent that is measured without a job and with one."""

from __future__ import annotations

import json

import psutil
import pytest

from lab.bench import idle


def test_an_agent_without_a_job_is_smaller_and_gone_afterwards(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(idle, "SETTLE_SECS", 0.1)
    assert idle.Idle(1).perform(as_json=True) == 0
    said = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert 0 < said["no_job"]["rss_mib"] < said["one_job"]["rss_mib"]
    for figures in (said["no_job"], said["one_job"]):
        assert 0 < figures["pss_mib"] <= figures["rss_mib"]
    assert not any("agents.main" in child.cmdline() for child in psutil.Process().children())
