"""Planted bugs of section 6 of the protocol: versions, names and functions."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest

from agents.committing import panecommits
from agents.disk.store import Store
from elf.functions.aggregate import Aggregate
from elf.job.counters import COUNTER_COLUMNS
from elf.job.ports import Int64s


def revises_what_is_reduced(patch: pytest.MonkeyPatch) -> None:
    """protocol 6.5: a revision is made of what the reduce function has made of the pane, not was given."""
    patch.setattr(Store, "raw_of", lambda *_: {})


def passes_off_as_reduced(patch: pytest.MonkeyPatch) -> None:
    """protocol 6.6: the counters of a pane on which the reduce function has failed does not say so."""
    marked = panecommits._marked
    patch.setattr(panecommits, "_marked", lambda counters, left: marked(counters, ()))


def says_nothing_of_a_failure(patch: pytest.MonkeyPatch) -> None:
    """protocol 6.6: nor does a window that is made of such a pane."""
    patch.setattr("agents.committing.status._counted", lambda _: COUNTER_COLUMNS)


def revises_what_is_staged(patch: pytest.MonkeyPatch) -> None:
    """protocol 6.8: a revision is made of what a later stage has made of the pane, not was given."""
    patch.setattr(Store, "raw_of", lambda *_: {})


def merges_equal_states_once(patch: pytest.MonkeyPatch) -> None:
    """protocol 6.9: a state of an aggregate of one's own that is there several times is taken for one."""
    for name in ("merge", "value"):
        patch.setattr(Aggregate, name, _once(getattr(Aggregate, name)))


def _once(call: Callable[..., pa.Array]) -> Callable[..., pa.Array]:
    def called(own: Aggregate, ids: Int64s, states: pa.Array, times: pa.Array) -> pa.Array:
        return call(own, ids, states, pa.array([1] * len(times), pa.int64()))

    return called


def counts_from_any_pane_of_a_running_flow(patch: pytest.MonkeyPatch) -> None:
    """protocol 6.10: a version that joins a running flow waits for no commit of a root that knows it."""
    patch.setattr("elf.job.group.reading.joined_at", lambda log, spec: (0,) * len(spec.flows))
