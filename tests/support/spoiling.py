"""An agent that sends no tables of its flows: ``python -m tests.support.spoiling --config …``."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from agents.main import main
from elf.fields import replace
from elf.job.effects import Effect
from elf.job.rollup.sender import Sender
from elf.job.snapshots import Sealed
from elf.job.spec import Flow


class Spoiling(Sender):
    """See the module's docstring."""

    def sealed(self, sealed: Sealed, now_ms: int) -> list[Effect]:
        return super().sealed(replace(sealed, counters=b"none", payload=b"none"), now_ms)

    def fetched(self, flow: Flow, snapshots: Iterable[Sealed]) -> list[Effect]:
        return super().fetched(flow, (replace(one, counters=b"none", payload=b"none") for one in snapshots))


if __name__ == "__main__":
    pytest.MonkeyPatch().setattr("agents.node.working.Sender", Spoiling)
    main()
