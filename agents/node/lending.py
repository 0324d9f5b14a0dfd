"""What jobs take of this agent, against the budgets that its owner has set (``elf.planning.budgets``)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping

from agents.node.beginning import Context
from elf.job.commands import SetWeights
from elf.job.effects import Work
from elf.job.rollup.sender import Sender
from elf.job.sampling import why_plan_whole
from elf.job.work import BudgetWork
from elf.planning.budgets import AGENT, BudgetKeeper, Budgets, FlowUse, Holder, Reader

PYTHON = "is in Python"


class Lending:
    """``keeper`` decides; here is what it needs to know, and what becomes of it."""

    def __init__(self, context: Context, sender: Sender, budgets: Budgets) -> None:
        self._me, self._log = context.me.address, context.log
        self._sender = sender
        self.keeper = BudgetKeeper(budgets)

    def look(self, installed: Mapping[str, str], programs: Mapping[str, int], now_ms: int) -> list[Work]:
        """``installed``: the streams of the flows that are computed here; ``programs``: what jobs in Python
        have taken, in µs."""
        if not self.keeper.due(now_ms):
            return []
        changed = self.keeper.look([*self._flows(installed), *self._programs(programs)], now_ms)
        by_stream: dict[str, list[tuple[str, int, str]]] = defaultdict(list)
        for uid, (weight, whose) in changed.items():
            if uid in installed:
                by_stream[installed[uid]].append((uid, weight, whose))
        return [Work(stream, SetWeights(tuple(ones))) for stream, ones in by_stream.items()]

    def of(self, jobs: Collection[str]) -> tuple[BudgetWork, ...]:
        """How these jobs (uids), and their creators, are with their budgets here."""
        asked = {AGENT}
        for uid in jobs:
            spec = self._log.job(uid) or self._log.program(uid)
            if spec is not None:
                asked |= {Holder("job", spec.name), Holder("creator", spec.creator)}
        return tuple(
            BudgetWork(
                whose=str(one.holder),
                weight=one.weight,
                cpu_ppm=round(one.use.cpu_share * 1e6),
                up_bytes=round(one.use.up_bytes_per_sec),
                most_cpu_ppm=round(one.budget.cpu_share * 1e6),
                most_up_bytes=one.budget.up_bytes_per_sec,
                said=one.said,
            )
            for one in self.keeper.told()
            if one.holder in asked
        )

    def _flows(self, installed: Mapping[str, str]) -> list[FlowUse]:
        spent, sent = self._sender.spent(), self._sender.sent_bytes()
        found = []
        for uid in installed:
            readers = self._log.readers(uid)
            told = tuple(Reader(one.name, one.creator, why_plan_whole(one.plan)) for one in readers)
            here = any(flow.leader == self._me for one in readers for flow in one.flows if flow.uid == uid)
            found.append(FlowUse(uid, spent.get(uid, 0), 0 if here else sent.get(uid, 0), told))
        return found

    def _programs(self, programs: Mapping[str, int]) -> list[FlowUse]:
        known = ((self._log.program(uid), us) for uid, us in programs.items())
        return [
            FlowUse(spec.uid, us, 0, (Reader(spec.name, spec.creator, PYTHON),))
            for spec, us in known
            if spec is not None
        ]
