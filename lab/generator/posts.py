"""The posts of a social network, one JSON document a line, for the paper's spam campaign (section 4.1).

    {"created_at":"2026-11-21T02:00:00.017Z","id":299665941824950273,"text":"Crazy sales today: 70 % off
    everything","user":{"id":343284040,"name":"@Curry","location":"Ohio","followers_count":212}}

Most posts are about anything. Some are about sales: those of a few large shops, with many followers, who post
often; those of anybody, now and then; and those of a campaign, accounts of one place whom hardly anybody
follows. The same seed and times give the same bytes.
"""

from __future__ import annotations

import json
from typing import Final

import numpy as np

from lab.generator.catalogue import LOCATIONS, NAMES
from lab.generator.chance import Chance, Ints, zipf
from lab.generator.clicks import FIRST_ID, spoil

PEOPLE: Final = 5_000
SHOPS: Final = 3
CAMPAIGN: Final = 8
"""Accounts. The shops come first, then the campaign, then people."""
CAMPAIGN_LOCATION: Final = "Ontario"
CAMPAIGN_FOLLOWERS_MAX: Final = 60

SALES: Final = (0.03, 0.06, 0.04)
"""The shares of all posts that are about sales and come from shops, the campaign, and people."""

_SHOPS: Final = ("@BigStore", "@MegaMart", "@OutletCity")
_BOTS: Final = ("@deal", "@bargain", "@promo", "@offer")
_SALES: Final = (
    "Crazy sales today: 70 % off everything",
    "flash sales, only one hour left!!",
    "you won't believe these sales, see my page",
    "Summer sales start now",
    "sales sales sales",
)
_ELSE: Final = (
    "Good morning, world",
    "coffee first",
    "that film was far too long",
    "who else is watching the match?",
    "it rains again",
    "learning to bake bread, day 12",
    "my cat has opinions",
    "new record: 5 km in 27 minutes",
    "reading on the train",
    "is the network slow today, or is it me?",
)
_BAD: Final = ('{"created_at":"2026-11-21T02:00:', "connection reset by peer", '{"text":}')
"""Lines that are no JSON documents."""


class Posts:
    """Lines of posts. ``bad`` is the share of lines that don't parse."""

    def __init__(self, seed: int, bad: float = 0.0) -> None:
        self._chance = Chance(seed)
        self._bad = bad
        self._id = FIRST_ID + (seed % 1_000_000) * 1_000_000_000
        people = Chance(0)  # the same everywhere: it is one network
        homes = people.weighted(zipf(len(LOCATIONS), 0.7), PEOPLE).tolist()
        followers = (80 * people.counts(9, PEOPLE) + people.below(80, PEOPLE)).tolist()
        accounts = [(name, LOCATIONS[n], 250_000 + 90_000 * n) for n, name in enumerate(_SHOPS)]
        few = people.below(CAMPAIGN_FOLLOWERS_MAX, CAMPAIGN).tolist()
        accounts += [
            (f"{_BOTS[n % len(_BOTS)]}{17 * n + 3}", CAMPAIGN_LOCATION, count) for n, count in enumerate(few)
        ]
        accounts += [
            (f"@{NAMES[n % len(NAMES)]}{n}", LOCATIONS[home], count)
            for n, (home, count) in enumerate(zip(homes, followers, strict=True))
        ]
        self._users = [
            json.dumps(
                {"id": 343_284_040 + 7 * n, "name": name, "location": place, "followers_count": count},
                ensure_ascii=False,
                separators=(",", ":"),
            )
            for n, (name, place, count) in enumerate(accounts)
        ]

    def lines(self, times_us: Ints) -> list[str]:
        """A line for each event time (µs since the epoch), without line ends."""
        size = len(times_us)
        chance = self._chance
        stamps = np.datetime_as_string((times_us // 1000).astype("datetime64[ms]")).tolist()
        kinds = chance.weighted([*SALES, 1 - sum(SALES)], size)
        people = SHOPS + CAMPAIGN + chance.weighted(zipf(PEOPLE, 0.4), size)
        bots = SHOPS + chance.weighted(zipf(CAMPAIGN, 0.3), size)
        users = np.choose(kinds, [chance.below(SHOPS, size), bots, people, people]).tolist()
        sales, other = chance.below(len(_SALES), size).tolist(), chance.below(len(_ELSE), size).tolist()
        texts = [
            _SALES[sale] if kind < len(SALES) else _ELSE[text]
            for kind, sale, text in zip(kinds.tolist(), sales, other, strict=True)
        ]
        lines = [
            f'{{"created_at":"{stamp}Z","id":{number},"text":"{text}","user":{self._users[user]}}}'
            for number, (stamp, text, user) in enumerate(zip(stamps, texts, users, strict=True), self._id)
        ]
        self._id += size
        return spoil(lines, _BAD, self._bad, chance)
