"""Drawings of rings, trees and balance: ``layout`` says where things stand, ``text`` draws for a terminal,
``plots`` writes PNG and SVG with matplotlib (the extra ``bench``), which nothing else here imports."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from elf.errors import UserError


def check_plot(path: Path) -> None:
    """Raises ``UserError`` if there can be no picture there."""
    if path.suffix not in (".png", ".svg"):
        raise UserError(f"--plot writes .png or .svg, not {path.suffix or path.name}")
    if not path.resolve().parent.is_dir():
        raise UserError(f"no folder {path.resolve().parent}")
    if importlib.util.find_spec("matplotlib") is None:
        raise UserError("--plot needs matplotlib: install elf-stream[bench]")
