"""Event time, written down: scripts of rows and clocks, and the windows that must come (``--rewrite-time``
renews them)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.overlay_script import Block, parse, render
from tests.support.timescript import Stage

SCRIPTS = sorted((Path(__file__).parent / "scripts").glob("*.txt"))


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_windows_are_those_of_the_script(path: Path, rewrite_time: bool) -> None:
    stage = Stage()
    blocks = parse(path.read_text())
    done = [Block(block.commands, stage.perform(block.commands)) for block in blocks]
    if rewrite_time:
        path.write_text(render(done))
        return
    for block, now in zip(blocks, done, strict=True):
        assert now.expected == block.expected, block.commands


def test_there_are_scripts() -> None:
    assert len(SCRIPTS) >= 12
