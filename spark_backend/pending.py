"""Which windows are due to be judged, so that each is judged once, when all that may explain it is known.

Rules: the archives are shipped after the list of windows was made (``Client.compare_facts``), so they have
every row of every window in the list. A window is due when ``LATER_MIN`` windows that end after it are
committed: they count the rows that came too late for it. One that is unexplained is a *suspect*: it is judged
again at the next look, with what was counted meanwhile, and that verdict is final. What Spark finds in a
window that was never committed, between two that are due, is final at once.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Final

import msgspec

from spark_backend.compare import Bounds, Outcome, Verdict

LATER_MIN: Final = 2
"""Windows after one that must be there before it is judged."""


class Pending:
    """Of one job.

    Example:
        >>> pending, windows = Pending(), [(0, 1), (1, 2), (2, 3)]
        >>> pending.due(windows)
        [(0, 1)]
        >>> pending.settle([Verdict(0, 1, 0, {}, live_rows=2, offline_rows=2)])
        [Verdict(start_us=0, end_us=1, revision=0, status={}, live_rows=2, offline_rows=2, differences=(), \
columns=(), reasons=(), compared=True)]
        >>> pending.due(windows), pending.lag_us(windows)
        ([], 2)
    """

    def __init__(self) -> None:
        self._final: set[Bounds] = set()
        self._suspects: set[Bounds] = set()
        self._newest: int | None = None

    @classmethod
    def of(cls, kept: bytes) -> Pending:
        """What another one has kept.

        Args:
            kept (bytes): of ``kept``.

        Returns:
            Pending: it goes on where that one was.

        Raises:
            msgspec.MsgspecError: for other bytes.

        Example:
            >>> pending = Pending()
            >>> pending.pass_over([(0, 1)])
            >>> Pending.of(pending.kept()).due([(0, 1), (1, 2), (2, 3), (3, 4)])
            [(1, 2)]
        """
        found = cls()
        final, suspects, found._newest = msgspec.msgpack.decode(kept, type=_Kept)
        found._final, found._suspects = set(final), set(suspects)
        return found

    def kept(self) -> bytes:
        """All of it, for ``of``.

        Args:
            None.

        Returns:
            bytes: the windows that the last ``due`` was told of, at most.

        Raises:
            Nothing.

        Example:
            >>> Pending().kept()
            b'\\x93\\x90\\x90\\xc0'
        """
        return msgspec.msgpack.encode((sorted(self._final), sorted(self._suspects), self._newest))

    def pass_over(self, windows: Iterable[Bounds]) -> None:
        """These are not to be judged.

        Args:
            windows (Iterable[Bounds]): start and end of each, in µs since the epoch.

        Raises:
            Nothing.

        Example:
            >>> pending = Pending()
            >>> pending.pass_over([(0, 1)])
            >>> pending.due([(0, 1), (1, 2), (2, 3), (3, 4)])
            [(1, 2)]
        """
        self._final.update(windows)

    def due(self, known: Collection[Bounds]) -> list[Bounds]:
        """Those of the windows that are to be judged now.

        Args:
            known (Collection[Bounds]): all windows that the fleet tells of; others are forgotten.

        Returns:
            list[Bounds]: by their ends.

        Raises:
            Nothing.
        """
        oldest = min((start for start, _ in known), default=0)
        self._final = {one for one in self._final if one[0] >= oldest}
        ends = sorted({end for _, end in known})
        if len(ends) <= LATER_MIN:
            return []
        last = ends[-1 - LATER_MIN]
        return sorted((one for one in known if one[1] <= last and one not in self._final), key=_by_end)

    def settle(self, verdicts: Sequence[Verdict]) -> list[Verdict]:
        """Those of these verdicts that are final.

        Args:
            verdicts (Sequence[Verdict]): of windows that were due.

        Returns:
            list[Verdict]: all but those of new suspects.

        Raises:
            Nothing.
        """
        found = []
        for verdict in verdicts:
            bounds = (verdict.start_us, verdict.end_us)
            committed = verdict.revision is not None
            if committed and verdict.outcome is Outcome.UNEXPLAINED and bounds not in self._suspects:
                self._suspects.add(bounds)
                continue
            self._suspects.discard(bounds)
            if bounds not in self._final:
                self._final.add(bounds)
                found.append(verdict)
            self._newest = max(verdict.end_us, self._newest or verdict.end_us)
        return found

    def lag_us(self, known: Collection[Bounds]) -> int:
        """How far the newest window that was judged is behind the newest one that is committed.

        Args:
            known (Collection[Bounds]): all windows that the fleet tells of.

        Returns:
            int: in µs of event time; 0 before the first verdict.

        Raises:
            Nothing.
        """
        newest = max((end for _, end in known), default=0)
        return 0 if self._newest is None else max(newest - self._newest, 0)


_Kept = tuple[list[Bounds], list[Bounds], int | None]


def _by_end(bounds: Bounds) -> Bounds:
    return bounds[1], bounds[0]
