"""Planted bugs of section 13 of the protocol: flows that begin in the past."""

from __future__ import annotations

import pyarrow as pa
import pytest

from agents.inputs.values import Chunk
from agents.tasks import past as past_of_tasks
from agents.tasks.past import Pasts, Roll
from elf.fields import replace
from elf.job.checkpoint import FlowCheckpoint
from elf.job.commands import Replay
from elf.job.past import Past, Records
from elf.job.worker.assigning import Mask, View
from elf.job.worker.flowstate import FlowState
from lab.chaos.past import ROLL_ROWS


def forgets_what_it_has_read(patch: pytest.MonkeyPatch) -> None:
    """protocol 13.1: a checkpoint does not say how much of a roll a flow has read."""
    checkpoint = FlowState.checkpoint

    def forgotten(state: FlowState) -> FlowCheckpoint:
        found = checkpoint(state)
        if found.past is None:
            return found
        begin = found.past.position // ROLL_ROWS * ROLL_ROWS
        return replace(found, past=replace(found.past, position=begin))

    patch.setattr(FlowState, "checkpoint", forgotten)


def counts_the_line_at_x_twice(patch: pytest.MonkeyPatch) -> None:
    """protocol 13.2: the first live line of a flow is the last one that it found in the archive."""
    feed = FlowState.feed

    def fed(state: FlowState, source: str, chunk: Chunk, view: View, late_of: Mask | None = None) -> object:
        if state.flow.fragment.since_us is not None and state.flow.uid not in seen:
            seen.add(state.flow.uid)
            state.replay(view, Records(source, source, pa.array([], pa.string()), view.offsets))
        return feed(state, source, chunk, view, late_of)

    seen = set[str]()
    patch.setattr(FlowState, "feed", fed)


def misses_what_came_meanwhile(patch: pytest.MonkeyPatch) -> None:
    """protocol 13.2: a flow goes over to live lines at the end of a round, whatever was archived since."""
    take = Pasts.take

    def taken(pasts: Pasts, found: past_of_tasks.Slice, now_ms: int) -> Replay | None:
        replay = take(pasts, replace(found, rolls=found.rolls or (Roll(0, 0, 0, ()),)), now_ms)
        return replay if replay is None or found.rolls else replace(replay, past=None)

    patch.setattr(Pasts, "take", taken)


def seals_what_is_not_read(patch: pytest.MonkeyPatch) -> None:
    """protocol 13.3: a flow seals panes of which it has not read all that is archived."""
    patch.setattr(Past, "sealable", property(lambda past: past.ceiling))
