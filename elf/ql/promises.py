"""``WITHIN``: how long after its end and LATENESS a window of a job is to be committed, and what was worked
out for that when it was asked (``elf.planning.solve``).

It changes no answer and no flow: a job with a promise reads the flows that it would read without one.
"""

from __future__ import annotations

from typing import Annotated, Final

from msgspec import Meta, Struct

from elf.fields import Length, Millis, Text

LATENESS_US: Final = 2_000_000
"""Where neither the query nor its stream says how late a row may be."""
PERCENT_MAX: Final = 99.9
"""What can be seen of the last windows of a job (``elf.job.promised``)."""


class Promise(Struct, frozen=True):
    """As it is asked. ``percent``: of how many windows; None: of their mean. ``best_effort``: it is taken
    where the model says that it cannot be kept."""

    within_us: int
    percent: float | None
    best_effort: bool = False

    @property
    def text(self) -> str:
        """In the words of the query."""
        how = "ON AVERAGE" if self.percent is None else f"FOR {self.percent:g} PERCENT"
        return f"WITHIN {self.within_us // 1000} MILLISECONDS {how}{' BEST EFFORT' * self.best_effort}"


class Chosen(Struct, frozen=True, array_like=True):
    """What was worked out. ``lateness_us``: of its streams, the longest, where the query does not say it;
    ``poll_ms``: between the first looks of an agent for the line that ends a pane; ``reached_ms``: what is
    promised comes to, by the model, which ``keeps`` the promise or does not; ``why``: sentences for
    people."""

    lateness_us: Length = LATENESS_US
    poll_ms: Annotated[int, Meta(ge=1, le=1_000)] = 50
    reached_ms: Millis = 0
    keeps: bool = True
    why: tuple[Text, ...] = ()

    @property
    def settings(self) -> tuple[int, int]:
        """What agents and windows are to be like."""
        return self.lateness_us, self.poll_ms
