"""What links between regions carry, as a setting says it: ``eu/us: 20 Mbit/s 40 ms``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from agents.settings.kinds import Kind, Unfit, matching, table

_LINK_TEXT: Final = r"\d{1,9}(\.\d{1,6})? ?Mbit/s( +\d{1,6}(\.\d{1,6})? ?ms)?"


def between() -> Kind[Mapping[str, str]]:
    """Pairs of regions, each with what the link from the first to the second carries."""
    kind = table(matching(_LINK_TEXT, "a rate above 0, and a delay or none, as 20 Mbit/s 40 ms"))

    def read(value: object) -> Mapping[str, str]:
        found = kind.read(value)
        for name, text in found.items():
            if len(set(_pair(name))) != 2 or not all(_pair(name)):
                raise Unfit(f"{name} must be two regions, as eu/us")
            if not float(text.split("M")[0]):
                raise Unfit(f"{name} must have a rate above 0")
        return found

    return Kind(kind.name, read, kind.split)


def _pair(name: str) -> tuple[str, str]:
    """The regions that such a name has; empty texts: it has not two."""
    first, _, second = name.partition("/")
    return ("", "") if "/" in second else (first.strip(), second.strip())


def stated_links(links: Mapping[str, str]) -> dict[tuple[str, str], tuple[float, float | None]]:
    """Bytes a second, and delay (s), from one region to another. Who states one direction means both, unless
    the other one is stated too."""
    there: dict[tuple[str, str], tuple[float, float | None]] = {}
    for name, text in links.items():
        rate, _, delay = text.partition("Mbit/s")
        delay_s = float(delay.removesuffix("ms")) / 1000 if delay.strip() else None
        there[_pair(name)] = float(rate) * 1e6 / 8, delay_s
    return {(b, a): one for (a, b), one in there.items()} | there
