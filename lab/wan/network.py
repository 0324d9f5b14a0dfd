"""Batches on their way between regions, on virtual time: each link has a rate, which the transfers over it
share alike, and a delay.

A batch of a job begins at all its sources at once. A region that relays waits for what it is sent, merges it
with its own, and sends the result on; the batch is over when the target has all. Work on bytes takes no time
here: what is measured is the network. Each source's input of a batch is drawn around its mean.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from heapq import heappop, heappush
from typing import Final

import msgspec
import numpy as np

from elf.planning.routes.model import Demand, Link

SPREAD: Final = 0.1
"""Standard deviation of a batch's input, of its mean."""


class Sending(msgspec.Struct, frozen=True):
    """A demand, the region over which each source sends (the target: directly), and its interval."""

    demand: Demand
    vias: Mapping[str, str]
    interval_s: float


class Measured(msgspec.Struct, frozen=True):
    """``batch_s``: of each job, from the end of a batch's interval to when the target has it all. ``sent``:
    by link. ``left``: batches that were not over at the end."""

    batch_s: dict[str, np.ndarray]
    sent: dict[tuple[str, str], float]
    left: int


class _Pipe:
    """A link. ``served``: what each transfer since the beginning would have been given."""

    def __init__(self, link: Link) -> None:
        self.link = link
        self.served, self.at = 0.0, 0.0
        self.waiting: list[tuple[float, int, _Batch, str]] = []
        self.version = 0
        self.sent = 0.0

    def advance(self, now: float) -> None:
        if self.waiting:
            self.served += (now - self.at) * self.link.rate / len(self.waiting)
        self.at = now

    def next_at(self) -> float:
        return self.at + max(0.0, self.waiting[0][0] - self.served) * len(self.waiting) / self.link.rate


class _Batch:
    """``missing``: by region what it waits for; ``inputs``: what it has."""

    def __init__(self, sending: Sending, began: float, inputs: dict[str, float]) -> None:
        self.sending, self.began, self.inputs = sending, began, inputs
        target = sending.demand.target
        self.missing = dict.fromkeys({*inputs, *sending.vias.values(), target}, 0)
        for via in sending.vias.values():
            self.missing[via] += 1
        self.missing[target] += sum(
            1 for region in set(sending.vias.values()) - {target} if region not in sending.vias
        )


class Network:
    """See the module's docstring. Equal seeds give equal runs."""

    def __init__(self, links: Sequence[Link], sendings: Sequence[Sending], seed: int) -> None:
        self._pipes = {(one.origin, one.target): _Pipe(one) for one in links}
        self._sendings, self._rng = sendings, random.Random(seed)
        self._events: list[tuple[float, int, object]] = []
        self._number = 0
        self._took: dict[str, list[float]] = {one.demand.name: [] for one in sendings}
        self._open = 0

    def run(self, secs: float) -> Measured:
        for sending in self._sendings:
            self._at(self._rng.random() * sending.interval_s, sending)
        while self._events and self._events[0][0] <= secs:
            now, _, what = heappop(self._events)
            if isinstance(what, Sending):
                self._begin(now, what)
            elif isinstance(what, tuple):
                self._arrive(now, *what)
            else:
                self._finish(now, what)
        took = {name: np.array(one) for name, one in self._took.items()}
        return Measured(took, {pair: pipe.sent for pair, pipe in self._pipes.items()}, self._open)

    def _at(self, when: float, what: object) -> None:
        self._number += 1
        heappush(self._events, (when, self._number, what))

    def _begin(self, now: float, sending: Sending) -> None:
        demand = sending.demand
        inputs = {
            region: rate * sending.interval_s * max(0.05, self._rng.gauss(1.0, SPREAD))
            for region, rate in sorted(demand.sources.items())
        }
        batch = _Batch(sending, now, inputs)
        self._open += 1
        self._at(now + sending.interval_s, sending)
        for region in list(inputs):
            if not batch.missing[region]:
                self._send(now, batch, region)

    def _send(self, now: float, batch: _Batch, region: str) -> None:
        demand = batch.sending.demand
        if region == demand.target:
            self._took[demand.name].append(now - batch.began)
            self._open -= 1
            return
        to = batch.sending.vias.get(region, demand.target)
        pipe = self._pipes[region, to]
        pipe.advance(now)
        size = float(demand.size(np.array(batch.inputs[region])))
        pipe.sent += size
        self._number += 1
        heappush(pipe.waiting, (pipe.served + size, self._number, batch, region))
        self._expect(pipe)

    def _expect(self, pipe: _Pipe) -> None:
        pipe.version += 1
        if pipe.waiting:
            self._at(pipe.next_at(), _Done(pipe, pipe.version))

    def _finish(self, now: float, done: object) -> None:
        assert isinstance(done, _Done)
        pipe = done.pipe
        if done.version != pipe.version:
            return
        pipe.advance(now)
        _, _, batch, region = heappop(pipe.waiting)
        self._at(now + pipe.link.delay_s, (batch, region, pipe.link.target))
        self._expect(pipe)

    def _arrive(self, now: float, batch: _Batch, origin: str, region: str) -> None:
        batch.inputs[region] = batch.inputs.get(region, 0.0) + batch.inputs[origin]
        batch.missing[region] -= 1
        if not batch.missing[region]:
            self._send(now, batch, region)


class _Done:
    """The first transfer of a link ends, if nothing has changed on it since."""

    __slots__ = ("pipe", "version")

    def __init__(self, pipe: _Pipe, version: int) -> None:
        self.pipe, self.version = pipe, version
