"""The example jobs: copies of one in this process, a tree between them, and an obvious answer beside."""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import elf.examples
from elf.aggregates import MergeOp, State
from elf.batch import encode
from elf.cli.demo.batch import bundles_of, line_through
from elf.job.program import calls
from elf.job.program.calls import JobEffect, Place
from elf.job.program.runner import JobRunner
from elf.job.program.spec import Tap, with_settings
from elf.job.program.values import pack_value, unpack_value
from elf.ql.plan import Fragment
from lab.chaos.programs import no_queries

EXAMPLES = Path(elf.examples.__file__).parent
PARENTS = {"a": "master", "b": "a", "c": "a", "d": "b", "e": "d"}
"""Of agents. The master is no agent, and above all of them."""
CLICKS: dict[str, MergeOp] = {"clicks": "sum", "lines": "sum", "first": "min", "last": "max"}
NOW = datetime(2026, 1, 1)
Edge = tuple[int, str]


def tap(
    name: str, keys: tuple[str, ...], states: Mapping[str, MergeOp], *, pane_us: int = 0, panes: int = 0
) -> Tap:
    """What an agent computes for a query with these columns."""
    inner = tuple(f"k{n}" for n in range(len(keys)))
    named = tuple(State(f"s{n}", merge) for n, merge in enumerate(states.values()))
    fragment = Fragment("clicks", (), "", inner, named, pane_us, None)
    pairs = tuple((state.name, column) for state, column in zip(named, states, strict=True))
    return Tap(name, fragment, tuple(zip(inner, keys, strict=True)), pairs, panes)


class Tree:
    """A job on five agents; messages arrive in the order in which they were sent, between two agents."""

    def __init__(self, file: str, taps: tuple[Tap, ...], seed: int, **settings: object) -> None:
        text = with_settings((EXAMPLES / file).read_text(), settings)
        self.taps = {tap.name: tap for tap in taps}
        names = ("master", *PARENTS)
        self.runners = {n: JobRunner(text, file, "job", "me", no_queries, taps) for n in names}
        self._rng = random.Random(seed)
        self._links: dict[tuple[str, str], deque[calls.Event]] = {}
        self.jobs: dict[str, Any] = {n: runner.job for n, runner in self.runners.items()}
        self.now = NOW
        self.away: set[str] = set()
        for name, runner in self.runners.items():
            runner.start(self.place(name))

    def place(self, name: str) -> Place:
        children = tuple(n for n, parent in PARENTS.items() if parent == name)
        now_ms = round((self.now - datetime(1970, 1, 1)) / timedelta(milliseconds=1))
        return Place(name, now_ms, name == "master", PARENTS.get(name, ""), children)

    def rows(
        self, name: str, groups: Mapping[str, Sequence[object]], tap: str = "main", pane: int = 0
    ) -> None:
        """Rows of an agent, as a table with the columns of the query, of one pane."""
        inner = {new: old for old, new in (*self.taps[tap].keys, *self.taps[tap].states)}
        table = pa.table({inner[column]: values for column, values in groups.items()})
        table = table.append_column("_pane", pa.array([pane] * table.num_rows, pa.int64()))
        self.call(name, calls.Rows(tap), encode(table))

    def call(self, name: str, event: calls.Event, payload: bytes = b"") -> None:
        effects: list[JobEffect] = []
        self.runners[name].handle(event, self.place(name), payload, effects)
        for effect in effects:
            match effect:
                case calls.SendTo() | calls.RemarkTo():
                    self._put(name, effect.to, calls.Sent(name, effect.value))
                case calls.MulticastOut() | calls.RemarkOut():
                    self._put(name, name, calls.Cast(self.jobs[name].app_id, effect.value))

    def _put(self, sender: str, to: str, event: calls.Event) -> None:
        self._links.setdefault((sender, to), deque()).append(event)

    def settle(self, until: Callable[[], bool] = lambda: False) -> int:
        """Deliver until nothing is under way, but for what goes to who is away, or until it is enough; how
        many messages that took.
        """
        count = 0
        while waiting := [
            link for link, events in self._links.items() if events and link[1] not in self.away
        ]:
            if until():
                break
            link = self._rng.choice(waiting)
            event = self._links[link].popleft()
            if isinstance(event, calls.Cast):  # down the tree: who hears of it hands it on, then acts on it
                for child in self.place(link[1]).children:
                    self._put(link[1], child, event)
            self.call(link[1], event)
            count += 1
        return count

    def timer(self) -> None:
        self.call("master", calls.Timer())
        self.settle()


def clicks(products: list[str], counts: list[int], first: int) -> dict[str, Sequence[object]]:
    ids = list(range(first, first + len(products)))
    return {"product": products, "clicks": counts, "lines": [1] * len(ids), "first": ids, "last": ids}


@pytest.mark.parametrize("seed", range(5))
def test_micro_promotion_counts_each_click_once_and_tells_the_best(
    seed: int, capsys: pytest.CaptureFixture[str]
) -> None:
    tree = Tree("micro_promotion.py", (tap("main", ("product",), CLICKS),), seed)
    for n, name in enumerate(PARENTS):
        tree.rows(name, clicks(["Tetris", "Myst", "Doom", f"own {n}"], [5, 4, 3, n], 10 * n))
    tree.timer()
    (batch,) = tree.jobs["master"].state["batches"]
    assert batch["clicks"] == {"Tetris": 25, "Myst": 20, "Doom": 15, **{f"own {n}": n for n in range(5)}}
    assert batch["covers"] == {name: [10 * n, 10 * n + 3, 4] for n, name in enumerate(PARENTS)}
    assert (batch["top"], batch["agents"], batch["gave"]) == (["Tetris", "Myst", "Doom"], 5, {})
    assert sorted(capsys.readouterr().out.splitlines()) == sorted(
        f"discount on {product}" for product in ("Tetris", "Myst", "Doom") for _ in PARENTS
    )
    assert tree.jobs["master"].deliver(b"", {"since": "x"}) == [batch]  # whatever is asked
    tree.timer()
    assert tree.jobs["master"].state["batches"][-1]["gave"] == {"Tetris": 5, "Myst": 5, "Doom": 5}


@pytest.mark.parametrize("seed", range(5))
def test_a_batch_that_comes_too_late_is_in_the_next(seed: int) -> None:
    tree = Tree("micro_promotion.py", (tap("main", ("product",), CLICKS),), seed, top=1)
    for n, name in enumerate(PARENTS):
        tree.rows(name, clicks(["Tetris"], [1], 10 * n))
    tree.away = {"d"}  # e is below it
    tree.timer()
    assert tree.jobs["master"].state["batches"] == []  # it waits
    tree.timer()
    tree.away = set()
    tree.settle()
    for n, name in enumerate(PARENTS):
        tree.rows(name, clicks(["Tetris"], [2], 10 * n + 1))
    tree.timer()
    total: Counter[str] = Counter()
    for batch in tree.jobs["master"].state["batches"]:
        total.update(batch["clicks"])
    assert total == {"Tetris": 5 * 1 + 5 * 2}
    assert tree.jobs["master"].state["batches"][-1]["agents"] == 5


EDGE: dict[str, MergeOp] = {"lines": "sum"}
COVER: dict[str, MergeOp] = {"first": "min", "last": "max", "lines": "sum"}
EVERY_US = 5_000_000


def bundling(seed: int, **settings: object) -> Tree:
    """A window of 10 s, on five agents."""
    edges = tap("edges", ("user_id", "product"), EDGE, pane_us=EVERY_US, panes=4)
    return Tree(
        "product_bundling.py", (edges, tap("covers", ("store",), COVER)), seed, window=10.0, **settings
    )


def edges_of(tree: Tree, rng: random.Random, seen: datetime, first: int, users: int = 30) -> list[Edge]:
    """Likes and buys at every agent at that time."""
    found: list[Edge] = []
    pane = round((seen - datetime(1970, 1, 1)).total_seconds() * 1e6) // EVERY_US
    for name in PARENTS:
        who, what = [rng.randrange(users) for _ in range(6)], [f"p{rng.randrange(25)}" for _ in range(6)]
        tree.rows(name, {"user_id": who, "product": what, "lines": [1] * 6}, "edges", pane)
        tree.rows(name, {"store": ["games"], "first": [first], "last": [first + 5], "lines": [6]}, "covers")
        found += zip(who, what, strict=True)
    return found


@pytest.mark.parametrize("users_max", [7, 50_000])
@pytest.mark.parametrize("seed", range(4))
def test_product_bundling_finds_the_components_of_the_window(seed: int, users_max: int) -> None:
    rng = random.Random(seed)
    tree = bundling(seed, users_max=users_max)
    master = tree.jobs["master"]
    tree.timer()
    assert master.looks()[-1]["bundles"] == []  # nobody has liked anything
    old = edges_of(tree, rng, NOW - timedelta(seconds=6), 0)
    new = edges_of(tree, rng, NOW, 100)
    tree.now = NOW
    for _ in range(2):  # the second time in as many parts as the first had users for
        tree.timer()
        look = master.looks()[-1]
        # since NOW is where a step begins, the last step of the window is the one after it
        assert look["bundles"] == bundles_of(new)
        assert look["users"] == len({user for user, _ in new})
    assert look["epochs"] == -(-look["users"] // users_max)
    tree.now = NOW - timedelta(seconds=1)
    tree.timer()
    assert master.looks()[-1]["bundles"] == bundles_of(old + new)
    asked = ({"since": "x"}, {"since": None}, [1], None)  # whatever is asked
    assert all(master.deliver(b"", one) == master.looks() for one in asked)
    assert all(tuple(span) == (0, 105, 12) for span in master.looks()[-1]["covers"].values())
    edges_of(tree, rng, NOW + timedelta(seconds=15), 200)
    assert sum(job.flush("edges").num_rows for job in tree.jobs.values()) <= 60  # old edges are forgotten


@pytest.mark.parametrize("users", [5_000, 1_000_000])
def test_many_users_are_brought_together_in_parts_that_fit_a_message(users: int) -> None:
    rng, groups = np.random.default_rng(1), users // 500
    tree = bundling(1, users_max=users // 20)
    pane = round((NOW - datetime(1970, 1, 1)).total_seconds() * 1e6) // EVERY_US
    known: set[int] = set()
    for name in PARENTS:
        who: list[int] = rng.integers(0, users, users // 2).tolist()
        which: list[int] = rng.integers(0, 10, len(who)).tolist()
        what = [f"{user % groups}: {one}" for user, one in zip(who, which, strict=True)]
        edges: dict[str, Sequence[object]] = {"user_id": who, "product": what, "lines": [1] * len(who)}
        tree.rows(name, edges, "edges", pane)
        known.update(who)
        assert len(tree.runners[name].state()) < calls.STATE_BYTES_MAX // 2
    largest = 0
    put = tree._put

    def noted(sender: str, to: str, event: calls.Event) -> None:
        nonlocal largest
        largest = max(largest, calls.size_of(event, b""))
        put(sender, to, event)

    tree._put = noted  # type: ignore[method-assign]
    tree.timer()
    tree.timer()
    look = tree.jobs["master"].looks()[-1]
    assert look["users"] == len(known)
    assert look["bundles"] == sorted(
        sorted(f"{group}: {one}" for one in range(10)) for group in range(groups)
    )
    assert look["epochs"] == -(-len(known) // (users // 20))
    assert 0 < largest < calls.VALUE_BYTES_MAX // 2
    assert len(tree.runners["master"].state()) < calls.STATE_BYTES_MAX // 8


def test_users_with_long_ids_are_brought_together_in_parts_that_fit_a_message() -> None:
    tree = bundling(1)
    pane = round((NOW - datetime(1970, 1, 1)).total_seconds() * 1e6) // EVERY_US
    who = [f"{user:0250}" for user in range(20_000)]  # 5 MB, of fewer users than ``users_max``
    edges: dict[str, Sequence[object]] = {"user_id": who, "product": ["Doom"] * len(who)}
    tree.rows("b", edges | {"lines": [1] * len(who)}, "edges", pane)
    tree.now = NOW
    for count in (1, 2):
        tree.timer()
        looks = tree.jobs["master"].looks()
        assert [(look["users"], look["epochs"]) for look in looks] == [(len(who), 2)] * count


def test_a_cycle_in_which_a_process_ends_is_given_up_and_so_is_one_that_somebody_is_too_late_for() -> None:
    rng = random.Random(1)
    tree = bundling(1, users_max=5)
    new = edges_of(tree, rng, NOW, 100)
    tree.timer()
    master = tree.jobs["master"]
    first = master.round
    tree.call("master", calls.Timer())
    tree.settle(lambda: master.round > first + 1)
    tree.jobs["e"].parts = []  # as in a new process
    tree.settle()
    assert master.round < first + master.wanted_parts
    assert len(master.looks()) == 1
    tree.timer()
    assert master.looks()[-1]["bundles"] == bundles_of(new)
    product = new[0][1]
    effects: list[JobEffect] = []
    event = calls.Delivered(b"", pack_value(product), (), "x|1")
    tree.runners["master"].handle(event, tree.place("master"), b"", effects)
    answers: list[Any] = [unpack_value(effect.value) for effect in effects]
    (answer,) = answers
    assert answer["bundle"] == next((b for b in bundles_of(new) if product in b), [product])
    began = master.began
    tree.away = {"d"}  # the next cycle is not through until d is back
    for seconds, anew in ((1, True), (6, False), (15, False), (16, True)):
        tree.now = NOW + timedelta(seconds=seconds)
        tree.timer()
        assert (master.began != began) == anew, seconds
        began = master.began
    assert len(master.looks()) == 2


def predicting(batches: list[dict[str, object]], bundle: list[str]) -> tuple[JobRunner, list[str]]:
    asked: list[str] = []

    def ask(app: bytes, name: str, value: bytes, path: tuple[str, ...], timeout: int) -> tuple[bytes, str]:
        asked.append(name)
        if not batches:
            return b"", "no answer in time"
        return pack_value(batches if name == "micro_promotion" else {"look": 7, "bundle": bundle}), ""

    made = JobRunner((EXAMPLES / "sale_prediction.py").read_text(), "sale_prediction.py", "s", "me", ask)
    made.start(Place("a", 0, True))
    return made, asked


def test_sale_prediction_asks_the_two_other_masters_and_draws_a_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    batches = [
        {"batch": n, "top": ["Myst", "Doom"], "clicks": {"Myst": 10 * n, "Doom": n * n, "Pong": 99}}
        for n in range(1, 5)
    ]
    made, asked = predicting(batches, ["Doom", "Myst"])
    for _ in range(2):  # the second time there is no new batch
        made.handle(calls.Timer(), Place("a", 0, True), b"", [])
    job: Any = made.job
    (prediction,) = job.state["predictions"]
    assert job.deliver(b"", {"since": "x"}) == [prediction]  # whatever is asked
    assert asked == ["micro_promotion", "product_bundling", "micro_promotion"]
    assert prediction["history"] == [11, 24, 39, 56]
    assert prediction["forecast"] == pytest.approx(line_through([11, 24, 39, 56]))
    assert prediction["forecast"] == pytest.approx(70)
    assert prediction["popular"] == ["Doom", "Myst"]
    made.handle(calls.Timer(), Place("b", 0, False), b"", [])
    assert len(asked) == 3  # only the master asks
    alone, _ = predicting([], [])
    alone.handle(calls.Timer(), Place("a", 0, True), b"", [])
    assert capsys.readouterr().out == "no prediction: no answer in time\n"


@pytest.mark.parametrize("seed", range(2))
def test_the_spam_campaign_lists_who_posts_most_and_its_settings_are_another_function(seed: int) -> None:
    states: dict[str, MergeOp] = {"posts": "sum", "first": "min", "last": "max"}
    tree = Tree("spam_campaign.py", (tap("main", ("who",), states),), seed, top=2, by="user.location")
    for n, name in enumerate(PARENTS):
        groups: dict[str, Sequence[object]] = {
            "who": ["Ohio", "Kent", f"own {n}"],
            "posts": [2, 2, 9],
            "first": [n] * 3,
            "last": [n + 13] * 3,
        }
        tree.rows(name, groups)
    tree.timer()
    (batch,) = tree.jobs["master"].state["batches"]
    assert tree.jobs["master"].deliver(b"", {"since": [1]}) == [batch]  # whatever is asked
    assert batch["top"] == [["Kent", 10], ["Ohio", 10]]
    assert batch["covers"]["b"] == [1, 14, 13]
    assert "GROUP BY user.location" in next(iter(tree.runners["a"]._subscriptions.values())).query
