"""A member of a fleet without keys on loopback says what no honest one would: the fleet is one of real nodes
on virtual time (``target``), begun anew every ``FLEET_FRAMES`` frames.
"""

from __future__ import annotations

import gc
import time
from typing import Final

import psutil

from lab.bench.fuzz.found import Found
from lab.bench.fuzz.frames import Kind
from lab.bench.fuzz.target import Target

FLEET_FRAMES: Final = 20_000
AT_ONCE: Final = 100
"""Frames between which the fleet works for ``STEP_MS`` of its time."""
STEP_MS: Final = 50
AFTER_MS: Final = 6_000
"""The fleet is given so long to make windows when the last frame has come."""


def attack(kind: Kind, frames: int, seed: int, share: float) -> Found:
    """So many frames of one kind."""
    found = Found()
    for number, begin in enumerate(range(0, frames, FLEET_FRAMES)):
        _fleet(found, kind, min(FLEET_FRAMES, frames - begin), seed + number, share)
    return found


def _fleet(found: Found, kind: Kind, frames: int, seed: int, share: float) -> None:
    """To one fleet."""
    target = Target(seed)
    gc.collect()
    (before, _), process = target.windows(), psutil.Process()
    least = process.memory_info().rss
    for number in range(frames):
        if number % AT_ONCE == 0:
            target.go_on(STEP_MS)
        began = time.perf_counter()
        sent = target.send(kind, share)
        found.seconds += time.perf_counter() - began
        found.frames += 1
        (found.refused if sent.refused else found.taken)[sent.refused or sent.message] += 1
    target.go_on(AFTER_MS)
    found.resident_bytes = max(found.resident_bytes, process.memory_info().rss)
    found.grown_bytes = max(found.grown_bytes, process.memory_info().rss - least)
    found.faults.update(target.faults())
    found.skipped.update(target.skipped())
    found.stops += target.stops()
    found.changed += target.changed()
    windows, wrong = target.windows()
    found.windows += windows - len(wrong)
    found.changed += wrong
    found.stood_still += windows <= before
