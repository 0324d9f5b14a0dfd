"""Planted bugs: each takes a rule of ``docs/dev/protocol.md`` out, where the product keeps it. A section of
the protocol has a room."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.chaos.plants import (
    checkpoints,
    commits,
    gaps,
    graphs,
    names,
    past,
    programs,
    replicas,
    rollup,
    rosters,
    stragglers,
    versions,
    windows,
)

__all__ = [
    "Plant",
    "checkpoints",
    "commits",
    "gaps",
    "graphs",
    "names",
    "past",
    "programs",
    "replicas",
    "rollup",
    "rosters",
    "stragglers",
    "versions",
    "windows",
]

Plant = Callable[[pytest.MonkeyPatch], None]
