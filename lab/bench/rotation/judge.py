"""The judge of a cell: what was written, what the windows and the gaps say, and what is still in files.

Pure: no clock, no files. Times are seconds since the epoch; a row is known by its URI stem, which is unique.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from datetime import UTC, datetime
from typing import Final

import msgspec

PLACES: Final = ("status", "log", "health", "metrics", "compare")
"""Where a gap is told."""
_EXAMPLES: Final = 6


class Row(msgspec.Struct, frozen=True):
    """A line of the truth: its event time, and how many bytes it takes in the log."""

    time: float
    size: int


class Gap(msgspec.Struct, frozen=True, order=True):
    """Bytes of a log that are gone unread, as an agent names them; ``size`` is None when it cannot know."""

    agent: str
    source: str
    size: int | None
    first: float
    last: float

    @classmethod
    def of(cls, told: Mapping[str, object]) -> Gap:
        """From an object with ``agent, source, bytes, from, to``. Raises ``ValueError`` for anything else."""
        size = told.get("bytes")
        if (
            not (size is None or isinstance(size, int))
            or not {"agent", "source", "from", "to"} <= told.keys()
        ):
            raise ValueError(f"not a gap: {dict(told)}")
        first, last = _moment(told["from"], -math.inf), _moment(told["to"], math.inf)
        return cls(str(told["agent"]), str(told["source"]), size, first, last)

    def covers(self, row: Row) -> bool:
        return self.first <= row.time <= self.last


class Seen(msgspec.Struct, frozen=True):
    """What a run came to. ``counts``: how often the windows' last revisions count each row; ``gaps``: those
    of their statuses; ``files``: rows that are in a file of the log's folder; ``raced``: rows that nobody
    could have read; ``by_window``: the gaps that each window names, by its start (windows are of one second);
    ``away``: whether the agent was killed or stopped at some time; ``left_out``: rows that statuses count as
    late, rejected and so on; ``told``: for each place that was asked, whether it tells the gaps that the
    others tell; ``cut``: the log was copied and cut, which loses what is written in between."""

    truth: Mapping[str, Row]
    counts: Mapping[str, int]
    gaps: Collection[Gap] = ()
    files: Collection[str] = frozenset()
    raced: Collection[str] = frozenset()
    by_window: Mapping[float, Collection[Gap]] = {}
    away: bool = False
    left_out: int = 0
    told: Mapping[str, bool] = {}
    cut: bool = False


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """Rows, by what became of them, and what is wrong. ``unnamed``: of those in gaps, how many are of a
    window that does not name the gap; ``lost_in_files``: of those that are lost, how many a file still holds;
    ``counted_out``: of those, how many at most a status counts as late or rejected; ``unsure``: gaps of
    unknown size at cuts at which nothing was lost, which nobody can know."""

    wrote: int
    in_windows: int
    in_gaps: int
    raced: int
    lost: int
    lost_in_files: int
    counted_out: int
    doubled: int
    foreign: int
    unnamed: int
    gaps: int
    false_gaps: int
    unsure: int
    untold: tuple[str, ...]
    wrong_bytes: str
    examples: tuple[str, ...] = ()

    @property
    def complete(self) -> bool:
        """Whether each row is accounted for, once or more."""
        return not self.lost

    @property
    def failures(self) -> list[str]:
        """What is wrong, in words; none: the cell has passed."""
        found = []
        if self.lost:
            notes = [f"{self.lost_in_files} in files"] * bool(self.lost_in_files)
            notes += [f"{self.counted_out} counted as left out"] * bool(self.counted_out)
            found.append(f"{self.lost} lost" + (f" ({', '.join(notes)})" if notes else ""))
        found += [f"{self.doubled} doubled"] * bool(self.doubled)
        found += [f"{self.foreign} that nobody wrote"] * bool(self.foreign)
        found += [f"{self.unnamed} in gaps that their windows do not name"] * bool(self.unnamed)
        found += [f"{self.false_gaps} false gaps"] * bool(self.false_gaps)
        found += [f"gaps untold: {', '.join(self.untold)}"] * bool(self.untold)
        found += [f"gap bytes: {self.wrong_bytes}"] * bool(self.wrong_bytes)
        return found


def judge(seen: Seen) -> Verdict:
    """Each row of the truth is in a window, in a named gap, raced or lost."""
    missing = {name for name in seen.truth if not seen.counts.get(name)}
    gone = missing.difference(seen.files)
    gaps = set(seen.gaps)
    named = {name for name in gone if any(gap.covers(seen.truth[name]) for gap in gaps)}
    raced = gone.intersection(seen.raced) - named
    lost = missing - named - raced
    # Who was away cannot know that a file which was deleted meanwhile held nothing but what had been read.
    unknown = seen.truth.keys() - seen.files if seen.away else gone
    empty = [gap for gap in gaps if not any(gap.covers(seen.truth[name]) for name in unknown)]
    unsure = [gap for gap in empty if seen.cut and gap.size is None]
    doubled = {name for name, count in seen.counts.items() if count > 1 and name in seen.truth}
    foreign = seen.counts.keys() - seen.truth.keys()
    unnamed = [name for name in named if not _is_named(seen.truth[name], seen.by_window)]
    untold = [place for place in PLACES if not seen.told.get(place, True)]
    return Verdict(
        wrote=len(seen.truth),
        in_windows=len(seen.truth) - len(missing),
        in_gaps=len(named),
        raced=len(raced),
        lost=len(lost),
        lost_in_files=len(lost.intersection(seen.files)),
        counted_out=min(seen.left_out, len(lost)),
        doubled=len(doubled),
        foreign=len(foreign),
        unnamed=len(unnamed),
        gaps=len(gaps),
        false_gaps=len(empty) - len(unsure),
        unsure=len(unsure),
        untold=tuple(untold),
        wrong_bytes=_wrong_bytes(seen, gaps, gone),
        examples=tuple(
            f"{what} {text}"
            for what, names in (
                ("lost", lost),
                ("doubled", doubled),
                ("nobody wrote", foreign),
                ("gap", named),
            )
            for text in _runs(names, seen.truth)
        ),
    )


def _is_named(row: Row, by_window: Mapping[float, Collection[Gap]]) -> bool:
    """Whether the window of the row, if there is one, names a gap in which the row is."""
    gaps = by_window.get(math.floor(row.time))
    return gaps is None or any(gap.covers(row) for gap in gaps)


def _wrong_bytes(seen: Seen, gaps: Collection[Gap], gone: Collection[str]) -> str:
    """What gaps say of their sizes, where that is not what is gone; raced rows may be among it or not."""
    sizes = [gap.size for gap in gaps]
    if not sizes or None in sizes:
        return ""
    said = sum(size for size in sizes if size is not None)
    most = sum(seen.truth[name].size for name in gone)
    least = sum(seen.truth[name].size for name in gone if name not in seen.raced)
    if least <= said <= most:
        return ""
    return f"{said} said, {least if least == most else f'{least} to {most}'} gone"


def _runs(names: Iterable[str], truth: Mapping[str, Row]) -> list[str]:
    """Rows that follow one another in the truth as one text; the first few."""
    order = {name: number for number, name in enumerate(truth)}
    runs: list[list[str]] = []
    for name in sorted(names, key=lambda name: (order.get(name, -1), name)):
        if runs and order.get(name, -1) == order.get(runs[-1][-1], -1) + 1:
            runs[-1].append(name)
        else:
            runs.append([name])
    texts = [f"{run[0]} to {run[-1]} ({len(run)} rows{_between(run, truth)})" for run in runs]
    return texts[:_EXAMPLES] + [f"and {len(texts) - _EXAMPLES} more runs"] * (len(texts) > _EXAMPLES)


def _between(run: list[str], truth: Mapping[str, Row]) -> str:
    times = [truth[name].time for name in (run[0], run[-1]) if name in truth]
    return "".join(f", {datetime.fromtimestamp(time, UTC):%H:%M:%S}" for time in times)


def _moment(value: object, missing: float) -> float:
    """Seconds since the epoch, of a datetime (UTC if it says nothing), text or a number (of µs if large)."""
    match value:
        case None | "":
            return missing
        case datetime():
            return value.replace(tzinfo=value.tzinfo or UTC).timestamp()
        case int() | float():
            return value / 1e6 if abs(value) > 1e12 else float(value)
        case _:
            return _moment(datetime.fromisoformat(str(value)), missing)
