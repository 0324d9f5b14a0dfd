"""What agents in these tests have in common: where users' functions run, and that nobody waits for a disk."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from agents.tasks.streams import FunctionsAt
from elf.functions.sandbox import Limits, Sandboxes
from tests.support.confined import WHY_NOT


@pytest.fixture(scope="module")
def sandboxes() -> Iterator[Sandboxes]:
    if WHY_NOT:
        pytest.skip(f"users' code cannot be confined: {WHY_NOT}")
    made = Sandboxes()
    made._template._ready()  # so that no test waits for it
    yield made
    made.close()


@pytest.fixture
def at(sandboxes: Sandboxes, tmp_path: Path) -> FunctionsAt:
    limits = Limits(call_secs=0.3, memory_bytes=48 << 20, rows_max=300_000)
    return FunctionsAt(sandboxes, lambda _: None, tmp_path, limits)


@pytest.fixture
def no_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is done when is the matter of the spool's tests."""
    monkeypatch.setattr(os, "fdatasync", lambda file: None)
    monkeypatch.setattr(os, "fsync", lambda file: None)
