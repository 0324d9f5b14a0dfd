"""Planted bugs of section 8 of the protocol: stragglers and late rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from agents.committing import opening
from agents.committing.panetables import Merged
from elf.fields import replace
from elf.job.contributions import Piece
from elf.job.rollup.answer import Answers
from elf.job.rollup.decide import Stragglers
from elf.job.rollup.panes import Panes
from elf.job.rollup.root import Root
from elf.job.stragglers import Drops
from elf.job.worker.flowstate import FlowState
from elf.ql.plan import Fragment, Top


def does_not_wait_for_the_dead(patch: pytest.MonkeyPatch) -> None:
    """protocol 8.2: WAIT is for those only that are taken to be alive."""
    patch.setattr(Stragglers, "_begun", lambda stragglers, pane: 0)


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


def drops_too_much(patch: pytest.MonkeyPatch) -> None:
    """protocol 8.3: a stream task leaves out more panes than were committed without it."""
    leap = FlowState.leap

    def far(state: FlowState, below: int, counted: Mapping[str, int]) -> int:
        return leap(state, below + 4 * (below > state.sealed), counted)

    patch.setattr(FlowState, "leap", far)


def forgets_what_was_dropped(patch: pytest.MonkeyPatch) -> None:
    """protocol 8.4: a snapshot is deleted as if it were in a commit, and its rows are counted nowhere."""

    def take(drops: Drops, names: object) -> tuple[()]:
        return ()

    patch.setattr(Drops, "take", take)


def drops_open_panes_unseen(patch: pytest.MonkeyPatch) -> None:
    """protocol 8.4: an open pane is dropped, and so are the counts of its rows."""
    patch.setattr("elf.job.worker.flowstate.left_over", lambda counters, spans: Counter())


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


def decides_for_each_range(patch: pytest.MonkeyPatch) -> None:
    """protocol 8.8: the root of each key range leaps over whom it misses itself."""
    for room in ("root", "sender", "holding"):
        patch.setattr(f"elf.job.rollup.{room}.follows", lambda fragment: False)
