"""Entries of the catalog log by which agents join the stream of simulated fleets."""

from __future__ import annotations

from elf.fields import Labels
from elf.job.messages.log import MemberJoined
from lab.chaos.engine import STREAM


def joined(
    seq: int, number: int, *, place: str = "", labels: Labels | None = None, start: int = 1
) -> MemberJoined:
    """Agent ``a<number>`` becomes that member, with its ``start``-th start."""
    return MemberJoined(
        seq=seq,
        stream=STREAM,
        number=number,
        agent_id=f"id{number}",
        name=f"a{number}",
        incarnation=start,
        address=f"a{number}:1",
        since_us=-1,
        labels=labels,
        place=place,
    )
