"""``elf graph``: edges of the last window as a picture."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from elf.cli.completing import Names, completions
from elf.cli.graph import read_edges
from elf.cli.graph_pictures import components, laid_out
from elf.cli.main import main
from elf.ql.graphs import ALGORITHMS


def graph(*args: str) -> object:
    """The exit status."""
    with pytest.raises(SystemExit) as ended:
        main(["graph", *args])
    return ended.value.code


def lines(*rows: Mapping[str, object]) -> str:
    return "".join(f"{json.dumps(row)}\n" for row in rows)


def test_a_picture_of_the_last_window(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    windows = [{"window_start": f"2026-01-0{day}", "window_end": f"2026-01-0{day + 1}"} for day in (1, 2)]
    edges = [("a", "b"), ("b", "$c_{"), ("d", "e"), ("d", "e"), ("d", None)]
    rows = [{**windows[1], "src": src, "dst": dst, "n": 1} for src, dst in edges]
    text = lines(windows[0] | {"src": "x", "dst": "y"}, *rows)
    monkeypatch.setattr("sys.stdin", io.StringIO(text))
    pictures = [tmp_path / name for name in ("one.svg", "other.svg")]
    assert graph("--plot", str(pictures[0]), "--title", "who $ whom") == 0
    assert capsys.readouterr().out == f"5 vertices, 3 edges: {pictures[0]}\n"
    (tmp_path / "edges.json").write_text(text, encoding="utf-8")
    assert graph("--edges", str(tmp_path / "edges.json"), "--plot", str(pictures[1])) == 0
    assert "<svg" in pictures[0].read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x,y\n", "line 1 is no row of two columns: write edges with elf run … --output json"),
        ('{"n": 1}\n', "line 1 is no row of two columns"),
        ("", "there are no edges to draw"),
        (
            lines(*({"a": n, "b": -n} for n in range(1, 300))),
            "holds 400 vertices, and these are 598: leave some out",
        ),
    ],
)
def test_what_cannot_be_drawn(
    text: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(text))
    assert graph("--plot", str(tmp_path / "g.svg")) != 0
    assert said in capsys.readouterr().err


def test_components_are_called_by_their_least_vertex_and_stand_apart() -> None:
    ends = np.array([[0, 4], [4, 2], [1, 3], [5, 5]])
    labels = components(6, ends)
    assert labels.tolist() == [0, 1, 0, 1, 0, 5]
    where = laid_out(labels, ends)
    assert np.isfinite(where).all()
    near = np.linalg.norm(where[0] - where[4])
    assert near < np.linalg.norm(where[0] - where[1])


def test_all_algorithms_are_completed() -> None:
    assert completions("SELECT * FROM x GROUP BY a, b WITH GRAPH ", "", Names()) == list(ALGORITHMS)


def test_numbers_are_names_too() -> None:
    assert read_edges([json.dumps({"a": 1, "b": 2, "n": 9})]) == [("1", "2")]
