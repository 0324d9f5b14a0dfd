"""The applications of ``elf demo --app``: their checks notice what is wrong, and one is played for real."""

from __future__ import annotations

import copy
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from elf.cli.demo import batch
from elf.cli.demo.apps import APPS, verdict
from elf.cli.demo.batch import Logs, Result
from elf.errors import ElfError
from tests.support.confined import needs_confinement

START = "2026-01-01T00:00:0"


def row(id_: int, product: str, user: int = 1, **more: object) -> dict[str, Any]:
    found = {
        "id": id_,
        "product": product,
        "store": "video_games",
        "clicks_count": 1,
        "likes": 1,
        "buys_count": 0,
    }
    return {**found, "created_at": f"{START}{id_ % 10}Z", "user": {"id": user, "name": f"@{user}"}, **more}


LOGS: Logs = {
    "a": [
        row(0, "Pong"),
        row(1, "Tetris"),
        row(2, "Pong", 2),
        row(3, "Pong", 2, store="toys"),
        row(4, "Tetris"),
    ],
    "b": [row(10, "Doom", 2), row(11, "Tetris"), row(12, "Myst", 3)],
}
BATCHES: list[Result] = [
    {
        "batch": 1,
        "clicks": {"Tetris": 2, "Pong": 1, "Doom": 1},
        "top": ["Tetris", "Doom"],
        "gave": {},
        "covers": {"a": [1, 2, 2], "b": [10, 11, 2]},
    },
    {
        "batch": 2,
        "clicks": {"Tetris": 1, "Myst": 1},
        "top": ["Myst", "Tetris"],
        "gave": {"Tetris": 2, "Doom": 1},
        "covers": {"a": [4, 4, 1], "b": [12, 12, 1]},
    },
]
LOOKS: list[Result] = [
    {
        "look": 5,
        "since": 1_767_225_601.0,
        "covers": {"a": [0, 2, 3], "b": [10, 11, 2]},
        "bundles": [["Doom", "Pong"]],
    }
]
MADE: list[Result] = [
    {
        "look": 5,
        "bundle": ["Doom", "Pong"],
        "batches": [1, 2],
        "history": [2, 0],
        "forecast": 0.0,
        "popular": [],
    }
]


def changed(results: list[Result], index: int, **values: object) -> list[Result]:
    found = copy.deepcopy(results)
    found[index].update(values)
    return found


def promotions(batches: list[Result]) -> list[bool]:
    return batch.promotions(batches, LOGS, "video_games", 2)


def test_a_batch_is_all_lines_up_to_its_last_that_none_before_has_taken() -> None:
    assert promotions(BATCHES) == [True, True]
    assert promotions(changed(BATCHES, 0, clicks={"Tetris": 3, "Pong": 1, "Doom": 1})) == [False, True]
    assert promotions(changed(BATCHES, 0, top=["Doom", "Tetris"])) == [False, True]
    assert promotions(changed(BATCHES, 1, gave={"Tetris": 1, "Doom": 1})) == [True, False]
    lost = changed(BATCHES, 0, covers={"a": [1, 1, 1], "b": [10, 11, 2]}, clicks={"Tetris": 2, "Doom": 1})
    assert promotions(lost) == [True, False]  # a Pong is in no batch
    with pytest.raises(ElfError, match="line 7 of a, and its log has no such line"):
        promotions(changed(BATCHES, 1, covers={"a": [7, 7, 1]}))


def test_bundles_are_of_the_window_only() -> None:
    assert batch.bundlings(LOOKS, LOGS, "video_games") == [False]  # b's rows are at seconds 0 and 1
    right = changed(LOOKS, 0, bundles=[["Pong", "Tetris"]], since=1_767_225_600.0)
    wider = changed(right, 0, bundles=[["Doom", "Pong", "Tetris"]])
    assert batch.bundlings(wider, LOGS, "video_games") == [True]
    assert batch.bundlings(right, LOGS, "video_games") == [False]
    assert batch.bundlings(changed(LOOKS, 0, bundles=[]), LOGS, "video_games") == [True]


def test_a_prediction_follows_from_lines() -> None:
    looks = changed(LOOKS, 0, since=1_767_225_600.0, bundles=[["Doom", "Pong", "Tetris"]])
    made = changed(MADE, 0, bundle=["Doom", "Pong", "Tetris"], history=[4, 1], forecast=0.0)

    def good(one: list[Result]) -> list[bool]:
        return batch.predictions(one, BATCHES, looks, LOGS, "video_games", "Doom")

    assert good(made) == [True]
    assert good(changed(made, 0, history=[4, 2])) == [False]
    assert good(changed(made, 0, forecast=1.0)) == [False]
    assert good(changed(made, 0, bundle=["Doom"], history=[1, 0])) == [False]


def test_posters_are_counted_again() -> None:
    batches: list[Result] = [{"top": [["@1", 3], ["@2", 2]], "covers": {"a": [0, 4, 4], "b": [10, 11, 2]}}]
    name: Callable[[dict[str, Any]], str] = lambda row: str(row["user"]["name"])  # noqa: E731

    def wanted(row: dict[str, Any]) -> bool:
        return bool(row["store"] != "toys")

    assert batch.campaigns(batches, LOGS, wanted, name, 2) == [False]
    assert batch.campaigns(changed(batches, 0, top=[["@1", 4], ["@2", 2]]), LOGS, wanted, name, 2) == [True]


def test_the_verdict_names_what_differs() -> None:
    assert verdict([True, True], 1234) == "live = batch in 2 of 2 epochs (1,234 lines counted again)"
    assert verdict([True, False, False], 5) == "live = batch in 1 of 3 epochs; these differ: 2, 3"
    assert set(APPS) == {"micro-promotion", "product-bundling", "sale-prediction", "spam"}


@needs_confinement
def test_micro_promotion_is_played() -> None:
    args = ["demo", "--app", "micro-promotion", "--windows", "2", "--window-seconds", "1"]
    args += ["--agents", "2", "--rate", "50"]
    done = subprocess.run(
        [sys.executable, "-m", "elf.cli.main", *args],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    *shown, last = done.stdout.splitlines()
    assert last.startswith(("live = batch in 2 of 2 epochs (", "live = batch in 3 of 3 epochs ("))
    assert any("Angry Birds Season" in line for line in shown)
    assert len(shown) < 25
