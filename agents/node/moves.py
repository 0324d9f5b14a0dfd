"""Which jobs are to go to agents that have less to do (protocol 5.14, ``cluster.balance``).

Flux's rule (``elf.planning.balance``) over what agents say (``agents.node.balancing``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from elf.job.messages.log import AssignJobGroup
from elf.job.spec import job_of
from elf.planning import balance as flux
from elf.planning.pacing import Pace, Turn, unbalanced

BUSY_LEAST: Final = 20_000
"""Where nobody does more than so much, in millionths of a core, it does not matter who does it."""


def proposed(loads: Mapping[str, flux.Load], pace: Pace, turn: Turn, now_ms: int) -> Sequence[AssignJobGroup]:
    """The moves that make agents even. ``loads``: of agents, by address."""
    if max((load.total for load in loads.values()), default=0.0) < BUSY_LEAST:
        return ()
    due = unbalanced(pace, flux.imbalance(loads), turn)
    if not due.due:
        return ()
    units = {unit for load in loads.values() for unit in load.units}
    held = {unit for unit in units if not turn.may(job_of(unit), unit)}
    found = flux.balance(loads, held, below=pace.below, most=turn.room)
    return [_assign(move, due.reasons[0], now_ms) for move in found.moves]


def _assign(move: flux.Move, why: str, now_ms: int) -> AssignJobGroup:
    def core(load: float) -> str:
        return f"{load / 1e6:.1%} of a core"

    said = (
        f"it takes {core(move.size)}; its agent did {core(move.origin_load)}, this one "
        f"{core(move.target_load)}; {why}"
    )
    return AssignJobGroup(uid=move.unit, origin=move.origin, target=move.target, at_ms=now_ms, why=said)
