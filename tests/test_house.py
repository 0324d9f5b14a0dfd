"""The repository holds its own documents to the code."""

from __future__ import annotations

import ast
import re
import shlex
import subprocess
import sys
from functools import cache
from pathlib import Path

from prometheus_client import generate_latest
from typer.testing import CliRunner

from agents.exposition import exposition
from agents.metrics import Metrics
from elf.cli import follow
from elf.cli.main import app
from elf.transport.base import Counters

ROOT = Path(__file__).parents[1]
PAGES = {
    path: path.read_text() for path in (*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md")))
}
TEXT = "\n".join(PAGES.values())


def commands_of(help_text: str) -> set[str]:
    section = help_text.split("Commands:")[1]
    return {line.split()[0] for line in section.splitlines() if re.match(r"  [a-z]", line)}


@cache
def elf(*args: str) -> str:
    done = CliRunner().invoke(app, list(args))
    assert done.exit_code == 0, done.output
    return done.output


BLOCKS = [*re.findall(r"^```sh\n(.*?)^```$", TEXT, re.M | re.S), *re.findall(r"(?:^ {4}.*\n)+", TEXT, re.M)]
CODE = [
    line for block in BLOCKS for line in re.findall(r"^ *(?:\S*/)?(elf [a-z].*(?:\n {8,}.*)*)", block, re.M)
]
"""Command lines of all pages, fenced or indented, with the lines that go on below them."""


def test_every_command_is_in_the_pages_and_every_one_there_exists() -> None:
    assert {line.split()[1] for line in CODE} == commands_of(elf("--help"))


GROUPS = ("bench", "sim", "generate", "keys", "offline", "config")


def test_every_option_in_the_pages_exists() -> None:
    for line in CODE:
        words = re.sub(r'"[^"]*"|#.*', "", line).split()
        path = [words[1]] + ([words[2]] if words[1] in GROUPS else [])
        known = elf(*path, "--help")
        for option in re.findall(r"--[a-z-]+|(?<= )-[a-z]\b", " ".join(words)):
            assert option in known, (option, path)


def test_every_setting_in_the_pages_exists() -> None:
    example = (ROOT / "deploy" / "elf.example.yaml").read_text()
    sections = "|".join(re.findall(r"^(\w+):", example, re.M))
    for name in re.findall(rf"`((?:{sections})\.[a-zA-Z_.]*[a-z])[`:]", TEXT):
        variable = "ELF_" + name.upper().replace("STREAMS.NAME", "STREAMS_<NAME>").replace(".", "_")
        assert variable in example, name


def test_every_metric_in_the_pages_exists() -> None:
    metrics = Metrics()
    metrics.watch(Counters())
    shown = exposition(metrics) + generate_latest(follow.Metrics("busy", None).registry)
    known = set(re.findall(r"^# TYPE (\w+)", shown.decode(), re.M))
    asked = set(re.findall(r"`(elf_\w+)", TEXT))
    assert len(asked) > 10
    assert asked - {"elf_"} <= known


def test_the_first_answer_of_the_tutorial_is_what_elf_says() -> None:
    page = PAGES[ROOT / "docs" / "tutorial.md"]
    found = re.search(r"^```sh\n(elf run [^`]*)^```\n+^```text\n([^`]*)^```", page, re.M)
    assert found
    words = shlex.split(found[1].replace("\\\n", " "))
    done = subprocess.run(
        [sys.executable, "-m", "elf.cli.main", *words[1:]],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    )
    assert (done.stderr + done.stdout).split() == found[2].split()


def headings(page: Path) -> set[str]:
    """The anchors of a page, as GitHub makes them."""
    lines = re.findall(r"^#+ (.+)$", PAGES[page], re.M)
    return {re.sub(r"[^\w\- ]", "", line).strip().lower().replace(" ", "-") for line in lines}


def test_every_link_leads_to_a_page_and_every_page_is_linked() -> None:
    found = {ROOT / "README.md"}
    for page, text in PAGES.items():
        for link, anchor in re.findall(r"\]\(([^)#\s]*)(?:#([^)\s]+))?\)", text):
            if not link.startswith("https://"):
                path = (page.parent / link).resolve() if link else page
                assert path.exists(), (page, link)
                assert not anchor or anchor in headings(path), (page, link, anchor)
                found |= {path} - {page}
    assert found >= PAGES.keys()


def test_the_rooms_of_the_pages_for_developers_are_there() -> None:
    page = "\n".join(
        text for path, text in PAGES.items() if "dev" in path.parts or path.name == "CONTRIBUTING.md"
    )
    rooms = set(re.findall(r"(?<![\w./-])((?:overlay|elf|agents|tests)/[\w/]*\w(?:\.\w+)?)", page))
    assert len(rooms) > 30
    for room in rooms:
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


def test_what_runs_with_the_long_ones_is_there() -> None:
    for test in (ROOT / "tests" / "long.txt").read_text().splitlines():
        path, _, name = test.partition("::")
        assert f"def {name.partition('[')[0]}(" in (ROOT / path).read_text(encoding="utf-8"), test
