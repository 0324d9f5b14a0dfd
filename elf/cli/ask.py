"""Statements to an agent, answers to standard output: ``elf sql`` and what is made of it."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

from elf.cli.choices import Output
from elf.cli.errors import INTERRUPTED
from elf.cli.options import one_text
from elf.cli.printing import Printer, printer, use_utf8
from elf.cli.statements import statements
from elf.client import Client, Window, connect
from elf.errors import UserError

T = TypeVar("T")


def perform(
    address: str,
    cluster: str,
    text: str,
    output: Output,
    *,
    windows: int | None = None,
    status: bool = False,
) -> int:
    """Perform the statements of a text, one after the other; the first that fails ends it."""
    use_utf8()
    asked = statements(text)
    if not asked:
        raise UserError("nothing to do: there is no statement")
    return asyncio.run(_perform(address, cluster, asked, printer(output.value, status=status), windows))


async def _perform(
    address: str, cluster: str, asked: tuple[str, ...], out: Printer, windows: int | None
) -> int:
    async with connect(address, cluster=cluster) as client:
        for statement in asked:
            if await answer(client, statement, out, windows):
                return INTERRUPTED
    return 0


async def answer(client: Client, statement: str, out: Printer, windows: int | None = None) -> bool:
    """Print all that one statement gives. True when Ctrl-C ended a statement that was not giving windows."""
    watching = False
    try:
        async for found in client.execute(statement, windows):
            if isinstance(found, Window):
                watching = True
                out.window(found)
                continue
            if found.table is not None:
                out.table(found.table)
            if found.text:
                print(found.text, file=sys.stderr if found.table is not None else sys.stdout)
    except asyncio.CancelledError:
        # Ctrl-C is how a SELECT ends. asyncio.run has cancelled us once and will not do so again.
        task = asyncio.current_task()
        if task is not None:
            task.uncancel()
        return not watching
    return False


def submit_file(address: str, cluster: str, file: Path, name: str | None, *, replace: bool) -> int:
    """``elf submit``"""
    text = one_text(None, file, "FILE")
    named = file.stem.replace("-", "_") if name is None else name
    if not named.isidentifier():
        raise UserError(
            f"{named!r} is no name for a job: letters, digits and _ (give another one with --name)"
        )

    async def submit() -> dict[str, object]:
        async with connect(address, cluster=cluster) as client:
            return await client.submit(text, file.name, named, replace=replace)

    ask(submit())
    print(f"job {named} submitted; elf jobs shows it, DROP JOB {named} ends it")
    return 0


def leave_fleet(address: str, cluster: str) -> int:
    """``elf leave``"""

    async def leave() -> dict[str, object]:
        async with connect(address, cluster=cluster) as client:
            print(f"asked the agent at {address} to leave; it goes when its data is handed over", flush=True)
            return await client.leave()

    said = ask(leave())
    print(said.get("text") or f"the agent at {address} has left")
    return 0


def ask(question: Coroutine[Any, Any, T]) -> T:
    """Run one question to an agent to its end."""
    use_utf8()
    return asyncio.run(question)
