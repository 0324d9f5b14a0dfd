"""Planted bugs of section 14 of the protocol: graph computations."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from elf.job.graphs import barrier, clusters
from elf.job.graphs.barrier import Barrier
from elf.job.graphs.part import Part
from elf.job.graphs.worker import Making, Sends, Word, Worker


def goes_on_without_the_last(patch: pytest.MonkeyPatch) -> None:
    """protocol 14.16: an iteration is over when all parts but one have said so."""
    got = Barrier._got

    def most(master: Barrier, who: str, what: Any, now: float) -> Sends:
        state = master.state
        if state["phase"] == "running" and who in state["of"] and len(state["got"]) == len(state["of"]) - 2:
            for other in state["of"]:
                state["got"].setdefault(other, [9999, b"", None])
        return got(master, who, what, now)

    patch.setattr(Barrier, "_got", most)


def tells_at_the_old_places(patch: pytest.MonkeyPatch) -> None:
    """protocol 14.17: the iteration before a new layout is held by nobody."""
    iterate = Worker._iterate

    def unheld(worker: Worker, go: Word) -> Iterator[tuple[str, Word]]:
        yield from iterate(worker, {**go, "hold": False})

    patch.setattr(Worker, "_iterate", unheld)


def begins_values_anew(patch: pytest.MonkeyPatch) -> None:
    """protocol 14.17: vertices that move come without their values."""
    turn = Worker._turn

    def bare(worker: Worker, making: Making, layout: int) -> None:
        turn(worker, making, layout)
        if worker._go and worker._go["number"] and worker.part is not None:
            worker.values = worker._algorithm.first(worker.part, worker._go["count"])

    patch.setattr(Worker, "_turn", bare)


def waits_for_who_is_lost(patch: pytest.MonkeyPatch) -> None:
    """protocol 14.18: nothing follows from an agent that is there without its part, or has left."""
    patch.setattr(Barrier, "_lost", lambda *_, **__: [])
    patch.setattr(Barrier, "tick", lambda *_: [])


def adds_up_by_part(patch: pytest.MonkeyPatch) -> None:
    """protocol 14.19: sums are of parts, and not of what never moves apart."""
    patch.setattr(barrier, "fsum", lambda values: float(sum(values)))
    heard = Part.heard

    def backwards(part: Part, along: Any, combine: str) -> Any:
        found = heard(part, along, combine)
        return found if len(part.ids) % 2 else found + found * 2.0**-52

    patch.setattr(Part, "heard", backwards)


def adds_up_doubles(patch: pytest.MonkeyPatch) -> None:
    """protocol 14.19: what points are added up by is not whole numbers."""
    patch.setattr(clusters, "_limbs", lambda numbers: iter((numbers * 2.0**26, numbers * 0, numbers * 0)))
