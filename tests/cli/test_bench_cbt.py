"""``elf bench cbt``: all sides count the same keys, and the figures are what they say."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from elf.errors import UserError
from lab.bench.cbt import PYTHON_SIDES, BenchKeys, Cbt, run_side
from lab.bench.cbt_side import Keys, Work, chunks, spell
from lab.bench.plots import draw_curves


@pytest.mark.parametrize("length", [1, 2, 5, 11, 12, 40])
def test_different_numbers_are_different_keys(length: int) -> None:
    numbers = np.arange(min(64**length, 5000), dtype=np.uint64)
    letters = spell(numbers, length)
    assert letters.shape == (len(numbers), length)
    assert len({row.tobytes() for row in letters}) == len(numbers)


@pytest.mark.parametrize(("keys", "groups"), [("unique", 3000), ("uniform", 3000), ("zipf", 2000)])
def test_keys_are_drawn_as_asked(keys: Keys, groups: int) -> None:
    work = Work(keys, 3000, 3000 if keys == "unique" else 70_000, 8)
    found = [row.tobytes() for letters in chunks(work) for row in letters]
    assert len(found) == work.rows
    assert groups <= len(set(found)) <= 3000


def test_the_sides_agree_and_figures_are_printed(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    bench = Cbt(BenchKeys.ZIPF, [1000], 20_000, only=list(PYTHON_SIDES), repeat=1)
    assert bench.perform(as_json=True) == 0
    report = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert [run["side"] for run in report["runs"]] == list(PYTHON_SIDES)
    assert len({run["groups"] for run in report["runs"]}) == 1
    assert all(run["keys_per_s"] > 0 for run in report["runs"])


def test_a_limit_makes_it_spill() -> None:
    work = Work("unique", 600_000, 600_000, 12, 49 << 20)
    run = run_side("elf", work, None)
    assert run.groups == run.checksum == 600_000
    assert run.spilled_bytes > 0


PROGRAM = """
import collections, json, sys

length = int(sys.stdin.buffer.readline())
keys = sys.stdin.buffer.read()
counts = collections.Counter(keys[at : at + length] for at in range(0, len(keys), length))
found = {"seconds": 1, "groups": len(counts), "checksum": sum(n * n for n in counts.values())}
print(json.dumps(found | {"final_bytes": 1, "peak_bytes": 1, "stall_seconds": 0}))
sys.exit(sys.argv[1] != "sparse")
"""


def test_a_program_of_its_own_is_fed_the_same_keys(tmp_path: Path) -> None:
    program = tmp_path / "hashmaps"
    program.write_text(f"#!{sys.executable}\n{PROGRAM}")
    program.chmod(0o755)
    work = Work("zipf", 1000, 70_000, 8)
    ours, theirs = (run_side(side, work, program) for side in ("dict", "sparse_hash_map"))
    assert (theirs.groups, theirs.checksum) == (ours.groups, ours.checksum)
    with pytest.raises(UserError, match="hashmaps failed"):
        run_side("dense_hash_map", work, program)


@pytest.mark.parametrize("suffix", [".png", ".svg"])
def test_a_picture(tmp_path: Path, suffix: str) -> None:
    row = {"side": "elf", "keys": "zipf", "key_length": 12, "keys_per_s": 9e6, "peak_bytes_per_key": 20}
    path = tmp_path / f"figure{suffix}"
    draw_curves([{**row, "groups": 1000}, {**row, "groups": 10_000}], path)
    assert path.read_bytes()[:5] in (b"\x89PNG\r", b"<?xml")


def test_what_cannot_be_asked(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no 100 different keys"):
        Cbt(BenchKeys.UNIQUE, [100], key_length=1)
    with pytest.raises(UserError, match="no side perl"):
        Cbt(only=["perl"])
    with pytest.raises(UserError, match=r"\.png or \.svg"):
        Cbt(plot=tmp_path / "figure.jpg")
