"""``--rewrite-time`` writes what the fleets do now into ``scripts``; a person reads the difference."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--rewrite-time", action="store_true", default=False, help="renew tests/job's scripts")


@pytest.fixture
def rewrite_time(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--rewrite-time", default=False))
