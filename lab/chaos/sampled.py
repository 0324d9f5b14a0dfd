"""At which weight each row of a flow was mapped on a simulated agent, as a reference for what its panes have
(``elf.job.sampling``)."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from elf.job.commands import Command, Feed, Replay
from elf.job.sampling import drawn
from elf.job.worker.postponed import Part
from elf.job.worker.stream import StreamWorker
from elf.planning.budgets import WEIGHT_MAX


class Weighed(NamedTuple):
    """Rows of a source with offsets ``[start, end)`` are mapped for a flow at this weight."""

    flow: str
    source: str
    start: int
    end: int
    weight: int


def weighed(worker: StreamWorker, command: Command) -> list[Weighed]:
    """What a worker is about to map of its flows, but at weight 1."""
    found = []
    for uid, state in worker.states().items():
        if state.weight == 1:
            continue
        if isinstance(command, Feed) and state.past is None:
            chunk = command.chunk
            start = max(chunk.start, state.applied.get(chunk.source.id, 0))
            found.append(Weighed(uid, chunk.source.id, start, chunk.end, state.weight))
        elif isinstance(command, Replay) and command.uid == uid:
            found += [
                Weighed(uid, one.source, int(one.offsets[0]), int(one.offsets[-1]) + 1, state.weight)
                for one in command.records
                if len(one.offsets)
            ]
    return found


def cut(uid: str, part: Part) -> list[Weighed]:
    """What is cut short of a flow's rows that wait for their turn."""
    assert part.lines is not None
    return [Weighed(uid, part.source, part.lines.start, part.lines.end, WEIGHT_MAX)]


class Weights:
    """What agents have durably mapped, of all flows."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, str, str], list[Weighed]] = defaultdict(list)

    def keep(self, agent: int, found: Iterable[Weighed]) -> None:
        for one in found:
            self._known[agent, one.flow, one.source].append(one)

    def ever(self, agent: int, flow: str) -> bool:
        """Whether any of its rows were sampled there."""
        return any(key[:2] == (agent, flow) for key in self._known)

    def of(self, agent: int, flow: str, source: str, offset: int) -> tuple[set[int], int]:
        """Of a row: the weights that it has had, and for how many it was counted, at the highest."""
        known = self._known.get((agent, flow, source), ())
        weights = {one.weight for one in known if one.start <= offset < one.end}
        most = max(weights, default=1)
        return weights, most if drawn(source, np.array([offset]), most)[0] else 0


class Pane(NamedTuple):
    """What a pane must have: estimates by key, how many rows were left out, and at which weights."""

    counts: Counter[str]
    rows: int
    left_out: int
    weights: set[int]


def pane_of(weights: Weights, agent: int, flow: str, rows: Iterable[tuple[str, int, str]]) -> Pane:
    """``rows``: (source, offset, key) of all that the pane has counted."""
    counts, total, left_out, used = Counter[str](), 0, 0, set[int]()
    for source, offset, key in rows:
        had, stands_for = weights.of(agent, flow, source, offset)
        counts[key] += stands_for
        total += 1
        left_out += not stands_for
        used |= had
    return Pane(+counts, total, left_out, used)


def of_all(rows: Iterable[tuple[str, int, str]]) -> Pane:
    """The same where each row stands for itself: of late rows."""
    counts = Counter(key for _, _, key in rows)
    return Pane(counts, counts.total(), 0, set())
