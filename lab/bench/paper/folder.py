"""The folder of ``--out``: ``paper.json``, a picture of each axes, and ``index.html``, which has all of it.

Figures that are there stay until they are measured again, so a page can be made of several runs; each figure
says which machine, commit and day it is of.
"""

from __future__ import annotations

import importlib.util
import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from elf.errors import UserError
from lab.bench.paper.figures import FIGURES
from lab.bench.paper.measured import Measured
from lab.bench.paper.page import page

JSON: Final = "paper.json"
PAGE: Final = "index.html"


def check(folder: Path) -> None:
    """Raise ``UserError`` unless figures can be added there; the folder is made."""
    if importlib.util.find_spec("matplotlib") is None:
        raise UserError("--out needs matplotlib: install elf-stream[bench]; without --out there is JSON")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
        there(folder)
    except OSError as error:
        raise UserError(f"--out {folder}: {error.strerror}; give a folder that can be written") from None


def there(folder: Path) -> dict[str, Measured]:
    """The figures that it has. Raises ``UserError`` where they cannot be read, ``OSError``."""
    path = folder / JSON
    if not path.exists():
        return {}
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, Measured])
    except msgspec.MsgspecError:
        raise UserError(f"{path} has figures of another elf: remove it, or give another folder") from None


def add(folder: Path, found: Mapping[str, Measured]) -> None:
    """These figures in the place of those of the same numbers. Raises ``UserError``."""
    from lab.bench.paper.pictures import draw

    pictures: dict[str, list[Path]] = {}
    try:
        known = {**there(folder), **found}
        figures = {number: known[number] for number in FIGURES if number in known}
        for number, one in figures.items():
            for place, axes in enumerate(one.axes, 1):
                pictures.setdefault(number, []).append(folder / f"{number}-{place}.svg")
                if number in found:
                    draw(axes, pictures[number][-1])
        facts = {number: one.facts() for number, one in figures.items()}
        (folder / JSON).write_text(json.dumps(facts, ensure_ascii=False, indent=1), encoding="utf-8")
        (folder / PAGE).write_text(page(figures, pictures), encoding="utf-8")
    except OSError as error:
        raise UserError(f"--out {folder}: {error.strerror}") from None
