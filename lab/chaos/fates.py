"""The fate of each row of a stream in files, and what its agent must have made of it.

A row is in no file, in one or in several (a copy, a compressed file). A row is *owed* unless its last bytes
were gone before its agent, well all the while, had ``COMFORT_MS`` to read it and to write a checkpoint. An
owed row is taken once, and any other at most once: durably, by the checkpoint that has its chunk. Where a row
of a log was not taken a gap names that log, unless somebody has deleted a file that the agent cannot have
seen. A gap with a number of bytes names no more than there are. A gap without one needs a cause: a truncation
of the log, a file of it that disappeared while its agent was away, or a file with the inode of another.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from elf.job.gaps import Missed

COMFORT_MS: Final = 4_000
"""An agent that is well for so long has found a file, read its rows and written a checkpoint."""


@dataclass
class Fate:
    """The fate of a row of a log. ``files``: how many contain it; ``gone_ms``: since when none does;
    ``nameless_ms``: since when no path leads to the file that it was written to, which its agent had open
    then; ``taken``: how often it was read durably."""

    log: str
    written_ms: int
    size: int
    files: int = 1
    gone_ms: int | None = None
    nameless_ms: int | None = None
    unseen: bool = False
    taken: int = 0


class Fates:
    """The fates of the rows of one stream of an agent, by their numbers."""

    def __init__(self) -> None:
        self.gaps: list[Missed] = []
        """The gaps that its agent has durably named."""
        self._fates: list[Fate] = []
        self._numbers: dict[str, int] = {}
        self._well: list[list[int]] = []
        """Times in which the agent was well: from, to."""
        self._causes: Counter[str] = Counter()
        """The causes of gaps whose size nobody can know, by log: those that count whichever agent looked."""
        self._gone: list[tuple[str, int]] = []
        """Files that no longer exist: of which log, and since when."""
        self._cut: set[str] = set()

    # -- what happens ----------------------------------------------------------------------------------------

    def looked(self, well: bool, now_ms: int) -> None:
        """Is the agent well?"""
        if not self._well or not well:
            self._well.append([now_ms, now_ms])
        self._well[-1][1] = now_ms

    def written(self, log: str, line: str, now_ms: int) -> int:
        """A row. Its number."""
        self._numbers[line] = len(self._fates)
        self._fates.append(Fate(log, now_ms, len(line) + 1))
        return len(self._fates) - 1

    def copied(self, rows: Iterable[int]) -> None:
        """One more file contains them."""
        for number in rows:
            self._fates[number].files += 1

    def dropped(
        self,
        rows: Iterable[int],
        now_ms: int,
        deleted: tuple[int, int] | None = None,
        *,
        fleeting: bool = False,
    ) -> None:
        """One file less contains them; it existed and had a name from the one time to the other (ms), when it
        was deleted by hand. ``fleeting``: it came and went between two looks that need not be far apart."""
        seen = deleted is not None and self._was_well(*deleted)
        for fate in (self._fates[number] for number in rows):
            fate.files -= 1
            if not fate.files:
                fate.gone_ms, fate.unseen = now_ms, fleeting or (deleted is not None and not seen)
                fate.nameless_ms = deleted[1] if deleted is not None and seen else None

    def cut(self, log: str, rows: Iterable[int], now_ms: int) -> None:
        """A log was truncated. Nobody can know what was written to it between the copy and the truncation."""
        self.dropped(rows, now_ms)
        self._cut.add(log)
        self._causes[log] += 1

    def reused(self, log: str, rotated: int) -> None:
        """A file has the inode of another: an agent that has read the other takes it for one that was begun
        anew, and the files beside it for copies."""
        self._causes[log] += max(rotated, 1)

    def destroyed(self, log: str, now_ms: int) -> None:
        """The last name of a file of this log is gone. An agent that was away then, or soon after, cannot
        know that all of it was read."""
        self._gone.append((log, now_ms))

    def took(self, lines: Iterable[str], gaps: Iterable[Missed]) -> None:
        """The agent has durably read these, and named these."""
        for line in lines:
            self._fates[self._numbers[line]].taken += 1
        self.gaps += gaps

    def was_read(self, rows: Iterable[int]) -> bool:
        """Whether the agent has durably read any of them."""
        return any(self._fates[number].taken for number in rows)

    # -- what must be ----------------------------------------------------------------------------------------

    def may_be_missing(self, number: int) -> bool:
        """Whether a row is not owed. A file without a name is read on as long as its agent has it open."""
        fate = self._fates[number]
        if fate.gone_ms is None:
            return False
        if self._was_well(fate.written_ms, fate.gone_ms):
            return False
        if fate.nameless_ms is None:
            return True
        first = min(fate.nameless_ms, fate.written_ms) - COMFORT_MS
        last = max(fate.nameless_ms, fate.written_ms) + COMFORT_MS
        return not self._was_there(first, last)

    def _was_there(self, since_ms: int, to_ms: int) -> bool:
        """Whether its agent was well all that time."""
        return any(since <= since_ms and to_ms <= to for since, to in self._well)

    def _was_well(self, since_ms: int, to_ms: int) -> bool:
        """Whether its agent was well for long enough in that time."""
        return any(min(to_ms, to) - max(since_ms, since) >= COMFORT_MS for since, to in self._well)

    def lost(self) -> Iterator[str]:
        """Rows that are missing and should not be, are missing without a gap, or are in a gap and not
        missing."""
        missing: dict[str, list[int]] = {}
        for number, fate in enumerate(self._fates):
            if not fate.taken:
                missing.setdefault(fate.log, []).append(number)
        for log, rows in missing.items():
            if owed := [number for number in rows if not self.may_be_missing(number)]:
                yield f"{len(owed)} rows of {log} were there to be read, and never were"
        named: dict[str, list[Missed]] = {log: [] for log in missing}
        for gap in self.gaps:
            named.setdefault(self._log_of(gap), []).append(gap)
        for log, gaps in named.items():
            fates = [self._fates[number] for number in missing.get(log, ())]
            size = sum(fate.size for fate in fates)
            known = sum(fate.size for fate in fates if not fate.unseen)
            unsized = len({(gap.source, gap.offset) for gap in gaps if gap.bytes is None})  # by any life
            said = sum(gap.bytes or 0 for gap in gaps)
            if known and not gaps:
                yield f"{known} bytes of {log} were gone unread, and no gap says so"
            elif said > size or (not unsized and said < known and log not in self._cut):
                yield f"gaps of {log} have {said} bytes, and {size} were gone unread"
            causes = self._causes[log] + sum(
                of == log and not self._was_there(at - COMFORT_MS, at + COMFORT_MS) for of, at in self._gone
            )
            if unsized > causes:
                yield f"{unsized} gaps of {log}, of which {causes} have a cause"

    def missing(self) -> Iterator[tuple[int, str]]:
        """(number, log) of rows that were not taken, where their agent can know that they existed."""
        for number, fate in enumerate(self._fates):
            if not (fate.taken or fate.unseen):
                yield number, fate.log

    def doubled(self) -> int:
        """Rows that were taken more than once."""
        return sum(fate.taken > 1 for fate in self._fates)

    def _log_of(self, gap: Missed) -> str:
        return next((fate.log for fate in self._fates if is_of(gap.path, fate.log)), gap.path)


def is_of(path: str, log: str) -> bool:
    """Whether rotation has made a path from a log, or it is the log."""
    return Path(path).name.startswith(log)
