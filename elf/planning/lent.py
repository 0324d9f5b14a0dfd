"""What the owner of a host lends to jobs and their creators, and what they take of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

MB: Final = 1_000_000


class Use(NamedTuple):
    """What a holder takes, by the second; and what it holds: in memory what can be nowhere else
    (``pinned_bytes``), and on disk. Of these only, budgets are judged. For people: all that it has in
    memory, and how much of what it has on disk would be there, were there room."""

    cpu_share: float
    up_bytes_per_sec: float
    pinned_bytes: float = 0.0
    disk_bytes: float = 0.0
    memory_bytes: float = 0.0
    spilled_bytes: float = 0.0

    def plus(self, other: Use, times: float = 1.0) -> Use:
        """Both together, the other so many times."""
        return Use(*(one + times * more for one, more in zip(self, other, strict=True)))


NOTHING: Final = Use(0.0, 0.0)


@dataclass(frozen=True)
class Budget:
    """What a holder may take of an agent; 0: no bound. ``cpu_share``: of one core, by stream tasks and for
    jobs in Python; ``up_bytes_per_sec``: of partial aggregates, on their way up, and ``up_bytes_per_day``:
    the same of a day (UTC); ``memory_bytes``: of open panes, what is more goes to disk; ``disk_bytes``: of
    these, of the last checkpoint, and of snapshots that are in no commit yet."""

    cpu_share: float = 0.0
    up_bytes_per_sec: int = 0
    up_bytes_per_day: int = 0
    memory_bytes: int = 0
    disk_bytes: int = 0

    @property
    def bounds(self) -> bool:
        return self != NO_BUDGET

    @property
    def said(self) -> str:
        """In words."""
        named = (
            (self.cpu_share, f"{self.cpu_share:.2%} of a core"),
            (self.up_bytes_per_sec, f"{self.up_bytes_per_sec:,} bytes up a second"),
            (self.up_bytes_per_day, f"{self.up_bytes_per_day:,} bytes up a day"),
            (self.memory_bytes, f"{self.memory_bytes / MB:,.1f} MB of memory"),
            (self.disk_bytes, f"{self.disk_bytes / MB:,.1f} MB of disk"),
        )
        return _listed([text for bound, text in named if bound])

    def part(self, use: Use, never: Use = NOTHING) -> float:
        """How much of the budget that is; 1: all. ``never``: what of it is never sampled. A bound that this
        alone is over, so that no weight can hold it, is then passed over. What is spilled holds the bound
        on memory; what cannot be is judged."""
        most = (self.cpu_share, self.up_bytes_per_sec, self.memory_bytes, self.disk_bytes)
        bounds = zip(most, use[:4], never[:4], strict=True)
        return max((took / most for most, took, alone in bounds if most and alone <= most), default=0.0)


NO_BUDGET: Final = Budget()


@dataclass(frozen=True)
class Budgets:
    """``job``, ``creator``: of each; ``jobs`` (``creator/name``), ``creators``: of some, in their place.
    ``lag_ms``: how far reading may be behind before the agent's own budget has rows left out; 0: they never
    are.
    """

    job: Budget = field(default_factory=Budget)
    creator: Budget = field(default_factory=Budget)
    jobs: Mapping[str, Budget] = field(default_factory=dict)
    creators: Mapping[str, Budget] = field(default_factory=dict)
    lag_ms: int = 60_000

    @property
    def bounds(self) -> bool:
        """Whether anybody has one."""
        each = (self.job, self.creator, *self.jobs.values(), *self.creators.values())
        return any(one.bounds for one in each)

    def of(self, holder: Holder) -> Budget:
        one, each = (self.jobs, self.job) if holder.kind == "job" else (self.creators, self.creator)
        return one.get(holder.name, each)


class Holder(NamedTuple):
    """Of a budget. ``name``: of a job ``creator/name``, since two creators may have jobs of one name."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


AGENT: Final = Holder("the", "agent")


def holders(job: str, creator: str) -> tuple[Holder, Holder]:
    """The job, and its creator."""
    return Holder("job", f"{creator}/{job}"), Holder("creator", creator)


class Reader(NamedTuple):
    """A job that reads a flow. ``whole``: why no row of it is left out, if none is."""

    job: str
    creator: str
    whole: str = ""


class Held(NamedTuple):
    """What a flow holds now: in memory, of which some can be nowhere else; of its open panes on disk; and on
    disk besides."""

    memory_bytes: int = 0
    pinned_bytes: int = 0
    spilled_bytes: int = 0
    other_disk_bytes: int = 0


class FlowUse(NamedTuple):
    """What a flow, or a job in Python, has taken so far, and holds now."""

    uid: str
    cpu_us: int
    up_bytes: int
    readers: tuple[Reader, ...]
    held: Held = Held()

    @property
    def is_whole(self) -> bool:
        """Whether none of its rows is ever left out."""
        return any(reader.whole for reader in self.readers)


class Told(NamedTuple):
    """How a holder is with its budget, for people. ``today``: the bytes that have gone up today."""

    holder: Holder
    use: Use
    budget: Budget
    weight: int
    whole: str
    today: int = 0

    @property
    def said(self) -> str:
        """In a clause."""
        parts = [text for bound, text in self._parts() if bound]
        if not parts:
            return f"{self.holder} counts one row in {self.weight}"
        said = f"{self.holder} takes {_listed(parts)} of this agent"
        if self.weight > 1:
            said += f", with one row in {self.weight}"
        if self.whole and self.is_over:
            said += f"; not sampled is what {self.whole}"
        return said

    def _parts(self) -> tuple[tuple[float, str], ...]:
        use, most = self.use, self.budget
        spilled = f" ({use.spilled_bytes / MB:,.1f} MB more on disk)" if use.spilled_bytes else ""
        memory = f"{use.memory_bytes / MB:,.1f} of {most.memory_bytes / MB:,.1f} MB of memory{spilled}"
        return (
            (most.cpu_share, f"{use.cpu_share:.1%} of {most.cpu_share:.1%} of a core"),
            (
                most.up_bytes_per_sec,
                f"{use.up_bytes_per_sec:,.0f} of {most.up_bytes_per_sec:,} bytes up a second",
            ),
            (most.up_bytes_per_day, f"{self.today:,} of {most.up_bytes_per_day:,} bytes up today"),
            (most.memory_bytes, memory),
            (most.disk_bytes, f"{use.disk_bytes / MB:,.1f} of {most.disk_bytes / MB:,.1f} MB of disk"),
        )

    @property
    def is_over(self) -> bool:
        """Whether it takes more than it may."""
        most = self.budget.up_bytes_per_day
        return self.budget.part(self.use) > 1 or bool(most and self.today >= most)

    def shown(self) -> dict[str, object]:
        """For programs."""
        return {
            "whose": str(self.holder),
            "cpu_share": round(self.use.cpu_share, 4),
            "cpu_share_max": self.budget.cpu_share,
            "up_bytes_per_sec": round(self.use.up_bytes_per_sec),
            "up_bytes_per_sec_max": self.budget.up_bytes_per_sec,
            "up_bytes_today": self.today,
            "up_bytes_per_day_max": self.budget.up_bytes_per_day,
            "memory_bytes": round(self.use.memory_bytes),
            "memory_bytes_max": self.budget.memory_bytes,
            "disk_bytes": round(self.use.disk_bytes),
            "disk_bytes_max": self.budget.disk_bytes,
            "weight": self.weight,
            "whole": self.whole,
        }


def _listed(parts: list[str]) -> str:
    """With commas and an "and"."""
    return " and ".join(filter(None, (", ".join(parts[:-1]), parts[-1]))) if parts else ""
