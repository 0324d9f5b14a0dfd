"""Planted bugs of section 7 of the protocol: windows and readers."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence

import numpy as np
import pytest

from agents.answering import joining
from agents.answering import tablereads as answering
from agents.answering.shards import Told
from agents.committing.kept import alike
from agents.disk import tablerows, tablestore
from elf.fields import replace
from elf.job.effects import CommitWindows, CopyRows, Deliver, Effect, SaveOutput
from elf.job.group.outputs import Outputs, _Output
from elf.job.group.reconfiguration import Reconfiguration
from elf.job.group.shards import Shards, _Shard
from elf.job.group.swaps import Swaps
from elf.job.group.tables import Tables
from elf.job.messages.groups import ReconfigureJob
from elf.job.ports import Int64s
from elf.job.tables import TableRound
from elf.job.worker import assigning
from elf.job.worker.assigning import Mask
from elf.job.worker.provenance import OpenProvenance, Run, runs_of
from elf.ql.plan import Table, TableMoment
from elf.wire.heard import Heard


def takes_any_window_for_its_own(patch: pytest.MonkeyPatch) -> None:
    """protocol 7.1: what an equal job has had made is taken whatever the revisions of its panes are."""

    def key(effect: CommitWindows) -> Hashable | None:
        return alike(replace(effect, coverage=()))

    patch.setattr("agents.committing.windowcommits.alike", key)


def skips_what_got_lost(patch: pytest.MonkeyPatch) -> None:
    """protocol 7.3: a reader takes what comes, and asks only for what is after that."""

    def take(heard: Heard, number: int, before: int) -> bool:
        heard.upto = max(heard.upto or 0, number)
        return True

    patch.setattr(Heard, "take", take)


def saves_before_it_is_delivered(patch: pytest.MonkeyPatch) -> None:
    """protocol 7.8: how far an output has got is committed when a delivery begins."""
    advance = Outputs._advance

    def advanced(outputs: Outputs, one: _Output, now_ms: int) -> list[Effect]:
        found = advance(outputs, one, now_ms)
        if any(isinstance(effect, Deliver) for effect in found) and one.at is not None:
            found.insert(0, SaveOutput(replace(one.at, number=outputs._published)))
        return found

    patch.setattr(Outputs, "_advance", advanced)


def forgets_what_an_alert_remembers(patch: pytest.MonkeyPatch) -> None:
    """protocol 7.10: what an alert remembers is committed with how far it has got."""
    advance = Outputs._advance

    def advanced(outputs: Outputs, one: _Output, now_ms: int) -> list[Effect]:
        found = advance(outputs, one, now_ms)
        return [SaveOutput(replace(e.kept, state=b"")) if isinstance(e, SaveOutput) else e for e in found]

    patch.setattr(Outputs, "_advance", advanced)


def forgets_which_rows_open_panes_have(patch: pytest.MonkeyPatch) -> None:
    """protocol 7.11: which rows open panes have counted is in the checkpoint."""
    patch.setattr(OpenProvenance, "image", lambda provenance: b"")


def takes_late_rows_for_counted(patch: pytest.MonkeyPatch) -> None:
    """protocol 7.11: a range holds no row of its pane that was not counted."""

    def runs(panes: Int64s, offsets: Int64s, counted: Mask) -> tuple[Run, ...]:
        return runs_of(panes, offsets, np.ones_like(counted))

    patch.setattr(assigning, "runs_of", runs)


def lets_older_windows_win(patch: pytest.MonkeyPatch) -> None:
    """protocol 7.12: of two windows that have a group the later one counts, whichever comes first."""
    patch.setattr(tablerows, "_PUT", tablerows._PUT.partition(" WHERE ")[0])


def reads_tables_of_any_moment(patch: pytest.MonkeyPatch) -> None:
    """protocol 7.13: who has read a table takes no answer from before that."""
    patch.setattr(Told, "take", lambda told, part, number: None)


def reads_tables_before_they_have_all(patch: pytest.MonkeyPatch) -> None:
    """protocol 7.14: a table that takes the place of another one is read when it has its rows."""
    add = tablerows.add
    patch.setattr(tablestore, "add", lambda con, kept, **said: add(con, kept, **said | {"whole": True}))


def copies_rows_while_that_is_paused(patch: pytest.MonkeyPatch) -> None:
    """protocol 7.18: while the change of a key is paused no leader proposes rows for the new table."""

    def copied(tables: Tables) -> Iterator[CopyRows]:
        for uid, one in tables._kept.items():
            if not one.whole:
                yield CopyRows(TableRound(tables._uid, uid, one.rounds + 1))

    patch.setattr(Tables, "_copied", copied)


def asks_for_rows_while_that_is_paused(patch: pytest.MonkeyPatch) -> None:
    """protocol 7.18: nor does the leader of a shard ask for them."""
    advance = Shards._advance

    def advanced(shards: Shards, one: _Shard, now_ms: int) -> Iterator[Effect]:
        with pytest.MonkeyPatch.context() as here:
            here.setattr(shards._log, "is_rekeying_paused", lambda uid: False)
            yield from list(advance(shards, one, now_ms))

    patch.setattr(Shards, "_advance", advanced)


def reads_one_replica(patch: pytest.MonkeyPatch) -> None:
    """protocol 7.19: a table with a ring is read as the newest of a majority of replicas has it."""
    patch.setattr(answering, "majority", lambda copies: 1)


def begins_replicas_without_rows(patch: pytest.MonkeyPatch) -> None:
    """protocol 7.20: a replica that comes later gets the rows of another one before it is read."""
    patch.setattr(tablestore, "opened", lambda schemas, rows: [])


def changes_the_key_before_rows_have_come(patch: pytest.MonkeyPatch) -> None:
    """protocol 7.21: the key changes when a majority of each part's replicas has all rows."""
    patch.setattr(Swaps, "_is_ready", lambda swaps, one, now_ms: True)


def takes_rows_by_the_name_of_their_table(patch: pytest.MonkeyPatch) -> None:
    """protocol 7.17: a map joins the rows that its version has, and none that another one has."""
    patch.setattr(Table, "relation", property(lambda table: f"table_{table.name}"))


def renews_whatever_has_come_meanwhile(patch: pytest.MonkeyPatch) -> None:
    """protocol 7.17: other rows are for the version that they were read for, and for no other."""
    reconfigure = Reconfiguration.reconfigure

    def reconfigured(one: Reconfiguration, request: ReconfigureJob, now_ms: int) -> list[Effect]:
        request = replace(request, version=0) if request.by_itself else request
        return reconfigure(one, request, now_ms)

    patch.setattr(Reconfiguration, "reconfigure", reconfigured)


def says_of_rows_that_they_are_older(patch: pytest.MonkeyPatch) -> None:
    """protocol 7.17: rows that are joined come with the number of the last result that is in them."""
    table = joining._table

    def aged(name: str, rows: Sequence[bytes], at: TableMoment) -> Table:
        return table(name, rows, replace(at, number=at.number - 1))

    patch.setattr(joining, "_table", aged)
