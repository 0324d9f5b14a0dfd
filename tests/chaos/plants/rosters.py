"""Planted bugs of section 2 of the protocol: the catalog log and rosters."""

from __future__ import annotations

import pytest

from elf.job.catalog.log import CatalogLog


def expects_whoever_has_the_stream(patch: pytest.MonkeyPatch) -> None:
    """protocol 2.6: who cannot have a row of a flow is expected in its panes."""
    patch.setattr(CatalogLog, "asked", lambda log, fragment: log.members(fragment.stream))
