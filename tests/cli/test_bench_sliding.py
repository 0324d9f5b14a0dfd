"""``elf bench sliding``: all of its sides answer alike."""

from __future__ import annotations

import json

import pytest

from elf.errors import UserError
from lab.bench.sliding import SlidingWindows


def test_sliding_windows_have_duckdbs_answers(capsys: pytest.CaptureFixture[str]) -> None:
    """The five sides agree, or it would be an error."""
    assert SlidingWindows(3_000, 50, 300, 50, 1).perform(as_json=True) == 0
    said = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert said["events"] == 3_000
    assert said["ratio"] > 0
    with pytest.raises(UserError, match="multiple"):
        SlidingWindows(1, 1, 300, 7)
