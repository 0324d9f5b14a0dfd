"""``elf demo``: a fleet of eight on this machine, a live job, and its check offline.

``fleet`` lays out and starts the processes, ``stage`` is what every demo needs, ``show`` draws, ``play``
tells the story. ``elf demo --app``: ``apps`` tells those of the paper's applications, ``batch`` checks them.
"""

from __future__ import annotations

from elf.cli.demo.apps import run_app
from elf.cli.demo.play import DemoOptions, run_demo

__all__ = ["DemoOptions", "run_app", "run_demo"]
