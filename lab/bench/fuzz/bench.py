"""``elf bench fuzz``: what a fleet does with frames that no honest agent would send.

Each kind of frames is a side: random bytes, damaged real frames, well-typed random messages, and real
messages with changed fields and right checksums. They come from strangers, without any key, to a fleet with a
job at work, which is begun anew every ``FLEET_FRAMES`` frames. No agent may stop, fail in handling a message,
or take more than ``GROWN_BYTES_MAX``; windows must go on and be right. Bytes, damaged frames and random
messages must change nothing: members, jobs, where they are. What a changed real message changes is reported:
it says what an agent may say, and who may is for keys to decide.
"""

from __future__ import annotations

import gc
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, Final

import psutil
from typer import Option

from lab.bench.fuzz.frames import KINDS, Kind
from lab.bench.runner import Bench, Figure, Report, Scratch

FLEET_FRAMES: Final = 20_000
AT_ONCE: Final = 100
"""Frames between which the fleet works for ``STEP_MS`` of its time."""
STEP_MS: Final = 50
AFTER_MS: Final = 6_000
"""The fleet is given so long to make windows when the last frame has come."""
GROWN_BYTES_MAX: Final = 256 << 20
SAID: Final = 10
"""Different faults that are named."""


@dataclass
class Found:
    """What came of the frames of one kind."""

    frames: int = 0
    seconds: float = 0.0
    refused: Counter[str] = field(default_factory=Counter)
    taken: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    skipped: Counter[str] = field(default_factory=Counter)
    stops: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)
    stood_still: int = 0
    grown_bytes: int = 0


def attack(kind: Kind, frames: int, seed: int, share: float) -> Found:
    """So many frames of one kind."""
    found = Found()
    for number, begin in enumerate(range(0, frames, FLEET_FRAMES)):
        _fleet(found, kind, min(FLEET_FRAMES, frames - begin), seed + number, share)
    return found


def _fleet(found: Found, kind: Kind, frames: int, seed: int, share: float) -> None:
    """To one fleet."""
    from lab.bench.fuzz.target import Target

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
    found.grown_bytes = max(found.grown_bytes, process.memory_info().rss - least)
    found.faults.update(target.faults())
    found.skipped.update(target.skipped())
    found.stops += target.stops()
    found.changed += target.changed()
    windows, wrong = target.windows()
    found.changed += wrong
    found.stood_still += windows <= before


@dataclass(frozen=True)
class Fuzz(Bench[Kind, Found]):
    """Frames of all kinds."""

    frames: Annotated[int, Option("--frames", min=4, help="How many, of all kinds together.")] = 40_000
    seed: Annotated[int, Option("--seed", help="The same seed makes the same frames.")] = 1
    share: Annotated[
        float, Option("--known", min=0.0, max=1.0, help="So many of the names in them are real ones.")
    ] = 0.0
    repeat: int = 1

    def sides(self, scratch: Scratch) -> Mapping[Kind, Callable[[], Found]]:
        """A side a kind."""
        each = self.frames // len(KINDS)
        return {kind: partial(attack, kind, each, self.seed, self.share) for kind in KINDS}

    def report(self, runs: Mapping[Kind, Sequence[Found]]) -> Report:
        """What each kind came to."""
        found = {kind: runs[kind][-1] for kind in KINDS}
        facts: dict[str, object] = {kind: _facts(one) for kind, one in found.items()}
        rate = sum(one.frames for one in found.values()) / max(
            sum(one.seconds for one in found.values()), 1e-9
        )
        grown = max(one.grown_bytes for one in found.values()) / (1 << 20)
        notes = [f"{kind}, changed: {said}" for kind, one in found.items() for said in one.changed[:SAID]]
        notes += [
            f"{kind}, skipped: {n} × {said}" for kind, one in found.items() for said, n in one.skipped.items()
        ]
        refused = {kind: dict(one.refused) for kind, one in found.items()}
        taken = {kind: dict(one.taken.most_common()) for kind, one in found.items()}
        return Report(
            facts,
            [
                Figure("frames of strangers that a fleet of three takes or refuses", rate, "a second"),
                Figure("the most that it grows meanwhile", grown, "MiB"),
            ],
            notes,
            {"refused": refused, "taken": taken},
            [said for kind, one in found.items() for said in _problems(kind, one)],
        )


def _facts(found: Found) -> Mapping[str, object]:
    refused = sum(found.refused.values())
    why = ", ".join(f"{reason} {count}" for reason, count in found.refused.most_common())
    return {
        "frames": found.frames,
        "refused": refused,
        "why": why or "-",
        "frames_a_second": round(found.frames / max(found.seconds, 1e-9)),
        "faults": sum(found.faults.values()),
        "stops": len(found.stops),
        "changes": len(found.changed),
        "grown_mib": round(found.grown_bytes / (1 << 20), 1),
    }


def _problems(kind: Kind, found: Found) -> list[str]:
    said = [f"{kind}: {count} × {fault}" for fault, count in found.faults.most_common(SAID)]
    said += [f"{kind}: an agent would have stopped: {why}" for why in found.stops[:SAID]]
    if kind != "changed":
        said += [f"{kind}: {change}" for change in found.changed[:SAID]]
    if found.stood_still:
        said.append(f"{kind}: {found.stood_still} fleets made no window any more")
    if found.grown_bytes > GROWN_BYTES_MAX:
        said.append(f"{kind}: the fleet grew by {found.grown_bytes >> 20} MiB")
    return said
