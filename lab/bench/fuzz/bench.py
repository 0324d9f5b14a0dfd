"""``elf bench fuzz``: what a fleet does with frames that no honest agent would send.

Who sends them has no key, a key with the role ``read``, or is a member (``--keys``). The first two are at
real agents with keys (``closed``), the third at a fleet without keys on virtual time (``member``). Each kind
of frames is a side, with a fleet of its own, which has a job at work: random bytes, damaged real frames,
well-typed random messages, and real messages with changed fields and right checksums; without a key, what
comes before a message (``stranger``).

No agent may stop, fail in handling a message, or grow by more than ``GROWN_BYTES_MAX``; windows must go on
and be right; members and jobs must stay what they are. All that is refused must be counted. What a member
changes by a changed real message is reported: it says what a member may say.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Final

from typer import Option

from lab.bench.fuzz.found import SAID, Found, FuzzKeys
from lab.bench.fuzz.frames import KINDS
from lab.bench.runner import Bench, Figure, Report, Scratch

WHO: Final = {
    FuzzKeys.NONE: "without a key",
    FuzzKeys.READER: "with a reader's key",
    FuzzKeys.MEMBER: "of a member",
}


@dataclass(frozen=True)
class Fuzz(Bench[str, Found]):
    """Frames of all kinds."""

    frames: Annotated[int, Option("--frames", min=4, help="How many, of all kinds together.")] = 40_000
    seed: Annotated[int, Option("--seed", help="The same seed makes the same frames.")] = 1
    share: Annotated[
        float, Option("--known", min=0.0, max=1.0, help="So many of the names in them are real ones.")
    ] = 0.0
    keys: Annotated[FuzzKeys, Option("--keys", help="Whose key they come with.")] = FuzzKeys.MEMBER
    repeat: int = 1

    def sides(self, scratch: Scratch) -> Mapping[str, Callable[[], Found]]:
        """A side a kind."""
        each = self.frames // len(KINDS)
        if self.keys == FuzzKeys.MEMBER:
            from lab.bench.fuzz import member

            return {kind: partial(member.attack, kind, each, self.seed, self.share) for kind in KINDS}
        from lab.bench.fuzz import closed

        sent = partial(closed.attack, scratch.folder, self.keys)
        return {kind: partial(sent, kind, each, self.seed, self.share) for kind in closed.kinds_of(self.keys)}

    def report(self, runs: Mapping[str, Sequence[Found]]) -> Report:
        """What each kind came to."""
        found = {kind: one[-1] for kind, one in runs.items()}
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
        who, member = WHO[self.keys], self.keys == FuzzKeys.MEMBER
        return Report(
            {kind: one.facts() for kind, one in found.items()},
            [
                Figure(f"frames {who} that a fleet of three takes or refuses", rate, "a second"),
                Figure(f"the most that {'it' if member else 'an agent'} grows meanwhile", grown, "MiB"),
            ],
            notes,
            {"refused": refused, "taken": taken},
            [
                said
                for kind, one in found.items()
                for said in one.problems(kind, may_change=member and kind == "changed")
            ],
        )
