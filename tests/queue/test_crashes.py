"""Daemons that are killed with ``kill -9``, as processes."""

from __future__ import annotations

import json
import subprocess
import sys


def test_runs_that_are_disturbed_and_killed_have_the_bytes_of_one_that_was_not() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "lab.queue.crashes", "--times", "4", "--files", "8", "--kill-share", "0.5"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr + done.stdout
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["ok"]
    assert found["kills"] + found["suspends"] >= 4
