"""What is installed is what was looked at: versions and hashes of all that elf depends on."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NAME = re.compile(r"[A-Za-z0-9._-]+")


def pinned(lock: str) -> dict[str, list[str]]:
    """By name, the hashes of each."""
    text = (ROOT / "deploy" / lock).read_text().replace("\\\n", " ")
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        match = re.fullmatch(r"([a-z0-9-]+)==[^ ;]+(?: ; [^#]*?)?((?: +--hash=sha256:[0-9a-f]{64})+) *", line)
        assert match is not None, f"{line[:80]}: not a version with hashes and nothing else"
        found[match[1]] = match[2].split()
    return found


@pytest.mark.parametrize("lock", ["requirements.lock", "build.lock", "compiler.lock"])
def test_each_is_one_version_with_hashes_from_no_certain_place(lock: str) -> None:
    assert all(pinned(lock).values())


def test_all_that_elf_names_is_in_it() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    named = project["project"]["dependencies"][:]
    for extra in ("spark", "dev"):
        named += project["project"]["optional-dependencies"][extra]
    names = {match[0].lower().replace("_", "-") for one in named if (match := NAME.match(one))}
    assert names <= pinned("requirements.lock").keys(), "run make lock"
    builds = {match[0] for one in project["build-system"]["requires"] if (match := NAME.match(one))}
    assert builds <= pinned("build.lock").keys()
