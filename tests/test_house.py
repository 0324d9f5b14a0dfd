"""The repository holds its own documents to the code."""

from __future__ import annotations

import ast
import re
from contextlib import redirect_stdout
from functools import cache
from io import StringIO
from pathlib import Path

import pytest

from elf.cli.main import main

ROOT = Path(__file__).parents[1]
PAGES = {path: path.read_text() for path in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))}


def commands_of(help_text: str) -> set[str]:
    section = help_text.split("Commands:")[1]
    return {line.split()[0] for line in section.splitlines() if re.match(r"  [a-z]", line)}


@cache
def elf(*args: str) -> str:
    """What the command says, in this process: one of its own would import for a second each time."""
    with redirect_stdout(StringIO()) as said, pytest.raises(SystemExit) as ended:
        main([*args])
    assert ended.value.code in (None, 0)
    return said.getvalue()


CODE = re.findall(r"^ {4}(?:\S*/)?(elf .*(?:\n {8,}.*)*)", "\n".join(PAGES.values()), re.M)
"""Command lines of the README and of its pages, with the lines that go on below them."""


def test_every_command_is_in_the_pages_and_every_one_there_exists() -> None:
    assert {line.split()[1] for line in CODE} == commands_of(elf("--help"))


def test_every_option_in_the_pages_exists() -> None:
    for line in CODE:
        words = re.sub(r'"[^"]*"|#.*', "", line).split()
        path = [words[1]] + ([words[2]] if words[1] in ("bench", "sim", "generate") else [])
        known = elf(*path, "--help")
        for option in re.findall(r"--[a-z-]+|(?<= )-[a-z]\b", " ".join(words)):
            assert option in known, (option, path)


def test_every_link_leads_to_a_page() -> None:
    links = [(page, link) for page, text in PAGES.items() for link in re.findall(r"\]\(([^)#]+)\)", text)]
    assert {(ROOT / "docs" / link).name for _, link in links} >= {path.name for path in PAGES} - {"README.md"}
    for page, link in links:
        assert link.startswith("https://") or (page.parent / link).exists(), (page, link)


def test_the_house_of_the_architecture_page_stands() -> None:
    page = (ROOT / "ARCHITECTURE.md").read_text()
    for room in re.findall(r"`((?:overlay|elf|agents|spark_backend)[\w/]*)`", page):
        path = ROOT / room
        assert path.exists() or path.with_suffix(".py").exists(), room


def test_no_test_imports_another() -> None:
    """What several tests need is in ``tests/support``, which imports no test either."""
    for path in (ROOT / "tests").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module is not None:
                names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
            elif isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            else:
                continue
            wrong = [name for name in names if re.match(r"tests\.(\w+\.)*test_", name)]
            assert not wrong, f"{path.relative_to(ROOT)} imports {wrong[0]}: move it to tests/support"
