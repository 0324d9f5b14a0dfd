"""Planted bugs of section 3 of the protocol: the checkpoint."""

from __future__ import annotations

from functools import partial

import msgspec
import pytest

from agents.node.lending import Agreed, Lending
from agents.tasks import past as past_of_tasks
from elf.fields import replace
from elf.job.catalog.log import CatalogLog
from elf.job.commands import Command, Feed, Idle, Install, Outcome
from elf.job.sampling import why_whole
from elf.job.spec import END_OF_TIME, JobSpec
from elf.job.worker import assigning
from elf.job.worker.flowstate import FlowState
from elf.job.worker.openpanes import OpenPanes
from elf.job.worker.postponed import Part, PostponedOf
from elf.job.worker.sources import Sources
from lab.chaos.filetask import FileTask
from lab.chaos.task import SimTask


def forgets_open_panes(patch: pytest.MonkeyPatch) -> None:
    """protocol 3.1: the checkpoint leaves out the groups of open panes."""
    images = OpenPanes.images

    def forgotten(panes: OpenPanes, *, parted: bool) -> tuple[bytes, bytes, bytes, bytes]:
        return b"", b"", images(panes, parted=parted)[2], b""

    patch.setattr(OpenPanes, "images", forgotten)


def writes_the_readers_positions(patch: pytest.MonkeyPatch) -> None:
    """protocol 3.1: a checkpoint has the positions of the input at that moment, not those behind its own
    chunks."""
    perform = FileTask._perform

    def ahead(task: FileTask, command: Command) -> Outcome:
        if isinstance(command, Feed | Idle):
            task._positions[0] = task._tail.positions()
        return perform(task, command)

    patch.setattr(FileTask, "_perform", ahead)


def keeps_one_position(patch: pytest.MonkeyPatch) -> None:
    """protocol 3.2: the checkpoint has one position for all flows, that of the reader, not what each has
    applied."""
    keep = SimTask._keep

    def kept(task: SimTask, outcome: Outcome) -> bool:
        checkpoint = outcome.checkpoint
        if checkpoint is not None:
            flows = tuple(replace(flow, applied=(("log", task.position),)) for flow in checkpoint.flows)
            outcome = replace(outcome, checkpoint=replace(checkpoint, flows=flows))
        return keep(task, outcome)

    patch.setattr(SimTask, "_keep", kept)


def sends_before_the_checkpoint(patch: pytest.MonkeyPatch) -> None:
    """protocol 3.3: what is sealed leaves the agent, and a second later the checkpoint is written."""

    def work(task: SimTask) -> None:
        command = task._waiting.pop(0)
        assert not isinstance(command, past_of_tasks.Slice)
        outcome = task.worker.handle(command)
        task._done(command, outcome)

        def keep() -> None:
            task._keep(outcome)

        task._agent.world.after(1_000, task._agent, keep)

    patch.setattr(SimTask, "_work", work)


def takes_a_stop_for_silence(patch: pytest.MonkeyPatch) -> None:
    """protocol 3.4: who was stopped takes its files for silent, and closes windows on their unread lines."""
    patch.setattr(Sources, "awake", lambda sources, now_ms: None)


def answers_with_a_chunk_queued(patch: pytest.MonkeyPatch) -> None:
    """protocol 3.6: a new flow begins behind all that was read, its first pane behind what was parsed."""
    give = SimTask.give

    def hasty(task: SimTask, command: Command) -> None:
        if not isinstance(command, Install):
            give(task, command)
            return
        task.worker.handle(command)
        task.worker.states()[command.flow.uid].applied["log"] = task.position
        outcome = replace(task.worker._outcome((), must_checkpoint=True))
        if task._keep(outcome):
            task._agent.world.after(1, task._agent, partial(task._told, command, outcome))

    patch.setattr(SimTask, "give", hasty)


def forgets_the_weight_of_what_waits(patch: pytest.MonkeyPatch) -> None:
    """protocol 3.9: the weight of the rows that wait for the map is in the checkpoint."""
    checkpoint = FlowState.checkpoint
    patch.setattr(FlowState, "checkpoint", lambda state: replace(checkpoint(state), weight=1))


def maps_what_waits_at_the_next_weight(patch: pytest.MonkeyPatch) -> None:
    """protocol 3.9: rows that wait for the map when a weight changes are of the weight before."""

    def weigh(state: FlowState, weight: int, whose: str) -> None:
        state.weight, state.whose = 1 if why_whole(state.flow.fragment) else weight, whose

    patch.setattr(FlowState, "weigh", weigh)


def says_nothing_of_what_is_left_out(patch: pytest.MonkeyPatch) -> None:
    """protocol 3.10: a pane says how many of its rows were left out."""
    count = FlowState._count

    def counted(state: FlowState, share: assigning.Share, counts: dict[str, int]) -> None:
        count(state, msgspec.structs.replace(share, sampled=None), counts)

    patch.setattr(FlowState, "_count", counted)


def leaves_out_rows_of_who_has_not_agreed(patch: pytest.MonkeyPatch) -> None:
    """protocol 3.11: for a promise rows are left out of what all readers have agreed to."""
    meant, readers = Lending._agreed, CatalogLog.readers

    def some(log: CatalogLog, uid: str) -> tuple[JobSpec, ...]:
        found = readers(log, uid)
        return tuple(spec for spec in found if spec.plan.promise is not None) or found

    def agreed(lending: Lending, uid: str) -> Agreed:
        with pytest.MonkeyPatch.context() as within:
            within.setattr(CatalogLog, "readers", some)
            return meant(lending, uid)

    patch.setattr(Lending, "_agreed", agreed)


def forgets_what_is_postponed(patch: pytest.MonkeyPatch) -> None:
    """protocol 3.12: rows that wait for their turn are in the checkpoint."""
    patch.setattr(PostponedOf, "images", lambda postponed: ())


def seals_before_what_is_postponed(patch: pytest.MonkeyPatch) -> None:
    """protocol 3.12: no pane is sealed before its rows are mapped."""
    patch.setattr(PostponedOf, "first", property(lambda postponed: END_OF_TIME))
    patch.setattr(PostponedOf, "below", lambda postponed, pane: [])


def says_nothing_of_what_is_cut_short(patch: pytest.MonkeyPatch) -> None:
    """protocol 3.12: what is cut short is counted as left out, and its panes name the promise."""

    def cut_short(state: FlowState, part: Part, whose: str) -> int:
        state.postponed.cut_short(part)
        return 0

    patch.setattr(FlowState, "cut_short", cut_short)
