"""What comes after the map of a flow until its panes are committed, as an agent sees it: the seal, the way up
the tree, the wait for other agents, and the commit. A promise leaves so much time for it
(``elf.planning.turns``).

It is measured by stamped panes (``elf.job.stamps``): of those a root tells its workers at once where somebody
reads them with a promise.
"""

from __future__ import annotations

import statistics
from collections import deque
from typing import Final

LAST: Final = 8
"""Panes by which it is judged."""
FEW: Final = 3
"""Of fewer it is not said what takes the least."""
NEARLY_ALL: Final = 1.5
"""Of the median: a few that took much longer, as where an overload begins, do not count for minutes."""
WAITING_MAX: Final = 4
"""Panes that are sealed and not committed yet, of which the times are known."""


class Rest:
    """Of one flow."""

    def __init__(self) -> None:
        self._mapped_ms: dict[int, tuple[int, int]] = {}
        self._took: deque[tuple[int, int]] = deque(maxlen=LAST)

    @property
    def ms(self) -> int:
        """From the deadline, or from the map where that was sooner: nearly all take no longer; 0: nothing has
        been measured."""
        return round(NEARLY_ALL * statistics.median(sum(one) for one in self._took)) if self._took else 0

    @property
    def least_ms(self) -> int:
        """From the map: the shortest of the last; 0: too few have been measured."""
        return min(took for took, _ in self._took) if len(self._took) >= FEW else 0

    def mapped(self, pane: int, at_ms: int, late_ms: int = 0) -> None:
        """All rows of a pane were mapped then, so long after their deadline: what is to be mapped, however
        few rows are left, and what others seal take their time."""
        self._mapped_ms[pane] = at_ms, late_ms
        if len(self._mapped_ms) > WAITING_MAX:
            del self._mapped_ms[min(self._mapped_ms)]

    def committed(self, pane: int, now_ms: int) -> bool:
        """It is committed; whether that was measured."""
        at_ms, late_ms = self._mapped_ms.pop(pane, (None, 0))
        if at_ms is None:
            return False
        self._took.append((max(0, now_ms - at_ms), late_ms))
        return True
