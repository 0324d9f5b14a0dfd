"""The constants of random queries: awkward ones, and those that functions want in certain places."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Final

from elf.ql.expressions import Kind
from elf.ql.functions_time import DATE_UNITS, PARTS
from lab.bench.differential.logs import HOSTS, PAGES, RAWS
from lab.bench.differential.tree import Node, leaf


def text_constant(text: str) -> Node:
    return leaf("'" + text.replace("'", "''") + "'", "text")


_PATTERNS: Final = (
    r"[0-9]+",
    r"^/",
    r"(\w+)\.(\w+)",
    r"(?i)mozilla/([0-9.]+)",
    r"[A-Z]",
    r"\s",
    r"^$",
    r"é|日",
    r"(a|b)(\?.*)?$",
)
LIKES: Final = ("%", "/%", "_", "%a%", "%日%", "A%", "%.%", r"%\%")
ESCAPED: Final = ("%!%%", "!_%", "/!!%", "%!%", "a!_b")
_NUMBERS: Final = (0, 1, -1, 2, 3, 7, 10, 100, -5, 2**31, 2**63 - 1, 10**19)
COUNTS: Final = (0, 1, 3, 25, 1000)
_DOUBLES: Final = ("0.5", "1.5", "0.1", "1e300", "1e-300", "2e0", "0e0")
TIMES: Final = ("2024-01-01 00:00:00", "2023-11-14 22:13:30.5", "1970-01-01", "2016-01-01T00:00:00Z")


def constant_of(kind: Kind, rng: random.Random) -> Node:
    match kind:
        case "bigint":
            return leaf(str(rng.choice(_NUMBERS[:-1])), kind)
        case "double":
            return leaf(rng.choice(_DOUBLES), kind)
        case "boolean":
            return leaf(rng.choice(["TRUE", "FALSE"]), kind)
        case "timestamp":
            return Node("CAST({0} AS TIMESTAMP)", kind, (text_constant(rng.choice(TIMES)),))
        case _:
            return text_constant(rng.choice([*HOSTS, *PAGES, *RAWS[:12], "a", "o", "/", " "]))


WORDS: Final[Mapping[str, Callable[[random.Random], Node]]] = {
    "unit": lambda rng: text_constant(rng.choice(DATE_UNITS)),
    "date_part part": lambda rng: text_constant(rng.choice(sorted(PARTS))),
    "path": lambda rng: text_constant(rng.choice(["$.a", "$[0]", "$.a.b", "$[1].x"])),
    "constant": lambda rng: rng.choice([leaf("1", "bigint"), leaf("2", "bigint"), text_constant("a")]),
    "format": lambda rng: text_constant(rng.choice(["%Y-%m-%d", "%d/%b/%Y %H:%M:%S", "%j week %a%%"])),
    "network": lambda rng: text_constant(rng.choice(["10.0.0.0/8", "192.168.0.0/31", "2001:db8::/33"])),
    "bits": lambda rng: leaf(str(rng.choice([0, 8, 23, 32, 64, 128])), "bigint"),
    "name": lambda rng: text_constant(rng.choice(["q", "c", "d", "Q"])),
    "replacement": lambda rng: text_constant(rng.choice(["", "-", "$1", "é"])),
    "fill": lambda rng: text_constant(rng.choice(["0", ".", "日"])),
    "pattern": lambda rng: text_constant(rng.choice(_PATTERNS)),
    "separator": lambda rng: text_constant(rng.choice(["/", ".", " ", "?", "日"])),
    "characters": lambda rng: text_constant(rng.choice([" ", "/a", "日é", "0"])),
    "digits": lambda rng: leaf(str(rng.randrange(0, 6)), "bigint"),
    "group": lambda rng: leaf(str(rng.randrange(0, 3)), "bigint"),
    "n": lambda rng: leaf(str(rng.choice([1, 2, 3, -1, -2, 9])), "bigint"),
}
"""Arguments that must be constants, by the word of the usage, or by function and word."""
