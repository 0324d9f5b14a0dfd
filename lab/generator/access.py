"""A web access log in the combined format of Apache and nginx, with what real ones have in them.

Several methods, paths with queries, a mix of status codes, ``-`` for no bytes, no user and no referer, quotes
escaped in user agents, IPv6 clients, and now and then a request line that is none (a bare ``-``, a TLS
handshake on the plain port, no version).
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final
from urllib.parse import quote_plus

import numpy as np

from lab.generator.catalogue import PRODUCTS
from lab.generator.chance import Chance, Ints, zipf
from lab.generator.clicks import spoil

CLIENTS: Final = 4_000
IPV6_SHARE: Final = 0.06
ODD_SHARE: Final = 0.004
"""Request lines that are no ``METHOD URI VERSION``."""

USER_SHARE: Final = 0.03
NO_REFERER_SHARE: Final = 0.4

_METHODS: Final = (
    ("GET", 0.885),
    ("POST", 0.07),
    ("HEAD", 0.025),
    ("PUT", 0.01),
    ("OPTIONS", 0.006),
    ("DELETE", 0.004),
)
_STATUS: Final = (
    ("200", 0.85),
    ("304", 0.06),
    ("404", 0.035),
    ("302", 0.02),
    ("301", 0.015),
    ("206", 0.007),
    ("500", 0.006),
    ("403", 0.004),
    ("503", 0.003),
)
_ODD: Final = (
    ("-", "408", "-"),
    (r"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", "400", "226"),
    (r"\x03\x00\x00/*\xe0\x00\x00\x00\x00\x00Cookie: mstshash=Administr", "400", "0"),
    ("GET /", "400", "301"),
    ("quit", "400", "226"),
)
"""(request as it is logged, status, bytes)"""

_KHTML: Final = "(KHTML, like Gecko)"
_AGENTS: Final = (
    f"Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 {_KHTML} Chrome/131.0.0.0 Safari/537.36",
    f"Mozilla/5.0 (iPhone; CPU iPhone OS 18_1) AppleWebKit/605.1.15 {_KHTML} Version/18.1 Safari/604.1",
    f"Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15) AppleWebKit/605.1.15 {_KHTML} Version/18.1 Safari/605.1",
    "Mozilla/5.0 (X11; Linux x86_64; rv:133.0) Gecko/20100101 Firefox/133.0",
    f"Mozilla/5.0 (Linux; Android 15) AppleWebKit/537.36 {_KHTML} Chrome/131.0.0.0 Mobile Safari/537.36",
    "Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)",
    "Mozilla/5.0 (compatible; bingbot/2.0; +http://www.bing.com/bingbot.htm)",
    "curl/8.11.0",
    "python-requests/2.32.3",
    "-",
    r"Mozilla/5.0 (\"Shop Preview\"; build 7) Widget/1.2",
    r"Player \"One\" [beta] \\ 3.0",
)

_BAD: Final = (
    "[Fri Nov 21 02:00:00.000000 2026] [core:error] [pid 4711] AH00124: Request exceeded the limit",
    '203.0.113.9 - - [21/Nov/2026:02:00:00 +0000] "GET /cart HT',
    "segfault at 0 ip 00007f3c sp 00007ffd error 4",
    '203.0.113.9 - - [yesterday] "GET / HTTP/1.1" 200 12 "-" "-"',
    "\udc80\udcff\udcfe",
)


class Access:
    """Lines of the access log. ``bad`` is the share of lines that are no access log lines."""

    def __init__(self, seed: int, bad: float = 0.0) -> None:
        self._chance = Chance(seed)
        self._bad = bad
        once = Chance(seed + 1)
        self._clients = _clients(once)
        self._paths = _paths()
        self._referers = ["-", *(f"https://shop.example{path}" for path in self._paths[:60])]
        self._referers += [f"https://www.google.com/search?q={quote_plus(name)}" for _, name in PRODUCTS[:20]]
        self._stamps: dict[int, str] = {}

    def lines(self, times_us: Ints) -> list[str]:
        """A line for each event time (µs since the epoch; the log has whole seconds), without line ends."""
        size = len(times_us)
        chance = self._chance
        methods = [_METHODS[i][0] for i in chance.weighted([share for _, share in _METHODS], size).tolist()]
        status = [_STATUS[i][0] for i in chance.weighted([share for _, share in _STATUS], size).tolist()]
        versions = np.where(chance.happens(0.7, size), "HTTP/1.1", "HTTP/2.0").tolist()
        paths = [self._paths[i] for i in chance.weighted(zipf(len(self._paths), 0.9), size).tolist()]
        requests = [f"{m} {p} {v}" for m, p, v in zip(methods, paths, versions, strict=True)]
        sizes = list(map(str, chance.counts(9_000, size).tolist()))
        for i, (method, code) in enumerate(zip(methods, status, strict=True)):
            if code == "304" or method == "HEAD":
                sizes[i] = "-"
        for i in np.flatnonzero(chance.happens(ODD_SHARE, size)).tolist():
            requests[i], status[i], sizes[i] = _ODD[int(chance.below(len(_ODD), 1)[0])]
        lines = self._join(times_us, requests, status, sizes)
        return spoil(lines, _BAD, self._bad, chance)

    def _join(self, times_us: Ints, requests: list[str], status: list[str], sizes: list[str]) -> list[str]:
        size = len(times_us)
        chance = self._chance
        clients = chance.weighted(zipf(CLIENTS, 0.8), size).tolist()
        users = np.where(chance.happens(USER_SHARE, size), chance.below(50, size), -1).tolist()
        referers = np.where(
            chance.happens(NO_REFERER_SHARE, size), 0, chance.below(len(self._referers), size)
        ).tolist()
        agents = chance.weighted(zipf(len(_AGENTS)), size).tolist()
        columns = zip(
            clients, users, self._times(times_us), requests, status, sizes, referers, agents, strict=True
        )
        return [
            f"{self._clients[client]} - {f'user{user}' if user >= 0 else '-'} [{stamp}] "
            f'"{request}" {code} {length} "{self._referers[referer]}" "{_AGENTS[agent]}"'
            for client, user, stamp, request, code, length, referer, agent in columns
        ]

    def _times(self, times_us: Ints) -> list[str]:
        """``21/Nov/2026:02:00:00 +0000``; each second is written out once."""
        seconds = (times_us // 1_000_000).tolist()
        known = self._stamps
        if len(known) > 100_000:
            known.clear()
        for second in set(seconds).difference(known):
            moment = datetime.fromtimestamp(second, UTC)
            known[second] = f"{moment.day:02d}/{_MONTHS[moment.month - 1]}/{moment:%Y:%H:%M:%S} +0000"
        return [known[second] for second in seconds]


_MONTHS: Final = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
"""English, whatever the locale."""


def _clients(chance: Chance) -> list[str]:
    """Addresses out of the ranges for documentation and private use: nobody's."""
    parts = chance.below(256, 4 * CLIENTS).reshape(CLIENTS, 4).tolist()
    newer = chance.happens(IPV6_SHARE, CLIENTS).tolist()
    return [
        f"2001:db8:{a:x}:{b:x}::{c * 256 + d:x}" if six else f"10.{b}.{c}.{d}"
        for (a, b, c, d), six in zip(parts, newer, strict=True)
    ]


def _paths() -> list[str]:
    """The pages of the shop, most visited first."""
    slugs = ["".join(c if c.isalnum() and c.isascii() else "-" for c in name.lower()) for _, name in PRODUCTS]
    products = [f"/{store}/{slug}" for (store, _), slug in zip(PRODUCTS, slugs, strict=True)]
    searches = [f"/search?q={quote_plus(name)}&page={1 + n % 3}" for n, (_, name) in enumerate(PRODUCTS[:40])]
    fixed = ["/", "/cart", "/static/app.js?v=318", "/static/site.css?v=318", "/favicon.ico", "/robots.txt"]
    fixed += [
        "/api/v1/cart?session=%7Bnew%7D",
        "/login?next=%2Fcart",
        "/wp-login.php",
        "/index.html?",
        "/a b%20c",
    ]
    return [*fixed[:5], *products[:30], *searches, *fixed[5:-1], *products[30:], "/files/a%20b.pdf?dl=1&x=&y"]
