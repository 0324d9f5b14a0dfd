"""An agent that sends no tables of its flows: ``python -m tests.fleet.spoiling --config …``."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest

from agents.main import main
from elf.job.contributions import Piece
from elf.job.effects import Effect
from elf.job.rollup.uplink import Uplink
from elf.job.snapshots import Sealed
from elf.job.spec import Flow


class Spoiling(Uplink):
    """See the module's docstring."""

    def sealed(self, sealed: Sealed, now_ms: int) -> list[Effect]:
        return super().sealed(replace(sealed, tally=b"none", payload=b"none"), now_ms)

    def fetched(self, flow: Flow, pieces: Iterable[Piece], part: int = 0) -> list[Effect]:
        spoilt = (replace(piece, tally=b"none", payload=b"none") for piece in pieces)
        return super().fetched(flow, spoilt, part)


if __name__ == "__main__":
    pytest.MonkeyPatch().setattr("agents.node.working.Uplink", Spoiling)
    main()
