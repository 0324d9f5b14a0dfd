"""Planted bugs of section 14 of the protocol: jobs in Python."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import pyarrow as pa
import pytest

from elf.aggregates import split_by_range
from elf.job.checkpoint import TapsCheckpoint
from elf.job.effects import SaveMaster
from elf.job.program import api, keeping, keyed, masters
from elf.job.program.calls import Place
from elf.job.program.keeping import Checkpoint, Keeping, Lasting
from elf.job.program.messages import Note
from elf.job.program.outgoing import Outgoing, Step
from elf.job.program.running import Running
from elf.job.program.seats import MASTER, masters_name, seat_named
from elf.job.program.spec import Tap
from elf.job.worker import taps

Ends = tuple[tuple[str, str, int], ...]


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


def _without(*values: object, **nothing: object) -> Checkpoint:
    """A checkpoint without one of its parts."""
    names = Checkpoint.__struct_fields__
    return Checkpoint(**(dict(zip(names, values, strict=False)) | nothing))  # type: ignore[arg-type]


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


def forgets_what_was_asked_for(patch: pytest.MonkeyPatch) -> None:
    """protocol 14.15: the keys that a job has asked for are in no checkpoint."""
    patch.setattr(keeping, "Checkpoint", partial(_without, asks=b""))


def feeds_back_to_all(patch: pytest.MonkeyPatch) -> None:
    """protocol 14.15: agents are given what they have not asked for."""

    def everything(value: bytes, asks: object) -> Iterator[bytes]:
        yield from (pair for _, pair in keyed._entries(value))

    patch.setattr(keyed, "chosen", everything)
