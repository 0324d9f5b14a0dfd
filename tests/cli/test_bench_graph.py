"""``elf bench graph``: both sides have the same ranks."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from elf.errors import UserError
from lab.bench.graph import GraphRanks


def test_ranks_are_those_of_scipy_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Or it would be an error."""
    small = tmp_path / "edges.txt"
    small.write_text("# from to\n" + "".join(f"{n} {n * n % 97}\n" for n in range(97)), encoding="utf-8")
    assert GraphRanks(2_000, 300, small, repeat=1).perform(as_json=True) == 0
    said = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert said["small"]["ratio"] > 0
    small.write_text("a b\n", encoding="utf-8")
    with pytest.raises(UserError, match="cannot read edges of"):
        GraphRanks(2_000, 300, small, repeat=1).perform(as_json=True)
