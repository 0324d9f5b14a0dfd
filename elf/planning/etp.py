"""Which operator is given more instances when machines come, and which machine goes when there are too many:
Stela (*Assured cloud computing*, 6.5.1).

An operator is *congested* if what arrives is more than ``CONGESTION_RATE`` times what it processes. Its
*effective throughput percentage* (ETP) is the share of the job's throughput that would grow with it: of the
sinks that it reaches by a path on which no other operator is congested. Beyond a congested one, more tuples
would only wait.

    ETP(o) = Σ throughput of the sinks that o effectively reaches ÷ Σ throughput of all sinks

The paper's formulas are lost in the text that we have; these follow from its words and its example, Figure
6.8.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final

import msgspec

from elf.fields import replace
from elf.planning.decision import Decision

CONGESTION_RATE: Final = 1.2


class Operator(msgspec.Struct, frozen=True, kw_only=True):
    """``arrives`` and ``processes``: tuples a second. ``emits``: tuples to each child for one that is
    processed."""

    arrives: float
    processes: float
    children: tuple[str, ...] = ()
    instances: int = 1
    emits: float = 1.0

    def congested(self, rate: float) -> bool:
        return self.arrives > rate * self.processes


Topology = Mapping[str, Operator]


class Round(msgspec.Struct, frozen=True):
    """An operator gets an instance on a new machine (by number); ``why`` in words."""

    operator: str
    machine: int
    why: str


class Target(msgspec.Struct, frozen=True):
    """What would help most: a congested operator and its ETP, or a source where nothing is congested."""

    operator: str
    congested: bool
    etp: float


class ScaleOut(Decision, frozen=True):
    """``projected``: the rates that are expected afterwards."""

    rounds: tuple[Round, ...]
    projected: dict[str, Operator]


class Removal(msgspec.Struct, frozen=True):
    """A machine goes; its instances go to others, each (operator, machine)."""

    machine: str
    etp_sum: float
    moved: tuple[tuple[str, str], ...]


class ScaleIn(Decision, frozen=True):
    """``placement``: the instances of each machine afterwards."""

    removals: tuple[Removal, ...]
    placement: dict[str, tuple[str, ...]]


def congested(topology: Topology, rate: float = CONGESTION_RATE) -> tuple[str, ...]:
    return tuple(name for name, one in topology.items() if one.congested(rate))


def etp(topology: Topology, rate: float = CONGESTION_RATE) -> dict[str, float]:
    """Of each operator, from 0 to 1. Raises ``ValueError`` where the operators are no graph without
    cycles."""
    full = frozenset(congested(topology, rate))
    reached: dict[str, frozenset[str]] = {}
    for root in topology:
        _reach(topology, root, full, reached)
    total = sum(one.processes for one in topology.values() if not one.children)
    return {
        name: sum(topology[sink].processes for sink in reached[name]) / total if total else 0.0
        for name in topology
    }


def _reach(topology: Topology, root: str, full: frozenset[str], reached: dict[str, frozenset[str]]) -> None:
    """The sinks that each operator below ``root`` effectively reaches: depth first, children before
    parents."""
    stack, open_ = [root], set[str]()
    while stack:
        name = stack[-1]
        if name not in topology:
            raise ValueError(f"there is no operator {name}")
        children = topology[name].children
        waits = [child for child in children if child not in reached]
        if name not in reached and waits:
            open_.add(name)
            if any(child in open_ for child in waits):
                raise ValueError(f"operator {name} sends to one that sends to it")
            stack.extend(waits)
            continue
        stack.pop()
        open_.discard(name)
        beyond = (reached[child] for child in children if child not in full)
        reached[name] = frozenset[str]().union(*beyond) if children else frozenset([name])


def scale_out(topology: Topology, machines: int, new: int, rate: float = CONGESTION_RATE) -> ScaleOut:
    """What the instances on ``new`` machines are, as many on each as a machine has on average now."""
    if machines < 1 or new < 1:
        raise ValueError(f"{new} machines beside {machines}")
    each = max(1, sum(one.instances for one in topology.values()) // machines)
    now, rounds = dict(topology), []
    for number in range(each * new):
        found = target(now, rate)
        rounds.append(Round(found.operator, number % new, _why(now, found)))
        now = _grown(now, found.operator)
    reasons = (f"a machine has {each} instances: {each * new} for {new} more",)
    return ScaleOut(reasons=reasons, rounds=tuple(rounds), projected=now)


def target(topology: Topology, rate: float = CONGESTION_RATE) -> Target:
    """The operator that gets the next instance."""
    full = congested(topology, rate)
    if not full:
        fed = {child for one in topology.values() for child in one.children}
        sources = [name for name in topology if name not in fed]
        # the one that has the least: every source gets its turn
        return Target(min(sources, key=lambda one: topology[one].instances), congested=False, etp=0.0)
    shares = etp(topology, rate)
    name = max(full, key=lambda one: shares[one])
    return Target(name, congested=True, etp=shares[name])


def _why(topology: Topology, found: Target) -> str:
    if not found.congested:
        return "nothing is congested: a source, so that more comes in"
    one, waits = topology[found.operator], f"{found.etp:.0%} of the output waits"
    return f"it processes {one.processes:.0f} of {one.arrives:.0f} tuples a second; {waits}"


def _grown(topology: dict[str, Operator], name: str) -> dict[str, Operator]:
    """With one more instance of an operator, its rate in proportion, but no more than arrives. A source takes
    more in. Only its children get more: they process what they did."""
    one, fed = topology[name], {child for other in topology.values() for child in other.children}
    rate = one.processes * (one.instances + 1) / one.instances
    arrives = max(one.arrives, rate) if name not in fed else one.arrives
    rate = min(rate, max(arrives, one.processes))
    found = dict(topology)
    found[name] = replace(one, arrives=arrives, processes=rate, instances=one.instances + 1)
    for child in one.children:
        more = (rate - one.processes) * one.emits
        found[child] = replace(found[child], arrives=found[child].arrives + more)
    return found


def scale_in(
    topology: Topology,
    placement: Mapping[str, Sequence[str]],
    remove: int,
    rate: float = CONGESTION_RATE,
    stay: Collection[str] = (),
) -> ScaleIn:
    """Which ``remove`` machines go. ``placement``: by machine, the operators whose instances are there;
    ``stay``: machines that never go. Raises ``ValueError`` if none would be left, or too few may go."""
    if not 0 < remove <= len(placement.keys() - set(stay)) or remove == len(placement):
        raise ValueError(f"{remove} of {len(placement)} machines cannot go")
    shares = etp(topology, rate)
    now = {machine: tuple(there) for machine, there in placement.items()}
    removals = []
    for _ in range(remove):
        sums = {machine: sum(shares[one] for one in there) for machine, there in now.items()}
        order = sorted(now, key=lambda machine: (sums[machine], machine))
        gone = next(machine for machine in order if machine not in stay)
        rest = [machine for machine in order if machine != gone]
        moved = tuple((one, rest[place % len(rest)]) for place, one in enumerate(now.pop(gone)))
        for one, machine in moved:
            now[machine] = (*now[machine], one)
        removals.append(Removal(gone, sums[gone], moved))
    reasons = tuple(
        f"{one.machine} matters least to the output: the ETP of its instances sums to {one.etp_sum:.2f}"
        for one in removals
    )
    return ScaleIn(reasons=reasons, removals=tuple(removals), placement=now)
