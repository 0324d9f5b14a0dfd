"""What the applications' live results must be: computed once more from whole logs, in plain Python and in one
pass.

A live result says which lines it has read of each agent: from the id of the first to that of the last. A
batch takes all lines that the one before has not taken, so a line that was lost or counted twice shows.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from elf.errors import ElfError

Row = dict[str, Any]
Logs = dict[str, list[Row]]
"""The lines of each agent's log in order, by the agent's address."""
Result = dict[str, Any]


def read(logs: Mapping[str, Path]) -> Logs:
    """All lines of these logs."""
    return {
        address: [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        for address, path in logs.items()
    }


class Ledger:
    """Lines that batches have taken, of those that are wanted."""

    def __init__(self, logs: Logs, wanted: Callable[[Row], bool]) -> None:
        self._rows = {agent: [row for row in rows if wanted(row)] for agent, rows in logs.items()}
        self._next: dict[str, int] = {}

    def take(self, covers: Mapping[str, Sequence[int]]) -> list[tuple[str, Row]]:
        """What a batch must be of, with the agent: all lines up to its last one that are not taken yet."""
        found: list[tuple[str, Row]] = []
        for agent, (first, last, *_) in covers.items():
            rows = self._rows[agent]
            begin = self._next.get(agent)
            begin = _place(rows, agent, first) if begin is None else begin
            end = _place(rows, agent, last) + 1
            found.extend((agent, row) for row in rows[begin:end])
            self._next[agent] = end
        return found


def _place(rows: Sequence[Row], agent: str, id_: int) -> int:
    for place, row in enumerate(rows):
        if row["id"] == id_:
            return place
    raise ElfError(f"a result is said to be of line {id_} of {agent}, and its log has no such line")


def promotions(batches: Sequence[Result], logs: Logs, store: str, top: int) -> list[bool]:
    """Whether each batch has the clicks, the top products and the discounts that it must."""
    ledger = Ledger(logs, lambda row: row["store"] == store)
    sold: dict[str, set[str]] = {agent: set() for agent in logs}
    gave: dict[str, int] = {}
    found = []
    for batch in batches:
        clicks: Counter[str] = Counter()
        for agent, row in ledger.take(batch["covers"]):
            clicks[row["product"]] += row["clicks_count"]
            sold[agent].add(row["product"])
        best = [product for product, _ in sorted(clicks.items(), key=lambda pair: (-pair[1], pair[0]))][:top]
        found.append(batch["clicks"] == clicks and batch["top"] == best and batch["gave"] == gave)
        gave = {product: sum(product in products for products in sold.values()) for product in best}
    return found


def bundlings(looks: Sequence[Result], logs: Logs, store: str) -> list[bool]:
    """Whether each look at the graph has the bundles that it must."""
    likers = {
        agent: [row for row in rows if row["store"] == store and (row["likes"] > 0 or row["buys_count"] > 0)]
        for agent, rows in logs.items()
    }
    found = []
    for look in looks:
        edges = [
            (row["user"]["id"], row["product"])
            for agent, (first, last, _) in look["covers"].items()
            for row in likers[agent]
            if first <= row["id"] <= last and seconds(row) >= look["since"]
        ]
        found.append(look["bundles"] == bundles_of(edges))
    return found


def seconds(row: Row) -> float:
    """The event time of a line since the epoch."""
    return datetime.fromisoformat(row["created_at"]).timestamp()


def bundles_of(edges: Iterable[tuple[object, str]]) -> list[list[str]]:
    """Products that users connect, sorted: sets that have one in common are one set."""
    by_user: dict[object, set[str]] = {}
    for user, product in edges:
        by_user.setdefault(user, set()).add(product)
    bundles: list[set[str]] = []
    for products in by_user.values():
        touching = [bundle for bundle in bundles if bundle & products]
        bundles = [bundle for bundle in bundles if bundle not in touching] + [products.union(*touching)]
    return sorted(sorted(bundle) for bundle in bundles if len(bundle) > 1)


def predictions(
    made: Sequence[Result],
    batches: Sequence[Result],
    looks: Sequence[Result],
    logs: Logs,
    store: str,
    product: str,
) -> list[bool]:
    """Whether each prediction follows from the lines: its bundle, the clicks on it, and the line through
    them."""
    ledger = Ledger(logs, lambda row: row["store"] == store)
    clicks: dict[int, Counter[str]] = {}
    for batch in batches:
        clicks[batch["batch"]] = Counter()
        for _, row in ledger.take(batch["covers"]):
            clicks[batch["batch"]][row["product"]] += row["clicks_count"]
    right = {
        look["look"]: look["bundles"]
        for look, good in zip(looks, bundlings(looks, logs, store), strict=True)
        if good
    }
    found = []
    for one in made:
        bundles = right.get(one["look"], [])
        bundle = next((bundle for bundle in bundles if product in bundle), [product])
        history = [sum(clicks[batch][name] for name in one["bundle"]) for batch in one["batches"]]
        close = abs(one["forecast"] - line_through(history)) < 1e-6 * max(1.0, one["forecast"])
        found.append(one["bundle"] == bundle and one["history"] == history and close)
    return found


def line_through(history: Sequence[float]) -> float:
    """The next value of the least-squares line through these, at least 0: the textbook's sums."""
    count = len(history)
    mean_x, mean_y = (count - 1) / 2, sum(history) / count
    slope = sum((x - mean_x) * (y - mean_y) for x, y in enumerate(history)) / sum(
        (x - mean_x) ** 2 for x in range(count)
    )
    return max(0.0, mean_y + slope * (count - mean_x))


def campaigns(
    batches: Sequence[Result], logs: Logs, wanted: Callable[[Row], bool], by: Callable[[Row], str], top: int
) -> list[bool]:
    """Whether each batch has the top posters, or places, that it must."""
    ledger = Ledger(logs, wanted)
    found = []
    for batch in batches:
        posts = Counter(by(row) for _, row in ledger.take(batch["covers"]))
        best = sorted(posts.items(), key=lambda pair: (-pair[1], pair[0]))[:top]
        found.append([tuple(one) for one in batch["top"]] == best)
    return found
