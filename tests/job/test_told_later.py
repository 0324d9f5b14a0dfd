"""Workers hear of a commit after its windows have gone out, and of several in one word; at once where there
is more in it for them than that they may forget their snapshots."""

from __future__ import annotations

import pytest

from elf.fields import replace
from elf.job.contributions import to_bytes
from elf.job.effects import CommitPanes, Effect, Multicast
from elf.job.events import PanesCommitted
from elf.job.messages.rollup import Committed, FlowProgress, Progress, Slice
from elf.job.rollup.decide import RootSettings
from elf.job.rollup.flowroots import FlowRoots, StoredPanes
from elf.job.rollup.rooted import TOLD_MS
from elf.job.spec import Flow
from tests.support.flow_copies import HOLDER, OTHER, OWNER, ROOT, flow_of, log_of

FLOW = flow_of()
T0_MS = 100_000


class AtRoot:
    """Three agents send panes 1, 2 …, which are committed."""

    def __init__(self, flow: Flow = FLOW) -> None:
        self.flow = flow
        log = log_of(flow, addresses=(OWNER, HOLDER, OTHER))
        self.roots = FlowRoots(ROOT, log, RootSettings(), lambda _, pane: pane, lambda _: True, "root")
        self.roots.follow(0, {flow.uid: StoredPanes(first_pane=1)})
        for member in range(3):
            flows = (FlowProgress(flow.uid, 1, 1),)
            self.roots.heard(Progress(member=member, incarnation=1, flows=flows), T0_MS)

    def commit(self, pane: int, now_ms: int, *members: int) -> list[Effect]:
        found: list[Effect] = []
        for member in members:
            piece = Slice(flow=self.flow.uid, start=pane, end=pane + 1, members=to_bytes(1 << member))
            found += self.roots.take("x", piece, now_ms)
        (work,) = (one for one in found if isinstance(one, CommitPanes))
        return self.roots.committed(PanesCommitted(work, 1, 0, 0, 0), now_ms)[1]


def words(effects: list[Effect]) -> list[tuple[int, int, int]]:
    said = [one.message for one in effects if isinstance(one, Multicast)]
    return [(one.start, one.end, one.revision) for one in said if isinstance(one, Committed)]


def test_commits_are_told_together_a_while_later() -> None:
    here = AtRoot()
    assert words(here.commit(1, T0_MS, 0, 1, 2)) == []
    assert words(here.commit(2, T0_MS + 100, 0, 1, 2)) == []
    assert here.roots.deadline(T0_MS + 100) == T0_MS + TOLD_MS
    assert words(here.roots.tick(T0_MS + TOLD_MS - 1)) == []
    assert words(here.roots.tick(T0_MS + TOLD_MS)) == [(1, 3, 0)]
    assert words(here.roots.tick(T0_MS + 2 * TOLD_MS)) == []
    here.commit(3, T0_MS + 1_000, 0, 1, 2)
    assert words(here.roots.tick(T0_MS + 1_000 + TOLD_MS)) == [(3, 4, 0)], "each is told once"


def test_a_revision_is_told_at_once_behind_what_it_revises() -> None:
    here = AtRoot()
    here.commit(1, T0_MS, 0, 1, 2)
    part = Slice(flow=FLOW.uid, start=1, end=2, members=b"", parts=((0, 1),))
    found = here.roots.take("x", part, T0_MS + 50)
    (work,) = (one for one in found if isinstance(one, CommitPanes))
    done = here.roots.committed(PanesCommitted(work, 2, 0, 0, 0), T0_MS + 50)[1]
    assert words(done) == [(1, 2, 0), (1, 2, 1)]


@pytest.mark.parametrize("how", ["leap", "mirror"])
def test_who_waits_for_the_word_hears_it_at_once(how: str) -> None:
    """An agent that is behind leaps, and neighbours forget their copies."""
    here = AtRoot(flow_of(replace(FLOW.fragment, **{how: True})))
    assert words(here.commit(1, T0_MS, 0, 1, 2)) == [(1, 2, 0)]
