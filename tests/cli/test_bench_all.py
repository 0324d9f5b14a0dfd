"""``elf bench all``: each figure in a row with its command, and failures named; and the runner of all."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest

from elf.errors import ElfError, UserError
from lab.bench import suite
from lab.bench.runner import (
    Bench,
    Figure,
    Report,
    Scratch,
    median,
    percentiles,
    same,
    together,
    turns,
)
from lab.bench.suite import FULL, QUICK, Ran, Suite, page
from lab.cli.bench import BENCHES, command_of


def test_two_benches_make_a_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "benchmarks.md"
    assert Suite(["plan", "topk"], quick=True, markdown=path).perform(as_json=True) == 0
    said = json.loads(capsys.readouterr().out.splitlines()[-1])
    text = path.read_text()
    assert said["date"] in text
    assert len(said["figures"]) == 4
    for name in ("plan", "topk"):
        assert text.count(f"| `elf bench {name} {QUICK[name][0]}` |") == 2
    assert all(figure["what"] in text for figure in said["figures"])


def test_a_bench_that_fails_is_in_the_page_and_fails_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(suite, "QUICK", {"sliding": ("--size 300 --slide 7",)})
    path = tmp_path / "benchmarks.md"
    with pytest.raises(ElfError, match="sliding --size 300 --slide 7: elf: the size of the windows must"):
        Suite(["sliding"], quick=True, markdown=path).perform(as_json=False)
    assert "| **failed**: elf bench sliding" in path.read_text()


def test_every_bench_is_in_it() -> None:
    assert set(FULL) == set(QUICK) == set(BENCHES) - {"all", "paper"}


@pytest.mark.parametrize("name", FULL)
def test_its_commands_can_be_given(name: str) -> None:
    for words in (*FULL[name], *QUICK[name]):
        command_of(name).make_context(name, shlex.split(words))


def test_what_cannot_be_asked(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="--only fast: there are ingest"):
        Suite(["fast"])
    with pytest.raises(UserError, match="no such folder"):
        Suite(markdown=tmp_path / "none" / "page.md")


def test_a_row_has_elf_what_is_beside_it_and_ratios() -> None:
    figures = [
        Figure("a | b", 870_000, "lines/s", {"DuckDB": 2_000_000.0, "dict": 1000}),
        Figure("c", (1.25, 7), "ms"),
    ]
    assert page({"machine": "here"}, [Ran("elf bench x", figures, 60.0)]).splitlines()[-2:] == [
        "| a \\| b | 0.87 M lines/s | DuckDB 2 M, dict 1,000 | 0.435, 870 | `elf bench x` |",
        "| c | 1.25, 7 ms |  |  | `elf bench x` |",
    ]


def test_sides_with_the_same_facts_stand_together() -> None:
    facts = {"n": 1, "some": {"p50": 1, "max": 2}, "all": {"p50": 3, "max": 4}, "runs": [{"x": 1}, {"x": 2}]}
    assert together(facts) == [
        {"": {"n": 1}},
        {"some": {"p50": 1, "max": 2}, "all": {"p50": 3, "max": 4}},
        {"1": {"x": 1}, "2": {"x": 2}},
    ]


@dataclass(frozen=True)
class Counting(Bench[str, int]):
    """Counts the runs of all sides."""

    log: list[str]
    repeat: int = 2

    once: ClassVar = ("c",)

    def sides(self, scratch: Scratch) -> Mapping[str, Callable[[], int]]:
        (scratch.folder / "input").touch()
        return {name: lambda name=name: self.log.append(name) or len(self.log) for name in "abc"}  # type: ignore[misc,func-returns-value]

    def report(self, runs: Mapping[str, Sequence[int]]) -> Report:
        return Report({"runs": runs}, problems=["too few"])


def test_sides_take_turns_and_problems_come_after_the_figures(capsys: pytest.CaptureFixture[str]) -> None:
    log: list[str] = []
    with pytest.raises(ElfError, match="too few"):
        Counting(log).perform(as_json=True)
    assert log == ["a", "b", "c", "b", "a"]
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["runs"] == {
        "a": [1, 5],
        "b": [2, 4],
        "c": [3],
    }


def test_figures_of_several_runs() -> None:
    runs = turns({"one": lambda: Figure("a", 1.0, "s"), "two": lambda: Figure("a", 4.0, "s")}, 2)
    assert median([*runs["one"], *runs["two"][:1]], "elf") == 1.0
    same(runs, lambda run: run.what, "what")
    with pytest.raises(ElfError, match="elf's differ"):
        same(runs, lambda run: run.elf, "elf's")
    assert percentiles(list(range(1, 101))) == {"p50": 50, "p99": 99, "max": 100}
