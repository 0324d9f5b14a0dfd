"""How much one creator may have in a fleet, and ask of an agent. What is over it is refused, in a line, and
counted.

Each agent goes by its own settings and its own copy of the catalog log when a statement comes to it: where
several take statements of one creator at once, the fleet may come to hold a few jobs more.

**CPU.** A flow cannot be slowed alone: all flows of a stream share one pass over its lines, so whoever is
slow holds all others back. Instead a creator whose jobs have taken more than their share of an agent gets no
new ones there, until they take less. What a flow takes, its functions included, is divided among the creators
whose jobs read it; what a job in Python takes is its creator's.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Literal

from elf.errors import UserError
from elf.job.catalog.log import CatalogLog
from elf.job.own import OwnSpec
from elf.job.program.spec import ProgramSpec
from elf.job.spec import JobSpec
from elf.planning.budgets import BudgetKeeper
from elf.ql.plan import Plan
from elf.ql.user_functions import functions_of
from elf.wire.clients import ONE_SHOT_PREFIX

What = Literal["jobs", "selects", "bytes", "statements", "cpu_share", "budget"]

BURST_SECS: Final = 10
"""So many seconds' statements may come at once."""
CREATORS_MAX: Final = 1024
"""Creators whose statements are counted: the last ones."""


MINUTE_MS: Final = 60_000
LOOK_MS: Final = 5_000
"""Between two looks at what flows have taken."""


@dataclass(frozen=True)
class Quotas:
    """Of one creator; 0: as many as they like. ``bytes``: of the tables and functions of all their jobs;
    ``cpu_share``: of one core, over the last minute."""

    jobs: int = 0
    selects: int = 0
    bytes: int = 0
    statements_per_sec: float = 0.0
    cpu_share: float = 0.0


class OverQuota(UserError):
    """Refused; ``what`` was too much."""

    def __init__(self, what: What, text: str) -> None:
        super().__init__(text)
        self.what: What = what


class Creators:
    """What they have and ask for, at one agent. All but ``statement`` raise ``OverQuota``."""

    def __init__(self, log: CatalogLog, quotas: Quotas, keeper: BudgetKeeper) -> None:
        """``keeper``: knows who is over the budgets of this agent."""
        self._log = log
        self._quotas = quotas
        self._keeper = keeper
        self._asked: OrderedDict[str, tuple[int, float]] = OrderedDict()
        """When one asked last (ms), and how many statements were left then."""
        self._spent: dict[str, int] = {}
        """By flow, or job in Python, in µs, at the last look."""
        self._looks: deque[tuple[int, Counter[str]]] = deque()
        """The looks of the last minute: when (ms), and what was taken since the one before, by creator."""

    # -- CPU -------------------------------------------------------------------------------------------------

    def look(self, spent: Callable[[], Mapping[str, int]], now_ms: int) -> None:
        """Called now and then. ``spent``: µs of CPU time that each flow, and each job in Python, has taken
        here so far."""
        if self._looks and now_ms - self._looks[-1][0] < LOOK_MS:
            return
        taken, now = Counter[str](), spent()
        for uid, us in now.items():
            program = self._log.program(uid)
            creators = {spec.creator for spec in (self._log.readers(uid) if program is None else [program])}
            for creator in creators:
                taken[creator] += max(us - self._spent.get(uid, 0), 0) // len(creators)
        self._spent = dict(now)
        self._looks.append((now_ms, taken))
        while self._looks[0][0] <= now_ms - MINUTE_MS:
            self._looks.popleft()

    def shares(self) -> dict[str, float]:
        """Of one core, what each creator's jobs have taken of this agent in the last minute."""
        taken = sum((one for _, one in self._looks), Counter[str]())
        return {creator: us / MINUTE_MS / 1_000 for creator, us in sorted(taken.items())}

    def _within_share(self, creator: str) -> None:
        if (told := self._keeper.over(creator)) is not None:
            raise OverQuota("budget", f"{told.said} (budgets of {told.holder}); drop or pause a job first")
        most = self._quotas.cpu_share
        if most and (share := self.shares().get(creator, 0.0)) > most:
            raise OverQuota(
                "cpu_share",
                f"jobs of {creator} have taken {share:.0%} of a core of this agent in the last minute; "
                f"{most:.0%} are the most of one creator (quotas.cpu_share); drop or pause "
                "one, and wait a minute",
            )

    # -- what is asked ---------------------------------------------------------------------------------------

    def statement(self, creator: str, now_ms: int) -> None:
        """One more is asked."""
        rate = self._quotas.statements_per_sec
        if not rate:
            return
        then_ms, left = self._asked.pop(creator, (now_ms, rate * BURST_SECS))
        left = min(left + max(now_ms - then_ms, 0) / 1000 * rate, rate * BURST_SECS)
        self._asked[creator] = (now_ms, left - 1 if left >= 1 else left)
        if len(self._asked) > CREATORS_MAX:
            self._asked.popitem(last=False)
        if left < 1:
            raise OverQuota(
                "statements",
                f"{creator} asks more than {rate:g} statements a second of this agent "
                "(quotas.statements_per_sec); try again in a moment",
            )

    def job(self, name: str, creator: str) -> None:
        """A job of that name is to be made, or made anew: that may make it cheaper."""
        own = [spec.name for spec in self._log.jobs() if spec.creator == creator]
        own += [spec.name for spec in self._log.programs() if spec.creator == creator]
        is_select = name.startswith(ONE_SHOT_PREFIX)
        if name not in own:
            self._within_share(creator)
        same = [one for one in own if one.startswith(ONE_SHOT_PREFIX) == is_select]
        most = self._quotas.selects if is_select else self._quotas.jobs
        if most and name not in own and len(same) >= most:
            what: What = "selects" if is_select else "jobs"
            has = f"{len(same):,} {'SELECTs that run' if is_select else 'jobs'}"
            way_out = "end" if is_select else "drop"
            raise OverQuota(
                what, f"{creator} has {has}, the most of one creator (quotas.{what}); {way_out} one first"
            )

    def plan(self, creator: str, plan: Plan, instead: JobSpec | None = None) -> None:
        """A job with this plan is to be made, or to take the place of one."""
        self.text(creator, lambda: _bytes(plan), instead)

    def text(self, creator: str, count: Callable[[], int], instead: JobSpec | None = None) -> None:
        """The same of so many bytes."""
        if not self._quotas.bytes or not (more := count()):
            return
        uid = None if instead is None else instead.uid
        own = (spec for spec in self._log.jobs() if spec.creator == creator and spec.uid != uid)
        has = sum(_bytes(spec.plan) for spec in own)
        codes: list[ProgramSpec | OwnSpec] = [*self._log.programs(), *self._log.aggregates()]
        has += sum(len(one.text.encode()) for one in codes if one.creator == creator)
        if has + more > self._quotas.bytes:
            raise OverQuota(
                "bytes",
                f"tables and functions of {creator} would be {has + more:,} bytes; "
                f"{self._quotas.bytes:,} are the most of one creator (quotas.bytes)",
            )


def _bytes(plan: Plan) -> int:
    """Of what a job brings along."""
    tables = dict.fromkeys(table for one in plan.unranged for table in one.tables)
    return sum(len(one.data) for one in tables) + sum(len(one.text.encode()) for one in functions_of(plan))
