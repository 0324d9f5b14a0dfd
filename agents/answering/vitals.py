"""How all agents of the fleet are (``elf top``): each is asked, and one that does not answer is named."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from agents.answering.asks import Procedure, ToAddress
from elf.job import messages as say
from elf.wire.vitals import AgentVitals, FleetVitals, InspectAgent, Vitals

PATIENCE_MS = 2_000
"""How long an answer is waited for: somebody is looking on."""
ASKED_MAX = 128
"""Agents that are asked at once."""


def fleet_vitals(
    request: int, agents: Mapping[str, tuple[str, tuple[str, ...]]], jobs: Sequence[str]
) -> Procedure:
    """``agents``: address → name and streams. The reply's body is ``FleetVitals``."""
    found: list[AgentVitals] = []
    todo = list(agents.items())
    for begin in range(0, len(todo), ASKED_MAX):
        asked = todo[begin : begin + ASKED_MAX]
        answers = yield [ToAddress(at, InspectAgent(id=0, origin=""), PATIENCE_MS) for at, _ in asked]
        for (address, (name, streams)), answer in zip(asked, answers, strict=True):
            vitals = None if answer.error else msgspec.msgpack.decode(answer.body, type=Vitals)
            found.append(AgentVitals(name, address, streams, vitals))
    return say.Reply(request=request, body=msgspec.json.encode(FleetVitals(len(jobs), tuple(found))))
