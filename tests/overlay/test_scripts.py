"""What worlds do, written down: commands, and what they show (``--rewrite`` renews it)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.overlay_script import Block, Stage, parse, render

SCRIPTS = sorted((Path(__file__).parent / "scripts").glob("*.txt"))


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_the_world_does_what_is_written(path: Path, rewrite: bool) -> None:
    stage = Stage()
    blocks = parse(path.read_text())
    done = [Block(block.commands, stage.perform(block)) for block in blocks]
    if rewrite:
        path.write_text(render(done))
        return
    for block, now in zip(blocks, done, strict=True):
        assert now.expected == block.expected, block.commands


def test_there_are_scripts() -> None:
    assert len(SCRIPTS) >= 5


def test_a_script_without_separator_is_refused() -> None:
    with pytest.raises(ValueError, match="no ----"):
        parse("add-nodes 3\nring\n")
