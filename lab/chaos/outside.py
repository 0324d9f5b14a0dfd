"""What is outside of a simulated fleet, where outputs go: it takes what comes as a careful receiver would,
remembers all of it, and is down at times."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from agents.outputs.delivering import Deliveries
from agents.outputs.parcels import Notice, Parcel, Rank
from elf.errors import UserError
from elf.job.output import OutputSpec

TARGET: Final = "https://outside.example"


@dataclass
class Arrivals:
    """Of one output. ``windows``: by start and end (s since the epoch), the rank and the rows that count;
    ``numbers``: of all results that came, in their order, as often as they came."""

    windows: dict[tuple[float, float], tuple[Rank, list[dict[str, object]]]] = field(default_factory=dict)
    numbers: list[int] = field(default_factory=list)
    notices: list[tuple[str, bytes]] = field(default_factory=list)
    """Of an alert: all that came, each with its key."""


def span_of(parcel: Parcel) -> tuple[float, float]:
    """Its start and end, in s."""
    start, end = (0.0 if at is None else at.timestamp() for at in parcel.span)
    return start, end


class Outside:
    """See the module's docstring."""

    def __init__(self) -> None:
        self.is_down = False
        self.came: dict[str, Arrivals] = defaultdict(Arrivals)
        """By the uid of the output."""

    def deliveries(self, master: str) -> Deliveries:
        """How one agent's outputs come here."""
        return Deliveries(master, (TARGET,), openers={"https": lambda output, _: _Door(self, output)})

    def take(self, output: OutputSpec, parcels: Sequence[Parcel]) -> None:
        if self.is_down:
            raise UserError("the outside is down")
        came = self.came[output.uid]
        for parcel in parcels:
            if isinstance(parcel, Notice):
                came.notices.append((parcel.key, parcel.json))
                continue
            span = span_of(parcel)
            known = came.windows.get(span)
            if known is None or known[0] <= parcel.rank:
                came.windows[span] = parcel.rank, parcel.window.table.to_pylist()
        came.numbers += dict.fromkeys(parcel.number for parcel in parcels)


class _Door:
    """The way of one output."""

    def __init__(self, outside: Outside, output: OutputSpec) -> None:
        self.put = partial(outside.take, output)

    def close(self) -> None:
        """Nothing is open."""
