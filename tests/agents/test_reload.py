"""What an agent lives with, one configuration after the other."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

from agents.keyring import open_keyring
from agents.loading import load
from agents.reload import Lives


async def test_a_life_that_began_before_a_swap_is_not_its_life(tmp_path: Path) -> None:
    """It would run on with what was before, and the swap would be told as done."""
    (tmp_path / "elf.yaml").write_text(f"data_dir: {tmp_path}\nkeys: {tmp_path}/keys\n")
    old = load(tmp_path / "elf.yaml")
    new = replace(old, memory_max_bytes=old.memory_max_bytes + 1)
    keyring = open_keyring(old)
    lives, ended = Lives(old, keyring, tmp_path), list[str]()
    swap = asyncio.create_task(lives.swap(new, keyring))
    await asyncio.sleep(0)
    assert not lives.begins(lambda: ended.append("old"), old)
    assert lives.swaps
    assert not swap.done()
    assert lives.begins(lambda: ended.append("new"), new)
    assert await swap == ""
    assert not lives.swaps
    swap = asyncio.create_task(lives.swap(old, keyring))
    await asyncio.sleep(0)
    assert ended == ["new"]
    assert lives.goes_back("its port is in use")
    assert lives.begins(lambda: None, new)
    assert await swap == "its port is in use"
