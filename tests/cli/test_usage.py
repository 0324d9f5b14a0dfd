"""What helps people who type commands: examples below the options, and completion in their shell."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys

import pytest
import typer

from elf.cli.completion import Shell
from elf.cli.main import app, only
from elf.cli.usage import EXAMPLES

GROUP = typer.main.get_command(app)
APART = {"bench", "sim", "generate", "keys", "offline", "config"}
"""Which have commands of their own, or are of the laboratory."""


def test_every_command_has_examples() -> None:
    commands = getattr(GROUP, "commands")  # noqa: B009
    assert set(commands) - APART == set(EXAMPLES)


@pytest.mark.parametrize("line", [line for lines in EXAMPLES.values() for line in lines])
def test_examples_are_command_lines_that_there_are(line: str) -> None:
    words = shlex.split(line.rpartition(" | ")[2].partition(" > ")[0], comments=True)
    assert words[0] == "elf"
    command = getattr(GROUP, "commands")[words[1]]  # noqa: B009
    command.make_context(words[1], words[2:])  # raises for what it does not know


def test_help_ends_with_examples() -> None:
    context = GROUP.make_context("elf", ["--help"], resilient_parsing=True)
    command = getattr(GROUP, "commands")["dash"]  # noqa: B009
    text = command.get_help(typer.Context(command, info_name="dash", parent=context))
    assert text.endswith("\n  Examples:\n    elf dash\n    elf dash busy errors --every 1")


@pytest.mark.parametrize("shell", list(Shell))
def test_a_shell_completes_with_what_elf_prints(shell: Shell, capsys: pytest.CaptureFixture[str]) -> None:
    assert app(["completion", shell.value], standalone_mode=False) == 0
    script = capsys.readouterr().out
    assert "_ELF_COMPLETE=complete_" in script
    if shell is Shell.BASH:
        subprocess.run(["bash", "-n"], input=script.encode(), check=True)


def test_elf_says_what_may_come_next() -> None:
    asked = {"_ELF_COMPLETE": "complete_bash", "COMP_WORDS": "elf dash --ev", "COMP_CWORD": "2"}
    done = subprocess.run(
        [sys.executable, "-m", "elf.cli.main"], env={**os.environ, **asked}, capture_output=True, check=False
    )
    assert done.stdout.split() == [b"--every"]


def test_a_command_that_is_made_alone_is_the_same() -> None:
    whole = typer.main.get_command(app)
    context = whole.make_context("elf", ["--help"], resilient_parsing=True)
    for name, among_all in getattr(whole, "commands").items():  # noqa: B009
        (alone,) = getattr(typer.main.get_command(only(name)), "commands").values()  # noqa: B009
        first, second = (
            one.get_help(typer.Context(one, info_name=name, parent=context)) for one in (alone, among_all)
        )
        assert first == second


@pytest.mark.parametrize("word", ["--help", "rnu", ""])
def test_what_names_no_command_is_told_of_all(word: str) -> None:
    assert only(word) is app
