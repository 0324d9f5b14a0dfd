"""What is kept of a request and of an entry of the catalog log, for the audit (``agents.audit``): who, from
where, what, and how it ended. Texts are cut; of files there are hashes, of tables names and sizes.
"""

from __future__ import annotations

from typing import Final

import msgspec

from elf.job.catalog.log import CatalogLog
from elf.job.effects import Audited
from elf.job.messages.log import (
    AggregateAdded,
    JobAdded,
    JobDropped,
    LogEntry,
    MemberJoined,
    MemberLeft,
    OutputAdded,
    ProgramAdded,
    RekeyingPaused,
    RosterChanged,
    RowsOffloaded,
    VersionAdded,
)
from elf.job.program.spec import Submission
from elf.job.spec import JobSpec
from elf.job.tables import is_table
from elf.ql.user_functions import functions_of
from elf.security.authored import digest
from elf.security.certificates import Revocation, Rotation
from elf.security.keys import shown
from elf.wire.clients import Call, Execute, Failed

TEXT_MAX: Final = 2_000
"""Characters of a statement that are kept."""
NAMES_MAX: Final = 16
"""Files of a statement that are named."""
GREETING: Final = "status"
"""The call by which every client begins: it says nothing."""


def request(client: str, asked: Execute | Call, end: object) -> list[Audited]:
    """A client's request, and how it ended; None: it has only begun."""
    if isinstance(asked, Call) and asked.verb == GREETING:
        return []
    facts: dict[str, object] = {"who": asked.creator, "from": client}
    if isinstance(asked, Execute):
        what = "statement"
        facts["statement"] = cut(asked.sql)
        if asked.files:
            facts["files"] = {cut(name): digest(text).hex() for name, text in asked.files[:NAMES_MAX]}
        if asked.tables:
            facts["tables"] = {cut(name): len(data) for name, data in asked.tables[:NAMES_MAX]}
    else:
        what = "call"
        facts |= {"verb": cut(asked.verb), **_argument(asked)}
    if isinstance(end, Failed):
        return [Audited(what, {**facts, "outcome": "refused", "reason": cut(end.text)})]
    return [Audited(what, {**facts, "outcome": "begun" if end is None else "ok"})]


def _argument(asked: Call) -> dict[str, object]:
    if asked.verb != "submit":
        return {"argument": cut(asked.argument)} if asked.argument else {}
    try:
        job = msgspec.json.decode(asked.argument, type=Submission)
    except (msgspec.MsgspecError, RecursionError):
        return {"argument": f"{len(asked.argument)} characters that are no job"}
    return {"job": cut(job.name), "files": {cut(job.filename): digest(job.text).hex()}}


def entry(new: LogEntry, log: CatalogLog) -> list[Audited]:
    """An entry of the catalog log, as every agent hears of it; nothing of those about where things are."""
    match new:
        case MemberJoined():
            facts = {
                "stream": new.stream,
                "agent": new.name,
                "agent_id": new.agent_id,
                "address": new.address,
            }
            return [Audited("member joined", facts)]
        case MemberLeft():
            who = next((m for m in log.members(new.stream) if m.number == new.number), None)
            named = (
                {} if who is None else {"agent": who.name, "agent_id": who.agent_id, "address": who.address}
            )
            return [Audited("member left", {"stream": new.stream, **named})]
        case JobAdded():
            return [Audited("job", _job(new.spec))]
        case VersionAdded():
            return [Audited("version of a job", _job(new.spec))]
        case JobDropped():
            return [Audited("job dropped", {"uid": new.uid})]
        case ProgramAdded():
            spec = new.spec
            files = {spec.filename: digest(spec.text).hex()}
            facts = {"creator": spec.creator, "job": spec.name, "uid": spec.uid}
            return [Audited("job in Python", {**facts, "files": files})]
        case AggregateAdded():
            own = new.spec
            facts = {"creator": own.creator, "aggregate": own.name, "uid": own.uid}
            return [Audited("aggregate", {**facts, "files": {own.filename: own.digest.hex()}})]
        case OutputAdded():
            one = new.spec
            facts = {"creator": one.creator, "output": one.name, "uid": one.uid, "job": one.job}
            if is_table(one):
                facts = {"creator": one.creator, "table": one.name, "uid": one.uid, "job": one.job}
                return [Audited("table", {**facts, "options": dict(one.options)})]
            return [Audited("output", {**facts, "to": one.target, "options": dict(one.options)})]
        case RekeyingPaused():
            table = log.output(new.uid)
            name = "" if table is None else table.name
            return [Audited("change of a table's key", {"table": name, "uid": new.uid, "paused": new.paused})]
        case RowsOffloaded():
            facts = {"agent_id": new.agent_id, "helper": new.helper, "uid": new.uid}
            return [Audited("rows offloaded", facts)]
        case RosterChanged():
            what, signed_by = new.signed.opened(), shown(new.signed.signer)
            facts = {"key": shown(what.key), "signed_by": signed_by}
            if isinstance(what, Revocation):
                return [Audited("key revoked", facts)]
            if isinstance(what, Rotation):
                return [Audited("fleet's key changed", {"starts": what.starts, **facts})]
            return [
                Audited("key enrolled", {"kind": what.kind, "name": what.name, "roles": what.roles, **facts})
            ]
    return []


def _job(spec: JobSpec) -> dict[str, object]:
    functions = {f"{one.kind} of {one.filename}": digest(one.text).hex() for one in functions_of(spec.plan)}
    facts: dict[str, object] = {"creator": spec.creator, "job": spec.name, "uid": spec.uid}
    facts |= {"version": spec.version, "statement": cut(spec.plan.sql)}
    return {**facts, "functions": functions} if functions else facts


def cut(text: str) -> str:
    return text if len(text) <= TEXT_MAX else f"{text[:TEXT_MAX]}… ({len(text)} characters)"
