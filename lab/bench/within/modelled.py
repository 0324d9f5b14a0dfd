"""What ``EXPLAIN LATENCY`` says of the jobs of a fleet, modelled beside measured: ten settings and more at
once, over streams whose lines come at random moments.

The model is asked when costs are learned, and held to what comes after that; beside it stands who says that
all will be as it was, which tells whether others have left the machine alone. Mean and 0.99 quantile are
those of all windows (each job promises what it always keeps, so that they say what they took), phases those
of stamped panes. A quantile of few windows is the last of them, and is not judged.
"""

from __future__ import annotations

import asyncio
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import msgspec

from elf.client import Client, Window
from elf.errors import ElfError
from lab.bench.control_fleet import ControlFleet, on_fleet
from lab.bench.runner import percentiles
from lab.bench.within.kept import STREAM, files_of, windows_of
from lab.bench.within.load import Random

SEEN_MS: Final = 5.0
"""Phases that are shorter are not judged."""
WINDOWS_MIN: Final = 60
"""Of fewer windows the 0.99 quantile is not judged."""
MEAN_WITHIN: Final = 0.15
QUANTILE_WITHIN: Final = 0.2
PHASE_WITHIN: Final = 0.15
PROMISE: Final = "WITHIN 60 SECONDS FOR 99 PERCENT"
"""Which any setting keeps, so it changes nothing."""
WARM_SECS: Final = 10.0
APART_SECS: Final = 0.5
"""Between two jobs that begin."""
LEARN_SECS: Final = 100.0
JUDGE_SECS: Final = 160.0
"""Not longer together than an agent keeps stamps."""


Told = dict[str, Any]


@dataclass(frozen=True)
class Feed:
    """Lines a second of each agent, and what a job beside those that are judged promises, so that agents look
    more often (empty: they do not)."""

    rate: float
    promise: str = ""


FEEDS: Final[Mapping[str, Feed]] = {
    "slow": Feed(10),
    "even": Feed(50),
    "full": Feed(200),
    "quick": Feed(50, "WITHIN 1 MILLISECONDS FOR 99 PERCENT BEST EFFORT"),
    "brisk": Feed(200, "WITHIN 50 MILLISECONDS FOR 99 PERCENT BEST EFFORT"),
}


@dataclass(frozen=True)
class Setting:
    """A job over a feed: its windows in ELF-QL, what it groups by (empty: nothing), and trees."""

    feed: str
    windowing: str
    lateness_ms: int
    keys: str = ""
    trees: int = 1

    @property
    def query(self) -> str:
        keys, by = (f"{self.keys}, ", f" GROUP BY {self.keys}") if self.keys else ("", "")
        trees = f" TREES {self.trees}" if self.trees > 1 else ""
        what = f"SELECT {keys}COUNT(*) AS n FROM {self.feed}{by} WINDOWING {self.windowing}"
        return f"{what} LATENESS {self.lateness_ms} MILLISECONDS{trees}"

    @property
    def title(self) -> str:
        trees = f", {self.trees} trees" if self.trees > 1 else ""
        late = f"lateness {self.lateness_ms} ms"
        return f"{self.feed}, {self.windowing.lower()}, {late}, by {self.keys or 'nothing'}{trees}"


SETTINGS: Final = (
    Setting("slow", "1 SECONDS", 0),
    Setting("slow", "2 SECONDS", 250, "word"),
    Setting("slow", "5 SECONDS", 1_150, "word", trees=2),
    Setting("even", "1 SECONDS", 75, "word"),
    Setting("even", "2 SECONDS", 500),
    Setting("even", "2 SECONDS", 1_325, "word", trees=2),
    Setting("full", "1 SECONDS", 400, "word"),
    Setting("full", "1 SECONDS", 750),
    Setting("full", "5 SECONDS", 825, "person"),
    Setting("quick", "1 SECONDS", 575, "word"),
    Setting("quick", "2 SECONDS", 1_900),
    Setting("brisk", "1 SECONDS", 675, "word"),
    Setting("brisk", "2 SECONDS", 1_225, "person", trees=3),
)
"""Of one feed no two have the same flow. They wait for each other as little as can be: at no moment of a
second are panes of two settings due."""


class Beside(msgspec.Struct, frozen=True):
    """In ms, and by how much of what was measured the model errs."""

    modelled: float
    measured: float
    error: float


class Judged(msgspec.Struct, frozen=True):
    """A setting. ``mean`` and ``p99`` of its ``windows`` (None: too few of them), ``phases`` of its stamped
    ``panes``, those that took long enough; ``as_before``: by the mean of stamped panes before, in place of
    the model's; ``facts``: what the model rests on."""

    title: str
    windows: int
    panes: int
    mean: Beside
    p99: Beside | None
    phases: dict[str, Beside]
    as_before: Beside
    facts: dict[str, Any] = {}

    @property
    def told(self) -> str:
        """Its phases, for people."""
        each = (f"{name} {one.modelled:.0f} of {one.measured:.0f}" for name, one in self.phases.items())
        return f"{self.title}; {self.windows} windows, {self.panes} stamped panes; ms: {', '.join(each)}"


class Modelled(msgspec.Struct, frozen=True):
    settings: list[Judged]

    def shares(self) -> Iterator[tuple[str, int, float, float | None]]:
        """Of what is to be near: what it is, how many there are, and the shares that are and that should be
        (None: any)."""
        of_phases = [one for setting in self.settings for one in setting.phases.values()]
        for what, found, within, least in (
            ("means modelled", [one.mean for one in self.settings], MEAN_WITHIN, 0.9),
            ("0.99 quantiles modelled", [one.p99 for one in self.settings if one.p99], QUANTILE_WITHIN, 0.85),
            ("phases above 5 ms modelled", of_phases, PHASE_WITHIN, 1.0),
            ("means, taken to be as before,", [one.as_before for one in self.settings], MEAN_WITHIN, None),
        ):
            if found:
                near = sum(one.error < within for one in found) / len(found)
                yield f"{what} within {within:.0%} of measured", len(found), near, least


def judged(title: str, before: Told, after: Told, took_ms: Sequence[float]) -> Judged:
    """By what EXPLAIN LATENCY has said of a job before and after windows came, and what each of these took.
    Raises ``ElfError`` where nothing was measured."""
    model, panes, then = before["predicted"], after["panes"], before["panes"]
    if model is None or not took_ms or panes <= then:
        raise ElfError(f"{title}: no window or no stamped pane")
    both = {}
    for name, one in after["phases"].items():
        measured = (panes * one["mean_ms"] - then * before["phases"][name]["mean_ms"]) / (panes - then)
        if measured >= SEEN_MS:
            both[name] = _beside(model["phases"][name]["mean_ms"], measured)
    total, windows, mean_ms = model["total"], len(took_ms), statistics.mean(took_ms)
    return Judged(
        title,
        windows,
        panes - then,
        _beside(total["mean_ms"], mean_ms),
        _beside(total["p99_ms"], percentiles(took_ms)["p99"]) if windows >= WINDOWS_MIN else None,
        both,
        _beside(before["total"]["mean_ms"], mean_ms),
        model["facts"],
    )


def _beside(modelled: float, measured: float) -> Beside:
    """What took less than a millisecond is told as that."""
    return Beside(
        round(modelled, 2), round(measured, 2), round(abs(modelled - measured) / max(1.0, measured), 4)
    )


def modelled(folder: Path, agents: int) -> Modelled:
    """All settings at once. Raises ``ElfError``."""
    more = {
        name: {
            "streams": {
                STREAM: files_of(folder / name / "*.jsonl"),
                **{feed: files_of(folder / name / f"{feed}.lines") for feed in FEEDS},
            }
        }
        for name in (f"web-{number:03}" for number in range(agents))
    }
    return on_fleet(folder, agents, _modelled, more=more)


async def _modelled(fleet: ControlFleet) -> Modelled:
    await fleet.start()
    with ExitStack() as stack:
        files = [
            (stack.enter_context((place.folder / f"{name}.lines").open("ab", buffering=0)), feed.rate)
            for place in fleet.places
            for name, feed in FEEDS.items()
        ]
        async with Random(files).on(), fleet.client() as client:
            return Modelled(await _judged(client))


async def _judged(client: Client) -> list[Judged]:
    """Each setting."""
    for name, feed in FEEDS.items():
        if feed.promise:
            looks = Setting(name, "1 SECONDS", 0)
            await client.sql(f"CREATE JOB looks_{name} AS {looks.query} {feed.promise}")
    await asyncio.sleep(WARM_SECS)
    reading = []
    for number, setting in enumerate(SETTINGS):
        await client.sql(f"CREATE JOB set{number} AS {setting.query} {PROMISE}")
        reads = windows_of(client, f"set{number}", LEARN_SECS + JUDGE_SECS)
        reading.append(asyncio.create_task(reads))
        await asyncio.sleep(APART_SECS)
    await asyncio.sleep(LEARN_SECS)
    before, begun = await _told(client), datetime.now(UTC)
    windows = await asyncio.gather(*reading)
    after = await _told(client)
    told = zip(SETTINGS, before, after, windows, strict=True)
    return [judged(setting.title, then, now, _took_ms(found, begun)) for setting, then, now, found in told]


def _took_ms(windows: Iterable[Window], begun: datetime) -> list[float]:
    """Of those that have ended since then, and promise something."""
    since = [one.status for one in windows if one.end is not None and one.end >= begun]
    return [float(str(status["took_ms"])) for status in since if status["promised_ms"] is not None]


async def _told(client: Client) -> list[Told]:
    return [(await client.sql(f"EXPLAIN LATENCY set{number}")).data or {} for number in range(len(SETTINGS))]
