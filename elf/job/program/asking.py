"""Queries between masters: those of the jobs here that have no reply yet, and those to SQL jobs.

A query always ends with a reply, an error or its timeout. It carries the path of jobs that wait for it; a
query to a job of its own path would wait for itself, and is refused before it is sent.
"""

from __future__ import annotations

from typing import Final

import msgspec

from elf.batch import decode
from elf.errors import PeerError
from elf.job.effects import Send
from elf.job.messages.groups import Inspect, JobStatus
from elf.job.program.messages import QueryProgram, Returned, Routed
from elf.job.program.port import AnswerProgram, ProgramAsked
from elf.job.program.values import NoMessage, pack_value
from elf.job.spec import JobSpec, app_id
from elf.wire.base import Answer

QUERIES_MAX: Final = 1_000
INSPECT_IDS: Final = 1 << 40
"""Our requests to the job groups of SQL jobs have higher ids than those of clients."""
INSPECT_MS: Final = 10_000


class _Query(msgspec.Struct, frozen=True):
    uid: str
    number: int
    until_ms: int


class Asking:
    """One node's part in queries."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._numbers = 0
        self._queries: dict[int, _Query] = {}
        self._inspections: dict[int, tuple[str, int]] = {}

    def ask(self, asked: ProgramAsked, source: bytes, now_ms: int) -> Routed | AnswerProgram:
        """The message to route, or the refusal."""
        waiting = [label for label in asked.path if app_of(label) == asked.app]
        if waiting:
            circle = " → ".join([*asked.path[asked.path.index(waiting[0]) :], waiting[0]])
            error = f"refused, it would wait for itself: {circle}"
            return AnswerProgram(asked.uid, asked.number, error=error)
        if len(self._queries) >= QUERIES_MAX:
            return AnswerProgram(asked.uid, asked.number, error="refused: too many queries wait here")
        number = self.number()
        self._queries[number] = _Query(asked.uid, asked.number, now_ms + asked.timeout_ms)
        return Routed(
            app=asked.app,
            source=source,
            value=asked.value,
            path=asked.path,
            origin=self._address,
            query=number,
        )

    def number(self) -> int:
        """Of the next question of this node."""
        self._numbers += 1
        return self._numbers

    def returned(self, reply: Returned) -> list[AnswerProgram]:
        query = self._queries.pop(reply.query, None)
        return [] if query is None else [AnswerProgram(query.uid, query.number, reply.value, reply.error)]

    def forget(self, uid: str) -> None:
        """The job has ended."""
        self._queries = {n: q for n, q in self._queries.items() if q.uid != uid}

    def inspect(self, spec: JobSpec, token: str, now_ms: int) -> Send:
        """An SQL job's answer is its last window; its job group knows it."""
        id_ = INSPECT_IDS + self.number()
        self._inspections[id_] = (token, now_ms + INSPECT_MS)
        return Send(spec.leader, Inspect(id=id_, origin=self._address, uid=spec.uid, windows=1))

    def awaits(self, id_: int) -> bool:
        return id_ in self._inspections

    def answered(self, answer: Answer) -> Send:
        """A job group has answered what its job knows."""
        token, _ = self._inspections.pop(answer.id)
        if answer.error:
            return reply(token, error=answer.error)
        try:
            facts = msgspec.msgpack.decode(answer.body, type=JobStatus)
            return reply(token, pack_value(_last_window(facts)))
        except (msgspec.MsgspecError, NoMessage) as error:
            return reply(token, error=f"what its master says cannot be read: {error}")

    def deadline(self) -> int | None:
        waits = [query.until_ms for query in self._queries.values()]
        return min([*waits, *(until for _, until in self._inspections.values())], default=None)

    def tick(self, now_ms: int) -> list[AnswerProgram]:
        late = [(n, query) for n, query in self._queries.items() if now_ms >= query.until_ms]
        for number, _ in late:
            del self._queries[number]
        self._inspections = {n: i for n, i in self._inspections.items() if now_ms < i[1]}
        return [AnswerProgram(query.uid, query.number, error="no answer in time") for _, query in late]


def of_client(asked: QueryProgram) -> Routed:
    """A client's query, treated as one of a job that nobody waits for."""
    return Routed(app=asked.app, source=b"", value=asked.value, origin=asked.origin, query=-asked.id)


def token_of(routed: Routed) -> str:
    """The address and number to reply to; empty when no reply is wanted."""
    return f"{routed.origin}|{routed.query}" if routed.query else ""


def reply(token: str, value: bytes = b"", error: str = "") -> Send:
    origin, _, number_text = token.rpartition("|")
    number = int(number_text)
    if number < 0:
        return Send(origin, Answer(id=-number, body=value, error=error))
    return Send(origin, Returned(query=number, value=value, error=error))


def app_of(label: str) -> bytes:
    """The app id of ``creator/name``."""
    creator, _, name = label.rpartition("/")
    return app_id(name, creator)


def _last_window(facts: JobStatus) -> dict[str, object]:
    """The rows and the status of the last committed window."""
    found: dict[str, object] = {"job": facts.spec.name, "window_start": None, "window_end": None}
    found |= {"rows": [], "status": {}}
    if not facts.windows:
        return found
    result = facts.windows[-1]
    try:
        rows = decode(result.payload).to_pylist() if result.payload else []
        status = decode(result.status).to_pylist() if result.status else []
    except PeerError:
        return found
    last = status[-1] if status else {}
    span = {name: last.get(name) for name in ("window_start", "window_end")}

    def beside(row: dict[str, object]) -> dict[str, object]:
        return {name: value for name, value in row.items() if name not in span}

    kept = [beside(row) for row in rows if row.get("window_start") == span["window_start"]]
    return found | span | {"rows": kept, "status": beside(last)}
