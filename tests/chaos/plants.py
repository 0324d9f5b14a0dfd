"""Planted bugs: each takes a rule of ``docs/dev/protocol.md`` out, where the product keeps it."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pytest

from agents.answering.tables import Tables
from agents.committing import opening, panecommits
from agents.committing.kept import alike
from agents.committing.panetables import Merged
from agents.disk import tablestore
from agents.disk.store import Store
from agents.inputs.copies import Ended
from agents.inputs.files import Files
from agents.inputs.follower import Follower
from agents.inputs.rotated import FileId, Rotated
from agents.inputs.tail import Tail
from agents.inputs.values import Chunk, Position
from agents.node.groups import GroupDesk
from agents.node.hosting import Hosting
from agents.tasks import past as past_of_tasks
from agents.tasks.past import Pasts, Roll
from elf.aggregates import split_by_range
from elf.fields import replace
from elf.functions.aggregate import Aggregate
from elf.job import units
from elf.job.catalog.log import CatalogLog
from elf.job.catalog.members import FOREVER_US, Member
from elf.job.checkpoint import FlowCheckpoint, TapsCheckpoint
from elf.job.commands import Command, Feed, Idle, Install, Outcome, Replay, Resume, Suspend
from elf.job.contributions import Piece, Pile, bitmap, numbers
from elf.job.counters import COUNTER_COLUMNS
from elf.job.effects import CommitWindows, Deliver, Effect, SaveMaster, SaveOutput, Send, Work
from elf.job.group.groups import JobGroups
from elf.job.group.outputs import Outputs, _Output
from elf.job.messages.log import AssignJobGroup, DecideTrees, JobGroupAssigned, TreesDecided
from elf.job.messages.rollup import OfferReplicas, Slice
from elf.job.openparts import is_open
from elf.job.past import Past, Records
from elf.job.ports import Int64s
from elf.job.program import api, keeping, keyed, masters
from elf.job.program.calls import Place
from elf.job.program.keeping import Checkpoint, Keeping, Lasting
from elf.job.program.messages import Note
from elf.job.program.outgoing import Outgoing, Step
from elf.job.program.running import Running
from elf.job.program.seats import MASTER, masters_name, seat_named
from elf.job.program.spec import Tap
from elf.job.rollup.answer import Answers
from elf.job.rollup.collect import Covered
from elf.job.rollup.decide import Stragglers
from elf.job.rollup.panes import Panes, Segment
from elf.job.rollup.proxies import Proxies
from elf.job.rollup.retained import Retained
from elf.job.rollup.root import Root
from elf.job.rollup.sender import Sender, _Line
from elf.job.rollup.slices import reissued
from elf.job.sampling import why_whole
from elf.job.snapshots import Sealed
from elf.job.spec import Flow, JobSpec
from elf.job.stragglers import Drops
from elf.job.worker import assigning, taps
from elf.job.worker.assigning import Mask, View
from elf.job.worker.flowstate import FlowState
from elf.job.worker.provenance import OpenProvenance, Run, runs_of
from elf.job.worker.sources import Sources
from elf.ql.plan import Fragment, Top
from elf.wire.heard import Heard
from lab.chaos.filetask import FileTask
from lab.chaos.past import ROLL_ROWS
from lab.chaos.task import SimTask
from overlay.raft.election import Election
from overlay.raft.leading import Leadership, Progress
from overlay.raft.messages import TimeoutNow, VoteRequest
from overlay.raft.values import Member as Voter

Ends = tuple[tuple[str, str, int], ...]
Plant = Callable[[pytest.MonkeyPatch], None]


def saves_before_it_is_delivered(patch: pytest.MonkeyPatch) -> None:
    """protocol 7.8: how far an output has got is committed when a delivery begins."""
    advance = Outputs._advance

    def advanced(outputs: Outputs, one: _Output, now_ms: int) -> list[Effect]:
        found = advance(outputs, one, now_ms)
        if any(isinstance(effect, Deliver) for effect in found) and one.at is not None:
            found.insert(0, SaveOutput(replace(one.at, number=outputs._published)))
        return found

    patch.setattr(Outputs, "_advance", advanced)


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


def expects_whoever_has_the_stream(patch: pytest.MonkeyPatch) -> None:
    """protocol 2.6: who cannot have a row of a flow is expected in its panes."""
    patch.setattr(CatalogLog, "asked", lambda log, fragment: log.members(fragment.stream))


def forgets_what_an_alert_remembers(patch: pytest.MonkeyPatch) -> None:
    """protocol 7.10: what an alert remembers is committed with how far it has got."""
    advance = Outputs._advance

    def advanced(outputs: Outputs, one: _Output, now_ms: int) -> list[Effect]:
        found = advance(outputs, one, now_ms)
        return [SaveOutput(replace(e.kept, state=b"")) if isinstance(e, SaveOutput) else e for e in found]

    patch.setattr(Outputs, "_advance", advanced)


def lets_older_windows_win(patch: pytest.MonkeyPatch) -> None:
    """protocol 7.12: of two windows that have a group the later one counts, whichever comes first."""
    patch.setattr(tablestore, "_PUT", tablestore._PUT.partition(" WHERE ")[0])


def reads_tables_before_they_have_all(patch: pytest.MonkeyPatch) -> None:
    """protocol 7.14: a table that takes the place of another one is read when it has its rows."""
    add = tablestore._add
    patch.setattr(
        tablestore, "_add", lambda con, kept, said, rounds: add(con, kept, said, (*rounds[:2], True))
    )


def reads_tables_of_any_moment(patch: pytest.MonkeyPatch) -> None:
    """protocol 7.13: who has read a table takes no answer from before that."""
    patch.setattr(Tables, "_taken", lambda tables, spec, rows: rows)


def forgets_which_rows_open_panes_have(patch: pytest.MonkeyPatch) -> None:
    """protocol 7.11: which rows open panes have counted is in the checkpoint."""
    patch.setattr(OpenProvenance, "image", lambda provenance: b"")


def takes_late_rows_for_counted(patch: pytest.MonkeyPatch) -> None:
    """protocol 7.11: a range holds no row of its pane that was not counted."""

    def runs(panes: Int64s, offsets: Int64s, counted: Mask) -> tuple[Run, ...]:
        return runs_of(panes, offsets, np.ones_like(counted))

    patch.setattr(assigning, "runs_of", runs)


def sends_slices_at_once(patch: pytest.MonkeyPatch) -> None:
    """protocol 14.2: what a job in Python sends does not wait for its checkpoint."""
    perform = Outgoing.save

    def saved(outgoing: Outgoing, running: Running, now_ms: int) -> list[Step]:
        found = perform(outgoing, running, now_ms)
        held = [one for _, one in running.keeping._held]
        running.keeping._held.clear()
        return [*found, *(step for one in held for step in outgoing._leave(running, one, now_ms))]

    patch.setattr(Outgoing, "save", saved)


def forgets_slices(patch: pytest.MonkeyPatch) -> None:
    """protocol 14.3: what others do not have yet is in no checkpoint."""
    patch.setattr(keeping, "Checkpoint", partial(_without, waiting=()))


def takes_slices_again(patch: pytest.MonkeyPatch) -> None:
    """protocol 14.4: the names of slices that were received are in no checkpoint."""
    patch.setattr(keeping, "Checkpoint", partial(_without, received=()))


def says_at_once_that_slices_are_kept(patch: pytest.MonkeyPatch) -> None:
    """protocol 14.4: a slice is said to be kept before that is durable."""
    received = Keeping.received

    def known(kept: Keeping, agent: str, number: int, settled: int) -> bool | None:
        found = received(kept, agent, number, settled)
        return None if found is None else True

    noted = Outgoing.noted

    def answered(outgoing: Outgoing, running: Running, sender: str, slice_: Note, place: Place) -> list[Step]:
        return [
            *noted(outgoing, running, sender, slice_, place),
            outgoing._keeps(running, (sender, slice_.of), slice_.number),
        ]

    patch.setattr(Keeping, "received", known)
    patch.setattr(Outgoing, "noted", answered)


def keeps_masters_to_itself(patch: pytest.MonkeyPatch) -> None:
    """protocol 14.9: a master's checkpoint counts at once, and its job group never hears of it."""
    save = Outgoing.save

    def alone(outgoing: Outgoing, running: Running, now_ms: int) -> list[Step]:
        found = save(outgoing, running, now_ms)
        masters = [one for one in found if isinstance(one, SaveMaster)]
        others = [one for one in found if one not in masters]
        return [*others, *(step for one in masters for step in outgoing.saved(running, one.number, now_ms))]

    patch.setattr(Outgoing, "save", alone)


def masters_begin_anew(patch: pytest.MonkeyPatch) -> None:
    """protocol 14.9: who leads a job group next begins without what the master had."""
    patch.setattr(
        masters.Led, "checkpoint", property(lambda led: None, lambda led, kept: None), raising=False
    )


def forgets_what_was_asked_for(patch: pytest.MonkeyPatch) -> None:
    """protocol 14.15: the keys that a job has asked for are in no checkpoint."""
    patch.setattr(keeping, "Checkpoint", partial(_without, asks=b""))


def feeds_back_to_all(patch: pytest.MonkeyPatch) -> None:
    """protocol 14.15: agents are given what they have not asked for."""

    def everything(value: bytes, asks: object) -> Iterator[bytes]:
        yield from (pair for _, pair in keyed._entries(value))

    patch.setattr(keyed, "chosen", everything)


def spreads_groups_anyhow(patch: pytest.MonkeyPatch) -> None:
    """protocol 14.12: which tree a group goes up depends on what it is sent with."""

    def anyhow(groups: pa.Table, keys: Sequence[str], count: int) -> tuple[pa.Table, ...]:
        parts, turn = split_by_range(groups, keys, count), groups.num_rows % count
        return (*parts[turn:], *parts[:turn])

    patch.setattr(api, "split_by_range", anyhow)


def sends_all_to_the_first_master(patch: pytest.MonkeyPatch) -> None:
    """protocol 14.13: the slices of all trees are for the master of the first."""
    receiver = Outgoing.receiver

    def first(outgoing: Outgoing, running: Running, address: str, tree: int) -> str:
        found = receiver(outgoing, running, address, tree)
        return masters_name(MASTER) if seat_named(found) else found

    patch.setattr(Outgoing, "receiver", first)


def forgets_which_rows_it_has(patch: pytest.MonkeyPatch) -> None:
    """protocol 14.5: how far rows were given is in no checkpoint of the job."""
    patch.setattr(keeping, "Checkpoint", partial(_without, given=()))


def keeps_no_rows_for_jobs(patch: pytest.MonkeyPatch) -> None:
    """protocol 14.5: rows that no checkpoint of the job has are in none of the stream."""
    patch.setattr(taps, "TapsCheckpoint", _without_rows)


def _without_rows(
    uid: str, wanted: tuple[Tap, ...], pane_us: int, ends: Ends, unkept: object
) -> TapsCheckpoint:
    return TapsCheckpoint(uid, wanted, pane_us, ends, ())


def begins_processes_without_calls(patch: pytest.MonkeyPatch) -> None:
    """protocol 14.6: a process that takes another's place is given its state, and no call since."""
    patch.setattr(Lasting, "again", lambda lasting: [])


def tells_panes_from_anywhere(patch: pytest.MonkeyPatch) -> None:
    """protocol 14.7: which pane is next is in no checkpoint."""
    patch.setattr(keeping, "Checkpoint", partial(_without, pane=None))


def _without(*values: object, **nothing: object) -> Checkpoint:
    """A checkpoint without one of its parts."""
    names = Checkpoint.__struct_fields__
    return Checkpoint(**(dict(zip(names, values, strict=False)) | nothing))  # type: ignore[arg-type]


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


def merges_what_overlaps(patch: pytest.MonkeyPatch) -> None:
    """protocol 4.2, protocol 4.3: inner nodes and roots keep pieces that cover the same member."""

    def add(pile: Pile, piece: Piece) -> None:
        pile._pieces.append(piece)

    def take(root: Root, piece: Piece) -> None:
        if root.first_pane is not None and piece.end > root.covered.committed_to():
            root.covered._held.add(piece.clip(root.covered.committed_to(), piece.end))

    patch.setattr(Pile, "add", add)
    patch.setattr(Root, "take", take)
    _look_away(patch)


def _look_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """What would see that pieces overlap looks away."""

    def members(pieces: Sequence[Piece]) -> int:
        return bitmap(number for piece in pieces for number in numbers(piece.members))

    monkeypatch.setattr(Pile, "check", lambda pile: None)
    for room in ("elf.job.effects", "elf.job.rollup.decide", "agents.committing.panecommits"):
        monkeypatch.setattr(f"{room}.members_of", members)


def counts_by_place(patch: pytest.MonkeyPatch) -> None:
    """protocol 1.5: a contribution set is over places in the roster of the moment, not member numbers."""

    def members(log: CatalogLog, stream: str) -> tuple[Member, ...]:
        there = [m for m in log._members.get(stream, {}).values() if m.until_us == FOREVER_US]
        there.sort(key=lambda member: member.number)
        first = min(log._members.get(stream, {}), default=0)
        return tuple(replace(member, number=first + place) for place, member in enumerate(there))

    patch.setattr(CatalogLog, "members", members)


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


def forgets_open_panes(patch: pytest.MonkeyPatch) -> None:
    """protocol 3.1: the checkpoint leaves out the trees of open panes."""
    patch.setattr("elf.cbt.BufferTree.dump", lambda tree: b"")


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


def commits_before_a_majority(patch: pytest.MonkeyPatch) -> None:
    """protocol 5.1: a leader takes for committed what it has itself."""

    def own(leadership: Leadership, value: Callable[[Progress], int], own: int) -> int:
        return own

    patch.setattr(Leadership, "_majority", own)


def has_one_quota(patch: pytest.MonkeyPatch) -> None:
    """protocol 4.8: what is retained of one flow counts against all."""

    def quota(sender: Sender, line: _Line) -> list[Effect]:
        held = sum(other.retained.bytes for other in sender._lines.values())
        stream = line.flow.fragment.stream
        if not line.suspended and held > sender._retained_bytes_max:
            line.suspended = True
            return [Work(stream, Suspend(line.flow.uid))]
        if line.suspended and held < sender._retained_bytes_max // 2:
            line.suspended = False
            return [Work(stream, Resume(line.flow.uid))]
        return []

    patch.setattr(Sender, "_quota", quota)


def revises_what_was_dropped(patch: pytest.MonkeyPatch) -> None:
    """protocol 8.3: a root takes what comes after the last word."""
    patch.setattr(Root, "take", without_dropping(Root.take, lambda root: root))
    patch.setattr(Answers, "verdicts", without_dropping(Answers.verdicts, lambda answers: answers._panes))


def without_dropping(
    method: Callable[..., object], panes_of: Callable[[Any], Panes]
) -> Callable[..., object]:
    """The same at a root that knows nothing of dropping."""

    def call(which: object, *given: object) -> object:
        panes = panes_of(which)
        flow = panes.flow
        panes.flow = replace(flow, fragment=replace(flow.fragment, leap=False))
        try:
            return method(which, *given)
        finally:
            panes.flow = flow

    return call


def decides_for_each_range(patch: pytest.MonkeyPatch) -> None:
    """protocol 8.8: the root of each key range leaps over whom it misses itself."""
    for room in ("root", "sender", "holding"):
        patch.setattr(f"elf.job.rollup.{room}.follows", lambda fragment: False)


def forgets_what_was_dropped(patch: pytest.MonkeyPatch) -> None:
    """protocol 8.4: a snapshot is deleted as if it were in a commit, and its rows are counted nowhere."""

    def take(drops: Drops, names: object) -> tuple[()]:
        return ()

    patch.setattr(Drops, "take", take)


def drops_open_panes_unseen(patch: pytest.MonkeyPatch) -> None:
    """protocol 8.4: an open pane is dropped, and so are the counts of its rows."""
    patch.setattr("elf.job.worker.flowstate.left_over", lambda counters, spans: Counter())


def drops_too_much(patch: pytest.MonkeyPatch) -> None:
    """protocol 8.3: a stream task leaves out more panes than were committed without it."""
    leap = FlowState.leap

    def far(state: FlowState, below: int, counted: Mapping[str, int]) -> int:
        return leap(state, below + 4 * (below > state.sealed), counted)

    patch.setattr(FlowState, "leap", far)


def does_not_wait_for_the_dead(patch: pytest.MonkeyPatch) -> None:
    """protocol 8.2: WAIT is for those only that are taken to be alive."""
    patch.setattr(Stragglers, "_begun", lambda stragglers, pane: 0)


def is_always_sure(patch: pytest.MonkeyPatch) -> None:
    """protocol 8.6: a root commits the first of what came, whatever was left out."""
    patch.setattr("elf.job.thresholds._check", lambda *_: None)


def forgets_what_was_left_out(patch: pytest.MonkeyPatch) -> None:
    """protocol 8.6: what agents say about what they left out gets lost when it is merged."""
    merge = opening._merged

    def forget(
        fragment: Fragment, pieces: Sequence[Piece], keep: Top | None, types: opening.Types | None, last: bool
    ) -> Merged:
        names = ("cut", "left", "lowest", "highest", "seen")
        return Merged(
            *(
                one and one.drop_columns([name for name in names if name in one.column_names])
                for one in merge(fragment, pieces, keep, types, last)
            )
        )

    patch.setattr(opening, "_merged", forget)


def skips_what_got_lost(patch: pytest.MonkeyPatch) -> None:
    """protocol 7.3: a reader takes what comes, and asks only for what is after that."""

    def take(heard: Heard, number: int, before: int) -> bool:
        heard.upto = max(heard.upto or 0, number)
        return True

    patch.setattr(Heard, "take", take)


def reissues_as_its_own(patch: pytest.MonkeyPatch) -> None:
    """protocol 9.1: a proxy sends what it has under another number than the owner's."""

    def other(flow: Flow, number: int, snapshots: Iterable[Sealed]) -> list[Slice]:
        return reissued(flow, number + 1 if number % 2 == 0 else number - 1, snapshots)

    patch.setattr("elf.job.rollup.holding.reissued", other)


def forgets_replicas_early(patch: pytest.MonkeyPatch) -> None:
    """protocol 9.2: a holder takes each commit for one with all members in it."""
    patch.setattr("elf.job.rollup.holding.from_bytes", lambda members: -1)


def holds_a_mirrors_piece_beside(patch: pytest.MonkeyPatch) -> None:
    """protocol 9.4: what a neighbour sends for an agent is kept, whether the agent's own is there or not."""

    def take(proxies: Proxies, root: Root, sender: str, piece: Piece, now_ms: int) -> None:
        others = [n for n in numbers(piece.members) if (m := root.member(n)) and m.address != sender]
        if others and root.first_pane is not None and piece.end > root.covered.committed_to():
            root.covered._held._pieces.append(piece.clip(root.covered.committed_to(), piece.end))

    patch.setattr(Proxies, "take", take)
    _look_away(patch)


def takes_any_window_for_its_own(patch: pytest.MonkeyPatch) -> None:
    """protocol 7.1: what an equal job has had made is taken whatever the revisions of its panes are."""

    def key(effect: CommitWindows) -> Hashable | None:
        return alike(replace(effect, coverage=()))

    patch.setattr("agents.committing.windowcommits.alike", key)


def revises_what_is_reduced(patch: pytest.MonkeyPatch) -> None:
    """protocol 6.5: a revision is made of what the reduce function has made of the pane, not was given."""
    patch.setattr(Store, "raw_of", lambda *_: {})


def spreads_what_belongs_together(patch: pytest.MonkeyPatch) -> None:
    """protocol 1.7: a group is in a range by all of its keys, and its root does what some of them decide."""
    patch.setattr(Fragment, "ranged_by", property(lambda fragment: fragment.group_keys))


def revises_what_is_staged(patch: pytest.MonkeyPatch) -> None:
    """protocol 6.8: a revision is made of what a later stage has made of the pane, not was given."""
    patch.setattr(Store, "raw_of", lambda *_: {})


def passes_off_as_reduced(patch: pytest.MonkeyPatch) -> None:
    """protocol 6.6: the counters of a pane on which the reduce function has failed does not say so."""
    marked = panecommits._marked
    patch.setattr(panecommits, "_marked", lambda counters, left: marked(counters, ()))


def says_nothing_of_a_failure(patch: pytest.MonkeyPatch) -> None:
    """protocol 6.6: nor does a window that is made of such a pane."""
    patch.setattr("agents.committing.status._counted", lambda _: COUNTER_COLUMNS)


def merges_equal_states_once(patch: pytest.MonkeyPatch) -> None:
    """protocol 6.9: a state of an aggregate of one's own that is there several times is taken for one."""
    for name in ("merge", "value"):
        patch.setattr(Aggregate, name, _once(getattr(Aggregate, name)))


def _once(call: Callable[..., pa.Array]) -> Callable[..., pa.Array]:
    def called(own: Aggregate, ids: Int64s, states: pa.Array, times: pa.Array) -> pa.Array:
        return call(own, ids, states, pa.array([1] * len(times), pa.int64()))

    return called


def appoints_no_proxy(patch: pytest.MonkeyPatch) -> None:
    """protocol 9.3: nobody sends what a dead agent had sealed."""
    patch.setattr(Proxies, "_appoint", lambda proxies, snapshot, holder, now_ms: False)


def takes_main_snapshots_beside_parts(patch: pytest.MonkeyPatch) -> None:
    """protocol 9.7: a root does not look at open parts when the main snapshot comes."""
    patch.setattr(Segment, "in_part", property(lambda segment: 0))
    patch.setattr("elf.job.rollup.collect.in_part", lambda parts: 0)


def forgets_parts_of_what_is_covered(patch: pytest.MonkeyPatch) -> None:
    """protocol 9.7: who hears that its main snapshot is covered takes it for included."""
    patch.setattr(Retained, "covered", lambda retained, start, end: retained.answered(start, end, 0))


def offers_no_open_parts(patch: pytest.MonkeyPatch) -> None:
    """protocol 9.8: nobody sends what a dead agent had of open panes."""
    offered = Proxies.offered

    def without(proxies: Proxies, root: Root, holder: str, offer: OfferReplicas, now_ms: int) -> list[Send]:
        names = tuple(name for name in offer.names if not is_open(name[2]))
        return offered(proxies, root, holder, replace(offer, names=names), now_ms)

    patch.setattr(Proxies, "offered", without)


# -- files ---------------------------------------------------------------------------------------------------


def passes_over_what_is_packed(patch: pytest.MonkeyPatch) -> None:
    """protocol 11.3: what rotation has compressed is not looked for."""
    beside = Rotated._beside

    def plain(
        rotated: Rotated, logs: Mapping[str, bool], now_ms: int
    ) -> Iterator[tuple[str, str, os.stat_result]]:
        return (found for found in beside(rotated, logs, now_ms) if not found[0].endswith(".gz"))

    patch.setattr(Rotated, "_beside", plain)


def reads_replicas_again(patch: pytest.MonkeyPatch) -> None:
    """protocol 11.3: a copy of what was read is read from its beginning."""

    def anew(copy: Follower, ended: Ended) -> int:
        return 0

    patch.setattr("agents.inputs.tail.goes_on_at", anew)


def knows_files_by_inode(patch: pytest.MonkeyPatch) -> None:
    """protocol 11.3: a file with the inode of another is that one, whatever it holds."""

    def resume(follower: Follower, position: Position) -> bool:
        if not follower.is_file_of(position) or not position.source:
            return follower.is_file_of(position)
        follower.generation, follower._id = position.generation, position.source
        follower._head = 0, 0
        follower.go_on_at(min(position.offset, follower.size))
        return True

    patch.setattr(Follower, "resume", resume)


def reads_what_is_newest_first(patch: pytest.MonkeyPatch) -> None:
    """protocol 11.4: a log is read at once, and what rotation has made of it a while later."""
    turn, since = Tail._turn, dict[Follower, int]()

    def newest(tail: Tail, key: FileId, follower: Follower, bytes_max: int, now_ms: int) -> Chunk | None:
        rotated = follower.path != follower.log and now_ms - since.setdefault(follower, now_ms) < 5_000
        return None if rotated else turn(tail, key, follower, bytes_max, now_ms)

    patch.setattr(Tail, "_waits", lambda *_: False)
    patch.setattr(Tail, "_turn", newest)


def names_no_gap(patch: pytest.MonkeyPatch) -> None:
    """protocol 11.3: what is gone is counted, and not told."""
    gaps = Tail.gaps

    def none(tail: Tail) -> tuple[()]:
        gaps(tail)
        return ()

    patch.setattr(Tail, "gaps", none)


def names_gaps_where_nothing_is_gone(patch: pytest.MonkeyPatch) -> None:
    """protocol 11.5: behind each file that was read to its end something is said to be gone."""
    finish = Tail._finish

    def finished(tail: Tail, key: FileId, follower: Follower, now_ms: int) -> None:
        position = follower.position()
        if position is not None:
            tail._miss(position, None, "who knows")
        finish(tail, key, follower, now_ms)

    patch.setattr(Tail, "_finish", finished)


def writes_the_readers_positions(patch: pytest.MonkeyPatch) -> None:
    """protocol 3.1: a checkpoint has the positions of the input at that moment, not those behind its own
    chunks."""
    perform = FileTask._perform

    def ahead(task: FileTask, command: Command) -> Outcome:
        if isinstance(command, Feed | Idle):
            task._positions[0] = task._tail.positions()
        return perform(task, command)

    patch.setattr(FileTask, "_perform", ahead)


def takes_a_stop_for_silence(patch: pytest.MonkeyPatch) -> None:
    """protocol 3.4: who was stopped takes its files for silent, and closes windows on their unread lines."""
    patch.setattr(Sources, "awake", lambda sources, now_ms: None)


def closes_windows_on_unread_files(patch: pytest.MonkeyPatch) -> None:
    """protocol 11.4: of files that were never read nobody is told that they have lines."""
    patch.setattr(Tail, "has_new_sources", False)


def knows_the_first_cut_only(patch: pytest.MonkeyPatch) -> None:
    """protocol 11.5: of several copies made while nobody looked only the first says that the log was
    cut."""
    patch.setattr(Files, "_find_copies", lambda files, before: None)


def forgets_gaps_on_the_way(patch: pytest.MonkeyPatch) -> None:
    """protocol 11.2: what a pane lacks gets lost when counters are merged."""
    patch.setattr("agents.committing.panetables.gaps_of", lambda tables: {})


def keeps_gaps_from_windows(patch: pytest.MonkeyPatch) -> None:
    """protocol 11.2: a window does not say what its panes lack."""
    patch.setattr("agents.committing.status._within", lambda gaps, first, last: set())


def lets_two_lead(patch: pytest.MonkeyPatch) -> None:
    """protocol 5.13: whoever has handed a job's group over goes on as if it led it, and so does who has got
    it."""
    propose = GroupDesk.propose
    patch.setattr(Hosting, "_deposed", lambda hosting, key, led, now_ms: [])
    patch.setattr(
        GroupDesk, "propose", lambda desk, key, record, now_ms, term=0: propose(desk, key, record, now_ms)
    )


def skips_the_last_round(patch: pytest.MonkeyPatch) -> None:
    """protocol 5.13: an agent is to lead before it has all that the group has, and is elected."""
    request = Election.request

    def hand_over(leadership: Leadership) -> None:
        moving, local = leadership._moving, leadership._local
        if moving is not None:
            local.context.send(moving[0].address, TimeoutNow(local.context.me, local.header(moving[0].slot)))

    def trust(election: Election, address: str, part: VoteRequest) -> None:
        told = replace(part, last_term=1 << 40) if part.told_to_stand else part
        request(election, address, told)

    patch.setattr(Leadership, "_timeout_now", hand_over)
    patch.setattr(Election, "request", trust)


def holds_for_ever(patch: pytest.MonkeyPatch) -> None:
    """protocol 5.13: a leader that gives up to hand its group over refuses records none the less."""
    due = Leadership.due

    def patient(leadership: Leadership) -> None:
        moving = leadership._moving
        due(leadership)
        if moving is not None and leadership._moving is None:
            leadership._moving = Voter("", 0), 1 << 60

    patch.setattr(Leadership, "due", patient)


def obeys_late_decisions(patch: pytest.MonkeyPatch) -> None:
    """protocol 5.14: a decision that comes late moves a job from where it has gone meanwhile."""

    def assigned(log: CatalogLog, seq: int, said: AssignJobGroup) -> JobGroupAssigned:
        return JobGroupAssigned(
            seq=seq, uid=said.uid, origin=said.origin, target=said.target, at_ms=said.at_ms, why=said.why
        )

    patch.setattr("elf.job.catalog.admission._assigned", assigned)
    patch.setattr(JobGroups, "leads_at", lambda groups, address, uid: groups.term(uid) is not None)


def obeys_late_decisions_on_trees(patch: pytest.MonkeyPatch) -> None:
    """protocol 5.15: a decision that comes late gives a job trees that its owner does not want any more."""

    def decided(log: CatalogLog, seq: int, said: DecideTrees) -> TreesDecided:
        return TreesDecided(
            seq=seq, uid=said.uid, before=said.before, trees=said.trees, at_ms=said.at_ms, why=said.why
        )

    patch.setattr("elf.job.catalog.admission._decided", decided)


def merges_what_a_reader_needs_apart(patch: pytest.MonkeyPatch) -> None:
    """protocol 4.11: panes are merged as far as one of their readers lets them be, and not all."""

    def most(readers: Iterable[JobSpec], fragment: Fragment) -> int:
        return max((units.panes_of(spec.plan) for spec in readers), default=1)

    patch.setattr(units, "agreed", most)


def commits_units_pane_by_pane(patch: pytest.MonkeyPatch) -> None:
    """protocol 4.11: what is in a unit is committed like the panes of others, some of it at a time."""

    def clip(piece: Piece, start: int, end: int) -> Piece:
        return replace(piece, start=max(piece.start, start), end=min(piece.end, end))

    patch.setattr(Piece, "clip", clip)
    patch.setattr(Covered, "blocks", lambda covered, start: [])


def counts_from_any_pane_of_a_running_flow(patch: pytest.MonkeyPatch) -> None:
    """protocol 6.10: a version that joins a running flow waits for no commit of a root that knows it."""
    patch.setattr("elf.job.group.reading.joined_at", lambda log, spec: (0,) * len(spec.flows))
