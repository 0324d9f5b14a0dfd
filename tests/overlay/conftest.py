"""``--rewrite`` writes what the worlds do now into the scripts; a person reads the difference.
``--raft-seeds 5000`` lets Raft groups live through so many histories."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--rewrite", action="store_true", default=False, help="renew tests/overlay's scripts")
    parser.addoption("--replica-seeds", type=int, default=40, help="histories of replica groups to try")


@pytest.fixture
def rewrite(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--rewrite", default=False))


@pytest.fixture
def raft_seeds(request: pytest.FixtureRequest) -> int:
    return int(request.config.getoption("--replica-seeds", default=40))
