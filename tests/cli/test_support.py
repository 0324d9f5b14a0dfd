"""``elf support-bundle`` tells of an agent, and of no person."""

from __future__ import annotations

import json
import socket
import tarfile
from pathlib import Path

import pytest

from agents.disk.store import Store
from agents.process import STORE_FILE
from elf.cli.processes import free_ports
from elf.cli.support import Words, collect
from elf.errors import UserError

PERSONAL = (
    "Grandisson", "grandisson@example.org", "203.0.113.77", "2001:db8::77", "4915112345678", "kundennummer",
    "db-berta", "s3cr3t", "ip-10-0-0-4", "4111-1111-1111-1111", "birthdate_patient",
)  # fmt: skip
LOG: list[dict[str, object]] = [
    {
        "event": "agent is ready",
        "level": "info",
        "timestamp": "2026-01-01T00:00:00Z",
        "agent": "db-berta",
        "peers": 3,
    },
    {"event": "a notice", "text": "Grandisson called 4915112345678 from 203.0.113.77", "level": "info"},
    {"event": "grandisson@example.org printed by a function", "job": "kundennummer", "level": "info"},
    {"event": "an agent is silent", "member_address": "[2001:db8::77]:7071", "level": "warning"},
    {"event": "paid with 4111-1111-1111-1111", "peer": "ip-10-0-0-4.ec2.internal", "level": "info"},
    {"event": "a row", "timestamp": "birthdate_patient", "level": "info"},
]


def packed(path: Path) -> dict[str, str]:
    with tarfile.open(path) as tar:
        found = {one.name: tar.extractfile(one) for one in tar.getmembers()}
        return {Path(name).name: file.read().decode() for name, file in found.items() if file is not None}


def test_a_bundle_says_how_an_agent_is_and_nothing_of_persons(tmp_path: Path) -> None:
    (http,) = free_ports(1)
    data, log, config = tmp_path / "data", tmp_path / "agent.log", tmp_path / "elf.yaml"
    data.mkdir()
    Store(data / STORE_FILE).close()
    (data / "rejects").mkdir()
    (data / "rejects" / "access.jsonl").write_text("203.0.113.77 Grandisson")
    (data / "keys").mkdir()
    (data / "keys" / "key").write_text("s3cr3t")
    log.write_text("".join(json.dumps(line) + "\n" for line in LOG) + "Traceback of Grandisson\n")
    config.write_text(
        json.dumps(
            {
                "agent": {"name": "db-berta", "labels": {"owner": "Grandisson"}},
                "http": {"listen": f"127.0.0.1:{http}"},
                "data_dir": str(data),
                "log": {"path": str(log)},
                "streams": {
                    "access": {
                        "include": ["/srv/kundennummer/*.log"],
                        "format": "combined",
                        "lateness_secs": 7,
                    }
                },
            }
        )
    )
    assert collect(config, tmp_path / "out.tar.gz") == 0
    parts = packed(tmp_path / "out.tar.gz")
    everything = "\n".join(parts.values())
    assert [one for one in (*PERSONAL, socket.gethostname()) if one.lower() in everything.lower()] == []
    assert "streams.access.lateness_secs: 7" in parts["config.txt"]
    assert 'streams.access.format: "combined"' in parts["config.txt"]
    lines = [json.loads(line) for line in parts["log.txt"].splitlines()[:4]]
    assert lines[0] == {**LOG[0], "agent": lines[0]["agent"]}
    assert lines[1]["event"] == "a notice"
    assert lines[3]["event"] == "an agent is silent"
    state = json.loads(parts["state.json"])
    assert state["runs"] is False
    assert state["rejects"] == {"files": 1, "bytes": 23}
    assert state["tables"]
    assert "does not answer" in parts["ready.json"]
    assert json.loads(parts["versions.json"])["packages"]["duckdb"] > "1"


def test_a_configuration_that_is_wrong_is_told_of(tmp_path: Path) -> None:
    (tmp_path / "elf.yaml").write_text("agent: {nam: Grandisson}\n")
    assert collect(tmp_path / "elf.yaml", tmp_path / "out.tar.gz") == 0
    told = packed(tmp_path / "out.tar.gz")["config.txt"]
    assert "unknown key" in told
    assert "Grandisson" not in told
    with pytest.raises(UserError, match="cannot be written"):
        collect(tmp_path / "elf.yaml", tmp_path / "elf.yaml" / "out.tar.gz")


def test_equal_words_have_equal_marks() -> None:
    words = Words()
    assert (
        words.shown("agent Grandisson is silent, Grandisson at 203.0.113.77:7071")
        == "agent ‹1› is silent, ‹1› at ‹2›"
    )
    assert words.value({"rows": 7, "ok": True, "none": None, "x": [1.5, "203.0.113.77:7071"]}) == {
        "rows": 7, "ok": True, "none": None, "x": [1.5, "‹2›"],
    }  # fmt: skip
