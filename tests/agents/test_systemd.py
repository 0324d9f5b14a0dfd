"""What systemd is told, by a socket as it gives one."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from agents.systemd import BEAT_SECS, Systemd


@pytest.mark.parametrize("abstract", [False, True])
def test_words_of_sd_notify(tmp_path: Path, abstract: bool) -> None:
    path = f"@elf-test-{os.getpid()}" if abstract else str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as there:
        there.bind(path.replace("@", "\0", 1))
        systemd = Systemd({"NOTIFY_SOCKET": path, "WATCHDOG_USEC": "6000000"})
        assert systemd.listens
        assert systemd.beat_secs == 2
        systemd.started()
        systemd.beat("web-1: waits\nREADY=0 " + "x" * 1_000)
        systemd.reloading()
        systemd.stopping()
        assert there.recv(4096) == b"READY=1"
        beat, _, status = there.recv(4096).partition(b"\n")
        assert (beat, b"\n" in status, len(status) < 400) == (b"WATCHDOG=1", False, True)
        assert status.startswith(b"STATUS=web-1: waits READY=0 x")
        assert there.recv(4096).startswith(b"RELOADING=1\nMONOTONIC_USEC=")
        assert there.recv(4096) == b"STOPPING=1"
    systemd.beat("nobody listens any more, and that is no matter")
    systemd.close()


@pytest.mark.parametrize(
    "env", [{}, {"NOTIFY_SOCKET": ""}, {"NOTIFY_SOCKET": "/no/such/socket"}, {"NOTIFY_SOCKET": "vsock:2:1"}]
)
def test_elsewhere_nothing_is_said(env: dict[str, str]) -> None:
    systemd = Systemd(env)
    assert not systemd.listens
    systemd.started()
    systemd.close()


@pytest.mark.parametrize(
    ("env", "secs"),
    [
        ({"WATCHDOG_USEC": "600000000"}, BEAT_SECS),
        ({"WATCHDOG_USEC": "3000000", "WATCHDOG_PID": str(os.getpid())}, 1),
        ({"WATCHDOG_USEC": "3000000", "WATCHDOG_PID": "1"}, BEAT_SECS),
        ({"WATCHDOG_USEC": "soon"}, BEAT_SECS),
        ({"WATCHDOG_USEC": "0"}, BEAT_SECS),
    ],
)
def test_three_beats_fit_into_the_watchdogs_time(env: dict[str, str], secs: float) -> None:
    assert Systemd(env).beat_secs == secs
