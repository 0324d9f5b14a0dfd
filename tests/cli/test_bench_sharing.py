"""``elf bench sharing``: both ways make the same longer windows."""

from __future__ import annotations

import json

import pytest

from elf.errors import UserError
from lab.bench.sharing import Sharing


def test_longer_windows_of_short_panes_and_of_own_ones(capsys: pytest.CaptureFixture[str]) -> None:
    """The ways agree, or it would be an error."""
    assert Sharing(3_000, 50, 60, 600, 1).perform(as_json=True) == 0
    said = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert said["events"] == 3_000
    for keys, groups in (("few", 3), ("all", 50)):
        told = said["keys"][keys]
        assert told["groups_a_pane"] == groups
        assert told["shared_cpu_s"] > 0
        assert told["own_cpu_s"] > 0
        assert told["chosen"] == "own", "so few rows are not worth a pane"
    assert said["constants"].keys() == said["fits"].keys()


def test_windows_that_do_not_fit() -> None:
    with pytest.raises(UserError, match="several whole short ones"):
        Sharing(10, 5, 7, 60, 1)
