"""Queries that are broken at random: each is planned, or refused with one error of the query.

What is broken are the queries of ``elf bench differential``, which reach the whole language.
``ELF_FUZZ=20000`` for more of them.
"""

from __future__ import annotations

import os
import random
import re

from elf.errors import QueryError, UserError
from lab.bench.differential.asked import plan_of
from lab.bench.differential.queries import make_query

COUNT = int(os.environ.get("ELF_FUZZ", "600"))
SEED = int(os.environ.get("ELF_FUZZ_SEED", "1"))
TOKEN = re.compile(r"\w+|'[^']*'|\s+|.")
ODD = (
    *("(", ")", "'", '"', ";", "--", "/*", "\0", "é", "9" * 40, "1e400", "NULL", "*", ",", "::", "->>", "$."),
    *(
        "%",
        "{",
        "]",
        "\\",
        ":p",
        "LIMIT -1",
        " OVER ()",
        "INTERVAL 1 DAY",
        "IN ()",
        "GROUPING(1)",
        "1e9 DAYS",
    ),
)


def broken(rng: random.Random, tokens: list[str], others: list[list[str]]) -> str:
    """The text with a few pieces left out, put in, or taken from elsewhere."""
    found = list(tokens)
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        place, other = rng.randrange(len(found) + 1), rng.choice(others)
        begin = rng.randrange(len(other))
        change = rng.randrange(4)
        if change == 0:
            del found[place : place + rng.choice([1, 2, 5])]
        elif change == 1:
            found[place : place + 1] = [rng.choice(other)]
        elif change == 2:
            found[place:place] = other[begin : begin + rng.choice([1, 3, 8])]
        else:
            found.insert(place, rng.choice(ODD))
        found = found or ["SELECT"]
    return "".join(found)


def fate(text: str) -> str:
    """``planned``, ``refused``, or what else came of it."""
    try:
        plan_of(text)
    except (QueryError, UserError) as refused:
        return "refused" if str(refused).strip() else "refused without a word"
    except Exception as error:
        return repr(error)
    return "planned"


def test_a_broken_query_is_planned_or_refused() -> None:
    made = [str(make_query(random.Random(f"{SEED}/{n}"), lateness=True)) for n in range(COUNT // 10)]
    tokens = [TOKEN.findall(text) for text in made]
    rng = random.Random(SEED)
    fates: dict[str, str] = {}
    for _ in range(COUNT):
        text = broken(rng, rng.choice(tokens), tokens)
        fates.setdefault(fate(text), text)
    assert {"planned", "refused"} <= fates.keys()
    assert fates.keys() == {"planned", "refused"}, fates
