"""Operators on machines as flows of tuples, in steps of virtual time: what Stela decides is carried out here.

An operator has instances, each on a machine with one core. An instance takes ``cpu_ms`` of the core for a
tuple and is one thread, which is occupied for ``busy_ms`` with it (it waits for something else in the
meantime). Tuples for an operator are dealt to its instances evenly, and wait in a queue each; what does not
fit is lost. Instances that want more of a core than there is share it evenly. An operator emits ``emits``
tuples to each of its children for one that it has processed. The throughput is what the operators without
children process.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

from elf.planning import etp

STEP_S: Final = 0.1
WINDOW_S: Final = 10.0
"""Rates and throughputs are means over so long, as in the chapter's figures."""
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Kind:
    """An operator. ``offered``: tuples that come to a source in a second."""

    name: str
    cpu_ms: float
    children: tuple[str, ...] = ()
    busy_ms: float = 0.0
    emits: float = 1.0
    offered: float = 0.0


@dataclass
class Instance:
    """Where one is; it does nothing before ``starts_s``."""

    kind: int
    machine: str
    starts_s: float = 0.0
    queue: float = 0.0


@dataclass
class Flowing:
    """A topology at work. ``queue_max``: tuples that wait for an instance at most."""

    kinds: Sequence[Kind]
    instances: list[Instance]
    queue_max: float
    now_s: float = 0.0
    output: list[float] = field(default_factory=list)
    """Tuples a second that came out, by step."""

    def __post_init__(self) -> None:
        self._place = {kind.name: n for n, kind in enumerate(self.kinds)}
        self._arrived = np.zeros(len(self.kinds))
        self._processed = np.zeros(len(self.kinds))

    def run(self, seconds: float) -> None:
        """The rates are those of the last ``WINDOW_S`` of it."""
        steps = round(seconds / STEP_S)
        for step in range(steps):
            if step == max(0, steps - round(WINDOW_S / STEP_S)):
                self._arrived[:] = self._processed[:] = 0.0
            self._step()

    def throughput(self) -> float:
        """Of the last ``WINDOW_S``."""
        return float(np.mean(self.output[-round(WINDOW_S / STEP_S) :]))

    def silent_s(self, since_s: float) -> int:
        """Whole seconds since then in which nothing came out."""
        each = round(1 / STEP_S)
        steps = self.output[round(since_s / STEP_S) :]
        return sum(not any(steps[n : n + each]) for n in range(0, len(steps) - each + 1, each))

    def topology(self) -> dict[str, etp.Operator]:
        """As it was measured."""
        seconds = min(WINDOW_S, max(self.now_s, STEP_S))
        return {
            kind.name: etp.Operator(
                arrives=self._arrived[n] / seconds,
                processes=self._processed[n] / seconds,
                children=kind.children,
                instances=sum(one.kind == n for one in self.instances),
                emits=kind.emits,
            )
            for n, kind in enumerate(self.kinds)
        }

    def placement(self) -> dict[str, list[str]]:
        """By machine, the operators whose instances are there."""
        found: dict[str, list[str]] = {}
        for one in self.instances:
            found.setdefault(one.machine, []).append(self.kinds[one.kind].name)
        return found

    # -- what a scheduler does -------------------------------------------------------------------------------

    def grow(self, rounds: Iterable[etp.Round], machines: Sequence[str], start_s: float) -> None:
        """New instances on new machines; they begin after ``start_s``."""
        for one in rounds:
            place = self._place[one.operator]
            self.instances.append(Instance(place, machines[one.machine], self.now_s + start_s))

    def move(self, removal: etp.Removal, start_s: float) -> None:
        """The instances of a machine go elsewhere, with what waits for them."""
        there = [one for one in self.instances if one.machine == removal.machine]
        for one, (_, machine) in zip(there, removal.moved, strict=True):
            one.machine, one.starts_s = machine, self.now_s + start_s

    def deal(self, machines: Sequence[str], start_s: float) -> None:
        """All instances stop, and begin again on these machines, dealt out in turn."""
        for n, one in enumerate(self.instances):
            one.machine, one.starts_s, one.queue = machines[n % len(machines)], self.now_s + start_s, 0.0

    # -- a step ----------------------------------------------------------------------------------------------

    def _step(self) -> None:
        for n, kind in enumerate(self.kinds):
            if kind.offered:
                self._arrive(n, kind.offered * STEP_S)
        done = self._work()
        out = 0.0
        for n, kind in enumerate(self.kinds):
            self._processed[n] += done[n]
            for child in kind.children:
                self._arrive(self._place[child], done[n] * kind.emits)
            out += 0.0 if kind.children else done[n]
        self.output.append(out / STEP_S)
        self.now_s += STEP_S

    def _arrive(self, kind: int, tuples: float) -> None:
        self._arrived[kind] += tuples
        there = [one for one in self.instances if one.kind == kind]
        for one in there:
            one.queue = min(self.queue_max, one.queue + tuples / len(there))

    def _work(self) -> Floats:
        """What each operator processes in this step."""
        done = np.zeros(len(self.kinds))
        by_machine: dict[str, list[Instance]] = {}
        for one in self.instances:
            if one.queue > 0 and self.now_s >= one.starts_s:
                by_machine.setdefault(one.machine, []).append(one)
        for there in by_machine.values():
            wanted = []
            for one in there:
                kind = self.kinds[one.kind]
                able = STEP_S * 1e3 / max(kind.busy_ms, kind.cpu_ms)
                wanted.append(min(one.queue, able) * kind.cpu_ms)
            for one, spent in zip(there, fair(wanted, STEP_S * 1e3), strict=True):
                tuples = spent / self.kinds[one.kind].cpu_ms
                one.queue = max(0.0, one.queue - tuples)
                done[one.kind] += tuples
        return done


def fair(wanted: Sequence[float], there: float) -> list[float]:
    """What each gets of what there is: as much as it wants, or as much as all who want more."""
    found, left, rest = [0.0] * len(wanted), there, len(wanted)
    for place in sorted(range(len(wanted)), key=lambda one: wanted[one]):
        found[place] = min(wanted[place], left / rest)
        left -= found[place]
        rest -= 1
    return found


def dealt(kinds: Sequence[Kind], each: int, machines: int, *, in_blocks: bool = False) -> list[Instance]:
    """``each`` instances of every operator, dealt to machines in turn; or in blocks, so that a machine has
    those of few operators."""
    total = len(kinds) * each
    return [
        Instance(n // each, f"m{n * machines // total if in_blocks else n % machines}") for n in range(total)
    ]
