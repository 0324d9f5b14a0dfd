"""What ``EXPLAIN LATENCY`` says of the jobs of a fleet, modelled beside measured: ten settings and more at
once, over streams whose lines come at random moments.

The model is asked when costs are learned, and held to what comes after that. Mean and 0.99 quantile are those
of all windows (each job promises what it always keeps, so that its master counts them), phases those of
stamped panes. A quantile of few windows is the last of them, and is not judged.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec

from elf.client import Client
from elf.errors import ElfError
from lab.bench.control_fleet import ControlFleet, on_fleet
from lab.bench.within.kept import STREAM, files_of
from lab.bench.within.load import Random

SEEN_MS: Final = 5.0
"""Phases that are shorter are not judged."""
WINDOWS_MIN: Final = 60
"""Of fewer windows the 0.99 quantile is not judged."""
MEAN_WITHIN: Final = 0.15
QUANTILE_WITHIN: Final = 0.2
PHASE_WITHIN: Final = 0.15
PROMISES: Final = ("WITHIN 60 SECONDS FOR 99 PERCENT", "WITHIN 50 SECONDS FOR 99 PERCENT")
"""Which any setting keeps, so they change nothing. With the second one, and so with a version whose windows
are counted anew, jobs go on when the model was asked."""
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
    ``panes``, those that took long enough; ``facts``: what the model rests on."""

    title: str
    windows: int
    panes: int
    mean: Beside
    p99: Beside | None
    phases: dict[str, Beside]
    facts: dict[str, Any] = {}

    @property
    def told(self) -> str:
        """Its phases, for people."""
        each = (f"{name} {one.modelled:.0f} of {one.measured:.0f}" for name, one in self.phases.items())
        return f"{self.title}; {self.windows} windows, {self.panes} stamped panes; ms: {', '.join(each)}"


class Modelled(msgspec.Struct, frozen=True):
    settings: list[Judged]

    def shares(self) -> Iterator[tuple[str, int, float, float]]:
        """Of what is to be near: what it is, how many there are, and the shares that are and that should
        be."""
        of_phases = [one for setting in self.settings for one in setting.phases.values()]
        for what, found, within, least in (
            ("means", [one.mean for one in self.settings], MEAN_WITHIN, 0.9),
            ("0.99 quantiles", [one.p99 for one in self.settings if one.p99], QUANTILE_WITHIN, 0.85),
            ("phases above 5 ms", of_phases, PHASE_WITHIN, 1.0),
        ):
            if found:
                near = sum(one.error < within for one in found) / len(found)
                yield f"{what} modelled within {within:.0%}", len(found), near, least


def judged(title: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> Judged:
    """By what EXPLAIN LATENCY has said of a job: the model is asked before, and what came after it counts.
    Raises ``ElfError`` where nothing was measured."""
    model, promise = before["predicted"], after["promise"]
    panes, then = after["panes"], before["panes"]
    if model is None or not promise or not promise.get("windows") or panes <= then:
        raise ElfError(f"{title}: no window or no stamped pane")
    windows, both = promise["windows"], {}
    for name, one in after["phases"].items():
        measured = (panes * one["mean_ms"] - then * before["phases"][name]["mean_ms"]) / (panes - then)
        if measured >= SEEN_MS:
            both[name] = _beside(model["phases"][name]["mean_ms"], measured)
    total, late = model["total"], promise["quantile_ms"]
    return Judged(
        title,
        windows,
        panes - then,
        _beside(total["mean_ms"], promise["mean_ms"]),
        _beside(total["p99_ms"], late) if windows >= WINDOWS_MIN else None,
        both,
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
            before, after = await _asked(client)
    each = zip(SETTINGS, before, after, strict=True)
    return Modelled([judged(setting.title, *told) for setting, *told in each])


async def _asked(client: Client) -> tuple[list[Told], list[Told]]:
    """What is said of each setting once costs are learned, and in the end."""
    for name, feed in FEEDS.items():
        if feed.promise:
            looks = Setting(name, "1 SECONDS", 0)
            await client.sql(f"CREATE JOB looks_{name} AS {looks.query} {feed.promise}")
    for number, setting in enumerate(SETTINGS):
        await client.sql(f"CREATE JOB set{number} AS {setting.query} {PROMISES[0]}")
    await asyncio.sleep(LEARN_SECS)
    before = [await _told(client, number) for number in range(len(SETTINGS))]
    for number, setting in enumerate(SETTINGS):
        await client.sql(f"ALTER JOB set{number} AS {setting.query} {PROMISES[1]}")
    await asyncio.sleep(JUDGE_SECS)
    return before, [await _told(client, number) for number in range(len(SETTINGS))]


async def _told(client: Client, number: int) -> Told:
    return (await client.sql(f"EXPLAIN LATENCY set{number}")).data or {}
