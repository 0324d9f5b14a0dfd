"""A signal that comes to Java as well, as a service manager sends it to all of a unit."""

from __future__ import annotations

import subprocess
import sys

RUNS = """
from spark_backend.session import opened

try:
    with opened("local[1]") as session:
        java = session.sparkContext._gateway.proc
        java.kill()
        java.wait()
        raise KeyboardInterrupt
except KeyboardInterrupt:
    print("interrupted")
"""


def test_who_is_stopped_together_with_java_says_nothing_of_java() -> None:
    """The session cannot be stopped any more, and nobody need hear of that."""
    run = subprocess.run(
        [sys.executable, "-c", RUNS], capture_output=True, text=True, timeout=100, check=False
    )
    assert (run.stdout, run.returncode) == ("interrupted\n", 0), run.stderr
