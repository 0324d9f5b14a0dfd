"""Scaling out and in as in Stela's figures 6.11 and 6.13: the sizes of Table 6.3, on *constructed*
topologies.

The layouts of Figure 6.10 and the operators' costs are not in the text. *Page load* is said to be a linear
structure: here a chain of seven operators, one of which waits for something else (a store of pages) and keeps
its threads occupied. *Network monitoring* has eight operators and two congested ones, of which Stela is said
to grow the one that is nearest to a sink: here two branches behind a source, one of which is congested twice.

Storm's own scheduler stops everything and deals the instances that there are to all machines in turn. For how
long is constructed too (``RESTART_S``): only whether nothing comes out is looked at.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Final

from elf.planning.etp import scale_in, scale_out
from lab.moving.rates import Flowing, Kind, dealt

PAGE_LOAD: Final = (
    Kind("lines", 0.2, ("parse",), offered=1_000),
    Kind("parse", 0.6, ("filter",)),
    Kind("filter", 0.2, ("page",)),
    Kind("page", 0.4, ("count",)),
    Kind("count", 0.4, ("rank",)),
    Kind("rank", 0.3, ("store",)),
    Kind("store", 0.3, busy_ms=8.0),
)
NETWORK: Final = (
    Kind("packets", 0.2, ("decode",), offered=1_000),
    Kind("decode", 0.4, ("flows", "hosts")),
    Kind("flows", 0.3, ("match",)),
    Kind("match", 0.4, ("alerts",), busy_ms=5.4),
    Kind("alerts", 0.2, ("kept",), busy_ms=6.6),
    Kind("kept", 0.1),
    Kind("hosts", 0.4, ("report",)),
    Kind("report", 0.3),
)
SETTLE_S: Final = 60.0
RESTART_S: Final = 20.0
"""From a stop of everything until it runs again."""
START_S: Final = 5.0
"""Of one instance, while the others go on."""
QUEUE_MAX: Final = 5_000.0
SCALE_IN_QUEUE_MAX: Final = 1_000.0


def page_load_out() -> dict[str, float]:
    """Table 6.3: four instances an operator, 7 machines, then 8."""
    return _out(PAGE_LOAD, each=4, machines=7)


def network_out() -> dict[str, float]:
    """Four instances an operator, 8 machines, then 9."""
    return _out(NETWORK, each=4, machines=8)


def _out(kinds: Sequence[Kind], each: int, machines: int) -> dict[str, float]:
    def stela(flowing: Flowing) -> None:
        decision = scale_out(flowing.topology(), machines, 1)
        flowing.grow(decision.rounds, [f"m{machines}"], START_S)

    def in_turn(flowing: Flowing) -> None:
        flowing.deal([f"m{n}" for n in range(machines + 1)], RESTART_S)

    before, by_stela, _ = _scaled(kinds, each, machines, stela)
    _, by_turn, silent = _scaled(kinds, each, machines, in_turn)
    return {
        "before": round(before, 1),
        "stela": round(by_stela, 1),
        "round_robin": round(by_turn, 1),
        "gain": round(by_stela / by_turn - 1, 4),
        "round_robin_silent_s": silent,
    }


def page_load_in(seed: int) -> dict[str, float]:
    """Fifteen instances an operator on 8 machines, in blocks, then on 4; two groups of machines drawn for
    Storm."""
    each, machines, gone = 15, 8, 4
    rng = random.Random(seed)

    def stela(flowing: Flowing) -> None:
        for removal in scale_in(flowing.topology(), flowing.placement(), gone).removals:
            flowing.move(removal, START_S)

    def drawn(flowing: Flowing) -> None:
        left = sorted(rng.sample([f"m{n}" for n in range(machines)], machines - gone))
        flowing.deal(left, RESTART_S)

    kinds = [_slower(kind) for kind in PAGE_LOAD]
    before, kept, silent = _scaled(kinds, each, machines, stela, in_blocks=True)
    found = {"before": round(before, 1), "kept": round(kept / before, 4), "silent_s": float(silent)}
    for n in (1, 2):
        _, other, silent = _scaled(kinds, each, machines, drawn, in_blocks=True)
        found |= {f"group_{n}_kept": round(other / before, 4), f"group_{n}_silent_s": float(silent)}
    return found


def _slower(kind: Kind) -> Kind:
    """The same for fifteen threads, with as much work as four machines can just do."""
    return Kind(kind.name, kind.cpu_ms * 1.6, kind.children, kind.busy_ms * 4, kind.emits, kind.offered)


def _scaled(
    kinds: Sequence[Kind],
    each: int,
    machines: int,
    scale: Callable[[Flowing], None],
    *,
    in_blocks: bool = False,
) -> tuple[float, float, int]:
    """Throughput before and after, and the seconds in between in which nothing came out."""
    queue = SCALE_IN_QUEUE_MAX if in_blocks else QUEUE_MAX
    flowing = Flowing(kinds, dealt(kinds, each, machines, in_blocks=in_blocks), queue)
    flowing.run(SETTLE_S)
    before, since = flowing.throughput(), flowing.now_s
    scale(flowing)
    flowing.run(SETTLE_S * 2)
    return before, flowing.throughput(), flowing.silent_s(since)
