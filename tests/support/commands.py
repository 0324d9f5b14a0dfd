"""The command as a process of its own, and what it says when there is no agent."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable

from elf.cli.processes import environment

ELF = [sys.executable, "-m", "elf.cli.main"]


def elf(*args: str, **env: str) -> subprocess.CompletedProcess[str]:
    variables = environment()
    return subprocess.run(
        [*ELF, *args], capture_output=True, text=True, timeout=30, env={**variables, **env}, check=False
    )


async def elf_beside(*args: str) -> subprocess.CompletedProcess[str]:
    return await asyncio.to_thread(elf, *args)


UNREACHABLE = "cannot reach an agent at 127.0.0.1:1: connection refused (is elf-agent running there?)"

Here = Callable[..., subprocess.CompletedProcess[str]]
