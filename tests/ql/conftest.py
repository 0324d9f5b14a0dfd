"""``--rewrite-ql`` writes what the planner says now into the golden files; a person reads the difference."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--rewrite-ql", action="store_true", default=False, help="renew tests/ql's golden files")


@pytest.fixture
def rewrite_ql(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--rewrite-ql", default=False))
