"""Daemons that are killed with ``kill -9``, as processes."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest


@pytest.mark.timeout(900)
@pytest.mark.parametrize("where", [[], ["--standalone"]], ids=["local", "standalone"])
def test_runs_that_are_disturbed_and_killed_have_the_bytes_of_one_that_was_not(where: list[str]) -> None:
    """A long one alone has an executor that is killed for sure."""
    words = ["--times", "4", "--files", "8", "--kill-share", "0.5", *where]
    done = subprocess.run(
        [sys.executable, "-m", "lab.queue.crashes", *words],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr + done.stdout
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["ok"]
    assert found["suspends"] + found["daemons"] + found["executors"] == found["disturbances"] >= 4
    assert found["files_read"] >= 8 * (found["runs"] + 1)
