"""Fleets of real processes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fleet.fleet import Fleet


@pytest.fixture
def five(tmp_path: Path) -> Iterator[Fleet]:
    fleet = Fleet(tmp_path, 5)
    fleet.start()
    yield fleet
    fleet.stop()
