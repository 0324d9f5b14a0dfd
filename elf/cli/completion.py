"""``elf completion SHELL``: what makes Tab complete commands and options in bash, zsh and fish.

The script asks ``elf`` itself what may come next, so it never is behind; ``main`` says which shells it
understands.
"""

from __future__ import annotations

import enum
import os
from typing import Annotated, Final

import typer

VARIABLE: Final = "_ELF_COMPLETE"
"""Set, elf is asked to complete."""


class Shell(enum.StrEnum):
    """Those that it is for."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def completion(shell: Annotated[Shell, typer.Argument(help="Which shell it is for.")]) -> int:
    """Print what makes Tab complete elf's commands and options in a shell."""
    from typer._completion_shared import get_completion_script

    print(get_completion_script(prog_name="elf", complete_var=VARIABLE, shell=shell.value))
    return 0


def ready() -> None:
    """Understand those who ask to complete, if one does."""
    if VARIABLE in os.environ:
        from typer._completion_classes import completion_init

        completion_init()
