"""Where a new job gets its job group: at the less loaded of the nodes at its two keys
(``overlay.placement``).

CREATE is routed to the first key. The node there lets one request for a name through at a time, and routes it
on to the second key with its own number of jobs. The node there takes the job if it has fewer, or sends it
back. So two people who create one name at once meet at one node, at the price of one more routed message.
"""

from __future__ import annotations

from typing import Final

import msgspec

from elf.job.messages.groups import CreateJob
from elf.job.spec import topics_of
from overlay.placement import choose

PLACING_MS: Final = 10_000
"""A request that found no job group for so long is forgotten, and the name is free again."""


class Here(msgspec.Struct, frozen=True):
    """This node is to be the job group, with the job's tree at ``topic``."""

    topic: bytes


class AtKey(msgspec.Struct, frozen=True):
    """Route the request to the node at the other key."""

    key: bytes
    request: CreateJob


class Taken(msgspec.Struct, frozen=True):
    """Another request for the same name is under way."""


Place = Here | AtKey | Taken


class Placing:
    """One node's part in placing, for jobs that neither it nor the log knows."""

    def __init__(self) -> None:
        self._under_way: dict[tuple[str, str], tuple[CreateJob, int]] = {}

    def where(self, request: CreateJob, jobs: int, now_ms: int) -> Place:
        """What to do with a request, given the number of jobs at this node."""
        first, second = topics_of(request.spec.name, request.spec.creator)
        if request.settled:
            return Here(first)
        if request.rival_jobs is not None:
            if choose([request.rival_jobs, jobs]) == 1:
                return Here(second)
            return AtKey(first, msgspec.structs.replace(request, settled=True))
        self._under_way = {n: (r, until) for n, (r, until) in self._under_way.items() if until > now_ms}
        named = (request.spec.name, request.spec.creator)
        before, _ = self._under_way.setdefault(named, (request, now_ms + PLACING_MS))
        if (before.id, before.origin) != (request.id, request.origin):
            return Taken()
        return AtKey(second, msgspec.structs.replace(request, rival_jobs=jobs))

    def placed(self, name: str, creator: str) -> None:
        """The log has a job of that name."""
        self._under_way.pop((name, creator), None)
