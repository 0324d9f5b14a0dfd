"""What comes of the frames of one kind, and what of it must not be."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

GROWN_BYTES_MAX: Final = 256 << 20
SAID: Final = 10
"""Different faults that are named."""


class FuzzKeys(StrEnum):
    """Whose key the frames come with."""

    NONE = "none"
    READER = "reader"
    MEMBER = "member"


@dataclass
class Found:
    """``frames`` were sent, over so many ``connections`` (0: nobody counted them), and ``seconds`` taken by
    it. ``refused``: by reason, as agents count it; ``taken``: by message. ``lost``: where what agents count
    is not what was sent. ``windows`` were right, ``stood_still`` fleets made none any more. ``grown_bytes``
    and ``resident_bytes``: the most of any agent, or of the process of all."""

    frames: int = 0
    connections: int = 0
    seconds: float = 0.0
    refused: Counter[str] = field(default_factory=Counter)
    taken: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    skipped: Counter[str] = field(default_factory=Counter)
    stops: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    windows: int = 0
    stood_still: int = 0
    grown_bytes: int = 0
    resident_bytes: int = 0

    def facts(self) -> Mapping[str, object]:
        """For people and programs."""
        why = ", ".join(f"{reason} {count}" for reason, count in self.refused.most_common())
        return {
            "frames": self.frames,
            **({"connections": self.connections} if self.connections else {}),
            "refused": self.refused.total(),
            "why": why or "-",
            "frames_a_second": round(self.frames / max(self.seconds, 1e-9)),
            "windows_right": self.windows,
            "faults": self.faults.total(),
            "stops": len(self.stops),
            "changes": len(self.changed),
            "grown_mib": round(self.grown_bytes / (1 << 20), 1),
            "resident_mib": round(self.resident_bytes / (1 << 20), 1),
        }

    def problems(self, kind: str, *, may_change: bool = False) -> list[str]:
        """What must not be. ``may_change``: these frames say what may be said, so what they change is no
        fault."""
        said = [f"{kind}: {count} × {fault}" for fault, count in self.faults.most_common(SAID)]
        said += [f"{kind}: an agent would have stopped: {why}" for why in self.stops[:SAID]]
        said += [f"{kind}: {lost}" for lost in self.lost[:SAID]]
        if not may_change:
            said += [f"{kind}: {change}" for change in self.changed[:SAID]]
        if self.stood_still:
            said.append(f"{kind}: {self.stood_still} fleets made no window any more")
        if self.grown_bytes > GROWN_BYTES_MAX:
            said.append(f"{kind}: the fleet grew by {self.grown_bytes >> 20} MiB")
        return said
