"""What ``elf reload`` does: it asks the agent of a data folder by a signal, and waits for its report."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from agents.disk.folder import pid_of
from agents.reload import REPORT_FILE
from elf.errors import UserError

REPORT_SECS: Final = 60.0
"""The report is waited for: trying all of a configuration, and to begin with it, takes a second or two."""
LOOK_SECS: Final = 0.05


def ask_again(folder: Path) -> int:
    """1: it goes on as it was."""
    try:
        pid = pid_of(folder)
        before = _report(folder)
    except OSError as error:
        raise UserError(f"{folder} cannot be read: {_words(error)}; be the agent's user, or root") from None
    if pid is None:
        raise UserError(f"no agent runs with {folder}; --data-dir says another folder")
    try:
        os.kill(pid, signal.SIGHUP)
    except OSError as error:
        raise UserError(f"process {pid} cannot be asked: {_words(error)}; be its user, or root") from None
    deadline = time.monotonic() + REPORT_SECS
    while (report := _report(folder)) == before or report is None:
        if time.monotonic() > deadline:
            raise UserError(f"process {pid} has not reported within {REPORT_SECS:g} s; its log may say why")
        if pid_of(folder) != pid:
            raise UserError(f"process {pid} has ended; its log says why")
        time.sleep(LOOK_SECS)
    for line in report["lines"]:
        print(line if report["ok"] else f"elf: {line}", file=sys.stdout if report["ok"] else sys.stderr)
    if not report["ok"]:
        print("elf: nothing is changed", file=sys.stderr)
    return 0 if report["ok"] else 1


def _report(folder: Path) -> Mapping[str, Any] | None:
    try:
        found: Mapping[str, Any] = json.loads((folder / REPORT_FILE).read_bytes())
    except (FileNotFoundError, ValueError):
        return None
    return found


def _words(error: OSError) -> str:
    return (error.strerror or str(error)).lower()
