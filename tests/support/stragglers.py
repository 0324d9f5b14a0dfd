"""A fleet in which one agent is late, and a root that waits."""

from __future__ import annotations

from typing import Any

from elf.job.catalog.members import Member
from elf.job.messages.rollup import FlowProgress
from elf.job.rollup.decide import RootSettings
from elf.job.rollup.root import Root
from elf.job.spec import Flow
from elf.ql.plan import Plan
from lab.chaos.books import windows_of
from lab.chaos.judge import Judge
from lab.chaos.ledger import Ledger
from lab.chaos.world import World

WRITES_MS = 20_000

Windows = dict[tuple[int, int], list[dict[str, Any]]]
"""What each window said of itself, by revision."""


class Fleet:
    """Five agents with one job; ``away`` is one that is not its job group."""

    def __init__(self, query: Plan, seed: int = 1) -> None:
        self.ledger = Ledger()
        self.world = World(seed, 5, ledger=self.ledger)
        self.world.start_all()
        self.until = self.world.now + WRITES_MS
        for agent in self.world.agents:
            self.world.write(agent, self.until, rate_ms=150)
        self.world.run(2_000)
        self.spec = self.world.create(0, query)
        self.world.run(3_000)
        job_groups = {flow.leader for flow in self.spec.flows} | {self.spec.leader}
        self.away = next(agent for agent in self.world.agents[1:] if agent.address not in job_groups)

    @property
    def uid(self) -> str:
        return self.spec.flows[0].uid

    def committed_to(self) -> int:
        """Panes below it are committed."""
        return max(end for _, end, _ in self.ledger.panes[self.uid])

    def end(self) -> Windows:
        """All is well again: what each window said of itself, by revision."""
        world, judge = self.world, Judge(self.world, self.ledger, self.until)
        world.run(max(0, self.until + 3_000 - world.now))
        world.run_until(lambda: not judge.open() or bool(self.ledger.findings))
        judge.close()
        assert self.ledger.findings == []
        found: Windows = {}
        for row in world.leader(self.spec).store.windows(self.spec.uid, -(1 << 62), 1 << 62):
            for span, status, _ in windows_of(row):
                found.setdefault(span, []).append(dict(status))
        return found

    def leapt(self) -> int:
        """Rows of the panes that the agent has dropped, by its log."""
        book, pane_us = self.ledger.books[self.uid, self.away.index], self.spec.plan.fragment.pane_us
        return sum(ts // pane_us in book.leapt for ts, _ in self.away.log.rows)


def rooted(query: Plan, members: int, settings: RootSettings | None = None) -> Root:
    """The root of a query's flow, before anything is heard."""
    root = Root(Flow("uid", query.fragment, b"0" * 16, "home"), settings or RootSettings())
    roster = (Member(n, f"id{n}", f"a{n}", 1, f"a{n}", -(1 << 62), 1 << 62) for n in range(members))
    root.set_roster(tuple(roster), 1)
    return root


def progress(sealed: int) -> FlowProgress:
    return FlowProgress("uid", 10, sealed)
