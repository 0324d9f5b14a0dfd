"""The example jobs: copies of one in this process, a tree between them, and an obvious answer beside."""

from __future__ import annotations

import random
from collections import deque
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from elf.aggregates import State
from elf.batch import encode
from elf.job import calls
from elf.job.calls import JobEffect, Place
from elf.job.program import Tap
from elf.job.runner import JobRunner
from elf.ql.plan import Fragment
from tests.job.inline import no_queries

EXAMPLES = Path(__file__).parents[2] / "examples"
PARENTS = {"a": "", "b": "a", "c": "a", "d": "b", "e": "d"}


class Tree:
    """A job on five agents; messages arrive in the order in which they were sent, between two agents."""

    def __init__(self, file: str, keys: tuple[str, ...], seed: int) -> None:
        inner = tuple(f"k{n}" for n in range(len(keys)))
        fragment = Fragment("clicks", (), "", inner, (State("s0", "sum"),), 0, None)
        tap = Tap("main", fragment, tuple(zip(inner, keys, strict=True)), (("s0", "clicks"),))
        text = (EXAMPLES / file).read_text()
        self.runners = {n: JobRunner(text, file, "job", "me", no_queries, (tap,)) for n in PARENTS}
        self._rng = random.Random(seed)
        self._links: dict[tuple[str, str], deque[calls.Event]] = {}
        self.jobs: dict[str, Any] = {n: runner._job for n, runner in self.runners.items()}
        for name, runner in self.runners.items():
            runner.start(self._place(name))

    def _place(self, name: str) -> Place:
        children = tuple(n for n, parent in PARENTS.items() if parent == name)
        return Place(name, 0, name == "a", PARENTS[name], children)

    def rows(self, name: str, groups: dict[str, list[object]]) -> None:
        self.call(name, calls.Rows("main"), encode(pa.table(groups)))

    def call(self, name: str, event: calls.Event, payload: bytes = b"") -> None:
        effects: list[JobEffect] = []
        self.runners[name].handle(event, self._place(name), payload, effects)
        for effect in effects:
            match effect:
                case calls.SendTo():
                    self._put(name, effect.to, calls.Sent(name, effect.value))
                case calls.MulticastOut():
                    self._put(name, name, calls.Cast(self.jobs[name].app_id, effect.value))

    def _put(self, sender: str, to: str, event: calls.Event) -> None:
        self._links.setdefault((sender, to), deque()).append(event)

    def settle(self) -> int:
        """Deliver until nothing is under way; how many messages that took."""
        count = 0
        while waiting := [link for link, events in self._links.items() if events]:
            link = self._rng.choice(waiting)
            event = self._links[link].popleft()
            if isinstance(event, calls.Cast):  # down the tree: who hears of it hands it on, then acts on it
                for child in self._place(link[1]).children:
                    self._put(link[1], child, event)
            self.call(link[1], event)
            count += 1
        return count


@pytest.mark.parametrize("seed", range(5))
def test_micro_promotion_counts_each_click_once_and_tells_the_best(
    seed: int, capsys: pytest.CaptureFixture[str]
) -> None:
    tree = Tree("micro_promotion.py", ("product",), seed)
    for n, name in enumerate(PARENTS):
        tree.rows(name, {"k0": ["Tetris", "Myst", "Doom", f"own {n}"], "s0": [5, 4, 3, n]})
    tree.call("a", calls.Timer())
    tree.settle()
    batch = {row["product"]: row["clicks"] for row in tree.jobs["a"].batch.to_pylist()}
    assert batch == {"Tetris": 25, "Myst": 20, "Doom": 15, **{f"own {n}": n for n in range(5)}}
    tree.call("a", calls.Timer())
    tree.settle()
    assert sorted(capsys.readouterr().out.splitlines()) == sorted(
        f"discount on {product}" for product in ("Tetris", "Myst", "Doom") for _ in PARENTS
    )


@pytest.mark.parametrize("seed", range(5))
def test_product_bundling_finds_the_connected_components(seed: int) -> None:
    rng = random.Random(seed)
    tree = Tree("product_bundling.py", ("user_id", "product"), seed)
    bundles: list[set[str]] = []
    by_user: dict[int, set[str]] = {}
    for name in PARENTS:
        users = [rng.randrange(30) for _ in range(12)]
        products = [f"p{rng.randrange(25)}" for _ in users]
        for user, product in zip(users, products, strict=True):
            by_user.setdefault(user, set()).add(product)
        tree.rows(name, {"k0": users, "k1": products, "s0": [1] * len(users)})
    for products in by_user.values():
        touching = [bundle for bundle in bundles if bundle & products]
        bundles = [b for b in bundles if b not in touching] + [set(products).union(*touching)]
    for _ in range(2):  # again: a master may begin anew at any time
        tree.call("a", calls.Timer())
        tree.settle()
        assert tree.jobs["a"].bundles == sorted(sorted(b) for b in bundles if len(b) > 1)
