"""The command in the test's own process."""

from __future__ import annotations

import os
import subprocess

import pytest

from elf.cli.main import main
from elf.cli.processes import environment
from tests.support.commands import Here


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Here:
    """One command line, from ``main`` on: a process of its own would import for up to a second of CPU."""
    for name in os.environ.keys() - environment().keys():
        monkeypatch.delenv(name)

    def run(*args: str) -> subprocess.CompletedProcess[str]:
        with pytest.raises(SystemExit) as ended:
            main([*args])
        assert isinstance(ended.value.code, int)
        return subprocess.CompletedProcess(args, ended.value.code, *capsys.readouterr())

    return run
