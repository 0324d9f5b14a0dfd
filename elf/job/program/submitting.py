"""How a job in Python gets into the catalog log, and out of it: at the node nearest to its app id.

That node lets one request for a name through, gives the job its generation, and bootstraps its job group,
whose leader asks voters of the log until the log has the entry (``elf.job.program.masters``); then it
answers. Two nodes that both believe to be nearest give the same generation: the log takes one entry of that
uid, and the other request is told that the name is taken.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import msgspec

from elf.fields import replace
from elf.job.catalog.log import CatalogLog
from elf.job.effects import BootstrapProgram, Send
from elf.job.messages.log import DropJobEntry
from elf.job.program.messages import DropProgram, SubmitProgram
from elf.job.program.spec import ProgramSpec
from elf.wire.base import Answer

RETRY_MS: Final = 500
GIVE_UP_MS: Final = 10_000


@dataclass
class _Waiting:
    """``spec``: to be added; ``uid``: to be dropped first, or instead."""

    request: SubmitProgram | DropProgram
    spec: ProgramSpec | None
    uid: str
    until_ms: int


class Submitting:
    """The requests that wait for the catalog log at one node, by app id."""

    def __init__(self, log: CatalogLog) -> None:
        self._log = log
        self._waiting: dict[bytes, _Waiting] = {}
        self._next_ms = 0

    def submitted(
        self, request: SubmitProgram, address: str, now_ms: int, voter: str | None
    ) -> list[Send | BootstrapProgram]:
        """Somebody sends a job to the agent at this address."""
        spec = request.spec
        if why := self._log.authors.refused_program(spec):
            error = f"job {spec.name} is refused: {why}"
            return [Send(request.origin, Answer(id=request.id, error=error))]
        own = [s for s in self._log.programs() if s.app == spec.app]
        if own and own[-1].subscription == spec.subscription:
            return [_added(request, own[-1])]
        waiting = self._waiting.get(spec.app)
        if waiting is not None:
            same = (
                isinstance(waiting.request, SubmitProgram)
                and waiting.request.spec.subscription == spec.subscription
            )
            return [] if same else [_taken(request)]
        if any((s.name, s.creator) == (spec.name, spec.creator) for s in self._log.jobs()):
            return [_taken(request)]
        if own and not request.replace:
            return [_taken(request)]
        generation = self._log.generation(spec.name, spec.creator)
        numbered = replace(spec, generation=generation, master=address)
        dropped = own[-1].uid if own else ""
        self._waiting[spec.app] = _Waiting(request, numbered, dropped, now_ms + GIVE_UP_MS)
        return [BootstrapProgram(numbered), *self._remind(now_ms, voter)]

    def asked_to_drop(self, request: DropProgram, now_ms: int, voter: str | None) -> list[Send]:
        if self._log.program(request.uid) is None:
            return [Send(request.origin, Answer(id=request.id))]
        self._waiting[request.app] = _Waiting(request, None, request.uid, now_ms + GIVE_UP_MS)
        return self._remind(now_ms, voter)

    def logged(self, uid: str, master: str) -> list[Send]:
        """The log has an entry of this job."""
        app = bytes.fromhex(uid.partition(".")[0])
        waiting = self._waiting.get(app)
        if waiting is None:
            return []
        if waiting.spec is None and uid == waiting.uid:
            del self._waiting[app]
            return [Send(waiting.request.origin, Answer(id=waiting.request.id))]
        spec = self._log.program(uid)
        if isinstance(waiting.request, SubmitProgram) and waiting.spec is not None and spec is not None:
            del self._waiting[app]
            if spec.subscription == waiting.spec.subscription:
                return [_added(waiting.request, spec)]
            return [_taken(waiting.request)]
        return []

    def deadline(self) -> int | None:
        return self._next_ms if self._waiting else None

    def tick(self, now_ms: int, voter: str | None) -> list[Send]:
        if not self._waiting or now_ms < self._next_ms:
            return []
        self._waiting = {app: w for app, w in self._waiting.items() if now_ms < w.until_ms}
        return self._remind(now_ms, voter)

    def _remind(self, now_ms: int, voter: str | None) -> list[Send]:
        """The jobs that are to end, and that the catalog log still has."""
        self._next_ms = now_ms + RETRY_MS
        if voter is None:
            return []
        found: list[Send] = []
        for waiting in self._waiting.values():
            if waiting.uid and self._log.program(waiting.uid) is not None:
                asked = waiting.request
                author = asked.spec.author if isinstance(asked, SubmitProgram) else asked.author
                found.append(Send(voter, DropJobEntry(uid=waiting.uid, author=author)))
        return found


def _added(request: SubmitProgram, spec: ProgramSpec) -> Send:
    body = msgspec.msgpack.encode({"job": spec.name, "uid": spec.uid})
    return Send(request.origin, Answer(id=request.id, body=body))


def _taken(request: SubmitProgram) -> Send:
    name = request.spec.name
    error = (
        f"job {name} exists already; submit it with --replace, DROP JOB {name} first, or choose "
        "another --name"
    )
    return Send(request.origin, Answer(id=request.id, error=error))
