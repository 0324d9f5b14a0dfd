"""The overlay stays pure: it imports pure parts of the standard library, sortedcontainers and its like."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import overlay

ALLOWED = {
    "__future__",
    "abc",
    "bisect",
    "collections",
    "collections.abc",
    "dataclasses",
    "enum",
    "functools",
    "hashlib",
    "heapq",
    "math",
    "msgspec",
    "msgspec.structs",
    "re",
    "sortedcontainers",
    "typing",
}
FILES = sorted(Path(overlay.__file__).parent.rglob("*.py"))


def imported(source: str) -> set[str]:
    """The modules that a source names in any import statement, wherever it stands."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            found.add("." * node.level + (node.module or ""))
        elif isinstance(node, ast.Name) and node.id == "__import__":
            found.add("__import__")
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_a_file_imports_only_what_is_pure(path: Path) -> None:
    foreign = {name for name in imported(path.read_text()) if name.partition(".")[0] != "overlay"} - ALLOWED
    assert not foreign


@pytest.mark.parametrize(
    "line",
    [
        "import time",
        "from random import random",
        "def f():\n import socket",
        "from elf import errors",
        "import os.path",
    ],
)
def test_the_reader_sees_what_is_forbidden(line: str) -> None:
    assert imported(line) - ALLOWED


def test_there_are_files() -> None:
    assert {"node.py", "pastry.py", "scribe.py", "liveness.py"} <= {path.name for path in FILES}
