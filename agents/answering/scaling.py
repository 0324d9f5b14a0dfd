"""Procedures for jobs that get roots, or lose some (``agents.answering.asks``): ALTER JOB … SCALE, and what
the catalog log decides of jobs that scale by themselves (protocol 5.15).

A change of trees is a version like any other. What is here asks what agents do, and the planner
(``elf.planning.scaling``) what the change comes to.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from agents.answering.asks import Ask, Procedure, Reading, offload
from agents.answering.changes import Changes
from agents.answering.fleet import Fleet
from agents.answering.masters import Masters
from agents.answering.once import author_of, authors_of
from agents.answering.planning import Planning
from agents.answering.quotas import Creators
from elf.errors import ElfBug, UserError
from elf.fields import TREES_MAX
from elf.job.catalog.loads import by_group, job_of_loads, roots_for, work_of
from elf.job.catalog.log import CatalogLog
from elf.job.group.versions import is_kept
from elf.job.messages.groups import ReconfigureJob, altered
from elf.job.messages.log import TreesDecided
from elf.job.spec import JobSpec
from elf.planning.scaling import as_asked, leaving
from elf.ql.definition import Definition
from elf.ql.plan import Plan
from elf.security.authored import Authorship
from elf.wire.base import Answer
from elf.wire.clients import Execute, Reply

if TYPE_CHECKING:  # sqlglot, as in agents.answering.statements
    from elf.ql import changes

WithTrees = Callable[[Execute, JobSpec, int], Generator[list[Ask], list[Answer], Definition]]


class Scaling:
    """Of jobs, as people ask this agent for it, or as the log wants it of a job that is led here."""

    def __init__(
        self,
        log: CatalogLog,
        fleet: Fleet,
        masters: Masters,
        planning: Planning,
        creators: Creators,
        changed: Changes,
    ) -> None:
        self._log = log
        self._fleet = fleet
        self._masters = masters
        self._planning = planning
        self._creators = creators
        self._changes = changed
        self.with_trees: WithTrees = self._planned
        """What a job does, over so many trees."""

    def scale(self, asked: Execute, statement: changes.ScaleJob) -> Procedure:
        spec = self._masters.own(statement.name, asked.creator)
        self._planning.unread(spec)
        author = yield from offload(partial(author_of, asked, statement))
        if statement.bounds is not None:
            return (yield from self._by_itself(asked, statement, spec, author))
        now = spec.plan.trees
        trees = now + statement.by
        if not 1 <= trees <= TREES_MAX:
            raise UserError(f"job {spec.name} {_no_further(now, statement.by)}")
        definition = yield from self.with_trees(asked, spec, trees)
        self._creators.plan(asked.creator, definition.plan, spec)
        loads = yield from self._fleet.loads()
        job = job_of_loads(self._log, spec, by_group(loads))
        roots = roots_for(self._log, spec, trees, loads)
        if roots is None:
            roots = yield from self._planning.range_roots(spec.name, spec.creator, definition.plan)
        what = "what it takes is not measured yet" if job is None else "; ".join(as_asked(job, trees).reasons)
        wanted = altered(spec, definition, f"{statement.sql}: {what}", roots=roots)
        reply = yield from self._changes.ask(asked, spec, (yield from _signed(wanted, spec, author)))
        return _told(reply, f"it has {_trees(trees)}, and had {now}: {what}")

    def _by_itself(
        self, asked: Execute, statement: changes.ScaleJob, spec: JobSpec, author: Authorship | None
    ) -> Procedure:
        """SCALE AUTO: a version that does the same, and says how many trees it may have."""
        least, most = statement.bounds or (1, 1)
        other = yield from self.with_trees(asked, spec, most if most != spec.plan.trees else least)
        _must_bear(spec, other.plan)
        self._creators.plan(asked.creator, other.plan, spec)
        wanted = altered(spec, spec.definition.from_now(), statement.sql, scale=(least, most))
        reply = yield from self._changes.ask(asked, spec, (yield from _signed(wanted, spec, author)))
        return _told(reply, f"it has {least} to {_trees(most)}, as many as it needs")

    def leaving(self, count: int) -> Generator[list[Ask], list[Answer], list[dict[str, object]]]:
        """The agents that can go when a fleet has too many: of those without streams, as lines are read where
        they are. Raises ``UserError`` where there are not so many."""
        known = self._fleet.agents()
        stay = {at for at, (_, streams) in known.items() if streams}
        if not 1 <= count <= len(known) - len(stay):
            raise UserError(
                f"of {len(known)} agents {len(stay)} read lines, and never go by themselves: of the others "
                f"{len(known) - len(stay)} can, not {count}; elf leave has any of them leave"
            )
        said = yield from self._fleet.loads()
        jobs, masters, roots = work_of(self._log, said)
        at = {agent: (masters.get(agent, ()), roots.get(agent, ())) for agent in (*known, *masters, *roots)}
        found = leaving(
            jobs,
            {agent: had for agent, (had, _) in at.items()},
            {agent: had for agent, (_, had) in at.items()},
            stay={*stay, *(at.keys() - known.keys())},
            count=count,
        )
        return [
            {
                "agent": self._fleet.named(one.agent),
                "masters": one.masters,
                "roots": one.roots,
                "why": why,
                "how": f"elf leave --connect {one.agent}",
            }
            for one, why in zip(found.leavers, found.reasons, strict=True)
        ]

    def decided(self, entry: TreesDecided) -> Procedure:
        """What the catalog log wants of a job that is led here."""
        spec = self._log.job(entry.uid)
        if spec is None or spec.plan.trees != entry.before:
            raise UserError("it has changed meanwhile")
        asked = Execute(request=0, sql="", creator=spec.creator)
        definition = yield from self.with_trees(asked, spec, entry.trees)
        note = f"scaled by itself to {_trees(entry.trees)}: {entry.why}"
        wanted = altered(spec, definition, note, roots=entry.roots, scale=spec.scale)
        wanted = msgspec.structs.replace(wanted, by_itself=True)
        return (yield from self._changes.ask(asked, spec, wanted))

    def _planned(
        self, asked: Execute, spec: JobSpec, trees: int
    ) -> Generator[list[Ask], list[Answer], Definition]:
        """From its text. Raises ``QueryError`` where that cannot be."""
        from elf.ql.changes import AlterJob

        return (yield from self._changes.new_query(asked, AlterJob(asked.sql, spec.name, trees=trees), spec))


def _signed(
    wanted: ReconfigureJob, spec: JobSpec, author: Authorship | None
) -> Generator[list[Ask], list[Answer], ReconfigureJob]:
    """The same, as a person has signed it."""
    authors = yield from offload(partial(authors_of, author, spec))
    return msgspec.structs.replace(wanted, authors=authors, author=author)


def _must_bear(spec: JobSpec, other: Plan) -> None:
    """Raises ``UserError`` where a job cannot get other trees without losing the state of its windows."""
    kept, why = is_kept(spec.plan, other)
    if kept and why:
        raise UserError(f"job {spec.name} cannot scale by itself: {why}")


def _no_further(now: int, by: int) -> str:
    """Why a job with so many trees cannot have so many more, or fewer."""
    how, room, end = ("IN", now - 1, "the fewest") if by < 0 else ("OUT", TREES_MAX - now, "the most")
    return f"has {_trees(now)}, " + (f"so SCALE {how} {room} at most" if room else f"{end} that there are")


def _trees(count: int) -> str:
    return "1 tree" if count == 1 else f"{count} trees"


def _told(reply: Reply | Reading, what: str) -> Reply:
    if not isinstance(reply, Reply):
        raise ElfBug("a change of a job is read")
    return msgspec.structs.replace(reply, text=f"{reply.text}; {what}")
