"""Procedures for jobs in Python (``agents.answering.asks``): submit, query, drop, list. Any agent takes any
of them.

The client has checked the file and knows what the job subscribes to; here that is planned over the columns
that members have seen, so that every agent computes alike, and routed to the app id.
"""

from __future__ import annotations

import json
from collections.abc import Generator
from typing import Any

import msgspec

from agents.answering.asks import SILENT, Ask, Procedure, ToAddress, ToKey, Until, offload
from agents.answering.fleet import Fleet
from agents.answering.planning import Planning
from agents.answering.quotas import Creators
from elf.errors import UserError
from elf.fields import replace
from elf.job.catalog.log import CatalogLog
from elf.job.messages.groups import WhoIsThere
from elf.job.program import messages as note
from elf.job.program.calls import Subscription
from elf.job.program.spec import TEXT_BYTES_MAX, ProgramSpec, Question, Submission
from elf.job.program.values import pack_value
from elf.job.spec import JobSpec, app_id
from elf.ql.definition import TapDefinition, least_tap
from elf.security.authored import Authorship
from elf.security.principals import Principal
from elf.security.roles import RAW_COLUMN
from elf.wire.base import Answer
from elf.wire.clients import Call, Reply, authorship_of

Found = tuple[ProgramSpec, note.ProgramStatus | None]


class Submissions:
    """Of clients of this agent."""

    def __init__(self, log: CatalogLog, fleet: Fleet, planning: Planning, creators: Creators) -> None:
        self._creators = creators
        self._log = log
        self._fleet = fleet
        self._planning = planning

    def submit(self, call: Call, who: Principal | None) -> Procedure:
        """A client's job. Of whoever may see no raw lines it reads none."""
        from elf.ql import statements

        try:
            asked = msgspec.json.decode(call.argument, type=Submission)
        except msgspec.MsgspecError as error:
            raise UserError(f"this submission cannot be read: {error}") from None
        if len(asked.name) > statements.JOB_NAME_MAX:
            raise UserError(statements.too_long(asked.name))
        if len(asked.text.encode()) > TEXT_BYTES_MAX:
            raise UserError(
                f"{asked.filename} is longer than {TEXT_BYTES_MAX} bytes, the most that can be sent"
            )
        reads_raw = any(RAW_COLUMN in f"{s.query} {s.where}".lower() for s in asked.loaded.subscriptions)
        if reads_raw and who is not None and (why := who.lacks("tap", f"{RAW_COLUMN}, the raw line,")):
            raise UserError(why)
        yield from self._fleet.refuse_code()
        self._creators.job(asked.name, call.creator)
        self._creators.text(call.creator, lambda: len(asked.text.encode()))
        sql = {app_id(s.name, s.creator): s.name for s in self._log.jobs()}
        for subscription in asked.loaded.subscriptions:
            if subscription.app in sql:
                name = sql[subscription.app]
                raise UserError(f"subscribe(app=…): {name} is an SQL job, which multicasts nothing: query it")
        definitions: list[TapDefinition] = []
        for subscription in asked.loaded.subscriptions:
            if not subscription.app:
                definition = yield from self._tap(subscription)
                definitions.append(definition)
        spec = ProgramSpec(
            asked.name,
            call.creator,
            0,
            asked.text,
            asked.filename,
            asked.loaded.title,
            asked.loaded.every_ms,
            tuple(definitions),
            tuple(subscription.app for subscription in asked.loaded.subscriptions if subscription.app),
            asked.subscription,
            authorship_of(call),
            asked.loaded.pane_ms,
            trees=asked.loaded.trees,
            timer_at_master=asked.loaded.timer_at_master,
        )
        spec = replace(spec, roots=(yield from self._roots(spec)))
        request = note.SubmitProgram(id=0, origin="", spec=spec, replace=asked.replace)
        (answer,) = yield [ToKey(spec.app, request)]
        if answer.error == SILENT:
            raise UserError(
                f"job {spec.name}: the voters of the catalog log do not answer; elf jobs tells if it exists"
            )
        if answer.error:
            raise UserError(answer.error)
        body = msgspec.msgpack.decode(answer.body, type=dict[str, str])
        yield [Until(lambda: self._log.has_program(body["uid"]))]
        text = f"job {spec.name} submitted ({spec.title}, {spec.hash})"
        return Reply(request=call.request, text=text, body=json.dumps(body).encode())

    def _roots(self, spec: ProgramSpec) -> Generator[list[Ask], list[Answer], tuple[str, ...]]:
        """The nodes that are to found the job groups of the job's trees after the first. Where one does not
        say, the catalog log has another."""
        topics = spec.topics[1:]
        if topics and not self._log.addresses():
            raise UserError(f"job {spec.name}: several trees need agents with streams, and there are none")
        answers = (yield [ToKey(key, WhoIsThere(id=0, origin="")) for key in topics]) if topics else []
        return tuple("" if a.error else msgspec.msgpack.decode(a.body, type=str) for a in answers)

    def _tap(self, subscription: Subscription) -> Generator[list[Ask], list[Answer], TapDefinition]:
        from elf.ql import planner, statements

        if subscription.stream:
            if subscription.stream not in self._log.streams():
                known = ", ".join(self._log.streams()) or "none"
                raise UserError(f"there is no stream {subscription.stream}; streams: {known}")
            schema = yield from self._fleet.schema(subscription.stream)
            rows = TapDefinition(
                subscription.name,
                subscription.stream,
                schema,
                where=subscription.where,
                columns=tuple(subscription.columns),
            )
            return (yield from offload(lambda: least_tap(rows)))
        query = yield from offload(lambda: statements.parse_query(subscription.query))
        if query is None:
            raise UserError(f"subscription {subscription.name}: one SELECT is needed")
        named = yield from offload(lambda: planner.streams_of(query))
        stream, *others = self._planning.known_streams(named)
        if others:
            raise UserError(
                f"subscription {subscription.name}: a job's query is of one stream, not {1 + len(others)}"
            )
        schema = yield from self._fleet.schema(stream)
        found = TapDefinition(subscription.name, stream, schema, query.sql)
        return (yield from offload(lambda: least_tap(found)))

    def query(self, call: Call) -> Procedure:
        """A client asks a job's master, as another job would (``Job.query``)."""
        try:
            asked = msgspec.json.decode(call.argument, type=Question)
        except msgspec.MsgspecError as error:
            raise UserError(f"this query cannot be read: {error}") from None
        creator, _, name = asked.job.rpartition("/")
        spec = self._log.find_program(name, creator or call.creator)
        sql = self._log.find_job(name, creator or call.creator)
        found = spec or sql
        if found is None:
            names = sorted({*(s.name for s in self._log.programs()), *(s.name for s in self._log.jobs())})
            raise UserError(f"there is no job {asked.job}; jobs: {', '.join(names) or 'none'}")
        if spec is not None and _is_scale(asked.message):
            raise UserError(f"a query changes no job: ALTER JOB {spec.name} SCALE OUT n, or SCALE IN n")
        body = yield from self._ask(found, asked.message, asked.job)
        return Reply(request=call.request, payload=body)

    def _ask(
        self, found: ProgramSpec | JobSpec, message: Any, named: str
    ) -> Generator[list[Ask], list[Answer], bytes]:
        """What the master of a job replies to a message."""
        app = app_id(found.name, found.creator)
        request = note.QueryProgram(id=0, origin="", app=app, value=pack_value(message))
        to_master = isinstance(found, ProgramSpec) and bool(found.master)
        (answer,) = yield [ToAddress(found.leader, request) if to_master else ToKey(app, request)]
        if answer.error:
            said = answer.error.removeprefix(f"{found.name} ").removeprefix(f"{found.name}: ")
            raise UserError(f"job {named} gave no answer: {said}")
        return answer.body

    def scale(self, request: int, spec: ProgramSpec, by: int) -> Procedure:
        """ALTER JOB … SCALE OUT or IN of a job whose class knows what that is: it replies what it will do."""
        if not by:
            raise UserError(f"job {spec.name} is written in Python: SCALE OUT n or SCALE IN n")
        reply = yield from self._ask(spec, {"scale": by}, spec.name)
        try:
            told = msgspec.msgpack.decode(reply, type=dict[str, str])["scaled"]
        except (msgspec.MsgspecError, KeyError):
            raise UserError(
                f"job {spec.name} does not scale: graph computations do (elf.job.graphs), and classes that "
                'reply {"scaled": text} to {"scale": n}'
            ) from None
        return Reply(request=request, text=f"job {spec.name}: {told}")

    def drop(self, request: int, spec: ProgramSpec, author: Authorship | None) -> Procedure:
        asked = note.DropProgram(id=0, origin="", app=spec.app, uid=spec.uid, author=author)
        (answer,) = yield [ToKey(spec.app, asked)]
        if answer.error:
            raise UserError(f"job {spec.name} is not dropped: {answer.error}")
        yield [Until(lambda: self._log.is_dropped(spec.uid))]
        return Reply(request=request, text=f"job {spec.name} dropped")

    def inspect(self) -> Generator[list[Ask], list[Answer], list[Found]]:
        """Every job in Python, with what its master says of it; None where that is silent."""
        specs = self._log.programs()
        answers = yield [
            ToAddress(spec.master, request) if spec.master else ToKey(spec.app, request)
            for spec in specs
            for request in [note.InspectProgram(id=0, origin="", app=spec.app, uid=spec.uid)]
        ]
        return [
            (spec, None if a.error else msgspec.msgpack.decode(a.body, type=note.ProgramStatus))
            for spec, a in zip(specs, answers, strict=True)
        ]


def _is_scale(message: object) -> bool:
    """Whether a class may take it for what ALTER JOB says to it, which only the owner may."""
    return isinstance(message, dict) and "scale" in message


def told(spec: ProgramSpec, facts: note.ProgramStatus | None) -> tuple[str, str]:
    """A job's state and, when something is wrong, the reason, for people."""
    if facts is None:
        return "unknown", "its master does not answer"
    troubles = [(agent, state, why) for agent, state, why in facts.troubles]
    if not troubles:
        return facts.state, facts.reason
    agent, state, why = next((t for t in troubles if t[1] == "failed"), troubles[0])
    others = f" and {len(troubles) - 1} more" if len(troubles) > 1 else ""
    return state, f"on {agent}{others}: {why}"


def program_row(spec: ProgramSpec, facts: note.ProgramStatus | None) -> dict[str, object]:
    """In a list of jobs, beside ``agents.answering.about.job_row``."""
    state, reason = told(spec, facts)
    return {
        "job": spec.name,
        "creator": spec.creator,
        "stream": ", ".join(sorted({tap.fragment.stream for tap in spec.taps})),
        "master": facts.master if facts is not None else "",
        "flow": "",
        "readers": 0,
        "query": f"{spec.title} of {spec.filename}",
        "state": state,
        "reason": reason,
        "promise": "",
        "priority": "production",
        "budget": "",
    }


def described(spec: ProgramSpec, facts: note.ProgramStatus | None, log: CatalogLog) -> dict[str, str]:
    """For DESCRIBE."""
    state, reason = told(spec, facts)
    where = " at the master" if spec.timer_at_master else ""
    found = {
        "state": state,
        "master": facts.master if facts is not None else "",
        "creator": spec.creator,
        "class": f"{spec.title} of {spec.filename} ({spec.hash}), generation {spec.generation}",
        "timer": f"every {spec.every_ms / 1000:g} s{where}" if spec.every_ms else "none",
        "panes": f"of {spec.pane_ms / 1000:g} s" if spec.pane_ms else "none",
        "streams": ", ".join(sorted({tap.fragment.stream for tap in spec.taps})) or "none",
    }
    if len(spec.trees) > 1:
        at = zip(spec.trees, spec.groups, strict=True)
        found["trees"] = ", ".join(f"{tree} at {log.leader(group) or 'nobody'}" for tree, group in at)
    if reason:
        found["reason"] = reason
    if facts is not None and facts.counts:
        found["counted at the master"] = ", ".join(f"{what} {n}" for what, n in sorted(facts.counts.items()))
    return found
