"""Planted bugs of section 13 of the protocol: flows that begin in the past."""

from __future__ import annotations

import pyarrow as pa
import pytest

from agents.inputs.values import Chunk
from agents.tasks import past as past_of_tasks
from agents.tasks.offloading import Offloading
from agents.tasks.past import Pasts, Roll
from elf.fields import replace
from elf.job.checkpoint import FlowCheckpoint
from elf.job.commands import Replay
from elf.job.messages.helping import RowsMapped, RowsNotMapped
from elf.job.past import END_OF_TIME, Past, Records
from elf.job.worker.assigning import Mask, View
from elf.job.worker.flowstate import FlowState
from lab.chaos import task
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


def maps_the_last_rows_twice(patch: pytest.MonkeyPatch) -> None:
    """protocol 13.8: a helper begins before the position at which the agent has ended."""
    _goes_over(patch, -5)


def maps_the_next_rows_nowhere(patch: pytest.MonkeyPatch) -> None:
    """protocol 13.8: a helper begins behind the position at which the agent has ended."""
    _goes_over(patch, 5)


def _goes_over(patch: pytest.MonkeyPatch, by: int) -> None:
    go_over = FlowState.go_over

    def gone_over(state: FlowState, position: int) -> None:
        go_over(state, position + by)

    patch.setattr(FlowState, "go_over", gone_over)


def believes_whoever_answers(patch: pytest.MonkeyPatch) -> None:
    """protocol 13.8: an answer is taken whatever was asked for, and by whom."""

    def taken(offloading: Offloading, answer: RowsMapped | RowsNotMapped, now_ms: int) -> Replay | None:
        state = offloading.worker.states().get(answer.flow)
        if isinstance(answer, RowsNotMapped) or state is None or not state.is_over:
            return None
        past = replace(answer.past, ceiling=state.sealed, floor=END_OF_TIME)
        return Replay(answer.flow, (), past, now_ms, mapped=answer.mapped)

    patch.setattr(Offloading, "take", taken)


def seals_by_the_clock(patch: pytest.MonkeyPatch) -> None:
    """protocol 13.9: a round seals what live flows would have sealed when it is read, and not when its last
    roll was closed."""
    take = Offloading.take

    def sooner(offloading: Offloading, answer: RowsMapped | RowsNotMapped, now_ms: int) -> Replay | None:
        replay = take(offloading, answer, now_ms)
        if replay is None or replay.past is None:
            return replay
        now = offloading.worker.sealable(offloading.worker.states()[answer.flow].flow)
        return replace(replay, past=replace(replay.past, ceiling=now))

    patch.setattr(Offloading, "take", sooner)


def deletes_what_a_helper_has_not_read(patch: pytest.MonkeyPatch) -> None:
    """protocol 13.10: retention deletes archived rows whoever is still to read them."""
    patch.setattr(task, "positions_needed", lambda checkpoint: None)
