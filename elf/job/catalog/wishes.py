"""Whether a person who may has signed what is asked of a job that exists: DROP, PAUSE, RESUME, EMPTY,
ROLLBACK, ALTER and NOTIFY, in a fleet with keys (protocol 12.10).

The signed statement travels with the request, and each agent that acts on it looks: the job's master, the
root that multicasts a notice and the workers that show it, the voter that takes a tombstone. It is the
owner's, or an admin's, names the job and the change, and is fresh by the clock of the agent that looks
(``elf.security.authored``). A tombstone keeps the number of its statement, which then ends no other job. For
the rest an agent remembers what it has taken: what is said again within its lifetime changes nothing twice.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec

from elf.fields import replace
from elf.job.catalog.assignments import DECIDED_MS
from elf.job.catalog.bootstrap import bootstrap_of
from elf.job.catalog.log import CatalogLog
from elf.job.messages.groups import DropJob, FillHistory, HandOverJob, ReconfigureJob
from elf.job.messages.inquiries import NotifyJob
from elf.job.messages.log import DropJobEntry, OffloadRows, PauseRekeying, TreesDecided
from elf.job.messages.rollup import Broadcast
from elf.job.spec import JobSpec, app_id
from elf.ql.definition import Contents
from elf.security.authored import SUBMIT, Authorship, Taken, stale
from elf.wire.clients import ONE_SHOT_PREFIX, Call, FillOptions, signed_part

if TYPE_CHECKING:  # sqlglot, where something is signed
    from elf.ql.statements import Statement

UNSIGNED: Final = "nobody has signed it"
Asked = DropJob | ReconfigureJob | HandOverJob | NotifyJob | Broadcast
_Requests = DropJob | ReconfigureJob | HandOverJob | NotifyJob


class Wishes:
    """Of those that one agent has taken."""

    def __init__(self, log: CatalogLog) -> None:
        self._log = log
        self._taken = Taken()

    def refused(self, asked: Asked, spec: JobSpec, now_ms: int) -> str:
        """Why this may not be done to a job; empty: it may, or there are no keys. A request that comes twice
        is one."""
        author, why = asked.author, refused_change(self._log, asked, spec, now_ms)
        if why or author is None:
            return why
        by = (asked.origin, asked.id) if isinstance(asked, _Requests) else asked
        return self._taken.refused(author, by, now_ms / 1_000)


def refused_change(log: CatalogLog, asked: Asked, spec: JobSpec, now_ms: int) -> str:
    """The same, however often it was said."""
    if log.roster is None or (isinstance(asked, DropJob) and spec.name.startswith(ONE_SHOT_PREFIX)):
        return ""
    if isinstance(asked, ReconfigureJob) and asked.author is None and _is_by_itself(log, asked, spec, now_ms):
        return ""
    author, named = asked.author, (spec.uid, spec.name, spec.creator)
    why = _refused(log, author, named, lambda statement: _means(statement, asked))
    return why or ("" if author is None else stale(author.authored, now_ms / 1_000))


def _is_by_itself(log: CatalogLog, asked: ReconfigureJob, spec: JobSpec, now_ms: int) -> bool:
    """Whether a job may change so without a person."""
    return _is_decided(log, asked, spec, now_ms) or _is_renewed(log, asked, spec)


def _is_decided(log: CatalogLog, asked: ReconfigureJob, spec: JobSpec, now_ms: int) -> bool:
    """Whether the catalog log wants a job to have these trees (protocol 5.15): all else stays as it was
    signed."""
    last = log.assignments.last(spec.uid)
    if not isinstance(last, TreesDecided) or abs(now_ms - last.at_ms) > DECIDED_MS:
        return False
    same = asked.verb == "alter" and (asked.authors, asked.scale) == (spec.authors, spec.scale)
    trees = 0 if asked.definition is None else asked.definition.plan.trees
    return same and trees == last.trees and not asked.reset and not asked.immediately


def _is_renewed(log: CatalogLog, asked: ReconfigureJob, spec: JobSpec) -> bool:
    """Whether the leader of a job's group wants it to have other rows of the tables that it joins (protocol
    7.17): all else stays as it was signed."""
    new, had = asked.definition, spec.definition.from_now()
    if new is None or asked.verb != "alter" or asked.origin != log.leader(spec.uid):
        return False
    same = (asked.authors, asked.scale, asked.reset, asked.immediately) == (
        spec.authors,
        spec.scale,
        False,
        False,
    )
    return same and replace(new, tables=()) == replace(had, tables=()) and _are_later(new.tables, had.tables)


def _are_later(new: tuple[Contents, ...], had: tuple[Contents, ...]) -> bool:
    """Whether tables are the same but for rows of tables of jobs."""
    rows = [(one, replace(one, data=b"", moment=None)) for one in (*new, *had)]
    same = [plain for _, plain in rows[: len(new)]] == [plain for _, plain in rows[len(new) :]]
    return same and all(
        one == old if old.moment is None else one.moment is not None and one.moment.table == old.moment.table
        for one, old in zip(new, had, strict=True)
    )


def refused_fill(log: CatalogLog, asked: FillHistory, spec: JobSpec, now_ms: int) -> str:
    """The same of a history. Said again it changes nothing."""
    if log.roster is None:
        return ""
    author, options = asked.author, FillOptions(spec.name, asked.version, asked.results)
    if author is None:
        return UNSIGNED
    argument = msgspec.json.encode(options).decode()
    call = Call(request=0, verb="fill", argument=argument)
    if (author.text, author.digests) != signed_part(call):
        return "another call was signed"
    why = log.authors.refused_change(author, spec.uid, spec.creator)
    return why or stale(author.authored, now_ms / 1_000)


def refused_drop(log: CatalogLog, proposal: DropJobEntry) -> str:
    """Why a job gets no tombstone; empty: it does. A function of the log and the proposal: whether the
    statement is fresh, the voter says that takes it. Key ranges are between agents, and a SELECT ends with
    who reads it."""
    uid = proposal.uid
    if log.roster is None or bootstrap_of(uid) is not None:
        return ""
    if (output := log.output(uid)) is not None:
        return _refused(log, proposal.author, (uid, output.name, output.creator), _drops_output)
    if (own := log.aggregate(uid)) is not None:
        return _refused(log, proposal.author, (uid, own.name, own.creator), _drops_aggregate, code=True)
    known = log.ever(uid) or log.program(uid)
    name, creator = (proposal.name, proposal.creator) if known is None else (known.name, known.creator)
    if app_id(name, creator).hex() != uid.partition(".")[0]:
        return "it is of no job that the log knows"
    if name.startswith(ONE_SHOT_PREFIX):
        return ""
    if proposal.author is not None and proposal.author.text == SUBMIT + name:  # the next one of that name
        return log.authors.refused_change(proposal.author, uid, creator, again=True)
    return _refused(log, proposal.author, (uid, name, creator), _drops)


def refused_pause(log: CatalogLog, proposal: PauseRekeying) -> str:
    """Why the change of a table's key is not paused, or does not go on; empty: it is, or does."""
    table = log.output(proposal.uid)
    if table is None:
        return "there is no such table"
    if log.roster is None:
        return ""
    if log.authors.has_used(proposal.author):
        return "this statement was said before: it has to be signed anew"
    named = proposal.uid, table.name, table.creator
    return _refused(log, proposal.author, named, partial(_pauses, proposal.paused))


def refused_offload(log: CatalogLog, proposal: OffloadRows) -> str:
    """Why rows of a job are not mapped elsewhere, or not at home again; empty: they are."""
    spec = log.job(proposal.uid)
    if spec is None:
        return "there is no such job"
    members = [log.member_of(stream, proposal.agent_id) for stream in spec.plan.streams]
    if not any(members):
        return "the agent has no stream of the job"
    if log.roster is None:
        return ""
    if log.authors.has_used(proposal.author):
        return "this statement was said before: it has to be signed anew"
    agents = [
        {at for one in members if one is not None for at in (one.name, one.address)},
        {at for at in (proposal.helper,) if at},
    ]
    named = spec.uid, spec.name, spec.creator
    return _refused(log, proposal.author, named, partial(_offloads, log, agents))


def _offloads(log: CatalogLog, agents: list[set[str]], statement: Statement) -> bool:
    """Whether a statement says that rows of one agent go to the other one, or back (the second is nobody)."""
    from elf.ql import changes

    if not isinstance(statement, changes.OffloadJob) or statement.agent not in agents[0]:
        return False
    helper = statement.helper
    return not helper if not agents[1] else any(helper == at or log.is_at(helper, at) for at in agents[1])


def _pauses(paused: bool, statement: Statement) -> bool:
    from elf.ql import keyed

    return isinstance(statement, keyed.PauseTable) and statement.paused == paused


def _drops(statement: Statement) -> bool:
    from elf.ql import statements as ql

    return isinstance(statement, ql.DropJob)


def _drops_output(statement: Statement) -> bool:
    from elf.ql import outputs as ql

    return isinstance(statement, ql.DropOutput)


def _drops_aggregate(statement: Statement) -> bool:
    from elf.ql import aggregates as ql

    return isinstance(statement, ql.DropAggregate)


def _refused(
    log: CatalogLog,
    author: Authorship | None,
    named: tuple[str, str, str],
    means: Callable[[Statement], bool],
    *,
    code: bool = False,
) -> str:
    from elf.ql.signed import said_by

    uid, name, creator = named
    if author is None:
        return UNSIGNED
    statement = said_by(author)
    if statement is None or getattr(statement, "name", None) != name or not means(statement):
        return "another statement was signed"
    return log.authors.refused_change(author, uid, creator, "code" if code else "write")


def _means(statement: Statement, asked: Asked) -> bool:
    """Whether a statement says what is asked."""
    from elf.ql import changes
    from elf.ql import statements as ql

    match asked:
        case DropJob():
            return isinstance(statement, ql.DropJob)
        case HandOverJob():
            return isinstance(statement, changes.MoveJob) and statement.agent == asked.agent
        case NotifyJob() | Broadcast():
            return isinstance(statement, ql.NotifyJob) and statement.text == asked.text
        case ReconfigureJob() if isinstance(statement, changes.AlterJob):
            how = (statement.reset, statement.immediately)
            return asked.verb == "alter" and how == (asked.reset, asked.immediately)
        case ReconfigureJob() if isinstance(statement, changes.ScaleJob):
            plain = asked.verb == "alter" and not asked.reset and not asked.immediately
            return plain and asked.scale == statement.bounds
        case ReconfigureJob() if isinstance(statement, changes.ReconfigureJob):
            said = (statement.verb, statement.version, statement.reset, statement.immediately)
            return said == (asked.verb, asked.version, asked.reset, asked.immediately)
        case _:
            return False
