"""Agents whose snapshots are no tables of their flow: no agent stops for them, they are left out by name, and
the others' windows go on (``agents.committing.opening``). The ledger of chaos looks on."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from elf.batch import decode, encode
from elf.chaos.agent import SimAgent
from elf.chaos.engine import plan
from elf.chaos.ledger import Ledger
from elf.chaos.world import World
from elf.job.contributions import Piece
from elf.job.effects import Effect
from elf.job.rollup.uplink import Uplink
from elf.job.snapshots import Sealed
from elf.job.spec import Flow, JobSpec
from elf.ql.plan import Plan
from tests.job.test_fleet_simulated import settled

AGENTS = 6
Spoil = Callable[[bytes], bytes]


def garbage(data: bytes) -> bytes:
    return b"these bytes are no table"


def cut_short(data: bytes) -> bytes:
    return data[: len(data) // 2] + data[-8:]


def other_names(data: bytes) -> bytes:
    table = decode(data)
    return encode(table.rename_columns([f"_{name}" for name in table.column_names]))


def other_types(data: bytes) -> bytes:
    """Keys that are numbers, or counts that are doubles: they would even merge with each other."""
    table = decode(data)
    place = table.num_columns - 1 if "k0" not in table.column_names else table.column_names.index("k0")
    column = pa.array(np.arange(table.num_rows) + 0.5)
    return encode(table.set_column(place, table.column_names[place], column))


SPOILS: tuple[Spoil, ...] = (garbage, cut_short, other_names, other_types)


class Fleet:
    """Agents with one job. ``bad`` are to seal, keep and send what is spoilt: payloads, or ``tallies``."""

    def __init__(
        self,
        monkeypatch: pytest.MonkeyPatch,
        spoil: Spoil,
        query: Plan | None = None,
        *,
        bad: int = 1,
        tallies: bool = False,
    ) -> None:
        self.ledger = Ledger()
        self.world = World(5, AGENTS, ledger=self.ledger)
        self.bad: list[SimAgent] = []
        self._patch(monkeypatch, spoil, tallies)
        self.world.start_all()
        self.until = self.world.now + 22_000
        for agent in self.world.agents:
            self.world.write(agent, self.until, rate_ms=150)
        self.spec: JobSpec = self.world.create(1, query or plan(2))
        homes = {flow.home for flow in self.spec.flows} | {self.spec.home}
        self.bad += [agent for agent in self.world.agents if agent.address not in homes][:bad]

    def _patch(self, monkeypatch: pytest.MonkeyPatch, spoil: Spoil, tallies: bool) -> None:
        sealed, fetched = Uplink.sealed, Uplink.fetched

        def is_bad(uplink: Uplink) -> bool:
            return any(agent.node.uplink is uplink for agent in self.bad)

        def spoilt(tally: bytes, payload: bytes) -> tuple[bytes, bytes]:
            if tallies:
                return (spoil(tally) if tally else tally), payload
            return tally, (spoil(payload) if payload else payload)

        def seals(uplink: Uplink, one: Sealed, now_ms: int) -> list[Effect]:
            if is_bad(uplink):
                tally, payload = spoilt(one.tally, one.payload)
                one = replace(one, tally=tally, payload=payload)
            return sealed(uplink, one, now_ms)

        def fetches(uplink: Uplink, flow: Flow, pieces: Iterable[Piece], part: int = 0) -> list[Effect]:
            if is_bad(uplink):
                both = ((one, spoilt(one.tally, one.payload)) for one in pieces)
                pieces = [replace(one, tally=tally, payload=payload) for one, (tally, payload) in both]
            return fetched(uplink, flow, pieces, part)

        monkeypatch.setattr(Uplink, "sealed", seals)
        monkeypatch.setattr(Uplink, "fetched", fetches)

    def check(self, least: int = 6) -> None:
        """All live; windows are exact of those they have; the good are in all of them, the bad in none that
        they have rows of."""
        assert all(agent.up for agent in self.world.agents)
        assert self.ledger.findings == []
        names = {f"a{agent.index}" for agent in self.bad}
        windows = settled(self.world, self.spec, self.until)
        assert len(windows) >= least
        for start, (_, counts, status) in windows.items():
            assert counts == self.world.truth(self.spec, start, status["missing"]), (start, status)
        steady = [status for start, (_, _, status) in sorted(windows.items())][2:]
        assert [set(status["missing"]) for status in steady] == [names] * len(steady)
        assert {(s["expected"], s["reported"]) for s in steady} == {(AGENTS, AGENTS - len(names))}


@pytest.mark.parametrize("tallies", [False, True], ids=["groups", "tally"])
@pytest.mark.parametrize("spoil", SPOILS, ids=lambda one: one.__name__)
def test_who_sends_no_tables_is_missing_and_the_others_go_on(
    spoil: Spoil, tallies: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet = Fleet(monkeypatch, spoil, tallies=tallies)
    fleet.world.run(30_000)
    fleet.check()
