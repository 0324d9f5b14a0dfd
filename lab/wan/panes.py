"""Panes as agents have them: tables of groups and states, merged and encoded as theirs are, so that their
bytes are real. What groups there are, and how often, is drawn.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from elf.aggregates import SUM_TYPE, State, merge_tables
from elf.batch import encode
from lab.generator.chance import Chance, zipf

KEYS: Final = ("k0",)
STATES: Final = (State("s0", "sum", identity_zero=True), State("s1", "sum"))
"""``COUNT(*), SUM(bytes)``."""


class Log:
    """Lines of a web log by what they are grouped by: ``groups`` values, popular as by Zipf."""

    def __init__(self, seed: int, groups: int) -> None:
        self._chance = Chance(seed)
        self._shares = zipf(groups)
        self._names = pa.array([f"/shop/articles/{number:07x}" for number in range(groups)])

    def pane(self, lines: int) -> pa.Table:
        """An agent's partial aggregates of so many lines."""
        drawn, counts = np.unique(self._chance.weighted(self._shares, lines), return_counts=True)
        total = counts * 1_500 + self._chance.below(1_000, len(counts))
        states = {"s0": pa.array(counts), "s1": pa.array(total).cast(SUM_TYPE)}
        return pa.table({"k0": self._names.take(pa.array(drawn)), **states})


def merged(panes: Sequence[pa.Table]) -> pa.Table:
    return merge_tables(panes, KEYS, STATES)


def bytes_of(panes: Sequence[pa.Table]) -> int:
    """Of all of them as messages carry them."""
    return sum(len(encode(one)) for one in panes)
