"""``--rewrite-ql`` writes what the planner says now into the golden files; a person reads the difference."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--rewrite-ql", action="store_true", default=False, help="renew tests/ql's golden files")
    parser.addoption("--ql-rows", type=int, default=100, help="rows on which functions are compared")
    parser.addoption("--ql-seed", type=int, default=1, help="seed of those rows")


@pytest.fixture
def rewrite_ql(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--rewrite-ql", default=False))
