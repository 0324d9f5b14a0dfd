"""``elf demo``: a fleet of eight on this machine, a live job, and its check offline.

``fleet`` lays out and starts the processes, ``show`` draws, ``play`` tells the story.
"""

from __future__ import annotations

from elf.cli.demo.play import DemoOptions, run_demo

__all__ = ["DemoOptions", "run_demo"]
