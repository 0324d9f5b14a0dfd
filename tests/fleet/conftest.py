"""Fleets of real processes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.fleet import Fleet


def running(folder: Path, count: int) -> Iterator[Fleet]:
    fleet = Fleet(folder, count)
    fleet.start()
    yield fleet
    fleet.stop()


@pytest.fixture
def two(tmp_path: Path) -> Iterator[Fleet]:
    yield from running(tmp_path, 2)


@pytest.fixture
def three(tmp_path: Path) -> Iterator[Fleet]:
    yield from running(tmp_path, 3)


@pytest.fixture
def five(tmp_path: Path) -> Iterator[Fleet]:
    yield from running(tmp_path, 5)


@pytest.fixture
def six(tmp_path: Path) -> Iterator[Fleet]:
    yield from running(tmp_path, 6)
