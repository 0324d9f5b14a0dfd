"""The click stream of the paper's Figure 4: one JSON document a line.

    {"created_at":"2026-11-21T02:00:00.017Z","id":299665941824950273,"product":"Angry Birds
    Season","store":"video_games",
     "clicks_count":2,"likes":0,"buys_count":0,"user":{"id":343284040,"name":"@Curry","location":"Ohio"}}

Product and popularity go by Zipf's law; the same seed and times give the same bytes. Who likes or buys a
product has a taste for it: a store's forty products fall into ``TASTES`` groups, and but for a few fickle
users everybody likes and buys in one group of each store, so that likes and buys are edges between users and
products with bundles in them.
"""

from __future__ import annotations

import json
from typing import Final

import numpy as np

from lab.generator.catalogue import LOCATIONS, NAMES, PRODUCTS, STORES
from lab.generator.chance import Chance, Ints, zipf

FIRST_ID: Final = 299_665_941_824_950_273
"""The id of the paper's event."""

USERS: Final = 20_000
CLICKS_MEAN: Final = 1.4
LIKES_MEAN: Final = 0.3
BUYS_MEAN: Final = 0.08
TASTES: Final = 10
FICKLE: Final = 100
"""One user of so many likes and buys whatever there is."""

_BAD: Final = (
    '{"created_at":"2026-11-21T02:00:00.',
    "java.lang.IllegalStateException: connection reset by peer",
    '{"created_at":, "product": }',
    '["not", "an", "object"',
    '{"product":"\udcff\udcfe"}',
)
"""Lines that are no JSON documents: torn ones, foreign ones, and one that is no UTF-8 (as surrogate escapes).
"""


class Clicks:
    """Lines of the click stream. ``bad`` is the share of lines that don't parse."""

    def __init__(self, seed: int, bad: float = 0.0) -> None:
        self._chance = Chance(seed)
        self._bad = bad
        self._id = FIRST_ID + (seed % 1_000_000) * 1_000_000_000
        self._shares = zipf(len(PRODUCTS))
        self._products = [
            f'"product":{_quoted(name)},"store":{_quoted(store)},"clicks_count":' for store, name in PRODUCTS
        ]
        people = Chance(seed + 1)
        places = people.weighted(zipf(len(LOCATIONS), 0.7), USERS).tolist()
        self._users = [
            f'"user":{{"id":{343_284_040 + 7 * n},"name":{_quoted(_handle(n))},'
            f'"location":{_quoted(LOCATIONS[place])}}}}}'
            for n, place in enumerate(places)
        ]
        self._user_shares = zipf(USERS, 0.6)

    def lines(self, times_us: Ints) -> list[str]:
        """A line for each event time (µs since the epoch), without line ends."""
        size = len(times_us)
        chance = self._chance
        stamps = np.datetime_as_string((times_us // 1000).astype("datetime64[ms]")).tolist()
        which = chance.weighted(self._shares, size)
        clicked = 1 + chance.counts(CLICKS_MEAN - 1, size)
        likes, buys = chance.counts(LIKES_MEAN, size), chance.counts(BUYS_MEAN, size)
        who = chance.weighted(self._user_shares, size)
        fond = (likes + buys > 0) & (who % FICKLE != FICKLE - 1)
        who = np.where(fond, who - who % TASTES + taste(which), who)
        drawn = zip(*(column.tolist() for column in (which, clicked, likes, buys, who)), strict=True)
        products, users, first = self._products, self._users, self._id
        lines = [
            f'{{"created_at":"{stamp}Z","id":{number},{products[product]}{clicks},"likes":{like},"buys_count":{buy},'
            f"{users[user]}"
            for number, (stamp, (product, clicks, like, buy, user)) in enumerate(
                zip(stamps, drawn, strict=True), first
            )
        ]
        self._id += size
        return spoil(lines, _BAD, self._bad, chance)


def taste(products: Ints) -> Ints:
    """The group of each product (an index of ``PRODUCTS``), and of the users who like and buy it."""
    ranks: Ints = products // len(STORES)
    return ranks % TASTES


def spoil(lines: list[str], bad: tuple[str, ...], share: float, chance: Chance) -> list[str]:
    """Put lines that don't parse in the place of a share of the others."""
    if share > 0:
        for place in np.flatnonzero(chance.happens(share, len(lines))).tolist():
            lines[place] = bad[int(chance.below(len(bad), 1)[0])]
    return lines


def _handle(number: int) -> str:
    name = NAMES[number % len(NAMES)]
    return f"@{name}" if number < len(NAMES) else f"@{name}{number // len(NAMES)}"


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
