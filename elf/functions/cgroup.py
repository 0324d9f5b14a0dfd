"""A control group (version 2) for all users' code of an agent, where the agent may make one.

It bounds the code as a whole: its memory, so that the kernel ends code and not the agent when there is too
much of it; its processes and threads; and its share of the CPU. That takes a group that was *given* to the
agent, as systemd does with ``Delegate=yes``, and the agent itself in one beneath it
(``DelegateSubgroup=agent``), since a group with processes of its own can bound none beneath it. Elsewhere
there is no such group, and the limits of each process hold (``elf.functions.zygote``).
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

NAME: Final = "elf-functions"
TASKS_MAX: Final = 1_024
CPU_WEIGHT: Final = 25
"""Beside 100, which a group has that says nothing."""
CLOSE_TRIES: Final = 20
CLOSE_SECS: Final = 0.01
_GIVEN: Final = ("user.delegate", "trusted.delegate")


def given() -> tuple[Path | None, str]:
    """The group that was given to this process's agent; or None, and why."""
    try:
        mounts = [line.split() for line in Path("/proc/self/mountinfo").read_text().splitlines()]
        base = next(Path(words[4]) for words in mounts if words[words.index("-") + 1] == "cgroup2")
        own = next(
            line[3:] for line in Path("/proc/self/cgroup").read_text().splitlines() if line.startswith("0::")
        )
    except (OSError, StopIteration, ValueError):
        return None, "there are no control groups of version 2"
    place = base / own.lstrip("/")
    if place == base or place.parent == base:
        return None, "the agent is in no group beneath one of its own"
    return (place.parent, "") if _is_given(place.parent) else (None, f"{place.parent} is not delegated to it")


def _is_given(group: Path) -> bool:
    if os.geteuid():
        return os.access(group / "cgroup.procs", os.W_OK) and os.access(group, os.W_OK)
    for name in _GIVEN:  # root may write everywhere, which says nothing
        with contextlib.suppress(OSError):
            if os.getxattr(group, name) == b"1":
                return True
    return False


def told() -> str:
    """Which group it would be, for people."""
    group, why = given()
    return f"none: {why}" if group is None else f"beneath {group}"


class Group:
    """The group of one template: made when it takes a process, gone when it is closed."""

    def __init__(self, memory_bytes: int) -> None:
        self._limits: Mapping[str, tuple[str, int]] = {
            "pids": ("pids.max", TASKS_MAX),
            "memory": ("memory.max", memory_bytes),
            "cpu": ("cpu.weight", CPU_WEIGHT),
        }
        self._path: Path | None = None

    def take(self, pid: int) -> None:
        """Have a process in it, and all that it starts; where there can be no group, nothing is done."""
        above, _ = given()
        if above is None:
            return
        path = above / f"{NAME}-{pid}"
        with contextlib.suppress(OSError):
            path.mkdir()
            self._path = path
        for controller, (name, value) in self._limits.items():  # a kernel may lack some
            with contextlib.suppress(OSError):
                (above / "cgroup.subtree_control").write_text(f"+{controller}")
                (path / name).write_text(str(value))
        with contextlib.suppress(OSError):
            (path / "cgroup.procs").write_text(str(pid))

    def close(self) -> None:
        """End what is left of its processes, and it."""
        if self._path is None:
            return
        with contextlib.suppress(OSError):
            (self._path / "cgroup.kill").write_text("1")
        for _ in range(CLOSE_TRIES):
            try:
                self._path.rmdir()
                break
            except OSError:  # they are on their way out
                time.sleep(CLOSE_SECS)
        self._path = None
