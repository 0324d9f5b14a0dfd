"""The section of the tutorial that makes a fleet with keys: its commands are run as they stand there."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

from elf.cli.processes import free_ports

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "tutorial.md").read_text()
COMMANDS_MAX = 5
"""From nothing to three enrolled agents and a person who may ask."""
WAIT = "until [ $(elf members --keys closed/ada 2>/dev/null | grep -c live) = 3 ]; do sleep 0.3; done"


def blocks(section: str) -> list[str]:
    """What is to be typed in a section of the page."""
    (text,) = re.findall(rf"^## {section}\n(.*?)^## ", PAGE, re.DOTALL | re.MULTILINE)
    return [str(block) for block in re.findall(r"^```sh\n(.*?)^```", text, re.DOTALL | re.MULTILINE)]


def test_a_fleet_with_keys_is_five_commands(tmp_path: Path) -> None:
    copied, made, asked, revoked, killed = blocks("13. A fleet with keys")
    commands = [line for line in made.splitlines() if line.startswith("elf")]
    assert len(commands) == len(made.splitlines()) <= COMMANDS_MAX
    bin_ = tmp_path / "bin"
    bin_.mkdir()
    for name, module in (("elf", "elf.cli.main"), ("elf-agent", "agents.main")):
        (bin_ / name).write_text(f'#!/bin/sh\nexec {sys.executable} -m {module} "$@"\n')
        (bin_ / name).chmod(0o755)
    script = "\n".join(
        [
            blocks("4. Start a fleet")[0],
            copied,
            made,
            asked.replace("sleep 10", WAIT).replace(" --limit 1", " --limit 1 2>&1"),
            "echo -- revoked",
            revoked.replace("elf jobs --keys closed/ada", "elf jobs --keys closed/ada 2>&1"),
            killed,
            "wait",
        ]
    )
    ports = free_ports(6)
    for place, port in enumerate(ports):
        kind, n = ("707", "708")[place // 3], place % 3 + 1
        script = script.replace(f"127.0.0.1:{kind}{n}", f"127.0.0.1:{port}")
        script = f"port{kind}[{n}]={port}\n{script}"
    script = re.sub(r"127\.0\.0\.1:(707|708)\$n", r"127.0.0.1:${port\1[$n]}", script)
    variables = {name: value for name, value in os.environ.items() if not name.startswith(("ELF_", "XDG_"))}
    process = subprocess.Popen(
        ["bash", "-c", script],
        cwd=tmp_path,
        env={
            **variables,
            "HOME": str(tmp_path / "home"),
            "PATH": f"{bin_}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "ELF_CONNECT": f"127.0.0.1:{ports[0]}",
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        out, errors = process.communicate(timeout=120)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    said, _, after = out.partition("-- revoked\n")
    assert said.count(" live ") == 3, errors
    assert "job pages created" in said
    assert "tap needs the role tap, which ada does not have (roles: read, write)" in said
    assert after.startswith("revoked the person ada\n"), errors
    assert "it does not admit the key of person ada" in after
    assert re.search(r"ada\s+person\s+read,write\s.*revoked", after)
    assert "fleet's key: it can be unsealed here" in after
    assert "WRONG" not in after
